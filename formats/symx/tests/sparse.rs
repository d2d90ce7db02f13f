//! A table of which only some bytes are read answers as the whole one does.

use crate::model::{Module, module};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use std::collections::BTreeSet;
use symseal_module::Rva;
use symseal_symx::{
    ContextForm, Form, Frame, NameForm, OpenError, ReadAt, RecordForm, SparseFrame, SparseHit, SparseTable, Table,
};

/// Counts what is read.
struct Counted<'a> {
    bytes: &'a [u8],
    read: usize,
}

impl ReadAt for Counted<'_> {
    type Error = OpenError;

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<(), OpenError> {
        self.read += into.len();
        self.bytes.read_at(offset, into)
    }
}

/// Remembers which bytes are read.
struct Recorded<'a> {
    bytes: &'a [u8],
    read: BTreeSet<usize>,
}

impl ReadAt for Recorded<'_> {
    type Error = OpenError;

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<(), OpenError> {
        self.read.extend((offset as usize..).take(into.len()));
        self.bytes.read_at(offset, into)
    }
}

fn owned(frame: Frame<'_>) -> SparseFrame {
    SparseFrame {
        function: frame.function.to_string(),
        symbol: frame.symbol.to_string(),
        file: frame.file.to_owned(),
        line: frame.line,
        column: frame.column(),
        inlined: frame.inlined,
    }
}

/// Bytes of header and directory.
fn head_bytes(bytes: &[u8]) -> usize {
    136 + 32 * usize::from(bytes[58])
}

/// The two readers say the same at `address`.
fn compare(table: &Table<'_>, sparse: &SparseTable, bytes: &[u8], address: u64) -> Result<(), TestCaseError> {
    let found = sparse.lookup(&mut &*bytes, Rva(address)).expect("it lies in the file");
    let whole = table.lookup(Rva(address));
    let shown = |found: SparseHit| {
        let function = found.function;
        (function.start, function.size, function.name, function.symbol, function.source, function.flags)
    };
    let frames: Option<Vec<SparseFrame>> = whole.map(|hit| hit.frames().map(owned).collect());
    prop_assert_eq!(found.as_ref().map(|hit| hit.frames.clone()), frames, "at {:#x}", address);
    prop_assert_eq!(found.as_ref().map(|hit| hit.range.clone()), whole.map(|hit| hit.range()), "at {:#x}", address);
    let function = whole.map(|hit| hit.function());
    let range = whole.map(|hit| hit.function_range());
    assert_eq!(
        function.map(|function| (function.start, function.size, function.source, function.flags)),
        range.map(|range| (range.start, range.size, range.source, range.flags))
    );
    let function = function.map(|f| (f.start, f.size, f.name.to_string(), f.symbol.to_string(), f.source, f.flags));
    prop_assert_eq!(found.map(shown), function, "at {:#x}", address);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_that_of_the_whole_table(module in module()) {
        let bytes = module.write();
        let table = Table::open(&bytes).expect("it opens");
        let sparse = SparseTable::open(bytes.len() as u64, &mut &*bytes).expect("it opens");
        prop_assert_eq!((sparse.debug_id(), sparse.image_base()), (table.debug_id(), table.image_base()));
        for answer in module.answers() {
            for address in [answer.start, answer.end - 1, answer.end] {
                compare(&table, &sparse, &bytes, address)?;
            }
        }
        compare(&table, &sparse, &bytes, u64::MAX)?;
    }

    #[test]
    fn a_damaged_table_is_refused_or_read_as_the_whole_one_is(module in module(), flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..6)) {
        let mut bytes = module.write();
        let head = head_bytes(&bytes);
        for (at, flip) in flips {
            let at = head + at.index(bytes.len() - head);
            bytes[at] ^= flip;
        }
        let sparse = SparseTable::open(bytes.len() as u64, &mut &*bytes);
        let table = Table::open(&bytes);
        prop_assert_eq!(sparse.is_ok(), table.is_ok());
        if let (Ok(sparse), Ok(table)) = (sparse, table) {
            for address in (0..0x400).chain([0x1000, 0x1fff, 0x1_0000_0000, u64::MAX]) {
                compare(&table, &sparse, &bytes, address)?;
            }
        }
    }

    #[test]
    fn a_table_cut_short_is_refused(module in module(), cut in any::<prop::sample::Index>()) {
        let bytes = module.write();
        let cut = &bytes[..cut.index(bytes.len())];
        prop_assert!(SparseTable::open(cut.len() as u64, &mut &*cut).is_err());
    }
}

/// Every form of a table.
fn forms() -> impl Iterator<Item = Form> {
    let names = [NameForm::Whole, NameForm::InPhrases];
    let contexts = [ContextForm::Whole, ContextForm::InSites];
    let names_and_contexts = names.into_iter().flat_map(move |names| contexts.map(|contexts| (names, contexts)));
    names_and_contexts.flat_map(|(names, contexts)| {
        [RecordForm::Whole, RecordForm::Tight].map(|records| Form { names, contexts, records })
    })
}

/// Some of `all`, at most `most`, evenly spread and not the same for each `seed`.
fn some_of(all: &[u64], most: usize, seed: usize) -> impl Iterator<Item = u64> {
    let step = all.len().div_ceil(most).max(1);
    all.iter().skip(seed % step).step_by(step).copied()
}

/// Every byte is damaged, in three ways. To ask for every address each time takes minutes and tells nothing new: what a reader answers depends on the
/// bytes that it reads. Asked are addresses whose lookup reads the byte, and a few others, in case one reader reads what the other does not.
#[test]
fn damage_in_any_byte_is_refused_or_read_as_the_whole_table_is() {
    const READING: usize = 12;
    const OTHERS: usize = 4;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for form in forms() {
        let module = Module { form, ..module().new_tree(&mut runner).unwrap().current() };
        let bytes = module.write();
        let addresses: Vec<u64> = module.answers().iter().map(|answer| answer.start).collect();
        let sparse = SparseTable::open(bytes.len() as u64, &mut &*bytes).expect("it opens");
        let mut readers = vec![Vec::new(); bytes.len()];
        for address in &addresses {
            let mut source = Recorded { bytes: &bytes, read: BTreeSet::new() };
            sparse.lookup(&mut source, Rva(*address)).expect("it lies in the file");
            source.read.into_iter().for_each(|at| readers[at].push(*address));
        }
        let mut damaged = bytes.clone();
        for at in 0..bytes.len() {
            for flip in [0x01, 0x80, 0xff] {
                damaged[at] = bytes[at] ^ flip;
                let sparse = SparseTable::open(damaged.len() as u64, &mut &*damaged);
                let table = Table::open(&damaged);
                assert_eq!(sparse.is_ok(), table.is_ok(), "byte {at} ^ {flip}");
                let (Ok(sparse), Ok(table)) = (sparse, table) else { continue };
                assert!(at >= head_bytes(&bytes), "damage in the header is refused: byte {at} ^ {flip}");
                for address in some_of(&readers[at], READING, at).chain(some_of(&addresses, OTHERS, at)) {
                    compare(&table, &sparse, &damaged, address)
                        .unwrap_or_else(|error| panic!("byte {at} ^ {flip}: {error}"));
                }
            }
            damaged[at] = bytes[at];
        }
    }
}

#[test]
fn a_lookup_reads_a_small_part_of_a_large_table() {
    use symseal_symx::{FunctionFlags, FunctionRecord, Row, Strings, SymbolSource, TableInput, write_as};
    let mut strings = Strings::new();
    let functions: Vec<FunctionRecord> = (0..20_000u32)
        .map(|n| {
            let name = strings.intern(&format!("a_function_with_the_number_{n}"));
            let file = strings.intern(&format!("/src/file_{}.c", n / 100));
            FunctionRecord {
                start: Rva(u64::from(n) * 64),
                size: 64,
                name,
                symbol: name,
                file,
                line: n + 1,
                source: SymbolSource::Dwarf,
                flags: FunctionFlags::default(),
                aliases: Vec::new(),
                inlines: Vec::new(),
                rows: (0..4)
                    .map(|row| Row {
                        start: Rva(u64::from(n) * 64 + row * 16),
                        file,
                        line: n + row as u32,
                        column: 0,
                        inline: symseal_symx::NO_INLINE,
                    })
                    .collect(),
            }
        })
        .collect();
    let input = TableInput {
        debug_id: &symseal_module::DebugId::from_build_id(&[1; 20]).expect("20 bytes"),
        image_base: symseal_module::Svma(0),
        source_sha256: [7; 32],
        producer: "test",
        strings: &strings,
        functions: &functions,
    };
    for form in forms() {
        let most = if form.names == NameForm::Whole { 1 } else { 2 };
        let bytes = write_as(&input, form).expect("it can be written");
        let mut source = Counted { bytes: &bytes, read: 0 };
        let sparse = SparseTable::open(bytes.len() as u64, &mut source).expect("it opens");
        let hit = sparse.lookup(&mut source, Rva(64 * 12_345 + 20)).expect("it is read").expect("a function");
        assert_eq!(hit.function.name, "a_function_with_the_number_12345");
        assert!(source.read < most * 2 * 1024, "{} of {} bytes were read", source.read, bytes.len());

        let address = Rva(64 * 12_345 + 20);
        let block = sparse.block_of(&mut source, address).expect("it is read");
        for guess in [block, Some(0), Some(u64::MAX), None] {
            assert_eq!(
                sparse.lookup_near(&mut source, address, guess).expect("it is read").as_ref(),
                Some(&hit),
                "{guess:?}"
            );
        }
        source.read = 0;
        sparse.lookup_near(&mut source, address, block).expect("it is read");
        assert!(source.read < most * 1024, "{} bytes were read", source.read);
    }
}
