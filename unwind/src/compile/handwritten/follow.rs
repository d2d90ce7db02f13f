//! One function from where it begins: its blocks, what is known before each, and whether all of its paths end as those of a function do.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

use super::code::{Code, Gap};
use crate::arch::Arch;
use crate::compile::bare::instruction::{Effect, Flow, Instruction, decode, mask};
use crate::compile::bare::state::{Base, RETURN_ADDRESS, State, Value};
use crate::compile::bare::{Convention, rule};
use crate::compile::programs::Programs;
use crate::rule::{Rule, RuleSource, Slots};

/// No function has more instructions: what keeps the memory for a hostile input small.
const MOST_INSTRUCTIONS: usize = 1 << 16;
const WORD: i64 = 8;
/// A state that is kept costs a turn for so many bytes.
const BYTES_PER_TURN: usize = 128;
/// Padding up to where functions begin, in instructions.
const MOST_PADDING: usize = 64;
const KEPT: u16 = Convention::SystemV.kept();

/// Why there is no rule for a function.
const UNKNOWN: &str = "an instruction that is not known, or data";
const OVERLAPS: &str = "instructions over each other";
pub(super) const TOO_LONG: &str = "a function that is too long to be followed";
pub(super) const UNBALANCED: &str = "a path that ends with another stack than it began with";
pub(super) const OVERWRITTEN: &str = "a return address that is moved or written over";
const DISAGREE: &str = "paths that meet with different stacks";
/// Why all else is left out.
pub(super) const EXHAUSTED: &str = "functions overlap too much to follow all of them";

/// What a call may count on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Called {
    /// It returns with the stack as it was, and has changed no registers but those of the mask.
    Returns { written: u16 },
    /// It may return with another stack, or change what it likes: nothing is known behind it, nor behind calls of what calls it.
    Unclear,
    /// It does not return, or is being followed itself: nothing is known behind it.
    Unseen,
}

impl Called {
    /// Of a function that does as it should.
    pub(super) const BY_CONVENTION: Self = Self::Returns { written: !KEPT };
}

/// What is asked while a function is followed.
pub(super) trait Callees {
    /// The function at `address`, which nothing else speaks for.
    fn called(&mut self, address: u64) -> Called;

    /// Whether a function is said to begin at `address`.
    fn is_start(&self, address: u64) -> bool;

    /// Takes turns from what may be spent on all functions.
    fn spend(&mut self, turns: u64) -> Result<(), &'static str>;

    /// Takes memory from what all functions that are being followed may have.
    fn hold(&mut self, bytes: usize) -> Result<(), &'static str>;
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

/// A function that was followed to all of its ends.
pub(super) struct Followed {
    /// By their addresses, for all blocks.
    code: BTreeMap<u64, Instruction>,
    /// Where each block ends, by where it begins.
    blocks: BTreeMap<u64, u64>,
    states: BTreeMap<u64, State>,
    queue: BTreeSet<u64>,
    /// Where jumps lead.
    targets: BTreeSet<u64>,
    /// From blocks to those that follow them.
    edges: BTreeSet<(u64, u64)>,
    /// Blocks that end as functions do, by where they end.
    ended: BTreeSet<u64>,
    /// What calls at these addresses may count on.
    calls: BTreeMap<u64, Called>,
    /// Ends by a return or a jump to another function, with the stack as it was.
    pub(super) ends: usize,
    /// Of these, by a jump.
    leaves: usize,
    /// A jump leads to what is not known, or behind a call nothing is.
    pub(super) is_cut: bool,
    /// The same, but for jumps that leave it as calls do.
    is_left: bool,
    /// Of a table of jumps some entries are left out.
    pub(super) is_partial: bool,
    /// It may return with another stack than it was called with.
    is_unclear: bool,
    /// Registers that calls keep and this function does not.
    pub(super) lost: u16,
    /// All that it writes, though it may restore some.
    written: u16,
    /// Jumps through registers of which something is known, and where they are.
    pub(super) leads: Vec<(u64, Lead)>,
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
            code: BTreeMap::new(),
            blocks: BTreeMap::new(),
            states: BTreeMap::new(),
            queue: BTreeSet::new(),
            targets: BTreeSet::new(),
            edges: BTreeSet::new(),
            ended: BTreeSet::new(),
            calls: BTreeMap::new(),
            ends: 0,
            leaves: 0,
            is_cut: false,
            is_left: false,
            is_partial: false,
            is_unclear: false,
            lost: 0,
            written: 0,
            leads: Vec::new(),
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
        let Some((_, block_end)) = before.filter(|(_, end)| at < **end) else { return Ok(false) };
        if !self.code.contains_key(&at) {
            return Err(OVERLAPS);
        }
        let end = core::mem::replace(block_end, at);
        self.blocks.insert(at, end);
        Ok(true)
    }

    fn read_block(
        &mut self,
        gap: &Gap<'_>,
        start: u64,
        (queue, tables): (&mut Vec<u64>, &Tables),
        callees: &mut dyn Callees,
    ) -> Result<(), &'static str> {
        let machine = Arch::X86_64.machine();
        let next_block = self.blocks.range(start..).next().map_or(u64::MAX, |(start, _)| *start);
        let mut end = start;
        while end < next_block
            && let Some(bytes) = gap.from(end)
        {
            callees.spend(1)?;
            callees.hold(size_of::<(u64, Instruction)>())?;
            if self.code.len() >= MOST_INSTRUCTIONS {
                return Err(TOO_LONG);
            }
            let instruction = decode(bytes).ok_or(UNKNOWN)?;
            let at = end;
            end += instruction.bytes as u64;
            self.code.insert(at, instruction);
            if let Flow::Branch { distance, .. } = instruction.flow {
                let target = at.wrapping_add_signed(distance);
                self.targets.insert(target);
                queue.push(target);
            }
            let listed = tables.get(&at).into_iter().flatten();
            self.targets.extend(listed.clone());
            queue.extend(listed);
            if ends(&instruction) {
                if let Flow::Branch { is_conditional: true, .. } = instruction.flow {
                    queue.push(end);
                }
                break;
            }
            // What a path comes to over padding, or where it is told to, may be another function.
            let is_aligned = || end.is_multiple_of(machine.function_alignment);
            let is_padding = || bytes.get(..instruction.bytes).is_some_and(machine.is_padding);
            if callees.is_start(end) || is_aligned() && is_padding() {
                queue.push(end);
                break;
            }
        }
        if end > next_block {
            return Err(OVERLAPS);
        }
        self.blocks.insert(start, end);
        Ok(())
    }

    /// Whether another function begins at `at`, to which the end of a block leads with this state: a call before it that does not return is the end of this one.
    fn is_another(&self, code: &Code<'_, '_>, at: u64, state: &State, callees: &dyn Callees) -> bool {
        if is_as_entered(state) && not_held(state) == 0 {
            return false;
        }
        let machine = Arch::X86_64.machine();
        let is_start = callees.is_start(at);
        // Padding in a function is before what some jump leads to.
        let may_begin = at.is_multiple_of(machine.function_alignment) && !self.targets.contains(&at);
        if !is_start && !may_begin {
            return false;
        }
        let mut next = at;
        for (before, instruction) in self.code.range(..at).rev().take(MOST_PADDING) {
            if before + instruction.bytes as u64 != next {
                return false;
            }
            if let Flow::Call(_) = instruction.flow {
                return is_start || next != at;
            }
            let bytes = code.gap(*before).and_then(|gap| gap.from(*before)?.get(..instruction.bytes));
            if !bytes.is_some_and(machine.is_padding) {
                return false;
            }
            next = *before;
        }
        false
    }

    /// Follows one block from what is known before it.
    fn run(
        &mut self,
        code: &Code<'_, '_>,
        start: u64,
        tables: &Tables,
        callees: &mut dyn Callees,
    ) -> Result<(), &'static str> {
        let Some(end) = self.blocks.get(&start).copied() else { return Ok(()) };
        let Some(mut state) = self.states.get(&start).cloned() else { return Ok(()) };
        let mut at = start;
        let mut last = None;
        while at < end
            && let Some(instruction) = self.code.get(&at).copied()
        {
            callees.spend(1)?;
            apply(&mut state, at, &instruction)?;
            if let Flow::Call(distance) = instruction.flow {
                if !self.calls.contains_key(&at) {
                    let called = self.ask(code, (at, &instruction), distance, callees);
                    self.calls.insert(at, called);
                }
                if !self.pass_call(&mut state, at, &instruction) {
                    self.is_cut = true;
                    self.is_unclear |= self.calls.get(&at) == Some(&Called::Unclear);
                    return Ok(());
                }
            }
            last = Some((at, instruction.flow));
            at += instruction.bytes as u64;
        }
        match last {
            Some((at, Flow::Branch { distance, is_conditional })) => {
                if is_conditional {
                    self.lead(code, end, start, &state, callees)?;
                }
                self.lead(code, at.wrapping_add_signed(distance), start, &state, callees)
            }
            Some((at, Flow::Anywhere(_))) => {
                let mut targets = tables.get(&at).into_iter().flatten();
                targets.try_for_each(|target| self.lead(code, *target, start, &state, callees))
            }
            Some((_, Flow::Return(_) | Flow::Ends)) => Ok(()),
            _ if self.is_another(code, end, &state, callees) => {
                self.is_cut = true;
                Ok(())
            }
            _ => self.lead(code, end, start, &state, callees),
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

    fn lead(
        &mut self,
        code: &Code<'_, '_>,
        at: u64,
        from: u64,
        state: &State,
        callees: &mut dyn Callees,
    ) -> Result<(), &'static str> {
        // Out of what is followed: looked at when all is known.
        if code.gap(at).is_none() {
            return Ok(());
        }
        if !self.blocks.contains_key(&at) {
            return Err(OVERLAPS);
        }
        self.edges.insert((from, at));
        let Some(known) = self.states.get_mut(&at) else {
            callees.spend((state.size() / BYTES_PER_TURN) as u64)?;
            callees.hold(state.size())?;
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
        let mut is_left = self.is_cut;
        let (mut leads_on, mut written) = (Vec::new(), 0);
        let (mut ended, mut is_unclear) = (BTreeSet::new(), self.is_unclear);
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
                ended.insert(block_end);
                lost |= not_held(&state);
                let is_sound = is_as_entered(&state) && code.is_spoken_for(to);
                if is_sound { Ok(()) } else { Err(UNBALANCED) }
            };
            match instruction.flow {
                Flow::Return(0) => {
                    ends += 1;
                    ended.insert(block_end);
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
                    // A return that leaves its address on the stack.
                    if target == Some(RETURN_ADDRESS) {
                        return Err(UNBALANCED);
                    }
                    leads_on.extend(target.and_then(|target| match target {
                        Value { base: Base::Target(table), offset } => {
                            Some((at, Lead::Table { around: table, base: offset as u64 }))
                        }
                        Value { base: Base::Image, offset } => Some((at, Lead::Place(offset as u64))),
                        _ => None,
                    }));
                    let is_known = tables.contains_key(&at);
                    is_cut |= !is_known;
                    // With everything as a caller has it, and by no address of its own: to another function, as `jmp *%rax` to a weak symbol's.
                    let is_own =
                        register.is_none() || matches!(target, Some(Value { base: Base::Target(_) | Base::Image, .. }));
                    is_left |= !is_known && (is_own || !is_as_entered(&state) || not_held(&state) != 0);
                    is_unclear |= !is_known && !is_as_entered(&state);
                    Ok(())
                }
                Flow::Ends => Ok(()),
                Flow::Next | Flow::Call(_) => leave(block_end),
            }
        })?;
        (self.ends, self.lost, self.leads) = (ends, lost, leads_on);
        (self.is_cut, self.is_left) = (is_cut, is_left);
        (self.written, self.leaves) = (written, leaves);
        (self.ended, self.is_unclear) = (ended, is_unclear);
        Ok(())
    }

    /// Each instruction that some path leads to, with what is known before it and where its block ends.
    fn visit(&self, with: &mut Visit<'_>) -> Result<(), &'static str> {
        for (start, state) in &self.states {
            let Some(end) = self.blocks.get(start).copied() else { continue };
            let mut state = state.clone();
            let mut at = *start;
            while at < end
                && let Some(instruction) = self.code.get(&at)
            {
                with(at, instruction, &state, end)?;
                apply(&mut state, at, instruction)?;
                if matches!(instruction.flow, Flow::Call(_)) && !self.pass_call(&mut state, at, instruction) {
                    break;
                }
                at += instruction.bytes as u64;
            }
        }
        Ok(())
    }

    /// Whether some path leads to the instruction at `address`.
    pub(super) fn reaches(&self, address: u64) -> bool {
        let is_in = self.block(address).is_some_and(|start| self.states.contains_key(&start));
        is_in && self.code.contains_key(&address)
    }

    /// Where the block begins that `address` is in.
    fn block(&self, address: u64) -> Option<u64> {
        let (start, end) = self.blocks.range(..=address).next_back()?;
        (address < *end).then_some(*start)
    }

    /// The blocks from which some path ends as those of functions do, or goes on by a jump that is not known yet.
    pub(super) fn ending(&self, is_open: impl Fn(u64) -> bool) -> BTreeSet<u64> {
        let open = self.leads.iter().filter(|(at, _)| is_open(*at));
        let open = open.filter_map(|(at, _)| self.block(*at));
        let backward: BTreeSet<(u64, u64)> = self.edges.iter().map(|(from, to)| (*to, *from)).collect();
        let ended = self.blocks.iter().filter(|(_, end)| self.ended.contains(end)).map(|(start, _)| *start);
        reached(ended.chain(open).collect(), &backward)
    }

    /// All blocks that these lead to.
    fn behind(&self, addresses: &BTreeSet<u64>) -> BTreeSet<u64> {
        let block = |address: &u64| self.block(*address);
        reached(addresses.iter().filter_map(block).collect(), &self.edges)
    }

    /// What calls of it may count on.
    pub(super) fn called(&self) -> Called {
        if self.is_unclear {
            return Called::Unclear;
        }
        // Of what else it does nothing is known where it is left, or goes on as another function.
        let goes_on = self.is_cut || self.is_partial || self.leaves > 0;
        let written = if goes_on { !KEPT } else { self.written & !KEPT };
        let lost = if self.is_left || self.is_partial { KEPT } else { self.lost };
        Called::Returns { written: written | lost }
    }

    /// The rules of what was reached, by rising address, and where there is none: all that `doubted` addresses lead to has none.
    pub(super) fn rules(&self, doubted: &BTreeSet<u64>, programs: &mut Programs) -> FoundRules {
        let doubted = self.behind(doubted);
        let is_doubted = |at: u64| !doubted.is_empty() && self.block(at).is_some_and(|block| doubted.contains(&block));
        let mut rules = FoundRules::new();
        let mut last: Option<State> = None;
        // No instruction ends it.
        let _ = self.visit(&mut |at, instruction, state, _| {
            let end = at + instruction.bytes as u64;
            if is_doubted(at) {
                last = None;
                match rules.last_mut() {
                    Some((range, None)) if range.end == at => range.end = end,
                    _ => rules.push((at..end, None)),
                }
                return Ok(());
            }
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

/// These, and all that the edges lead to from them.
fn reached(from: Vec<u64>, edges: &BTreeSet<(u64, u64)>) -> BTreeSet<u64> {
    let mut all: BTreeSet<u64> = from.iter().copied().collect();
    let mut queue = from;
    while let Some(block) = queue.pop() {
        let next = edges.range((block, 0)..=(block, u64::MAX)).map(|(_, to)| *to);
        queue.extend(next.filter(|to| all.insert(*to)));
    }
    all
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
