//! Which of several overlapping ranges holds where.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A range with its rank; of several ranges at an address the highest rank holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval<P> {
    pub(crate) start: u64,
    /// Behind the last address.
    pub(crate) end: u64,
    pub(crate) priority: P,
}

/// A stretch in which one interval holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Which of the intervals.
    pub(crate) index: usize,
}

/// Paints; what it needs for that is kept from one time to the next.
#[derive(Debug)]
pub(crate) struct Painter<P: Ord> {
    /// Where each interval begins, beside its number: to sort takes most of the time, and so goes through memory once.
    order: Vec<(u64, usize)>,
    /// Where the open intervals end, the highest rank on top.
    open: BinaryHeap<(P, Reverse<usize>, u64)>,
    segments: Vec<Segment>,
}

impl<P: Ord> Default for Painter<P> {
    fn default() -> Self {
        Self { order: Vec::new(), open: BinaryHeap::new(), segments: Vec::new() }
    }
}

impl<P: Ord + Copy> Painter<P> {
    /// Segments by address, not overlapping, each as long as it can be. Of equal priorities the first interval holds.
    pub(crate) fn paint(&mut self, intervals: &[Interval<P>]) -> &[Segment] {
        let Self { order, open, segments } = self;
        segments.clear();
        let are_apart = intervals.is_sorted_by(|a, b| a.end <= b.start);
        if are_apart && intervals.iter().all(|interval| interval.start < interval.end) {
            let whole =
                |(index, interval): (usize, &Interval<P>)| Segment { start: interval.start, end: interval.end, index };
            segments.extend(intervals.iter().enumerate().map(whole));
            return segments;
        }
        order.clear();
        order.extend(intervals.iter().map(|interval| interval.start).zip(0..));
        if !order.is_sorted() {
            order.sort_unstable();
        }
        let mut emit = |start: u64, end: u64, index: usize| match segments.last_mut() {
            Some(last) if last.index == index && last.end == start => last.end = end,
            _ => segments.push(Segment { start, end, index }),
        };
        let mut waiting = order.iter().peekable();
        let mut position = 0;
        loop {
            while let Some((_, _, end)) = open.peek()
                && *end <= position
            {
                open.pop();
            }
            if open.is_empty() {
                let Some((start, _)) = waiting.peek() else { break };
                position = *start;
            }
            while let Some((_, index)) = waiting.next_if(|(start, _)| *start <= position) {
                if let Some(interval) = intervals.get(*index)
                    && interval.end > position
                {
                    open.push((interval.priority, Reverse(*index), interval.end));
                }
            }
            let Some((_, Reverse(index), end)) = open.peek() else { continue };
            let until = waiting.peek().map_or(*end, |(next, _)| *next.min(end));
            if until > position {
                emit(position, until, *index);
            }
            position = until;
        }
        segments
    }
}

/// What a [`Painter`] makes, for those who paint once.
pub(crate) fn paint<P: Ord + Copy>(intervals: &[Interval<P>]) -> Vec<Segment> {
    let mut painter = Painter::default();
    painter.paint(intervals);
    painter.segments
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Intervals by start, end and rank; segments as `start-end:index`.
    #[track_caller]
    fn check(intervals: &[(u64, u64, u32)], expected: &str) {
        let intervals: Vec<Interval<u32>> = intervals
            .iter()
            .map(|(start, end, priority)| Interval { start: *start, end: *end, priority: *priority })
            .collect();
        let found: Vec<String> = paint(&intervals)
            .iter()
            .map(|segment| format!("{}-{}:{}", segment.start, segment.end, segment.index))
            .collect();
        assert_eq!(found.join(" "), expected);
    }

    #[test]
    fn ranges_apart_stay_as_they_are() {
        check(&[], "");
        check(&[(5, 9, 0), (1, 3, 0)], "1-3:1 5-9:0");
        check(&[(1, 3, 0), (3, 5, 0)], "1-3:0 3-5:1");
    }

    #[test]
    fn a_higher_rank_cuts_a_lower_one_in_two() {
        check(&[(0, 10, 0), (3, 5, 1)], "0-3:0 3-5:1 5-10:0");
        check(&[(0, 10, 1), (3, 5, 0)], "0-10:0");
        check(&[(0, 5, 0), (3, 9, 1), (4, 12, 2)], "0-3:0 3-4:1 4-12:2");
    }

    #[test]
    fn empty_ranges_and_equal_ranks_are_harmless() {
        check(&[(4, 4, 9), (0, 8, 0), (0, 8, 0)], "0-8:1");
        check(&[(9, 2, 9)], "");
    }
}
