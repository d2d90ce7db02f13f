//! What came of following a function.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::super::pages::States;
use crate::arch::Machine;
use crate::compile::layout::Layout;
use crate::rule::{Rule, Slots};

/// What was found for one instruction that some path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::compile) enum Step {
    /// The frame could not be followed up to here.
    Lost,
    /// The rule that holds before the instruction.
    Rule(Rule, Slots),
}

/// A function that was followed.
pub(in crate::compile) struct Followed {
    pub(super) start: u64,
    pub(super) states: States,
    pub(super) unit: usize,
    pub(super) machine: &'static Machine,
    /// Where it calls to by rising address, each once, and whether the other instruction set is there.
    pub(in crate::compile::functions) callees: Vec<(u64, bool)>,
    /// Where it jumps to outside of itself with everything as a caller has it.
    pub(in crate::compile::functions) tails: Vec<u64>,
    /// Words that it loads from among the code.
    pub(in crate::compile) literals: BTreeSet<u64>,
    /// What speaks for a function that begins here, and what against.
    pub(in crate::compile::functions) signs: Signs,
    /// How often two paths led to one instruction with frames that contradict each other.
    pub(in crate::compile) conflicts: usize,
    /// Instructions and entries of tables that were looked at, those that were met again included.
    pub(in crate::compile::functions) turns: u64,
    /// They were too many, and not all paths were followed: what was found is not what holds.
    pub(in crate::compile) is_exhausted: bool,
}

/// What following code from a place on shows of whether a function begins there. What stands behind a call may belong to another function, and shows
/// nothing against it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::compile) struct Signs {
    /// It saves the return address before it calls anything.
    pub(in crate::compile::functions) saves_link: bool,
    /// It does so by its first instruction: inside a function that was done already.
    pub(in crate::compile::functions) begins_by_it: bool,
    /// It returns to who called, with all that a function keeps.
    pub(in crate::compile::functions) returns: bool,
    /// It takes down more than it made, or returns by what is no return address.
    pub(in crate::compile::functions) is_contradicted: bool,
}

impl Signs {
    /// Whether a function begins there, if nobody says so: else a word that only looks like an address would be one. Where the frame comes out even at
    /// a return, it does so at every instruction, wherever it was entered.
    pub(in crate::compile::functions) fn are_proof(self) -> bool {
        (self.begins_by_it || self.returns) && !self.is_contradicted
    }
}

impl Followed {
    /// Whether the frame is somewhere what is said of the body.
    pub(in crate::compile) fn makes(&self, body: &Layout) -> bool {
        self.states.iter().any(|(_, (state, _))| state.is_as_in(body, self.machine))
    }

    /// Whether the CFA before the instruction at `address` is where `layout` counts it; `None` where that is not known.
    pub(in crate::compile) fn has_cfa_of(&self, address: u64, layout: &Layout) -> Option<bool> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let (state, _) = self.states.get(at / self.unit)?;
        state.has_cfa_of(layout, self.machine)
    }

    /// Address and length of each instruction that was reached, by rising address.
    pub(in crate::compile) fn reached(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.states
            .iter()
            .filter_map(|(at, (_, bytes))| Some((self.start.checked_add((at * self.unit) as u64)?, u64::from(*bytes))))
    }

    /// Address, length and rule of each instruction that was reached, by rising address.
    pub(in crate::compile) fn steps(&self) -> impl Iterator<Item = (u64, u64, Step)> + '_ {
        self.states.iter().filter_map(|(at, (state, bytes))| {
            let step = state.rule(self.machine).map_or(Step::Lost, |(rule, slots)| Step::Rule(rule, slots));
            Some((self.start.checked_add((at * self.unit) as u64)?, u64::from(*bytes), step))
        })
    }
}
