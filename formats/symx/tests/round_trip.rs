//! What is written is read.

use crate::model::{Answer, Module, frames_of, module};
use proptest::prelude::*;
use symseal_module::{DebugId, Rva, Svma};
use symseal_symx::{
    ContextForm, Form, FunctionFlags, FunctionRecord, InlineSite, NO_INLINE, NameForm, RecordForm, Row, SparseTable,
    StrId, Strings, SymbolSource, Table, WriteError,
};

fn stream(table: &Table<'_>, module: &Module) -> Vec<Answer> {
    let owner = |hit: &symseal_symx::Hit<'_>| {
        let start = hit.function().start;
        module.functions.iter().position(|function| function.start == start && function.size > 0).expect("its function")
    };
    let answer = |hit: symseal_symx::Hit<'_>| Answer {
        start: hit.range().start.0,
        end: hit.range().end.0,
        function: owner(&hit),
        frames: frames_of(hit),
    };
    table.rows().map(answer).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_stream_that_was_written_is_read(module in module()) {
        let bytes = module.write();
        let table = Table::open(&bytes).expect("it opens");
        table.verify().expect("it holds together");
        prop_assert_eq!(stream(&table, &module), module.answers());
    }

    #[test]
    fn header_and_functions_read_as_written(module in module()) {
        let bytes = module.write();
        let table = Table::open(&bytes).expect("it opens");
        prop_assert_eq!(table.debug_id(), module.debug_id.clone());
        prop_assert_eq!(table.image_base(), module.image_base);
        prop_assert_eq!(table.source_sha256(), [7; 32]);
        prop_assert_eq!(table.producer(), module.producer.as_str());
        prop_assert_eq!(table.functions().count(), module.functions.len());
        prop_assert_eq!(table.counts().functions, module.functions.len() as u64);
        for (read, written) in table.functions().zip(&module.functions) {
            let text = |id| module.strings.get(id);
            prop_assert_eq!((read.start, read.size), (written.start, written.size));
            let names = (read.name.text(), read.symbol.text());
            prop_assert_eq!((&*names.0, &*names.1, read.file), (text(written.name), text(written.symbol), text(written.file)));
            let mut buffer = b"left over".to_vec();
            prop_assert_eq!(read.name.text_in(&mut buffer), text(written.name));
            prop_assert_eq!(read.name.pieces().collect::<Vec<_>>().concat(), text(written.name).as_bytes());
            prop_assert_eq!((read.source, read.flags, read.line.unwrap_or(0)), (written.source, written.flags, written.line));
            prop_assert!(read.aliases().map(|alias| alias.to_string()).eq(written.aliases.iter().map(|alias| text(*alias))));
        }
    }

    #[test]
    fn lookups_equal_a_search_through_the_records(module in module(), elsewhere in any::<u64>()) {
        let bytes = module.write();
        let table = Table::open(&bytes).expect("it opens");
        let answers = module.answers();
        let edges = answers.iter().flat_map(|answer| [answer.start, answer.end]);
        let near = edges.flat_map(|edge| [edge.wrapping_sub(1), edge, edge + 1]);
        for address in near.chain([0, u64::MAX, elsewhere, elsewhere % 0x4000]) {
            let expected = answers.iter().find(|answer| (answer.start..answer.end).contains(&address));
            let found = table.lookup(Rva(address)).map(|hit| (hit.range(), hit.function().start, frames_of(hit)));
            let expected = expected.map(|answer| {
                let function = &module.functions[answer.function];
                (Rva(answer.start)..Rva(answer.end), function.start, answer.frames.clone())
            });
            prop_assert_eq!(found, expected, "at {:#x}", address);
        }
    }

    #[test]
    fn the_order_of_interning_leaves_no_trace(module in module()) {
        let mut renumbered = module.clone();
        renumbered.strings = Strings::new();
        renumbered.strings.intern("never used");
        for number in (1..module.strings.len() as u32).rev() {
            renumbered.strings.intern(module.strings.get(StrId(number)));
        }
        let mut other = renumbered.strings.clone();
        let mut renumber = |id: &mut StrId| *id = other.intern(module.strings.get(*id));
        for function in &mut renumbered.functions {
            [&mut function.name, &mut function.symbol, &mut function.file].into_iter().for_each(&mut renumber);
            function.aliases.iter_mut().for_each(&mut renumber);
            function.rows.iter_mut().for_each(|row| renumber(&mut row.file));
            for inline in &mut function.inlines {
                [&mut inline.name, &mut inline.symbol, &mut inline.call_file].into_iter().for_each(&mut renumber);
            }
        }
        prop_assert_eq!(renumbered.write(), module.write());
    }
}

fn one(function: FunctionRecord) -> Module {
    let mut strings = Strings::new();
    for text in ["f", "g", "a.c", "b.c"] {
        strings.intern(text);
    }
    Module {
        debug_id: "abcdef".parse().expect("an id"),
        image_base: Svma(0x40_0000),
        producer: "test".into(),
        strings,
        functions: vec![function],
        form: Form::default(),
    }
}

fn function(start: u64, size: u64) -> FunctionRecord {
    FunctionRecord {
        start: Rva(start),
        size,
        name: StrId(1),
        symbol: StrId(1),
        aliases: Vec::new(),
        source: SymbolSource::Dwarf,
        flags: FunctionFlags::default(),
        file: StrId(3),
        line: 10,
        rows: Vec::new(),
        inlines: Vec::new(),
    }
}

fn row(start: u64, line: u32, inline: u32) -> Row {
    Row { start: Rva(start), file: StrId(3), line, column: 0, inline }
}

#[test]
fn the_line_of_an_outer_frame_is_that_of_the_call() {
    let mut record = function(0x1000, 0x20);
    record.inlines = vec![InlineSite {
        parent: NO_INLINE,
        name: StrId(2),
        symbol: StrId(0),
        call_file: StrId(4),
        call_line: 77,
        call_column: 5,
    }];
    record.rows = vec![row(0x1000, 11, NO_INLINE), row(0x1008, 3, 0)];
    let bytes = one(record).write();
    let table = Table::open(&bytes).expect("it opens");
    let frames: Vec<_> = table.lookup(Rva(0x1009)).expect("a hit").frames().collect();
    let seen: Vec<_> = frames.iter().map(|frame| (frame.file, frame.line, frame.column())).collect();
    assert_eq!(seen, [("a.c", Some(3), None), ("b.c", Some(77), Some(5))]);
    assert!(frames.iter().map(|frame| frame.function.to_string()).eq(["g", "f"]));
}

#[test]
fn a_function_without_rows_is_found_without_a_line() {
    let bytes = one(function(0x1000, 0x20)).write();
    let table = Table::open(&bytes).expect("it opens");
    let hit = table.lookup(Rva(0x101f)).expect("a hit");
    let frame = hit.frames().next().expect("a frame");
    assert_eq!((&*frame.function.text(), frame.file, frame.line), ("f", "", None));
    assert_eq!((hit.function().file, hit.function().line), ("a.c", Some(10)));
    assert!(table.lookup(Rva(0xfff)).is_none() && table.lookup(Rva(0x1020)).is_none());
}

#[test]
fn addresses_above_4_gib_are_found() {
    let mut module = one(function(0x1000, 0x20));
    let mut far = function(0xffff_ffff_ffff_0000, 0x8000);
    far.rows = vec![row(0xffff_ffff_ffff_0010, 5, NO_INLINE)];
    module.functions.push(far);
    let bytes = module.write();
    let table = Table::open(&bytes).expect("it opens");
    table.verify().expect("it holds together");
    let line = |address| table.lookup(Rva(address)).map(|hit| hit.frames().next().and_then(|frame| frame.line));
    assert_eq!(line(0x1000), Some(None));
    assert_eq!(line(0xffff_ffff_ffff_0010), Some(Some(5)));
    assert_eq!((line(0x1_0000_1000), line(0xffff_ffff_ffff_8000)), (None, None));
}

#[test]
fn a_table_of_nothing_is_a_table() {
    let mut module = one(function(0, 0));
    module.functions.clear();
    let bytes = module.write();
    let table = Table::open(&bytes).expect("it opens");
    table.verify().expect("it holds together");
    assert!(table.lookup(Rva(0)).is_none() && table.rows().next().is_none());
    assert_eq!(table.debug_id(), "abcdef".parse::<DebugId>().expect("an id"));
}

#[track_caller]
fn check_refused(functions: Vec<FunctionRecord>, index: usize, rule: &str) {
    let mut module = one(function(0, 0));
    module.functions = functions;
    match symseal_symx::write(&module.input()) {
        Err(WriteError::Record { function, rule: found }) => {
            assert_eq!(function, index);
            assert!(found.contains(rule), "{found}");
        }
        other => panic!("expected a refused record, found {other:?}"),
    }
}

#[test]
fn records_that_break_a_rule_are_refused() {
    check_refused(vec![function(8, 8), function(12, 8)], 1, "end of its predecessor");
    check_refused(vec![function(8, 8), function(4, 2)], 1, "end of its predecessor");
    check_refused(vec![function(u64::MAX, 1)], 0, "below 2^64");
    let with_rows = |rows| FunctionRecord { rows, ..function(0x10, 0x10) };
    check_refused(vec![with_rows(vec![row(0x20, 1, NO_INLINE)])], 0, "within the function");
    check_refused(vec![with_rows(vec![row(0xf, 1, NO_INLINE)])], 0, "within the function");
    check_refused(vec![with_rows(vec![row(0x12, 1, NO_INLINE), row(0x11, 1, NO_INLINE)])], 0, "sorted");
    check_refused(vec![with_rows(vec![row(0x12, 1, 0)])], 0, "that exist");
    let mut looped = with_rows(vec![row(0x12, 1, 0)]);
    let site = |parent| InlineSite {
        parent,
        name: StrId(1),
        symbol: StrId(1),
        call_file: StrId(0),
        call_line: 0,
        call_column: 0,
    };
    looped.inlines = vec![site(0)];
    check_refused(vec![looped.clone()], 0, "before them");
    looped.inlines = (0..2000).map(|index: u32| site(index.checked_sub(1).unwrap_or(NO_INLINE))).collect();
    looped.rows = vec![row(0x12, 1, 1999)];
    check_refused(vec![looped], 0, "1023 inlined calls");
}

#[test]
fn a_function_start_without_a_name_is_found_and_names_nothing() {
    let mut record = function(0x1000, 0x20);
    (record.name, record.symbol, record.file, record.line) = (StrId::EMPTY, StrId::EMPTY, StrId::EMPTY, 0);
    (record.source, record.flags.approximate) = (SymbolSource::FunctionStarts, true);
    let bytes = one(record).write();
    let table = Table::open(&bytes).expect("it opens");
    table.verify().expect("it holds together");
    let hit = table.lookup(Rva(0x1009)).expect("a hit");
    assert_eq!((hit.function().start, hit.function().source), (Rva(0x1000), SymbolSource::FunctionStarts));
    assert!(hit.function().flags.approximate);
    let frames: Vec<_> = hit.frames().collect();
    assert!(
        matches!(&frames[..], [frame] if frame.function.is_empty() && frame.symbol.is_empty() && frame.file.is_empty() && frame.line.is_none())
    );
}

/// `count` functions whose names share much, as those of large programs do.
fn large(count: u64) -> Module {
    let mut module = one(function(0, 0x10));
    module.functions.clear();
    for n in 0..count {
        let name = format!("größe::module_{}::Type<alloc::vec::Vec<u8>, {n}>::method_{}", n % 97, n * n % 1013);
        let symbol = format!(
            "_ZN6gr\u{f6}sse9module_{:02}4Type6method17h{:016x}E",
            n % 97,
            n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        );
        let (name, symbol) = (module.strings.intern(&name), module.strings.intern(&symbol));
        module.functions.push(FunctionRecord { name, symbol, aliases: vec![name], ..function(n * 0x10, 0x10) });
    }
    module
}

/// The header's flag of tight records.
const TIGHT: u8 = 8;

#[test]
fn tight_records_say_the_same_in_fewer_bytes_and_wide_tables_have_none() {
    let mut module = large(2_000);
    for (function, line) in module.functions.iter_mut().zip(900u32..) {
        // Lines of one function lie near each other, and those of its neighbours do not.
        let line = line * 37 % 5_000 + 1;
        let start = function.start.0;
        function.rows = [(0, line), (3, line + 2), (7, line + 1), (8, 0), (15, line + 9)]
            .map(|(offset, line)| row(start + offset, line, NO_INLINE))
            .into();
    }
    let whole = Module { form: Form { records: RecordForm::Whole, ..module.form }, ..module.clone() }.write();
    let tight = module.write();
    assert_eq!((tight[6], whole[6]), (TIGHT, 0), "flags");
    let [tight, whole] = [&tight, &whole].map(|bytes| Table::open(bytes).expect("it opens"));
    tight.verify().expect("it holds together");
    assert!(tight.rows().map(frames_of).eq(whole.rows().map(frames_of)));
    assert_eq!((tight.counts().rows, tight.counts().places), (whole.counts().rows, whole.counts().places));
    let without_names = |table: &Table<'_>| table.counts().core_bytes - table.counts().string_bytes;
    let (tight, whole) = (without_names(&tight), without_names(&whole));
    assert!(tight * 5 < whole * 3, "{tight} of {whole}");
    module.functions.push(function(1 << 32, 16));
    assert_eq!(module.write()[6], 1, "a wide table has no tight fields");
}

#[test]
fn few_symbols_that_differ_from_their_names_are_kept_apart_and_read_the_same() {
    // The section of pairs is the last one: 24 bytes into its entry of the directory is how many there are.
    let pairs = |bytes: &[u8]| {
        let entry = 136 + 32 * (usize::from(bytes[58]) - 1);
        (bytes[entry], u64::from_le_bytes(bytes[entry + 24..entry + 32].try_into().expect("8 bytes")))
    };
    let mut module = large(600);
    for (number, function) in module.functions.iter_mut().enumerate() {
        (function.symbol, function.aliases) = (function.name, Vec::new());
        if number % 60 == 7 {
            function.symbol = module.strings.intern(&format!("{}.abi0", number));
            function.rows = vec![row(function.start.0, 5, NO_INLINE), row(function.start.0 + 4, 9, NO_INLINE)];
        }
        if number == 90 {
            function.symbol = StrId::EMPTY;
        }
    }
    for contexts in [ContextForm::Whole, ContextForm::InSites] {
        let module = Module { form: Form { contexts, ..Form::default() }, ..module.clone() };
        let bytes = module.write();
        assert_eq!(pairs(&bytes), (18, 11));
        let table = Table::open(&bytes).expect("it opens");
        table.verify().expect("it holds together");
        let sparse = SparseTable::open(bytes.len() as u64, &mut &*bytes).expect("it opens");
        assert_eq!(stream(&table, &module), module.answers());
        for (read, written) in table.functions().zip(&module.functions) {
            let (name, symbol) = (module.strings.get(written.name), module.strings.get(written.symbol));
            assert_eq!((&*read.name.text(), &*read.symbol.text()), (name, symbol));
            let hit = sparse.lookup(&mut &*bytes, written.start).expect("bytes").expect("a function");
            assert_eq!((&*hit.function.name, &*hit.function.symbol), (name, symbol));
            assert_eq!((&*hit.frames[0].function, &*hit.frames[0].symbol), (name, symbol));
        }
    }
    // Where most differ, a pair each would take more.
    assert_eq!(pairs(&large(600).write()), (18, 0));
}

#[test]
fn many_names_are_in_phrases_and_read_the_same() {
    const PHRASED: u8 = 2;
    let module = large(12_000);
    let bytes = module.write();
    assert_eq!(bytes[6], PHRASED | TIGHT, "flags");
    let table = Table::open(&bytes).expect("it opens");
    table.verify().expect("it holds together");
    for (read, written) in table.functions().zip(&module.functions) {
        assert_eq!(read.name, module.strings.get(written.name));
        assert_eq!(read.symbol, module.strings.get(written.symbol));
        assert!(read.aliases().eq([read.name]));
    }
    let form = Form { names: NameForm::Whole, ..Form::default() };
    let whole = Module { form, ..module }.write();
    let strings = |bytes: &[u8]| Table::open(bytes).expect("it opens").counts().string_bytes;
    assert!(strings(&bytes) * 2 < strings(&whole), "{} of {}", strings(&bytes), strings(&whole));
    assert_eq!(large(100).write()[6], TIGHT, "few names are whole");
}

#[test]
fn many_contexts_are_in_sites_and_read_the_same() {
    const SITED: u8 = 4;
    let site = |parent, name, line| InlineSite {
        parent,
        name,
        symbol: name,
        call_file: StrId(4),
        call_line: line,
        call_column: 0,
    };
    // Each function has its own context and those of two calls, of which there are `kinds`.
    let with_calls = |count: u32, kinds: u32| {
        let mut module = one(function(0, 0x10));
        module.functions.clear();
        let callees: Vec<_> = (0..kinds).map(|kind| module.strings.intern(&format!("callee_{kind}"))).collect();
        for n in 0..count {
            let start = u64::from(n) * 0x10;
            let callee = callees[(n % kinds) as usize];
            let inlines = vec![site(NO_INLINE, callee, 100 + n % kinds), site(0, StrId(1), 7)];
            let rows = vec![row(start, n, NO_INLINE), row(start + 4, 30, 0), row(start + 8, 40, 1)];
            module.functions.push(FunctionRecord { inlines, rows, ..function(start, 0x10) });
        }
        module
    };
    let module = with_calls(30_000, 300);
    let bytes = module.write();
    assert_eq!(bytes[6], SITED | TIGHT, "flags");
    let table = Table::open(&bytes).expect("it opens");
    table.verify().expect("it holds together");
    let form = Form { contexts: ContextForm::Whole, ..Form::default() };
    let whole = Module { form, ..module }.write();
    let table_of_whole = Table::open(&whole).expect("it opens");
    assert!(table.rows().map(frames_of).eq(table_of_whole.rows().map(frames_of)));
    let (sited, whole) = (table.counts(), table_of_whole.counts());
    assert_eq!((sited.inlines, sited.rows, sited.functions), (whole.inlines, whole.rows, whole.functions));
    assert!(sited.core_bytes < whole.core_bytes, "{} of {}", sited.core_bytes, whole.core_bytes);
    assert_eq!(with_calls(1_000, 300).write()[6], TIGHT, "few contexts are whole");
    // As many calls of one function, each at a line of its own.
    let calls = 70_000;
    let inlines: Vec<_> = (0..calls).map(|n| site(NO_INLINE, StrId(2), n)).collect();
    let rows = (0..calls).map(|n| row(u64::from(n) * 4, 1, n)).collect();
    let bytes = one(FunctionRecord { inlines, rows, ..function(0, u64::from(calls) * 4) }).write();
    Table::open(&bytes).expect("it opens").verify().expect("it holds together");
    assert_eq!(bytes[6], TIGHT, "contexts that share nothing are whole");
}
