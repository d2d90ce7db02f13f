//! `.ARM.exidx`, the index table of 32-bit ARM, and `.ARM.extab`, where it leads. (Exception Handling ABI for the Arm Architecture,
//! IHI 0038, sections 6, 7 and 10)
//!
//! An entry says how the frame of a function is given back *from within its body*: after the prologue, before the epilogue. What holds
//! while the frame is made and taken down, the instructions tell; the two are held against each other. Where an entry says that nobody can unwind
//! through a function, or a linker says so of code without entries, instructions alone may still tell.

mod frame;

use alloc::vec::Vec;
use core::ops::Range;

use super::functions::{self, Followed, Set, Starts, Step};
use super::layout::Layout;
use super::pieces::Origin;
use super::synchronous::FunctionRules;
use super::{Compiler, Input};
use crate::arch::Arch;
use crate::rule::{Kind, Rule, RuleSource, Slots};
use crate::source::SourceKind;

const ENTRY_BYTES: usize = 8;
/// In place of a description: nobody can unwind through this function.
const CANT_UNWIND: u32 = 1;
/// Words of a description beyond the first.
const MOST_WORDS: usize = 255;

/// One entry.
struct Entry {
    /// In the section.
    offset: u64,
    start: u64,
    /// The instructions there, where the entry says it: assemblers need not.
    set: Option<Set>,
    description: u32,
    /// Where the description is itself.
    place: u64,
}

/// The address that is `word` away from `place`, in 31 bits with sign.
fn relative(place: u64, word: u32) -> u64 {
    place.wrapping_add_signed(i64::from((word << 1) as i32 >> 1)) & 0xffff_ffff
}

/// The entries by rising address. Bit 0 of an address says which instructions are there.
fn entries((address, section): (u64, &[u8])) -> Vec<Entry> {
    let (entries, _) = section.as_chunks::<ENTRY_BYTES>();
    let read = |(at, entry): (usize, &[u8; ENTRY_BYTES])| {
        let (words, _) = entry.as_chunks::<4>();
        let word = |at: usize| words.get(at).map_or(0, |word| u32::from_le_bytes(*word));
        let offset = (at * ENTRY_BYTES) as u64;
        let place = address.wrapping_add(offset);
        let start = relative(place, word(0));
        let set = (start & 1 == 1).then_some(Set::Thumb);
        Entry { offset, start: start & !1, set, description: word(1), place: place.wrapping_add(4) }
    };
    let mut entries: Vec<Entry> = entries.iter().enumerate().map(read).collect();
    entries.sort_by_cached_key(|entry| (entry.start, entry.offset));
    entries.dedup_by_key(|entry| entry.start);
    entries
}

/// Where entries begin, in which instruction set if they say it, and whether they describe what is there.
pub(super) fn starts(input: &Input<'_>) -> impl Iterator<Item = (u64, Option<Set>, bool)> + use<> {
    let section = input.exidx.filter(|_| input.arch == Arch::Arm);
    section
        .map(entries)
        .unwrap_or_default()
        .into_iter()
        .map(|entry| (entry.start, entry.set, entry.description != CANT_UNWIND))
}

/// Adds the rules of the functions that the index table describes and nothing else has spoken for.
pub(super) fn rules(input: &Input<'_>, starts: &Starts, compiler: &mut Compiler<'_>) {
    let Some(section) = input.exidx.filter(|_| input.arch == Arch::Arm) else { return };
    let entries = entries(section);
    let ends = entries.iter().skip(1).map(|entry| entry.start).chain([u64::MAX]);
    for (entry, end) in entries.iter().zip(ends) {
        if entry.description == CANT_UNWIND {
            continue;
        }
        let range = entry.start..end;
        compiler.report.unwind_entries += 1;
        if !compiler.claims.is_code(&range) {
            compiler.report.entries_outside_text += 1;
            continue;
        }
        let claimed = compiler.claims.claim(range.clone());
        let (Some(first), Some(last)) = (claimed.first(), claimed.last()) else { continue };
        let origin = Origin::new(SourceKind::Exidx, entry.offset);
        match described(input, entry) {
            Ok(body) => {
                // Linkers join the descriptions of neighbours that say the same, if these are in the entries themselves.
                let may_be_joined = entry.description >> 31 != 0;
                let mut parts: Vec<(u64, Option<Set>)> = starts.within(first.start..last.end).collect();
                if parts.first().is_none_or(|(start, _)| *start != first.start) {
                    parts.insert(0, (first.start, None));
                }
                let ends = parts.iter().skip(1).map(|(start, _)| *start).chain([last.end]);
                for ((start, set), end) in parts.iter().zip(ends) {
                    let (rules, end) = function(input, *start..end, *set, &body, (may_be_joined, starts), compiler);
                    compiler.add(&clipped(&claimed, &(*start..end)), &rules, origin);
                }
            }
            Err(reason) => compiler.unsupported(&claimed, origin, RuleSource::Exidx, reason),
        }
    }
}

/// Counts the functions without call frame information of which the table says that nobody can unwind through them, where nothing else
/// has spoken for them.
pub(super) fn count_gaps(input: &Input<'_>, compiler: &mut Compiler<'_>) {
    let Some(section) = input.exidx.filter(|_| input.arch == Arch::Arm) else { return };
    let entries = entries(section);
    let ends = entries.iter().skip(1).map(|next| Some(next.start)).chain([None]);
    for (entry, end) in entries.iter().zip(ends) {
        if entry.description == CANT_UNWIND && compiler.claims.is_free(entry.start) {
            const REFUSED: &str = "exception index: said not to be unwound, and not followed";
            compiler.report.count_unfollowed(end.map(|end| entry.start..end), REFUSED);
        }
    }
}

/// What of the `claimed` ranges, which rise, lies in `range`.
fn clipped(claimed: &[Range<u64>], range: &Range<u64>) -> Vec<Range<u64>> {
    let from = claimed.partition_point(|part| part.end <= range.start);
    let parts = claimed.iter().skip(from).take_while(|part| part.start < range.end);
    parts.map(|part| part.start.max(range.start)..part.end.min(range.end)).collect()
}

/// What an entry says of the body of its function; else why that is not known.
fn described(input: &Input<'_>, entry: &Entry) -> Result<Layout, &'static str> {
    const PERSONALITIES: &str = "exception index: a personality routine of an unknown form";
    let machine = input.arch.machine();
    if entry.description >> 31 != 0 {
        if entry.description >> 24 != 0x80 {
            return Err(PERSONALITIES);
        }
        return frame::layout(&operations(&[entry.description], 1), machine);
    }
    let place = relative(entry.place, entry.description);
    let first = word_at(input, place).ok_or("exception index: a description that is not in the file")?;
    let (start, first, from) = if first >> 31 == 0 {
        // A routine of a language, whose data begin with operations by the convention of GNU toolchains.
        let at = place.checked_add(4).ok_or(PERSONALITIES)?;
        (at, word_at(input, at).ok_or(PERSONALITIES)?, 1)
    } else {
        match first >> 24 {
            0x80 => (place, first, 1),
            0x81 | 0x82 => (place, first, 2),
            _ => return Err(PERSONALITIES),
        }
    };
    // How many words follow: in the highest byte of a language's data, in the second one of the common forms.
    let more = match (from, start == place) {
        (1, true) => 0,
        (1, false) => first >> 24,
        _ => first >> 16 & 0xff,
    };
    let more = usize::try_from(more).unwrap_or(0).min(MOST_WORDS);
    let mut words = Vec::from([first]);
    for at in 1..=more as u64 {
        words.push(start.checked_add(4 * at).and_then(|at| word_at(input, at)).ok_or(PERSONALITIES)?);
    }
    frame::layout(&operations(&words, from), machine)
}

/// The bytes of `words` from the highest of the first one on, without the first `skipped`.
fn operations(words: &[u32], skipped: usize) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).skip(skipped).collect()
}

fn word_at(input: &Input<'_>, address: u64) -> Option<u32> {
    input.loaded.iter().find_map(|(start, bytes)| {
        let bytes = bytes.get(usize::try_from(address.checked_sub(*start)?).ok()?..)?;
        Some(u32::from_le_bytes(*bytes.first_chunk::<4>()?))
    })
}

/// The rules of one function, of whose instruction set nothing or this is known, and where they end.
fn function(
    input: &Input<'_>,
    range: Range<u64>,
    set: Option<Set>,
    body: &Layout,
    (may_be_joined, starts): (bool, &Starts),
    compiler: &mut Compiler<'_>,
) -> (FunctionRules, u64) {
    let machine = input.arch.machine();
    let Some(said) = body.rule(machine, RuleSource::Exidx) else {
        let rule = Rule::bare(Kind::Unsupported, RuleSource::Exidx);
        return (Vec::from([(range.start, (rule, Slots::SAME))]), range.end);
    };
    let mut rules = Vec::from([(range.start, said)]);
    // Nothing is made, so nothing needs to be followed.
    if *body == Layout::entry(machine) {
        return (rules, range.end);
    }
    let sets = set.map_or([Some(Set::Thumb), Some(Set::Arm)], |set| [Some(set), None]);
    let followed = sets.into_iter().flatten().find_map(|set| {
        let followed = functions::within(input, range.clone(), set, starts)?;
        (!followed.is_exhausted && followed.makes(body)).then_some(followed)
    });
    let Some(followed) = followed else {
        const OTHER: &str = "exception index: the instructions do not make the frame that it says";
        compiler.report.count_unfollowed(Some(range.clone()), OTHER);
        // Of a neighbour that was joined, the beginning was cut off, or was not found at all.
        let is_told = !may_be_joined || !starts.are_late_at(range.end);
        return (if is_told { rules } else { Vec::new() }, range.end);
    };
    compiler.constants.extend(&followed.literals);
    // What stands behind all that was reached may be a neighbour that nothing has led to, which has a beginning of its own.
    let end = if may_be_joined { range.end.min(end_of(&followed)) } else { range.end };
    // Of a function that may begin before, not all paths are known.
    let between = if may_be_joined && starts.are_late_at(range.start) {
        (Rule::bare(Kind::Gap, RuleSource::Exidx), Slots::SAME)
    } else {
        said
    };
    let mut next = range.start;
    for (address, bytes, step) in followed.steps() {
        if address > next {
            push(&mut rules, next, between);
        }
        let rule = match step {
            Step::Rule(rule, slots) if body.is_at(rule, slots, machine) => said,
            Step::Rule(rule, slots) => (rule, slots),
            Step::Lost => said,
        };
        push(&mut rules, address, rule);
        next = address.saturating_add(bytes);
    }
    if next < end {
        push(&mut rules, next, said);
    }
    (rules, end)
}

/// Behind the last instruction that was reached.
fn end_of(followed: &Followed) -> u64 {
    followed.reached().map(|(address, bytes)| address.saturating_add(bytes)).last().unwrap_or(0)
}

fn push(rules: &mut FunctionRules, address: u64, rule: (Rule, Slots)) {
    match rules.last_mut() {
        Some((_, last)) if *last == rule => {}
        Some((start, last)) if *start == address => *last = rule,
        _ => rules.push((address, rule)),
    }
}
