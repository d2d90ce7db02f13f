//! Mach-O files and their dSYMs, made by Debian's clang, lld and dsymutil, beside llvm-symbolizer.

use crate::support;
use crate::support::accuracy::measure;
use crate::support::compare::Comparison;
use crate::support::objdump::check_starts_and_exports;
use crate::support::padding::{end_of, is_between_functions};
use crate::support::{any_of, have, lookup, run, symbolizer};
use std::path::{Path, PathBuf};
use symseal_artifact::{
    Arch, ArtifactError, DebugFiles, DebugInfoKind, FunctionStream, ObjectFile, ReleaseFile, functions,
};
use symseal_symx::SymbolSource;

/// Templates, inlined calls and lambdas, without any header of a system.
const SHAPES: &str = r#"
#pragma once
namespace outer { namespace {
template <typename T> inline T clamp(T x, T low, T high) { return x < low ? low : x > high ? high : x; }
struct Shape { virtual int area() const = 0; int side = 3; };
template <int N> struct Square : Shape {
    explicit Square(int s) { side = s; }
    __attribute__((noinline)) int area() const override { return clamp(side * N, -100 * N, 100 * N) / (N + 1); }
};
}
template <int N> struct Sum {
    int total = 0;
    inline int add(int x) { total += clamp(x, -N, N); return total; }
    __attribute__((noinline)) int all(const int *from, int count) {
        for (int at = 0; at < count; at++) {
            if (from[at] % (N + 2) == 0) continue;
            add(from[at] * N);
            if (total > 1000 * N) { total = clamp(total, -7, 7); break; }
        }
        return total;
    }
};
}
"#;

const MAIN: &str = r#"
#include "shapes.h"
extern "C" int printf(const char *, ...);
extern "C" int counted(int x);
extern "C" int from_assembly(int x);
template <int N> __attribute__((noinline)) int work(const int *from, int count) {
    outer::Sum<N> sum;
    outer::Square<N> square(count);
    const outer::Shape *shape = &square;
    int total = sum.all(from, count) + shape->area();
    auto twice = [&](int x) { return x > N ? counted(x) : total * 2 + x; };
    for (int at = 0; at < N % 5 + 1; at++) total += twice(at);
    return total;
}
template <int N> int chain(const int *from, int count) {
    if constexpr (N > 0) return work<N>(from, count) + chain<N - 1>(from, count); else return work<0>(from, count);
}
extern "C" int c_function(int x) { return x * 3; }
__attribute__((visibility("hidden"))) int hidden(int x) { return counted(x) + 1; }
static __attribute__((noinline)) int local(int x) { return counted(x) * 5 - hidden(x); }
int main(int argc, char **) {
    int all[64];
    for (int at = 0; at < 64; at++) all[at] = local(at * argc) + c_function(at) + from_assembly(at);
    printf("%d\n", chain<40>(all, 64));
    return 0;
}
"#;

const OTHER: &str = r#"
#include "shapes.h"
extern "C" int counted(int x) { static int count; return count += outer::clamp(x, -3, 3); }
int unused(int x) { outer::Sum<3> sum; return sum.all(&x, 1); }
"#;

/// What both processors' assemblers understand.
const ASSEMBLY: &str =
    ".text\n.globl _from_assembly\n.p2align 2\n_from_assembly:\n  nop\n  nop\n_inner_label:\n  ret\n";

/// The compiler and the linker.
struct Tools {
    linker: &'static str,
}

impl Tools {
    fn find() -> Option<Self> {
        let linker = any_of(&["ld64.lld-19", "ld64.lld", "ld64.lld-14"]);
        Some(Self { linker: linker.filter(|_| have("clang"))? })
    }

    /// Writes the sources and makes a program of them, in a folder of its own.
    fn program(&self, folder: &Path, arch: &str, flags: &[&str], link: &[&str]) -> PathBuf {
        for (name, text) in [("shapes.h", SHAPES), ("main.cpp", MAIN), ("other.cpp", OTHER), ("leaf.s", ASSEMBLY)] {
            std::fs::write(folder.join(name), text).expect("a source");
        }
        let target = format!("--target={arch}-apple-macos11");
        for name in ["main", "other"] {
            let (source, object) = (format!("{name}.cpp"), format!("{name}.o"));
            let mut all = vec![target.as_str(), "-std=c++17", "-stdlib=libc++", "-c", &source, "-o", &object];
            all.extend(flags);
            run("clang", &all, folder).expect("clang compiles");
        }
        run("clang", &[&target, "-c", "leaf.s", "-o", "leaf.o"], folder).expect("clang assembles");
        let mut all = vec!["-arch", arch, "-platform_version", "macos", "11.0", "11.0", "-undefined", "dynamic_lookup"];
        all.extend(["-e", "_main", "-o", "app", "main.o", "other.o", "leaf.o"]);
        all.extend(link);
        run(self.linker, &all, folder).expect("lld links");
        folder.join("app")
    }
}

/// Gathers the debug information that the debug map names.
fn dsym(tool: &str, program: &Path) -> PathBuf {
    let bundle = program.with_file_name("app.dSYM");
    let folder = program.parent().expect("a folder");
    run(tool, &["app", "-o", "app.dSYM"], folder).expect("dsymutil");
    bundle.join("Contents/Resources/DWARF/app")
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a file")
}

fn stream_of(object: &ObjectFile<'_>, debug: Option<&ObjectFile<'_>>) -> FunctionStream {
    let stream = functions(object, &DebugFiles::debug(debug)).expect("functions");
    lookup::check_shape(&stream);
    stream
}

/// Compares at addresses spread over the slice's code.
#[track_caller]
fn compare(
    title: &str,
    slice: &ObjectFile<'_>,
    stream: &FunctionStream,
    answers: impl Fn(&[u64]) -> Vec<Vec<support::Expected>>,
) {
    let code = slice.unwind_inputs().text;
    let base = slice.image_base().0;
    let measured = measure(&code, |addresses| {
        let mut comparison = Comparison::default();
        for (address, expected) in addresses.iter().zip(answers(addresses)) {
            let found = lookup::frames(stream, address - base);
            if found.is_empty() && is_between_functions(stream, address - base, end_of(&code) - base, &expected) {
                comparison.rule("(rule) padding behind a function's end, which is no frame");
            } else {
                comparison.add(*address, &expected, &found);
            }
        }
        comparison
    });
    measured.print("macOS: Mach-O with dSYM, made by clang, ld64.lld and dsymutil", title);
    println!("{:?} {:?}\n{}", stream.statistics.functions, stream.statistics.skipped, measured.comparison);
    assert_eq!(measured.verdict(title), None);
}

#[test]
fn programs_with_their_dsym_agree_with_llvm_symbolizer() {
    let Some(tools) = Tools::find() else { return };
    let Some(symbolizer_tool) = any_of(&["llvm-symbolizer-19", "llvm-symbolizer"]) else { return };
    for arch in ["x86_64", "arm64"] {
        for (version, dsymutils) in [("-gdwarf-4", &["dsymutil-19", "dsymutil"][..]), ("-gdwarf-5", &["dsymutil-19"])] {
            // dsymutil 14 drops forms of DWARF 5.
            let Some(dsymutil) = any_of(dsymutils) else { continue };
            let folder = tempfile::tempdir().expect("a folder");
            let program = tools.program(folder.path(), arch, &["-O2", version], &[]);
            let debug = dsym(dsymutil, &program);
            let (bytes, debug_bytes) = (read(&program), read(&debug));
            let object = ObjectFile::parse(&bytes).expect("a program");
            let debug_object = ObjectFile::parse(&debug_bytes).expect("a dSYM");
            assert_eq!(object.debug_id(), debug_object.debug_id());
            assert_eq!((object.object_map_count(), debug_object.object_map_count()), (2, 0));
            assert_eq!(debug_object.debug_info_kind(), DebugInfoKind::Full);
            let stream = stream_of(&object, Some(&debug_object));
            let title = format!("{arch} {version}");
            let answers = |addresses: &[u64]| symbolizer(symbolizer_tool, &[], &program, addresses);
            compare(&title, &object, &stream, answers);
            // Of the dSYM alone, too.
            let stream = stream_of(&debug_object, None);
            let answers = |addresses: &[u64]| symbolizer(symbolizer_tool, &[], &debug, addresses);
            compare(&format!("{title} dSYM"), &debug_object, &stream, answers);
        }
    }
}

/// A program without debug information, and its dSYM's file.
fn made_pair(tools: &Tools, folder: &Path, arch: &str) -> Option<(PathBuf, PathBuf)> {
    let dsymutil = any_of(&["dsymutil-19", "dsymutil"])?;
    let program = tools.program(folder, arch, &["-O1", "-gdwarf-4"], &[]);
    let debug = dsym(dsymutil, &program);
    Some((program, debug))
}

#[test]
fn slices_of_a_universal_file_are_named_by_their_slices_of_a_universal_dsym() {
    let Some(tools) = Tools::find() else { return };
    let Some(lipo) = any_of(&["llvm-lipo-19", "llvm-lipo-14", "llvm-lipo"]) else { return };
    let Some(symbolizer_tool) = any_of(&["llvm-symbolizer-19", "llvm-symbolizer"]) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut arguments = [vec!["-create".to_owned()], vec!["-create".to_owned()]];
    for arch in ["x86_64", "arm64"] {
        let own = folder.path().join(arch);
        std::fs::create_dir(&own).expect("a folder");
        let Some((program, debug)) = made_pair(&tools, &own, arch) else { return };
        arguments[0].push(program.display().to_string());
        arguments[1].push(debug.display().to_string());
    }
    std::fs::create_dir_all(folder.path().join("app.dSYM/Contents/Resources/DWARF")).expect("a folder");
    let files = ["app", "app.dSYM/Contents/Resources/DWARF/app"];
    for (mut arguments, output) in arguments.into_iter().zip(files) {
        arguments.extend(["-output".to_owned(), output.to_owned()]);
        run(lipo, &arguments.iter().map(String::as_str).collect::<Vec<_>>(), folder.path()).expect("lipo");
    }
    let [bytes, debug_bytes] = files.map(|file| read(&folder.path().join(file)));
    let [slices, debug_slices] = [&bytes, &debug_bytes].map(|bytes| match ReleaseFile::parse(bytes) {
        Ok(ReleaseFile::Fat(slices)) => slices,
        other => panic!("{other:?}"),
    });
    assert_eq!(slices.iter().map(ObjectFile::arch).collect::<Vec<_>>(), [Arch::X86_64, Arch::Aarch64]);
    for (slice, arch) in slices.iter().zip(["x86_64", "arm64"]) {
        let debug = debug_slices.iter().find(|debug| debug.debug_id() == slice.debug_id());
        let stream = stream_of(slice, Some(debug.expect("its slice")));
        let program = folder.path().join("app");
        let default = format!("--default-arch={arch}");
        let answers = |addresses: &[u64]| symbolizer(symbolizer_tool, &[&default], &program, addresses);
        compare(&format!("universal {arch}"), slice, &stream, answers);
    }
    // The slice of another processor, and another build's slice, are refused with what was expected and what was found.
    let error = functions(&slices[0], &DebugFiles::debug(Some(&debug_slices[1]))).expect_err("another processor");
    let expected = ("architecture x86_64".to_owned(), "architecture aarch64".to_owned());
    assert!(
        matches!(error, ArtifactError::Mismatch { expected: a, found: b } if (a.as_str(), b.as_str()) == (&expected.0, &expected.1))
    );
}

#[test]
fn a_dsym_of_another_build_is_refused_with_both_uuids() {
    let Some(tools) = Tools::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let Some((_, debug)) = made_pair(&tools, folder.path(), "arm64") else { return };
    let other = folder.path().join("other");
    std::fs::create_dir(&other).expect("a folder");
    let program = tools.program(&other, "arm64", &["-O2", "-gdwarf-4"], &[]);
    let (bytes, debug_bytes) = (read(&program), read(&debug));
    let [object, debug] = [&bytes, &debug_bytes].map(|bytes| ObjectFile::parse(bytes).expect("a file"));
    let error = functions(&object, &DebugFiles::debug(Some(&debug))).expect_err("another build").to_string();
    for file in [&object, &debug] {
        assert!(error.contains(&file.debug_id().expect("an id").to_string()), "{error}");
    }
}

#[test]
fn a_stripped_library_has_exports_and_function_starts() {
    let Some(tools) = Tools::find() else { return };
    for arch in ["x86_64", "arm64"] {
        let folder = tempfile::tempdir().expect("a folder");
        let link = ["-dylib", "-install_name", "@rpath/libapp.dylib"];
        let program = tools.program(folder.path(), arch, &["-O2"], &link);
        let Some(strip) = any_of(&["llvm-strip-19", "llvm-strip"]) else { return };
        run(strip, &["-x", "app", "-o", "stripped"], folder.path()).expect("strip");
        let (bytes, stripped) = (read(&program), read(&folder.path().join("stripped")));
        let [full, stripped_object] = [&bytes, &stripped].map(|bytes| ObjectFile::parse(bytes).expect("a library"));
        assert!(full.has_symtab() && !full.is_stripped() && stripped_object.is_stripped());
        assert_eq!(full.debug_id(), stripped_object.debug_id());
        let stream = check_starts_and_exports(&folder.path().join("stripped"), arch, &stripped_object);
        check_starts_and_exports(&program, arch, &full);
        // Without its symbol table there is nothing but the trie and the starts.
        let bare = without_symtab(&stripped);
        let bare_object = ObjectFile::parse(&bare).expect("a library");
        let bare_stream = check_starts_and_exports(&folder.path().join("stripped"), arch, &bare_object);
        let count = |stream: &FunctionStream, source| stream.statistics.functions.get(&source).copied().unwrap_or(0);
        assert!(count(&bare_stream, SymbolSource::Exports) >= 3, "{:?}", bare_stream.statistics);
        assert!(count(&bare_stream, SymbolSource::FunctionStarts) > 10);
        assert_eq!(bare_stream.functions.len(), stream.functions.len());
        for record in bare_stream.functions.iter().filter(|record| record.source == SymbolSource::FunctionStarts) {
            assert!(record.flags.approximate && bare_stream.strings.get(record.symbol).is_empty());
        }
    }
}

/// Zig's linker writes an empty list of function starts, and joins functions in its unwind information as others do: where they begin, symbols tell.
#[test]
fn without_a_list_of_function_starts_functions_are_told_apart_by_their_symbols() {
    let Some(tools) = Tools::find() else { return };
    for arch in ["x86_64", "arm64"] {
        let folder = tempfile::tempdir().expect("a folder");
        let starts = |link: &[&str]| {
            let bytes = read(&tools.program(folder.path(), arch, &["-O2"], link));
            let functions = ObjectFile::parse(&bytes).expect("a program").unwind_inputs().functions;
            // The list takes room before the code.
            functions.iter().map(|start| start - functions[0]).collect::<Vec<u64>>()
        };
        let (listed, by_symbols) = (starts(&[]), starts(&["-no_function_starts"]));
        assert!(listed.len() > 40, "{arch}: {listed:x?}");
        assert_eq!(listed, by_symbols, "{arch}");
    }
}

/// Makes `LC_SYMTAB` a command that nobody knows.
fn without_symtab(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut at = 32;
    while u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) != 2 {
        at += u32::from_le_bytes(bytes[at + 4..at + 8].try_into().expect("four bytes")) as usize;
    }
    bytes[at] = 0x7f;
    bytes
}

/// The debug map as llvm-nm lists it: `OSO` and `SO` entries, in their order.
fn stabs(tool: &str, program: &Path) -> std::collections::BTreeSet<String> {
    let told = run(tool, &["--debug-syms", "--no-sort", "app"], program.parent().expect("a folder")).expect("llvm-nm");
    let mut paths = std::collections::BTreeSet::new();
    let mut directory = String::new();
    for line in told.lines() {
        let mut words = line.split_whitespace().skip_while(|word| !matches!(*word, "SO" | "OSO"));
        match (words.next(), words.next()) {
            (Some("SO"), Some(text)) if text.ends_with('/') => directory = text.to_owned(),
            (Some("SO"), Some(text)) => drop(paths.insert(format!("{}{text}", std::mem::take(&mut directory)))),
            (Some("OSO"), Some(text)) => drop(paths.insert(text.to_owned())),
            _ => {}
        }
    }
    paths
}

#[test]
fn the_paths_of_the_debug_map_are_those_that_llvm_nm_lists() {
    let (Some(tools), Some(nm)) = (Tools::find(), any_of(&["llvm-nm-19", "llvm-nm", "llvm-nm-14"])) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let program = tools.program(folder.path(), "arm64", &["-g", "-O1"], &[]);
    let bytes = read(&program);
    let object = ObjectFile::parse(&bytes).expect("a Mach-O file");
    let (found, expected) = (object.build_paths(), stabs(nm, &program));
    assert_eq!(found, expected);
    for name in ["main.o", "other.o", "main.cpp", "other.cpp"] {
        assert!(found.iter().any(|path| path.ends_with(name)), "{name}: {found:?}");
    }
    // Without its symbols a program says nothing.
    let bare = tools.program(folder.path(), "arm64", &["-O1"], &[]);
    assert!(ObjectFile::parse(&read(&bare)).expect("a Mach-O file").build_paths().is_empty());
}
