//! Programs of other systems, and their ids as other tools read them.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::path::{Path, PathBuf};

use super::programs::{has, output, run};

/// A function that has another one inlined, and one that calls it.
pub(crate) const SOURCE: &str = "\
static inline __attribute__((always_inline)) int add(int a, int b) {
    return a * 3 + b;
}
__attribute__((noinline)) int twice(int x) {
    return add(x, 7) ^ x;
}
int start(int x) {
    return twice(x + 1) + 2;
}
";

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A DLL and its PDB, alone in a new folder; `None` without the tools that make and read them.
pub(crate) fn windows_library(folder: &Path, source: &str) -> Option<(PathBuf, PathBuf)> {
    if !["clang", "lld-link", "llvm-pdbutil", "llvm-readobj"].into_iter().all(has) {
        return None;
    }
    std::fs::create_dir(folder).unwrap();
    let [code, object, dll, pdb] = ["native.c", "native.obj", "Native.dll", "Native.pdb"].map(|name| folder.join(name));
    std::fs::write(&code, source).unwrap();
    let target = ["--target=x86_64-pc-windows-msvc", "-O1", "-g", "-gcodeview", "-c"];
    run("clang", &[&target[..], &[text(&code), "-o", text(&object)]].concat());
    let (out, database) = (format!("/out:{}", text(&dll)), format!("/pdb:{}", text(&pdb)));
    let flags = ["/dll", "/debug", "/noentry", "/nodefaultlib", "/pdbaltpath:Native.pdb", "/export:start"];
    run("lld-link", &[&flags[..], &[text(&object), &out, &database]].concat());
    Some((dll, pdb))
}

/// A library and the file of its dSYM, in a new folder; `None` without the tools that make and read them.
pub(crate) fn macos_library(folder: &Path, source: &str) -> Option<(PathBuf, PathBuf)> {
    let linker = ["ld64.lld", "ld64.lld-19"].into_iter().find(|linker| has(linker))?;
    if !["clang", "dsymutil", "llvm-dwarfdump"].into_iter().all(has) {
        return None;
    }
    std::fs::create_dir(folder).unwrap();
    let [code, object, library] = ["lib.c", "lib.o", "libnative.dylib"].map(|name| folder.join(name));
    std::fs::write(&code, source).unwrap();
    run("clang", &["--target=arm64-apple-macos11", "-g", "-O1", "-c", text(&code), "-o", text(&object)]);
    let target = ["-arch", "arm64", "-platform_version", "macos", "11.0", "11.0", "-dylib"];
    run(linker, &[&target[..], &[text(&object), "-o", text(&library)]].concat());
    run("dsymutil", &[text(&library)]);
    std::fs::remove_file(&object).unwrap();
    std::fs::remove_file(&code).unwrap();
    let dwarf = folder.join("libnative.dylib.dSYM/Contents/Resources/DWARF/libnative.dylib");
    Some((library, dwarf))
}

/// The value behind `key` in what a tool printed.
pub(crate) fn value<'t>(told: &'t str, key: &str) -> &'t str {
    let line = told.lines().find_map(|line| line.trim().strip_prefix(key));
    line.unwrap_or_else(|| panic!("{key} in {told}")).trim()
}

/// Of a PDB.
pub(crate) fn guid_and_age(pdb: &Path) -> (String, u32) {
    let told = output("llvm-pdbutil", &["dump", "--summary", text(pdb)]);
    (value(&told, "GUID:").replace(['{', '}', '-'], ""), value(&told, "Age:").parse().unwrap())
}

/// Of a PE file: its time stamp in eight digits, then its size.
pub(crate) fn code_id(image: &Path) -> String {
    let told = output("llvm-readobj", &["--file-headers", text(image)]);
    let stamp = value(&told, "TimeDateStamp:").split_once("(0x").unwrap().1.trim_end_matches(')').to_uppercase();
    let size: u32 = value(&told, "SizeOfImage:").parse().unwrap();
    format!("{stamp:0>8}{size:x}")
}

/// Of a Mach-O file.
pub(crate) fn uuid(file: &Path) -> String {
    let told = output("llvm-dwarfdump", &["--uuid", text(file)]);
    told.split_whitespace().nth(1).unwrap().replace('-', "")
}
