//! `symseal symbolize --pid`: what a person is told of a running program, held to nm and addr2line.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::program::{Ran, compile_c, symseal, symseal_path};
use serde_json::Value;

/// Says where its function is, and waits until its input ends.
const SOURCE: &str = r#"
#include <stdio.h>
__attribute__((noinline)) int outer(int x) {
    volatile int y = x;
    return y + 1;
}
int main(int argc, char **argv) {
    (void)argv;
    printf("%p\n", (void *)outer);
    fflush(stdout);
    getchar();
    return outer(argc);
}
"#;

struct Running {
    child: Child,
    outer: String,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut outer = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut outer).unwrap();
        Self { child, outer: outer.trim().to_owned() }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn symbolize(&self, arguments: &[&str]) -> Ran {
        let pid = self.pid();
        symseal(["symbolize", "--pid", &pid].iter().chain(arguments))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(ran: &Ran) -> Vec<Value> {
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Address of a symbol in a file, as nm has it.
fn by_nm(file: &Path, arguments: &[&str], name: &str) -> u64 {
    let output = Command::new("nm").args(arguments).arg(file).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line =
        text.lines().find(|line| line.rsplit(' ').next().is_some_and(|found| found.split('@').next() == Some(name)));
    u64::from_str_radix(line.unwrap_or_else(|| panic!("no {name}: {text}")).split(' ').next().unwrap(), 16).unwrap()
}

/// `file:line` of an address of a file, as addr2line has it.
fn by_addr2line(file: &Path, address: u64) -> String {
    let output = Command::new("addr2line").arg("-e").arg(file).arg(format!("{address:#x}")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().next().unwrap().to_owned()
}

fn built(dir: &Path) -> Option<PathBuf> {
    compile_c(dir, "waits", SOURCE, &["-g", "-O1", "-Wl,--build-id"])
}

#[test]
fn a_function_has_the_place_that_addr2line_gives() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = built(dir.path()) else { return };
    let svma = by_nm(&path, &[], "outer");
    let program = Running::start(&mut Command::new(&path));
    let ran = program.symbolize(&[&program.outer, "--local-files", "--json"]).ok();
    let line = &lines(&ran)[0];
    let frame = &line["frames"][0];
    assert_eq!(line["address"], program.outer.as_str());
    assert_eq!((line["resolver"].as_str(), frame["function"].as_str()), (Some("binary-debug-info"), Some("outer")));
    let place = format!("{}:{}", frame["file"].as_str().unwrap(), frame["line"]);
    assert_eq!(place, by_addr2line(&path, svma));
    assert_eq!(line["module_offset"], format!("{svma:#x}"));
    // For people, and from standard input.
    let text = program.symbolize(&[&program.outer, "--local-files"]).ok().stdout;
    assert!(text.contains("  outer at ") && text.contains("(waits)  [binary-debug-info]"), "{text}");

    // Without leave to read files there is the place in the module, and why.
    let ran = program.symbolize(&[&program.outer, "--json"]);
    assert_eq!((ran.status, lines(&ran)[0]["resolver"].as_str()), (1, Some("module-offset")));

    // A bundle names it as well.
    let layout = dir.path().join("bundle");
    let built = [path.as_os_str(), "--name".as_ref(), "n".as_ref(), "--version".as_ref(), "1".as_ref()];
    let arguments = ["bundle", "build"].map(AsRef::<std::ffi::OsStr>::as_ref).into_iter().chain(built);
    symseal(arguments.chain(["--output".as_ref(), layout.as_os_str()])).ok();
    let ran = program.symbolize(&[&program.outer, "--bundle", layout.to_str().unwrap(), "--json"]).ok();
    assert_eq!(
        (&lines(&ran)[0]["resolver"], &lines(&ran)[0]["proof"]),
        (&"local-bundle".into(), &"digest-known".into())
    );
}

#[test]
fn a_program_in_another_mount_namespace_is_read_there() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = built(dir.path()) else { return };
    let inside = dir.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    let script =
        format!("mount -t tmpfs none {0} && cp {1} {0}/hidden && exec {0}/hidden", inside.display(), path.display());
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh", "-c"]);
    if !unshare.arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        println!("SKIP unshare: mount namespaces are not permitted");
        return;
    }
    let mut unshare = Command::new("unshare");
    let program = Running::start(unshare.args(["--mount", "--propagation", "private", "sh", "-c", &script]));
    assert!(!inside.join("hidden").exists(), "the file is in the other namespace alone");
    let ran = program.symbolize(&[&program.outer, "--local-files", "--json"]).ok();
    let line = &lines(&ran)[0];
    assert_eq!(line["frames"][0]["function"], "outer");
    assert!(line["module"].as_str().unwrap().ends_with("inside/hidden"), "{line}");
}

#[test]
fn the_vdso_the_kernel_and_nothing_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = built(dir.path()) else { return };
    let program = Running::start(&mut Command::new(&path));
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", program.pid())).unwrap();
    let vdso = maps.lines().find(|line| line.ends_with("[vdso]")).map(|line| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        number(start)..number(end)
    });
    if let Some(range) = vdso {
        // The same bytes, read by nm.
        let image = dir.path().join("vdso.so");
        let memory = std::fs::File::open(format!("/proc/{}/mem", program.pid())).unwrap();
        let mut bytes = vec![0; (range.end - range.start) as usize];
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, range.start).unwrap();
        std::fs::write(&image, bytes).unwrap();
        let address = format!("{:#x}", range.start + by_nm(&image, &["-D"], "__vdso_clock_gettime"));
        let line = &lines(&program.symbolize(&[&address, "--json"]).ok())[0];
        assert_eq!((line["module"].as_str(), line["resolver"].as_str()), (Some("[vdso]"), Some("binary-symbols")));
        assert!(line["frames"][0]["function"].as_str().unwrap().contains("clock_gettime"), "{line}");
    }

    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let schedule = symbols.lines().find_map(|line| line.strip_suffix(" T schedule"));
    let ran = program.symbolize(&["0x10", "0xffffffff81000100", "--json"]);
    let found = lines(&ran);
    assert_eq!((found[0]["resolver"].as_str(), found[0]["reason"].as_str()), (Some("raw"), Some("no-module")));
    match schedule.filter(|address| !address.trim_start_matches('0').is_empty()) {
        Some(address) => {
            let ran = program.symbolize(&[address, "--json"]).ok();
            let line = &lines(&ran)[0];
            assert_eq!((&line["resolver"], &line["frames"][0]["function"]), (&"kallsyms".into(), &"schedule".into()));
            assert_eq!(line["module"], "[kernel]");
        }
        None => assert_eq!(found[1]["reason"], "not-permitted"),
    }
}

/// Another user, with the program within reach.
struct Nobody {
    symseal: PathBuf,
}

impl Nobody {
    /// `None`, and says so, where this user may not become another one.
    fn in_folder(dir: &Path) -> Option<Self> {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        let this = Self { symseal: dir.join("symseal") };
        std::fs::copy(symseal_path(), &this.symseal).unwrap();
        if this.runs(&this.symseal).arg("--version").stdout(Stdio::null()).status().is_err() {
            println!("SKIP setuid: not permitted to become another user");
            return None;
        }
        Some(this)
    }

    fn runs(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.uid(65534).gid(65534).env("HOME", "/nonexistent");
        command
    }

    fn symbolizes(&self, program: &Running, arguments: &[&str]) -> Ran {
        let mut ours = self.runs(&self.symseal);
        ours.args(["symbolize", "--pid", &program.pid(), "--json"]).args(arguments).output().unwrap().into()
    }
}

/// The same function in a library beside the program.
fn with_a_library(dir: &Path) -> Option<(PathBuf, PathBuf)> {
    let (head, rest) = SOURCE.split_once("__attribute__").unwrap();
    let (outer, main) = rest.split_once("int main").unwrap();
    let library = format!("{head}__attribute__{outer}");
    let flags = ["-g", "-O1", "-shared", "-fPIC", "-Wl,--build-id"];
    let library = compile_c(dir, "libouter.so", &library, &flags)?;
    let main = format!("{head}int outer(int);\nint main{main}");
    let beside = format!("-L{}", dir.display());
    let flags = ["-O1", "-Wl,-z,now", "-Wl,--no-as-needed", &beside, "-louter", "-Wl,-rpath,$ORIGIN"];
    let program = compile_c(dir, "calls", &main, &flags);
    Some((program?, library))
}

#[test]
fn without_privilege_what_came_into_a_files_place_is_told_from_a_file_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let Some((program, library)) = with_a_library(dir.path()) else { return };
    let Some(nobody) = Nobody::in_folder(dir.path()) else { return };
    let program = Running::start(&mut nobody.runs(&program));
    let told = || {
        let ran = nobody.symbolizes(&program, &["--local-files", &program.outer]);
        let line = lines(&ran).remove(0);
        assert_eq!((ran.status, line["quality"].as_str()), (1, Some("module-offset")), "{line}");
        (line["reason"].as_str().unwrap().to_owned(), line["detail"].as_str().unwrap().to_owned())
    };
    // The file itself, of which its owner lets nobody read any more.
    std::fs::set_permissions(&library, std::fs::Permissions::from_mode(0o000)).unwrap();
    let (reason, detail) = told();
    assert!(reason == "file-unreadable" && detail.contains("Permission denied"), "{reason}: {detail}");
    std::fs::remove_file(&library).unwrap();
    let elsewhere = dir.path().join("elsewhere");
    std::fs::write(&elsewhere, "no library").unwrap();
    let placed: [&dyn Fn(); 4] = [
        &|| {
            std::fs::copy(&elsewhere, &library).unwrap();
        },
        &|| std::fs::set_permissions(&library, std::fs::Permissions::from_mode(0o000)).unwrap(),
        &|| {
            std::fs::remove_file(&library).unwrap();
            assert!(Command::new("mkfifo").arg(&library).status().unwrap().success());
        },
        &|| {
            std::fs::remove_file(&library).unwrap();
            std::fs::create_dir(&library).unwrap();
        },
    ];
    for place in placed {
        place();
        let (reason, detail) = told();
        assert!(detail.contains("it was replaced since") && !detail.contains("not ours"), "{reason}: {detail}");
    }
}

#[test]
fn without_privilege_a_program_that_was_rebuilt_while_it_runs_has_its_names() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = built(dir.path()) else { return };
    let Some(nobody) = Nobody::in_folder(dir.path()) else { return };
    let program = Running::start(&mut nobody.runs(&path));
    let named = || {
        let ran = nobody.symbolizes(&program, &["--local-files", &program.outer]).ok();
        assert_eq!(lines(&ran)[0]["frames"][0]["function"], "outer", "{}", ran.stdout);
    };
    std::fs::remove_file(&path).unwrap();
    named();
    std::fs::write(&path, "another program").unwrap();
    named();
}

#[test]
fn a_library_that_was_cut_short_under_its_process_is_told_as_that() {
    let dir = tempfile::tempdir().unwrap();
    let Some((program, library)) = with_a_library(dir.path()) else { return };
    let program = Running::start(&mut Command::new(&program));
    std::fs::File::create(&library).unwrap();
    let ran = program.symbolize(&[&program.outer, "--local-files", "--json"]);
    let line = lines(&ran).remove(0);
    assert_eq!(
        (ran.status, &line["quality"], &line["reason"]),
        (1, &"module-offset".into(), &"malformed".into()),
        "{line}"
    );
    assert!(line["detail"].as_str().unwrap().contains("cut short"), "{line}");
}

#[test]
fn the_files_of_a_program_with_a_root_directory_of_its_own_are_found_below_it() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["-g", "-O1", "-static", "-Wl,--build-id"];
    let Some(path) = compile_c(dir.path(), "waits", SOURCE, &flags) else { return };
    std::fs::create_dir_all(dir.path().join("root/app")).unwrap();
    std::fs::copy(&path, dir.path().join("root/app/waits")).unwrap();
    let script = format!("mount --bind {0}/root /mnt && exec chroot /mnt /app/waits", dir.path().display());
    // A user namespace gives no access by map_files.
    let unshared = ["--user", "--map-root-user", "--mount", "--propagation", "private", "sh", "-c"];
    let can = Command::new("unshare").args(unshared).arg("mount --bind /tmp /mnt").stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        println!("SKIP unshare: user and mount namespaces are not permitted");
        return;
    }
    let program = Running::start(Command::new("unshare").args(unshared).arg(&script));
    let ran = program.symbolize(&[&program.outer, "--local-files", "--json"]).ok();
    assert_eq!(lines(&ran)[0]["frames"][0]["function"], "outer", "{}", ran.stdout);
}

#[test]
fn without_privilege_the_kernel_has_no_names_and_the_process_has() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = built(dir.path()) else { return };
    let Some(nobody) = Nobody::in_folder(dir.path()) else { return };
    let program = Running::start(&mut nobody.runs(&path));
    let address = "0xffffffff81000100";
    let ran = nobody.symbolizes(&program, &["--local-files", address, &program.outer]).ok();
    let found = lines(&ran);
    assert_eq!(found[1]["frames"][0]["function"], "outer");
    let visible = std::fs::read_to_string("/proc/sys/kernel/kptr_restrict").is_ok_and(|text| text.trim() == "0")
        && std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
            .is_ok_and(|text| text.trim().starts_with(['-', '0', '1']));
    if !visible {
        assert_eq!(
            (found[0]["reason"].as_str(), found[0]["frames"].as_array().unwrap().len()),
            (Some("not-permitted"), 0)
        );
        assert!(found[0]["detail"].as_str().unwrap().contains("CAP_SYSLOG"), "{}", found[0]);
    }
    // Of another user's process every address is a frame without a name, and the warning says what would help.
    let foreign = Running::start(&mut Command::new(&path));
    let ran = nobody.symbolizes(&foreign, &[&foreign.outer, "0x10"]);
    let found = lines(&ran);
    assert_eq!(found.len(), 2, "{}", ran.stdout);
    assert!(found.iter().all(|line| line["quality"] == "raw" && line["reason"] == "not-permitted"), "{found:?}");
    ran.refused(1, &["warning: ", &foreign.pid(), "not permitted", "CAP_SYS_PTRACE"]);
}

#[test]
fn wrong_calls_are_named() {
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    symseal(["symbolize", "--pid", &ended.id().to_string(), "0x10"])
        .refused(2, &[&ended.id().to_string(), "no process"]);
    symseal(["symbolize", "--pid", "1", "--debug-id", "abcd", "0x10"]).refused(2, &["--debug-id"]);
    symseal(["symbolize", "--bundle", "nowhere", "0x10"]).refused(2, &["--debug-id"]);
    symseal(["symbolize", "--bundle", "nowhere", "--debug-id", "abcd", "--local-files", "0x10"]).refused(2, &["--pid"]);
}
