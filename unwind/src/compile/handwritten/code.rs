//! The code that nothing speaks for.

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

use crate::compile::Input;
use crate::compile::pieces::Claims;

/// Entries of a table of jumps in one direction.
const MOST_ENTRIES: i64 = 64;
const MOST_SKIPPED: i64 = 8;

/// Code in one piece.
pub(super) struct Gap<'i> {
    pub(super) start: u64,
    pub(super) bytes: &'i [u8],
}

impl<'i> Gap<'i> {
    pub(super) fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes.len() as u64)
    }

    /// The bytes from `address` on, if there is one.
    pub(super) fn from(&self, address: u64) -> Option<&'i [u8]> {
        let bytes = self.bytes.get(usize::try_from(address.checked_sub(self.start)?).ok()?..)?;
        (!bytes.is_empty()).then_some(bytes)
    }
}

/// All of it, by rising address.
pub(super) struct Code<'c, 'i> {
    pub(super) gaps: Vec<Gap<'i>>,
    claims: &'c Claims<'c>,
    /// By rising address.
    loaded: Vec<(u64, &'i [u8])>,
}

impl<'c, 'i> Code<'c, 'i> {
    /// What is more than padding between functions.
    pub(super) fn of(input: &Input<'i>, claims: &'c Claims<'c>) -> Self {
        let machine = input.arch.machine();
        let mut sections = input.code.to_vec();
        sections.sort_by_key(|(start, code)| (*start, Reverse(code.len())));
        let mut free = claims.free().into_iter().peekable();
        let mut gaps = Vec::new();
        let mut end = 0;
        for (start, code) in sections {
            // Of sections over each other the first counts.
            let (from, to) = (start.max(end), start.saturating_add(code.len() as u64));
            end = end.max(to);
            while free.next_if(|range| range.end <= from).is_some() {}
            while let Some(range) = free.peek().filter(|range| range.start < to).cloned() {
                let part = range.start.max(from)..range.end.min(to);
                let at = |address: u64| usize::try_from(address.checked_sub(start)?).ok();
                let bytes = at(part.start).zip(at(part.end)).and_then(|(from, to)| code.get(from..to));
                let is_padding =
                    |bytes: &[u8]| (bytes.len() as u64) < machine.function_alignment && (machine.is_padding)(bytes);
                if let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty() && !is_padding(bytes)) {
                    gaps.push(Gap { start: part.start, bytes });
                }
                if range.end > to {
                    break;
                }
                free.next();
            }
        }
        let mut loaded = input.loaded.to_vec();
        loaded.sort_by_key(|(start, _)| *start);
        Self { gaps, claims, loaded }
    }

    /// Where the entries of a table around `table` lead that are counted from `base`: as long as that is in `range`. It may be read from behind its beginning, or from before it.
    pub(super) fn entries(&self, table: u64, base: u64, range: &Range<u64>) -> Vec<u64> {
        let entry = |at: u64| {
            let after = self.loaded.partition_point(|(start, _)| *start <= at);
            let (start, bytes) = self.loaded.get(after.checked_sub(1)?)?;
            let bytes = bytes.get(usize::try_from(at - start).ok()?..)?.first_chunk()?;
            let target = base.wrapping_add_signed(i64::from(i32::from_le_bytes(*bytes)));
            range.contains(&target).then_some(target)
        };
        let at = |number: i64| table.wrapping_add_signed(number * 4);
        // The first ones may be none: nobody asks for them.
        let skipped = (0..MOST_SKIPPED).find(|number| entry(at(*number)).is_some()).unwrap_or(0);
        let up = (skipped..MOST_ENTRIES).map_while(|number| entry(at(number)));
        let down = (1..MOST_ENTRIES).map_while(|number| entry(at(-number)));
        let mut entries: Vec<u64> = up.chain(down).collect();
        entries.sort_unstable();
        entries.dedup();
        entries
    }

    /// Whether something else speaks for the code at `address`.
    pub(super) fn is_spoken_for(&self, address: u64) -> bool {
        self.claims.is_code(&(address..address.saturating_add(1))) && !self.claims.is_free(address)
    }

    /// The one that holds `address`.
    pub(super) fn gap(&self, address: u64) -> Option<&Gap<'i>> {
        let after = self.gaps.partition_point(|gap| gap.start <= address);
        self.gaps.get(after.checked_sub(1)?).filter(|gap| address < gap.end())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.bytes.len() as u64).sum()
    }
}
