//! What describes a few addresses is what the whole stream has there.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::support::{LIBC, fixtures, have, libc_debug};
use symseal_artifact::{DebugFiles, FunctionStream, ObjectFile, functions, functions_at};
use symseal_module::Svma;
use symseal_symx::{FunctionRecord, SymbolSource};

/// Addresses that are asked for at once.
const BATCHES: [usize; 3] = [1, 7, 200];

/// Everything that a record says.
fn printed(stream: &FunctionStream, record: &FunctionRecord) -> String {
    let text = |id| stream.strings.get(id);
    let aliases: Vec<&str> = record.aliases.iter().map(|alias| text(*alias)).collect();
    let rows = record.rows.iter().map(|row| (row.start, text(row.file), row.line, row.column, row.inline));
    let inlines = record.inlines.iter().map(|site| {
        (site.parent, text(site.name), text(site.symbol), text(site.call_file), site.call_line, site.call_column)
    });
    format!(
        "{:?} {} {} {} {aliases:?} {:?} {:?} {}:{} {:?} {:?}",
        record.start,
        record.size,
        text(record.name),
        text(record.symbol),
        record.source,
        record.flags,
        text(record.file),
        record.line,
        rows.collect::<Vec<_>>(),
        inlines.collect::<Vec<_>>()
    )
}

/// Asks for about so many addresses of functions that debug information describes, at their start, middle and end; returns which share of the batches of
/// each size had an answer.
#[track_caller]
fn check(name: &str, object: &ObjectFile<'_>, with: &DebugFiles<'_, '_>, most: usize) -> [f64; 3] {
    let whole = functions(object, with).expect("functions");
    let by_start: BTreeMap<u64, &FunctionRecord> =
        whole.functions.iter().map(|record| (record.start.0, record)).collect();
    let described: Vec<&FunctionRecord> =
        whole.functions.iter().filter(|record| record.source == SymbolSource::Dwarf && record.size > 0).collect();
    let step = (described.len() / most).max(1);
    let asked: Vec<Svma> = (0_u64..)
        .zip(described.iter().step_by(step))
        .filter_map(|(at, record)| {
            let inside = [0, record.size / 2, record.size - 1][(at % 3) as usize];
            symseal_module::Rva(record.start.0 + inside).to_svma(object.image_base())
        })
        .collect();
    assert!(asked.len() >= most.min(described.len()) / 2, "{name}: {} functions", described.len());
    BATCHES.map(|size| {
        let (mut answered, mut batches) = (0_u32, 0_u32);
        for batch in asked.chunks(size) {
            batches += 1;
            let Some(found) = functions_at(object, with, batch).expect("functions") else { continue };
            answered += 1;
            for record in &found.functions {
                let expected =
                    by_start.get(&record.start.0).unwrap_or_else(|| panic!("{name}: {}", printed(&found, record)));
                assert_eq!(printed(&found, record), printed(&whole, expected), "{name}");
            }
            for address in batch {
                let rva = address.to_rva(object.image_base()).unwrap().0;
                let holds = |record: &&FunctionRecord| (record.start.0..record.start.0 + record.size).contains(&rva);
                assert!(found.functions.iter().filter(holds).count() == 1, "{name}: {address} in batches of {size}");
            }
        }
        f64::from(answered) / f64::from(batches)
    })
}

/// Asks for about so many addresses that symbols name and a unit has lines of; returns how many there were, and which share of them was told one by one.
#[track_caller]
fn check_lines(name: &str, object: &ObjectFile<'_>, with: &DebugFiles<'_, '_>, most: usize) -> (usize, f64) {
    let whole = functions(object, with).expect("functions");
    let by_start: BTreeMap<u64, &FunctionRecord> =
        whole.functions.iter().map(|record| (record.start.0, record)).collect();
    let lines: Vec<symseal_module::Rva> = whole
        .functions
        .iter()
        .filter(|record| record.source == SymbolSource::Symtab && !record.flags.approximate)
        .filter_map(|record| record.rows.iter().rfind(|row| row.line > 0).map(|row| row.start))
        .collect();
    let step = (lines.len() / most).max(1);
    let (mut asked, mut told) = (0, 0);
    for rva in lines.iter().step_by(step) {
        asked += 1;
        let address = rva.to_svma(object.image_base()).unwrap();
        let Some(found) = functions_at(object, with, &[address]).expect("functions") else { continue };
        for record in &found.functions {
            let expected =
                by_start.get(&record.start.0).unwrap_or_else(|| panic!("{name}: {}", printed(&found, record)));
            assert_eq!(printed(&found, record), printed(&whole, expected), "{name}");
            assert!((record.start.0..record.start.0 + record.size).contains(&rva.0), "{name}");
            told += 1;
        }
    }
    (asked, f64::from(told) / asked as f64)
}

#[test]
fn a_rust_program_of_many_units_is_read_in_part() {
    let own = std::fs::read(std::env::current_exe().expect("a path")).expect("a file");
    let own = ObjectFile::parse(&own).expect("an object");
    let shares = check("this test", &own, &DebugFiles::default(), 60);
    assert!(shares[0] > 0.9, "few of the questions were answered: {shares:?}");
    // The standard library comes with lines alone: functions into which nothing was inlined have no entry.
    let (asked, told) = check_lines("this test", &own, &DebugFiles::default(), 60);
    assert!(asked > 50 && told > 0.9, "few of {asked} questions were answered: {told}");
    // What nothing describes is for the whole stream to say.
    assert!(functions_at(&own, &DebugFiles::default(), &[Svma(1)]).expect("functions").is_none());
    assert!(functions_at(&own, &DebugFiles::default(), &[]).expect("functions").is_none());
}

#[test]
fn libc_is_read_in_part_with_its_debug_file() {
    let Some(debug) = libc_debug() else { return };
    let [binary, debug] = [Path::new(LIBC), &debug].map(|path| std::fs::read(path).expect("a file"));
    let [binary, debug] = [&binary, &debug].map(|bytes| ObjectFile::parse(bytes).expect("an object"));
    // Aliases of C functions depend on the others.
    let shares = check("libc", &binary, &DebugFiles::debug(Some(&debug)), 150);
    assert!(shares[0] > 0.5, "few of the questions were answered: {shares:?}");
}

#[test]
fn split_units_are_found_by_their_skeletons() {
    let Some(folder) = fixtures() else { return };
    let [binary, package] =
        ["split5", "split5.dwp"].map(|name| std::fs::read(folder.join("elf-var/split").join(name)).expect("a file"));
    let [binary, package] = [&binary, &package].map(|bytes| ObjectFile::parse(bytes).expect("an object"));
    let split = [package];
    check("split5", &binary, &DebugFiles { split: &split, ..DebugFiles::default() }, 40);
    // Without it the whole stream tells what is missing.
    let whole = functions(&binary, &DebugFiles::default()).expect("functions");
    let address = whole.functions[0].start.to_svma(binary.image_base()).unwrap();
    assert!(functions_at(&binary, &DebugFiles::default(), &[address]).expect("functions").is_none());
}

/// Units that share functions: templates that each has, equal functions that a linker folds, and one function whose name only the others tell.
const SHARED: &str = "
template <int N> __attribute__((noinline)) int often(int x) { volatile int y = x; return y * N + 1; }
inline __attribute__((always_inline)) int doubled(int x) { return x * 2 + 1; }
namespace deep { struct One { __attribute__((noinline)) int method(int x) { volatile int y = x; return doubled(y) - 3; } }; }
";

#[test]
fn code_that_units_share_is_told_as_all_of_them_tell_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shared.h"), SHARED).unwrap();
    let units = 8;
    for unit in 0..units {
        let text = format!(
            "#include \"shared.h\"
             __attribute__((noinline)) int equal_{unit}(int x) {{ volatile int y = x; return y * 7 + 2; }}
             __attribute__((noinline)) int as_equal_{unit}(int x) {{ volatile int y = x; return y * 7 + 2; }}
             __attribute__((noinline)) int own_{unit}(int x) {{ volatile int y = x + {unit}; return often<{}>(y) + often<3>(y) + doubled(y); }}
             int unit_{unit}(int x) {{ deep::One one; return one.method(x) + own_{unit}(x) + equal_{unit}(x) + as_equal_{unit}(x); }}",
            unit % 3 + 10
        );
        std::fs::write(folder.path().join(format!("u{unit}.cc")), text).unwrap();
    }
    let declared: String = (0..units).map(|unit| format!("int unit_{unit}(int); ")).collect();
    let called: String = (0..units).map(|unit| format!(" + unit_{unit}(count)")).collect();
    std::fs::write(
        folder.path().join("main.cc"),
        format!("{declared} int main(int count, char **) {{ return 0{called}; }}"),
    )
    .unwrap();
    let sources: Vec<String> = (0..units).map(|unit| format!("u{unit}.cc")).chain(["main.cc".to_owned()]).collect();
    for (compiler, linker, options) in [
        ("g++", None, &["-O2", "-g"][..]),
        ("g++", None, &["-O2", "-g", "-gdwarf-4", "-fdebug-types-section"]),
        ("g++", None, &["-O2", "-g", "-flto"]),
        ("g++", Some("ld.gold"), &["-O2", "-g", "-ffunction-sections", "-fuse-ld=gold", "-Wl,--icf=all"]),
        ("clang++", Some("ld.lld"), &["-O2", "-g", "-ffunction-sections", "-fuse-ld=lld", "-Wl,--icf=all"]),
        ("clang++", None, &["-O1", "-gline-tables-only"]),
    ] {
        if !have(compiler) || linker.is_some_and(|linker| !have(linker)) {
            continue;
        }
        let ran = Command::new(compiler)
            .current_dir(folder.path())
            .args(options)
            .args(["-o", "program"])
            .args(&sources)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let bytes = std::fs::read(folder.path().join("program")).unwrap();
        let object = ObjectFile::parse(&bytes).unwrap();
        let shares = check(&format!("{compiler} {options:?}"), &object, &DebugFiles::default(), 40);
        let (asked, told) = check_lines(&format!("{compiler} {options:?}"), &object, &DebugFiles::default(), 40);
        if options.contains(&"-gline-tables-only") {
            assert!(asked > 5 && told > 0.7, "few of {asked} questions were answered: {told}");
        }
        println!("{compiler} {options:?}: {shares:?}, of symbols {asked}: {told}");
    }
}
