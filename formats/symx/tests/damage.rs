//! Damaged tables are refused, or answer within bounds; nothing panics.

use crate::model::{Module, module};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use symseal_module::{Rva, Svma};
use symseal_symx::{
    ContextForm, Form, FunctionFlags, FunctionRecord, InlineSite, NO_INLINE, NameForm, OpenError, RecordForm, Row,
    Strings, SymbolSource, Table,
};

/// Asks a table everything, and lets nothing but a panic fail.
fn exercise(bytes: &[u8]) {
    let Ok(table) = Table::open(bytes) else { return };
    let verified = table.verify().is_ok();
    let _ = (table.counts(), table.producer(), table.debug_id());
    for address in [0, 1, 0x10, 0x100, 0x1000, 0x1fff, 0x1_0000_0000, u64::MAX] {
        if let Some(hit) = table.lookup(Rva(address)) {
            let (frames, range, function) = (hit.frames().count(), hit.range(), hit.function());
            assert!(frames <= 1024);
            assert!(!verified || (range.contains(&Rva(address)) && function.start <= range.start));
        }
    }
    for function in table.functions() {
        let _ = (function.name.text(), function.aliases().map(|alias| alias.text().len()).sum::<usize>());
    }
    for hit in table.rows() {
        let _ = (hit.range(), hit.frames().map(|frame| frame.symbol.text().len()).sum::<usize>());
    }
}

/// CRC-32C, bit by bit: an implementation of its own.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ 0x82f6_3b78 & (crc & 1).wrapping_neg())
    })
}

/// Makes the checksums right again, as somebody with intent would.
fn reseal(bytes: &mut [u8]) {
    let count = u16::from_le_bytes([bytes[58], bytes[59]]) as usize;
    for entry in 0..count {
        let at = 136 + entry * 32;
        let Some(record) = bytes.get(at..at + 32) else { return };
        let number = |from: usize| u64::from_le_bytes(record[from..from + 8].try_into().expect("8 bytes")) as usize;
        let Some(section) = number(8).checked_add(number(16)).and_then(|end| bytes.get(number(8)..end)) else {
            continue;
        };
        let crc = crc32c(section);
        bytes[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
    }
    let Some(header) = bytes.get(..136 + count * 32) else { return };
    let mut header = header.to_vec();
    header[128..132].fill(0);
    bytes[128..132].copy_from_slice(&crc32c(&header).to_le_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_flipped_byte_is_refused(module in module(), seed in any::<u64>()) {
        let bytes = module.write();
        for step in 0..64 {
            let at = (seed.wrapping_mul(step * 2 + 1) % bytes.len() as u64) as usize;
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (seed % 8);
            let refused = Table::open(&damaged).map(|table| table.verify().is_err()).unwrap_or(true);
            prop_assert!(refused, "byte {at} of {}", bytes.len());
            exercise(&damaged);
        }
    }

    #[test]
    fn tables_changed_with_intent_neither_panic_nor_leave_their_bounds(
        module in module(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let mut bytes = module.write();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        reseal(&mut bytes);
        exercise(&bytes);
    }

    #[test]
    fn truncated_tables_are_refused(module in module(), cut in any::<prop::sample::Index>()) {
        let bytes = module.write();
        prop_assert!(Table::open(&bytes[..cut.index(bytes.len())]).is_err());
        let mut longer = bytes;
        longer.push(0);
        let size = longer.len() as u64;
        prop_assert_eq!(Table::open(&longer).err(), Some(OpenError::Size { expected: size - 1, found: size }));
    }

    #[test]
    fn random_bytes_behind_a_right_beginning_do_no_harm(mut bytes in proptest::collection::vec(any::<u8>(), 136..900)) {
        let size = bytes.len() as u64;
        bytes[..4].copy_from_slice(b"SYMX");
        bytes[4..8].copy_from_slice(&[1, 0, 0, 0]);
        bytes[8..16].copy_from_slice(&size.to_le_bytes());
        bytes[58] %= 20;
        bytes[59] = 0;
        reseal(&mut bytes);
        exercise(&bytes);
    }
}

#[test]
fn what_is_no_table_is_named_as_such() {
    assert_eq!(Table::open(b"").err(), Some(OpenError::Magic));
    assert_eq!(Table::open(b"\x7fELF").err(), Some(OpenError::Magic));
    assert_eq!(Table::open(b"SYMX").err(), Some(OpenError::Size { expected: 136, found: 4 }));
}

#[test]
fn a_later_version_and_an_unknown_flag_are_refused_and_an_unknown_section_is_not() {
    let mut strategy = proptest::test_runner::TestRunner::deterministic();
    let module: Module = module().new_tree(&mut strategy).expect("a module").current();
    let form = Form { names: NameForm::Whole, contexts: ContextForm::Whole, records: RecordForm::Whole };
    let bytes = Module { form, ..module }.write();
    let with = |at: usize, value: u8| {
        let mut changed = bytes.clone();
        changed[at] = value;
        reseal(&mut changed);
        Table::open(&changed).map(|_| ()).err()
    };
    assert_eq!(with(4, 2), Some(OpenError::Version { found: 2 }));
    assert_eq!(with(6, 0x10), Some(OpenError::Header { field: "flag" }));
    // Tight fields are not wide.
    assert_eq!(with(6, 0x09), Some(OpenError::Header { field: "flag" }));
    assert_eq!(with(132, 1), Some(OpenError::Header { field: "reserved field" }));
    // The last section becomes one that nobody knows; then a known one is missing.
    let last = 136 + 13 * 32;
    assert_eq!(with(last, 99), Some(OpenError::Section { id: 14, problem: "is missing" }));
}

/// Where section `id` lies.
fn section(bytes: &[u8], id: u32) -> std::ops::Range<usize> {
    let entries = bytes[136..].chunks(32).take(bytes[58].into());
    let entry = entries.into_iter().find(|entry| entry[..4] == id.to_le_bytes()).expect("a section");
    let number = |from: usize| u64::from_le_bytes(entry[from..from + 8].try_into().expect("8 bytes")) as usize;
    number(8)..number(8) + number(16)
}

#[test]
fn impossible_sites_are_found_and_lead_nowhere() {
    const CONTEXTS: u32 = 5;
    const OWNERS: u32 = 16;
    const SITES: u32 = 17;
    let bytes = module_with_a_call().write();
    let frames = |bytes: &[u8], address| {
        let table = Table::open(bytes).expect("it opens");
        let hit = table.lookup(Rva(address)).expect("a row");
        (table.verify().err().map(|fault| fault.section), hit.frames().count(), hit.function().size)
    };
    let [own, inlined] = [0x1000, 0x1008];
    assert_eq!((frames(&bytes, own), frames(&bytes, inlined)), ((None, 1, 0x20), (None, 2, 0x20)));
    let with = |id: u32, change: &dyn Fn(&mut [u8])| {
        let mut changed = bytes.clone();
        let range = section(&changed, id);
        change(&mut changed[range]);
        reseal(&mut changed);
        changed
    };
    // A distance of 0 would be a context inlined into itself. The row has no frames then, and a function of which nothing is known.
    let to_itself = with(SITES, &|records| records.fill(0));
    assert_eq!(frames(&to_itself, inlined), (Some(SITES), 0, 0x18));
    // An owner that is a function which is not there.
    let of_nobody = with(OWNERS, &|records| records[0] = 0xff);
    assert_eq!(frames(&of_nobody, own).0, Some(OWNERS));
    // Of codes 0 and 1 both become 1: the function's own code would be inlined into what comes before everything.
    let before_all = with(CONTEXTS, &|codes| codes[16] = 0b11);
    assert_eq!(frames(&before_all, own), (Some(CONTEXTS), 0, 8));
    // Something behind the last record.
    let behind = with(SITES, &|records| *records.last_mut().expect("a byte") = 1);
    assert_eq!(frames(&behind, inlined), (Some(SITES), 2, 0x20));
    // Codes of no bits: many contexts in no bytes.
    let mut empty = bytes.clone();
    let codes = section(&empty, CONTEXTS);
    empty[codes.start] = 0;
    reseal(&mut empty);
    assert!(matches!(Table::open(&empty), Err(OpenError::Section { id: CONTEXTS, .. })));
    // Sites without the flag that asks for them.
    let mut unasked = bytes.clone();
    unasked[6] = 0;
    reseal(&mut unasked);
    assert!(Table::open(&unasked).is_err());
}

#[test]
fn impossible_tight_rows_are_found_and_lead_nowhere() {
    const BLOCKS: u32 = 3;
    const ROWS: u32 = 4;
    const CONTEXTS: u32 = 5;
    const FUNCTIONS: u32 = 7;
    let module = module_with_a_call();
    let bytes = Module { form: Form { records: RecordForm::Tight, ..module.form }, ..module }.write();
    let fault = |bytes: &[u8]| Table::open(bytes).expect("it opens").verify().err().map(|fault| fault.section);
    assert_eq!(fault(&bytes), None);
    let with = |id: u32, change: &dyn Fn(&mut [u8])| {
        let mut changed = bytes.clone();
        let range = section(&changed, id);
        change(&mut changed[range]);
        reseal(&mut changed);
        exercise(&changed);
        changed
    };
    let hit = |bytes: &[u8], address| Table::open(bytes).expect("it opens").lookup(Rva(address)).is_some();
    assert!(hit(&bytes, 0x1000) && hit(&bytes, 0x1008) && !hit(&bytes, 0x1020));
    // Three rows begin at 0, 8 and 0x20. High parts without a one: there is no row.
    let no_rows = with(ROWS, &|rows| rows[..8].fill(0));
    assert_eq!((fault(&no_rows), hit(&no_rows, 0x1008)), (Some(ROWS), false));
    // More ones than rows.
    let too_many = with(ROWS, &|rows| rows[..8].fill(0xff));
    assert_eq!((fault(&too_many), hit(&too_many, 0x1008)), (Some(ROWS), false));
    // Something behind the last record.
    assert_eq!(fault(&with(BLOCKS, &|records| *records.last_mut().expect("a byte") = 1)), Some(BLOCKS));
    assert_eq!(fault(&with(FUNCTIONS, &|records| *records.last_mut().expect("a byte") = 1)), Some(FUNCTIONS));
    // Widths of fields that are not there, and reserved bytes: of places, where contexts are in sites, and the last ones.
    for at in [16 + 14, 16 + 20, 16 + 23] {
        let changed = with(CONTEXTS, &|widths| widths[at] = 1);
        assert!(matches!(Table::open(&changed), Err(OpenError::Section { id: CONTEXTS, .. })), "{at}");
    }
    // Fields wider than 32 bits.
    let wide = with(CONTEXTS, &|widths| widths[16] = 33);
    assert!(matches!(Table::open(&wide), Err(OpenError::Section { id: FUNCTIONS, .. })));
}

/// One function with one call, in sites.
fn module_with_a_call() -> Module {
    let mut strings = Strings::new();
    let [f, g, file] = ["f", "g", "a.c"].map(|text| strings.intern(text));
    let row = |start, line, inline| Row { start: Rva(start), file, line, column: 0, inline };
    let call = InlineSite { parent: NO_INLINE, name: g, symbol: g, call_file: file, call_line: 77, call_column: 0 };
    let function = FunctionRecord {
        start: Rva(0x1000),
        size: 0x20,
        name: f,
        symbol: f,
        aliases: Vec::new(),
        source: SymbolSource::Dwarf,
        flags: FunctionFlags::default(),
        file,
        line: 10,
        rows: vec![row(0x1000, 11, NO_INLINE), row(0x1008, 3, 0)],
        inlines: vec![call],
    };
    Module {
        debug_id: "abcdef".parse().expect("an id"),
        image_base: Svma(0),
        producer: "test".into(),
        strings,
        functions: vec![function],
        form: Form { names: NameForm::Whole, contexts: ContextForm::InSites, records: RecordForm::Whole },
    }
}

#[test]
fn any_change_of_packed_records_with_intent_does_no_harm() {
    let mut strategy = proptest::test_runner::TestRunner::deterministic();
    let module: Module = module().new_tree(&mut strategy).expect("a module").current();
    let sited = Form { names: NameForm::Whole, contexts: ContextForm::InSites, records: RecordForm::Whole };
    let tight = Form { records: RecordForm::Tight, ..sited };
    let tight_and_whole = Form { contexts: ContextForm::Whole, ..tight };
    for (form, sections) in
        [(sited, &[5, 6, 16, 17][..]), (tight, &[3, 4, 5, 6, 7, 16, 17]), (tight_and_whole, &[3, 4, 5, 6, 7])]
    {
        let bytes = Module { form, ..module.clone() }.write();
        for at in sections.iter().flat_map(|id| section(&bytes, *id)) {
            for flip in [0x01, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                reseal(&mut changed);
                exercise(&changed);
            }
        }
    }
}
