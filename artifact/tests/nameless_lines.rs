//! Code that has lines and no name: assembly in sections where no symbol is.

use crate::support::lookup::{check_shape, frames};
use crate::support::{have, libc_debug, llvm_symbolizer, run};
use std::path::{Path, PathBuf};
use symseal_artifact::{DebugFiles, FunctionStream, ObjectFile, functions, functions_at};
use symseal_module::Svma;
use symseal_symx::SymbolSource;

/// Two functions with a gap that aligns the second one, which has no size told but by its symbol, and a section without a symbol.
const ASSEMBLY: &str = "    .text
    .globl main
    .type main, @function
main:
    jmp 1f
2:  ret
    .size main, . - main
    .p2align 6
    .type second, @function
second:
    nop
    ret
    .size second, . - second
# A jump that no symbol has.
    jmp 2b
    .p2align 6
    .section .fixup, \"ax\", @progbits
1:  xor %eax, %eax
    jmp 2b
";

const COMPILED: &str = "int main(int count, char **words) { return count + (words == 0); }
int second(int x) { return x * 3; }
static __attribute__((noinline, used)) int third(int x) { return x - 7; }
";

fn made(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    std::fs::write(folder.join(name), source).expect("a source");
    let mut all = vec!["-g", "-O2", "-falign-functions=64", "-Wl,--build-id", name, "-o", "made"];
    all.extend(flags);
    run("gcc", &all, folder).expect("gcc");
    folder.join("made")
}

fn stream(bytes: &[u8]) -> (ObjectFile<'_>, FunctionStream) {
    let object = ObjectFile::parse(bytes).expect("an object");
    let stream = functions(&object, &DebugFiles::default()).expect("functions");
    check_shape(&stream);
    (object, stream)
}

/// Line at each byte of what has lines alone.
fn nameless(stream: &FunctionStream) -> Vec<(u64, u64)> {
    let records = stream.functions.iter().filter(|function| function.source == SymbolSource::FunctionStarts);
    let mut all = Vec::new();
    for record in records {
        assert!(record.name.is_empty() && record.symbol.is_empty() && record.flags.approximate);
        for rva in record.start.0..record.start.0 + record.size {
            let [only] = &frames(stream, rva)[..] else { panic!("{record:?}") };
            all.push((rva, only.line));
        }
    }
    all
}

#[test]
fn assembly_without_a_symbol_has_its_lines_and_what_aligns_a_function_has_none() {
    if !have("gcc") || !have("llvm-symbolizer") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for format in ["-Wa,-gdwarf-3", "-Wa,-gdwarf-5"] {
        let path = made(folder.path(), "made.s", ASSEMBLY, &[format]);
        let bytes = std::fs::read(&path).expect("a program");
        let (object, stream) = stream(&bytes);
        let found = nameless(&stream);
        let mut lines: Vec<u64> = found.iter().map(|(_, line)| *line).collect();
        lines.dedup();
        assert_eq!(lines, [15, 18, 19], "{format}");
        let addresses: Vec<u64> = found.iter().map(|(rva, _)| object.image_base().0 + rva).collect();
        for ((rva, line), expected) in found.iter().zip(llvm_symbolizer(&path, &addresses)) {
            let expected: Vec<(&str, u64)> = expected.iter().map(|one| (one.function.as_str(), one.line)).collect();
            assert_eq!(expected, [("", *line)], "{format} {rva:#x}");
        }
        // The gap behind main.
        let named = |name: &str| {
            let is_it = |name_of| stream.strings.get(name_of) == name;
            stream.functions.iter().find(|function| is_it(function.symbol)).expect("a function")
        };
        let (end, next) = (named("main").start.0 + named("main").size, named("second").start.0);
        assert!(end < next && (end..next).all(|rva| frames(&stream, rva).is_empty()), "{format}");
        // Nothing of it counts as covered, and a part of the file says no more than all of it.
        let size = |is_counted: fn(SymbolSource) -> bool| -> u64 {
            stream.functions.iter().filter(|function| is_counted(function.source)).map(|function| function.size).sum()
        };
        assert_eq!(stream.statistics.covered_bytes, size(|source| source != SymbolSource::FunctionStarts));
        let part = functions_at(&object, &DebugFiles::default(), &[Svma(addresses[0])]).expect("functions");
        assert!(part.is_none_or(|part| part.functions.is_empty()), "{format}");
    }
}

#[test]
fn gaps_that_align_functions_of_a_compiler_are_nobodys() {
    if !have("gcc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for flags in [&["-gdwarf-5"][..], &["-gdwarf-4", "-ffunction-sections"], &["-g1"]] {
        let path = made(folder.path(), "made.c", COMPILED, flags);
        let bytes = std::fs::read(&path).expect("a program");
        assert_eq!(nameless(&stream(&bytes).1), [], "{flags:?}");
    }
}

/// Lines behind the end of a function in assembly are padding where they are those of its last byte: what has lines of its own has an answer. A
/// compiler may end a function with a row behind it. (The rule of docs/accuracy.md)
#[test]
fn gaps_between_functions_in_assembly_of_the_c_library_have_no_lines_of_their_own() {
    let Some(path) = libc_debug().filter(|_| have("llvm-symbolizer")) else { return };
    let bytes = std::fs::read(&path).expect("a debug file");
    let (object, stream) = stream(&bytes);
    let base = object.image_base().0;
    let end = |at: usize| stream.functions[at].start.0 + stream.functions[at].size;
    let gaps: Vec<(u64, u64)> = (1..stream.functions.len())
        .map(|at| (end(at - 1), stream.functions[at].start.0))
        .filter(|(end, next)| end < next)
        .collect();
    let places = |addresses: Vec<u64>| {
        let all = llvm_symbolizer(&path, &addresses);
        all.into_iter().map(|frames| frames.first().map(|one| (one.file.clone(), one.line)).unwrap_or_default())
    };
    let before = places(gaps.iter().map(|(end, _)| base + end - 1).collect());
    let behind = places(gaps.iter().map(|(_, next)| base + next - 1).collect());
    let mut compared = 0;
    for ((gap, before), behind) in gaps.iter().zip(before).zip(behind).filter(|(_, behind)| behind.0.ends_with(".S")) {
        assert_eq!(before, behind, "{gap:x?}");
        compared += 1;
    }
    assert!(compared > 50, "{compared} of {} gaps", gaps.len());
}
