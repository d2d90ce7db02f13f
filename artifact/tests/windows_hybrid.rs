//! ARM64EC images without a PDB: where functions start by the metadata of hybrid images, beside what llvm-readobj prints of
//! it and what llvm-pdbutil lists of the PDB that was taken away.

use crate::support::{Chance, have, lookup, run};
use crate::windows::Module;
use crate::windows::pdbutil::procedures;
use std::collections::BTreeSet;
use std::path::Path;
use symseal_artifact::{Arch, DebugFiles, ObjectFile, functions};
use symseal_symx::SymbolSource;

const ARM64EC: &str = r#"
__attribute__((noinline)) int first(int x) { volatile int all[20]; for (int i = 0; i < 20; i++) all[i] = x * i; return all[x & 15] + 3; }
__attribute__((noinline)) static int second(int (*f)(int), int x) { return f(x) * 5 - f(x + 1); }
int start(int x) { return second(first, x) + first(x ^ 7); }
"#;

/// The same for x64.
const X64: &str = r#"
__attribute__((noinline)) int x64_first(int x) { volatile int all[20]; for (int i = 0; i < 20; i++) all[i] = x - i; return all[x & 15] + 3; }
__attribute__((noinline)) static int x64_second(int (*f)(int), int x) { return f(x) * 5 - f(x + 1); }
int x64_start(int x) { return x64_second(x64_first, x) + x64_first(x ^ 7); }
"#;

/// The load configuration and the metadata that it names, which the compiler's run time would bring; with entries as
/// Microsoft's linker makes them of x64 code that stands for ARM64EC functions.
const CONFIGURATION: &str = r##"
    .section .rdata,"dr"
    .globl _load_config_used
    .p2align 3, 0
_load_config_used:
    .word 0x140
    .fill 0xc4,1,0
    .xword __chpe_metadata
    .fill 0x70,1,0
    .globl __chpe_metadata
    .p2align 3, 0
__chpe_metadata:
    .word 1
    .rva __hybrid_code_map
    .word __hybrid_code_map_count
    .rva ranges
    .rva redirected
    .word 0,0,0,0,0
    .word 0
    .word 0
    .word 1
    .word 2
    .word 0,0
    .rva __arm64x_extra_rfe_table
    .word __arm64x_extra_rfe_table_size
    .word 0
    .word 0
    .fill 0x40,1,0
ranges:
    .rva x64_start, x64_start+16, "#start"
redirected:
    .rva x64_first, "#first"
    .rva x64_start, "#start"
"##;

/// A DLL of both kinds of code, and where its procedures start by its PDB, which is removed. None without the tools.
fn hybrid(folder: &Path) -> Option<(Vec<u8>, BTreeSet<u64>)> {
    if !["clang-19", "lld-link-19", "llvm-readobj-19", "llvm-pdbutil"].into_iter().all(have) {
        return None;
    }
    let dispatchers = ["ret", "call", "call_no_redirect", "icall", "fptr"].map(|name| format!("dispatch_{name}"));
    let checks = ["icall", "call", "icall_cfg"].map(|name| format!("check_{name}"));
    let pointers: Vec<String> =
        dispatchers.iter().chain(&checks).map(|name| format!("void *__os_arm64x_{name};\n")).collect();
    for (name, text) in
        [("main.c", ARM64EC), ("other.c", X64), ("config.s", CONFIGURATION), ("system.c", pointers.concat().as_str())]
    {
        std::fs::write(folder.join(name), text).expect("a source");
        let target = if name == "other.c" { "x86_64" } else { "arm64ec" };
        let target = format!("--target={target}-pc-windows-msvc");
        run("clang-19", &[&target, "-O1", "-g", "-gcodeview", "-c", name], folder).expect("clang");
    }
    let link = ["/machine:arm64ec", "/dll", "/noentry", "/nodefaultlib", "/debug", "/out:hybrid.dll", "/export:start"];
    let link = [&link[..], &["/export:x64_start", "main.o", "other.o", "system.o", "config.o"]].concat();
    run("lld-link-19", &link, folder).expect("lld-link");
    let dll = std::fs::read(folder.join("hybrid.dll")).expect("a DLL");
    let starts = procedures(&folder.join("hybrid.pdb"), &dll).into_iter().map(|procedure| procedure.start).collect();
    std::fs::remove_file(folder.join("hybrid.pdb")).expect("a PDB");
    Some((dll, starts))
}

#[test]
fn functions_of_an_arm64ec_image_without_its_pdb_start_where_its_metadata_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((dll, procedures)) = hybrid(folder.path()) else { return };
    let module = Module::read(&folder.path().join("hybrid.dll"));
    assert_eq!(ObjectFile::parse(&dll).expect("a PE").arch(), Arch::X86_64);
    let starts: BTreeSet<u64> = module.stream.functions.iter().map(|function| function.start.0).collect();
    let has = |source| module.stream.functions.iter().filter(|function| function.source == source).count();
    assert!(
        has(SymbolSource::FunctionStarts) >= 4 && has(SymbolSource::Exports) == 2,
        "{:?}",
        module.stream.statistics
    );
    // Each procedure of either processor, static ones too.
    assert_eq!(procedures.len(), 6, "{procedures:?}");
    assert!(procedures.is_subset(&starts), "{procedures:x?} in {starts:x?}");
    // Each entry that llvm-readobj prints: `0x2030 - 0x2040 -> 0x1070` and `0x2000 -> 0x1030`.
    let text = run("llvm-readobj-19", &["--coff-load-config", "hybrid.dll"], folder.path()).expect("llvm-readobj");
    let mut printed = BTreeSet::new();
    for (from, to) in text.lines().filter_map(|line| line.trim().split_once(" -> ")) {
        for address in [from.split(' ').next().expect("an address"), to] {
            printed.insert(u64::from_str_radix(address.trim_start_matches("0x"), 16).expect("an address"));
        }
    }
    assert_eq!(printed.len(), 4, "{text}");
    assert!(printed.is_subset(&starts), "{printed:x?} in {starts:x?}");
    // All of them lie in code of the map.
    let mapped = |kind: &str| -> Vec<(u64, u64)> {
        let lines = text.lines().filter(|line| line.ends_with(kind)).filter_map(|line| line.trim().split_once(" - "));
        let ends = lines.map(|(start, rest)| (start, rest.split(' ').next().expect("an end")));
        ends.map(|(start, end)| {
            [start, end].map(|text| u64::from_str_radix(&text[2..], 16).expect("an address")).into()
        })
        .collect()
    };
    let map = [mapped(" ARM64EC"), mapped(" X64")].concat();
    assert_eq!(map.len(), 2, "{text}");
    // The header names x64: the rest has no rules in a table for it.
    let object = ObjectFile::parse(&dll).expect("a PE");
    let inputs = object.unwind_inputs();
    let base = inputs.image_base.0;
    let foreign: Vec<(u64, u64)> = inputs.foreign.iter().map(|range| (range.start - base, range.end - base)).collect();
    assert_eq!(foreign, mapped(" ARM64EC"));
    assert!(inputs.pdata.is_some());
    assert!(
        starts.iter().all(|rva| map.iter().any(|(start, end)| (start..end).contains(&rva))),
        "{starts:x?} {map:x?}"
    );
}

#[test]
fn changed_metadata_does_no_harm() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((dll, _)) = hybrid(folder.path()) else { return };
    let object = ObjectFile::parse(&dll).expect("a PE");
    let (start, bytes) = object.section(".rdata").expect("a section");
    let at = dll.windows(bytes.len()).position(|window| window == bytes).expect("the section in the file");
    let mut chance = Chance::new(29);
    for round in 0..2_000 {
        let mut changed = dll.clone();
        for _ in 0..1 + chance.below(1 << (round % 6)) {
            let place = at + chance.below(bytes.len() as u64) as usize;
            changed[place] = if chance.below(2) == 0 { 0xff } else { chance.next() as u8 };
        }
        let Ok(object) = ObjectFile::parse(&changed) else { continue };
        if let Ok(stream) = functions(&object, &DebugFiles::default()) {
            lookup::check_shape(&stream);
        }
    }
    println!("2,000 changed forms of {} bytes at {:#x}", bytes.len(), start.0);
}
