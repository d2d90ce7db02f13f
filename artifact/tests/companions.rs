//! Debug information in several files: split DWARF beside llvm-symbolizer, dwz beside addr2line.

use crate::support::accuracy::measure;
use crate::support::addr2line::{addr2line, without_symbols};
use crate::support::compare::Comparison;
use crate::support::{Chance, Expected, fixtures, have, llvm_symbolizer_in, lookup, run};
use std::path::Path;
use symseal_artifact::{ArtifactError, DebugFiles, FunctionStream, ObjectFile, SplitKind, functions};

const MAIN: &str = r#"
#include <vector>
#include <algorithm>
#include "shared.h"
__attribute__((noinline)) int work(std::vector<int> &all, int limit) {
    std::sort(all.begin(), all.end(), [limit](int a, int b) { return a % limit < b % limit; });
    shared::Sum sum(limit);
    for (int x : all) sum.add(x);
    return sum.add(0);
}
int main(int argc, char **) {
    std::vector<int> all;
    for (int i = 0; i < 100; i++) all.push_back(i * argc);
    return work(all, argc + 7) + other(argc);
}
"#;

const OTHER: &str = r#"
#include <vector>
#include "shared.h"
namespace { struct Local { __attribute__((noinline, used)) int twice(int x) const { return 2 * shared::clamp(x, 1, 9); } }; }
int other(int x) {
    if (__builtin_expect(x < 0, 0)) __builtin_abort();
    shared::Sum sum(x);
    std::vector<int> all(x, 3);
    for (int y : all) sum.add(y);
    return Local().twice(sum.add(x));
}
"#;

const SHARED: &str = r#"
int other(int x);
namespace shared {
template <typename T> inline T clamp(T x, T low, T high) { return x < low ? low : x > high ? high : x; }
class Sum {
public:
    explicit Sum(int start) : total(start) {}
    inline int add(int x) { total += clamp(x, -100, 100); return total; }
    __attribute__((noinline)) int slow(int x) { return add(x) * 3; }
private:
    int total;
};
}
"#;

fn write_sources(folder: &Path) {
    for (name, text) in [("main.cpp", MAIN), ("other.cpp", OTHER), ("shared.h", SHARED)] {
        std::fs::write(folder.join(name), text).expect("a source");
    }
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a file")
}

/// The stream of a binary with split files and a supplementary one, by their paths.
fn stream_of(
    binary: &Path,
    split: &[&Path],
    supplementary: Option<&Path>,
) -> Result<(FunctionStream, Vec<std::ops::Range<u64>>, u64), ArtifactError> {
    let bytes = read(binary);
    let object = ObjectFile::parse(&bytes).expect("an object");
    let split: Vec<Vec<u8>> = split.iter().map(|path| read(path)).collect();
    let split: Vec<ObjectFile<'_>> = split.iter().map(|bytes| ObjectFile::parse(bytes).expect("split")).collect();
    let supplementary = supplementary.map(read);
    let supplementary = supplementary.as_deref().map(|bytes| ObjectFile::parse(bytes).expect("supplementary"));
    let with = DebugFiles { supplementary: supplementary.as_ref(), split: &split, ..DebugFiles::default() };
    let stream = functions(&object, &with)?;
    lookup::check_shape(&stream);
    Ok((stream, object.unwind_inputs().text, object.image_base().0))
}

/// Of each program.
const LEAST_COMPARED: u64 = 2_000;

/// Compiles both sources with split DWARF; the names of the `.dwo` files, or None where the compiler refuses.
fn compile_split(compiler: &str, flags: &[&str], folder: &Path) -> Option<Vec<String>> {
    let mut link = vec!["-o", "out", "main.o", "other.o"];
    for source in ["main", "other"] {
        let (input, output) = (format!("{source}.cpp"), format!("{source}.o"));
        let mut arguments = vec!["-O2", "-gsplit-dwarf", "-c", &input, "-o", &output];
        arguments.extend(flags);
        run(compiler, &arguments, folder)?;
    }
    link.extend(flags.iter().filter(|flag| flag.starts_with("-fuse") || flag.starts_with("-Wl")));
    run(compiler, &link, folder)?;
    Some(vec!["main.dwo".to_owned(), "other.dwo".to_owned()])
}

const SPLIT: &[(&str, &str, &[&str])] = &[
    ("g++", "dwarf4", &["-gdwarf-4"]),
    ("g++", "dwarf5", &["-gdwarf-5"]),
    ("g++", "types", &["-gdwarf-5", "-fdebug-types-section"]),
    ("g++", "types of version 4", &["-gdwarf-4", "-fdebug-types-section"]),
    ("g++", "sections", &["-gdwarf-5", "-ffunction-sections"]),
    ("clang++", "dwarf4", &["-gdwarf-4"]),
    ("clang++", "dwarf5", &["-gdwarf-5"]),
    ("clang++", "types", &["-gdwarf-5", "-fdebug-types-section"]),
    ("clang++", "inlining", &["-gdwarf-5", "-fsplit-dwarf-inlining"]),
];

/// Clang refers to modules of types as to split units (`-gmodules`); no code is described there.
#[test]
fn a_module_of_types_is_no_split_unit_that_is_missing() {
    if !have("clang-19") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::create_dir(folder.join("inc")).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a file");
    write("inc/Foo.h", "struct Foo { int a; int b; };\nstatic inline int sum(struct Foo f) { return f.a + f.b; }\n");
    write("inc/module.modulemap", "module Foo { header \"Foo.h\" export * }\n");
    write("a.c", "#include \"Foo.h\"\nint main(int c, char **v) { struct Foo f = {c, 2}; return sum(f); }\n");
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let flags = [version, "-O1", "-fmodules", "-gmodules", "-fmodules-cache-path=cache", "-Iinc", "a.c", "-o", "a"];
        run("clang-19", &flags, folder).expect("it compiles");
        let binary = folder.join("a");
        assert!(read(&binary).windows(4).any(|bytes| bytes == b".pcm"), "{version}: it refers to no module");
        assert_eq!(ObjectFile::parse(&read(&binary)).expect("an object").split_units().len(), 0, "{version}");
        let (stream, ..) = stream_of(&binary, &[], None).expect("functions");
        assert!(stream.statistics.skipped.is_empty(), "{version}: {:?}", stream.statistics.skipped);
    }
}

#[test]
fn split_units_agree_with_llvm_symbolizer() {
    if !have("llvm-symbolizer") {
        return;
    }
    for (compiler, name, flags) in SPLIT {
        if !have(compiler) {
            continue;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        write_sources(folder);
        let Some(dwo) = compile_split(compiler, flags, folder) else { continue };
        let dwo: Vec<_> = dwo.iter().map(|name| folder.join(name)).collect();
        let split: Vec<&Path> = dwo.iter().map(AsRef::as_ref).collect();
        let binary = folder.join("out");
        let (stream, text, base) = stream_of(&binary, &split, None).expect("functions");
        assert!(stream.statistics.missing_split.is_empty(), "{:?}", stream.statistics);
        let measured = measure(&text, |addresses| {
            let mut comparison = Comparison::default();
            for (address, expected) in addresses.iter().zip(&llvm_symbolizer_in(folder, &binary, addresses)) {
                comparison.add(*address, expected, &lookup::frames(&stream, address - base));
            }
            comparison
        });
        let title = format!("{compiler} {name}");
        measured.print("Split DWARF and dwz", &format!("split, {title}"));
        println!("{title}: {}{:?}", measured.comparison, stream.statistics.skipped);
        assert_eq!(measured.verdict(&title), None);
        assert!(measured.comparison.compared >= LEAST_COMPARED, "{}", measured.comparison);
        packages_say_the_same(compiler, flags, folder, &split, &stream);
    }
}

/// A package of the same units gives the same stream.
fn packages_say_the_same(compiler: &str, flags: &[&str], folder: &Path, split: &[&Path], stream: &FunctionStream) {
    let names: Vec<&str> = split.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    for (tool, before) in
        [("llvm-dwp", &["main.dwo", "other.dwo", "-o"][..]), ("dwp", &["main.dwo", "other.dwo", "-o"])]
    {
        // llvm-dwp has no end on the DWARF 5 of GCC 12, and binutils' dwp knows version 4 alone.
        let is_five = !flags.contains(&"-gdwarf-4");
        if !have(tool) || (is_five && (tool == "dwp" || compiler == "g++")) {
            continue;
        }
        let output = format!("{tool}.dwp");
        let mut arguments = before.to_vec();
        arguments.push(&output);
        run(tool, &arguments, folder).expect("a package is made");
        let package = folder.join(&output);
        let bytes = read(&package);
        let object = ObjectFile::parse(&bytes).expect("an object");
        assert_eq!(object.split_kind(), Some(SplitKind::Dwp), "{compiler} {names:?}");
        let binary_bytes = read(&folder.join("out"));
        let binary = ObjectFile::parse(&binary_bytes).expect("an object");
        let mut asked: Vec<u64> = binary.split_units().iter().map(|unit| unit.id).collect();
        let mut held = object.split_ids();
        asked.sort_unstable();
        held.sort_unstable();
        assert_eq!((asked.len(), asked), (2, held), "{compiler} {tool}");
        let (packed, _, _) = stream_of(&folder.join("out"), &[&package], None).expect("functions");
        assert_eq!(format!("{:?}", packed.functions), format!("{:?}", stream.functions), "{compiler} {tool}");
    }
}

#[test]
fn a_split_file_of_another_compilation_is_not_used() {
    for (compiler, version) in [("g++", "-gdwarf-4"), ("g++", "-gdwarf-5"), ("clang++", "-gdwarf-5")] {
        if !have(compiler) {
            continue;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        write_sources(folder);
        compile_split(compiler, &[version], folder).expect("it compiles");
        let [main, other] = ["main.dwo", "other.dwo"].map(|name| folder.join(name));
        std::fs::rename(&main, folder.join("old.dwo")).expect("a new name");
        std::fs::write(
            folder.join("main.cpp"),
            format!("{MAIN}__attribute__((noinline, used)) int added(int x) {{ return work_on(x); }}")
                .replace("int main", "int work_on(int y) { return y * 3; }\nint main"),
        )
        .expect("a source");
        std::fs::copy(folder.join("out"), folder.join("old")).expect("a copy");
        compile_split(compiler, &[version], folder).expect("it compiles");
        // The file of the right name has the wrong id; that of another name has the right one.
        let old = folder.join("old");
        let (stale, _, _) = stream_of(&old, &[&main, &other], None).expect("functions");
        assert_eq!(
            stale.statistics.missing_split.iter().map(String::as_str).collect::<Vec<_>>(),
            ["main.dwo"],
            "{compiler} {version}"
        );
        assert_eq!(stale.statistics.skipped.values().sum::<u64>(), 1, "{:?}", stale.statistics.skipped);
        let main_rows = |stream: &FunctionStream| {
            let found = stream.functions.iter().find(|function| stream.strings.get(function.symbol) == "main");
            found.map(|function| (function.rows.len(), function.inlines.len())).expect("main")
        };
        let (rows, inlines) = main_rows(&stale);
        assert!(rows > 1 && inlines == 0, "lines are the skeleton's: {rows} {inlines}");
        let (right, _, _) = stream_of(&old, &[&main, &other, &folder.join("old.dwo")], None).expect("functions");
        assert!(right.statistics.missing_split.is_empty());
        assert!(main_rows(&right).1 > 0, "{compiler} {version}");
    }
}

#[test]
fn skeletons_say_what_they_ask_for() {
    if !have("g++") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    write_sources(folder);
    compile_split("g++", &["-gdwarf-5"], folder).expect("it compiles");
    let bytes = read(&folder.join("out"));
    let binary = ObjectFile::parse(&bytes).expect("an object");
    assert_eq!((binary.split_kind(), binary.split_ids()), (None, Vec::new()));
    for (unit, name) in binary.split_units().iter().zip(["main.dwo", "other.dwo"]) {
        assert_eq!(String::from_utf8_lossy(&unit.name), name);
        assert_eq!(Path::new(&*String::from_utf8_lossy(&unit.comp_dir)), folder);
        let bytes = read(&folder.join(name));
        let split = ObjectFile::parse(&bytes).expect("an object");
        assert_eq!((split.split_kind(), split.split_ids()), (Some(SplitKind::Dwo), vec![unit.id]));
        assert!(split.split_units().is_empty());
    }
}

/// Two binaries, and dwz's output for them: the binaries' paths and the supplementary file's.
fn dwz(folder: &Path, flags: &[&str], dwz_flags: &[&str]) -> Option<()> {
    write_sources(folder);
    std::fs::write(folder.join("second.cpp"), MAIN.replace("argc + 7", "argc + 70")).expect("a source");
    for (output, first) in [("one", "main.cpp"), ("two", "second.cpp")] {
        let mut arguments = vec!["-O2", first, "other.cpp", "-o", output];
        arguments.extend(flags);
        run("g++", &arguments, folder)?;
    }
    let mut arguments = vec!["-m", "common.debug", "-M", "common.debug"];
    arguments.extend(dwz_flags);
    arguments.extend(["one", "two"]);
    run("dwz", &arguments, folder).map(|_| ())
}

/// binutils 2.40 takes file 1 of DWARF 5 for the first source where the table lists that twice: its lines then lie
/// behind the end of the file that it names.
fn is_beyond_its_file(frame: &Expected) -> bool {
    std::fs::read_to_string(&frame.file).is_ok_and(|text| frame.line > text.lines().count() as u64)
}

#[test]
fn dwz_files_agree_with_addr2line() {
    if !have("g++") || !have("dwz") || !have("addr2line") {
        return;
    }
    for (flags, dwz_flags) in [(["-gdwarf-4"], &[][..]), (["-gdwarf-5"], &[]), (["-gdwarf-5"], &["-5"])] {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        if dwz(folder, &flags, dwz_flags).is_none() {
            println!("SKIP dwz {flags:?} {dwz_flags:?}: it refuses");
            continue;
        }
        let common = folder.join("common.debug");
        for name in ["one", "two"] {
            let binary = folder.join(name);
            let bytes = read(&binary);
            let link = ObjectFile::parse(&bytes).expect("an object").debug_alt_link().expect("a link");
            assert_eq!(String::from_utf8_lossy(link.path), "common.debug");
            let (stream, text, base) = stream_of(&binary, &[], Some(&common)).expect("functions");
            assert!(stream.statistics.skipped.keys().all(|reason| !reason.contains("supplementary")));
            // binutils 2.40 does not read the DWARF 5 form of the link.
            if dwz_flags.is_empty() {
                let mut beyond = 0;
                let measured = measure(&text, |addresses| {
                    let mut comparison = Comparison::default();
                    for (address, expected) in addresses.iter().zip(addr2line(&binary, addresses)) {
                        if expected.iter().any(is_beyond_its_file) {
                            beyond += 1;
                            continue;
                        }
                        let found = lookup::frames(&stream, address - base);
                        comparison.add(*address, &without_symbols(expected, &found), &found);
                    }
                    comparison
                });
                let title = format!("{name} {flags:?}");
                measured.print("Split DWARF and dwz", &format!("dwz, supplementary file, g++ {}, {name}", flags[0]));
                println!("{title}: {}{beyond} lines lie behind the end of their file", measured.comparison);
                assert_eq!(measured.verdict(&title), None);
                assert!(measured.comparison.compared >= LEAST_COMPARED, "{}", measured.comparison);
            }
            let sum = stream.functions.iter().flat_map(|function| &function.inlines);
            let names: Vec<&str> = sum.map(|site| stream.strings.get(site.name)).collect();
            assert!(names.contains(&"shared::Sum::add"), "{names:?}");
        }
    }
}

#[test]
fn a_supplementary_file_of_another_id_is_refused() {
    if !have("g++") || !have("dwz") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    dwz(folder, &["-gdwarf-4"], &[]).expect("dwz");
    let [one, two, common] = ["one", "two", "common.debug"].map(|name| folder.join(name));
    let error = stream_of(&one, &[], Some(&two)).expect_err("another file").to_string();
    assert!(error.contains("supplementary file"), "{error}");
    // Without it there is less, and that is said.
    let (alone, _, _) = stream_of(&one, &[], None).expect("functions");
    assert!(alone.statistics.skipped.keys().any(|reason| reason.contains("dwz")), "{:?}", alone.statistics);
    let (whole, _, _) = stream_of(&one, &[], Some(&common)).expect("functions");
    assert_eq!(alone.statistics.rows, whole.statistics.rows);
}

#[test]
fn changed_bytes_in_any_of_the_files_do_no_harm() {
    let Some(fixtures) = fixtures() else { return };
    let mut chance = Chance::new(23);
    let cases: [(&str, &[&str]); 6] = [
        ("elf-var/split/split4", &["elf-var/split/split4.dwp"]),
        ("elf-var/split/split5", &["elf-var/split/split5.dwp"]),
        ("elf-var/split/fix4.o", &["elf-var/split/fix4.dwo"]),
        ("elf-var/split/fix5.o", &["elf-var/split/fix5.dwo"]),
        ("object-testfiles/dwarf/base-gcc-split", &["object-testfiles/dwarf/base-gcc-split-base.dwo"]),
        ("elf-var/a1.debug", &["elf-var/alt.dwz"]),
    ];
    let (mut read_count, mut refused) = (0, 0);
    for (binary, others) in cases {
        let whole: Vec<Vec<u8>> = [binary].iter().chain(others).map(|name| read(&fixtures.join(name))).collect();
        for round in 0..200 {
            let mut files = whole.clone();
            let number = chance.below(files.len() as u64) as usize;
            let start = if round % 3 == 0 { 0 } else { 0x40 };
            for _ in 0..1 + chance.below(1 << (round % 8)) {
                let at = start + chance.below((files[number].len() - start) as u64) as usize;
                files[number][at] = match chance.below(3) {
                    0 => 0xff,
                    1 => files[number][at] ^ (1 << chance.below(8)),
                    _ => chance.next() as u8,
                };
            }
            let objects: Result<Vec<ObjectFile<'_>>, _> = files.iter().map(|bytes| ObjectFile::parse(bytes)).collect();
            let Ok(objects) = objects else {
                refused += 1;
                continue;
            };
            let (first, rest) = objects.split_first().expect("a binary");
            let supplementary = rest.first().filter(|_| first.debug_alt_link().is_some());
            let _ = (first.split_units(), rest.iter().map(ObjectFile::split_ids).collect::<Vec<_>>());
            let begun = std::time::Instant::now();
            match functions(first, &DebugFiles { supplementary, split: rest, ..DebugFiles::default() }) {
                Ok(stream) => {
                    lookup::check_shape(&stream);
                    read_count += 1;
                }
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("expected"), "{error}");
                }
            }
            assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{binary} took {:?}", begun.elapsed());
        }
    }
    println!("{read_count} changed sets of files were read, {refused} refused");
    assert!(read_count > 0);
}
