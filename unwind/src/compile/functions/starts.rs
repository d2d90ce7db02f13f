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
    let size = input.code.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
    let mut search = Search {
        input,
        claims,
        starts: Starts::default(),
        new: BTreeMap::new(),
        places: Places::of(input),
        tails: BTreeSet::new(),
        // While they are looked for, functions may overlap. As much as all code may take without that is enough for real ones.
        budget: size.saturating_mul(MOST_TURNS_PER_BYTE),
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trust {
    Told,
    Called,
}

struct Search<'s, 'i> {
    input: &'s Input<'i>,
    claims: &'s Claims<'s>,
    starts: Starts,
    /// Of these, those that were not followed yet.
    new: BTreeMap<u64, (Set, Trust)>,
    places: Places,
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
        self.budget = self.budget.saturating_sub(followed.turns.max(1));
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
                self.starts.places.remove(&start);
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
        for (start, bytes) in self.input.loaded {
            let skipped = usize::try_from(start.wrapping_neg() % u64::from(word)).unwrap_or(0);
            for bytes in bytes.get(skipped..).unwrap_or_default().chunks_exact(usize::from(word)) {
                let value = bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
                let (address, set) = Set::of_symbol(self.input.arch, value);
                if address.is_multiple_of(set.alignment()) {
                    self.places.mark(address, pointed_to(set));
                }
            }
        }
        let input = self.input;
        for (section, bytes) in input.code {
            for address in (*section..section.saturating_add(bytes.len() as u64)).step_by(2) {
                for set in sets(input.arch) {
                    if self.places.has(address, pointed_to(*set)) {
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
        let input = self.input;
        for (section, bytes) in input.code {
            for offset in (0..bytes.len()).step_by(2) {
                let address = section.saturating_add(offset as u64);
                if self.places.has(address, REACHED) {
                    continue;
                }
                let code = bytes.get(offset..).unwrap_or_default();
                let aligned = sets(input.arch).iter().filter(|set| address.is_multiple_of(set.alignment()));
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
struct Places {
    sections: Vec<(u64, Vec<u8>)>,
}

impl Places {
    fn of(input: &Input<'_>) -> Self {
        let sections = input.code.iter().map(|(start, bytes)| (*start, vec![0; bytes.len().div_ceil(2)]));
        Self { sections: sections.collect() }
    }

    fn mark(&mut self, address: u64, sign: u8) {
        let found = self
            .sections
            .iter_mut()
            .find_map(|(start, places)| places.get_mut(usize::try_from(address.checked_sub(*start)? / 2).ok()?));
        if let Some(place) = found {
            *place |= sign;
        }
    }

    fn has(&self, address: u64, sign: u8) -> bool {
        let found = self
            .sections
            .iter()
            .find_map(|(start, places)| places.get(usize::try_from(address.checked_sub(*start)? / 2).ok()?));
        found.is_some_and(|place| place & sign != 0)
    }
}

/// What says that a word leads to instructions of `set`.
fn pointed_to(set: Set) -> u8 {
    if set == Set::Arm { POINTED_ARM } else { POINTED }
}
