//! A function's frame at each of its instructions, by following the instructions from the first one.
//!
//! An instruction's state comes from those that lead to it. What leads on from a call is followed last and by rising
//! address, because some calls never return, and what stands behind them may belong to another path.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::instruction::{AT, Effect, FP, Flow, RA, SP, decode};
use crate::arch::Machine;
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved, Slots};

/// Registers that a function keeps for its caller: $s0–$s7, $gp, $s8, and the return address.
const KEPT: [u8; 11] = [16, 17, 18, 19, 20, 21, 22, 23, 28, FP, RA];
const RA_AT: usize = 10;
/// The register that position-independent code calls and jumps through.
const T9: u8 = 25;

/// Of more registers at once the values are not remembered.
const MOST_CONSTANTS: usize = 4;

/// What is known of a register that belongs to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kept {
    /// It still has the caller's value.
    live: bool,
    /// Where the caller's value was saved, in bytes from the CFA.
    slot: Option<i32>,
}

/// The frame before an instruction. Distances are in bytes up to the CFA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    sp: Option<i32>,
    fp: Option<i32>,
    /// The assembler's own register, through which LLVM reaches the slots of frames that are larger than the distance in an instruction.
    at: Option<i32>,
    kept: [Kept; KEPT.len()],
    /// Another register that has the return address.
    copy: Option<u8>,
    /// Registers whose values are known, the last one that was set first. Between the halves of a frame's size, and until it is subtracted,
    /// compilers put other constants elsewhere.
    constants: [Option<(u8, i32)>; MOST_CONSTANTS],
    /// The code has declared that there is no caller: it put 0 in the place of the return address, or kept none.
    is_root: bool,
}

impl State {
    const ENTRY: Self = Self {
        sp: Some(0),
        fp: None,
        at: None,
        kept: [Kept { live: true, slot: None }; KEPT.len()],
        copy: None,
        constants: [None; MOST_CONSTANTS],
        is_root: false,
    };

    /// CFA minus the address `base` + `offset`, if `base` is a register of the frame.
    fn distance(&self, base: u8, offset: i32) -> Option<i32> {
        let distance = match base {
            SP => self.sp,
            FP => self.fp,
            AT => self.at,
            _ => None,
        };
        distance?.checked_sub(offset)
    }

    fn value(&self, register: u8) -> Option<i32> {
        if register == 0 {
            return Some(0);
        }
        self.constants.iter().flatten().find(|(known, _)| *known == register).map(|(_, value)| *value)
    }

    /// Forgets the value of `register`.
    fn write(&mut self, register: u8) {
        match register {
            SP => self.sp = None,
            FP => self.fp = None,
            AT => self.at = None,
            _ => {}
        }
        for (number, kept) in KEPT.iter().zip(&mut self.kept) {
            if *number == register {
                kept.live = false;
            }
        }
        if self.copy == Some(register) {
            self.copy = None;
        }
        for constant in &mut self.constants {
            *constant = constant.filter(|(known, _)| *known != register);
        }
    }

    fn kept_mut(&mut self, register: u8) -> Option<&mut Kept> {
        let at = KEPT.iter().position(|kept| *kept == register)?;
        self.kept.get_mut(at)
    }

    fn set(&mut self, register: u8, value: Option<i32>) {
        self.write(register);
        if let Some(value) = value
            && register != 0
        {
            // Into the first place that is free; else the oldest is forgotten.
            let free = self.constants.iter().position(Option::is_none).unwrap_or(MOST_CONSTANTS - 1);
            if let Some(newer) = self.constants.get_mut(..=free) {
                newer.rotate_right(1);
            }
            if let Some(first) = self.constants.first_mut() {
                *first = Some((register, value));
            }
        }
    }

    /// `register` becomes the address at `distance` below the CFA.
    fn point(&mut self, register: u8, distance: Option<i32>) {
        self.write(register);
        match register {
            SP => self.sp = distance,
            FP => self.fp = distance,
            AT => self.at = distance,
            _ => {}
        }
    }

    /// Whether the return address is in its register, and nowhere else.
    fn has_ra_alone(&mut self) -> bool {
        self.kept_mut(RA).is_some_and(|kept| kept.live && kept.slot.is_none())
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Add { to, from: from @ (SP | FP), value } => {
                let distance = self.distance(from, value);
                self.point(to, distance);
            }
            Effect::Add { to, from: RA, value: 0 } if to != RA => {
                let is_live = self.kept_mut(RA).is_some_and(|kept| kept.live);
                self.write(to);
                // What start-up code does where others keep the return address.
                self.is_root |= to == 0 && self.has_ra_alone();
                if is_live && to != 0 {
                    self.copy = Some(to);
                }
            }
            Effect::Add { to: RA, from: 0, value: 0 } => {
                // Where it was saved the register is free for anything.
                self.is_root |= self.has_ra_alone();
                self.set(RA, Some(0));
            }
            Effect::Add { to: RA, from, value: 0 } if self.copy == Some(from) => {
                if let Some(kept) = self.kept_mut(RA) {
                    kept.live = true;
                }
            }
            Effect::Add { to, from, value } => {
                let sum = self.value(from).and_then(|from| from.checked_add(value));
                self.set(to, sum);
            }
            Effect::Set { to, value } => self.set(to, Some(value)),
            Effect::Or { to, value } => {
                let value = self.value(to).map(|before| before | value);
                self.set(to, value);
            }
            Effect::Sum { to, a, b, minus } => {
                let value = |register| {
                    let value = self.value(register)?;
                    if minus { value.checked_neg() } else { Some(value) }
                };
                let distance = match (a, b) {
                    (SP | FP, _) => value(b).and_then(|value| self.distance(a, value)),
                    (_, SP | FP) if !minus => value(a).and_then(|value| self.distance(b, value)),
                    _ => None,
                };
                self.point(to, distance);
            }
            Effect::Store { register, base, offset } => {
                let Some(slot) = self.distance(base, offset).and_then(i32::checked_neg) else { return };
                // Whatever was there before is gone.
                for kept in &mut self.kept {
                    if kept.slot == Some(slot) {
                        kept.slot = None;
                    }
                }
                let copies_ra = self.copy == Some(register) && slot < 0;
                if let Some(kept) = self.kept_mut(if copies_ra { RA } else { register })
                    && (kept.live || copies_ra)
                    && slot < 0
                {
                    kept.slot = Some(slot);
                }
            }
            Effect::Load { register, base, offset } => {
                let from = self.distance(base, offset).and_then(i32::checked_neg);
                self.write(register);
                if let Some(kept) = self.kept_mut(register)
                    && from.is_some()
                    && kept.slot == from
                {
                    kept.live = true;
                }
            }
            Effect::Write(register) => self.write(register),
        }
    }

    /// Takes from this state what `other` does not confirm. `None` if they are not of one frame.
    fn meet(&self, other: &Self) -> Option<Self> {
        let agree = |a: Option<i32>, b: Option<i32>| a.is_some() && a == b;
        if !agree(self.sp, other.sp) && !agree(self.fp, other.fp) && (self.sp, self.fp) != (other.sp, other.fp) {
            return None;
        }
        let mut met = *self;
        // Paths with different amounts of memory from alloca come together.
        met.sp = met.sp.filter(|sp| other.sp == Some(*sp));
        for (kept, other) in met.kept.iter_mut().zip(&other.kept) {
            kept.live &= other.live;
            kept.slot = kept.slot.filter(|slot| other.slot == Some(*slot));
        }
        met.fp = met.fp.filter(|fp| other.fp == Some(*fp));
        met.at = met.at.filter(|at| other.at == Some(*at));
        met.is_root &= other.is_root;
        met.copy = met.copy.filter(|copy| other.copy == Some(*copy));
        for constant in &mut met.constants {
            *constant = constant.filter(|(register, value)| other.value(*register) == Some(*value));
        }
        Some(met)
    }

    #[inline(never)]
    fn rule(&self, machine: &Machine) -> Option<(Rule, Slots)> {
        if self.is_root {
            return Some((Rule::bare(Kind::End, RuleSource::Instructions), Slots::SAME));
        }
        let words = |bytes: i32| i16::try_from(bytes / 4).ok().filter(|_| bytes % 4 == 0);
        let (kind, distance) = match (self.sp, self.fp) {
            (Some(distance), _) => (Kind::Sp, distance),
            (None, Some(distance)) => (Kind::Fp, distance),
            (None, None) => return None,
        };
        // A slot below the stack pointer is no longer part of the frame.
        let saved = |kept: &Kept| match kept.slot.filter(|slot| self.sp.is_none_or(|sp| *slot >= sp.saturating_neg())) {
            Some(slot) => words(slot).map_or(Saved::Unknown, Saved::At),
            None if kept.live => Saved::Same,
            None => Saved::Unknown,
        };
        let return_address = match (saved(self.kept.get(RA_AT)?), self.copy) {
            (Saved::At(words), _) => ReturnAddress::AtCfa(words),
            (Saved::Same, _) => ReturnAddress::InRegister(RA),
            (Saved::Unknown, Some(register)) => ReturnAddress::InRegister(register),
            (Saved::Unknown, None) => return None,
        };
        let of = |register: u8| {
            KEPT.iter().zip(&self.kept).find(|(kept, _)| **kept == register).map(|(_, kept)| saved(kept))
        };
        let mut slots = Slots::SAME;
        for (at, register) in machine.slot_registers.iter().enumerate() {
            slots = slots.with(at, of(*register)?);
        }
        let offset = i64::from(distance / 4);
        if distance < 0 || distance % 4 != 0 {
            return None;
        }
        let rule = Rule::new(kind, RuleSource::Instructions, machine.fp, offset, return_address, of(machine.fp)?)?;
        Some((rule, slots))
    }
}

/// What was found for one instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Step {
    /// No path from the first instruction leads here.
    NotReached,
    /// The frame could not be followed up to here.
    Lost,
    /// The rule that holds before the instruction.
    Rule(Rule, Slots),
}

/// A function that was followed.
pub(in super::super) struct Function {
    states: Vec<Option<State>>,
    /// How often two paths led to one instruction with frames that contradict each other.
    pub(in super::super) conflicts: usize,
    machine: &'static Machine,
}

/// The instructions of a function in the making.
struct Follower<'c> {
    words: &'c [[u8; 4]],
    start: u64,
    states: Vec<Option<State>>,
    /// Instructions whose state is new.
    queue: Vec<usize>,
    /// Instructions behind calls, with the states that calls leave.
    behind_calls: BTreeSet<(usize, usize)>,
    call_states: Vec<State>,
    /// The state that a jump to somewhere in the function leaves.
    jump_table: Option<State>,
    /// While cases of a jump table are followed: what the states were before.
    undo: Option<Vec<(usize, Option<State>)>>,
    /// The code that is followed as a case keeps a frame of its own.
    is_foreign: bool,
    conflicts: usize,
}

impl Function {
    /// Follows the function at `start` whose instructions are `words`.
    #[inline(never)]
    pub(in super::super) fn follow(start: u64, words: &[[u8; 4]], machine: &'static Machine) -> Self {
        let mut follower = Follower {
            words,
            start,
            states: vec![None; words.len()],
            queue: Vec::new(),
            behind_calls: BTreeSet::new(),
            call_states: Vec::new(),
            jump_table: None,
            undo: None,
            is_foreign: false,
            conflicts: 0,
        };
        follower.lead(0, State::ENTRY);
        follower.run(machine);
        if let Some(state) = follower.jump_table {
            follower.cases(state, machine);
        }
        Self { states: follower.states, conflicts: follower.conflicts, machine }
    }

    /// What holds before each instruction.
    pub(in super::super) fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        self.states.iter().map(|state| match state {
            None => Step::NotReached,
            Some(state) => state.rule(self.machine).map_or(Step::Lost, |(rule, slots)| Step::Rule(rule, slots)),
        })
    }

    /// Whether the frame pointer points to the frame before each instruction that some path leads to.
    pub(in super::super) fn frame_pointers(&self) -> impl Iterator<Item = Option<bool>> + '_ {
        self.states.iter().map(|state| Some(state.as_ref()?.fp.is_some()))
    }

    /// The size of the frame, if it is counted from the frame pointer or from the stack pointer; and where the return address
    /// was saved, in bytes from the CFA.
    pub(in super::super) fn extent(&self, on_fp: bool) -> (i32, Option<i32>) {
        let states = || self.states.iter().flatten();
        let size = states().filter_map(|state| if on_fp { state.fp } else { state.sp }).max().unwrap_or(0);
        (size, states().find_map(|state| state.kept.get(RA_AT)?.slot))
    }
}

impl Follower<'_> {
    /// Follows the cases of a jump table: nothing else leads to them. Without a record nobody says where the function ends, and
    /// another one without a name may stand behind it. That one shows itself by what it does to the frame: it lowers the stack
    /// pointer by a constant, or returns without having given back the frame of this one. Then nothing is known of it and of
    /// what stands behind it.
    fn cases(&mut self, state: State, machine: &Machine) {
        let mut from = 0;
        while let Some(at) = self.next_unreached(from, machine) {
            let conflicts = self.conflicts;
            self.undo = Some(Vec::new());
            self.lead(at, state);
            self.run(machine);
            let undo = self.undo.take().unwrap_or_default();
            if self.is_foreign {
                for (at, before) in undo.into_iter().rev() {
                    if let Some(known) = self.states.get_mut(at) {
                        *known = before;
                    }
                }
                self.conflicts = conflicts;
                return;
            }
            from = at + 1;
        }
    }

    fn word(&self, at: usize, machine: &Machine) -> Option<u32> {
        let word = self.words.get(at)?;
        Some(if machine.big_endian { u32::from_be_bytes(*word) } else { u32::from_le_bytes(*word) })
    }

    /// The first instruction from `from` on that no path led to, `nop` apart.
    fn next_unreached(&self, from: usize, machine: &Machine) -> Option<usize> {
        (from..self.words.len())
            .find(|at| self.states.get(*at).is_some_and(Option::is_none) && self.word(*at, machine) != Some(0))
    }

    /// Some path leads to the instruction at `at` with `state`.
    fn lead(&mut self, at: usize, state: State) {
        let Some(known) = self.states.get_mut(at) else { return };
        let met = match known {
            None => Some(state),
            Some(known) => known.meet(&state),
        };
        match met {
            None => self.conflicts += 1,
            Some(met) if *known == Some(met) => {}
            Some(met) => {
                if let Some(undo) = &mut self.undo {
                    undo.push((at, *known));
                }
                *known = Some(met);
                self.queue.push(at);
            }
        }
    }

    fn lead_to_address(&mut self, address: u64, state: State) -> bool {
        let at = address.checked_sub(self.start).filter(|bytes| bytes % 4 == 0);
        let Some(at) = at.and_then(|bytes| usize::try_from(bytes / 4).ok()).filter(|at| *at < self.words.len()) else {
            return false;
        };
        self.lead(at, state);
        true
    }

    fn run(&mut self, machine: &Machine) {
        loop {
            while let Some(at) = self.queue.pop() {
                self.instruction(at, machine);
            }
            let Some((at, number)) = self.behind_calls.pop_first() else { return };
            if let Some(state) = self.call_states.get(number).copied() {
                self.lead(at, state);
            }
        }
    }

    fn behind_call(&mut self, at: usize, mut state: State) {
        // No call keeps it.
        state.write(AT);
        self.behind_calls.insert((at, self.call_states.len()));
        self.call_states.push(state);
    }

    /// Whether a function begins with what is followed as a case: it makes room, or where that may be memory from alloca, because the frame pointer
    /// points to the frame, saves the return address in it.
    fn begins_another(&self, effect: Effect, state: &State) -> bool {
        let Some(before) = self.jump_table else { return false };
        match effect {
            Effect::Add { to: SP, from: SP, value: ..0 } => state.fp.is_none(),
            Effect::Store { register: RA, base: SP, .. } => state.sp > before.sp,
            // Nor does a function save what tells its own frame.
            Effect::Store { register: FP, base: SP, .. } => state.fp.is_some() && state.sp > before.sp,
            _ => false,
        }
    }

    fn instruction(&mut self, at: usize, machine: &Machine) {
        let (Some(Some(state)), Some(word)) = (self.states.get(at).copied(), self.word(at, machine)) else { return };
        let (effect, flow) = decode(word);
        let mut after = state;
        after.apply(effect);
        self.is_foreign |= self.undo.is_some() && self.begins_another(effect, &state);
        match flow {
            Flow::Next => return self.lead(at + 1, after),
            Flow::Trap => return self.behind_call(at + 1, after),
            _ => {}
        }
        let links = match flow {
            Flow::Branch { links: true, .. } | Flow::Jump { links: true, .. } => Some(RA),
            Flow::Register { links, .. } => links,
            _ => None,
        };
        // The delay slot runs with the link register already written.
        if let Some(link) = links {
            after.write(link);
        }
        let skipped = after;
        if let Some(delayed) = self.word(at + 1, machine) {
            self.lead_delay_slot(at + 1, after);
            after.apply(decode(delayed).0);
        }
        let delay_slot = self.start.wrapping_add(4 * (at as u64 + 1));
        match flow {
            Flow::Branch { distance, is_conditional, is_likely, links } => {
                let target = delay_slot.wrapping_add_signed(distance);
                let behind = if is_likely { skipped } else { after };
                // `bal` to the next instruction is how code learns its own address.
                if links && target != delay_slot.wrapping_add(4) {
                    return self.behind_call(at + 2, behind);
                }
                self.lead_to_address(target, after);
                if is_conditional && !links {
                    self.lead(at + 2, behind);
                }
            }
            Flow::Jump { links: true, .. } | Flow::Register { links: Some(_), .. } => self.behind_call(at + 2, after),
            Flow::Jump { place, .. } => {
                self.lead_to_address(delay_slot & 0xf000_0000 | place, after);
            }
            Flow::Register { register, .. } => {
                let returns = register == RA || state.copy == Some(register);
                let is_tail_call = register == T9 && after.sp == Some(0);
                self.is_foreign |= self.undo.is_some() && returns && after.sp != Some(0);
                if !returns && !is_tail_call {
                    self.jump_table.get_or_insert(after);
                }
            }
            Flow::Next | Flow::Trap => {}
        }
    }

    /// Notes the state in a delay slot. What follows it depends on the branch, unless something else leads there too.
    fn lead_delay_slot(&mut self, at: usize, state: State) {
        let Some(known) = self.states.get_mut(at) else { return };
        if let Some(undo) = &mut self.undo {
            undo.push((at, *known));
        }
        match known {
            None => *known = Some(state),
            Some(known) => match known.meet(&state) {
                Some(met) => *known = met,
                None => self.conflicts += 1,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;

    /// Which of the function's instructions were reached, and in which the CFA is that many bytes above the stack pointer.
    fn depths(words: &[u32]) -> Vec<Option<i64>> {
        let bytes: Vec<[u8; 4]> = words.iter().map(|word| word.to_le_bytes()).collect();
        let function = Function::follow(0x1000, &bytes, Arch::Mips32Little.machine());
        let depth = |step| match step {
            Step::Rule(rule, _) => Some(rule.offset() * 4),
            _ => None,
        };
        function.steps().map(depth).collect()
    }

    /// addiu $sp, -32; sw $ra, 28($sp); sw $s8, 24($sp); move $s8, $sp; jr $v0; nop
    const SWITCH: [u32; 6] = [0x27bd_ffe0, 0xafbf_001c, 0xafbe_0018, 0x03a0_f025, 0x0040_0008, 0];
    /// move $sp, $s8; lw $ra, 28($sp); lw $s8, 24($sp); jr $ra; addiu $sp, 32
    const END: [u32; 5] = [0x03c0_e825, 0x8fbf_001c, 0x8fbe_0018, 0x03e0_0008, 0x27bd_0020];

    #[test]
    fn memory_of_a_constant_size_in_a_case_begins_no_function() {
        // addiu $sp, -64
        let told = depths(&[&SWITCH[..], &[0x27bd_ffc0], &END].concat());
        assert_eq!(told[6..], [32, 96, 32, 32, 32, 32].map(Some));
        // Where the return address is saved there as well, it does: sw $ra, 60($sp)
        let told = depths(&[&SWITCH[..], &[0x27bd_ffc0, 0xafbf_003c], &END].concat());
        assert_eq!(told[6..], [None; 7]);
    }
}
