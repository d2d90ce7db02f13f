//! Functions in namespaces and types whose names stand elsewhere than they do: in a type unit, in a supplementary file.

use crate::support::addr2line::addr2line;
use crate::support::{addresses_in, have, lookup, run};
use std::fs::File;
use std::path::Path;
use std::process::Command;
use symseal_artifact::{DebugFiles, FunctionStream, ObjectFile, functions};
use symseal_symx::SymbolSource;

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a file")
}

/// The stream of a binary with its split files; its code, and its image base.
fn stream_of(binary: &Path, split: &[&Path]) -> (FunctionStream, Vec<std::ops::Range<u64>>, u64) {
    let bytes = read(binary);
    let object = ObjectFile::parse(&bytes).expect("an object");
    let split: Vec<Vec<u8>> = split.iter().map(|path| read(path)).collect();
    let split: Vec<ObjectFile<'_>> = split.iter().map(|bytes| ObjectFile::parse(bytes).expect("split")).collect();
    let stream = functions(&object, &DebugFiles { split: &split, ..DebugFiles::default() }).expect("functions");
    lookup::check_shape(&stream);
    (stream, object.unwind_inputs().text, object.image_base().0)
}

/// Linkage names as the source says them, without parameters, by the demangler of binutils.
fn demangled<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<String> {
    let input: String = names.into_iter().map(|name| format!("{name}\n")).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("names");
    std::fs::write(&path, input).expect("a file");
    let output = Command::new("c++filt").arg("-p").stdin(File::open(&path).expect("a file")).output();
    let output = output.expect("c++filt starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// A class that is not the same in two programs, so that dwz leaves it in both and shares its name alone. Names of three
/// letters are no shorter as references, and stay where they are.
const NOT_SHARED: &str = r#"
namespace measures_of_both {
class AverageOfMany {
public:
    explicit AverageOfMany(int start) : total(start) {}
    int add(int x) { total += x % 100; count += KIND; return total; }
    __attribute__((noinline)) int avg(int x) { return add(x) / (count + 1); }
    struct NestedOfMany { __attribute__((noinline)) int tel(int x) const { return x * KIND + 3; } };
private:
    int total, count = 0;
    int room[KIND];
};
}
int main(int argc, char **) {
    measures_of_both::AverageOfMany all(argc);
    for (int i = 0; i < argc; i++) all.add(i);
    return all.avg(argc) + measures_of_both::AverageOfMany::NestedOfMany().tel(argc);
}
"#;

#[test]
fn a_scope_whose_name_is_in_a_file_that_was_not_given_is_not_called_anonymous() {
    if ["g++", "dwz", "addr2line", "c++filt"].iter().any(|tool| !have(tool)) {
        return;
    }
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        std::fs::write(folder.join("both.cpp"), NOT_SHARED).expect("a source");
        for (output, kind) in [("one", "-DKIND=3"), ("two", "-DKIND=4")] {
            run("g++", &["-O2", version, kind, "both.cpp", "-o", output], folder).expect("it compiles");
        }
        run("dwz", &["-m", "common.debug", "-M", "common.debug", "one", "two"], folder).expect("dwz");
        let binary = folder.join("one");
        let (alone, text, base) = stream_of(&binary, &[]);
        let addresses = addresses_in(&text, 2_000, 11);
        // addr2line finds the supplementary file.
        let mut pairs = Vec::new();
        for (address, expected) in addresses.iter().zip(addr2line(&binary, &addresses)) {
            let found = lookup::frames(&alone, address - base);
            if found.len() == expected.len() {
                pairs.extend(expected.into_iter().zip(found));
            }
        }
        let full = demangled(pairs.iter().map(|(expected, _)| expected.function.as_str()));
        let (mut by_symbol, mut bare) = (0, 0);
        for ((expected, found), full) in pairs.iter().zip(full) {
            let last = full.rsplit("::").next().unwrap_or_default();
            // Behind the point is which part or copy of the function it is.
            let symbol = found.name.split('.').next().unwrap_or_default();
            let is_true = found.name.is_empty() || symbol == expected.function || symbol == last;
            assert!(is_true, "{version}: {expected:?} is {found:?}");
            by_symbol += u32::from(symbol.starts_with("_ZN") && symbol == expected.function);
            bare += u32::from(full.contains("::") && symbol == last);
        }
        assert!(by_symbol > 10 && bare > 10, "{version}: {by_symbol} by symbol, {bare} bare");
        let skipped = &alone.statistics.skipped;
        assert!(skipped.keys().any(|reason| reason.contains("namespace or type around")), "{skipped:?}");
    }
}

/// Types of every kind that a compiler puts into a unit of its own, in one another and in namespaces, and one without a name.
const TYPES: &str = r#"
#define OUT __attribute__((noinline, used))
namespace outer { inline namespace first {
struct Shape {
    struct Corner {
        OUT int go(int x) const { return x + 1; }
        struct Deep { OUT static int deep(int x) { return x * 2; } };
    };
    OUT virtual int turn(int x) { return x - 1; }
    class Hidden { public: OUT int hide(int x) { return x - 3; } };
};
template <class T> struct Pair { OUT int sum(T x) { static int all; all += x; return all; } };
union Word { int number; float part; OUT int word(int x) { return x + number; } };
} }
namespace { struct Local { OUT int local(int x) const { return x * 3; } }; }
int main(int argc, char **) {
    outer::Shape shape;
    outer::Pair<int> pair;
    outer::Word word{argc};
    return outer::Shape::Corner().go(argc) + outer::Shape::Corner::Deep::deep(argc) + shape.turn(argc)
        + outer::Shape::Hidden().hide(argc) + pair.sum(argc) + word.word(argc) + Local().local(argc);
}
"#;

/// The qualified names of [`TYPES`]' functions.
const NAMED: [&str; 8] = [
    "(anonymous namespace)::Local::local",
    "main",
    "outer::first::Pair<int>::sum",
    "outer::first::Shape::Corner::Deep::deep",
    "outer::first::Shape::Corner::go",
    "outer::first::Shape::Hidden::hide",
    "outer::first::Shape::turn",
    "outer::first::Word::word",
];

/// Functions that DWARF describes have the name that binutils makes of their symbol.
#[track_caller]
fn check_names(title: &str, binary: &Path, split: &[&Path]) {
    let (stream, ..) = stream_of(binary, split);
    let described = stream.functions.iter().filter(|function| function.source == SymbolSource::Dwarf);
    let (mut names, mut symbols) = (Vec::new(), Vec::new());
    for function in described.filter(|function| !function.flags.part) {
        names.push(stream.strings.get(function.name));
        symbols.push(stream.strings.get(function.symbol));
    }
    assert_eq!(names, demangled(symbols), "{title}");
    names.sort_unstable();
    assert_eq!(names, NAMED, "{title}");
    assert!(stream.statistics.skipped.is_empty(), "{title}: {:?}", stream.statistics.skipped);
}

#[test]
fn types_in_units_of_their_own_name_what_is_in_them() {
    if !have("c++filt") {
        return;
    }
    for (compiler, version, dwp) in [
        ("clang++", "-gdwarf-4", "llvm-dwp"),
        ("clang++", "-gdwarf-5", "llvm-dwp"),
        ("clang++-19", "-gdwarf-5", "llvm-dwp-19"),
        ("g++", "-gdwarf-4", "dwp"),
        ("g++", "-gdwarf-5", ""),
    ] {
        if !have(compiler) {
            continue;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        std::fs::write(folder.join("types.cpp"), TYPES).expect("a source");
        let flags = ["-O1", version, "-fdebug-types-section"];
        let compile = |more: &[&str]| run(compiler, &[&flags[..], more].concat(), folder).expect("it compiles");
        compile(&["types.cpp", "-o", "whole"]);
        check_names(&format!("{compiler} {version}"), &folder.join("whole"), &[]);
        // In an object file each type unit is a section of its own, which nobody has relocated.
        for more in [&[][..], &["-gz=zlib"], &["-ffunction-sections"]] {
            compile(&[&["-c", "types.cpp", "-o", "alone.o"], more].concat());
            check_names(&format!("{compiler} {version} {more:?}, object"), &folder.join("alone.o"), &[]);
        }
        compile(&["-gsplit-dwarf", "-c", "types.cpp", "-o", "types.o"]);
        compile(&["types.o", "-o", "split"]);
        let (binary, dwo) = (folder.join("split"), folder.join("types.dwo"));
        check_names(&format!("{compiler} {version}, split"), &binary, &[&dwo]);
        if !dwp.is_empty() && have(dwp) {
            run(dwp, &["types.dwo", "-o", "types.dwp"], folder).expect("a package is made");
            check_names(&format!("{compiler} {version}, package"), &binary, &[&folder.join("types.dwp")]);
        }
    }
}
