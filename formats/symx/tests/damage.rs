//! Damaged tables are refused, or answer within bounds; nothing panics.

use crate::model::{Module, module};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use symseal_module::Rva;
use symseal_symx::{ContextForm, Form, NameForm, OpenError, Table};

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
    let form = Form { names: NameForm::Whole, contexts: ContextForm::Whole };
    let bytes = Module { form, ..module }.write();
    let with = |at: usize, value: u8| {
        let mut changed = bytes.clone();
        changed[at] = value;
        reseal(&mut changed);
        Table::open(&changed).map(|_| ()).err()
    };
    assert_eq!(with(4, 2), Some(OpenError::Version { found: 2 }));
    assert_eq!(with(6, 0x08), Some(OpenError::Header { field: "flag" }));
    assert_eq!(with(132, 1), Some(OpenError::Header { field: "reserved field" }));
    // The last section becomes one that nobody knows; then a known one is missing.
    let last = 136 + 13 * 32;
    assert_eq!(with(last, 99), Some(OpenError::Section { id: 14, problem: "is missing" }));
}
