//! Columns of a table are as wide as its numbers need, and both widths say the same (docs/formats/uwt.md, "Flags").

use crate::elf;
use crate::elf::{Binary, Random};
use crate::hostile::crc32;
use symseal_module::Rva;
use symseal_unwind::{OpenError, Table};

const NARROW_ROW_RULES: u8 = 1;
const NARROW_BUCKETS: u8 = 2;
const BUCKETS: u32 = 3;
const ROW_RULES: u32 = 5;

/// The kinds of the sections of a table with their bytes.
fn sections(table: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let half = |at: usize| u32::from_le_bytes(table[at..at + 4].try_into().expect("four bytes"));
    let word = |at: usize| u64::from_le_bytes(table[at..at + 8].try_into().expect("eight bytes")) as usize;
    let entry = |at: usize| (half(at), table[word(at + 8)..word(at + 8) + word(at + 16)].to_vec());
    (0..half(12) as usize).map(|number| entry(96 + 24 * number)).collect()
}

/// A table with the head of another, its flags apart, and these sections.
fn table_of(head: &[u8], flags: u8, sections: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = head[..96].to_vec();
    bytes[7] = flags;
    bytes.resize(96 + 24 * sections.len(), 0);
    for (number, (kind, section)) in sections.iter().enumerate() {
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let at = bytes.len() as u64;
        let entry = &mut bytes[96 + 24 * number..][..24];
        entry[..4].copy_from_slice(&kind.to_le_bytes());
        entry[4..8].copy_from_slice(&crc32(section).to_le_bytes());
        entry[8..16].copy_from_slice(&at.to_le_bytes());
        entry[16..].copy_from_slice(&(section.len() as u64).to_le_bytes());
        bytes.extend(section);
    }
    let size = bytes.len() as u64;
    bytes[16..24].copy_from_slice(&size.to_le_bytes());
    bytes[8..12].fill(0);
    let crc = crc32(&bytes[..96 + 24 * sections.len()]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The same table without flags, as every table was before there were any.
fn widened(table: &[u8]) -> Vec<u8> {
    let mut sections = sections(table);
    for (kind, section) in &mut sections {
        let (flag, narrow, wide) = match *kind {
            BUCKETS => (NARROW_BUCKETS, 2, 4),
            ROW_RULES => (NARROW_ROW_RULES, 1, 2),
            _ => continue,
        };
        if table[7] & flag != 0 {
            let widen = |number: &[u8]| [number, &vec![0; wide - narrow]].concat();
            *section = section.chunks(narrow).flat_map(widen).collect();
        }
    }
    table_of(table, 0, &sections)
}

#[test]
fn a_table_without_flags_says_what_the_narrow_one_says() {
    // The loader has fewer than 256 rules, the C library more; both have fewer than 65,536 rows.
    for (path, flags) in [(elf::LOADER, NARROW_ROW_RULES | NARROW_BUCKETS), (elf::LIBC, NARROW_BUCKETS)] {
        let Some(binary) = Binary::read(path) else {
            elf::skip("libc6", path);
            continue;
        };
        let narrow_bytes = binary.compile().bytes;
        assert_eq!(narrow_bytes[7], flags, "{path}");
        assert_eq!(table_of(&narrow_bytes, flags, &sections(&narrow_bytes)), narrow_bytes, "{path}: as it was");
        let wide_bytes = widened(&narrow_bytes);
        assert!(narrow_bytes.len() < wide_bytes.len(), "{path}");
        let (narrow, wide) = (Table::open(&narrow_bytes).unwrap(), Table::open(&wide_bytes).unwrap());
        assert_eq!((narrow.verify(), wide.verify()), (Ok(()), Ok(())), "{path}");
        assert!(narrow.rows().eq(wide.rows()), "{path}: rows");
        assert!(narrow.rows().count() == narrow.counts().rows, "{path}: every row");
        let (start, end) = (narrow.text_start().0, narrow.text_end().0);
        let mut random = Random(8);
        for _ in 0..50_000 {
            let rva = Rva(start.saturating_sub(300) + random.below(end - start + 600));
            assert_eq!((narrow.rule(rva), narrow.slots(rva)), (wide.rule(rva), wide.slots(rva)), "{path}: {rva}");
        }
    }
}

#[test]
fn flags_that_do_not_fit_their_sections_or_that_nobody_knows_are_refused() {
    let Some(binary) = Binary::read(elf::LOADER) else { return elf::skip("libc6", elf::LOADER) };
    let table = binary.compile().bytes;
    for (flags, section) in [(NARROW_ROW_RULES, BUCKETS), (NARROW_BUCKETS, ROW_RULES), (0, BUCKETS)] {
        let other = table_of(&table, flags, &sections(&table));
        let found = Table::open(&other).map(|_| ());
        assert!(
            matches!(found, Err(OpenError::Section { kind }) if kind as u32 == section),
            "{flags}: {found:?}, not {section}"
        );
    }
    let newer = table_of(&table, table[7] | 4, &sections(&table));
    assert!(matches!(Table::open(&newer), Err(OpenError::Flags { found: 7 })));
}
