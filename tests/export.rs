//! Trees that `symseal bundle export` writes, read by the debuggers that they are for, and through a web server that knows nothing of them.

use crate::program;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::symseal;

const SOURCE: &str = "int innermost_of_the_test(int x) { return x * 3; }
int main(int argc, char **argv) { (void)argv; return innermost_of_the_test(argc); }
";

/// A bundle of a stripped program and its debug file.
struct Release {
    root: tempfile::TempDir,
    stripped: PathBuf,
    debug: PathBuf,
    build_id: String,
}

impl Release {
    fn build() -> Option<Self> {
        let root = tempfile::tempdir().unwrap();
        let objcopy = program::tool("objcopy")?;
        let inputs = root.path().join("inputs");
        std::fs::create_dir_all(inputs.join("stripped")).unwrap();
        let whole = program::compile_c(&inputs, "app", SOURCE, &["-g", "-O0", "-Wl,--build-id"])?;
        let (stripped, debug) = (inputs.join("stripped/app"), inputs.join("app.debug"));
        for (option, to) in [("--only-keep-debug", &debug), ("--strip-all", &stripped)] {
            assert!(Command::new(&objcopy).arg(option).arg(&whole).arg(to).status().unwrap().success());
        }
        std::fs::remove_file(whole).unwrap();
        let mut release = Self { root, stripped, debug, build_id: String::new() };
        let (stripped, debug) = (release.stripped.display().to_string(), release.debug.display().to_string());
        release.bundle("layout", &[&stripped, &debug]);
        let index = symseal(["bundle", "inspect", &release.at("layout"), "--json"]).ok().json();
        release.build_id = index["linux"].as_object().unwrap().keys().next().unwrap().clone();
        Some(release)
    }

    fn at(&self, name: &str) -> String {
        self.root.path().join(name).display().to_string()
    }

    fn bundle(&self, layout: &str, inputs: &[&str]) {
        let layout = self.at(layout);
        let named = ["--name", "app", "--version", "1", "--output", layout.as_str()];
        symseal(["bundle", "build"].iter().chain(inputs).chain(&named)).ok();
    }

    fn export(&self, layout: &str, more: &[&str]) -> program::Ran {
        let layout = self.at(layout);
        symseal(["bundle", "export", layout.as_str()].iter().chain(more))
    }
}

/// nginx on a free loopback port, with a configuration of its own, ended with the value.
struct Nginx {
    child: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Nginx {
    fn serve(root: &str) -> Option<Self> {
        let known = Path::new("/usr/sbin/nginx");
        let nginx = if known.is_file() { known.to_owned() } else { program::tool("nginx")? };
        let folder = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = folder.path().display();
        let user = if std::fs::metadata(folder.path()).unwrap().uid() == 0 { "user root;" } else { "" };
        let configuration = format!(
            "{user} daemon off; pid {at}/pid; error_log {at}/error.log; worker_processes 1; events {{}}
             http {{ access_log off; client_body_temp_path {at}/1; proxy_temp_path {at}/2; fastcgi_temp_path {at}/3;
                     uwsgi_temp_path {at}/4; scgi_temp_path {at}/5;
                     server {{ listen 127.0.0.1:{port}; root {root}; default_type application/octet-stream; }} }}"
        );
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, configuration).unwrap();
        let child = Command::new(nginx)
            .arg("-e")
            .arg(folder.path().join("error.log"))
            .arg("-c")
            .arg(&file)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "nginx does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Self { child, url: format!("http://127.0.0.1:{port}"), _folder: folder })
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master ends its workers when it is asked to; killed, it could not.
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

fn read(path: impl AsRef<Path>) -> Vec<u8> {
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
}

#[test]
fn debuginfod_clients_find_files_in_a_tree_behind_nginx() {
    let Some(find) = program::tool("debuginfod-find") else { return };
    let Some(release) = Release::build() else { return };
    let tree = release.at("www");
    release.export("layout", &["--debuginfod", &tree]).ok();
    let Some(nginx) = Nginx::serve(&tree) else { return };
    for (kind, file) in [("debuginfo", &release.debug), ("executable", &release.stripped)] {
        let mut command = Command::new(&find);
        command.env("DEBUGINFOD_URLS", &nginx.url).env("DEBUGINFOD_CACHE_PATH", release.at("cache"));
        let found = command.args([kind, &release.build_id]).output().unwrap();
        assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
        assert!(read(String::from_utf8(found.stdout).unwrap().trim()) == read(file), "{kind}");
    }
    // gdb too.
    let Some(gdb) = program::tool("gdb") else { return };
    let output = Command::new(gdb)
        .env("DEBUGINFOD_URLS", &nginx.url)
        .env("DEBUGINFOD_CACHE_PATH", release.at("cache-gdb"))
        .env("HOME", release.root.path())
        .args(["-nx", "-batch", "-iex", "set auto-load no", "-iex", "set debuginfod enabled on"])
        .args(["-ex", "info line innermost_of_the_test"])
        .arg(&release.stripped)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("app.c"), "{text}");
}

/// With a path in which everything has to be encoded, and one that two programs share.
#[test]
fn debuginfod_clients_find_sources_in_a_tree_behind_nginx() {
    let Some(find) = program::tool("debuginfod-find") else { return };
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
    let code = at("a b+c#d%20é");
    std::fs::create_dir(&code).unwrap();
    std::fs::write(format!("{code}/shared.h"), "static inline int twice(int x) { return 2 * x; }\n").unwrap();
    let map = format!("-ffile-prefix-map={}=/home/ann", root.path().display());
    let mut programs = Vec::new();
    for name in ["one", "two"] {
        let text =
            format!("#include \"shared.h\"\nint main(int n, char **v) {{ (void)v; return twice(n) + {name:?}[0]; }}\n");
        std::fs::write(format!("{code}/{name}.c"), text).unwrap();
        let Some(compiler) = program::tool("cc") else { return };
        let (source, program) = (format!("{code}/{name}.c"), at(name));
        let flags = ["-g", "-O0", "-Wl,--build-id", &map, "-o", &program, &source];
        assert!(Command::new(compiler).args(flags).status().unwrap().success());
        programs.push(program);
    }
    let layout = at("layout");
    let build = ["bundle", "build", &programs[0], &programs[1], "--name", "app", "--version", "1", "--output", &layout];
    let from = root.path().to_str().unwrap();
    symseal(build.into_iter().chain(["--sources", from, "--source-map", "/home/ann=."])).ok();
    let tree = at("www");
    let told = symseal(["bundle", "export", &layout, "--debuginfod", &tree, "--json"]).ok().json();
    assert_eq!((&told["sources"], &told["linked"]), (&4.into(), &5.into()), "one is a link to the other's: {told}");
    let again = symseal(["bundle", "export", &layout, "--debuginfod", &tree, "--json"]).ok().json();
    assert_eq!((&again["existing"], &again["copied"], &again["linked"]), (&8.into(), &0.into(), &0.into()), "{again}");
    let Some(nginx) = Nginx::serve(&tree) else { return };
    let index = symseal(["bundle", "inspect", &layout, "--json"]).ok().json();
    for (id, module) in index["linux"].as_object().unwrap() {
        let own = format!("{}.c", module["name"].as_str().unwrap());
        // Also as line tables have it that were not tidied up.
        for (asked, file) in
            [(own.clone(), &own), ("shared.h".into(), &"shared.h".into()), (format!("x/..//{own}"), &own)]
        {
            let mut command = Command::new(&find);
            command.env("DEBUGINFOD_URLS", &nginx.url).env("DEBUGINFOD_CACHE_PATH", at("cache"));
            let found = command.args(["source", id, &format!("/home/ann/a b+c#d%20é/{asked}")]).output().unwrap();
            assert!(found.status.success(), "{asked}: {}", String::from_utf8_lossy(&found.stderr));
            assert!(read(String::from_utf8(found.stdout).unwrap().trim()) == read(format!("{code}/{file}")), "{asked}");
        }
    }
    // Where they are not to be seen, or do not lie beside the bundle.
    let told = symseal(["bundle", "export", &layout, "--debuginfod", &at("bare"), "--without-sources", "--json"]).ok();
    assert_eq!(told.json()["sources"], 0);
    for id in index["linux"].as_object().unwrap().keys() {
        let folder = format!("{}/buildid/{id}", at("bare"));
        assert!(Path::new(&folder).join("debuginfo").exists() && !Path::new(&folder).join("source").exists());
    }
    let digest = index["sources"].as_str().unwrap();
    std::fs::remove_file(format!("{layout}/blobs/sha256/{}", digest.trim_start_matches("sha256:"))).unwrap();
    let told = symseal(["bundle", "export", &layout, "--debuginfod", &at("other"), "--json"]).ok();
    assert!(told.stderr.contains(digest), "{}", told.stderr);
    assert_eq!(told.json()["sources_left_out"], digest);
}

#[test]
fn gdb_and_lldb_find_files_below_build_id() {
    let Some(release) = Release::build() else { return };
    let (gdb_tree, lldb_tree) = (release.at("debug"), release.at("debug-lldb"));
    release.export("layout", &["--build-id", &gdb_tree, "--lldb", &lldb_tree]).ok();
    let (first, rest) = release.build_id.split_at(2);
    for tree in [&gdb_tree, &lldb_tree] {
        assert!(read(format!("{tree}/.build-id/{first}/{rest}.debug")) == read(&release.debug));
        assert!(read(format!("{tree}/.build-id/{first}/{rest}")) == read(&release.stripped));
    }
    if let Some(gdb) = program::tool("gdb") {
        let output = Command::new(gdb)
            .env_remove("DEBUGINFOD_URLS")
            .args(["-nx", "-batch", "-iex", "set auto-load no"])
            .args(["-iex", &format!("set debug-file-directory {gdb_tree}")])
            .args(["-ex", "info line innermost_of_the_test"])
            .arg(&release.stripped)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("app.c"), "{text}");
    }
    if let Some(lldb) = program::any_tool(program::LLDB) {
        let look = |settings: &[&str]| {
            let mut command = Command::new(&lldb);
            command.env("HOME", release.root.path()).args(["--no-lldbinit", "--batch"]);
            for setting in settings {
                command.args(["-o", setting]);
            }
            let create = format!("target create {}", release.stripped.display());
            let output =
                command.args(["-o", &create, "-o", "image lookup -v -n innermost_of_the_test"]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let found = look(&[&format!("settings append target.debug-file-search-paths {lldb_tree}")]);
        assert!(found.contains("app.c"), "{found}");
        assert!(!look(&[]).contains("app.c"), "without the tree there is nothing");
    }
}

#[test]
fn symbol_stores_have_each_file_under_both_cases() {
    let Some(release) = Release::build() else { return };
    let tree = release.at("symbols");
    release.export("layout", &["--symstore", &tree]).ok();
    let padded = format!("{:0<40}", release.build_id);
    assert!(read(format!("{tree}/app/elf-buildid-{padded}/app")) == read(&release.stripped));
    assert!(read(format!("{tree}/_.debug/elf-buildid-sym-{padded}/_.debug")) == read(&release.debug));
    let Some(compiler) = program::tool("x86_64-w64-mingw32-gcc") else { return };
    let (source, app) = (release.at("win.c"), release.at("App.exe"));
    std::fs::write(&source, "int main(void) { return 7; }\n").unwrap();
    assert!(Command::new(compiler).args(["-g", "-Wl,--build-id", "-o", &app, &source]).status().unwrap().success());
    release.bundle("windows", &[&app]);
    release.export("windows", &["--symstore", &tree]).ok();
    let index = symseal(["bundle", "inspect", &release.at("windows"), "--json"]).ok().json();
    let code_id =
        index["windows"].as_object().unwrap().values().next().unwrap()["code_id"].as_str().unwrap().to_owned();
    // As WinDbg asks, and as SSQP does; a static server takes them for two.
    for path in [format!("App.exe/{code_id}/App.exe"), format!("app.exe/{}/app.exe", code_id.to_lowercase())] {
        assert!(read(format!("{tree}/{path}")) == read(&app), "{path}");
    }
}

#[test]
fn files_are_links_or_copies_and_what_is_in_the_way_stays() {
    let Some(release) = Release::build() else { return };
    let (tree, (first, rest)) = (release.at("tree"), release.build_id.split_at(2));
    let debug = format!("{tree}/.build-id/{first}/{rest}.debug");
    let told = release.export("layout", &["--build-id", &tree, "--json"]).ok().json();
    assert_eq!((&told["linked"], &told["copied"], &told["existing"]), (&2.into(), &0.into(), &0.into()));
    assert_eq!(std::fs::metadata(&debug).unwrap().nlink(), 2, "a link to the bundle's file");
    let again = release.export("layout", &["--build-id", &tree, "--json"]).ok().json();
    assert_eq!((&again["linked"], &again["existing"]), (&0.into(), &2.into()));

    let copies = release.at("copies");
    let told = release.export("layout", &["--build-id", &copies, "--copy", "--json"]).ok().json();
    assert_eq!((&told["linked"], &told["copied"]), (&0.into(), &2.into()));
    assert_eq!(std::fs::metadata(format!("{copies}/.build-id/{first}/{rest}.debug")).unwrap().nlink(), 1);
    let left: Vec<_> = std::fs::read_dir(&copies).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".build-id"], "nothing half-made is left");

    // A file of somebody else is not replaced, and nothing is written beside it.
    let other = release.at("other");
    let theirs = format!("{other}/.build-id/{first}/{rest}.debug");
    std::fs::create_dir_all(Path::new(&theirs).parent().unwrap()).unwrap();
    std::fs::write(&theirs, "theirs").unwrap();
    release.export("layout", &["--build-id", &other]).refused(1, &["in the way", rest]);
    assert_eq!(read(&theirs), b"theirs");
    assert!(!Path::new(&format!("{other}/.build-id/{first}/{rest}")).exists());

    // A damaged bundle gives nothing.
    let digest = symseal_bundle::Digest::of(&read(&release.debug)).hex();
    let blob = Path::new(&release.at("layout")).join("blobs/sha256").join(digest);
    std::fs::remove_file(&blob).unwrap();
    std::fs::write(&blob, "something else").unwrap();
    let damaged = release.at("damaged");
    release.export("layout", &["--build-id", &damaged]).refused(2, &["expected sha256:", "found sha256:"]);
    release.export("layout", &["--build-id", &damaged, "--copy"]).refused(2, &["expected sha256:"]);
    assert!(!Path::new(&format!("{damaged}/.build-id/{first}/{rest}.debug")).exists());
    release.export("layout", &[]).refused(2, &["--debuginfod", "--lldb"]);
}

#[test]
fn a_section_is_written_beside_its_file_and_only_out_of_the_right_one() {
    let Some(release) = Release::build() else { return };
    let Some(objcopy) = program::tool("objcopy") else { return };
    let (section, indexed) = (release.at("section"), release.at("indexed.debug"));
    std::fs::write(&section, [7; 300_000]).unwrap();
    let option = format!(".gdb_index={section}");
    let added = Command::new(objcopy).args(["--add-section", &option]).arg(&release.debug).arg(&indexed).status();
    assert!(added.unwrap().success());
    release.bundle("with-section", &[&release.stripped.display().to_string(), &indexed]);
    let tree = release.at("www");
    let told = release.export("with-section", &["--debuginfod", &tree, "--json"]).ok().json();
    assert_eq!((&told["linked"], &told["copied"]), (&2.into(), &1.into()), "{told:#}");
    let written = format!("{tree}/buildid/{}/section/.gdb_index", release.build_id);
    assert!(read(&written) == read(&section));
    let again = release.export("with-section", &["--debuginfod", &tree, "--json"]).ok().json();
    assert_eq!(again["existing"], 3, "{again:#}");
    // A debug file with other bytes beside the section gives no section.
    let digest = symseal_bundle::Digest::of(&read(&indexed)).hex();
    let blob = Path::new(&release.at("with-section")).join("blobs/sha256").join(digest);
    let mut bytes = read(&blob);
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::remove_file(&blob).unwrap();
    std::fs::write(&blob, bytes).unwrap();
    std::fs::remove_file(&written).unwrap();
    release.export("with-section", &["--debuginfod", &tree]).refused(2, &["expected sha256:"]);
    assert!(!Path::new(&written).exists());
}

#[test]
fn a_file_that_not_everybody_may_read_is_copied_and_stays_as_it_is() {
    use std::os::unix::fs::PermissionsExt as _;
    let Some(release) = Release::build() else { return };
    let digest = symseal_bundle::Digest::of(&read(&release.debug)).hex();
    let blob = Path::new(&release.at("layout")).join("blobs/sha256").join(digest);
    std::fs::set_permissions(&blob, std::fs::Permissions::from_mode(0o600)).unwrap();
    let tree = release.at("private");
    let told = release.export("layout", &["--build-id", &tree, "--json"]).ok().json();
    assert_eq!((&told["linked"], &told["copied"]), (&1.into(), &1.into()), "{told:#}");
    assert_eq!(std::fs::metadata(&blob).unwrap().mode() & 0o777, 0o600);
    let (first, rest) = release.build_id.split_at(2);
    assert_eq!(std::fs::metadata(format!("{tree}/.build-id/{first}/{rest}.debug")).unwrap().mode() & 0o444, 0o444);
}

/// Everything below a folder, with what it is, by its path.
fn everything(folder: &Path) -> Vec<(PathBuf, std::fs::FileType)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(everything(&entry.path()));
        }
        found.push((entry.path(), kind));
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

#[test]
fn links_pipes_and_files_in_the_place_of_folders_are_in_the_way_and_nothing_is_written() {
    use std::os::unix::fs::symlink;
    let Some(release) = Release::build() else { return };
    let padded = format!("{:0<40}", release.build_id);
    let (outside, build_id) = (release.at("outside"), &release.build_id);
    std::fs::create_dir(&outside).unwrap();
    let pipe = |at: &str| assert!(Command::new("mkfifo").arg(at).status().unwrap().success());
    type Planted<'p> = (&'p str, Box<dyn Fn(&str) + 'p>, &'p str);
    let planted: Vec<Planted<'_>> = vec![
        // A link on the way, one to nothing, one in the place of a file.
        ("buildid", Box::new(|at| symlink(&outside, at).unwrap()), "a link"),
        ("buildid", Box::new(|at| symlink(release.at("nowhere"), at).unwrap()), "a link"),
        ("buildid/ID", Box::new(|at| symlink(&outside, at).unwrap()), "a link"),
        ("buildid/ID/debuginfo", Box::new(|at| symlink(&release.debug, at).unwrap()), "a link"),
        // What cannot be read to an end, and what is no folder, or no file.
        ("buildid/ID/debuginfo", Box::new(pipe), "a pipe"),
        ("buildid", Box::new(pipe), "a pipe"),
        ("buildid/ID", Box::new(|at| std::fs::write(at, "theirs").unwrap()), "a file"),
        ("buildid/ID/debuginfo", Box::new(|at| std::fs::create_dir(at).unwrap()), "a folder"),
    ];
    for (number, (at, plant, named)) in planted.iter().enumerate() {
        let tree = release.at(&format!("planted-{number}"));
        let at = format!("{tree}/{}", at.replace("ID", build_id));
        std::fs::create_dir_all(Path::new(&at).parent().unwrap()).unwrap();
        plant(&at);
        let before = everything(Path::new(&tree));
        // A tree in which nothing is in the way gets nothing, too.
        let other = release.at(&format!("other-{number}"));
        let ran = release.export("layout", &["--symstore", &other, "--debuginfod", &tree]);
        ran.refused(1, &[&format!("{at}: {named}"), "in the way; nothing was written"]);
        assert_eq!(everything(Path::new(&tree)), before, "{at}");
        assert!(!Path::new(&other).exists() && everything(Path::new(&outside)).is_empty(), "{at}");
    }
    let symbols = release.at("symbols");
    std::fs::create_dir_all(format!("{symbols}/_.debug")).unwrap();
    symlink(&outside, format!("{symbols}/_.debug/elf-buildid-sym-{padded}")).unwrap();
    release.export("layout", &["--symstore", &symbols]).refused(1, &["_.debug", "a link", "nothing was written"]);

    // A tree that is a link is its owner's; one that leads to nothing cannot be made, nor one below a file.
    symlink(&outside, release.at("to-outside")).unwrap();
    release.export("layout", &["--debuginfod", &release.at("to-outside")]).ok();
    assert!(read(format!("{outside}/buildid/{build_id}/debuginfo")) == read(&release.debug));
    symlink(release.at("nowhere"), release.at("to-nowhere")).unwrap();
    std::fs::write(release.at("file"), "").unwrap();
    for below in ["to-nowhere", "to-nowhere/www", "file", "file/www"] {
        let other = release.at("other-tree");
        let ran = release.export("layout", &["--build-id", &other, "--debuginfod", &release.at(below)]);
        ran.refused(2, &[&release.at(below.split('/').next().unwrap())]);
        assert!(!Path::new(&other).exists() && !Path::new(&release.at("nowhere")).exists(), "{below}");
    }
}
