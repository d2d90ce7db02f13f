//! Where code lies.

use std::ops::Range;

/// Stated addresses of code. Ranges that start elsewhere are those of functions that the linker dropped: it leaves 0,
/// 1, -1 or -2 with or without an addend in their place. Where 0 is code, symbols tell who is there ([`AtZero`](crate::dwarf::AtZero)).
#[derive(Debug)]
pub(crate) struct Text {
    /// Sorted, not overlapping.
    ranges: Vec<Range<u64>>,
}

/// The ranges by start, each without what those before it cover.
pub(crate) fn disjoint(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut reached = 0;
    for range in &mut ranges {
        range.start = range.start.max(reached);
        reached = reached.max(range.end);
    }
    ranges.retain(|range| !range.is_empty());
    ranges
}

/// The ranges by start, those that meet as one.
pub(crate) fn joined(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in disjoint(ranges) {
        match joined.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => joined.push(range),
        }
    }
    joined
}

/// Whether a range has a byte in one of the ranges, which are sorted and do not overlap.
pub(crate) fn touches(ranges: &[Range<u64>], range: &Range<u64>) -> bool {
    let behind = ranges.partition_point(|other| other.end <= range.start);
    ranges.get(behind).is_some_and(|other| other.start < range.end)
}

impl Text {
    pub(crate) fn new(ranges: Vec<Range<u64>>) -> Self {
        Self { ranges }
    }

    /// The part of the range that lies in the code which it starts in.
    pub(crate) fn clip(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let after = self.ranges.partition_point(|range| range.start <= start);
        let home = self.ranges.get(after.checked_sub(1)?)?;
        let end = end.min(home.end);
        (start < end).then_some((start, end))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }
}
