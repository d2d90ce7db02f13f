//! Split DWARF of another build under the right id is told and names nothing; split DWARF of the same build is never called so.
//!
//! The id that clang gives to a unit says nothing of statements: a body that changed has the id that it had before.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::inputs::{build, builder, report, run, tool};
use symseal_artifact::{DebugFiles, FunctionStream, ObjectFile};
use symseal_builder::{BuildReport, NamedBy};
use symseal_bundle::LayoutDir;

/// What the artifact crate calls it.
const REASON: &str = "split DWARF of another build of the unit's source";

const SOURCE: &str = "volatile int V; static inline __attribute__((always_inline)) int cube(int x) { return V * x * V; }\n\
    int g(int x) { V = x; return cube(x) + 1; }\n\
    int k(int x) { return V + x; }\n\
    int main(int c, char **v) { return g(c) + k(c); }\n";

/// Another object, behind the first one.
const BEHIND: &str = "volatile int W; int h(int x) { W = x; W = x * 3; W = W + x; W = W * W; return W + 2; }\n\
    int h2(int x) { W = W * x; return h(x) + 1; }\n";

/// What `g` has of statements in the other build: more, so that it is longer, or fewer.
const OTHERS: [&str; 2] = ["V = x; V = x * 7; V = V + V; V = V * V; V = V - V * V;", ""];

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A program, and the split files of its source: the right one, and one of another build with the same id.
struct Made {
    dir: tempfile::TempDir,
    clang: PathBuf,
}

impl Made {
    /// `None` where there is no clang. The object of the other build is linked into nothing.
    fn with(statement: &str) -> Option<Self> {
        let clang = tool("clang-19")?;
        let made = Self { dir: tempfile::tempdir().unwrap(), clang };
        std::fs::create_dir(made.at("old")).unwrap();
        for (place, source) in [("", SOURCE.to_owned()), ("old", SOURCE.replace("V = x;", statement))] {
            std::fs::write(made.at(place).join("b.c"), source).unwrap();
            made.compile(place, "b");
        }
        std::fs::write(made.at("h.c"), BEHIND).unwrap();
        made.compile("", "h");
        made.link("prog", &["b.o"]);
        made.link("both", &["b.o", "h.o"]);
        let ids = ["b.dwo", "old/b.dwo"].map(|name| {
            let bytes = std::fs::read(made.at(name)).unwrap();
            ObjectFile::parse(&bytes).unwrap().split_ids()
        });
        assert_eq!(ids[0], ids[1], "the compiler gives them ids of their own");
        Some(made)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn compile(&self, place: &str, name: &str) {
        let mut command = Command::new(&self.clang);
        command.args([
            "-g",
            "-O1",
            "-gdwarf-5",
            "-gsplit-dwarf",
            "-fdebug-compilation-dir=/b",
            "-fno-inline-functions",
        ]);
        command.args(["-c", &format!("{name}.c"), "-o", &format!("{name}.o")]);
        assert!(command.current_dir(self.at(place)).status().unwrap().success());
    }

    fn link(&self, name: &str, objects: &[&str]) {
        let mut command = Command::new(&self.clang);
        command.args(objects).args(["-o", name, "-Wl,--build-id"]);
        assert!(command.current_dir(self.dir.path()).status().unwrap().success());
    }
}

/// The functions of a program, by where they start, with the numbers of inlined calls.
fn functions(program: &Path, split: &[&Path]) -> (FunctionStream, Vec<(u64, String, usize)>) {
    let bytes = std::fs::read(program).unwrap();
    let object = ObjectFile::parse(&bytes).unwrap();
    let split: Vec<Vec<u8>> = split.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let split: Vec<ObjectFile<'_>> = split.iter().map(|bytes| ObjectFile::parse(bytes).unwrap()).collect();
    let with = DebugFiles { split: &split, ..DebugFiles::default() };
    let stream = symseal_artifact::functions(&object, &with).unwrap();
    let named = stream
        .functions
        .iter()
        .map(|function| (function.start.0, stream.strings.get(function.symbol).to_owned(), function.inlines.len()));
    let named = named.collect();
    (stream, named)
}

/// A strict build of these fails, with one mismatch of that file.
#[track_caller]
fn is_told(paths: &[PathBuf], stale: &Path) -> BuildReport {
    let found = report(paths);
    let [mismatch] = found.mismatches.as_slice() else { panic!("{found:#?}") };
    assert_eq!((mismatch.named_by, mismatch.debug_file.place.as_str()), (NamedBy::DwoId, text(stale)));
    assert!(mismatch.expected.starts_with("unit "), "{mismatch:?}");
    assert!(mismatch.found.starts_with("split DWARF of another build of that source"), "{mismatch:?}");
    assert!(!found.is_complete());
    let layout = tempfile::tempdir().unwrap();
    let built = builder(paths).strict(true).build(&LayoutDir::create(layout.path()).unwrap());
    assert!(built.is_err(), "{built:?}");
    found
}

#[test]
fn a_single_split_file_of_another_build_is_a_mismatch_and_names_nothing() {
    for statement in OTHERS {
        let Some(made) = Made::with(statement) else { return };
        let (program, both, stale) = (made.at("prog"), made.at("both"), made.at("old/b.dwo"));
        let found = is_told(&[program.clone(), stale.clone()], &stale);
        assert_eq!(found.modules[0].missing, ["split DWARF of 1 of 1 units"], "{found:#?}");
        assert!(found.modules[0].paired.is_empty(), "{found:#?}");
        is_told(&[both.clone(), stale.clone(), made.at("h.dwo")], &stale);
        let layout = LayoutDir::create(made.at("bundle")).unwrap();
        build(&[program.clone(), stale.clone()], &layout).unwrap();

        // Who reads it all the same has the symbols, and the skeleton's lines.
        for (program, others) in [(&program, vec![]), (&both, vec![made.at("h.dwo")])] {
            let others: Vec<&Path> = others.iter().map(PathBuf::as_path).collect();
            let split = [others.clone(), vec![stale.as_path()]].concat();
            let (stream, found) = functions(program, &split);
            let (right, expected) = functions(program, &[others, vec![&made.at("b.dwo")]].concat());
            assert_eq!(stream.statistics.skipped.get(REASON), Some(&1), "{:?}", stream.statistics);
            assert!(symseal_artifact::is_damaged_unit(REASON));
            assert!(right.statistics.skipped.is_empty(), "{:?}", right.statistics);
            let starts = |of: &[(u64, String, usize)]| {
                of.iter().map(|(start, name, _)| (*start, name.clone())).collect::<Vec<_>>()
            };
            assert_eq!(starts(&found), starts(&expected));
            let rows = |name: &str, of: &FunctionStream| {
                let found = of.functions.iter().find(|function| of.strings.get(function.symbol) == name);
                found.map(|function| (function.rows.len(), function.inlines.len())).unwrap()
            };
            assert!(rows("g", &stream).0 > 1 && rows("g", &stream).1 == 0);
            assert!(rows("g", &right).1 > 0);
        }
    }
}

/// The unit is the last one in `.text`: what the other build has more lies behind the section.
#[test]
fn of_a_right_and_a_stale_split_file_the_right_one_is_taken() {
    for statement in OTHERS {
        let Some(made) = Made::with(statement) else { return };
        for program in ["prog", "both"] {
            // Neither the order of names nor of places leads to it.
            for (right, stale) in [("a.dwo", "z.dwo"), ("z.dwo", "a.dwo")] {
                let folder = made.at(&format!("{program}-{right}"));
                std::fs::create_dir(&folder).unwrap();
                let (right, stale) = (folder.join(right), folder.join(stale));
                std::fs::copy(made.at("b.dwo"), &right).unwrap();
                std::fs::copy(made.at("old/b.dwo"), &stale).unwrap();
                let mut paths = vec![made.at(program), right.clone(), stale.clone()];
                paths.extend((program == "both").then(|| made.at("h.dwo")));
                let found = report(&paths);
                let [superseded] = found.superseded.as_slice() else { panic!("{found:#?}") };
                assert_eq!((superseded.place.as_str(), superseded.by.as_str()), (text(&stale), text(&right)));
                assert!(found.is_complete(), "{found:#?}");
                let split: Vec<&Path> = paths[1..].iter().map(PathBuf::as_path).collect();
                assert!(functions(&paths[0], &split).0.statistics.skipped.is_empty());
            }
        }
    }
}

#[test]
fn a_package_with_a_unit_of_another_build_is_a_mismatch_and_its_other_units_count() {
    let Some(dwp) = tool("llvm-dwp-19") else { return };
    for statement in OTHERS {
        let Some(made) = Made::with(statement) else { return };
        let pack = |parts: &[&str], output: &str| {
            let parts: Vec<PathBuf> = parts.iter().map(|part| made.at(part)).collect();
            let mut arguments: Vec<&str> = parts.iter().map(|part| text(part)).collect();
            let output = made.at(output);
            arguments.extend(["-o", text(&output)]);
            run(&dwp, &arguments);
            output
        };
        let (program, both) = (made.at("prog"), made.at("both"));
        let package = pack(&["old/b.dwo"], "prog.dwp");
        is_told(&[program.clone(), package.clone()], &package);
        // The right file is beside it.
        let found = report(&[program.clone(), package, made.at("b.dwo")]);
        assert_eq!(found.modules[0].paired[0].place, text(&made.at("b.dwo")), "{found:#?}");
        assert!(found.mismatches.is_empty(), "{found:#?}");

        let package = pack(&["old/b.dwo", "h.dwo"], "both.dwp");
        let found = is_told(&[both.clone(), package.clone()], &package);
        assert_eq!(found.modules[0].missing, ["split DWARF of 1 of 2 units"], "{found:#?}");
        assert_eq!(found.modules[0].paired[0].place, text(&package), "{found:#?}");
        let (stream, _) = functions(&both, &[&package]);
        assert_eq!(stream.statistics.skipped.get(REASON), Some(&1), "{:?}", stream.statistics);
        let (right, _) = functions(&program, &[&pack(&["b.dwo"], "right.dwp")]);
        assert!(right.statistics.skipped.is_empty(), "{:?}", right.statistics);
        let package = pack(&["b.dwo", "h.dwo"], "both.dwp");
        assert!(report(&[both, package]).is_complete());
    }
}

#[test]
fn the_debug_file_of_a_stripped_binary_is_asked_as_well() {
    let (Some(objcopy), Some(strip)) = (tool("objcopy"), tool("strip")) else { return };
    for statement in OTHERS {
        let Some(made) = Made::with(statement) else { return };
        let (program, debug, stale) = (made.at("prog"), made.at("prog.debug"), made.at("old/b.dwo"));
        run(&objcopy, &["--only-keep-debug", text(&program), text(&debug)]);
        run(&strip, &[text(&program)]);
        is_told(&[program.clone(), debug.clone(), stale.clone()], &stale);
        assert!(report(&[program, debug, made.at("b.dwo")]).is_complete());
    }
}

const CPP: &str = r#"
#include "shared.h"
static volatile int state;
__attribute__((noinline, cold)) void fail(int x) { state = x; __builtin_trap(); }
__attribute__((noinline)) int unused_at_all(int x) { return clamp(x, 3, 9) * state; }
__attribute__((noinline)) int same_one(int x) { return x * 3 + 7; }
__attribute__((noinline)) int same_two(int x) { return x * 3 + 7; }
struct A { virtual int f(int x); virtual ~A(); int a; };
struct B { virtual int f2(int x); virtual ~B(); int b; };
struct C : A, B { int f(int x) override; int f2(int x) override; ~C(); };
int A::f(int x) { return x + a; }
A::~A() { state = 1; }
int B::f2(int x) { return x - b; }
B::~B() { state = 2; }
int C::f(int x) { return Sum<int>(x).add(b); }
int C::f2(int x) { if (__builtin_expect(x < 0, 0)) fail(x); return Sum<int>(x).add(a) + x; }
C::~C() { state = 3; }
int pick(int x) {
    switch (x) { case 0: return same_one(x); case 1: return same_two(x); case 2: return other(x); case 3: return Sum<long>(x).slow(x);
      case 4: return clamp(x, 0, 8); case 5: fail(x); default: return 9; }
}
int main(int c, char **) { C one; A *a = &one; B *b = &one; return a->f(c) + b->f2(c) + pick(c); }
"#;

const CPP_OTHER: &str = r#"
#include "shared.h"
namespace { int local(int x) { return Sum<int>(x).slow(x); } }
__attribute__((noinline)) int same_three(int x) { return x * 3 + 7; }
__attribute__((noinline)) int dropped(int x) { return local(x) + 4; }
int other(int x) { int s = 0; for (int i = 0; i < x; i++) { if (__builtin_expect(i == 77777, 0)) { s += dropped(i); s *= 3; } s += clamp(local(i), 1, 5); } return s + same_three(x) + Sum<long>(x).slow(x); }
"#;

const CPP_SHARED: &str = r#"
int other(int x);
template <typename T> inline T clamp(T x, T low, T high) { return x < low ? low : x > high ? high : x; }
template <typename T> struct Sum {
    T total;
    explicit Sum(T start) : total(start) {}
    inline T add(T x) { total += clamp<T>(x, -100, 100); return total; }
    __attribute__((noinline)) T slow(T x) { return add(x) * 3; }
};
"#;

/// Ways to build a program with split DWARF: the compiler, its flags, and those of the link alone.
const RIGHT: &[(&str, &str, &str)] = &[
    ("clang++-19", "-gdwarf-5 -O0", ""),
    ("clang++-19", "-gdwarf-5 -O2", ""),
    ("clang++-19", "-gdwarf-4 -O2", ""),
    ("clang++-19", "-gdwarf-4 -O1 -ffunction-sections", "-Wl,--gc-sections"),
    ("clang++-19", "-gdwarf-5 -Os -ffunction-sections", "-Wl,--gc-sections"),
    ("clang++-19", "-gdwarf-5 -O2 -ffunction-sections", "-fuse-ld=lld-19 -Wl,--gc-sections,--icf=all"),
    ("clang++-19", "-gdwarf-4 -O2 -ffunction-sections", "-fuse-ld=lld-19 -Wl,--gc-sections,--icf=all"),
    ("clang++-19", "-gdwarf-5 -O2 -ffunction-sections", "-fuse-ld=gold -Wl,--gc-sections,--icf=all"),
    ("clang++-19", "-gdwarf-4 -O1 -ffunction-sections", "-fuse-ld=gold -Wl,--gc-sections,--icf=all"),
    ("clang++-19", "-gdwarf-5 -O2 -fsplit-machine-functions -mllvm -mfs-psi-cutoff=0", "-fuse-ld=lld-19"),
    ("clang++-19", "-gdwarf-5 -O2 -fbasic-block-sections=all", "-fuse-ld=lld-19 -Wl,--gc-sections"),
    ("clang++-19", "-gdwarf-5 -O2 -mllvm -minimize-addr-in-v5=Form -ffunction-sections", "-Wl,--gc-sections"),
    ("clang++-19", "-gdwarf-5 -O2 -mllvm -minimize-addr-in-v5=Disabled", ""),
    ("clang++-19", "-gdwarf-5 -O2 -fsplit-dwarf-inlining -fdebug-types-section", ""),
    ("clang++-19", "-g1 -gdwarf-5 -O2", ""),
    ("clang++-19", "-gdwarf-5 -O2 -fpatchable-function-entry=5,3 -fcf-protection", ""),
    ("clang++-19", "-gdwarf-5 -O2 -fsanitize=address", "-Wl,--discard-all"),
    ("clang++-19", "-gdwarf-5 -O2 -fprofile-instr-generate -fcoverage-mapping", ""),
    ("clang++-19", "-gdwarf-5 -O2 -fno-pic", "-no-pie -Wl,-Ttext=0x40000000"),
    ("g++", "-gdwarf-5 -O0", ""),
    ("g++", "-gdwarf-5 -O2", ""),
    ("g++", "-gdwarf-4 -O2", ""),
    ("g++", "-gdwarf-4 -O2 -ffunction-sections", "-Wl,--gc-sections"),
    ("g++", "-gdwarf-5 -O2 -ffunction-sections", "-Wl,--gc-sections"),
    ("g++", "-gdwarf-5 -Os -ffunction-sections", "-fuse-ld=gold -Wl,--gc-sections,--icf=all"),
    ("g++", "-gdwarf-5 -O2 -ffunction-sections", "-fuse-ld=lld -Wl,--gc-sections,--icf=all"),
    ("g++", "-gdwarf-5 -O3 -fno-reorder-functions -fpatchable-function-entry=5,3", ""),
    ("g++", "-gdwarf-5 -O2 -fdebug-types-section -fcf-protection", "-Wl,--discard-all"),
    ("g++", "-gdwarf-5 -O2 -fsanitize=address,undefined", ""),
    ("g++", "-gdwarf-5 -O2 -finstrument-functions -pg", ""),
];

/// What a compiler and a linker make of one source together is never called of another build.
#[test]
fn split_files_of_the_same_build_are_no_mismatch() {
    let mut compared = 0;
    for (compiler, flags, link) in RIGHT {
        let Some(cxx) = tool(compiler).or_else(|| tool(compiler.strip_suffix("-19")?)) else { continue };
        let dir = tempfile::tempdir().unwrap();
        for (name, source) in [("main.cpp", CPP), ("other.cpp", CPP_OTHER), ("shared.h", CPP_SHARED)] {
            std::fs::write(dir.path().join(name), source).unwrap();
        }
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let ok = |arguments: &[&str]| {
            let mut command = Command::new(&cxx);
            let done = command.args(&flags).args(arguments).current_dir(dir.path()).output().unwrap();
            done.status.success()
        };
        let compile =
            |name: &str| ok(&["-g", "-gsplit-dwarf", "-c", &format!("{name}.cpp"), "-o", &format!("{name}.o")]);
        let mut last = vec!["main.o", "other.o", "-o", "prog", "-Wl,--build-id"];
        last.extend(link.split_whitespace());
        if !(compile("main") && compile("other") && ok(&last)) {
            println!("SKIP {compiler} {flags:?} {link}: it does not build");
            continue;
        }
        let title = format!("{compiler} {flags:?} {link}");
        check_right(&title, &dir.path().join("prog"), &["main.dwo", "other.dwo"].map(|name| dir.path().join(name)));
        compared += 1;
    }
    println!("{compared} builds compared");
}

#[track_caller]
fn check_right(title: &str, program: &Path, split: &[PathBuf]) {
    // Not all of line tables alone need a file.
    let split: Vec<PathBuf> = split.iter().filter(|path| path.exists()).cloned().collect();
    let found = report(&[&[program.to_owned()], &split[..]].concat());
    assert!(found.mismatches.is_empty(), "{title}: {found:#?}");
    let [one] = found.modules.as_slice() else { panic!("{title}: {found:#?}") };
    assert!(one.missing.is_empty() && !one.paired.is_empty(), "{title}: {found:#?}");
    assert!(!one.skipped.contains_key(REASON), "{title}: {found:#?}");
    println!("{title}: {} split files", split.len());
}

/// The compiler writes the files as it links.
#[test]
fn split_files_of_link_time_optimization_are_no_mismatch() {
    let Some(cxx) = tool("clang++-19").or_else(|| tool("clang++")) else { return };
    for flags in
        ["-flto=thin -O2", "-flto -O2", "-flto=thin -O2 -ffunction-sections -Wl,--icf=all,--gc-sections -gdwarf-4"]
    {
        let dir = tempfile::tempdir().unwrap();
        for (name, source) in [("main.cpp", CPP), ("other.cpp", CPP_OTHER), ("shared.h", CPP_SHARED)] {
            std::fs::write(dir.path().join(name), source).unwrap();
        }
        let mut command = Command::new(&cxx);
        command.args(["-g", "-gsplit-dwarf", "-fuse-ld=lld-19", "-Wl,--build-id", "-Wl,--plugin-opt=dwo_dir=dwo"]);
        command.args(flags.split_whitespace()).args(["main.cpp", "other.cpp", "-o", "prog"]);
        if !command.current_dir(dir.path()).status().unwrap().success() {
            println!("SKIP {flags}: it does not build");
            continue;
        }
        let split = std::fs::read_dir(dir.path().join("dwo")).unwrap().map(|entry| entry.unwrap().path());
        check_right(flags, &dir.path().join("prog"), &split.collect::<Vec<_>>());
    }
}
