//! Identity of odd ELF files beside elfutils and LLVM: ids of every length, notes in one place only, every byte order.

use crate::support::downloads::CLOUD_KERNEL;
use crate::support::{fixtures, have, run};
use std::path::{Path, PathBuf};
use symseal_artifact::{IdKind, ObjectFile};

const SOURCE: &str = "int twice(int x) { return 2 * x; }\nint _start(void) { return twice(21); }\n";

/// Our GNU build-id.
fn ours(path: &Path) -> Option<String> {
    let bytes = std::fs::read(path).expect("a file");
    let object = ObjectFile::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    object.debug_id().filter(|_| object.id_kind() == IdKind::GnuBuildId).map(ToString::to_string)
}

/// What the tool's notes say, `Build ID: …`.
fn noted(tool: &str, argument: &str, path: &Path) -> Option<String> {
    let text = run(tool, &[argument, &path.display().to_string()], Path::new("."))?;
    text.lines().find_map(|line| line.trim().strip_prefix("Build ID: ").map(|id| id.trim().to_owned()))
}

/// `eu-unstrip -n -e`: `0+0x… ID@0x… FILE …`.
fn unstrip_id(path: &Path) -> Option<String> {
    let text = run("eu-unstrip", &["-n", "-e", &path.display().to_string()], Path::new("."))?;
    let id = text.split_whitespace().nth(1)?.split('@').next()?;
    (id != "-").then(|| id.to_owned())
}

const TOOLS: [&str; 3] = ["eu-readelf", "eu-unstrip", "llvm-readobj"];

/// Each tool's answer, of those that are there.
fn theirs(path: &Path, tools: &[&'static str]) -> Vec<(&'static str, Option<String>)> {
    let ask = |tool: &'static str| match tool {
        "eu-readelf" => noted(tool, "-n", path),
        "llvm-readobj" => noted(tool, "--notes", path),
        _ => unstrip_id(path),
    };
    tools.iter().filter(|tool| have(tool)).map(|tool| (*tool, ask(tool))).collect()
}

#[track_caller]
fn check(path: &Path, tools: &[&'static str]) {
    let ours = ours(path);
    for (tool, theirs) in theirs(path, tools) {
        assert_eq!(ours, theirs, "{tool} on {}", path.display());
    }
}

fn compiled(compiler: &str, folder: &Path, name: &str, arguments: &[&str]) -> Option<PathBuf> {
    std::fs::write(folder.join("main.c"), SOURCE).expect("a source");
    let mut all = vec!["-nostdlib", "-ffreestanding", "main.c", "-o", name];
    all.extend(arguments);
    run(compiler, &all, folder)?;
    Some(folder.join(name))
}

#[test]
fn ids_of_every_length_are_those_of_elfutils_and_llvm() {
    if !have("gcc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let lld = have("clang") && have("ld.lld");
    for length in [1_usize, 2, 3, 8, 16, 20, 32, 64] {
        let id: String = (0..length).map(|at| format!("{:02x}", 0xa1 + at)).collect();
        let flag = format!("-Wl,--build-id=0x{id}");
        for (compiler, more) in [("gcc", &[][..]), ("clang", &["-fuse-ld=lld"])] {
            if compiler == "clang" && !lld {
                continue;
            }
            let name = format!("{compiler}-{length}");
            let mut arguments = vec![flag.as_str()];
            arguments.extend(more);
            let path = compiled(compiler, folder.path(), &name, &arguments).expect("it compiles");
            assert_eq!(ours(&path), Some(id.clone()), "{name}");
            // Linkers leave out the padding behind a length that is no multiple of 4, without which elfutils reads no note.
            if length % 4 == 0 {
                check(&path, &TOOLS);
            }
        }
    }
}

/// Numbers of an ELF header of 64 bits, least significant byte first.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    bytes[at..at + size].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[test]
fn a_note_in_a_section_or_in_a_segment_alone_is_found() {
    if !have("gcc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = compiled("gcc", folder.path(), "both", &["-Wl,--build-id=sha1"]).expect("gcc compiles");
    let bytes = std::fs::read(&path).expect("a file");
    let expected = ours(&path);
    assert!(expected.is_some());
    // As `sstrip` leaves it: no section headers.
    let mut segments = bytes.clone();
    segments[0x28..0x30].fill(0);
    segments[0x3c..0x40].fill(0);
    let only_segments = folder.path().join("segments");
    std::fs::write(&only_segments, &segments).expect("a file");
    assert_eq!(ours(&only_segments), expected);
    check(&only_segments, &["eu-readelf", "eu-unstrip", "llvm-readobj"]);
    // No `PT_NOTE` (4): it becomes `PT_NULL`.
    let mut sections = bytes.clone();
    let (table, entry, count) = (number(&bytes, 0x20, 8), number(&bytes, 0x36, 2), number(&bytes, 0x38, 2));
    for header in 0..count {
        let at = (table + header * entry) as usize;
        if number(&bytes, at, 4) == 4 {
            sections[at..at + 4].fill(0);
        }
    }
    let only_sections = folder.path().join("sections");
    std::fs::write(&only_sections, &sections).expect("a file");
    assert_eq!(ours(&only_sections), expected);
    check(&only_sections, &["llvm-readobj"]);
}

#[test]
fn every_size_and_byte_order_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut checked = Vec::new();
    for (compiler, target) in [
        ("mips-linux-gnu-gcc", ""),
        ("aarch64-linux-gnu-gcc", ""),
        ("clang", "powerpc-linux-gnu"),
        ("clang", "powerpc64-linux-gnu"),
        ("clang", "mips64-linux-gnuabi64"),
        ("clang", "mipsel-linux-gnu"),
        ("clang", "i386-linux-gnu"),
        ("clang", "armv7-linux-gnueabihf"),
        ("clang", "riscv64-linux-gnu"),
    ] {
        if !have(compiler) || (compiler == "clang" && !have("ld.lld")) {
            continue;
        }
        let target_flag = format!("--target={target}");
        let more = [target_flag.as_str(), "-fuse-ld=lld", "-O1"];
        let more = if target.is_empty() { &[][..] } else { &more };
        let mut arguments = vec!["-Wl,--build-id=sha1", "-static"];
        arguments.extend(more);
        let name = format!("{compiler}-{target}");
        let Some(path) = compiled(compiler, folder.path(), &name, &arguments) else { continue };
        assert!(ours(&path).is_some(), "{name}");
        check(&path, &TOOLS);
        let bytes = std::fs::read(&path).expect("a file");
        let object = ObjectFile::parse(&bytes).expect("an object");
        checked.push(format!(
            "{} ({} bit, {})",
            object.arch(),
            if object.is_64() { 64 } else { 32 },
            if object.is_little_endian() { "little" } else { "big" }
        ));
    }
    println!("ids as elfutils and LLVM have them: {}", checked.join(", "));
    if have("clang") && have("ld.lld") {
        assert!(checked.iter().any(|name| name.contains("(32 bit, big)")), "{checked:?}");
        assert!(checked.iter().any(|name| name.contains("(64 bit, big)")), "{checked:?}");
    }
}

#[test]
fn a_text_hash_is_the_same_for_twins_and_differs_with_the_code() {
    if !have("gcc") || !have("strip") || !have("objcopy") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let id_of = |path: &Path| {
        let bytes = std::fs::read(path).expect("a file");
        let object = ObjectFile::parse(&bytes).expect("an object");
        assert_eq!((object.id_kind(), ours(path)), (IdKind::TextHash, None));
        object.debug_id().cloned()
    };
    for (compiler, flags) in [("gcc", &["-g", "-O2"][..]), ("mips-linux-gnu-gcc", &["-g", "-static"])] {
        if !have(compiler) {
            continue;
        }
        let mut arguments = vec!["-Wl,--build-id=none"];
        arguments.extend(flags);
        let path = compiled(compiler, folder.path(), "full", &arguments).expect("it compiles");
        let full = id_of(&path).expect("an id");
        let strip = if compiler == "gcc" { "strip" } else { "mips-linux-gnu-strip" };
        for (name, flag) in [("all", "-s"), ("debug", "-g"), ("unneeded", "--strip-unneeded")] {
            run(strip, &[flag, "-o", name, "full"], folder.path()).expect("strip");
            assert_eq!(id_of(&folder.path().join(name)), Some(full.clone()), "{compiler} {name}");
        }
        arguments.push("-DOTHER");
        std::fs::write(folder.path().join("other.c"), "int _start(void) { return 7; }").expect("a source");
        let mut other = vec!["-nostdlib", "-ffreestanding", "other.c", "-o", "other"];
        other.extend(&arguments);
        run(compiler, &other, folder.path()).expect("it compiles");
        assert_ne!(id_of(&folder.path().join("other")), Some(full));
    }
}

/// Every file below a folder.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

#[test]
fn every_elf_fixture_has_the_id_that_elfutils_and_llvm_see() {
    let Some(folder) = fixtures() else { return };
    let (mut checked, mut with_id, mut different) = (0, 0, Vec::new());
    for path in files_in(&folder) {
        let bytes = std::fs::read(&path).expect("a file");
        let Some(object) = bytes.starts_with(b"\x7fELF").then(|| ObjectFile::parse(&bytes).ok()).flatten() else {
            continue;
        };
        let ours = ours(&path);
        checked += 1;
        with_id += u32::from(ours.is_some());
        for (tool, theirs) in theirs(&path, &TOOLS) {
            // `eu-unstrip` asks the program headers, and takes nothing that no process could load.
            let is_asked = tool != "eu-unstrip" || (object.is_executable() && theirs.is_some());
            // GNU ld left out the padding behind it, without which they read no note.
            let is_unpadded = ours.as_ref().is_some_and(|id| id.len() % 8 != 0) && theirs.is_none();
            if is_asked && !is_unpadded && theirs != ours {
                different.push(format!("{}: ours {ours:?}, {tool} {theirs:?}", path.display()));
            }
        }
    }
    println!("{checked} ELF files, {with_id} with a build-id");
    assert!(checked > 50, "{checked}");
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn kernel_modules_of_a_package_are_identified() {
    if !have("apt-get") || !have("dpkg-deb") || !have("eu-readelf") {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel");
    std::fs::create_dir_all(&folder).expect("a folder");
    let modules = || -> Vec<PathBuf> {
        let is_module = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "ko");
        files_in(&folder).into_iter().filter(is_module).collect()
    };
    if modules().is_empty() {
        let Some(archive) = CLOUD_KERNEL.file() else { return };
        let archive = archive.display();
        let unpack = format!("dpkg-deb --fsys-tarfile '{archive}' | tar -x --wildcards '*/kernel/lib/*.ko'");
        run("sh", &["-c", &unpack], &folder).expect("dpkg-deb and tar");
    }
    let modules = modules();
    for module in &modules {
        assert!(ours(module).is_some(), "{}", module.display());
        check(module, &["eu-readelf", "llvm-readobj"]);
    }
    println!("{} kernel modules have the ids that elfutils and LLVM see", modules.len());
    assert!(modules.len() > 5);
}
