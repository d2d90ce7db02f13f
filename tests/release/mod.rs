//! A release directory as pipelines have them: packages, archives and loose files of three platforms.
#![allow(dead_code, unreachable_pub, reason = "each test file has this module and uses its own part")]
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

pub mod oracle;

use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

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

/// A package of a registry.
struct Package {
    /// Its file name; `*` stands for what Debian's mirrors decide.
    file: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    /// SHA-256 of what is pinned to a version.
    sha256: Option<&'static str>,
}

/// Downloaded once and kept in the target directory.
const PACKAGES: [Package; 4] = [
    Package { file: "libc6_*.deb", program: "apt-get", arguments: &["download", "-qq", "libc6"], sha256: None },
    Package { file: "libc6-dbg_*.deb", program: "apt-get", arguments: &["download", "-qq", "libc6-dbg"], sha256: None },
    Package {
        file: "node-pty-1.1.0.tgz",
        program: "npm",
        arguments: &["pack", "--silent", "node-pty@1.1.0"],
        sha256: Some("c7517f19083ddcb05f276904680eb2b11a6b5ecab778b8e4e5685a6d645b3f60"),
    },
    Package {
        file: "orjson-3.13.0-*.whl",
        program: "pip",
        arguments: &[
            "download",
            "-q",
            "--no-deps",
            "--only-binary=:all:",
            "--platform=macosx_11_0_arm64",
            "--python-version=3.11",
            "--implementation=cp",
            "orjson==3.13.0",
        ],
        sha256: Some("948bad47f2e2e43527f14248364a0e5dee26dd3184691010ec4a1ebeb0fd6771"),
    },
];

impl ReleaseDirectory {
    pub fn make() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let (root, unpacked) = (dir.path().join("release"), dir.path().join("unpacked"));
        std::fs::create_dir_all(&root).expect("a folder");
        std::fs::create_dir_all(&unpacked).expect("a folder");
        let mut release = Self { _dir: dir, root, unpacked, missing: Vec::new() };
        for package in &PACKAGES {
            match package.get() {
                Some(path) => release.add(&path),
                None => release.missing.push(package.file),
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

impl Package {
    /// From an earlier run, or downloaded now.
    fn get(&self) -> Option<PathBuf> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
        std::fs::create_dir_all(&folder).expect("a folder");
        if self.find(&folder).is_none() {
            tool(self.program)?;
            if !run(self.program, self.arguments, &folder) {
                println!("SKIP packages: {} {} gave nothing", self.program, self.arguments.join(" "));
                return None;
            }
        }
        let found = self.find(&folder)?;
        if let Some(expected) = self.sha256 {
            let digest = Sha256::digest(std::fs::read(&found).expect("a package"));
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digest, expected, "{}", found.display());
        }
        Some(found)
    }

    fn find(&self, folder: &Path) -> Option<PathBuf> {
        let (start, end) = self.file.split_once('*').unwrap_or((self.file, ""));
        let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        entries.into_iter().find(|path| {
            let name = path.file_name().expect("a name").to_string_lossy();
            name.starts_with(start) && name.ends_with(end)
        })
    }
}

fn run(program: &str, arguments: &[&str], folder: &Path) -> bool {
    let output = Command::new(program).args(arguments).current_dir(folder).output().expect("it starts");
    if !output.status.success() {
        println!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    output.status.success()
}
