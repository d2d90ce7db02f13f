//! Modules whose code has no unwind table: the report counts that code, and says why.

use std::path::{Path, PathBuf};

use crate::inputs::{builder, output, run, tool};

const SOURCE: &str = "int once(int x) { return x + 1; }\nint twice(int x) { return 2 * x; }\n";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Bytes of the executable sections, by llvm-readobj: what the loader gives them of a PE file, what the file has of an ELF file.
fn bytes_of_code(readobj: &Path, file: &Path) -> u64 {
    let told = output(readobj, &["--sections", text(file)]);
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    };
    let mut bytes = 0;
    for section in told.split("Section {").skip(1) {
        let field = |name: &str| section.lines().find_map(|line| line.trim().strip_prefix(name));
        if section.contains("IMAGE_SCN_MEM_EXECUTE") || section.contains("SHF_EXECINSTR") {
            bytes += number(field("VirtualSize: ").or_else(|| field("Size: ")).unwrap());
        }
    }
    bytes
}

/// A library for Windows on that processor.
fn windows_library(clang: &Path, link: &Path, dir: &Path, processor: &str) -> PathBuf {
    let [object, library] = ["obj", "dll"].map(|ending| dir.join(format!("{processor}.{ending}")));
    let target = format!("--target={processor}-pc-windows-msvc");
    run(clang, &[&target, "-O1", "-c", text(&dir.join("a.c")), "-o", text(&object)]);
    let out = format!("/out:{}", text(&library));
    run(link, &["/dll", "/noentry", "/nodefaultlib", "/export:twice", &out, text(&object)]);
    library
}

#[test]
fn code_of_modules_without_a_table_has_no_rule() {
    let (Some(clang), Some(link), Some(readobj)) = (tool("clang"), tool("lld-link"), tool("llvm-readobj")) else {
        return;
    };
    let Some(lld) = tool("ld.lld") else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("a.c"), SOURCE).unwrap();
    let x86 = windows_library(&clang, &link, dir.path(), "i686");
    let x64 = windows_library(&clang, &link, dir.path(), "x86_64");
    run(&clang, &["--target=powerpc64le-linux-gnu", "-O1", "-fPIC", "-c", text(&at("a.c")), "-o", text(&at("p.o"))]);
    run(&lld, &["-shared", "--build-id", "-o", text(&at("p.so")), text(&at("p.o"))]);

    let found = builder(&[x86.clone(), x64.clone(), at("p.so")]).report().unwrap();
    let mut reasons = 0;
    for (file, expected) in [
        (&x86, Some("unwind tables of x86 in PE files are not made by this version")),
        (&x64, None),
        (&at("p.so"), Some("unwind tables of ppc64le are not made by this version")),
    ] {
        let module = found.modules.iter().find(|module| module.binary.as_deref() == Some(text(file))).unwrap();
        assert_eq!(module.unwind.none_because.as_deref(), expected, "{}", file.display());
        let code = bytes_of_code(&readobj, file);
        assert!(code > 0);
        assert_eq!(module.unwind.text_bytes, code, "{}", file.display());
        if expected.is_some() {
            reasons += 1;
            assert_eq!((module.unwind.covered_bytes, module.unwind.table_bytes), (0, 0));
        }
    }
    assert_eq!(found.unwind.none_because.values().sum::<u64>(), reasons);
    let all: u64 = [&x86, &x64, &at("p.so")].into_iter().map(|file| bytes_of_code(&readobj, file)).sum();
    assert_eq!((found.unwind.modules, found.unwind.text_bytes), (1, all));
}
