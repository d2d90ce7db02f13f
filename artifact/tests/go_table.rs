//! Go's function table in every layout, made by hand; and damaged.

use crate::support;
use crate::support::go_table::{Layout, TEXT, elf_around, layouts, table};
use crate::support::{Chance, lookup};
use std::path::Path;
use std::time::{Duration, Instant};
use symseal_artifact::{DebugFiles, FunctionStream, ObjectFile, functions};
use symseal_symx::SymbolSource;

fn stream_of(bytes: &[u8], layout: Layout) -> FunctionStream {
    let file = elf_around(bytes, layout.is_64, layout.is_little_endian);
    let object = ObjectFile::parse(&file).expect("an object");
    let stream = functions(&object, &DebugFiles::default()).expect("functions");
    lookup::check_shape(&stream);
    stream
}

/// `function file:line` of each frame at an address, innermost first.
fn at(stream: &FunctionStream, place: u64) -> Vec<String> {
    // The image has no segments, so that addresses are relative ones.
    let frames = lookup::frames(stream, TEXT + place);
    frames.iter().map(|frame| format!("{} {}:{}", frame.symbol, frame.file, frame.line)).collect()
}

#[test]
fn every_layout_gives_functions_lines_and_inlined_calls() {
    for layout in layouts() {
        let stream = stream_of(&table(layout), layout);
        assert_eq!(stream.statistics.skipped, Default::default(), "{layout:?}");
        assert_eq!(stream.statistics.functions.get(&SymbolSource::Pclntab), Some(&2), "{layout:?}");
        let expected: [(u64, &[&str]); 7] = [
            (0, &["main.main /src/a.go:5"]),
            (0x10, &["main.inner /src/a.go:20", "main.main /src/a.go:7"]),
            (0x17, &["main.leaf /src/b.go:90", "main.inner /src/a.go:22", "main.main /src/a.go:7"]),
            (0x18, &["main.inner /src/a.go:21", "main.main /src/a.go:7"]),
            (0x20, &["main.main /src/a.go:7"]),
            (0x4f, &["main.other /src/a.go:30"]),
            // Padding behind a function.
            (0x50, &[]),
        ];
        for (place, expected) in expected {
            assert_eq!(at(&stream, place), expected, "{layout:?} {place:#x}");
        }
        let lines: Vec<u32> = stream.functions.iter().map(|function| function.line).collect();
        assert_eq!(lines, if layout.release == 120 { [4, 29] } else { [0, 0] });
    }
}

#[test]
fn without_module_data_there_are_functions_and_lines_and_it_is_said() {
    for layout in layouts().into_iter().filter(|layout| layout.release >= 118) {
        let bytes = table(layout);
        let word = if layout.is_64 { 8 } else { 4 };
        let without = &bytes[..bytes.len() - 48 * word];
        let file = elf_around(without, layout.is_64, layout.is_little_endian);
        let object = ObjectFile::parse(&file).expect("an object");
        let stream = functions(&object, &DebugFiles::default()).expect("functions");
        // Where the code starts cannot be known either: `.text` is longer than what the table speaks of.
        assert_eq!(stream.statistics.skipped.get("Go's table without the start of its code"), Some(&1), "{layout:?}");
        assert!(stream.functions.is_empty());
    }
}

#[test]
fn changed_bytes_do_no_harm() {
    let mut chance = Chance::new(11);
    let (mut functions, mut inlines) = (0, 0);
    for layout in layouts() {
        let bytes = table(layout);
        for round in 0..400 {
            let mut changed = bytes.clone();
            for _ in 0..1 + chance.below(1 << (round % 5)) {
                let at = chance.below(bytes.len() as u64) as usize;
                changed[at] = match chance.below(4) {
                    0 => 0,
                    1 => 0xff,
                    2 => changed[at] ^ (1 << chance.below(8)),
                    _ => chance.next() as u8,
                };
            }
            let stream = stream_of(&changed, layout);
            functions += stream.functions.len();
            inlines += stream.statistics.inlines;
        }
        for length in 0..bytes.len() {
            stream_of(&bytes[..length], layout);
        }
    }
    println!("{functions} functions with {inlines} inlined calls in changed tables");
    assert!(functions > 1000 && inlines > 1000);
}

/// `SYMSEAL_WRITE_SEEDS=1 cargo test --release -p symseal-artifact --test artifact go_table` writes them anew.
#[test]
fn the_seeds_of_the_fuzz_target_are_these_tables() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/pclntab");
    for layout in layouts() {
        let Layout { release, is_64, is_little_endian } = layout;
        let (size, order) = (if is_64 { 64 } else { 32 }, if is_little_endian { "le" } else { "be" });
        let mut seed = vec![u8::from(is_64) | u8::from(is_little_endian) << 1];
        seed.extend(table(layout));
        let path = folder.join(format!("go{release}-{size}-{order}"));
        if std::env::var_os("SYMSEAL_WRITE_SEEDS").is_some() {
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(&path, &seed).expect("a seed");
        }
        assert!(std::fs::read(&path).expect("a seed") == seed, "{} is out of date", path.display());
    }
}

#[test]
fn a_circle_of_inlined_calls_is_left() {
    for layout in layouts().into_iter().filter(|layout| layout.release == 120) {
        let bytes = table(layout);
        let file = elf_around(&bytes, layout.is_64, layout.is_little_endian);
        let object = ObjectFile::parse(&file).expect("an object");
        assert!(functions(&object, &DebugFiles::default()).is_ok());
        // `main.inner` is called where `main.leaf` is.
        let call = if layout.is_little_endian { 0x20_u32.to_le_bytes() } else { 0x20_u32.to_be_bytes() };
        let places: Vec<usize> = (0..bytes.len() - 4).filter(|at| bytes[*at..at + 4] == call).collect();
        let mut found = 0;
        for place in places {
            let mut changed = bytes.clone();
            let other = if layout.is_little_endian { 0x15_u32.to_le_bytes() } else { 0x15_u32.to_be_bytes() };
            changed[place..place + 4].copy_from_slice(&other);
            let stream = stream_of(&changed, layout);
            found += stream.statistics.skipped.get("damaged inlined call of Go's table").copied().unwrap_or(0);
        }
        assert!(found > 0, "{layout:?}");
    }
}

#[test]
fn functions_that_share_one_long_table_do_not_fill_the_memory() {
    // 40,000 functions with 100,000 rows each would be four thousand million.
    const FUNCTIONS: u64 = 40_000;
    let layout = Layout { release: 120, is_64: true, is_little_endian: true };
    let small = table(layout);
    let word = |at: usize| u64::from_le_bytes(small[at..at + 8].try_into().expect("a word"));
    assert_eq!(word(8), 2);
    let mut bytes = small[..72].to_vec();
    bytes[8..16].copy_from_slice(&FUNCTIONS.to_le_bytes());
    // Names, units, files, pc tables, functions: one behind the other, and the module data at the end.
    let place = |bytes: &mut Vec<u8>, number: usize| {
        let offset = bytes.len() as u64;
        bytes[32 + number * 8..40 + number * 8].copy_from_slice(&offset.to_le_bytes());
        offset
    };
    let names = place(&mut bytes, 0);
    bytes.extend(b"main.main\0\0\0\0\0\0\0");
    let units = place(&mut bytes, 1);
    bytes.extend([0; 8]);
    let files = place(&mut bytes, 2);
    bytes.extend(b"/src/a.go\0\0\0\0\0\0\0");
    let pc_tables = place(&mut bytes, 3);
    bytes.push(0);
    for number in 0..100_000 {
        // One line up or down, no byte of code: all rows lie in the function's first bytes.
        bytes.extend(if number == 0 { [4, 0] } else { [2 - (number % 2) as u8, u8::from(number % 4 == 0)] });
    }
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let index = place(&mut bytes, 4);
    let records = (FUNCTIONS * 2 + 1) * 4;
    for number in 0..FUNCTIONS as u32 {
        bytes.extend(number.to_le_bytes());
        bytes.extend((records as u32 + number * 44).to_le_bytes());
    }
    bytes.extend((FUNCTIONS as u32).to_le_bytes());
    for number in 0..FUNCTIONS as u32 {
        for value in [number, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0] {
            bytes.extend(value.to_le_bytes());
        }
    }
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let base = support::go_table::TABLE;
    for number in 0..48_u64 {
        let value = match number {
            0 => base,
            1 => base + names,
            4 => base + units,
            7 => base + files,
            10 => base + pc_tables,
            13 | 16 => base + index,
            17 => FUNCTIONS + 1,
            20 | 22 => TEXT,
            _ => 0,
        };
        bytes.extend(value.to_le_bytes());
    }
    let start = Instant::now();
    let stream = stream_of(&bytes, layout);
    println!("{} bytes: {:?} in {:?}", bytes.len(), stream.statistics, start.elapsed());
    assert!(stream.statistics.rows < 4 * bytes.len() as u64);
    assert!(start.elapsed() < Duration::from_secs(20));
}
