//! Why code has no rule: what the compiler could not express or follow, kept in the table for people. Unwinding does not look at it.

use core::ops::Range;

use symseal_module::Rva;

use crate::table::Table;

/// Code that something speaks of, and why the table does not have all that is said. Part of it may have rules nevertheless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason<'a> {
    /// The addresses.
    pub range: Range<Rva>,
    /// Why.
    pub text: &'a str,
}

/// The section: how many ranges, then for each its offset from the start of the code, its bytes, and where its text is behind the last of them; each
/// text has its length before it.
pub(crate) fn read(
    section: &[u8],
    text_start: u64,
    text_size: u64,
) -> Option<impl Iterator<Item = Option<Reason<'_>>>> {
    let (count, rest) = section.split_first_chunk::<4>()?;
    let (ranges, texts) = rest.split_at_checked((u32::from_le_bytes(*count) as usize).checked_mul(12)?)?;
    let (ranges, _) = ranges.as_chunks::<12>();
    Some(ranges.iter().map(move |range| {
        let (words, _) = range.as_chunks::<4>();
        let &[start, size, at] = words.first_chunk::<3>()?;
        let (start, size) = (u64::from(u32::from_le_bytes(start)), u64::from(u32::from_le_bytes(size)));
        let end = start.checked_add(size).filter(|end| size > 0 && *end <= text_size)?;
        let (length, text) = texts.get(u32::from_le_bytes(at) as usize..)?.split_first_chunk::<2>()?;
        let text = core::str::from_utf8(text.get(..usize::from(u16::from_le_bytes(*length)))?).ok()?;
        let range = Rva(text_start.checked_add(start)?)..Rva(text_start.checked_add(end)?);
        Some(Reason { range, text })
    }))
}

/// The bytes of the section; empty where there is nothing to tell. Ranges count from the start of the code; what lies outside of it is cut.
#[cfg(feature = "compile-elf")]
pub(crate) fn write<'r>(reasons: impl Iterator<Item = (Range<u64>, &'r str)>, text: Range<u64>) -> alloc::vec::Vec<u8> {
    use alloc::vec::Vec;

    // Reasons are listed up to a bound and most have the same few texts: lists in order serve, and are little code in libdwunw.a.
    let mut texts: Vec<u8> = Vec::new();
    let mut known: Vec<(&str, u32)> = Vec::new();
    let mut ranges: Vec<[u32; 3]> = Vec::new();
    for (range, reason) in reasons {
        let (start, end) = (range.start.max(text.start), range.end.min(text.end));
        if start >= end {
            continue;
        }
        let at = known.iter().find(|(text, _)| *text == reason).map(|(_, at)| *at).unwrap_or_else(|| {
            let at = texts.len() as u32;
            let shown = reason.get(..reason.floor_char_boundary(usize::from(u16::MAX))).unwrap_or_default();
            texts.extend((shown.len() as u16).to_le_bytes());
            texts.extend(shown.as_bytes());
            known.push((reason, at));
            at
        });
        // Code spans less than 4 GiB.
        let record = [(start - text.start) as u32, (end - start) as u32, at];
        if let Err(place) = ranges.binary_search(&record) {
            ranges.insert(place, record);
        }
    }
    if ranges.is_empty() {
        return Vec::new();
    }
    let mut section = Vec::with_capacity(4 + 12 * ranges.len() + texts.len());
    section.extend((ranges.len() as u32).to_le_bytes());
    section.extend(ranges.iter().flatten().flat_map(|word| word.to_le_bytes()));
    section.extend(texts);
    section
}

impl<'a> Table<'a> {
    /// What the compiler could not express or follow, by rising address; ranges may overlap. Ends early where the section is damaged.
    pub fn reasons(&self) -> impl Iterator<Item = Reason<'a>> + use<'a> {
        let (section, start, size) = (self.reasons.unwrap_or_default(), self.text_start().0, self.text_bytes());
        read(section, start, size).into_iter().flatten().map_while(|reason| reason)
    }

    /// Why the address has no rule, or not all that is said of it; `None` where nothing speaks of the address, or all that does is in the table.
    pub fn reason(&self, rva: Rva) -> Option<&'a str> {
        self.reasons().find(|reason| reason.range.contains(&rva)).map(|reason| reason.text)
    }

    /// Whether the section, if there is one, can be read to its end, by rising address.
    pub(crate) fn reasons_are_sound(&self) -> bool {
        let Some(section) = self.reasons else { return true };
        let Some(reasons) = read(section, self.text_start().0, self.text_bytes()) else { return false };
        let mut last = Rva(0);
        let mut count = 0usize;
        for reason in reasons {
            let Some(reason) = reason.filter(|reason| reason.range.start >= last) else { return false };
            last = reason.range.start;
            count += 1;
        }
        count > 0
    }
}

#[cfg(all(test, feature = "compile-elf"))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn listed(section: &[u8]) -> Option<Vec<(u64, u64, &str)>> {
        let reasons = read(section, 0x1000, 0x100)?;
        reasons.map(|reason| reason.map(|it| (it.range.start.0, it.range.end.0, it.text))).collect()
    }

    #[test]
    fn what_is_written_is_read_by_rising_address_and_each_text_is_kept_once() {
        let all = [(0x5080..0x5090, "second"), (0x5010..0x5020, "first"), (0x50f0..0x6000, "second"), (0..0x10, "far")];
        let section = write(all.into_iter(), 0x5000..0x5100);
        let expected = [(0x1010, 0x1020, "first"), (0x1080, 0x1090, "second"), (0x10f0, 0x1100, "second")];
        assert_eq!(listed(&section).as_deref(), Some(&expected[..]));
        assert_eq!(section.len(), 4 + 3 * 12 + 2 + 5 + 2 + 6);
        assert!(write([(0..0x10, "far")].into_iter(), 0x5000..0x5100).is_empty());
    }

    #[test]
    fn a_damaged_section_is_none() {
        let section = write([(0x5010..0x5020, "one")].into_iter(), 0x5000..0x5100);
        for length in 0..section.len() {
            assert_eq!(listed(&section[..length]), None, "{length}");
        }
        // Outside the code, without bytes, a text elsewhere, one that is longer than what is there, one that is no text.
        for (at, byte) in [(5, 1), (8, 0), (12, 9), (16, 9), (18, 0xff)] {
            let mut damaged = section.clone();
            damaged[at] = byte;
            assert_eq!(listed(&damaged), None, "{at}");
        }
    }
}
