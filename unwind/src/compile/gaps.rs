//! Code that no rule covers, in bytes by reason, where files have much of it that no record speaks of: nobody would learn of it otherwise.

use alloc::collections::BTreeSet;
use core::ops::Range;

use super::pieces::Piece;
use super::{Input, Report};
use crate::arch::Arch;

/// Where functions are followed.
const NOT_REACHED: &str = "no record covers it, and no function that was found leads to it";
/// Words among the code of 32-bit ARM that it loads.
const CONSTANTS: &str = "constants among the code";
/// The same where nothing is followed without a record.
const NOT_RECORDED: &str = "no record covers it";

/// Counts what none of `pieces` (sorted, stretched over padding) covers of `text` (sorted), and what they mark as having no rule. `constants` are the addresses of words.
pub(super) fn count(
    input: &Input<'_>,
    text: &[Range<u64>],
    pieces: impl Iterator<Item = (Piece, bool)>,
    constants: &BTreeSet<u64>,
    report: &mut Report,
) {
    let is_followed = matches!(input.arch, Arch::Arm | Arch::Riscv64 | Arch::Mips32 | Arch::Mips32Little);
    let reason = if is_followed { NOT_REACHED } else { NOT_RECORDED };
    let mut count = |range: Range<u64>| {
        let words = constants.range(range.clone()).map(|at| range.end.min(at.saturating_add(4)) - at).sum::<u64>();
        report.count_gap(CONSTANTS, words);
        report.count_gap(reason, (range.end - range.start).saturating_sub(words));
    };
    let mut ranges = pieces.filter(|(_, is_known)| *is_known).map(|(piece, _)| piece.range()).peekable();
    for text in text {
        let mut from = text.start;
        while let Some(range) = ranges.next_if(|range| range.start < text.end) {
            if from < range.start {
                count(from..range.start);
            }
            from = from.max(range.end);
        }
        if from < text.end {
            count(from..text.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::pieces::Origin;
    use crate::compile::rules::Rules;
    use crate::rule::{Kind, Rule, RuleSource, Slots};
    use crate::source::SourceKind;
    use alloc::vec::Vec;
    use symseal_module::DebugId;

    #[test]
    fn every_byte_without_a_rule_is_counted_once() {
        let id = DebugId::from_build_id(&[1]).expect("an id");
        let number = Rules::default().number_of(Rule::bare(Kind::End, RuleSource::EhFrame), Slots::SAME);
        let piece = |range| (Piece::new(range, number, Origin::new(SourceKind::EhFrame, 0)), true);
        let marked = (piece(40..60).0, false);
        let (mut report, words) = (Report::default(), BTreeSet::from([24, 58, 200]));
        let pieces = [piece(10..20), piece(28..40), marked, piece(100..110)];
        count(&Input::of(Arch::Arm, &id), &[8..60, 100..120], pieces.into_iter(), &words, &mut report);
        let counted: Vec<(&str, u64)> = report.gap_bytes.iter().map(|(reason, bytes)| (&**reason, *bytes)).collect();
        assert_eq!(counted, [(CONSTANTS, 6), (NOT_REACHED, 34)]);
    }
}
