//! Bad input on each command: an error that names the object, exit status 2 or 1, nothing half-written.

use crate::program;
use std::path::Path;
use std::process::Command;

use crate::program::{compile_c, symseal, symseal_path};

const SOURCE: &str =
    "int helper(int x) { return x * 3; }\nint main(int argc, char **argv) { (void)argv; return helper(argc); }\n";

/// A bundle build of `paths` into `dir/bundle`.
fn build(dir: &Path, paths: &[&Path]) -> program::Ran {
    let output = dir.join("bundle");
    let mut arguments = vec!["bundle".into(), "build".into()];
    arguments.extend(paths.iter().map(|path| path.as_os_str().to_owned()));
    arguments.extend(["--name", "n", "--version", "1", "--output"].map(Into::into));
    arguments.push(output.into_os_string());
    symseal(arguments)
}

/// Nothing was left where the bundle would have been.
#[track_caller]
fn nothing_visible(dir: &Path) {
    assert!(!dir.join("bundle").exists(), "a refused build left a layout behind");
}

#[test]
fn a_missing_input_is_named() {
    let dir = tempfile::tempdir().expect("tempdir");
    build(dir.path(), &[Path::new("/nonexistent/app")]).refused(2, &["/nonexistent/app"]);
    nothing_visible(dir.path());
}

#[test]
fn a_directory_without_modules_is_no_release() {
    let dir = tempfile::tempdir().expect("tempdir");
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).expect("directory");
    build(dir.path(), &[&empty]).refused(2, &["empty"]);
    nothing_visible(dir.path());
}

#[test]
fn a_file_that_is_no_elf_is_named() {
    let dir = tempfile::tempdir().expect("tempdir");
    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "not an executable").expect("written");
    build(dir.path(), &[&text]).refused(2, &["notes.txt"]);
    nothing_visible(dir.path());
}

#[test]
fn an_elf_cut_off_anywhere_is_refused_or_built_but_never_panics() {
    let dir = tempfile::tempdir().expect("tempdir");
    let Some(whole) = compile_c(dir.path(), "whole", SOURCE, &["-g", "-O1"]) else { return };
    let bytes = std::fs::read(&whole).expect("read");
    let cut = dir.path().join("cut-off");
    // A fixed walk over the file: 50 places, none of them round.
    for place in 0..50_usize {
        let length = (place * 7919 + 13) % bytes.len();
        std::fs::write(&cut, &bytes[..length]).expect("written");
        let scene = tempfile::tempdir().expect("tempdir");
        build(scene.path(), &[&cut]).refused(2, &["cut-off"]);
        nothing_visible(scene.path());
    }
}

/// Characters that would turn, hide or steer what stands around them in a terminal.
const UNSEEN: [char; 6] = ['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}', '\u{85}', '\u{1b}'];

#[test]
fn names_that_would_turn_the_text_of_a_report_around_are_written_out() {
    let (Some(zip), Some(strip)) = (program::tool("zip"), program::tool("strip")) else { return };
    let dir = tempfile::tempdir().expect("tempdir");
    let inputs = dir.path().join("in\u{202e}puts");
    std::fs::create_dir(&inputs).expect("directory");
    // Modules, a debug file of another build, one without its binary, an object file, archives within archives, files that are refused:
    // each kind of line has such a name.
    let make = |name: &str, id: &str, flags: &[&str]| {
        let id = format!("-Wl,--build-id=0x{id}");
        let file = compile_c(dir.path(), "made", SOURCE, &[flags, &[id.as_str()]].concat())?;
        let to = inputs.join(name);
        std::fs::rename(file, &to).expect("renamed");
        Some(to)
    };
    let Some(bare) = make("app\u{202e}", "aa01", &["-g"]) else { return };
    assert!(Command::new(strip).arg(&bare).status().is_ok_and(|status| status.success()));
    let _ = make("app\u{202e}.debug", "aa02", &["-g"]).map(|file| keep_debug(&file));
    let _ = make("whole\u{2066}", "bb01", &["-g"]);
    let _ = make("alone\u{200b}.debug", "cc01", &["-g"]).map(|file| keep_debug(&file));
    let _ = compile_c(&inputs, "linker\u{feff}.o", SOURCE, &["-c"]);
    std::fs::write(inputs.join("x\u{202e}-gdb.py"), "print(1)").expect("written");
    let mut library = b"MZ".to_vec();
    library.resize(4096, 0);
    library[60] = 64;
    library.splice(64..68, *b"PE\0\0");
    std::fs::write(inputs.join("damaged\u{202e}.dll"), library).expect("written");
    std::fs::write(inputs.join("cut\u{85}.7z"), b"7z\xbc\xaf\x27\x1c\0\x04").expect("written");
    for (archive, member) in
        [("1\u{202e}.zip", "whole\u{2066}"), ("2.zip", "1\u{202e}.zip"), ("3\u{2066}.zip", "2.zip")]
    {
        let packed = Command::new(&zip).arg("-q").arg(archive).arg(member).current_dir(&inputs).status();
        assert!(packed.is_ok_and(|status| status.success()));
    }
    let ran = build(dir.path(), &[&inputs]);
    let told = format!("{}{}", ran.stdout, ran.stderr);
    assert!(ran.status == 0, "{told}");
    nothing_unseen(&told);
    for kind in ["app", "error: ", "unpaired: ", "refused: ", "not looked into: ", "note: ", "    /"] {
        let mut lines = told.lines().filter(|line| line.starts_with(kind));
        assert!(lines.any(|line| line.contains("\\u{")), "no {kind:?} with such a name: {told}");
    }
    let bundle = dir.path().join("bundle");
    let shown = symseal(["bundle".as_ref(), "inspect".as_ref(), bundle.as_os_str()]).ok();
    assert!(shown.stdout.contains("\\u{202e}"), "{}", shown.stdout);
    nothing_unseen(&shown.stdout);
    // With `--json` texts are what they are.
    let output = dir.path().join("again");
    let arguments =
        ["bundle", "build", "--json", "--name", "n", "--version", "1", "--output"].map(std::ffi::OsString::from);
    let report = symseal(arguments.into_iter().chain([output.into_os_string(), inputs.clone().into_os_string()])).ok();
    assert!(report.stdout.contains('\u{202e}'), "{}", report.stdout);
    // Errors are no others.
    let strict = symseal(
        ["bundle", "build", "--strict", "--name", "n", "--version", "1", "--output"]
            .map(std::ffi::OsString::from)
            .into_iter()
            .chain([dir.path().join("strict").into_os_string(), inputs.into_os_string()]),
    );
    assert_eq!(strict.status, 1);
    nothing_unseen(&format!("{}{}", strict.stdout, strict.stderr));
}

/// Leaves the debug information of a file.
fn keep_debug(file: &Path) {
    let kept = Command::new("objcopy").arg("--only-keep-debug").arg(file).status();
    assert!(kept.is_ok_and(|status| status.success()), "objcopy");
}

#[track_caller]
fn nothing_unseen(text: &str) {
    for character in UNSEEN {
        assert!(!text.contains(character), "{character:?} is in {text}");
    }
}

#[test]
fn two_files_that_claim_one_build_id_with_different_bytes_are_both_named() {
    let dir = tempfile::tempdir().expect("tempdir");
    let flags = ["-g", "-Wl,--build-id=0x00112233445566778899aabbccddeeff00112233"];
    let Some(one) = compile_c(dir.path(), "one", SOURCE, &flags) else { return };
    let other = SOURCE.replace("x * 3", "x * 5");
    let Some(two) = compile_c(dir.path(), "two", &other, &flags) else { return };
    build(dir.path(), &[&one, &two]).refused(2, &["one", "two", "00112233445566778899aabbccddeeff00112233"]);
    nothing_visible(dir.path());

    // The same for two debug files.
    for name in ["one", "two"] {
        let status = Command::new("objcopy")
            .arg("--only-keep-debug")
            .arg(dir.path().join(name))
            .arg(dir.path().join(format!("{name}.debug")))
            .status();
        if !status.is_ok_and(|status| status.success()) {
            println!("SKIP objcopy: not found");
            return;
        }
    }
    let debug = ["one.debug", "two.debug"].map(|name| dir.path().join(name));
    build(dir.path(), &[&debug[0], &debug[1]]).refused(2, &["one.debug", "two.debug"]);
    nothing_visible(dir.path());
}

#[test]
fn an_output_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().expect("tempdir");
    let Some(whole) = compile_c(dir.path(), "whole", SOURCE, &["-g"]) else { return };
    let file = dir.path().join("a-file");
    std::fs::write(&file, "").expect("written");
    let output = file.join("bundle");
    symseal([
        "bundle",
        "build",
        whole.to_str().unwrap(),
        "--name",
        "n",
        "--version",
        "1",
        "--output",
        output.to_str().unwrap(),
    ])
    .refused(2, &["a-file"]);
    symseal(["key", "generate", "--output", output.to_str().unwrap()]).refused(2, &["a-file"]);
    symseal(["serve", "--listen", "127.0.0.1:0", "--data", output.to_str().unwrap()]).refused(2, &["a-file"]);
}

#[test]
fn every_command_that_reads_a_bundle_names_one_that_is_missing_or_none() {
    let dir = tempfile::tempdir().expect("tempdir");
    let missing = dir.path().join("missing");
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).expect("directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "{}").expect("written");
    for (bundle, name) in [(&missing, "missing"), (&empty, "empty"), (&file, "file")] {
        let bundle = bundle.to_str().expect("UTF-8");
        for arguments in [
            vec!["bundle", "inspect", bundle],
            vec!["bundle", "verify", bundle, "--trust", bundle],
            vec!["bundle", "seal", bundle, "--key", bundle],
            vec!["bundle", "push", bundle, "127.0.0.1:1/a/b:c"],
            vec!["index", "dump", bundle],
            vec!["symbolize", "--bundle", bundle, "--debug-id", "aa", "0x1"],
            vec!["trace", "resolve", "--bundle", bundle, bundle],
            vec!["trace", "replay", "--bundle", bundle, "--trace", bundle],
            vec!["trace", "verify", "--bundle", bundle, "--trust", bundle],
        ] {
            let ran = symseal(&arguments);
            assert!(ran.status == 2 || ran.status == 1, "{arguments:?}: {ran:?}");
            ran.refused_naming(name);
        }
    }
}

impl program::Ran {
    #[track_caller]
    fn refused_naming(self, name: &str) {
        let status = self.status;
        self.refused(status, &[name]);
    }
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().expect("tempdir");
    let Some(whole) = compile_c(dir.path(), "whole", SOURCE, &["-g"]) else { return };
    build(dir.path(), &[&whole]).ok();
    // A port that was free a moment ago and that nobody listens on.
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("bind").local_addr().expect("address").port();
    let reference = format!("127.0.0.1:{port}/demo/app:1");
    let bundle = dir.path().join("bundle");
    symseal(["bundle", "push", bundle.to_str().unwrap(), &reference]).refused(2, &[&format!("127.0.0.1:{port}")]);
    let pulled = dir.path().join("pulled");
    symseal(["bundle", "pull", &reference, "--output", pulled.to_str().unwrap()])
        .refused(2, &[&format!("127.0.0.1:{port}")]);
    let index = std::fs::read_to_string(pulled.join("index.json")).unwrap_or_default();
    assert!(!index.contains("digest"), "a bundle became visible: {index}");
}

#[test]
fn what_is_asked_for_and_not_there_is_a_no() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = dir.path().join("store");
    let absent = format!("sha256:{}", "0".repeat(64));
    for command in ["inspect", "verify"] {
        symseal(["bundle", command, &absent, "--store", store.to_str().expect("UTF-8")]).refused(1, &[&absent]);
    }
    let server = program::RunningServer::start(&dir.path().join("data"));
    let reference = format!("{}/no/such:1", server.address);
    let pulled = dir.path().join("pulled");
    symseal(["bundle", "pull", &reference, "--output", pulled.to_str().expect("UTF-8")]).refused(1, &[&reference]);
}

#[test]
fn a_process_that_does_not_exist_is_named() {
    let dir = tempfile::tempdir().expect("tempdir");
    let output = dir.path().join("trace.jsonl");
    // Above the kernel's largest process id.
    program::run("trace-capture", ["--pid", "4194305", "--output", output.to_str().unwrap()]).refused(2, &["4194305"]);
    assert!(!output.exists());
}

#[test]
fn a_trace_is_written_into_a_pipe_and_through_a_link_and_replaces_neither() {
    use std::os::unix::fs::{FileTypeExt as _, symlink};
    let dir = tempfile::tempdir().expect("tempdir");
    let at = |name: &str| dir.path().join(name);
    let Some(program) = compile_c(dir.path(), "waits", "#include <unistd.h>\nint main(void) { pause(); }\n", &[])
    else {
        return;
    };
    let mut child = Command::new(program).spawn().expect("it starts");
    let pid = child.id().to_string();
    let capture = |output: &Path| program::run("trace-capture", ["--pid", &pid, "--output", output.to_str().unwrap()]);
    assert!(Command::new("mkfifo").arg(at("pipe")).status().is_ok_and(|status| status.success()));
    let reader = std::thread::spawn({
        let pipe = at("pipe");
        move || std::fs::read(pipe).expect("the trace")
    });
    capture(&at("pipe")).ok();
    assert!(reader.join().expect("the reader ends").starts_with(b"{"));
    assert!(std::fs::metadata(at("pipe")).expect("still there").file_type().is_fifo());
    std::fs::write(at("real"), "old").expect("a file");
    symlink(at("real"), at("link")).expect("a link");
    capture(&at("link")).ok();
    assert!(at("link").is_symlink() && std::fs::read(at("real")).expect("the trace").starts_with(b"{"));
    symlink(at("nothing"), at("dangling")).expect("a link");
    capture(&at("dangling")).refused(2, &["a link to nothing"]);
    // Refused before the process is stopped.
    capture(&at("no/such/trace")).refused(2, &["there is no directory"]);
    child.kill().and_then(|()| child.wait()).expect("it ends");
}

#[test]
fn a_process_that_is_not_ours_is_named() {
    let dir = tempfile::tempdir().expect("tempdir");
    let output = dir.path().join("trace.jsonl");
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let ran: program::Ran = if root {
        // As nobody, from a copy that nobody can read: this test's own process is not theirs.
        let Some(setpriv) = program::tool("setpriv") else { return };
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("mode");
        let copy = dir.path().join("trace-capture");
        std::fs::copy(program::program("trace-capture"), &copy).expect("copied");
        Command::new(setpriv)
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(copy)
            .args(["--pid", &std::process::id().to_string(), "--output"])
            .arg(&output)
            .output()
            .expect("setpriv runs")
            .into()
    } else {
        program::run("trace-capture", ["--pid", "1", "--output", output.to_str().unwrap()])
    };
    ran.refused(2, &["process"]);
    assert!(!output.exists());
}

#[test]
fn a_trace_that_is_none_is_named() {
    let dir = tempfile::tempdir().expect("tempdir");
    let Some(whole) = compile_c(dir.path(), "whole", SOURCE, &["-g"]) else { return };
    build(dir.path(), &[&whole]).ok();
    let bundle = dir.path().join("bundle");
    let bundle = bundle.to_str().expect("UTF-8");
    let cases: [(&str, &[u8]); 4] = [
        ("empty.jsonl", b""),
        ("binary.jsonl", b"\x7fELF\x00\xff"),
        ("cut.jsonl", b"{\"event\":\"trace.begin\""),
        ("other.jsonl", b"{}\n"),
    ];
    for (name, bytes) in cases {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        let path = path.to_str().expect("UTF-8");
        program::run("trace-resolve", ["--bundle", bundle, path]).refused(2, &[name]);
        program::run("trace-replay", ["--bundle", bundle, "--trace", path]).refused(2, &[name]);
    }
    program::run("trace-resolve", ["--bundle", bundle, dir.path().to_str().expect("UTF-8")]).refused(2, &["directory"]);
}

#[test]
fn addresses_and_ids_that_are_none_are_named() {
    let dir = tempfile::tempdir().expect("tempdir");
    let Some(whole) = compile_c(dir.path(), "whole", SOURCE, &["-g", "-Wl,--build-id=0x0123456789abcdef"]) else {
        return;
    };
    build(dir.path(), &[&whole]).ok();
    let bundle = dir.path().join("bundle");
    let bundle = bundle.to_str().expect("UTF-8");
    symseal(["symbolize", "--bundle", bundle, "--debug-id", "xyz", "0x1"]).refused(2, &["xyz"]);
    symseal(["symbolize", "--bundle", bundle, "--debug-id", "aabb", "0x1"]).refused(1, &["aabb"]);
    symseal(["symbolize", "--bundle", bundle, "--debug-id", "0123456789abcdef", "here"]).refused(2, &["here"]);
    symseal(["index", "dump", bundle, "--debug-id", "aabb"]).refused(1, &["aabb"]);
}

#[test]
fn a_full_standard_output_is_an_error_and_no_panic() {
    let Ok(full) = std::fs::File::options().write(true).open("/dev/full") else {
        println!("SKIP /dev/full: not here");
        return;
    };
    let dir = tempfile::tempdir().expect("tempdir");
    let Some(whole) = compile_c(dir.path(), "whole", SOURCE, &["-g", "-Wl,--build-id=0x0123456789abcdef"]) else {
        return;
    };
    build(dir.path(), &[&whole]).ok();
    let bundle = dir.path().join("bundle");
    let bundle = bundle.to_str().expect("UTF-8");
    let keys = dir.path().join("keys");
    for arguments in [
        vec!["bundle", "inspect", bundle],
        vec!["bundle", "inspect", bundle, "--json"],
        vec!["index", "dump", bundle],
        vec!["symbolize", "--bundle", bundle, "--debug-id", "0123456789abcdef", "0x1139"],
        vec!["key", "generate", "--output", keys.to_str().expect("UTF-8")],
    ] {
        let ran: program::Ran = program::command("symseal")
            .args(&arguments)
            .stdout(full.try_clone().expect("file"))
            .output()
            .expect("it starts")
            .into();
        ran.refused(2, &["error"]);
    }
}

#[test]
fn the_programs_of_this_package_are_all_here() {
    for name in ["symseal", "trace-capture", "trace-resolve", "trace-replay", "trace-verify"] {
        let help = program::run(name, ["--help"]).ok();
        assert!(help.stdout.contains("Example"), "{name} --help has no example");
    }
    assert!(symseal_path().is_file());
}
