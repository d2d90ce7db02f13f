//! Functions whose equal code a compiler or linker folded: each is named as one function, and said to be shared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::support::{LIBC, have, libc_debug};
use symseal_artifact::{DebugFiles, FunctionStream, ObjectFile, functions};
use symseal_symx::{FunctionRecord, StrId, SymbolSource};

/// Pairs of equal functions: global and static ones, methods, and functions with names of C; and a constructor, whose two
/// symbols are of one function.
const SOURCE: &str = r#"
#include <stdio.h>
#define APART __attribute__((noinline))
struct One { APART int multiply(int x) { return x * 5 + 1; } One(); int field; };
struct Other { APART int count(int x) { return x * 5 + 1; } };
One::One() : field(3) { puts("made"); }
APART int first(int x) { return x * 3 + 1 + (x >> 2); }
APART int second(int x) { return x * 3 + 1 + (x >> 2); }
static APART int compute_checksum(int x) { return x * 7 + 2; }
static APART int is_ok(int x) { return x * 7 + 2; }
extern "C" APART int c_first(int x) { return x * 9 + 2; }
extern "C" APART int c_second(int x) { return x * 9 + 2; }
extern "C" int c_alias(int x) __attribute__((alias("c_first")));
int main(int count, char **) {
    One one;
    Other other;
    return first(count) + second(count) + compute_checksum(count) + is_ok(count + 1) + c_first(count) + c_second(count) + one.multiply(count) +
           other.count(count);
}
"#;

struct Built {
    folder: tempfile::TempDir,
    /// What compiler and linker said.
    said: String,
}

impl Built {
    /// The program, by `compiler` under these options; `None`, said aloud, where a tool is missing.
    fn new(source: (&str, &str), compiler: &str, options: &[&str], linker: Option<&str>) -> Option<Self> {
        if !have(compiler) || !have("eu-addr2line") || linker.is_some_and(|linker| !have(linker)) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(source.0), source.1).unwrap();
        let mut command = Command::new(compiler);
        let ran =
            command.current_dir(folder.path()).args(options).args(["-g", "-o", "program", source.0]).output().unwrap();
        let said = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(ran.status.success(), "{said}");
        Some(Self { folder, said })
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("program")
    }

    /// Sized functions of `.symtab` by their address, as nm lists them.
    fn symbols(&self) -> BTreeMap<u64, BTreeSet<String>> {
        let listed = Command::new("nm").args(["--defined-only", "-S"]).arg(self.path()).output().unwrap();
        let mut symbols: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
        for line in String::from_utf8(listed.stdout).unwrap().lines() {
            if let [address, _, "T" | "t" | "W", name] = line.split(' ').collect::<Vec<_>>()[..] {
                symbols.entry(u64::from_str_radix(address, 16).unwrap()).or_default().insert(name.to_owned());
            }
        }
        symbols
    }

    /// The function that eu-addr2line has at an address, as the source calls it, by the debug information.
    fn by_addr2line(&self, address: u64) -> String {
        let mut command = Command::new("eu-addr2line");
        let answer = command.args(["-C", "-f", "-e"]).arg(self.path()).arg(format!("{address:#x}")).output().unwrap();
        let name = String::from_utf8(answer.stdout).unwrap().lines().next().unwrap().to_owned();
        name.split('(').next().unwrap().to_owned()
    }

    /// Holds every function with several symbols to nm, c++filt and eu-addr2line; gives the symbols of those that are folded.
    fn check(&self) -> BTreeSet<BTreeSet<String>> {
        let bytes = std::fs::read(self.path()).unwrap();
        let object = ObjectFile::parse(&bytes).unwrap();
        let stream = functions(&object, &DebugFiles::default()).unwrap();
        let mut folded = BTreeSet::new();
        for (address, names) in self.symbols().into_iter().filter(|(_, names)| names.len() > 1) {
            let record =
                stream.functions.iter().find(|record| record.start.0 + object.image_base().0 == address).unwrap();
            let text = |id| stream.strings.get(id).to_owned();
            let (function, symbol) = (text(record.name), text(record.symbol));
            // Gold leaves the code of both in the debug information, so that either may be named.
            let others = names.iter().map(|name| demangled(name).split('(').next().unwrap().to_owned());
            let others = others.filter(|_| self.said.contains("gold"));
            let expected: Vec<String> = others.chain([self.by_addr2line(address)]).collect();
            assert!(expected.contains(&function), "{function} is none of {expected:?}");
            assert!(names.contains(&symbol), "{symbol} is none of {names:?}");
            if record.flags.folded {
                // Name and symbol tell of one function.
                assert_eq!(demangled(&symbol).split('(').next(), Some(function.as_str()), "{names:?}");
                let all: BTreeSet<String> = record.aliases.iter().map(|alias| text(*alias)).chain([symbol]).collect();
                assert!(names.iter().all(|name| all.contains(name)), "{names:?} {all:?}");
                folded.insert(names);
            }
        }
        let alone = stream.functions.iter().filter(|record| record.flags.folded).count();
        // Gold drops the symbol of a static function, whose code the debug information still has.
        assert_eq!(alone, folded.len() + usize::from(self.said.contains("gold")), "nothing else is folded");
        folded
    }
}

fn demangled(symbol: &str) -> String {
    String::from_utf8(Command::new("c++filt").arg(symbol).output().unwrap().stdout).unwrap().trim().to_owned()
}

fn sets(sets: &[&[&str]]) -> BTreeSet<BTreeSet<String>> {
    sets.iter().map(|names| names.iter().map(|name| (*name).to_owned()).collect()).collect()
}

const CPP: (&str, &str) = ("program.cc", SOURCE);
const BY_LINKER: &[&[&str]] = &[
    &["_Z5firsti", "_Z6secondi"],
    &["_ZL16compute_checksumi", "_ZL5is_oki"],
    &["_ZN3One8multiplyEi", "_ZN5Other5countEi"],
    &["c_alias", "c_first", "c_second"],
];

#[test]
fn what_lld_folds_is_what_we_say_it_folded() {
    let options = ["-O1", "-ffunction-sections", "-fuse-ld=lld", "-Wl,--icf=all,--print-icf-sections"];
    let Some(built) = Built::new(CPP, "clang++", &options, Some("ld.lld")) else { return };
    for name in ["_Z6secondi", "_ZL5is_oki", "_ZN5Other5countEi", "c_second"] {
        assert!(
            built.said.lines().any(|line| line.contains("removing identical") && line.contains(name)),
            "{}",
            built.said
        );
    }
    assert_eq!(built.check(), sets(BY_LINKER));
}

#[test]
fn what_gold_folds_is_what_we_say_it_folded() {
    let options = ["-O1", "-fno-ipa-icf", "-ffunction-sections", "-fuse-ld=gold", "-Wl,--icf=all,--print-icf-sections"];
    let Some(built) = Built::new(CPP, "g++", &options, Some("ld.gold")) else { return };
    for name in ["_Z6secondi", "_ZN5Other5countEi", "c_second"] {
        assert!(
            built.said.lines().any(|line| line.contains("folding section") && line.contains(name)),
            "{}",
            built.said
        );
    }
    let with_symbols: Vec<&[&str]> = BY_LINKER.iter().copied().filter(|names| !names.contains(&"_ZL5is_oki")).collect();
    assert_eq!(built.check(), sets(&with_symbols));
}

#[test]
fn what_gcc_folds_has_the_symbol_of_the_function_that_is_named() {
    for options in [&["-O2"][..], &["-O2", "-flto"], &["-O2", "-gdwarf-4"]] {
        let Some(built) = Built::new(CPP, "g++", options, None) else { return };
        let found = built.check();
        assert!(found.is_superset(&sets(&[&["_ZL16compute_checksumi", "_ZL5is_oki"]])), "{options:?} {found:?}");
    }
    // In C nothing but the debug information tells a folded function from an alias.
    let c = "#define APART __attribute__((noinline))\n\
             static APART int omega_long(int x) { return x * 7 + 2; }\nstatic APART int beta(int x) { return x * 7 + 2; }\n\
             APART int alias_of_us(int x) { return x * 11 + 2; }\nint alias(int x) __attribute__((alias(\"alias_of_us\")));\n\
             int main(int count, char **v) { (void)v; return omega_long(count) + beta(count + 1) + alias_of_us(count); }\n";
    let Some(built) = Built::new(("program.c", c), "gcc", &["-O2"], None) else { return };
    assert_eq!(built.check(), sets(&[&["omega_long", "beta"]]));
}

#[test]
fn without_folding_nothing_is_folded() {
    let Some(built) = Built::new(CPP, "g++", &["-O1", "-fno-ipa-icf"], None) else { return };
    assert_eq!(built.check(), BTreeSet::new());
}

/// A program without debug information has its mangled names, which tell of two functions.
#[test]
fn symbols_alone_tell_that_functions_of_cpp_were_folded() {
    let options = ["-O1", "-ffunction-sections", "-fuse-ld=lld", "-Wl,--icf=all", "-Wl,--strip-debug"];
    let Some(built) = Built::new(CPP, "clang++", &options, Some("ld.lld")) else { return };
    let stream = stream_of(&built.path());
    let folded: BTreeSet<&str> = stream
        .functions
        .iter()
        .filter(|record| record.flags.folded)
        .map(|record| stream.strings.get(record.symbol))
        .collect();
    // Rule 3 of the names chooses, as nothing says more.
    assert_eq!(folded, BTreeSet::from(["_Z5firsti", "_ZL5is_oki", "_ZN5Other5countEi"]));
}

/// Equal functions of three lines each, some in every file: what is folded has the name of one, and lines of the same one.
#[test]
fn name_and_lines_of_folded_code_tell_of_one_function() {
    let ways: [(&str, &str, &str, &[&str]); 8] = [
        ("clang", "c", "ld.lld", &["-fuse-ld=lld"]),
        ("clang++", "cc", "ld.lld", &["-fuse-ld=lld"]),
        ("clang", "c", "ld.lld", &["-fuse-ld=lld", "-gdwarf-4"]),
        ("clang", "c", "ld.lld", &["-fuse-ld=lld", "-flto"]),
        ("gcc", "c", "ld.gold", &["-fuse-ld=gold", "-fno-ipa-icf"]),
        ("g++", "cc", "ld.gold", &["-fuse-ld=gold", "-fno-ipa-icf"]),
        ("gcc", "c", "ld.gold", &["-fuse-ld=gold", "-fno-ipa-icf", "-flto"]),
        ("clang++", "cc", "ld.gold", &["-fuse-ld=gold"]),
    ];
    let parts: [&[&[&str]]; 4] = [
        &[&["first", "second"]],
        &[&["alpha", "beta", "iota"]],
        &[&["alpha", "beta"], &["iota", "delta"]],
        &[&["omega"], &["zeta", "eta", "theta"]],
    ];
    for (compiler, ending, linker, options) in ways {
        if !have(compiler) || !have(linker) {
            continue;
        }
        for files in parts {
            lines_of_one_function(compiler, ending, options, files);
        }
    }
}

/// Builds a program of these functions, and holds the lines of those that are left to the source text.
#[track_caller]
fn lines_of_one_function(compiler: &str, ending: &str, options: &[&str], files: &[&[&str]]) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(compiler);
    command.current_dir(folder.path()).args(["-g", "-O2", "-ffunction-sections", "-Wl,--icf=all", "-o", "program"]);
    command.args(options);
    let mut places: BTreeMap<&str, (String, std::ops::RangeInclusive<u32>)> = BTreeMap::new();
    let (mut declared, mut called) = (String::new(), String::new());
    for (number, functions) in files.iter().enumerate() {
        let name = format!("part{number}.{ending}");
        let mut text = String::new();
        for (first, function) in (1_u32..).step_by(3).zip(*functions) {
            text.push_str(&format!(
                "__attribute__((noinline)) int {function}(int x) {{\n    return x * 3 + 1 + (x >> 2);\n}}\n"
            ));
            declared.push_str(&format!("int {function}(int);\n"));
            called.push_str(&format!(" + {function}(count)"));
            places.insert(function, (name.clone(), first..=first + 2));
        }
        std::fs::write(folder.path().join(&name), text).unwrap();
        command.arg(name);
    }
    let main = format!("main.{ending}");
    let text = format!("{declared}int main(int count, char **v) {{ (void)v; return 0{called}; }}\n");
    std::fs::write(folder.path().join(&main), text).unwrap();
    let ran = command.arg(main).output().unwrap();
    assert!(ran.status.success(), "{compiler} {options:?}: {}", String::from_utf8_lossy(&ran.stderr));
    let stream = stream_of(&folder.path().join("program"));
    let text = |id| stream.strings.get(id);
    let mut found = 0;
    for record in &stream.functions {
        let Some((file, lines)) = places.get(text(record.name)) else { continue };
        found += 1;
        let what = format!("{compiler} {options:?}: {} of {places:?}: {:?}", text(record.name), record.rows);
        assert!(lines.contains(&record.line) && text(record.file).ends_with(file.as_str()), "{what}");
        assert!(record.rows.iter().any(|row| lines.contains(&row.line)), "{what}");
        for row in record.rows.iter().filter(|row| row.line > 0) {
            assert!(lines.contains(&row.line) && text(row.file).ends_with(file.as_str()), "{what}");
        }
    }
    // GCC writes some of them otherwise.
    assert!(found > 0 && found < places.len(), "{compiler} {options:?}: of {places:?} some were folded");
}

/// A function with names of every kind, and two functions that gold folds.
const ASSEMBLED: &str = r#"
    .text
    .globl  plain, _plain
    .weak   soft
    .type   plain, @function
    .type   soft, @function
    .type   _plain, @function
    .type   __inner_plain, @function
plain:
soft:
_plain:
__inner_plain:
    leal 1(%rdi), %eax
    ret
    .size   plain, .-plain
    .size   soft, .-soft
    .size   _plain, .-_plain
    .size   __inner_plain, .-__inner_plain
    .section .text.one, "ax", @progbits
    .globl  one
    .type   one, @function
one:
    leal 7(%rdi,%rdi,4), %eax
    ret
    .size   one, .-one
    .section .text.other, "ax", @progbits
    .globl  other
    .type   other, @function
other:
    leal 7(%rdi,%rdi,4), %eax
    ret
    .size   other, .-other
    .section .note.GNU-stack, "", @progbits
"#;

#[test]
fn names_of_one_function_of_assembly_are_aliases_and_what_a_linker_folds_is_folded() {
    if !cfg!(target_arch = "x86_64") || !have("gcc") || !have("ld.gold") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("code.s"), ASSEMBLED).unwrap();
    let main = "int plain(int), one(int), other(int);\nint main(int c, char **v) { (void)v; return plain(c) + one(c) + other(c); }\n";
    std::fs::write(folder.path().join("main.c"), main).unwrap();
    let mut command = Command::new("gcc");
    command.current_dir(folder.path()).args([
        "-g",
        "-fuse-ld=gold",
        "-Wl,--icf=all",
        "-o",
        "program",
        "code.s",
        "main.c",
    ]);
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let bytes = std::fs::read(folder.path().join("program")).unwrap();
    let object = ObjectFile::parse(&bytes).unwrap();
    let stream = functions(&object, &DebugFiles::default()).unwrap();
    let said = |name: &str| {
        let record = stream.functions.iter().find(|record| stream.strings.get(record.name) == name).expect(name);
        let text = |id| stream.strings.get(id).to_owned();
        let aliases: BTreeSet<String> = record.aliases.iter().map(|alias| text(*alias)).collect();
        (text(record.symbol), aliases, record.flags.folded)
    };
    // The last of its names in the debug information is `__inner_plain`.
    let aliases = ["_plain", "soft", "__inner_plain"].map(str::to_owned);
    assert_eq!(said("plain"), ("plain".to_owned(), BTreeSet::from(aliases), false));
    assert_eq!(said("other"), ("other".to_owned(), BTreeSet::from(["one".to_owned()]), true));
}

/// The start of every thread of glibc, and what the C library's assembly gives several names to: beside addr2line, which has one of them.
#[test]
fn functions_of_libcs_assembly_have_aliases() {
    let Some(debug) = libc_debug() else { return };
    if !have("nm") || !have("addr2line") {
        return;
    }
    let files = [Path::new(LIBC), &debug].map(|path| std::fs::read(path).unwrap());
    let [binary, with] = [&files[0], &files[1]].map(|bytes| ObjectFile::parse(bytes).unwrap());
    let stream = functions(&binary, &DebugFiles::debug(Some(&with))).unwrap();
    let text = |id| stream.strings.get(id).to_owned();
    let is_assembled = |record: &&FunctionRecord| {
        record.source == SymbolSource::Dwarf && record.rows.iter().any(|row| text(row.file).ends_with(".S"))
    };
    let assembled: Vec<&FunctionRecord> = stream.functions.iter().filter(is_assembled).collect();
    let with_aliases = assembled.iter().filter(|record| !record.aliases.is_empty()).count();
    let folded: Vec<String> =
        assembled.iter().filter(|record| record.flags.folded).map(|record| text(record.name)).collect();
    println!("{} functions of assembly, {with_aliases} with aliases", assembled.len());
    assert!(with_aliases > 20, "{with_aliases}");
    assert_eq!(folded, Vec::<String>::new());
    for record in &assembled {
        // Versions of symbols (`pthread_spin_lock`) have no entry in the debug information.
        let name = text(record.name);
        let is_symbol = name == text(record.symbol) || record.aliases.iter().any(|alias| text(*alias) == name);
        assert!(is_symbol, "{name}");
    }
    for name in ["clone3", "execve", "unlink"] {
        let record = assembled.iter().find(|record| text(record.name) == name).expect(name);
        let address = record.start.to_svma(binary.image_base()).unwrap();
        let answer =
            Command::new("addr2line").args(["-f", "-e"]).arg(&debug).arg(format!("{:#x}", address.0)).output().unwrap();
        let answer = String::from_utf8(answer.stdout).unwrap();
        let (other, line) = answer.trim().split_once('\n').unwrap();
        assert!(other == name || record.aliases.iter().any(|alias| text(*alias) == other), "{name} {answer}");
        let row = record.rows[0];
        assert_eq!(line, format!("{}:{}", text(row.file), row.line), "{name}");
    }
}

fn stream_of(path: &Path) -> FunctionStream {
    let bytes = std::fs::read(path).unwrap();
    functions(&ObjectFile::parse(&bytes).unwrap(), &DebugFiles::default()).unwrap()
}

/// The code that is left of two equal functions is of the one without debug information; the lines of the other are not its own.
#[test]
fn a_function_without_debug_information_gets_no_lines_of_one_that_was_folded_into_it() {
    if !cfg!(target_arch = "x86_64") || !have("ld.lld") || !have("llvm-symbolizer-19") {
        return;
    }
    let ways: [(&str, &[&str]); 5] = [
        ("clang", &["-gdwarf-5"]),
        ("clang", &["-gdwarf-4"]),
        ("clang", &["-gdwarf-5", "-gline-tables-only"]),
        ("gcc", &["-gdwarf-5"]),
        ("gcc", &["-gdwarf-4", "-gsplit-dwarf"]),
    ];
    for (compiler, options) in ways.into_iter().filter(|(compiler, _)| have(compiler)) {
        let folder = tempfile::tempdir().unwrap();
        let function =
            |name: &str| format!("__attribute__((noinline)) int {name}(int x) {{ return x * 3 + 1 + (x >> 2); }}\n");
        let sources = [
            ("kept.c", function("kept"), &[][..]),
            ("folded.c", format!("int other(int x) {{ return x * 17; }}\n{}", function("folded")), options),
            // Assembly that LLVM assembles has lines, and no function in its unit.
            ("code.s", "    .globl assembled\n    .type assembled, @function\nassembled:\n    leal 7(%rdi), %eax\n    ret\n    .size assembled, .-assembled\n".to_owned(), &["-g"]),
            ("main.c", "int kept(int), folded(int), other(int), assembled(int);\nint main(int c, char **v) { (void)v; return kept(c) + folded(c) + other(c) + assembled(c); }\n".to_owned(), &[]),
        ];
        for (name, text, options) in &sources {
            std::fs::write(folder.path().join(name), text).unwrap();
            let compiler = if name.ends_with(".s") && have("clang") { "clang" } else { compiler };
            ran(folder.path(), compiler, &[&["-O2", "-ffunction-sections", "-c", name], *options].concat());
        }
        let linked = ["-fuse-ld=lld", "-Wl,--icf=all", "kept.o", "folded.o", "code.o", "main.o", "-o", "program"];
        ran(folder.path(), compiler, &linked);
        let path = folder.path().join("program");
        let stream = stream_of(&path);
        let record = |name: &str| {
            let text = |id: &StrId| stream.strings.get(*id);
            let named = |record: &&FunctionRecord| {
                text(&record.symbol) == name || record.aliases.iter().any(|alias| text(alias) == name)
            };
            stream.functions.iter().find(named).expect(name)
        };
        let (kept, folded, assembled) = (record("kept"), record("folded"), record("assembled"));
        assert_eq!(kept.start, folded.start, "{compiler} {options:?}: the linker folded them");
        assert_eq!(kept.rows, [], "{compiler} {options:?}");
        let first = assembled.rows.first().filter(|_| have("clang"));
        assert_eq!(first.map(|row| row.line), have("clang").then_some(4), "{compiler} {options:?}");
        for (function, line) in [(kept, "??:0:0"), (assembled, "code.s:4:0")] {
            let address = format!("{:#x}", function.start.0);
            let answer = Command::new("llvm-symbolizer-19").arg("--obj").arg(&path).arg(address).output().unwrap();
            let answer = String::from_utf8(answer.stdout).unwrap();
            assert!(answer.lines().nth(1).is_some_and(|place| place.ends_with(line)), "{answer}");
        }
    }
}

#[track_caller]
fn ran(folder: &Path, program: &str, arguments: &[&str]) {
    let ran = Command::new(program).current_dir(folder).args(arguments).output().unwrap();
    assert!(ran.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
}
