//! What compilers and linkers make of one program: each variant beside llvm-symbolizer.

use crate::support::compare::Comparison;
use crate::support::{addresses_in, have, llvm_symbolizer, lookup, run};
use std::path::Path;
use symseal_artifact::{DebugFiles, FunctionStream, ObjectFile, functions, is_damaged_unit};
use symseal_symx::SymbolSource;

/// Namespaces, classes, templates, lambdas, inlined calls, a cold part, and an assembly function.
const CPP: &str = r#"
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <algorithm>
namespace outer { namespace {
struct Shape { virtual ~Shape() {} virtual double area() const = 0; };
struct Square : Shape { double side; explicit Square(double s) : side(s) {} __attribute__((noinline, used)) double area() const override; };
double Square::area() const { return side * side; }
template <typename T> inline T clamp(T x, T low, T high) { return x < low ? low : x > high ? high : x; }
} // namespace
class Sum {
public:
    explicit Sum(int start);
    inline int add(int x) { total += clamp(x, -100, 100); return total; }
    struct Inner;
private:
    int total;
};
struct Sum::Inner { __attribute__((noinline)) int twice(int x); };
int Sum::Inner::twice(int x) { return 2 * x; }
Sum::Sum(int start) : total(start) {}
}
__attribute__((noinline)) int work(std::vector<int> &all, int limit) {
    if (__builtin_expect(limit < 0, 0)) { std::fprintf(stderr, "negative limit %d\n", limit); std::abort(); }
    std::sort(all.begin(), all.end(), [limit](int a, int b) { return a % limit < b % limit; });
    outer::Sum sum(limit);
    for (int x : all) sum.add(x);
    return sum.add(0);
}
extern "C" int from_assembly(int);
int main(int argc, char **) {
    std::vector<int> all;
    for (int i = 0; i < 100; i++) all.push_back(i * argc);
    outer::Square square(argc);
    outer::Sum::Inner inner;
    return work(all, argc + 7) + inner.twice(argc) + from_assembly((int)square.area());
}
"#;

const ASSEMBLY: &str = r#"
    .text
    .globl from_assembly
    .type from_assembly, @function
from_assembly:
    lea (%rdi,%rdi), %eax
    add $1, %eax
    ret
    .size from_assembly, .-from_assembly
    .globl without_size
without_size:
    nop
    nop
    ret
    .section .note.GNU-stack,"",@progbits
"#;

fn write_sources(folder: &Path) {
    std::fs::write(folder.join("main.cpp"), CPP).expect("a source");
    std::fs::write(folder.join("leaf.s"), ASSEMBLY).expect("a source");
}

fn stream_of(path: &Path) -> (FunctionStream, Vec<std::ops::Range<u64>>, u64) {
    let bytes = std::fs::read(path).expect("a file");
    let object = ObjectFile::parse(&bytes).expect("an object");
    let stream = functions(&object, &DebugFiles::default()).expect("functions");
    lookup::check_shape(&stream);
    (stream, object.unwind_inputs().text, object.image_base().0)
}

/// Compares every eighth address of the code or so.
#[track_caller]
fn check_against_llvm(path: &Path) {
    let (stream, text, base) = stream_of(path);
    let addresses = addresses_in(&text, 1500, 7);
    let mut comparison = Comparison::default();
    for (address, expected) in addresses.iter().zip(llvm_symbolizer(path, &addresses)) {
        comparison.add(*address, &expected, &lookup::frames(&stream, address - base));
    }
    println!("{}: {comparison}{:?}", path.display(), stream.statistics.skipped);
    comparison.check(500);
}

const VARIANTS: &[(&str, &[&str])] = &[
    ("plain", &["-O2", "-g"]),
    ("unoptimized", &["-O0", "-g"]),
    ("dwarf2", &["-O2", "-gdwarf-2", "-gstrict-dwarf"]),
    ("dwarf3", &["-O2", "-gdwarf-3"]),
    ("dwarf4", &["-O2", "-gdwarf-4"]),
    ("dwarf5", &["-O2", "-gdwarf-5"]),
    ("zlib", &["-O2", "-g", "-gz=zlib"]),
    ("lines", &["-O2", "-g1"]),
    ("fixed", &["-O2", "-g", "-no-pie"]),
    ("sections", &["-O2", "-g", "-ffunction-sections", "-Wl,--gc-sections"]),
    ("no-sibling", &["-O3", "-g", "-fno-optimize-sibling-calls", "-fno-omit-frame-pointer"]),
    ("no-id", &["-O2", "-g", "-Wl,--build-id=none"]),
];

const GCC_VARIANTS: &[(&str, &[&str])] = &[
    ("hot-cold", &["-O2", "-g", "-freorder-blocks-and-partition"]),
    ("gcc-zlib-gnu", &["-O2", "-gdwarf-4", "-gz=zlib-gnu"]),
    ("gcc-lto", &["-O2", "-g", "-flto"]),
    ("gcc-types", &["-O2", "-gdwarf-4", "-fdebug-types-section"]),
    ("gcc-types-5", &["-O2", "-gdwarf-5", "-fdebug-types-section"]),
    ("gcc-dwarf64", &["-O2", "-g", "-gdwarf64"]),
    ("gcc-dwarf64-4", &["-O2", "-gdwarf-4", "-gdwarf64"]),
    ("gcc-above-4-gib", &["-O2", "-g", "-shared", "-fPIC", "-Wl,-Ttext-segment=0x200000000"]),
];

const CLANG_VARIANTS: &[(&str, &[&str])] = &[
    ("clang-lto", &["-O2", "-g", "-flto", "-fuse-ld=lld"]),
    ("clang-icf", &["-O2", "-g", "-ffunction-sections", "-fuse-ld=lld", "-Wl,--icf=all", "-Wl,--gc-sections"]),
    ("clang-line-tables", &["-O2", "-gline-tables-only"]),
    ("clang-types", &["-O2", "-gdwarf-4", "-fdebug-types-section"]),
    ("clang-types-5", &["-O2", "-gdwarf-5", "-fdebug-types-section"]),
    ("clang-dwarf64", &["-O2", "-gdwarf-5", "-gdwarf64"]),
    ("clang-above-4-gib", &["-O2", "-g", "-shared", "-fPIC", "-Wl,-Ttext-segment=0x200000000"]),
];

/// Where LLVM keeps the table of addresses small, an address is told as an entry of it and what is to be added. What it compiles is the same.
#[test]
fn addresses_behind_others_are_those_of_a_program_that_tells_each() {
    if !have("clang++-19") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    write_sources(folder.path());
    let told = |kind: &str| {
        let output = folder.path().join(kind);
        let option = format!("-minimize-addr-in-v5={kind}");
        let arguments = ["-g", "-gdwarf-5", "-O2", "-mllvm", &option, "main.cpp", "leaf.s", "-o", kind];
        run("clang++-19", &arguments, folder.path());
        let (stream, ..) = stream_of(&output);
        let skipped = stream.statistics.skipped.keys().find(|reason| is_damaged_unit(reason));
        assert!(skipped.is_none(), "{kind}: {skipped:?}");
        let text = |id: symseal_symx::StrId| stream.strings.get(id).to_owned();
        let functions = stream.functions.iter().map(|function| {
            let inlines = function.inlines.iter().map(|inline| (text(inline.name), inline.call_line));
            (text(function.name), function.rows.len(), inlines.collect::<Vec<_>>())
        });
        functions.collect::<Vec<_>>()
    };
    let expected = told("Disabled");
    assert!(expected.iter().any(|(_, _, inlines)| inlines.len() > 20), "{expected:?}");
    for kind in ["Ranges", "Expressions", "Form"] {
        assert_eq!(told(kind), expected, "{kind}");
    }
}

#[test]
fn variants_agree_with_llvm_symbolizer() {
    if !have("llvm-symbolizer") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    write_sources(folder.path());
    let of = |compiler: &'static str, variants: &'static [(&'static str, &'static [&'static str])]| {
        variants.iter().map(move |(name, flags)| (compiler, *name, *flags))
    };
    let gcc = of("g++", VARIANTS).chain(of("g++", GCC_VARIANTS)).filter(|_| have("g++"));
    let clang = of("clang++", VARIANTS).chain(of("clang++", CLANG_VARIANTS)).filter(|_| have("clang++"));
    for (compiler, name, flags) in gcc.chain(clang) {
        let output = format!("{compiler}-{name}");
        let mut arguments = vec!["main.cpp", "leaf.s", "-o", &output];
        arguments.extend(flags);
        if run(compiler, &arguments, folder.path()).is_none() {
            println!("SKIP {compiler} {name}: it refuses these flags");
            continue;
        }
        check_against_llvm(&folder.path().join(&output));
    }
}

/// The record of this name, by its qualified name.
#[track_caller]
fn named<'f>(stream: &'f FunctionStream, name: &str) -> &'f symseal_symx::FunctionRecord {
    let mut found = stream.functions.iter().filter(|function| stream.strings.get(function.name) == name);
    found.next().unwrap_or_else(|| {
        let names: Vec<&str> = stream.functions.iter().map(|function| stream.strings.get(function.name)).collect();
        panic!("{name} is not among {names:?}")
    })
}

#[test]
fn names_are_qualified_and_symbols_are_raw() {
    for compiler in ["g++", "clang++"] {
        if !have(compiler) {
            continue;
        }
        let folder = tempfile::tempdir().expect("a folder");
        write_sources(folder.path());
        run(compiler, &["-O1", "-g", "main.cpp", "leaf.s", "-o", "out"], folder.path()).expect("it compiles");
        let (stream, _, _) = stream_of(&folder.path().join("out"));
        let area = named(&stream, "outer::(anonymous namespace)::Square::area");
        assert_eq!(stream.strings.get(area.symbol), "_ZNK5outer12_GLOBAL__N_16Square4areaEv");
        assert!(stream.strings.get(area.file).ends_with("main.cpp") && area.line == 9, "{compiler}: {area:?}");
        let twice = named(&stream, "outer::Sum::Inner::twice");
        assert_eq!((stream.strings.get(twice.symbol), twice.line), ("_ZN5outer3Sum5Inner5twiceEi", 21), "{compiler}");
        let work = named(&stream, "work");
        let inlined: Vec<&str> = work.inlines.iter().map(|site| stream.strings.get(site.name)).collect();
        assert!(inlined.contains(&"outer::Sum::add"), "{compiler}: {inlined:?}");
    }
}

#[test]
fn assembly_has_names_from_symbols_and_lines_from_its_line_table() {
    if !have("gcc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    write_sources(folder.path());
    std::fs::write(
        folder.path().join("main.c"),
        "int from_assembly(int);\nint main(void) { return from_assembly(1); }\n",
    )
    .expect("a source");
    // DWARF 4 of the assembler has a unit and lines, but no functions.
    for (name, flags) in [("lines", &["-gdwarf-4", "-Wa,-gdwarf-4"][..]), ("plain", &[])] {
        let mut arguments = vec!["main.c", "leaf.s", "-o", name];
        arguments.extend(flags);
        run("gcc", &arguments, folder.path()).expect("gcc compiles");
        let (stream, _, _) = stream_of(&folder.path().join(name));
        let function = named(&stream, "from_assembly");
        let size_less = named(&stream, "without_size");
        assert!(!function.flags.approximate);
        assert_eq!((size_less.flags.approximate, size_less.source), (true, SymbolSource::Symtab), "{name}");
        if name == "lines" {
            let lines: Vec<u32> = function.rows.iter().map(|row| row.line).collect();
            assert_eq!(lines, [6, 7, 8]);
            assert!(stream.strings.get(function.rows[0].file).ends_with("/leaf.s"));
        }
    }
}

#[test]
fn a_cold_part_is_a_record_of_its_own() {
    if !have("g++") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    write_sources(folder.path());
    run("g++", &["-O2", "-g", "-freorder-blocks-and-partition", "main.cpp", "leaf.s", "-o", "out"], folder.path())
        .expect("it compiles");
    let (stream, _, _) = stream_of(&folder.path().join("out"));
    let main = stream.functions.iter().filter(|function| stream.strings.get(function.name) == "main");
    let mut parts: Vec<(bool, &str)> =
        main.map(|record| (record.flags.part, stream.strings.get(record.symbol))).collect();
    parts.sort_unstable();
    assert_eq!(parts, [(false, "main"), (true, "main.cold")]);
}

#[test]
fn a_stripped_library_has_its_dynamic_symbols_alone() {
    if !have("gcc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(
        folder.path().join("lib.c"),
        "static int inner(int x) { return x * 3; }\nint outer(int x) { return inner(x); }\n",
    )
    .expect("a source");
    run("gcc", &["-O1", "-fno-inline", "-shared", "-fPIC", "-s", "lib.c", "-o", "lib.so"], folder.path()).expect("gcc");
    let (stream, _, _) = stream_of(&folder.path().join("lib.so"));
    assert_eq!(named(&stream, "outer").source, SymbolSource::Dynsym);
    assert!(stream.statistics.functions.keys().eq([&SymbolSource::Dynsym]), "{:?}", stream.statistics.functions);
}

#[test]
fn a_debug_file_of_another_binary_is_refused() {
    if !have("gcc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    write_sources(folder.path());
    for (name, flag) in [("one", "-O0"), ("two", "-O3")] {
        run("g++", &["-g", flag, "main.cpp", "leaf.s", "-o", name], folder.path()).expect("it compiles");
    }
    let [one, two] = ["one", "two"].map(|name| std::fs::read(folder.path().join(name)).expect("a file"));
    let [one, two] = [&one, &two].map(|bytes| ObjectFile::parse(bytes).expect("an object"));
    let error = functions(&one, &DebugFiles::debug(Some(&two))).expect_err("a mismatch").to_string();
    assert!(error.contains(&one.debug_id().expect("an id").to_string()), "{error}");
}
