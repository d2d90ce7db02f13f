//! Addresses above 4 GiB: of code far behind the image base, and of image bases that are themselves so high; beside
//! llvm-symbolizer.

use crate::support::compare::Comparison;
use crate::support::lookup::Found;
use crate::support::{any_of, have, llvm_symbolizer_in, lookup, run};
use crate::windows;
use std::path::{Path, PathBuf};
use symseal_artifact::{DebugFiles, FunctionStream, ObjectFile, functions};
use symseal_module::Rva;
use symseal_symx::{Table, TableInput};

/// 2^32, from which on an address does not fit 32 bits.
const FOUR_GIB: u64 = 1 << 32;

/// Inlined calls, a class and functions of a section of their own, without any header of a system.
const SOURCE: &str = r#"
#ifndef FAR
#define FAR
#endif
namespace goods {
struct Item { int weight; int twice() const { return weight * 2; } };
template <int N> static inline int clamp(int x) { return x < -N ? -N : x > N ? N : x; }
__attribute__((noinline)) int light(const Item *all, int count) {
    int total = 0;
    for (int at = 0; at < count; at++)
        total += clamp<7>(all[at].twice());
    return total;
}
FAR __attribute__((noinline)) int heavy(const Item *all, int count) {
    int total = 1;
    for (int at = 0; at < count; at++) {
        if (all[at].weight % 5 == 3)
            continue;
        total += clamp<9>(all[at].twice()) * light(all, at);
    }
    return total;
}
FAR __attribute__((noinline)) int both(const Item *all, int count) { return clamp<3>(heavy(all, count)) + light(all, count); }
}
extern "C" int start(int x) {
    goods::Item items[2] = {{x}, {x + 1}};
    return goods::both(items, 2) + goods::heavy(items, 1);
}
"#;

/// One part of the code at 4 MiB, the other at 78 GiB, each in a segment of its own.
const APART: &str = "
PHDRS { near PT_LOAD FLAGS(5); far PT_LOAD FLAGS(5); note PT_NOTE; }
SECTIONS {
    . = 0x400000;
    .note.gnu.build-id : { *(.note.gnu.build-id) } :near :note
    .text : { *(.text .text.*) } :near
    .rodata : { *(.rodata .rodata.*) } :near
    . = 0x1380000000;
    far : { *(far) } :far
    /DISCARD/ : { *(.eh_frame) }
}
";

fn compiled(compiler: &str, flags: &[&str], folder: &Path) -> PathBuf {
    std::fs::write(folder.join("goods.cpp"), SOURCE).expect("a source");
    let all: Vec<&str> = flags.iter().copied().chain(["-c", "goods.cpp", "-o", "goods.o"]).collect();
    run(compiler, &all, folder).expect("a compiler");
    folder.join("goods.o")
}

fn stream_of(binary: &[u8], debug: Option<&[u8]>) -> (FunctionStream, Vec<std::ops::Range<u64>>, u64) {
    let object = ObjectFile::parse(binary).expect("an object");
    let debug = debug.map(|debug| ObjectFile::parse(debug).expect("a debug file"));
    let stream = functions(&object, &DebugFiles::debug(debug.as_ref())).expect("functions");
    lookup::check_shape(&stream);
    (stream, object.unwind_inputs().text, object.image_base().0)
}

/// Compares at each byte of the code, and through a symbol table that is written from the stream.
#[track_caller]
fn check(path: &Path, debug: Option<&Path>, reaches: u64) {
    let binary = std::fs::read(path).expect("a file");
    let described = debug.map(|path| std::fs::read(path).expect("a debug file"));
    let (stream, text, base) = stream_of(&binary, described.as_deref());
    let addresses: Vec<u64> = text.into_iter().flatten().collect();
    assert!(addresses.iter().any(|address| *address >= reaches), "{}: {addresses:x?}", path.display());
    let object = ObjectFile::parse(&binary).expect("an object");
    let table = symseal_symx::write(&TableInput {
        debug_id: object.debug_id().expect("an id"),
        image_base: object.image_base(),
        source_sha256: [0; 32],
        producer: "test",
        strings: &stream.strings,
        functions: &stream.functions,
    });
    let table = table.expect("a table");
    let table = Table::open(&table).expect("a table");
    table.verify().expect("a sound table");
    let mut comparison = Comparison::default();
    let oracle = llvm_symbolizer_in(Path::new("."), debug.unwrap_or(path), &addresses);
    for (address, expected) in addresses.iter().zip(oracle) {
        let found = lookup::frames(&stream, address - base);
        assert_eq!(in_table(&table, Rva(address - base)), places(&found), "{address:#x} in the table");
        // Padding, over which symbols of Mach-O files reach for LLVM.
        if !(found.is_empty() && matches!(expected.as_slice(), [only] if only.line == 0)) {
            comparison.add(*address, &expected, &found);
        }
    }
    println!("{}: {comparison}", path.display());
    comparison.check(300);
}

type Place = (String, String, String, u64);

fn places(found: &[Found]) -> Vec<Place> {
    found.iter().map(|frame| (frame.name.clone(), frame.symbol.clone(), frame.file.clone(), frame.line)).collect()
}

fn in_table(table: &Table<'_>, address: Rva) -> Vec<Place> {
    let frames = table.lookup(address).into_iter().flat_map(|hit| hit.frames());
    let place = |frame: symseal_symx::Frame<'_>| {
        let line = frame.line.map_or(0, u64::from);
        (frame.function.to_string(), frame.symbol.to_string(), frame.file.to_owned(), line)
    };
    frames.map(place).collect()
}

#[test]
fn code_more_than_4_gib_behind_the_image_base_agrees_and_is_found_in_its_table() {
    if !have("llvm-symbolizer") || !have("ld.lld") {
        return;
    }
    for compiler in ["g++", "clang++"] {
        for version in ["-gdwarf-4", "-gdwarf-5"] {
            if !have(compiler) {
                continue;
            }
            let folder = tempfile::tempdir().expect("a folder");
            let far = r#"-DFAR=__attribute__((section("far")))"#;
            let flags = ["-O2", "-g", version, "-mcmodel=large", "-fno-pic", "-fno-asynchronous-unwind-tables"];
            compiled(compiler, &[&flags[..], &["-fno-exceptions", "-ffreestanding", far]].concat(), folder.path());
            std::fs::write(folder.path().join("far.ld"), APART).expect("a script");
            let link = ["goods.o", "-e", "start", "-o", "goods", "-T", "far.ld", "--build-id"];
            run("ld.lld", &link, folder.path()).expect("lld");
            check(&folder.path().join("goods"), None, 18 * FOUR_GIB);
        }
    }
}

#[test]
fn elf_libraries_at_a_base_above_4_gib_agree() {
    if !have("llvm-symbolizer") || !have("ld.lld") || !have("g++") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    compiled("g++", &["-O2", "-g", "-fPIC", "-ffreestanding"], folder.path());
    let link = ["-shared", "goods.o", "-o", "goods.so", "--image-base=0x7f1234560000", "--build-id"];
    run("ld.lld", &link, folder.path()).expect("lld");
    check(&folder.path().join("goods.so"), None, 0x7f12_3456_0000);
}

#[test]
fn pe_files_at_a_base_above_4_gib_agree() {
    if !have("llvm-symbolizer") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    if have("clang") && have("lld-link") {
        let flags = ["--target=x86_64-pc-windows-msvc", "-O2", "-g", "-gcodeview", "-ffreestanding"];
        compiled("clang", &flags, folder.path());
        let link = ["/dll", "/noentry", "/nodefaultlib", "/debug", "/export:start", "/base:0x7ff612340000"];
        let link = [&link[..], &["/dynamicbase", "/highentropyva", "goods.o", "/out:goods.dll"]].concat();
        run("lld-link", &link, folder.path()).expect("lld-link");
        check_pe(&folder.path().join("goods.dll"), 0x7ff6_1234_0000);
    }
    let mingw = "x86_64-w64-mingw32-g++";
    if have(mingw) {
        compiled(mingw, &["-O2", "-g", "-gdwarf-5", "-ffreestanding"], folder.path());
        let base = "-Wl,--image-base,0x7ff712340000";
        let link = ["-shared", "-nostdlib", "-Wl,-e,start", base, "goods.o", "-o", "mingw.dll"];
        run(mingw, &link, folder.path()).expect("a linker");
        check_pe(&folder.path().join("mingw.dll"), 0x7ff7_1234_0000);
    }
}

/// Compares at each byte of the code.
#[track_caller]
fn check_pe(path: &Path, base: u64) {
    let module = windows::Module::read(path);
    assert_eq!(module.base, base);
    let text = ObjectFile::parse(&module.bytes).expect("a PE").unwind_inputs().text;
    let addresses: Vec<u64> = text.into_iter().flatten().collect();
    let answers = llvm_symbolizer_in(Path::new("."), path, &addresses);
    let expected: Vec<_> = addresses.iter().copied().zip(answers).collect();
    let comparison = module.compare(&expected, false);
    println!("{}: {comparison}", path.display());
    comparison.check(300);
}

#[test]
fn macho_files_at_a_base_above_4_gib_agree() {
    let linker = any_of(&["ld64.lld-19", "ld64.lld"]);
    let (Some(linker), true) = (linker, have("llvm-symbolizer") && have("clang") && have("dsymutil")) else { return };
    for (arch, base) in [("x86_64", 0x7ff8_1234_0000_u64), ("arm64", 0x1_8000_0000)] {
        let folder = tempfile::tempdir().expect("a folder");
        let target = format!("--target={arch}-apple-macos11");
        compiled("clang", &[&target, "-stdlib=libc++", "-O2", "-g", "-ffreestanding"], folder.path());
        // A program lies behind what it keeps free below.
        let free = format!("{base:x}");
        let link = ["-arch", arch, "-platform_version", "macos", "11.0", "11.0", "-undefined", "dynamic_lookup"];
        let link = [&link[..], &["-e", "_start", "-pagezero_size", &free, "goods.o", "-o", "goods"]].concat();
        run(linker, &link, folder.path()).expect("ld64.lld");
        run("dsymutil", &["goods", "-o", "goods.dSYM"], folder.path()).expect("dsymutil");
        let debug = folder.path().join("goods.dSYM/Contents/Resources/DWARF/goods");
        check(&folder.path().join("goods"), Some(&debug), base);
    }
}
