//! Where functions begin that nothing describes. Each place is told by something, and held to what is there:
//!
//! * calls of other code, and jumps out of functions of other code that have no frame: such functions may go on in a way that is not known;
//! * symbols, addresses that other code loads, and words of data that lead to code as functions are aligned: what begins there must end as a function does somewhere;
//! * calls out of functions that were found so, which need not keep any register.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::{Bound, Range};

use super::code::{Code, Gap};
use super::follow::{Called, Callees, EXHAUSTED, Followed, Lead, OVERWRITTEN, TOO_LONG, Tables, UNBALANCED};
use crate::arch::Arch;
use crate::arch::x86::{Mode, jump, parts};
use crate::compile::Input;
use crate::compile::bare::state::State;
use crate::compile::bare::{Convention, rule};
use crate::compile::layout::Layout;
use crate::compile::pieces::Piece;
use crate::compile::programs::Programs;
use crate::compile::rules::{RuleNumber, Rules};
use crate::rule::{Rule, RuleSource, Slots};

/// Turns for each byte of code that nothing speaks for: an instruction is read once, and met a few times.
const TURNS_PER_BYTE: u64 = 48;
/// And for all of it, which is minutes: functions that go on in each other cost many times what they are long.
const MOST_TURNS: u64 = 1 << 28;
/// What a function costs before its first instruction.
const TURNS_TO_BEGIN: u64 = 32;
/// Other code is looked through for calls if it is no larger than so many times the code that nothing speaks for.
const WORTH_READING: u64 = 64;
/// Data is looked through for pointers if it is no larger than so many times that code. A library of 110 MB with 59 MB of data has 18 kB of such code.
const WORTH_SEARCHING: u64 = 1024;
/// Code that nothing speaks for of so many bytes is in every program: what compilers begin and end with.
const USUAL: u64 = 256;
/// Jumps by tables in one function.
const MOST_TABLES: usize = 16;
/// What a rule that is kept costs.
const TURNS_PER_RULE: u64 = 8;
/// Bytes for all functions that are being followed, which call each other.
const MOST_HELD: usize = 64 << 20;
/// Functions that call each other in a row.
const DEEPEST: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trust {
    /// By an address of it alone.
    Pointed,
    /// By a symbol: what begins there may be entered by a return, and have no caller.
    Named,
    /// By what calls it.
    Told,
    /// By a function that was followed.
    Local,
}

/// What is known of a function that was followed.
pub(super) struct Proven {
    /// By rising address, and where there is none.
    pub(super) rules: Vec<(Range<u64>, Option<RuleNumber>)>,
    pub(super) is_cut: bool,
    /// What calls of it may count on.
    called: Called,
}

impl Proven {
    /// Where what is known from `start` on ends first.
    fn end_from(&self, start: u64) -> Option<u64> {
        let mut end = start;
        for (range, _) in self.rules.iter().filter(|(range, _)| range.start >= start) {
            if range.start != end {
                break;
            }
            end = range.end;
        }
        (end > start).then_some(end)
    }
}

/// Why there is nothing known of one.
pub(super) struct Failed {
    pub(super) reason: &'static str,
    trust: Trust,
}

impl Failed {
    /// Whether there is a function for sure.
    pub(super) fn is_told(&self) -> bool {
        self.trust != Trust::Pointed
    }

    /// Whether it looks as a label inside of a function does: by its symbol alone, and it takes from the stack what it has not put there.
    fn may_be_inside(&self) -> bool {
        self.trust == Trust::Named && matches!(self.reason, UNBALANCED | OVERWRITTEN)
    }
}

pub(super) struct Search<'s, 'i> {
    code: &'s Code<'s, 'i>,
    starts: BTreeMap<u64, Trust>,
    pub(super) proven: BTreeMap<u64, Proven>,
    pub(super) failed: BTreeMap<u64, Failed>,
    rules: &'s mut Rules,
    programs: &'s mut Programs,
    /// Being followed.
    open: BTreeSet<u64>,
    turns: u64,
    /// Bytes for those that are being followed.
    held: usize,
}

impl<'s, 'i> Search<'s, 'i> {
    pub(super) fn new(code: &'s Code<'s, 'i>, rules: &'s mut Rules, programs: &'s mut Programs) -> Self {
        let turns = code.bytes().saturating_mul(TURNS_PER_BYTE).min(MOST_TURNS);
        Self {
            code,
            starts: BTreeMap::new(),
            proven: BTreeMap::new(),
            failed: BTreeMap::new(),
            rules,
            programs,
            open: BTreeSet::new(),
            turns,
            held: 0,
        }
    }

    /// Where the next function begins behind `start`, followed or not.
    pub(super) fn next_start(&self, start: u64) -> Option<u64> {
        let behind = (Bound::Excluded(start), Bound::Unbounded);
        let followed = self.proven.range(behind).next().map(|(start, _)| *start);
        let failed = self.failed.range(behind).find(|(_, failed)| failed.is_told()).map(|(start, _)| *start);
        followed.into_iter().chain(failed).min()
    }

    /// Where functions begin for sure or were found, up to where the next one does, by rising address; and whether they could not be followed. What may
    /// be a label inside of another is none.
    pub(super) fn begun(&self) -> Vec<(Range<u64>, bool)> {
        let told = self.failed.iter().filter(|(_, failed)| failed.is_told());
        let mut starts: Vec<(u64, Option<&Failed>)> = told.map(|(start, failed)| (*start, Some(failed))).collect();
        starts.extend(self.proven.keys().map(|start| (*start, None)));
        starts.sort_unstable_by_key(|(start, _)| *start);
        let next = starts.iter().skip(1).map(|(next, _)| *next).chain([u64::MAX]);
        let end = |start: u64, next: u64| self.code.gap(start).map_or(next, |gap| gap.end().min(next));
        let all = starts.iter().zip(next).filter(|((_, failed), _)| !failed.is_some_and(Failed::may_be_inside));
        all.map(|((start, failed), next)| (*start..end(*start, next), failed.is_some())).collect()
    }

    /// The rule where a function begins.
    pub(super) fn entry(&mut self) -> Option<RuleNumber> {
        let (rule, slots) = rule(&State::entry(Convention::SystemV), RuleSource::Instructions, self.programs)?;
        Some(self.rules.number_of(rule, slots))
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.turns == 0
    }

    fn note(&mut self, address: u64, trust: Trust) {
        if self.code.gap(address).is_some() {
            let known = self.starts.entry(address).or_insert(trust);
            *known = trust.max(*known);
        }
    }

    /// What the file tells.
    pub(super) fn told(&mut self, input: &Input<'_>, pieces: &[Piece]) {
        for address in input.functions {
            self.note(*address, Trust::Named);
        }
        let unknown = self.code.bytes();
        let data: u64 = data(input).map(|(_, bytes)| bytes.len() as u64).sum();
        if data / WORTH_SEARCHING <= unknown {
            self.words(input);
        }
        let known: u64 = pieces.iter().map(|piece| piece.end() - piece.start()).sum();
        if unknown > USUAL && known / WORTH_READING <= unknown {
            for piece in pieces {
                self.other_code(input, piece);
            }
        }
    }

    /// Pointers in data, relocated ones among them: tables of relocations have their values.
    fn words(&mut self, input: &Input<'_>) {
        const WORD: usize = 8;
        let (Some(first), Some(last)) = (self.code.gaps.first(), self.code.gaps.last()) else { return };
        let span = first.start..last.end();
        let alignment = Arch::X86_64.machine().function_alignment;
        for (start, bytes) in data(input) {
            let skipped = start.wrapping_neg() as usize % WORD;
            for word in bytes.get(skipped..).unwrap_or_default().as_chunks::<WORD>().0 {
                let value = u64::from_le_bytes(*word);
                if span.contains(&value) && value.is_multiple_of(alignment) {
                    self.note(value, Trust::Pointed);
                }
            }
        }
    }

    /// Calls, jumps and addresses in code that has a rule.
    fn other_code(&mut self, input: &Input<'_>, piece: &Piece) {
        let Some(code) = input.code_of(&piece.range()) else { return };
        let machine = Arch::X86_64.machine();
        let (rule, slots) = self.rules.of(piece.rule);
        let is_entry = Layout::of(rule, slots, machine) == Some(Layout::entry(machine));
        let mut at = 0;
        while let Some(rest) = code.get(at..).filter(|rest| !rest.is_empty()) {
            let Some(parts) = parts(rest, Mode::Bits64) else { return };
            at += parts.length;
            let next = piece.start().wrapping_add(at as u64);
            let near = |bytes: &[u8]| bytes.first_chunk().map(|near| i64::from(i32::from_le_bytes(*near)));
            match rest.get(parts.opcode..parts.length).unwrap_or_default() {
                [0xe8, distance @ ..] => {
                    if let Some(distance) = near(distance) {
                        self.note(next.wrapping_add_signed(distance), Trust::Told);
                    }
                }
                // lea of an address counted from the program counter
                [0x8d, modrm, distance @ ..] if modrm & 0xc7 == 5 => {
                    if let Some(distance) = near(distance) {
                        self.note(next.wrapping_add_signed(distance), Trust::Pointed);
                    }
                }
                _ if is_entry => {
                    if let Some(distance) = jump(rest, &parts).and_then(|jump| jump.distance) {
                        self.note(next.wrapping_add_signed(distance), Trust::Told);
                    }
                }
                _ => {}
            }
        }
    }

    /// What stands behind a function that was found and is aligned as functions are: nothing may have led there.
    fn swept(&mut self) {
        let alignment = Arch::X86_64.machine().function_alignment;
        for gap in &self.code.gaps {
            // Rules do not rise over functions that share code: where the last of what is known so far ends.
            let mut known: Vec<(u64, u64)> = Vec::new();
            for proven in self.proven.range(gap.start..gap.end()).map(|(_, proven)| proven) {
                known.extend(proven.rules.iter().map(|(range, _)| (range.start, range.end)));
            }
            known.sort_unstable();
            let mut known = known.into_iter().peekable();
            let mut at = gap.start;
            loop {
                while let Some((_, end)) = known.next_if(|(start, _)| *start <= at) {
                    at = at.max(end);
                }
                let start = at.next_multiple_of(alignment);
                let is_padding = || {
                    let bytes = gap.from(at)?.get(..usize::try_from(start - at).ok()?)?;
                    Some((Arch::X86_64.machine().is_padding)(bytes))
                };
                if start < gap.end()
                    && known.peek().is_none_or(|(known, _)| start < *known)
                    && is_padding() == Some(true)
                {
                    self.follow(start, Trust::Pointed);
                    if let Some(end) = self.proven.get(&start).and_then(|proven| proven.end_from(start)) {
                        at = end;
                        continue;
                    }
                }
                match known.next() {
                    Some((_, end)) => at = at.max(end),
                    None => break,
                }
            }
        }
    }

    /// Follows all of it, and what that calls.
    pub(super) fn run(&mut self) {
        let starts: Vec<(u64, Trust)> = self.starts.iter().map(|(at, trust)| (*at, *trust)).collect();
        for (start, trust) in starts {
            self.follow(start, trust);
        }
        self.swept();
    }

    fn follow(&mut self, start: u64, trust: Trust) {
        let is_known = self.failed.get(&start).is_some_and(|failed| failed.trust >= trust);
        if is_known || self.proven.contains_key(&start) || !self.open.insert(start) {
            return;
        }
        let held = self.held;
        let found = self.followed(start);
        self.held = held;
        self.open.remove(&start);
        let is_proven = |followed: &Followed| match trust {
            Trust::Pointed | Trust::Named => followed.ends > 0 && followed.lost == 0,
            Trust::Told => (followed.ends > 0 || followed.is_cut) && followed.lost == 0,
            Trust::Local => followed.ends > 0 || followed.is_cut,
        };
        let reason = match found {
            Ok((followed, doubted)) if is_proven(&followed) => {
                let rules = followed.rules(&doubted, self.programs);
                match self.spend(TURNS_PER_RULE.saturating_mul(rules.len() as u64)) {
                    Ok(()) => {
                        let mut numbered =
                            |rule: Option<(Rule, Slots)>| rule.map(|(rule, slots)| self.rules.number_of(rule, slots));
                        let rules = rules.into_iter().map(|(range, rule)| (range, numbered(rule))).collect();
                        let is_cut = followed.is_cut || !doubted.is_empty();
                        self.proven.insert(start, Proven { rules, is_cut, called: followed.called() });
                        self.failed.remove(&start);
                        return;
                    }
                    Err(reason) => reason,
                }
            }
            Ok(_) => NO_FUNCTION,
            Err(reason) => reason,
        };
        self.failed.insert(start, Failed { reason, trust });
    }

    /// And where tables of jumps lead of which one contradicts another.
    fn followed(&mut self, start: u64) -> Result<(Followed, BTreeSet<u64>), &'static str> {
        let code = self.code;
        let mut turns = self.turns;
        let begun = turns.checked_sub(TURNS_TO_BEGIN).ok_or(EXHAUSTED);
        turns = begun.unwrap_or(0);
        self.turns = turns;
        begun?;
        let mut tables = Tables::new();
        let mut doubted = BTreeSet::new();
        let mut followed = Followed::new(code, start, &tables, self)?;
        let next = self.starts.range(start + 1..).next().map_or(u64::MAX, |(next, _)| *next);
        let range = start..code.gap(start).map_or(start, Gap::end).min(next);
        let mut tried = BTreeSet::new();
        // What a table leads to may jump by the next one.
        while tried.len() < MOST_TABLES
            && let Some((at, lead)) = followed.leads.iter().find(|(at, _)| !tried.contains(at)).copied()
        {
            tried.insert(at);
            let targets = match lead {
                Lead::Place(place) => Vec::from([place]),
                Lead::Table { around, base } => code.entries(around, base, &range),
            };
            followed = self.by_table(followed, (start, &mut tables), (at, targets), (&tried, &mut doubted));
        }
        // What was to go on by another table may not have.
        let ending = if tables.is_empty() { BTreeSet::new() } else { followed.ending(|_| false) };
        if tables.values().flatten().any(|entry| !ending.contains(entry)) {
            tables.values_mut().for_each(|entries| entries.retain(|entry| ending.contains(entry)));
            tables.retain(|_, entries| !entries.is_empty());
            followed = Followed::new(code, start, &tables, self)?;
            followed.is_partial = true;
        }
        Ok((followed, doubted))
    }

    /// With those entries of a table of jumps that lead to where some path ends as it should, and all do with which they are followed. What is read may
    /// be a neighbouring table's: an entry that is right for one of two is not known to be right for which.
    fn by_table(
        &mut self,
        followed: Followed,
        (start, tables): (u64, &mut Tables),
        (at, entries): (u64, Vec<u64>),
        (tried, doubted): (&BTreeSet<u64>, &mut BTreeSet<u64>),
    ) -> Followed {
        let code = self.code;
        let mut with = |entries: &[u64]| {
            let mut tables = tables.clone();
            tables.insert(at, entries.to_vec());
            let held = self.held;
            let found = Followed::new(code, start, &tables, self);
            // One of them is kept, or none.
            self.held = held;
            let found = found.ok()?;
            (found.lost & !followed.lost == 0).then_some((found, tables))
        };
        let is_open = |jump: u64| !tried.contains(&jump);
        if entries.is_empty() {
            return followed;
        }
        let mut found = with(&entries);
        let sound: Vec<u64> = match &found {
            Some((found, _)) => {
                let ending = found.ending(is_open);
                entries.iter().copied().filter(|entry| ending.contains(entry)).collect()
            }
            None => {
                let mut sound = Vec::new();
                for entry in entries.iter().copied() {
                    match with(&[entry]) {
                        Some((found, _)) => sound.extend(found.ending(is_open).contains(&entry).then_some(entry)),
                        None => doubted.extend(followed.reaches(entry).then_some(entry)),
                    }
                }
                sound
            }
        };
        if sound.is_empty() {
            return followed;
        }
        let is_partial = sound.len() < entries.len();
        if is_partial {
            found = with(&sound);
        }
        match found {
            Some((mut found, known)) => {
                found.is_partial = followed.is_partial || is_partial;
                *tables = known;
                found
            }
            None => followed,
        }
    }
}

const NO_FUNCTION: &str = "what begins there does not end as functions do";

/// What is loaded and no code.
fn data<'i>(input: &Input<'i>) -> impl Iterator<Item = (u64, &'i [u8])> {
    input.loaded.iter().copied().filter(|(start, _)| input.code.iter().all(|(code, _)| code != start))
}

impl Callees for Search<'_, '_> {
    fn is_start(&self, address: u64) -> bool {
        self.starts.contains_key(&address)
            || self.open.contains(&address)
            || self.proven.contains_key(&address)
            || self.failed.get(&address).is_some_and(Failed::is_told)
    }

    fn spend(&mut self, turns: u64) -> Result<(), &'static str> {
        let left = self.turns.checked_sub(turns);
        self.turns = left.unwrap_or(0);
        left.map(drop).ok_or(EXHAUSTED)
    }

    fn hold(&mut self, bytes: usize) -> Result<(), &'static str> {
        self.held = self.held.saturating_add(bytes);
        if self.held > MOST_HELD { Err(TOO_LONG) } else { Ok(()) }
    }

    fn called(&mut self, address: u64) -> Called {
        // What is being followed already is not known yet.
        if self.open.len() < DEEPEST {
            self.follow(address, Trust::Local);
        }
        match (self.proven.get(&address), self.failed.get(&address)) {
            (Some(proven), _) => proven.called,
            // It may still return, with another stack.
            (None, Some(failed)) if failed.reason != NO_FUNCTION => Called::Unclear,
            (None, _) => Called::Unseen,
        }
    }
}
