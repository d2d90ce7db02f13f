//! Following a function's instructions from the first one, along branches.
//!
//! An instruction's state comes from those that lead to it. What leads on from a call is followed last and by rising address,
//! because some calls never return, and what stands behind them may belong to another path, or to the next function.

mod borders;
mod followed;
mod switches;

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::instruction::{Decode, Flow, Instruction};
use super::pages::{Known, States};
use super::state::State;
use crate::arch::{Arch, Machine};
pub(in crate::compile) use followed::{Followed, Signs, Step};

/// How much was found when something began that may have to be taken back.
struct Mark {
    log: usize,
    calls: usize,
    callees: usize,
    tails: usize,
    switches: usize,
    literals: usize,
    tail: Option<State>,
    conflicts: usize,
}

struct Follower<'c> {
    code: &'c [u8],
    start: u64,
    machine: &'static Machine,
    decode: Decode,
    /// Functions that are called somewhere.
    called: &'c BTreeSet<u64>,
    /// Instructions begin at multiples of this.
    unit: usize,
    /// The state before each place where an instruction may begin, and how long the instruction is.
    states: States,
    queue: Vec<usize>,
    behind_calls: BTreeSet<(usize, usize)>,
    call_states: Vec<State>,
    /// Words that are loaded: these are no instructions.
    literals: BTreeSet<u64>,
    /// In the order in which they were found.
    new_literals: Vec<u64>,
    callees: Vec<(u64, bool)>,
    tails: Vec<u64>,
    signs: Signs,
    is_behind_calls: bool,
    /// CFA minus the stack pointer at the last call that something was followed behind, or where the case began.
    called_at: Option<i32>,
    /// The states that jumps to somewhere in the function leave, by where the jump is.
    switches: BTreeMap<usize, State>,
    /// The state that a jump without a frame leaves: a switch, or a tail call.
    tail: Option<State>,
    /// In the order of `switches`' making.
    new_switches: Vec<usize>,
    /// While something is followed that may be another function's: what the states were before.
    log: Vec<(usize, Known)>,
    /// Cases of a jump table are followed.
    is_in_cases: bool,
    /// The code that is followed as a case, or as what a call comes back to, is another function's.
    is_foreign: bool,
    /// It leads into constants, or on into the next function, with a frame.
    is_astray: bool,
    /// Branches behind an instruction that moves the stack pointer if the same flags say so: what holds where they lead, and behind them.
    ways: BTreeMap<usize, (State, State)>,
    conflicts: usize,
    turns: u64,
}

/// Entries of tables and instructions that are looked at for each byte of a function. Functions of C libraries take at most two.
pub(super) const MOST_TURNS_PER_BYTE: u64 = 8;

impl Followed {
    /// Follows the function at `start` that `code` begins with, to its end at the latest.
    pub(in crate::compile) fn new(
        start: u64,
        code: &[u8],
        machine: &'static Machine,
        decode: Decode,
        called: &BTreeSet<u64>,
    ) -> Self {
        let unit = machine.instruction_alignment;
        let mut follower = Follower {
            code,
            start,
            machine,
            decode,
            called,
            unit,
            states: States::default(),
            queue: Vec::new(),
            behind_calls: BTreeSet::new(),
            call_states: Vec::new(),
            literals: BTreeSet::new(),
            new_literals: Vec::new(),
            callees: Vec::new(),
            tails: Vec::new(),
            signs: Signs::default(),
            is_behind_calls: false,
            called_at: None,
            switches: BTreeMap::new(),
            tail: None,
            new_switches: Vec::new(),
            log: Vec::new(),
            is_in_cases: false,
            is_foreign: false,
            is_astray: false,
            ways: BTreeMap::new(),
            conflicts: 0,
            turns: 0,
        };
        follower.lead(0, State::ENTRY);
        follower.run();
        // In a function with a frame, a jump without one is a tail call.
        let has_frame = follower.states.iter().any(|(_, (state, _))| state.depth() != Some(0));
        if let Some(state) = follower.tail.filter(|_| !has_frame) {
            follower.switches.insert(0, state);
        }
        if !follower.switches.is_empty() {
            follower.cases();
        }
        let is_exhausted = follower.is_exhausted();
        let Follower { states, mut callees, tails, literals, signs, conflicts, turns, .. } = follower;
        callees.sort_by_cached_key(|(address, exchanges)| (*address, u64::from(*exchanges)));
        callees.dedup();
        Self { start, states, unit, machine, callees, tails, literals, signs, conflicts, turns, is_exhausted }
    }
}

impl Follower<'_> {
    fn is_exhausted(&self) -> bool {
        self.turns > MOST_TURNS_PER_BYTE * self.code.len() as u64
    }

    fn instruction(&self, at: usize) -> Option<Instruction> {
        (self.decode)(self.code.get(at..)?)
    }

    /// Some path leads to the instruction at `at` with `state`.
    fn lead(&mut self, at: usize, state: State) {
        let Some(instruction) = self.instruction(at) else { return };
        let Ok(bytes) = u8::try_from(instruction.bytes) else { return };
        if self.is_uncertain() && self.is_literal(at) {
            return;
        }
        if self.is_uncertain() && self.begins_another(&instruction, &state) {
            self.is_foreign = true;
            return;
        }
        let known = self.states.get(at / self.unit);
        let met = match known {
            None => Some(state),
            Some((known, _)) => known.meet(&state),
        };
        match met {
            None => {
                self.conflicts += 1;
            }
            Some(met) if known == Some((met, bytes)) => {}
            Some(met) => {
                if self.is_uncertain() {
                    self.log.push((at, known));
                }
                self.states.set(at / self.unit, Some((met, bytes)));
                self.queue.push(at);
            }
        }
    }

    fn is_literal(&self, at: usize) -> bool {
        self.literals.contains(&(self.start.wrapping_add(at as u64) & !3))
    }

    /// Whether what is followed may be another function.
    fn is_uncertain(&self) -> bool {
        self.is_in_cases || self.is_behind_calls
    }

    /// A branch leads to the instruction at `at` with `state`.
    fn lead_on(&mut self, at: usize, state: State) {
        let state = if self.begins_a_thread(at, state) { state.without_caller() } else { state };
        self.lead(at, state);
    }

    fn run(&mut self) {
        self.run_queue();
        while let Some((at, number)) = self.behind_calls.pop_first() {
            self.is_behind_calls = true;
            let state = self.call_states.get(number).copied();
            let Some(state) = state.filter(|state| !self.begins_a_function(at, state)) else { continue };
            // A call that never returns comes back to nothing: what stands behind it is another function's, or has another frame.
            let mark = self.mark();
            self.called_at = state.depth();
            let before = (core::mem::take(&mut self.is_foreign), core::mem::take(&mut self.is_astray));
            self.lead(at, state);
            self.run_queue();
            if self.is_foreign || self.is_astray {
                self.take_back(mark);
            }
            (self.is_foreign, self.is_astray) = before;
            if !self.is_in_cases {
                self.log.clear();
            }
        }
    }

    fn run_queue(&mut self) {
        while let Some(at) = self.queue.pop().filter(|_| !self.is_exhausted()) {
            self.step(at);
        }
    }

    /// From here on, what is found may be taken back.
    fn mark(&mut self) -> Mark {
        Mark {
            log: self.log.len(),
            calls: self.call_states.len(),
            callees: self.callees.len(),
            tails: self.tails.len(),
            switches: self.new_switches.len(),
            literals: self.new_literals.len(),
            tail: self.tail,
            conflicts: self.conflicts,
        }
    }

    fn take_back(&mut self, mark: Mark) {
        while self.log.len() > mark.log
            && let Some((at, before)) = self.log.pop()
        {
            self.states.set(at / self.unit, before);
        }
        self.queue.clear();
        self.behind_calls.retain(|(_, number)| *number < mark.calls);
        self.callees.truncate(mark.callees);
        self.tails.truncate(mark.tails);
        for at in self.new_switches.split_off(mark.switches) {
            self.switches.remove(&at);
        }
        for literal in self.new_literals.split_off(mark.literals) {
            self.literals.remove(&literal);
        }
        self.tail = mark.tail;
        self.conflicts = mark.conflicts;
    }

    /// Whether a return is the next that leads elsewhere, within what one `it` makes depend on flags.
    fn returns_soon(&self, mut at: usize) -> bool {
        /// Instructions behind the first one of such a group.
        const MOST: usize = 3;
        for _ in 0..MOST {
            match self.instruction(at) {
                Some(Instruction { flow: Flow::Return, .. }) => return true,
                Some(Instruction { flow: Flow::Next, bytes, .. }) => at += bytes,
                _ => return false,
            }
        }
        false
    }

    /// Whether a branch stands at `next` that is taken if the instruction at `at` does something (`true`), or if it does not (`false`); `None` of
    /// everything else.
    fn branches_by_the_same_flags(&self, at: usize, instruction: &Instruction, next: usize) -> Option<bool> {
        let branch = self.instruction(next)?;
        if !matches!(branch.flow, Flow::Branch { is_conditional: true, .. }) {
            return None;
        }
        // Thumb has the condition of one instruction in the one before it.
        let made_before = || {
            let before = self.instruction(at.checked_sub(2)?)?;
            before.condition.filter(|_| before.makes_conditional == 1)
        };
        let condition = instruction.condition.or_else(made_before)?;
        match branch.condition? ^ condition {
            0 => Some(true),
            // Conditions that differ in their lowest bit are opposites.
            1 => Some(false),
            _ => None,
        }
    }

    /// The address that is `distance` away from the instruction at `at`.
    fn away(&self, at: usize, distance: i64) -> u64 {
        let address = self.start.wrapping_add(at as u64).wrapping_add_signed(distance);
        if self.machine.word == 4 { address & 0xffff_ffff } else { address }
    }

    fn note_signs(&mut self, before: &State, after: &State, flow: Flow) {
        // Of what flags decide one way is not told here.
        let is_known = !before.is_split() && !after.is_split();
        let links = before.has_link(self.machine) || after.has_link(self.machine);
        let is_back = after.depth() == Some(0);
        let returns = flow == Flow::Return && !self.is_in_cases && is_known;
        self.signs.returns |= returns && is_back && links && after.has_all_kept(self.machine);
        if !self.is_behind_calls && !self.is_in_cases {
            self.signs.saves_link |= after.saves_link(self.machine);
            let is_above = after.depth().is_some_and(|depth| depth < 0);
            let is_wrong = returns && after.depth().is_some_and(|depth| depth != 0 || !links);
            self.signs.is_contradicted |= is_above || is_wrong;
        }
    }

    fn step(&mut self, at: usize) {
        let (Some((state, _)), Some(instruction)) = (self.states.get(at / self.unit), self.instruction(at)) else {
            return;
        };
        self.turns += 1;
        if let Some(distance) = instruction.literal {
            let from = self.start.wrapping_add(at as u64) & !3;
            let literal = from.wrapping_add_signed(distance.into());
            if self.literals.insert(literal) {
                self.new_literals.push(literal);
            }
        }
        let mut after = state;
        for effect in instruction.effects.iter().flatten() {
            after.apply(*effect, self.machine);
        }
        // GCC has the places of a switch's cases in any register that is free (`add lr, ip; bx lr`).
        let is_jump = instruction.effects == [None; 2] && state.has_own_link(self.machine);
        let flow = match instruction.flow {
            Flow::Return if is_jump && self.machine.arch == Arch::Arm => Flow::Switch,
            flow => flow,
        };
        self.signs.begins_by_it |= at == 0 && after.saves_link(self.machine);
        self.note_signs(&state, &after, flow);
        after.pass_conditional(instruction.makes_conditional);
        let is_conditional = instruction.is_conditional || state.is_conditional();
        // What depends on flags and leads away ends one of the two ways; and what does not depend on them, nobody reaches but by the other.
        let is_split = state.is_split() && is_conditional && instruction.flow == Flow::Next;
        let (mut after, mut skipped) = (after.split(is_split), state.split(is_split));
        skipped.pass_conditional(0);
        self.is_foreign |= self.is_in_cases && self.makes_room(&instruction, &state);
        let next = at + instruction.bytes;
        let ways = self.ways.get(&at).copied().filter(|_| state.is_split());
        let target = |distance: i64| i64::try_from(at).ok()?.checked_add(distance);
        match flow {
            Flow::Next => {
                let met = if is_conditional { after.meet(&skipped) } else { Some(after) };
                let met = met.unwrap_or_else(|| {
                    let branches = self.branches_by_the_same_flags(at, &instruction, next);
                    if let Some(is_same) = branches {
                        self.ways.insert(next, if is_same { (after, skipped) } else { (skipped, after) });
                    }
                    skipped.split(branches.is_some() || self.returns_soon(next))
                });
                self.is_astray |= self.is_literal(next) || (next >= self.code.len() && met.depth() != Some(0));
                return self.lead(next, met);
            }
            flow @ (Flow::Call(_) | Flow::Exchange(_)) => {
                // Data lie among the cases of ARM, and read as calls to anywhere.
                let is_certain = !self.is_in_cases || self.machine.arch != Arch::Arm;
                let callee = match flow {
                    Flow::Call(distance) => distance.map(|distance| (distance, false)),
                    Flow::Exchange(distance) => Some((distance, true)),
                    _ => None,
                };
                if let Some((distance, exchanges)) = callee.filter(|_| is_certain) {
                    self.callees.push((self.away(at, distance), exchanges));
                }
                after.call(self.machine);
                self.behind_calls.insert((next, self.call_states.len()));
                self.call_states.push(after);
            }
            Flow::Branch { distance, is_conditional: depends } => {
                let (after, behind) = ways.unwrap_or((after, after));
                let has_frame = after.depth().is_none_or(|depth| depth != 0);
                let inside = target(distance).and_then(|target| usize::try_from(target).ok());
                match inside.filter(|target| *target < self.code.len()) {
                    Some(target) if target.is_multiple_of(self.unit) => self.lead_on(target, after),
                    Some(_) => {}
                    None if !self.is_in_cases && after.is_as_entered() => {
                        self.tails.push(self.away(at, distance));
                    }
                    // No function calls another by a jump before it has given its frame back.
                    None => {
                        let is_called = || self.called.contains(&self.away(at, distance));
                        self.is_foreign |= self.is_behind_calls && has_frame && is_called();
                    }
                }
                self.is_foreign |= self.is_behind_calls && has_frame && inside == Some(0);
                if depends {
                    let has_frame = behind.depth().is_none_or(|depth| depth != 0);
                    self.is_astray |= next >= self.code.len() && has_frame;
                    self.lead_on(next, behind);
                }
            }
            Flow::Table(size) => self.table((at, next), size, after),
            Flow::Indirect if after.depth() == Some(0) => {
                self.tail.get_or_insert(after);
            }
            Flow::Indirect | Flow::Switch => {
                if let Entry::Vacant(new) = self.switches.entry(at) {
                    new.insert(after);
                    self.new_switches.push(at);
                }
            }
            Flow::Return => {
                let links = state.has_link(self.machine) || after.has_link(self.machine);
                let is_wrong = match after.depth() {
                    _ if state.is_split() => false,
                    Some(0) => !self.is_in_cases && !links,
                    Some(_) | None => true,
                };
                self.is_foreign |= self.is_uncertain() && is_wrong;
            }
            Flow::Trap => {}
        }
        if is_conditional {
            self.lead(next, skipped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::functions::Set;
    use crate::rule::Rule;
    use alloc::string::String;
    use alloc::string::ToString;

    /// Where the rules of the function change that `halves` are, from the beginning, and to what.
    fn rules(arch: Arch, set: Set, code: &[u8]) -> Vec<(u64, String)> {
        let followed = Followed::new(0, code, arch.machine(), set.decode(), &BTreeSet::new());
        let rule = |step| match step {
            Step::Rule(rule, _) => Rule::display(rule, arch).to_string(),
            Step::Lost => String::from("lost"),
        };
        let mut rules: Vec<(u64, String)> = followed.steps().map(|(address, _, step)| (address, rule(step))).collect();
        rules.dedup_by(|later, earlier| later.1 == earlier.1);
        rules
    }

    fn thumb(halves: &[u16]) -> Vec<(u64, String)> {
        let code: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
        rules(Arch::Arm, Set::Thumb, &code)
    }

    fn told(rules: &[(u64, &str)]) -> Vec<(u64, String)> {
        rules.iter().map(|(address, rule)| (*address, String::from(*rule))).collect()
    }

    /// The instructions that have a rule, by their addresses.
    fn reached(halves: &[u16]) -> Vec<u64> {
        let code: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
        let followed = Followed::new(0, &code, Arch::Arm.machine(), Set::Thumb.decode(), &BTreeSet::new());
        followed.reached().map(|(address, _)| address).collect()
    }

    const ENTRY: &str = "CFA = sp+0; RA = lr";

    #[test]
    fn a_branch_by_the_flags_of_a_pop_has_no_rule_and_each_of_its_ways_has_one() {
        // As glibc's memcpy for NEON ends: push {r8}; cmp r0, #0; popcc {r8}; bcc 1f; pop {r8}; bx lr; 1: bx lr
        let words = [0xe52d_8004u32, 0xe350_0000, 0x349d_8004, 0x3a00_0001, 0xe49d_8004, 0xe12f_ff1e, 0xe12f_ff1e];
        let code = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let pushed = "CFA = sp+4; RA = lr";
        let unknown = Rule::bare(crate::rule::Kind::Unsupported, crate::rule::RuleSource::Instructions);
        let unknown = unknown.display(Arch::Arm).to_string();
        let expected = told(&[(0, ENTRY), (4, pushed), (12, &unknown), (16, pushed), (20, ENTRY)]);
        assert_eq!(rules(Arch::Arm, Set::Arm, &code(&words)), expected);
        // bcs: the way on is that of the pop.
        let opposite = [0xe52d_8004u32, 0xe350_0000, 0x349d_8004, 0x2a00_0000, 0xe12f_ff1e, 0xe49d_8004, 0xe12f_ff1e];
        let expected = told(&[(0, ENTRY), (4, pushed), (12, &unknown), (16, ENTRY), (20, pushed), (24, ENTRY)]);
        assert_eq!(rules(Arch::Arm, Set::Arm, &code(&opposite)), expected);
    }

    #[test]
    fn a_jump_through_the_link_register_to_a_case_is_no_return() {
        // push {r4, lr}; bl f; add lr, ip; bx lr; a case: pop {r4, pc}
        let halves = [0xb510, 0xf000, 0xf800, 0x44e6, 0x4770, 0xbd10];
        assert_eq!(thumb(&halves), told(&[(0, ENTRY), (2, "CFA = sp+8; RA = [CFA-4]")]));
        // Behind a call that does not come back, the leaf of somebody else: movs r0, #0; bx lr.
        let halves = [0xb510, 0xf000, 0xf800, 0x2000, 0x4770];
        assert_eq!(reached(&halves), [0, 2]);
        // The same where the link register was used for something else: push {r4, lr}; mov lr, r0; add pc, r1; a case: pop {r4, pc}
        let switch = [0xb510, 0x4686, 0x448f, 0xbd10];
        assert_eq!(reached(&[&switch[..], &[0x2000, 0x4770]].concat()), [0, 2, 4, 6]);
        // A case that has a switch of its own: add lr, ip; bx lr
        assert_eq!(reached(&[&switch[..], &[0x44e6, 0x4770, 0xbd10]].concat()), [0, 2, 4, 6, 8, 10, 12]);
    }

    #[test]
    fn memory_of_a_constant_size_in_a_case_begins_no_function() {
        // push {r7, lr}; add r7, sp, #0; add pc, r0; a case: sub sp, #8; mov sp, r7; pop {r7, pc}; another one: mov sp, r7; pop {r7, pc}
        let halves = [0xb580, 0xaf00, 0x4487, 0xb082, 0x46bd, 0xbd80, 0x46bd, 0xbd80];
        let framed = "CFA = sp+8; RA = [CFA-4]";
        assert_eq!(thumb(&halves), told(&[(0, ENTRY), (2, framed), (8, "CFA = sp+16; RA = [CFA-4]"), (10, framed)]));
        // Where it saves the return address as well, it does: push {r4, lr}.
        let halves = [0xb580, 0xaf00, 0x4487, 0x46bd, 0xbd80, 0xb510, 0xbd10];
        assert_eq!(thumb(&halves), told(&[(0, ENTRY), (2, framed)]));
    }

    #[test]
    fn r7_tells_the_frame_where_r11_is_used_for_something_else() {
        // push {r7, lr}; sub sp, #8; add r7, sp, #0; add.w fp, r7, #4; mov fp, r0; sub.w sp, sp, r3; adds r7, #8; mov sp, r7; pop {r7, pc}
        let halves = [0xb580, 0xb082, 0xaf00, 0xf107, 0x0b04, 0x4683, 0xebad, 0x0d03, 0x3708, 0x46bd, 0xbd80];
        let found = thumb(&halves);
        let behind = found.iter().filter(|(address, _)| *address >= 16).map(|(_, rule)| rule.as_str());
        let behind: Vec<&str> = behind.collect();
        assert_eq!(behind.len(), 3, "{found:?}");
        assert!(behind[0].starts_with("CFA = r7+16; RA = [CFA-4]"), "{found:?}");
    }
}
