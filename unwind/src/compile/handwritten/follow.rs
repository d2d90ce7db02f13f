//! One function from where it begins: its blocks, what is known before each, and whether all of its paths end as those of a function do.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

use super::code::{Code, Gap};
use crate::compile::bare::instruction::{Effect, Flow, Instruction, decode, mask};
use crate::compile::bare::state::{Base, State, Value};
use crate::compile::bare::{Convention, rule};
use crate::compile::programs::Programs;
use crate::rule::{Rule, RuleSource, Slots};

/// No function has more instructions: what keeps the memory for a hostile input small.
const MOST_INSTRUCTIONS: usize = 1 << 16;
const WORD: i64 = 8;
const KEPT: u16 = Convention::SystemV.kept();

/// Why there is no rule for a function.
const UNKNOWN: &str = "an instruction that is not known, or data";
const OVERLAPS: &str = "instructions over each other";
const TOO_LONG: &str = "a function that is too long to be followed";
const UNBALANCED: &str = "a path that ends with another stack than it began with";
const OVERWRITTEN: &str = "a return address that is moved or written over";
const DISAGREE: &str = "paths that meet with different stacks";
/// Why all else is left out.
pub(super) const EXHAUSTED: &str = "functions overlap too much to follow all of them";

/// What a call may count on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Called {
    /// It returns with the stack as it was, and has changed no registers but those of the mask.
    Returns { written: u16 },
    /// Nothing is known behind it.
    Unclear,
}

impl Called {
    /// Of a function that does as it should.
    pub(super) const BY_CONVENTION: Self = Self::Returns { written: !KEPT };
}

/// What is asked while a function is followed.
pub(super) trait Callees {
    /// The function at `address`, which nothing else speaks for.
    fn called(&mut self, address: u64) -> Called;

    /// Takes turns from what may be spent on all functions.
    fn spend(&mut self, turns: u64) -> Result<(), &'static str>;
}

/// Where jumps by tables lead, by where the jumps are.
pub(super) type Tables = BTreeMap<u64, Vec<u64>>;

/// What a jump through a register leads to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lead {
    Place(u64),
    /// What an entry of a table says, which begins about there, and from where it counts.
    Table {
        around: u64,
        base: u64,
    },
}

/// Ranges by rising address of each block, and the rule of each, if there is one.
pub(super) type FoundRules = Vec<(Range<u64>, Option<(Rule, Slots)>)>;

/// What is done with an instruction, by its address, what is known before it and where its block ends.
type Visit<'v> = dyn FnMut(u64, &Instruction, &State, u64) -> Result<(), &'static str> + 'v;

struct Block {
    code: Vec<(u64, Instruction)>,
    end: u64,
}

/// A function that was followed to all of its ends.
pub(super) struct Followed {
    blocks: BTreeMap<u64, Block>,
    states: BTreeMap<u64, State>,
    queue: BTreeSet<u64>,
    /// What calls at these addresses may count on.
    calls: BTreeMap<u64, Called>,
    /// Ends by a return or a jump to another function, with the stack as it was.
    pub(super) ends: usize,
    /// Of these, by a jump.
    leaves: usize,
    /// A jump leads to what is not known, or behind a call nothing is.
    pub(super) is_cut: bool,
    /// Registers that calls keep and this function does not.
    pub(super) lost: u16,
    /// All that it writes, though it may restore some.
    written: u16,
    /// Jumps through registers of which something is known, and where they are.
    pub(super) leads: Vec<(u64, Lead)>,
    instructions: usize,
}

impl Followed {
    /// Follows what begins at `start`.
    pub(super) fn new(
        code: &Code<'_, '_>,
        start: u64,
        tables: &Tables,
        callees: &mut dyn Callees,
    ) -> Result<Self, &'static str> {
        let mut followed = Self {
            blocks: BTreeMap::new(),
            states: BTreeMap::new(),
            queue: BTreeSet::new(),
            calls: BTreeMap::new(),
            ends: 0,
            leaves: 0,
            is_cut: false,
            lost: 0,
            written: 0,
            leads: Vec::new(),
            instructions: 0,
        };
        followed.read(code, start, tables, callees)?;
        followed.states.insert(start, State::entry(Convention::SystemV));
        followed.queue.insert(start);
        while let Some(at) = followed.queue.pop_first() {
            followed.run(code, at, tables, callees)?;
        }
        followed.check(code, tables)?;
        Ok(followed)
    }

    /// Reads the blocks that `start` leads to.
    fn read(
        &mut self,
        code: &Code<'_, '_>,
        start: u64,
        tables: &Tables,
        callees: &mut dyn Callees,
    ) -> Result<(), &'static str> {
        let mut queue = Vec::from([start]);
        while let Some(at) = queue.pop() {
            let Some(gap) = code.gap(at) else { continue };
            if self.blocks.contains_key(&at) || self.split(at)? {
                continue;
            }
            self.read_block(gap, at, (&mut queue, tables), callees)?;
        }
        Ok(())
    }

    /// Whether `at` was inside of a block, which ends there now.
    fn split(&mut self, at: u64) -> Result<bool, &'static str> {
        let before = self.blocks.range_mut(..at).next_back();
        let Some((_, block)) = before.filter(|(_, block)| at < block.end) else { return Ok(false) };
        let first = block.code.binary_search_by_key(&at, |(at, _)| *at).map_err(|_| OVERLAPS)?;
        let (rest, end) = (block.code.split_off(first), block.end);
        block.end = at;
        self.blocks.insert(at, Block { code: rest, end });
        Ok(true)
    }

    fn read_block(
        &mut self,
        gap: &Gap<'_>,
        start: u64,
        (queue, tables): (&mut Vec<u64>, &Tables),
        callees: &mut dyn Callees,
    ) -> Result<(), &'static str> {
        let next_block = self.blocks.range(start..).next().map_or(u64::MAX, |(start, _)| *start);
        let mut block = Block { code: Vec::new(), end: start };
        while block.end < next_block
            && let Some(bytes) = gap.from(block.end)
        {
            callees.spend(1)?;
            self.instructions += 1;
            if self.instructions > MOST_INSTRUCTIONS {
                return Err(TOO_LONG);
            }
            let instruction = decode(bytes).ok_or(UNKNOWN)?;
            let at = block.end;
            block.end += instruction.bytes as u64;
            block.code.push((at, instruction));
            if let Flow::Branch { distance, .. } = instruction.flow {
                queue.push(at.wrapping_add_signed(distance));
            }
            queue.extend(tables.get(&at).into_iter().flatten());
            if ends(&instruction) {
                if let Flow::Branch { is_conditional: true, .. } = instruction.flow {
                    queue.push(block.end);
                }
                break;
            }
        }
        if block.end > next_block {
            return Err(OVERLAPS);
        }
        self.blocks.insert(start, block);
        Ok(())
    }

    /// Follows one block from what is known before it.
    fn run(
        &mut self,
        code: &Code<'_, '_>,
        start: u64,
        tables: &Tables,
        callees: &mut dyn Callees,
    ) -> Result<(), &'static str> {
        let Some(block) = self.blocks.remove(&start) else { return Ok(()) };
        let result = self.run_block(code, (start, &block), tables, callees);
        self.blocks.insert(start, block);
        result
    }

    fn run_block(
        &mut self,
        code: &Code<'_, '_>,
        (start, block): (u64, &Block),
        tables: &Tables,
        callees: &mut dyn Callees,
    ) -> Result<(), &'static str> {
        let Some(mut state) = self.states.get(&start).cloned() else { return Ok(()) };
        callees.spend(block.code.len() as u64)?;
        for (at, instruction) in &block.code {
            apply(&mut state, *at, instruction)?;
            if let Flow::Call(distance) = instruction.flow {
                if !self.calls.contains_key(at) {
                    let called = self.ask(code, (*at, instruction), distance, callees);
                    self.calls.insert(*at, called);
                }
                if !self.pass_call(&mut state, *at, instruction) {
                    self.is_cut = true;
                    return Ok(());
                }
            }
        }
        match block.code.last().map(|(at, instruction)| (*at, instruction.flow)) {
            Some((at, Flow::Branch { distance, is_conditional })) => {
                if is_conditional {
                    self.lead(code, block.end, start, &state)?;
                }
                self.lead(code, at.wrapping_add_signed(distance), start, &state)
            }
            Some((at, Flow::Anywhere(_))) => {
                let mut targets = tables.get(&at).into_iter().flatten();
                targets.try_for_each(|target| self.lead(code, *target, start, &state))
            }
            Some((_, Flow::Return(_) | Flow::Ends)) => Ok(()),
            _ => self.lead(code, block.end, start, &state),
        }
    }

    fn ask(
        &self,
        code: &Code<'_, '_>,
        (at, instruction): (u64, &Instruction),
        distance: Option<i64>,
        callees: &mut dyn Callees,
    ) -> Called {
        let Some(distance) = distance else { return Called::BY_CONVENTION };
        let target = at.wrapping_add_signed(distance);
        // It asks where it runs: nothing is called.
        if usize::try_from(distance) == Ok(instruction.bytes) || code.gap(target).is_none() {
            return Called::BY_CONVENTION;
        }
        callees.called(target)
    }

    /// Takes `state` over a call; whether anything is known behind it.
    fn pass_call(&self, state: &mut State, at: u64, instruction: &Instruction) -> bool {
        if let Flow::Call(Some(distance)) = instruction.flow
            && usize::try_from(distance) == Ok(instruction.bytes)
        {
            state.apply(Effect::Push(None));
            return true;
        }
        let Some(Called::Returns { written }) = self.calls.get(&at) else { return false };
        state.give_up(*written);
        true
    }

    fn lead(&mut self, code: &Code<'_, '_>, at: u64, running: u64, state: &State) -> Result<(), &'static str> {
        // Out of what is followed: looked at when all is known.
        if code.gap(at).is_none() {
            return Ok(());
        }
        if !self.blocks.contains_key(&at) && at != running {
            return Err(OVERLAPS);
        }
        let Some(known) = self.states.get_mut(&at) else {
            self.states.insert(at, state.clone());
            self.queue.insert(at);
            return Ok(());
        };
        if known.sp() != state.sp() {
            return Err(DISAGREE);
        }
        if known.meet(state) {
            self.queue.insert(at);
        }
        Ok(())
    }

    /// Holds every end to what is known before it.
    fn check(&mut self, code: &Code<'_, '_>, tables: &Tables) -> Result<(), &'static str> {
        let (mut ends, mut leaves, mut lost, mut is_cut) = (0, 0, 0, self.is_cut);
        let (mut leads_on, mut written) = (Vec::new(), 0);
        self.visit(&mut |at, instruction, before, block_end| {
            written |= instruction.written();
            if let Some(Called::Returns { written: by_callee }) = self.calls.get(&at) {
                written |= by_callee;
            }
            if at + instruction.bytes as u64 != block_end {
                return Ok(());
            }
            let mut state = before.clone();
            apply(&mut state, at, instruction)?;
            if let Flow::Call(_) = instruction.flow
                && !self.pass_call(&mut state, at, instruction)
            {
                return Ok(());
            }
            let mut leave = |to: u64| {
                if code.gap(to).is_some() {
                    return Ok(());
                }
                ends += 1;
                leaves += 1;
                lost |= not_held(&state);
                let is_sound = is_as_entered(&state) && code.is_spoken_for(to);
                if is_sound { Ok(()) } else { Err(UNBALANCED) }
            };
            match instruction.flow {
                Flow::Return(0) => {
                    ends += 1;
                    lost |= not_held(&state);
                    if is_as_entered(&state) { Ok(()) } else { Err(UNBALANCED) }
                }
                Flow::Return(_) => Err(UNBALANCED),
                Flow::Branch { distance, is_conditional } => {
                    leave(at.wrapping_add_signed(distance))?;
                    if is_conditional { leave(block_end) } else { Ok(()) }
                }
                Flow::Anywhere(register) => {
                    let target = register.and_then(|register| state.register(register));
                    leads_on.extend(target.and_then(|target| match target {
                        Value { base: Base::Target(table), offset } => {
                            Some((at, Lead::Table { around: table, base: offset as u64 }))
                        }
                        Value { base: Base::Image, offset } => Some((at, Lead::Place(offset as u64))),
                        _ => None,
                    }));
                    is_cut |= !tables.contains_key(&at);
                    Ok(())
                }
                Flow::Ends => Ok(()),
                Flow::Next | Flow::Call(_) => leave(block_end),
            }
        })?;
        (self.ends, self.lost, self.is_cut, self.leads) = (ends, lost, is_cut, leads_on);
        (self.written, self.leaves) = (written, leaves);
        Ok(())
    }

    /// Each instruction that some path leads to, with what is known before it and where its block ends.
    fn visit(&self, with: &mut Visit<'_>) -> Result<(), &'static str> {
        for (start, state) in &self.states {
            let Some(block) = self.blocks.get(start) else { continue };
            let mut state = state.clone();
            for (at, instruction) in &block.code {
                with(*at, instruction, &state, block.end)?;
                apply(&mut state, *at, instruction)?;
                if matches!(instruction.flow, Flow::Call(_)) && !self.pass_call(&mut state, *at, instruction) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// What calls of it may count on.
    pub(super) fn called(&self) -> Called {
        // Of what else it does nothing is known where it is left, or goes on as another function.
        let is_whole = !self.is_cut && self.leaves == 0;
        let written = if is_whole { self.written & !KEPT } else { !KEPT };
        let lost = if self.ends > 0 { self.lost } else { KEPT };
        Called::Returns { written: written | lost }
    }

    /// The rules of what was reached, by rising address, and where there is none.
    pub(super) fn rules(&self, programs: &mut Programs) -> FoundRules {
        let mut rules = FoundRules::new();
        let mut last: Option<State> = None;
        // No instruction ends it.
        let _ = self.visit(&mut |at, instruction, state, _| {
            let end = at + instruction.bytes as u64;
            if let Some((range, _)) = rules.last_mut()
                && range.end == at
                && last.as_ref() == Some(state)
            {
                range.end = end;
                return Ok(());
            }
            let found = rule(state, RuleSource::Instructions, programs);
            last = Some(state.clone());
            match rules.last_mut() {
                Some((range, known)) if range.end == at && *known == found => range.end = end,
                _ => rules.push((at..end, found)),
            }
            Ok(())
        });
        rules
    }
}

fn ends(instruction: &Instruction) -> bool {
    matches!(instruction.flow, Flow::Branch { .. } | Flow::Return(_) | Flow::Anywhere(_) | Flow::Ends)
}

/// What an instruction does before it goes on somewhere.
fn apply(state: &mut State, at: u64, instruction: &Instruction) -> Result<(), &'static str> {
    state.apply(instruction.effect);
    if let Effect::Place { to, distance } = instruction.effect {
        state.place(to, at.wrapping_add(instruction.bytes as u64).wrapping_add_signed(distance));
    }
    // A caller's value is no stack pointer that anything is known of.
    if state.sp().is_none_or(|sp| matches!(sp.base, Base::Entry(_))) {
        state.begin(Value { base: Base::Made(at), offset: 0 });
    }
    if !state.has_return_address() {
        return Err(OVERWRITTEN);
    }
    Ok(())
}

fn is_as_entered(state: &State) -> bool {
    state.sp() == Some(Value::at_cfa(-WORD))
}

/// Registers that calls keep and that are others than they were.
fn not_held(state: &State) -> u16 {
    let held = |number: &u8| state.register(*number) == Some(Value { base: Base::Entry(*number), offset: 0 });
    Convention::SystemV.kept_registers().filter(|number| !held(number)).fold(0, |all, number| all | mask(number))
}
