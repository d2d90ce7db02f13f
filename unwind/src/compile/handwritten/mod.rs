//! Functions of x86_64 that follow the System V ABI and that nothing else describes: those that are written by hand without call frame information. They are followed from where
//! they begin, along all of their paths.
//!
//! A beginning counts if what begins there ends as functions do: each path by a return, or by a jump to another function, with the stack as it was, or by a trap; and
//! with all registers that calls keep, unless such a function calls it. Where a jump leads to what is not known the path is left, and what only such jumps lead to has no rule.

mod code;
mod follow;
mod starts;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::ops::Range;

use super::pieces::{Origin, Piece};
use super::rules::RuleNumber;
use super::{Compiler, Input};
use crate::arch::Arch;
use crate::source::SourceKind;
use code::Code;
use follow::EXHAUSTED;
use starts::{Proven, Search};

/// Why code of a function has no rule.
const LOST: &str = "the frame is lost on some path";
const ELSEWHERE: &str = "a jump to what is not known, behind which nothing is followed";

/// Adds the rules of the functions that nothing has spoken for.
pub(super) fn rules(input: &Input<'_>, compiler: &mut Compiler<'_>) {
    let has_other_source = input.pdata.is_some() || input.orc.is_some() || input.is_jit;
    if input.arch != Arch::X86_64 || has_other_source {
        return;
    }
    let Compiler { claims, pieces, rules, programs, report, .. } = compiler;
    let code = Code::of(input, claims);
    if code.gaps.is_empty() {
        return;
    }
    let mut search = Search::new(&code, rules, programs);
    search.told(input, pieces);
    search.run();
    let mut found: Said = Vec::new();
    for (start, Proven { rules, is_cut, .. }) in &search.proven {
        found.extend(rules.iter().map(|(range, rule)| (range.clone(), *rule, *start)));
        let is_lost = rules.iter().any(|(_, rule)| rule.is_none());
        let reason = if is_lost { Some(LOST) } else { is_cut.then_some(ELSEWHERE) };
        if let Some(reason) = reason {
            let end = rules.last().map_or(*start, |(range, _)| range.end);
            report.count_unfollowed(Some(*start..end), reason);
        }
    }
    for (start, failed) in search.failed.iter().filter(|(_, failed)| failed.is_told()) {
        let end = code.gap(*start).map_or(*start, |gap| gap.end());
        let end = search.next_start(*start).map_or(end, |next| end.min(next));
        report.count_unfollowed(Some(*start..end), failed.reason);
    }
    if search.is_exhausted() {
        report.count_unfollowed(None, EXHAUSTED);
    }
    let found = held_to_starts(found, &search.begun(), search.entry());
    for (range, rule, start) in agreed(found) {
        let origin = Origin::new(SourceKind::Instructions, start);
        for range in compiler.claims.claim(range) {
            compiler.pieces.push(Piece::new(range, rule, origin));
        }
    }
}

/// What each function says of its own code, by the address at which it begins.
type Said = Vec<(Range<u64>, Option<RuleNumber>, u64)>;

/// Without what functions say of others that they come to with another frame than at an entry: a call that does not return looks so. Where a function that
/// is known to begin could not be followed, only those that come to its beginning may tell.
fn held_to_starts(said: Said, begun: &[(Range<u64>, bool)], entry: Option<RuleNumber>) -> Said {
    let mut held = Said::with_capacity(said.len());
    // The last beginning that was met, of which function, and whether what that says behind it counts.
    let mut last = (0, 0, true);
    for (range, rule, start) in said {
        let mut at = range.start;
        let first = begun.partition_point(|(one, _)| one.end <= at);
        for (one, is_failed) in begun.get(first..).unwrap_or_default() {
            if one.start >= range.end {
                break;
            }
            if one.start == start {
                continue;
            }
            if (last.0, last.1) != (one.start, start) {
                let comes_to_it = range.contains(&one.start);
                last = (one.start, start, if comes_to_it { rule == entry } else { !is_failed });
            }
            let part = one.start.max(at)..one.end.min(range.end);
            if last.2 || part.is_empty() {
                continue;
            }
            if at < part.start {
                held.push((at..part.start, rule, start));
            }
            at = part.end;
            held.push((part, None, start));
        }
        if at < range.end {
            held.push((at..range.end, rule, start));
        }
    }
    held
}

/// Of what is said of the same code that with which all agree.
fn agreed(mut found: Said) -> Vec<(Range<u64>, RuleNumber, u64)> {
    found.sort_by_key(|(range, _, start)| (range.start, range.end, *start));
    let mut bounds: Vec<u64> = found.iter().flat_map(|(range, ..)| [range.start, range.end]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut agreed: Vec<(Range<u64>, RuleNumber, u64)> = Vec::new();
    let mut open = Said::new();
    let mut next = found.into_iter().peekable();
    for pair in bounds.windows(2) {
        let [from, to] = pair else { continue };
        open.retain(|(range, ..)| range.end > *from);
        while let Some(one) = next.next_if(|(range, ..)| range.start <= *from) {
            open.push(one);
        }
        let Some((_, Some(rule), start)) = open.first() else { continue };
        if open.iter().any(|(_, other, _)| *other != Some(*rule)) {
            continue;
        }
        match agreed.last_mut() {
            Some((range, last, of)) if range.end == *from && (*last, *of) == (*rule, *start) => range.end = *to,
            _ => agreed.push((*from..*to, *rule, *start)),
        }
    }
    agreed
}
