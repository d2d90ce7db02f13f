//! What is held of every input that is compared with another reader, and its line in the table of docs/accuracy.md.

use super::compare::Comparison;
use super::{addresses_in, times};
use std::ops::Range;

/// The least part of the addresses at which depth, file and line agree, and at which names do.
pub(crate) const LEAST: f64 = 0.995;

/// So many addresses of each input are compared at least, if its code has as many.
const ADDRESSES: usize = 2_000;

/// So many are asked for first: some lie in padding, of which neither reader says anything.
const ASKED: usize = 2_500;

/// An input compared with another reader.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) comparison: Comparison,
    /// Bytes of the code, where each of them was asked for.
    all: Option<usize>,
}

/// Compares at addresses spread over the code. Where too few of them can be compared, at more, in the end at all.
pub(crate) fn measure(code: &[Range<u64>], mut compare: impl FnMut(&[u64]) -> Comparison) -> Measured {
    let total: u64 = code.iter().map(|range| range.end - range.start).sum();
    let mut count = ASKED;
    loop {
        let addresses = addresses_in(code, count, 42);
        let comparison = compare(&addresses);
        let all = (addresses.len() as u64 == total).then_some(addresses.len());
        if is_enough(&comparison) || all.is_some() {
            return Measured { comparison, all };
        }
        count = count.saturating_mul(4);
    }
}

fn is_enough(comparison: &Comparison) -> bool {
    comparison.compared + comparison.judged >= (ADDRESSES * times()) as u64
}

impl Measured {
    /// Prints the input's line of the table: `tests/accuracy` gathers these.
    pub(crate) fn print(&self, table: &str, input: &str) {
        let all = self.all.map(|bytes| format!(" of all {bytes}")).unwrap_or_default();
        print_row(table, input, &all, &self.comparison);
    }

    /// Whether every address of its code was asked for.
    pub(crate) fn is_whole(&self) -> bool {
        self.all.is_some()
    }

    /// What is wrong with it, if anything is. Of fewer than 200 addresses, one may differ.
    pub(crate) fn verdict(&self, input: &str) -> Option<String> {
        let Comparison { compared, lines_equal, names_equal, .. } = self.comparison;
        let has_enough = self.all.is_some() || is_enough(&self.comparison);
        let is_right = |equal: u64| compared - equal <= 1 || self.comparison.ratio(equal) >= LEAST;
        let holds = has_enough && is_right(lines_equal) && is_right(names_equal);
        (!holds).then(|| format!("{input}: {}", self.comparison))
    }
}

/// A line of the table: addresses, and the parts of them in per cent.
pub(crate) fn print_row(table: &str, input: &str, remark: &str, comparison: &Comparison) {
    let parts = [
        comparison.depth_equal,
        comparison.files_equal,
        comparison.numbers_equal,
        comparison.lines_equal,
        comparison.names_equal,
    ];
    let parts = parts.map(|part| per_cent(part, comparison.compared)).join(" | ");
    let judged = if comparison.judged > 0 { format!(" + {}", comparison.judged) } else { String::new() };
    println!("accuracy: {table} | {input} | {}{judged}{remark} | {parts} |", comparison.compared);
}

/// Rounded down, so that 100 means all.
fn per_cent(part: u64, whole: u64) -> String {
    let hundredths = (part * 10_000).checked_div(whole).unwrap_or_default();
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}
