//! What a file is, beside what binutils, elfutils and LLVM say of it.

use crate::support::{LIBC, have, libc_debug, run};
use std::path::{Path, PathBuf};
use symseal_artifact::{Arch, DebugFiles, DebugInfoKind, IdKind, ObjectFile, ObjectKind, functions};
use symseal_symx::FunctionRecord;

const SOURCE: &str =
    "static int twice(int x) { return 2 * x; }\nint main(int argc, char **argv) { (void)argv; return twice(argc); }\n";

/// Compiles the source with these arguments; None where the compiler is missing or refuses them.
fn compiled(compiler: &str, folder: &Path, name: &str, arguments: &[&str]) -> Option<PathBuf> {
    std::fs::write(folder.join("main.c"), SOURCE).expect("a source");
    let mut all = vec!["main.c", "-o", name];
    all.extend(arguments);
    run(compiler, &all, folder)?;
    Some(folder.join(name))
}

/// The id that `readelf -n` prints.
fn readelf_id(path: &Path) -> Option<String> {
    let text = run("readelf", &["-n", &path.display().to_string()], Path::new("."))?;
    text.lines().find_map(|line| line.trim().strip_prefix("Build ID: ").map(str::to_owned))
}

/// The id that `eu-unstrip -n -e` prints: `0+0x… ID@0x… FILE …`.
fn unstrip_id(path: &Path) -> Option<String> {
    let text = run("eu-unstrip", &["-n", "-e", &path.display().to_string()], Path::new("."))?;
    let id = text.split_whitespace().nth(1)?.split('@').next()?;
    (id != "-").then(|| id.to_owned())
}

#[track_caller]
fn check_ids(path: &Path) {
    let bytes = std::fs::read(path).expect("a file");
    let object = ObjectFile::parse(&bytes).expect("an object");
    let ours = object.debug_id().filter(|_| object.id_kind() == IdKind::GnuBuildId).map(ToString::to_string);
    if have("readelf") {
        assert_eq!(ours, readelf_id(path), "{}", path.display());
    }
    if have("eu-unstrip") {
        assert_eq!(ours, unstrip_id(path), "{}", path.display());
    }
}

#[test]
fn build_ids_are_those_of_readelf_and_eu_unstrip() {
    check_ids(Path::new(LIBC));
    check_ids(&std::env::current_exe().expect("a path"));
    libc_debug().iter().for_each(|debug| check_ids(debug));
    let folder = tempfile::tempdir().expect("a folder");
    if !have("gcc") {
        return;
    }
    for (name, flag) in [
        ("sha1", "-Wl,--build-id=sha1"),
        ("md5", "-Wl,--build-id=md5"),
        ("uuid", "-Wl,--build-id=uuid"),
        ("short", "-Wl,--build-id=0x0011223344556677"),
        ("long", "-Wl,--build-id=0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"),
        ("none", "-Wl,--build-id=none"),
    ] {
        let path = compiled("gcc", folder.path(), name, &["-g", flag]).expect("gcc compiles");
        check_ids(&path);
    }
    if have("clang")
        && have("ld.lld")
        && let Some(path) = compiled("clang", folder.path(), "fast", &["-g", "-fuse-ld=lld", "-Wl,--build-id=fast"])
    {
        check_ids(&path);
    }
}

#[test]
fn a_build_id_may_be_a_single_byte() {
    // GNU ld leaves out the padding behind it, which binutils and elfutils then miss.
    if !have("gcc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = compiled("gcc", folder.path(), "tiny", &["-Wl,--build-id=0xab"]).expect("gcc compiles");
    let bytes = std::fs::read(path).expect("a file");
    let object = ObjectFile::parse(&bytes).expect("an object");
    assert_eq!((object.id_kind(), object.debug_id().expect("an id").to_string().as_str()), (IdKind::GnuBuildId, "ab"));
}

#[test]
fn a_file_without_a_note_is_known_by_its_code_before_and_after_stripping() {
    if !have("gcc") || !have("strip") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = compiled("gcc", folder.path(), "full", &["-g", "-Wl,--build-id=none"]).expect("gcc compiles");
    run("strip", &["-o", "stripped", "full"], folder.path()).expect("strip");
    run("objcopy", &["--only-keep-debug", "full", "full.debug"], folder.path()).expect("objcopy");
    let id_of = |path: &Path| {
        let bytes = std::fs::read(path).expect("a file");
        let object = ObjectFile::parse(&bytes).expect("an object");
        assert_eq!(object.id_kind(), IdKind::TextHash);
        object.debug_id().cloned()
    };
    let full = id_of(&path);
    assert!(full.is_some());
    assert_eq!(full, id_of(&folder.path().join("stripped")));
    assert_eq!(None, id_of(&folder.path().join("full.debug")));
}

/// Kind, debug information, "executable" and "debuginfo" as debuginfod has them.
#[track_caller]
fn check_roles(path: &Path, info: DebugInfoKind, is_executable: bool, is_debuginfo: bool) {
    let bytes = std::fs::read(path).expect("a file");
    let object = ObjectFile::parse(&bytes).expect("an object");
    assert_eq!(
        (object.debug_info_kind(), object.is_executable(), object.is_debuginfo()),
        (info, is_executable, is_debuginfo),
        "{}",
        path.display()
    );
}

#[test]
fn stripped_whole_and_debug_files_are_told_apart() {
    check_roles(Path::new(LIBC), DebugInfoKind::None, true, false);
    check_roles(&std::env::current_exe().expect("a path"), DebugInfoKind::LineTables, true, true);
    libc_debug().iter().for_each(|debug| check_roles(debug, DebugInfoKind::Full, false, true));
    if !have("gcc") || !have("objcopy") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for (name, flags, info) in [
        ("full", &["-g"][..], DebugInfoKind::Full),
        ("full4", &["-gdwarf-4"], DebugInfoKind::Full),
        ("compressed", &["-g", "-gz=zlib"], DebugInfoKind::Full),
        ("lines", &["-g1"], DebugInfoKind::LineTables),
        ("symbols", &[], DebugInfoKind::Symbols),
        ("stripped", &["-s"], DebugInfoKind::None),
    ] {
        let path = compiled("gcc", folder, name, flags).expect("gcc compiles");
        let is_debuginfo = info <= DebugInfoKind::LineTables;
        check_roles(&path, info, true, is_debuginfo);
    }
    run("objcopy", &["--only-keep-debug", "full", "full.debug"], folder).expect("objcopy");
    check_roles(&folder.join("full.debug"), DebugInfoKind::Full, false, true);
}

#[test]
fn a_small_program_in_rust_has_full_debug_information_where_it_was_built_with_it() {
    if !have("rustc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let source = "struct Pair { one: u8, other: Vec<u8> }
        fn main() { let pair = Pair { one: 1, other: vec![2] }; println!(\"{} {:?}\", pair.one, pair.other); }";
    std::fs::write(folder.path().join("main.rs"), source).expect("a source");
    for (level, info) in [
        ("2 -O -Ccodegen-units=1", DebugInfoKind::Full),
        ("2", DebugInfoKind::Full),
        ("1", DebugInfoKind::LineTables),
        ("line-tables-only", DebugInfoKind::LineTables),
        ("0", DebugInfoKind::LineTables),
    ] {
        // Without any of its own it has the lines of the standard library.
        let level = format!("-Cdebuginfo={level}");
        let mut arguments = vec!["main.rs", "-o", "program"];
        arguments.extend(level.split(' '));
        run("rustc", &arguments, folder.path()).expect("rustc");
        check_roles(&folder.path().join("program"), info, true, true);
    }
}

#[test]
fn the_debug_link_gives_name_and_checksum() {
    if !have("gcc") || !have("objcopy") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    compiled("gcc", folder, "full", &["-g"]).expect("gcc compiles");
    run("objcopy", &["--only-keep-debug", "full", "full.debug"], folder).expect("objcopy");
    run("objcopy", &["--strip-debug", "--add-gnu-debuglink=full.debug", "full", "linked"], folder).expect("objcopy");
    let bytes = std::fs::read(folder.join("linked")).expect("a file");
    let link = ObjectFile::parse(&bytes).expect("an object").debug_link().expect("a link");
    assert_eq!(link.file_name, b"full.debug");
    let debug = std::fs::read(folder.join("full.debug")).expect("a file");
    assert_eq!(link.crc32, crc32(&debug));
}

/// CRC-32 of IEEE 802.3, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

#[test]
fn scripts_in_the_file_are_seen_and_named_ones_are_not() {
    if !have("gcc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for (name, entry, expected) in [
        ("named", ".byte 1\\n.asciz \\\"printers.py\\\"", false),
        ("inline", ".byte 4\\n.asciz \\\"name\\\\nimport os\\\\n\\\"", true),
    ] {
        let source = format!(
            "asm(\".pushsection .debug_gdb_scripts, \\\"MS\\\",@progbits,1\\n{entry}\\n.popsection\");\nint main(void) {{ return 0; }}\n"
        );
        let file = format!("{name}.c");
        std::fs::write(folder.path().join(&file), source).expect("a source");
        run("gcc", &[&file, "-o", name], folder.path()).expect("gcc compiles");
        let bytes = std::fs::read(folder.path().join(name)).expect("a file");
        assert_eq!(ObjectFile::parse(&bytes).expect("an object").has_inline_debugger_scripts(), expected, "{name}");
    }
    // rustc names its printers, and does not carry them along.
    let own = std::fs::read(std::env::current_exe().expect("a path")).expect("a file");
    assert!(!ObjectFile::parse(&own).expect("an object").has_inline_debugger_scripts());
}

/// As `llvm-strip --strip-sections` leaves it: the tables are found as the loader finds them.
#[test]
fn symbols_and_frames_are_found_without_section_headers() {
    if !have("gcc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let source = "int one(int x) { return x + 1; } int two(int x) { return one(x) * 2; }\n";
    std::fs::write(folder.path().join("main.c"), source).expect("a source");
    for hash in ["gnu", "sysv", "both"] {
        let style = format!("-Wl,--hash-style={hash}");
        run("gcc", &["-shared", "-fPIC", "-O1", "-s", &style, "main.c", "-o", "lib.so"], folder.path()).expect("gcc");
        let with = std::fs::read(folder.path().join("lib.so")).expect("a file");
        let mut without = with.clone();
        without[40..48].fill(0);
        without[60..64].fill(0);
        let (with, without) = (ObjectFile::parse(&with).expect("ELF"), ObjectFile::parse(&without).expect("ELF"));
        let symbols = |object: &ObjectFile<'_>| {
            let stream = functions(object, &DebugFiles::default()).expect("functions");
            let name = |function: &FunctionRecord| (function.start, stream.strings.get(function.symbol).to_owned());
            stream.functions.iter().map(name).collect::<Vec<_>>()
        };
        assert!(symbols(&with).iter().any(|(_, name)| name == "two"), "{:?}", symbols(&with));
        assert_eq!(symbols(&with), symbols(&without), "{hash}");
        let (with, without) = (with.unwind_inputs(), without.unwind_inputs());
        assert_eq!(with.eh_frame_hdr, without.eh_frame_hdr, "{hash}");
        let (own, found) = (with.eh_frame.expect("frames"), without.eh_frame.expect("frames by the header"));
        assert_eq!(own.svma, found.svma, "{hash}");
        assert!(found.bytes.starts_with(&own.bytes), "{hash}");
    }
}

#[test]
fn kind_architecture_and_base_come_from_the_headers() {
    let bytes = std::fs::read(LIBC).expect("libc");
    let object = ObjectFile::parse(&bytes).expect("an object");
    assert_eq!((object.kind(), object.arch(), object.image_base().0), (ObjectKind::Shared, Arch::X86_64, 0));
    if !have("gcc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = compiled("gcc", folder.path(), "fixed", &["-no-pie"]).expect("gcc compiles");
    let bytes = std::fs::read(path).expect("a file");
    let object = ObjectFile::parse(&bytes).expect("an object");
    assert_eq!((object.kind(), object.image_base().0), (ObjectKind::Executable, 0x40_0000));
}

#[test]
fn the_unwinder_gets_its_sections() {
    let bytes = std::fs::read(LIBC).expect("libc");
    let inputs = ObjectFile::parse(&bytes).expect("an object").unwind_inputs();
    assert!(inputs.text.is_sorted_by(|a, b| a.end < b.start));
    for (section, name) in [(&inputs.eh_frame, ".eh_frame"), (&inputs.eh_frame_hdr, ".eh_frame_hdr")] {
        let section = section.as_ref().expect("a section");
        assert!(!section.bytes.is_empty() && section.svma != 0, "{name}");
    }
    let plt = inputs.plt.first().expect("a table");
    assert_eq!((plt.name.as_str(), plt.entry_size), (".plt", 16));
}
