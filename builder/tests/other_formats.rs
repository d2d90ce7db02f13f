//! Programs of formats that are not read: told with their places, wherever they lie.

use std::path::Path;

use crate::inputs::{SOURCE, builder, compile, report, run, tool};
use symseal_builder::BuildError;

const PROGRAM: &str = "program or library of a format that is not read";
const OBJECT: &str = "object file of a linker";

/// A program of AIX for 64 bits, as far as its first section. (AIX, XCOFF Object File Format)
fn xcoff(flags: [u8; 2]) -> Vec<u8> {
    let mut file = vec![0x01, 0xf7, 0, 4];
    file.resize(16, 0);
    file.extend([0, 120]);
    file.extend(flags);
    file.resize(24 + 120, 0);
    file.extend(b".text\0\0\0");
    file.resize(1024, 0);
    file
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn programs_of_formats_that_are_not_read_are_told_by_their_places_and_fail_a_strict_build() {
    let (Some(cc), Some(tar)) = (tool("cc"), tool("tar")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let program = compile(&cc, dir.path(), "program", SOURCE, &["-g", "-Wl,--build-id=0xaa01020304"]);
    std::fs::create_dir(at("release")).unwrap();
    std::fs::rename(program, at("release/program")).unwrap();
    let files: [(&str, Vec<u8>, &str); 4] = [
        ("aix", xcoff([0, 2]), "AIX"),
        ("libc.a", [b"<bigaf>\n".as_slice(), &[b' '; 120]].concat(), "AIX"),
        ("carbon", b"Joy!peffpwpc\0\0\0\x01".to_vec(), "PEF"),
        ("old.pdb", b"Microsoft C/C++ program database 2.00\r\n\x1aJG\0\0".to_vec(), "2.00"),
    ];
    for (name, bytes, _) in &files {
        std::fs::write(at("release").join(name), bytes).unwrap();
    }
    std::fs::write(at("release/object.o"), xcoff([0, 0])).unwrap();
    std::fs::write(at("release/Class.class"), b"\xca\xfe\xba\xbe\0\0\0\x34").unwrap();
    run(&tar, &["-C", text(&at("release")), "-cf", text(&at("release.tar")), "."]);

    for (input, inside) in [("release", "release/"), ("release.tar", "release.tar!/")] {
        let found = report(&[at(input)]);
        let skipped = |reason: &str| found.inputs.skipped.get(reason).copied();
        assert_eq!((skipped(PROGRAM), skipped(OBJECT), skipped("no release file")), (Some(4), Some(1), Some(1)));
        assert_eq!(skipped("archive or package that is not looked into"), None);
        let passed: Vec<_> = found.inputs.archives.iter().flat_map(|archive| &archive.passed_over).collect();
        assert_eq!(passed.len(), files.len(), "{passed:#?}");
        for (name, _, kind) in &files {
            let one = passed.iter().find(|one| one.place.ends_with(&format!("{inside}{name}")));
            assert!(one.is_some_and(|one| one.reason.contains(kind)), "{name}: {passed:#?}");
        }
        let objects: Vec<&str> = found.inputs.skipped_places.of(OBJECT).collect();
        assert!(matches!(objects[..], [one] if one.ends_with(&format!("{inside}object.o"))), "{objects:?}");
        let error = builder(&[at(input)]).strict(true).report().unwrap_err();
        assert!(matches!(error, BuildError::Strict { .. }), "{error}");
    }
    for name in ["aix", "object.o"] {
        let error = builder(&[at("release").join(name)]).report().unwrap_err();
        assert!(matches!(error, BuildError::Unsuitable { .. }), "{error}");
        assert!(error.to_string().contains("AIX") && error.to_string().contains("not read"), "{error}");
    }
}

#[test]
fn web_assembly_is_told_by_its_place_and_no_reason_to_fail_a_strict_build() {
    let Some(cc) = tool("cc") else { return };
    let dir = tempfile::tempdir().unwrap();
    let program = compile(&cc, dir.path(), "program", SOURCE, &["-g", "-Wl,--build-id=0xaa01020304"]);
    std::fs::create_dir(dir.path().join("release")).unwrap();
    std::fs::write(dir.path().join("release/module.wasm"), b"\0asm\x01\0\0\0").unwrap();
    let found = builder(&[program, dir.path().join("release")]).strict(true).report().unwrap();
    let places: Vec<&str> = found.inputs.skipped_places.of("WebAssembly, which is not read").collect();
    assert!(matches!(places[..], [one] if one.ends_with("release/module.wasm")), "{places:?}");
}

#[test]
fn objects_of_windows_and_bitcode_are_objects_of_a_linker_as_those_of_linux_are() {
    let Some(clang) = tool("clang") else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("release")).unwrap();
    std::fs::write(at("source.c"), SOURCE).unwrap();
    let source = at("source.c");
    for (name, more) in [
        ("x64.obj", ["--target=x86_64-pc-windows-msvc", "-gcodeview"]),
        ("x86.obj", ["--target=i686-pc-windows-msvc", "-gcodeview"]),
        ("arm64.obj", ["--target=aarch64-pc-windows-msvc", "-gcodeview"]),
        ("unit.bc", ["-emit-llvm", "-g"]),
    ] {
        run(&clang, &[&["-c", text(&source), "-o", text(&at("release").join(name))], &more[..]].concat());
    }
    let program = compile(&clang, dir.path(), "program", SOURCE, &["-g", "-Wl,--build-id=0xaa01020304"]);
    let found = builder(&[program, at("release")]).strict(true).report().unwrap();
    assert_eq!(found.inputs.skipped.get(OBJECT), Some(&4), "{:#?}", found.inputs);
    assert_eq!(found.inputs.skipped_places.of(OBJECT).count(), 4);
}
