//! Mach-O files and their dSYMs, made by Debian's clang, lld and dsymutil, beside llvm-symbolizer.
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

mod support;

use std::path::{Path, PathBuf};
use support::compare::Comparison;
use support::{addresses_in, any_of, have, lookup, run, symbolizer};
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
) -> Comparison {
    let addresses = addresses_in(&slice.unwind_inputs().text, 2500, 11);
    let mut comparison = Comparison::default();
    for (address, expected) in addresses.iter().zip(answers(&addresses)) {
        let rva = address - slice.image_base().0;
        let found = lookup::frames(stream, rva);
        if found.is_empty() && is_padding(stream, rva, &expected) {
            comparison.rule("(rule) padding behind a function's end, which is no frame");
            continue;
        }
        comparison.add(*address, &expected, &found);
    }
    println!("{title}: {:?} {:?}\n{comparison}", stream.statistics.functions, stream.statistics.skipped);
    comparison
}

/// Mach-O symbols have no sizes, so that LLVM has each reach to the next one, over the bytes that align it; debug
/// information says where the function ends.
fn is_padding(stream: &FunctionStream, rva: u64, expected: &[support::Expected]) -> bool {
    /// What linkers align functions to.
    const LONGEST: u64 = 15;
    let [only] = expected else { return false };
    let behind = stream.functions.partition_point(|function| function.start.0 <= rva);
    let Some(function) = behind.checked_sub(1).map(|at| &stream.functions[at]) else { return false };
    let end = function.start.0 + function.size;
    let next = stream.functions.get(behind).map_or(u64::MAX, |next| next.start.0);
    let names = std::iter::once(&function.symbol).chain(&function.aliases);
    let is_named = names.map(|name| stream.strings.get(*name)).any(|name| name == only.function);
    only.line == 0 && only.file.is_empty() && is_named && rva - end < LONGEST && next - end <= LONGEST
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
            compare(&title, &object, &stream, answers).check(2000);
            // Of the dSYM alone, too.
            let stream = stream_of(&debug_object, None);
            let answers = |addresses: &[u64]| symbolizer(symbolizer_tool, &[], &debug, addresses);
            compare(&format!("{title} dSYM"), &debug_object, &stream, answers).check(2000);
        }
    }
}
