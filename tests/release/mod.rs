//! A release directory as pipelines have them: packages, archives and loose files of three platforms.
#![allow(dead_code, unreachable_pub, reason = "each test file has this module and uses its own part")]
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

pub mod oracle;

use std::path::{Path, PathBuf};
use std::process::Command;

use super::downloads::{Download, LIBC, NODE_PTY, ORJSON};
use super::program::{macho_linker, tool};

/// The inputs, and beside each archive what the platform's own tool unpacks from it.
pub struct ReleaseDirectory {
    _dir: tempfile::TempDir,
    /// What the builder is pointed at.
    pub root: PathBuf,
    /// `unpacked/NAME/…` for each archive `root/NAME`.
    pub unpacked: PathBuf,
    /// What could not be had here.
    pub missing: Vec<&'static str>,
}

const PACKAGES: [Download; 3] = [LIBC, NODE_PTY, ORJSON];

impl ReleaseDirectory {
    pub fn make() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let (root, unpacked) = (dir.path().join("release"), dir.path().join("unpacked"));
        std::fs::create_dir_all(&root).expect("a folder");
        std::fs::create_dir_all(&unpacked).expect("a folder");
        let mut release = Self { _dir: dir, root, unpacked, missing: Vec::new() };
        for package in &PACKAGES {
            match package.get() {
                Some(paths) => paths.iter().for_each(|path| release.add(path)),
                None => release.missing.push(package.name),
            }
        }
        release.add_macos();
        release.add_go();
        release.add_small_programs();
        // A Rust program, with its line tables in it: this one.
        let rust = std::env::current_exe().expect("a path");
        std::fs::copy(rust, release.root.join("rust-program")).expect("a copy");
        release
    }

    fn add(&mut self, archive: &Path) {
        let name = archive.file_name().expect("a name");
        std::fs::copy(archive, self.root.join(name)).expect("a copy");
        let folder = self.unpacked.join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let ending = archive.extension().and_then(|ending| ending.to_str());
        let archive = archive.display().to_string();
        let done = match ending {
            Some("deb") => run("dpkg-deb", &["-x", &archive, "."], &folder),
            Some("whl") => run("python3", &["-m", "zipfile", "-e", &archive, "."], &folder),
            _ => run("tar", &["-xzf", &archive], &folder),
        };
        assert!(done, "{archive} can be unpacked");
    }

    /// A Mach-O program with its dSYM, made by clang, ld64.lld and dsymutil.
    fn add_macos(&mut self) {
        let (Some(linker), true) = (macho_linker(), ["clang", "dsymutil"].iter().all(|name| tool(name).is_some()))
        else {
            self.missing.push("a program for macOS with its dSYM");
            return;
        };
        let linker = linker.display().to_string();
        let source = "int square(int n) { return n * n; }\nint start(int n) { return square(n) + 1; }\n";
        let folder = self.root.join("macos");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("app.c"), source).expect("a source");
        for arguments in [
            &["clang", "--target=arm64-apple-macos11", "-g", "-O1", "-c", "app.c", "-o", "app.o"][..],
            &[
                &linker,
                "-arch",
                "arm64",
                "-platform_version",
                "macos",
                "11.0",
                "11.0",
                "-dylib",
                "app.o",
                "-o",
                "app.dylib",
            ],
            &["dsymutil", "app.dylib"],
        ] {
            assert!(run(arguments[0], &arguments[1..], &folder), "{arguments:?}");
        }
        std::fs::remove_file(folder.join("app.c")).expect("the source goes");
        std::fs::remove_file(folder.join("app.o")).expect("the object goes");
    }

    /// One program with a compressed symbol table alone (GDB manual, "MiniDebugInfo"), one with a symbol table, one with nothing,
    /// one that has line tables but no types, and the debug file of one that is not there.
    fn add_small_programs(&mut self) {
        if !["cc", "nm", "objcopy", "strip", "xz"].iter().all(|name| tool(name).is_some()) {
            self.missing.push("small programs");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let source = "static __attribute__((noinline)) int inner(int n) { return n * 3; }\n\
                      int main(int n, char **v) { (void)v; return inner(n); }\n";
        std::fs::write(folder.path().join("a.c"), source).expect("a source");
        let target = |name: &str| self.root.join(name).display().to_string();
        for (name, flags) in [("mini", "-g0"), ("symbols", "-g0"), ("bare", "-s"), ("lines", "-g1")] {
            // Else they would be one module.
            let define = format!("-Wl,--defsym={name}=0");
            let arguments = ["-O1", "-Wl,--build-id", flags, &define, "-o", &target(name), "a.c"];
            assert!(run("cc", &arguments, folder.path()), "{name}");
        }
        let (mini, alone) = (target("mini"), target("alone.debug"));
        for (program, arguments) in [
            ("objcopy", &["--only-keep-debug", &mini, "symbols.elf"][..]),
            ("cc", &["-O1", "-g", "-Wl,--build-id", "-o", "alone", "a.c"]),
            ("objcopy", &["--only-keep-debug", "alone", &alone]),
            ("objcopy", &["-S", "--remove-section=.comment", "--keep-symbol=inner", "symbols.elf", "packed"]),
            ("xz", &["packed"]),
            ("strip", &["--strip-all", &mini]),
            ("objcopy", &["--add-section", ".gnu_debugdata=packed.xz", &mini]),
        ] {
            assert!(run(program, arguments, folder.path()), "{program} {arguments:?}");
        }
    }

    fn add_go(&mut self) {
        if tool("go").is_none() {
            self.missing.push("a Go program");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let source = "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"hello\") }\n";
        std::fs::write(folder.path().join("main.go"), source).expect("a source");
        std::fs::write(folder.path().join("go.mod"), "module hello\n\ngo 1.21\n").expect("a module");
        let output = self.root.join("go-program");
        assert!(run("go", &["build", "-o", &output.display().to_string(), "."], folder.path()), "go build");
    }

    /// The file on disk that a place in the report means: `PATH` or `ARCHIVE!/MEMBER`.
    pub fn file(&self, place: &str) -> PathBuf {
        match place.split_once("!/") {
            None => PathBuf::from(place),
            Some((archive, member)) => {
                let name = Path::new(archive).file_name().expect("a name");
                self.unpacked.join(name).join(member.trim_start_matches("./"))
            }
        }
    }

    /// Every regular file that the inputs hold: loose ones, and those in archives.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = regular_files(&self.root);
        files.retain(|path| !self.unpacked.join(path.strip_prefix(&self.root).expect("below")).is_dir());
        files.extend(regular_files(&self.unpacked));
        files
    }
}

pub fn regular_files(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let entry = entry.expect("an entry");
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    files
}

fn run(program: &str, arguments: &[&str], folder: &Path) -> bool {
    let output = Command::new(program).args(arguments).current_dir(folder).output().expect("it starts");
    if !output.status.success() {
        println!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    output.status.success()
}
