//! Ranges of code with their rules, and which of several claims to a range counts: the first.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use super::rules::RuleNumber;
use crate::source::SourceKind;

/// A range of stated addresses with one rule. A module has a million of them, and new memory is most of what their list costs: so they are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    start: u64,
    /// Bytes. Code spans no more than [`MAX_TEXT_SPAN`](crate::format::MAX_TEXT_SPAN).
    length: u32,
    pub(super) rule: RuleNumber,
    pub(super) origin: Origin,
}

impl Piece {
    pub(super) fn new(range: Range<u64>, rule: RuleNumber, origin: Origin) -> Self {
        let mut piece = Self { start: range.start, length: 0, rule, origin };
        piece.end_at(range.end);
        piece
    }

    /// Its addresses.
    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.end()
    }

    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn end(&self) -> u64 {
        self.start.saturating_add(u64::from(self.length))
    }

    /// The same rule up to `end`.
    pub(super) fn end_at(&mut self, end: u64) {
        self.length = u32::try_from(end.saturating_sub(self.start)).unwrap_or(u32::MAX);
    }
}

/// Sorts by rising address. Not inlined: the sort is 6 kB of code, which every caller would have for itself.
#[inline(never)]
pub(super) fn sort(pieces: &mut [Piece]) {
    pieces.sort_by_key(Piece::start);
}

/// What a rule comes from: see [`SourceKind`]. Below the offset, which is that of a file or an address, the four bits of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin(u64);

impl Origin {
    /// `offset` may be an address of the upper half.
    pub(super) fn new(kind: SourceKind, offset: u64) -> Self {
        Self(offset << 4 | kind as u64)
    }

    pub(super) fn kind(self) -> Option<SourceKind> {
        SourceKind::from_bits(self.0 & 15)
    }

    pub(super) fn offset(self) -> u64 {
        (self.0 as i64 >> 4) as u64
    }
}

/// The code of a binary, and how much of it has been claimed.
pub(super) struct Claims<'a> {
    /// Sorted, without overlap.
    text: &'a [Range<u64>],
    /// Start to end; ranges of the map that touch are joined, so that a claim over many small ones stays cheap.
    taken: BTreeMap<u64, u64>,
    /// Others by rising address, which are not in the map yet: entries come in that order, and most begin behind all others.
    rising: Vec<Range<u64>>,
    /// The highest of all.
    last: Range<u64>,
}

impl<'a> Claims<'a> {
    pub(super) fn new(text: &'a [Range<u64>]) -> Self {
        Self { text, taken: BTreeMap::new(), rising: Vec::new(), last: 0..0 }
    }

    /// Whether any byte of `range` is code.
    pub(super) fn is_code(&self, range: &Range<u64>) -> bool {
        let at = self.text.partition_point(|text| text.end <= range.start);
        range.start < range.end && self.text.get(at).is_some_and(|text| text.start < range.end)
    }

    /// Whether the byte at `address` is code that nobody has claimed.
    pub(super) fn is_free(&self, address: u64) -> bool {
        let before = self.taken.range(..=address).next_back();
        let at = self.rising.partition_point(|range| range.end <= address);
        let is_rising = self.rising.get(at).is_some_and(|range| range.contains(&address));
        let is_free = before.is_none_or(|(_, end)| *end <= address) && !is_rising && !self.last.contains(&address);
        is_free && self.is_code(&(address..address.saturating_add(1)))
    }

    /// What is code and still free, by rising address.
    #[cfg(feature = "compile")]
    pub(super) fn free(&self) -> Vec<Range<u64>> {
        let last = Some((self.last.start, self.last.end)).filter(|(start, end)| start < end);
        let taken = self.taken.iter().map(|(start, end)| (*start, *end));
        let mut taken: Vec<(u64, u64)> =
            taken.chain(self.rising.iter().map(|range| (range.start, range.end))).chain(last).collect();
        taken.sort_unstable();
        let mut free = Vec::new();
        for text in self.text {
            let mut from = text.start;
            let first = taken.partition_point(|(_, end)| *end <= from);
            for (start, end) in taken.iter().skip(first).take_while(|(start, _)| *start < text.end) {
                if from < *start {
                    free.push(from..*start);
                }
                from = from.max(*end);
            }
            if from < text.end {
                free.push(from..text.end);
            }
        }
        free
    }

    /// Takes what is code and still free of `range`, by rising address.
    pub(super) fn claim(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut claimed = Vec::new();
        let from = self.text.partition_point(|text| text.end <= range.start);
        for text in self.text.iter().skip(from).take_while(|text| text.start < range.end) {
            let part = range.start.max(text.start)..range.end.min(text.end);
            if part.start < part.end {
                self.take(part, &mut claimed);
            }
        }
        claimed
    }

    fn take(&mut self, part: Range<u64>, claimed: &mut Vec<Range<u64>>) {
        if part.start == self.last.end && !self.last.is_empty() {
            self.last.end = part.end;
            return claimed.push(part);
        }
        if part.start > self.last.end {
            let last = core::mem::replace(&mut self.last, part.clone());
            self.rising.extend((!last.is_empty()).then_some(last));
            return claimed.push(part);
        }
        // What comes last lies between others, as start-up code and code without call frame information do: the others need not be in the map for that.
        let at = self.rising.partition_point(|range| range.end <= part.start);
        if part.end <= self.rising.get(at).unwrap_or(&self.last).start {
            return self.take_among(part, claimed);
        }
        for range in self.rising.drain(..).chain([self.last.clone()]).filter(|range| !range.is_empty()) {
            self.taken.insert(range.start, range.end);
        }
        self.take_among(part, claimed);
        if let Some((start, end)) = self.taken.pop_last() {
            self.last = start..end;
        }
    }

    fn take_among(&mut self, part: Range<u64>, claimed: &mut Vec<Range<u64>>) {
        // The joined range that replaces everything that it touches.
        let mut joined = part.clone();
        let mut free_from = part.start;
        let before = self.taken.range(..part.start).next_back().map(|(start, end)| (*start, *end));
        if let Some((start, end)) = before
            && end >= part.start
        {
            joined = start..joined.end.max(end);
            free_from = end.max(part.start);
            self.taken.remove(&start);
        }
        while let Some((start, end)) = self.taken.range(part.start..=part.end).next().map(|(start, end)| (*start, *end))
        {
            if free_from < start {
                claimed.push(free_from..start);
            }
            free_from = free_from.max(end);
            joined.end = joined.end.max(end);
            self.taken.remove(&start);
        }
        if free_from < part.end {
            claimed.push(free_from..part.end);
        }
        self.taken.insert(joined.start, joined.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn an_origin_is_what_it_was_made_of() {
        for offset in [0, 1, 0x1234_5678_9abc, 0x7fff_ffff_ffff, 0xffff_ffff_8100_0000, u64::MAX] {
            let origin = Origin::new(SourceKind::Sframe, offset);
            assert_eq!((origin.kind(), origin.offset()), (Some(SourceKind::Sframe), offset));
        }
    }

    #[test]
    fn every_byte_of_code_is_claimed_once() {
        let text = [10..50, 60..100];
        let mut claims = Claims::new(&text);
        assert_eq!(claims.claim(0..20), vec![10..20]);
        assert_eq!(claims.claim(30..40), vec![30..40]);
        assert_eq!(claims.claim(15..70), vec![20..30, 40..50, 60..70]);
        assert_eq!(claims.claim(0..1000), vec![70..100]);
        assert_eq!(claims.claim(0..1000), vec![]);
        assert!(claims.is_code(&(49..50)) && !claims.is_code(&(50..60)) && !claims.is_code(&(20..20)));
    }

    #[test]
    fn what_nobody_has_claimed_is_free() {
        let text = [10..50, 60..100];
        let mut claims = Claims::new(&text);
        assert_eq!(claims.free(), [10..50, 60..100]);
        for range in [12..20, 40..70, 20..22, 90..100] {
            claims.claim(range);
        }
        assert_eq!(claims.free(), [10..12, 22..40, 70..90]);
    }

    #[test]
    fn claims_agree_with_a_map_of_single_bytes() {
        let mut seed = 7u64;
        let mut next = |bound: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % bound
        };
        for _ in 0..300 {
            let text = [5..60u64, 80..120];
            let mut claims = Claims::new(&text);
            let mut taken = [false; 128];
            for _ in 0..12 {
                let start = next(125);
                let range = start..start + next(40);
                let mut expected: Vec<u64> = Vec::new();
                for byte in range.clone().filter(|byte| text.iter().any(|text| text.contains(byte))) {
                    if !core::mem::replace(&mut taken[byte as usize], true) {
                        expected.push(byte);
                    }
                }
                let claimed: Vec<u64> = claims.claim(range).into_iter().flatten().collect();
                assert_eq!(claimed, expected);
            }
        }
    }
}
