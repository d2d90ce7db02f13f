//! The layout of `__unwind_info`: an index of pages, each with function starts and encodings. (LLVM and Apple, `compact_unwind_encoding.h`)

use alloc::vec::Vec;

const VERSION: u32 = 1;
/// Kinds of second-level pages.
const REGULAR: u32 = 2;
const COMPRESSED: u32 = 3;
/// Bytes of a page before its entries, at least.
const REGULAR_HEADER: usize = 8;
const COMPRESSED_HEADER: usize = 12;
/// Bytes of an entry of the first level: function, page, data of languages.
const INDEX_ENTRY: usize = 12;

/// A function, or several in succession that were described alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// From the image's base.
    pub(super) start: u32,
    pub(super) encoding: u32,
}

/// The entries as they are stored, which is by rising address; the last one of the index ends the one before and has the encoding 0. Also how
/// many pages could not be read.
pub(super) fn entries(section: &[u8]) -> (Vec<Entry>, usize) {
    let mut found = Vec::new();
    let mut damaged = 0;
    if u32_at(section, 0) != Some(VERSION) {
        return (found, 1);
    }
    let word = |at: usize| u32_at(section, at).map_or(0, |word| word as usize);
    let common = words(section, word(4), word(8));
    let Some(index) = section.get(word(20)..) else { return (found, 1) };
    let index = index.chunks_exact(INDEX_ENTRY).take(word(24));
    let mut last = None;
    // A page may be named by one entry alone, so that a hostile index costs no more than the section is long.
    let mut pages_end = 0;
    for entry in index {
        let (Some(start), Some(page)) = (u32_at(entry, 0), u32_at(entry, 4)) else { break };
        last = Some(start);
        if page == 0 {
            continue;
        }
        let page = page as usize;
        let read = if page < pages_end { None } else { section.get(page..) };
        match read.and_then(|bytes| entries_of_page(bytes, start, &common, &mut found)) {
            Some(length) => pages_end = page.saturating_add(length),
            None => damaged += 1,
        }
    }
    found.extend(last.map(|start| Entry { start, encoding: 0 }));
    (found, damaged)
}

/// Appends the entries of one page and gives how long it is, which is at least its header.
fn entries_of_page(page: &[u8], start: u32, common: &[u32], found: &mut Vec<Entry>) -> Option<usize> {
    let (at, count) = (usize::from(u16_at(page, 4)?), usize::from(u16_at(page, 6)?));
    let kind = u32_at(page, 0)?;
    if at < if kind == REGULAR { REGULAR_HEADER } else { COMPRESSED_HEADER } {
        return None;
    }
    match kind {
        REGULAR => {
            let entries = page.get(at..at.checked_add(count.checked_mul(8)?)?)?;
            found.extend(
                entries
                    .chunks_exact(8)
                    .filter_map(|entry| Some(Entry { start: u32_at(entry, 0)?, encoding: u32_at(entry, 4)? })),
            );
            Some(at + entries.len())
        }
        COMPRESSED => {
            // Read where it is asked for: many pages may name the same ones.
            let (own_at, own_count) = (usize::from(u16_at(page, 8)?), usize::from(u16_at(page, 10)?));
            let own = |number: usize| {
                let at = own_at.checked_add(number.checked_mul(4)?)?;
                (number < own_count).then(|| u32_at(page, at)).flatten()
            };
            let entries = page.get(at..at.checked_add(count.checked_mul(4)?)?)?;
            for entry in entries.chunks_exact(4) {
                let entry = u32_at(entry, 0)?;
                let number = (entry >> 24) as usize;
                let encoding = match number.checked_sub(common.len()) {
                    None => common.get(number).copied(),
                    Some(number) => own(number),
                };
                found.push(Entry { start: start.checked_add(entry & 0xff_ffff)?, encoding: encoding? });
            }
            Some(at + entries.len())
        }
        _ => None,
    }
}

/// `count` words from `at` on, or none of them.
fn words(bytes: &[u8], at: usize, count: usize) -> Vec<u32> {
    let end = count.checked_mul(4).and_then(|length| at.checked_add(length));
    let words = end.and_then(|end| bytes.get(at..end)).unwrap_or_default();
    words.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk::<4>().copied()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..)?.first_chunk::<2>().copied()?))
}
