//! Objects that no linker has placed: kernel modules and `.o` files.

use crate::support::addr2line::{addr2line_in_section, without_symbols};
use crate::support::compare::Comparison;
use crate::support::placed::{Placed, linked, placed};
use crate::support::{addresses_in, have, llvm_symbolizer_in, lookup, run};
use std::collections::BTreeSet;
use symseal_artifact::{DebugFiles, FunctionStream, ObjectFile, functions};
use symseal_symx::FunctionRecord;

/// Without headers, so that any target compiles it.
const PLAIN: &str = r#"
static inline int clamp(int x, int low, int high) { return x < low ? low : x > high ? high : x; }
struct sum { int total; };
static inline int add(struct sum *sum, int x) { sum->total += clamp(x, -100, 100); return sum->total; }
__attribute__((noinline)) int slow(struct sum *sum, int x) { return add(sum, x) * 3 + add(sum, -x); }
int extern_thing(int);
int walk(const int *all, int count) {
    struct sum sum = { 0 };
    for (int at = 0; at < count; at++) {
        if (all[at] > 1000) return extern_thing(all[at]);
        add(&sum, all[at] ^ at);
    }
    return slow(&sum, count);
}
int _start(void) { int all[3] = { 1, 2, 3 }; return walk(all, 3); }
"#;

/// What a kernel module's sections look like.
const SECTIONS: &str = r#"
#define SECTION(name) __attribute__((section(name), noinline, used))
static inline int twice(int x) { return x * 2; }
SECTION(".init.text") int start(int x) { return twice(x) + 1; }
int work(int x) { return x > 5 ? twice(x + 2) : x; }
SECTION(".exit.text") int stop(int x) { return twice(x) - 1; }
SECTION(".text.unlikely") int seldom(int x) { return twice(x) ^ 7; }
int more(int x) { return work(x) + seldom(x); }
"#;

fn stream_of(bytes: &[u8]) -> FunctionStream {
    let object = ObjectFile::parse(bytes).expect("an object");
    let stream = functions(&object, &DebugFiles::default()).expect("functions");
    lookup::check_shape(&stream);
    stream
}

#[test]
fn objects_of_each_processor_agree_with_llvm_symbolizer() {
    if !have("clang") || !have("llvm-symbolizer") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("plain.c"), PLAIN).expect("a source");
    let targets: &[(&str, &[&str])] = &[
        ("x86_64-linux-gnu", &["-gdwarf-4"]),
        ("x86_64-linux-gnu", &["-gdwarf-5"]),
        ("x86_64-linux-gnu", &["-gdwarf-5", "-gz=zlib"]),
        ("aarch64-linux-gnu", &["-gdwarf-5"]),
        ("aarch64_be-linux-gnu", &["-gdwarf-4"]),
        ("powerpc64le-linux-gnu", &["-gdwarf-4"]),
        ("powerpc64le-linux-gnu", &["-gdwarf-5"]),
        ("riscv64-linux-gnu", &["-gdwarf-5"]),
        ("riscv64-linux-gnu", &["-gdwarf-4", "-mrelax"]),
        ("riscv32-linux-gnu", &["-gdwarf-4"]),
        ("i386-linux-gnu", &["-gdwarf-4"]),
        ("i386-linux-gnu", &["-gdwarf-5"]),
        ("armv7-linux-gnueabihf", &["-gdwarf-4"]),
        ("armv7-linux-gnueabihf", &["-gdwarf-5", "-mthumb"]),
        ("mips-linux-gnu", &["-gdwarf-4"]),
        ("mipsel-linux-gnu", &["-gdwarf-5"]),
        ("mips64-linux-gnu", &["-gdwarf-4"]),
        ("mips64-linux-gnu", &["-gdwarf-5"]),
        ("mips64el-linux-gnu", &["-gdwarf-4"]),
        ("mips64el-linux-gnu", &["-gdwarf-5"]),
        ("s390x-linux-gnu", &["-gdwarf-4"]),
        ("s390x-linux-gnu", &["-gdwarf-5"]),
        ("powerpc-linux-gnu", &["-gdwarf-4"]),
        ("powerpc-linux-gnu", &["-gdwarf-5"]),
        ("hexagon-linux-musl", &["-gdwarf-4"]),
        ("hexagon-linux-musl", &["-gdwarf-5"]),
        ("sparc-linux-gnu", &["-gdwarf-4"]),
        ("sparc64-linux-gnu", &["-gdwarf-4"]),
        ("sparc64-linux-gnu", &["-gdwarf-5"]),
        ("loongarch64-linux-gnu", &["-gdwarf-4"]),
        ("loongarch64-linux-gnu", &["-gdwarf-5"]),
    ];
    for (target, flags) in targets {
        // Version 14 assembles SPARC with the tools of that processor, and does not know LoongArch.
        let is_new = target.starts_with("sparc") || target.starts_with("loongarch");
        let compiler = if is_new { "clang-19" } else { "clang" };
        if is_new && !have(compiler) {
            continue;
        }
        let target_flag = format!("--target={target}");
        let mut arguments = vec![target_flag.as_str(), "-O2", "-ffreestanding", "-c", "plain.c", "-o", "plain.o"];
        arguments.extend(*flags);
        run(compiler, &arguments, folder).expect("clang compiles");
        let path = folder.join("plain.o");
        let bytes = std::fs::read(&path).expect("a file");
        let stream = stream_of(&bytes);
        assert!(stream.statistics.skipped.is_empty(), "{target} {flags:?}: {:?}", stream.statistics);
        let text = ObjectFile::parse(&bytes).expect("an object").unwind_inputs().text;
        assert_eq!(text.first().map(|range| range.start), Some(0), "{target}: {text:?}");
        let addresses = addresses_in(&text, 300, 3);
        let mut comparison = Comparison::default();
        for (address, mut expected) in addresses.iter().zip(llvm_symbolizer_in(folder, &path, &addresses)) {
            let found = lookup::frames(&stream, *address);
            // Symbols of RISC-V and LoongArch objects that are there for relocations have no name (`.L0` for version 19); LLVM calls a function so.
            let has_labels = target.starts_with("riscv") || target.starts_with("loongarch");
            if let (true, Some(theirs), Some(ours)) = (has_labels, expected.last_mut(), found.last())
                && (theirs.function.is_empty() || theirs.function.starts_with(".L"))
            {
                theirs.function.clone_from(&ours.symbol);
            }
            comparison.add(*address, &expected, &found);
        }
        println!("{target} {flags:?}: {comparison}");
        comparison.check(150);
    }
}

/// GCC leaves the rows of line tables to the assembler.
#[test]
fn objects_of_gcc_for_mips_agree_with_llvm_symbolizer() {
    if !have("llvm-symbolizer") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("plain.c"), PLAIN).expect("a source");
    for compiler in ["mips-linux-gnu-gcc", "mipsel-linux-gnu-gcc"].into_iter().filter(|compiler| have(compiler)) {
        for flag in ["-gdwarf-4", "-gdwarf-5"] {
            let arguments = ["-O2", "-ffreestanding", flag, "-c", "plain.c", "-o", "plain.o"];
            run(compiler, &arguments, folder).expect("gcc compiles");
            let path = folder.join("plain.o");
            let bytes = std::fs::read(&path).expect("a file");
            let stream = stream_of(&bytes);
            assert!(stream.statistics.skipped.is_empty(), "{compiler} {flag}: {:?}", stream.statistics);
            let addresses = addresses_in(&ObjectFile::parse(&bytes).expect("an object").unwind_inputs().text, 300, 3);
            let mut comparison = Comparison::default();
            for (address, expected) in addresses.iter().zip(llvm_symbolizer_in(folder, &path, &addresses)) {
                comparison.add(*address, &expected, &lookup::frames(&stream, *address));
            }
            println!("{compiler} {flag}: {comparison}");
            comparison.check(150);
        }
    }
}

/// What llvm-symbolizer does not read in an object (LEB128 of LoongArch with relaxation, where every difference of addresses is left to the linker; DWARF 5 of n32) it
/// is asked of what a linker made of it, function by function: the linker drops padding between them.
#[test]
fn objects_agree_with_what_a_linker_makes_of_them() {
    if !have("clang-19") || !have("llvm-symbolizer") || !have("ld.lld-19") || !have("readelf") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("plain.c"), PLAIN).expect("a source");
    let relaxed = ["-falign-loops=1", "-Xclang", "-target-feature", "-Xclang", "+relax"];
    for (target, version, flags) in [
        ("loongarch64-linux-gnu", "-gdwarf-4", &relaxed[..]),
        ("loongarch64-linux-gnu", "-gdwarf-5", &relaxed),
        ("mips64-linux-gnuabin32", "-gdwarf-5", &[]),
    ] {
        let target_flag = format!("--target={target}");
        let mut arguments = vec![target_flag.as_str(), "-O2", "-ffreestanding", version, "-c", "plain.c"];
        arguments.extend(flags);
        run("clang-19", &arguments, folder).expect("clang compiles");
        let path = folder.join("plain.o");
        let path_linked = linked(&path, folder).expect("a linked file");
        let [stream, stream_linked] =
            [&path, &path_linked].map(|path| stream_of(&std::fs::read(path).expect("a file")));
        assert!(stream.statistics.skipped.is_empty(), "{target}: {:?}", stream.statistics);
        let base = ObjectFile::parse(&std::fs::read(&path_linked).expect("a file")).expect("a file").image_base().0;
        let mut comparison = Comparison::default();
        for name in ["slow", "walk", "_start"] {
            let [of_object, of_linked] = [&stream, &stream_linked].map(|stream| {
                let named = |function: &&FunctionRecord| stream.strings.get(function.symbol) == name;
                stream.functions.iter().find(named).expect(name)
            });
            let addresses: Vec<u64> = (0..of_linked.size).map(|offset| base + of_linked.start.0 + offset).collect();
            for (offset, mut expected) in (0..).zip(llvm_symbolizer_in(folder, &path_linked, &addresses)) {
                let address = of_object.start.0 + offset;
                let found = lookup::frames(&stream, address);
                // Labels that are there for relocations.
                if let (Some(theirs), Some(ours)) = (expected.last_mut(), found.last())
                    && theirs.function.starts_with(".L")
                {
                    theirs.function.clone_from(&ours.symbol);
                }
                comparison.add(address, &expected, &found);
            }
        }
        println!("{target} {version}: {comparison}");
        comparison.check(250);
    }
}

#[test]
fn each_executable_section_has_a_range_of_its_own() {
    if !have("gcc") || !have("addr2line") || !have("readelf") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("sections.c"), SECTIONS).expect("a source");
    for (name, flags) in [
        ("sections", &["-gdwarf-5"][..]),
        ("functions", &["-gdwarf-4", "-ffunction-sections"]),
        ("compressed", &["-gdwarf-5", "-gz=zlib"]),
    ] {
        let output = format!("{name}.o");
        let mut arguments = vec!["-O2", "-c", "sections.c", "-o", &output];
        arguments.extend(flags);
        run("gcc", &arguments, folder).expect("gcc compiles");
        let path = folder.join(&output);
        let stream = stream_of(&std::fs::read(&path).expect("a file"));
        let mut comparison = Comparison::default();
        let sections = placed(&path);
        assert!(sections.len() > 3, "{}", path.display());
        for Placed { name: section, start, size } in sections {
            let offsets: Vec<u64> = (0..size).collect();
            for (offset, expected) in offsets.iter().zip(addr2line_in_section(&section, &path, &offsets)) {
                let found = lookup::frames(&stream, start + offset);
                comparison.add(start + offset, &without_symbols(expected, &found), &found);
            }
        }
        println!("{name}: {comparison}");
        comparison.check(40);
    }
}

/// A kernel module as a linker leaves it that joins no sections: nothing is in `.text` itself. Its debug file has no bytes of code.
#[test]
fn a_kernel_module_with_a_section_for_each_function_agrees_with_addr2line() {
    if !["gcc", "ld", "objcopy", "addr2line", "readelf"].iter().all(|tool| have(tool)) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let this_module = "__attribute__((section(\".gnu.linkonce.this_module\"))) char this_module[64];\n";
    std::fs::write(folder.join("module.c"), format!("{SECTIONS}{this_module}")).expect("a source");
    run("gcc", &["-g", "-O2", "-ffunction-sections", "-c", "module.c", "-o", "module.o"], folder)
        .expect("gcc compiles");
    run("ld", &["-r", "--unique", "--build-id=0xdd0104", "module.o", "-o", "module.ko"], folder).expect("ld links");
    run("objcopy", &["--only-keep-debug", "module.ko", "module.ko.debug"], folder).expect("a debug file");
    run("objcopy", &["--strip-debug", "module.ko", "stripped.ko"], folder).expect("a module");
    let [whole, debug, stripped] =
        ["module.ko", "module.ko.debug", "stripped.ko"].map(|name| std::fs::read(folder.join(name)).expect("a file"));
    let [module, debug, stripped] =
        [&whole, &debug, &stripped].map(|bytes| ObjectFile::parse(bytes).expect("a module"));
    assert!(module.is_kernel_module() && debug.is_kernel_module() && module.has_code() && !debug.has_code());
    let alone = functions(&module, &DebugFiles::default()).expect("functions");
    let paired = functions(&stripped, &DebugFiles::debug(Some(&debug))).expect("functions");
    let of_debug_file = functions(&debug, &DebugFiles::default()).expect("functions");
    let sections: Vec<Placed> =
        placed(&folder.join("module.ko")).into_iter().filter(|section| section.size > 0).collect();
    // Their order is the compiler's.
    let names: BTreeSet<&str> = sections.iter().map(|section| section.name.as_str()).collect();
    assert_eq!(names, BTreeSet::from([".exit.text", ".init.text", ".text.more", ".text.unlikely", ".text.work"]));
    let mut comparison = Comparison::default();
    for Placed { name: section, start, size } in &sections {
        let offsets: Vec<u64> = (0..*size).collect();
        for (offset, expected) in offsets.iter().zip(addr2line_in_section(section, &folder.join("module.ko"), &offsets))
        {
            let found = lookup::frames(&alone, start + offset);
            comparison.add(start + offset, &without_symbols(expected, &found), &found);
            for stream in [&paired, &of_debug_file] {
                assert_eq!(lookup::frames(stream, start + offset), found, "{section}+{offset:#x}");
            }
        }
    }
    println!("{comparison}");
    comparison.check(30);
}

#[test]
fn an_object_of_a_processor_without_known_relocations_keeps_its_symbols() {
    if !have("clang") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("plain.c"), PLAIN).expect("a source");
    let arguments = ["--target=m68k-linux-gnu", "-O2", "-g", "-ffreestanding", "-c", "plain.c", "-o", "plain.o"];
    run("clang", &arguments, folder.path()).expect("clang compiles");
    let stream = stream_of(&std::fs::read(folder.path().join("plain.o")).expect("a file"));
    let reasons: Vec<_> = stream.statistics.skipped.keys().collect();
    assert_eq!(reasons, [&"relocatable object of a processor whose relocations are not read"]);
    assert!(stream.functions.iter().any(|function| stream.strings.get(function.symbol) == "walk"));
}

/// A list of ranges that starts with an empty one at the start of a section, as GCC and clang write where an inlined call
/// begins without an instruction of its own.
const EMPTY_FIRST: &str = r#"
    .text
    .globl outer
outer:
    nop
    nop
    nop
    ret
    .section .debug_ranges,"",@progbits
    .quad .text, .text
    .quad .text+1, .text+3
    .quad 0, 0
    .section .debug_info,"",@progbits
    .long end - 1f
1:  .short 4
    .long .debug_abbrev
    .byte 8
    .uleb128 1
    .quad 0
    .asciz "a.c"
inlined:
    .uleb128 2
    .asciz "inlined"
    .byte 1
    .uleb128 3
    .asciz "outer"
    .quad .text
    .quad 4
    .uleb128 4
    .long inlined - .debug_info
    .long .debug_ranges
    .byte 0, 0
end:
    .section .debug_abbrev,"",@progbits
    .byte 1, 0x11, 1, 0x11, 0x01, 0x03, 0x08, 0, 0
    .byte 2, 0x2e, 0, 0x03, 0x08, 0x20, 0x0b, 0, 0
    .byte 3, 0x2e, 1, 0x03, 0x08, 0x11, 0x01, 0x12, 0x07, 0, 0
    .byte 4, 0x1d, 0, 0x31, 0x13, 0x55, 0x17, 0, 0
    .byte 0
"#;

#[test]
fn an_empty_range_where_a_section_starts_does_not_end_the_list() {
    if !have("gcc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("empty.s"), EMPTY_FIRST).expect("a source");
    run("gcc", &["-c", "empty.s", "-o", "empty.o"], folder.path()).expect("gcc assembles");
    let stream = stream_of(&std::fs::read(folder.path().join("empty.o")).expect("a file"));
    assert!(stream.statistics.skipped.is_empty(), "{:?}", stream.statistics);
    let names = |address| lookup::frames(&stream, address).into_iter().map(|frame| frame.name).collect::<Vec<_>>();
    assert_eq!(names(0), ["outer"]);
    for address in [1, 2] {
        assert_eq!(names(address), ["inlined", "outer"]);
    }
    assert_eq!(names(3), ["outer"]);
}
