//! Where functions begin, in files that have lost their symbols too. Each place is told by something, and held to what is there:
//!
//! * symbols, the file's entry, and the index table of 32-bit ARM: believed;
//! * calls of code that is followed: believed, unless the instructions there give back a frame that nobody made;
//! * jumps out of a function that has no frame any more, words of data that lead into code, and instructions that make a frame in code that nothing has led to: the
//!   instructions there must save the return address that they were given, or return by it ([`Signs::are_proof`]).
//!
//! Code that was followed already has no other beginnings than those that calls tell.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::follow::{Followed, MOST_TURNS_PER_BYTE, Signs};
use super::{Set, code_at, within};
use crate::arch::Arch;
use crate::compile::pieces::Claims;
use crate::compile::{Input, exidx};

/// Where functions begin, and in which instruction set: none where that is not known, and what begins there only ends what is before it.
#[derive(Debug, Default)]
pub(in super::super) struct Starts {
    places: BTreeMap<u64, Option<Set>>,
    /// What is called somewhere.
    pub(super) called: BTreeSet<u64>,
    /// Those that their instructions alone told: the function may begin some instructions before.
    swept: BTreeSet<u64>,
    /// Functions overlapped too much to look for all of them.
    pub(super) is_cut: bool,
}

impl Starts {
    /// By rising address.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Set)> + '_ {
        self.places.iter().filter_map(|(start, set)| Some((*start, (*set)?)))
    }

    /// Those in `range`, by rising address.
    pub(in super::super) fn within(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Option<Set>)> + '_ {
        let range = range.start..range.end.max(range.start);
        self.places.range(range).map(|(start, set)| (*start, *set))
    }

    /// Whether only the instructions there tell of a function, and it may begin before.
    pub(in super::super) fn are_late_at(&self, start: u64) -> bool {
        self.swept.contains(&start)
    }

    /// The next one behind `start`.
    pub(super) fn behind(&self, start: u64) -> Option<u64> {
        self.places.range(start.checked_add(1)?..).next().map(|(next, _)| *next)
    }
}

/// Looks for the functions of what is free of the code. `called` are those that other code calls.
pub(in super::super) fn find(input: &Input<'_>, claims: &Claims<'_>, called: impl Iterator<Item = u64>) -> Starts {
    let places = Places::of(input);
    let size = places.sections.iter().map(|section| section.code.len() as u64).sum::<u64>();
    let mut search = Search {
        input,
        claims,
        starts: Starts::default(),
        listed: exidx::starts(input).map(|(start, ..)| start).collect(),
        new: BTreeMap::new(),
        places,
        tails: BTreeSet::new(),
        // While they are looked for, functions may overlap. As much as all code may take without that is enough for real ones, and some for their beginnings.
        budget: size.saturating_mul(MOST_TURNS_PER_BYTE + 1),
    };
    let symbols = input.functions.iter().map(|value| Set::of_symbol(input.arch, *value));
    for (address, set) in symbols.chain(called.map(|address| (address, Set::Riscv))) {
        search.starts.places.insert(address, Some(set));
    }
    let mut described = BTreeSet::new();
    for (address, set, is_described) in exidx::starts(input) {
        described.extend(is_described.then_some(address));
        let set = set.or_else(|| search.starts.places.get(&address).copied().flatten());
        search.starts.places.insert(address, set);
    }
    // Nobody says which instructions are there, but they themselves.
    let unknown: Vec<u64> = search.starts.within(0..u64::MAX).filter(|(_, set)| set.is_none()).map(|it| it.0).collect();
    for address in unknown {
        let mut find = |proves: fn(Signs) -> bool| {
            let mut sets = sets(input.arch).iter().copied();
            sets.find(|set| search.follow(address, *set).is_some_and(|followed| proves(followed.signs)))
        };
        let is_described = described.contains(&address);
        let set = find(Signs::are_proof)
            .or_else(|| find(|signs| signs.saves_link && !signs.is_contradicted).filter(|_| is_described));
        search.starts.places.insert(address, set);
    }
    search.new = search.starts.iter().map(|(start, set)| (start, (set, Trust::Told))).collect();
    search.callees();
    search.pointed();
    search.swept();
    search.starts
}

/// What following a function costs before its first instruction, in turns: memory for what becomes known of it.
const TURNS_TO_BEGIN: u64 = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trust {
    Told,
    Called,
}

struct Search<'s, 'i> {
    input: &'s Input<'i>,
    claims: &'s Claims<'s>,
    starts: Starts,
    /// What begins by the index table, whatever is there.
    listed: BTreeSet<u64>,
    /// Of these, those that were not followed yet.
    new: BTreeMap<u64, (Set, Trust)>,
    places: Places<'i>,
    /// Where functions jump to that are done.
    tails: BTreeSet<(u64, Set)>,
    budget: u64,
}

impl Search<'_, '_> {
    fn follow(&mut self, start: u64, set: Set) -> Option<Followed> {
        if self.budget == 0 {
            self.starts.is_cut = true;
            return None;
        }
        let end = self.starts.behind(start).unwrap_or(u64::MAX);
        let followed = within(self.input, start..end, set, &self.starts)?;
        self.budget = self.budget.saturating_sub(followed.turns + TURNS_TO_BEGIN);
        Some(followed).filter(|followed| !followed.is_exhausted)
    }

    fn reach(&mut self, followed: &Followed) {
        for (address, bytes) in followed.reached() {
            for address in (address..address.saturating_add(bytes)).step_by(2) {
                self.places.mark(address, REACHED);
            }
        }
    }

    /// Follows what is new, and what that calls.
    fn callees(&mut self) {
        while let Some((start, (set, trust))) = self.new.pop_first() {
            if !self.claims.is_free(start) {
                continue;
            }
            let Some(followed) = self.follow(start, set) else { continue };
            if trust == Trust::Called && followed.signs.is_contradicted {
                match self.listed.contains(&start) {
                    true => self.starts.places.insert(start, None),
                    false => self.starts.places.remove(&start),
                };
                continue;
            }
            self.reach(&followed);
            for (address, exchanges) in &followed.callees {
                let (address, set) = if *exchanges { set.exchanged(*address) } else { (*address, set) };
                self.starts.called.insert(address);
                let is_known = self.starts.places.get(&address).is_some_and(Option::is_some);
                if !is_known && self.claims.is_free(address) {
                    self.starts.places.insert(address, Some(set));
                    self.new.insert(address, (set, Trust::Called));
                }
            }
            self.tails.extend(followed.tails.iter().map(|address| (*address, set)));
        }
    }

    /// What may be a function if the instructions there prove it.
    fn candidate(&mut self, address: u64, set: Set, proves: impl Fn(&Followed) -> bool) -> bool {
        let is_known = self.starts.places.get(&address).is_some_and(Option::is_some);
        if is_known || !self.claims.is_free(address) {
            return false;
        }
        // What was reached behind a call that never returns may be another function.
        let begins = || set.makes_frame(code_at(self.input, address).unwrap_or_default());
        let is_reached = self.places.has(address, REACHED);
        if is_reached && !begins() {
            return false;
        }
        let Some(followed) = self.follow(address, set) else { return false };
        if (!is_reached || followed.signs.begins_by_it) && proves(&followed) {
            self.starts.places.insert(address, Some(set));
            self.new.insert(address, (set, Trust::Called));
            self.callees();
            return true;
        }
        false
    }

    /// Words that lead into code: pointers that were relocated, those of other data, and constants among code; and jumps.
    fn pointed(&mut self) {
        let word = self.input.arch.word_bytes();
        for (start, bytes) in once(self.input.loaded.to_vec()) {
            let skipped = usize::try_from(start.wrapping_neg() % u64::from(word)).unwrap_or(0);
            for bytes in bytes.get(skipped..).unwrap_or_default().chunks_exact(usize::from(word)) {
                let value = bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
                let (address, set) = Set::of_symbol(self.input.arch, value);
                if address.is_multiple_of(set.alignment()) {
                    self.places.mark(address, pointed_to(set));
                }
            }
        }
        for section in 0..self.places.sections.len() {
            for place in 0.. {
                let Some((address, signs, _)) = self.places.get(section, place) else { break };
                for set in sets(self.input.arch) {
                    if signs & pointed_to(*set) != 0 {
                        self.candidate(address, *set, |followed| followed.signs.are_proof());
                    }
                }
            }
        }
        while let Some((address, set)) = self.tails.pop_first() {
            self.candidate(address, set, |followed| !followed.signs.is_contradicted);
        }
    }

    /// Instructions that make a frame in code that nothing has led to.
    fn swept(&mut self) {
        for section in 0..self.places.sections.len() {
            for place in 0.. {
                let Some((address, signs, code)) = self.places.get(section, place) else { break };
                if signs & REACHED != 0 {
                    continue;
                }
                let aligned = sets(self.input.arch).iter().filter(|set| address.is_multiple_of(set.alignment()));
                for set in aligned.filter(|set| set.makes_frame(code)) {
                    let proves = |signs: Signs| signs.saves_link && signs.returns && !signs.is_contradicted;
                    if self.candidate(address, *set, |followed| proves(followed.signs)) {
                        self.starts.swept.insert(address);
                    }
                }
            }
        }
    }
}

/// The instruction sets of the processor.
fn sets(arch: Arch) -> &'static [Set] {
    if arch == Arch::Arm { &[Set::Thumb, Set::Arm] } else { &[Set::Riscv] }
}

/// Something that was followed came here.
const REACHED: u8 = 1;
/// A word leads here, to ARM instructions.
const POINTED_ARM: u8 = 2;
/// A word leads here, to Thumb or RISC-V instructions.
const POINTED: u8 = 4;

/// What is known of half words of code.
struct Places<'i> {
    /// By rising address, not overlapping.
    sections: Vec<Section<'i>>,
}

struct Section<'i> {
    start: u64,
    code: &'i [u8],
    signs: Vec<u8>,
}

impl<'i> Places<'i> {
    fn of(input: &Input<'i>) -> Self {
        let mut sections = input.code.to_vec();
        // Of sections over each other the first counts. Keys of two numbers, as all such lists have: the sort is then compiled once for all of them.
        sections.sort_by_cached_key(|(start, code)| (*start, u64::MAX - code.len() as u64));
        let mut end = 0;
        sections.retain(|(start, code)| {
            let is_free = *start >= end;
            end = if is_free { start.saturating_add(code.len() as u64) } else { end };
            is_free
        });
        let mut sections = once(sections);
        sections.sort_by_cached_key(|(start, _)| (*start, 0_u64));
        let section = |(start, code): (u64, &'i [u8])| Section { start, code, signs: vec![0; code.len().div_ceil(2)] };
        Self { sections: sections.into_iter().map(section).collect() }
    }

    /// Address, signs and what stands there of half word `place` of a section.
    fn get(&self, section: usize, place: usize) -> Option<(u64, u8, &'i [u8])> {
        let Section { start, code, signs } = self.sections.get(section)?;
        let offset = place * 2;
        Some((start.saturating_add(offset as u64), *signs.get(place)?, code.get(offset..)?))
    }

    fn at(&mut self, address: u64) -> Option<&mut u8> {
        let after = self.sections.partition_point(|section| section.start <= address);
        let section = self.sections.get_mut(after.checked_sub(1)?)?;
        section.signs.get_mut(usize::try_from((address - section.start) / 2).ok()?)
    }

    fn mark(&mut self, address: u64, sign: u8) {
        if let Some(signs) = self.at(address) {
            *signs |= sign;
        }
    }

    fn has(&mut self, address: u64, sign: u8) -> bool {
        self.at(address).is_some_and(|signs| *signs & sign != 0)
    }
}

/// Of parts of a file each byte once: a header of 40 bytes can name all of it, and there may be thousands of headers.
fn once(mut parts: Vec<(u64, &[u8])>) -> Vec<(u64, &[u8])> {
    parts.sort_by_cached_key(|(_, bytes)| (bytes.as_ptr() as u64, 0_u64));
    let mut end = 0;
    let rest = parts.into_iter().map(|(start, bytes)| {
        let from = bytes.as_ptr() as usize;
        // Whole words, so that what is left is aligned as it was.
        let seen = end.max(from).saturating_sub(from).next_multiple_of(8).min(bytes.len());
        end = end.max(from + bytes.len());
        (start.saturating_add(seen as u64), bytes.get(seen..).unwrap_or_default())
    });
    rest.filter(|(_, bytes)| !bytes.is_empty()).collect()
}

/// What says that a word leads to instructions of `set`.
fn pointed_to(set: Set) -> u8 {
    if set == Set::Arm { POINTED_ARM } else { POINTED }
}
