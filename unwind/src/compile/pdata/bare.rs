//! Functions of Windows x64 that have an entry for the sake of their handler alone: it has no unwind code, and the handler knows from the instructions
//! where the frame is. (OpenSSL's `perlasm`, `x86_64-xlate.pl`) So is it here: they are followed from the first one.
//!
//! A value is known as a distance from the CFA, or from what the stack pointer became where it was aligned; so is what the function stores on its stack. The
//! CFA is counted from the stack pointer, from another register that holds such a distance, or from a word on the stack that does:
//! CFA = rsp + d, CFA = register + d, CFA = \[rsp + x\] + d. Elsewhere there is no rule. What is stored through other addresses lies elsewhere.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

use super::super::bare::instruction::{Effect, Flow, Instruction, decode};
use super::super::bare::state::{Base, State, Value};
use super::super::bare::{Convention, rule};
use super::super::programs::Programs;
use super::super::synchronous::FunctionRules;
use crate::arch::Arch;
use crate::rule::{Kind, Rule, RuleSource, Slots};

/// No function is longer that is followed, in bytes.
const LONGEST: usize = 1 << 16;
/// Steps for each byte: paths meet a few times, and all begins anew where something is learned that is true from the start on.
const MOST_STEPS: usize = 16;
/// Instructions of a function that is called, at most.
const LONGEST_CALLED: usize = 2048;
const WORD: i64 = 8;

/// What perlasm puts before the first instruction of which its entries speak: rdi and rsi go to their home, and the stack pointer to rax.
/// `mov [rsp + 8], rdi; mov [rsp + 16], rsi; mov rax, rsp`.
pub(super) const BEFORE: [u8; 13] = [0x48, 0x89, 0x7c, 0x24, 8, 0x48, 0x89, 0x74, 0x24, 16, 0x48, 0x89, 0xe0];

/// Whether an instruction of `code` moves the stack pointer.
pub(super) fn moves_stack(code: &[u8]) -> bool {
    let mut at = 0;
    while let Some(rest) = code.get(at..).filter(|rest| !rest.is_empty()) {
        // What is no instruction is data.
        let instruction = decode(rest);
        if instruction.is_some_and(|instruction| instruction.moves_stack()) {
            return true;
        }
        at += instruction.map_or(1, |instruction| instruction.bytes);
    }
    false
}

/// The rules of what `code` has behind its first `before` bytes, which is at `start`, and where there are none although there are instructions. `module` has
/// the code at an address.
pub(super) fn follow<'c>(
    code: &'c [u8],
    before: usize,
    start: u64,
    module: &'c dyn Fn(u64) -> Option<&'c [u8]>,
    called: &mut Called,
    programs: &mut Programs,
) -> Result<(FunctionRules, Vec<Range<u64>>), &'static str> {
    if code.len() > LONGEST {
        return Err("exception directory: no unwind code for a frame, in a function that is too long to be followed");
    }
    let mut follower = Follower {
        code,
        begin: start.saturating_sub(before as u64),
        module,
        called,
        states: BTreeMap::new(),
        queue: BTreeSet::new(),
        steps: code.len().saturating_mul(MOST_STEPS),
        met: BTreeSet::new(),
        known: BTreeMap::new(),
    };
    while follower.run()? || follower.learn_from_returns() {}
    Ok(rules(&follower, before, start, programs))
}

const UNCLEAR: &str = "exception directory: no unwind code for a frame, and no end of its paths";

struct Follower<'c, 'k> {
    code: &'c [u8],
    begin: u64,
    module: &'c dyn Fn(u64) -> Option<&'c [u8]>,
    called: &'k mut Called,
    states: BTreeMap<usize, State>,
    queue: BTreeSet<usize>,
    /// So many are left.
    steps: usize,
    /// Where paths meet that have different stack pointers.
    met: BTreeSet<usize>,
    /// What the stack pointer becomes at instructions that do not tell: what a return behind them needs.
    known: BTreeMap<usize, i64>,
}

impl Follower<'_, '_> {
    /// Follows all paths, up to where two meet that have different stack pointers; whether that is somewhere. One at a time: what lies behind follows from it.
    fn run(&mut self) -> Result<bool, &'static str> {
        self.states.clear();
        self.queue.clear();
        self.lead(0, State::entry(Convention::Windows));
        let met = self.met.len();
        while let Some(at) = self.queue.pop_first() {
            self.steps = self.steps.checked_sub(1).ok_or(UNCLEAR)?;
            self.step(at);
            if self.met.len() != met {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn lead(&mut self, at: usize, mut state: State) {
        if at >= self.code.len() {
            return;
        }
        if self.met.contains(&at) {
            state.rebase(Base::Met(at as u64));
        }
        let Some(known) = self.states.get_mut(&at) else {
            self.states.insert(at, state);
            self.queue.insert(at);
            return;
        };
        if known.sp() != state.sp() {
            self.met.insert(at);
            return;
        }
        if known.meet(&state) {
            self.queue.insert(at);
        }
    }

    fn step(&mut self, at: usize) {
        let Some(instruction) = self.code.get(at..).and_then(decode) else { return };
        let Some(mut state) = self.states.get(&at).cloned() else { return };
        state.apply(instruction.effect);
        // A caller's value is no stack pointer that anything is known of.
        if state.sp().is_none_or(|sp| matches!(sp.base, Base::Entry(_))) {
            let known = self.known.get(&at).map(|offset| Value::at_cfa(*offset));
            state.begin(known.unwrap_or(Value { base: Base::Made(at as u64), offset: 0 }));
        }
        let next = at + instruction.bytes;
        match instruction.flow {
            Flow::Next => self.lead(next, state),
            Flow::Call(called) => {
                match called {
                    // It asks where it runs, and what it calls takes that from the stack.
                    Some(distance) if usize::try_from(distance) == Ok(instruction.bytes) => {
                        state.apply(Effect::Push(None));
                    }
                    Some(distance) => state.lose(self.written_by(at, distance)),
                    None => state.lose(!Convention::Windows.kept()),
                }
                self.lead(next, state);
            }
            Flow::Branch { distance, is_conditional } => {
                let target = i64::try_from(at).ok().and_then(|at| at.checked_add(distance));
                if is_conditional {
                    self.lead(next, state.clone());
                }
                if let Some(target) = target.and_then(|target| usize::try_from(target).ok()) {
                    self.lead(target, state);
                }
            }
            Flow::Return(_) | Flow::Anywhere(_) | Flow::Ends => {}
        }
    }

    /// What a function of the module that is called writes. No convention holds for parts of a function that it calls.
    fn written_by(&mut self, at: usize, distance: i64) -> u16 {
        let target = self.begin.checked_add(at as u64).and_then(|call| call.checked_add_signed(distance));
        target.map_or(u16::MAX, |target| self.called.written(target, self.module))
    }

    /// A return has the CFA right above its stack pointer: so that is known of an instruction that only a return follows. Whether it was not.
    fn learn_from_returns(&mut self) -> bool {
        let mut learned = BTreeMap::new();
        for (at, state) in &self.states {
            let Some(Value { base: Base::Made(made), offset }) = state.sp() else { continue };
            let Ok(made) = usize::try_from(made) else { continue };
            let is_return =
                self.code.get(*at..).and_then(decode).is_some_and(|found| matches!(found.flow, Flow::Return(_)));
            if is_return && self.is_straight(made, *at) {
                learned.insert(made, -WORD - offset);
            }
        }
        let has_learned = !learned.is_empty();
        self.known.extend(learned);
        has_learned
    }

    fn is_straight(&self, from: usize, to: usize) -> bool {
        let mut at = from;
        while at < to {
            match self.code.get(at..).and_then(decode) {
                Some(Instruction { bytes, flow: Flow::Next, .. }) => at += bytes,
                _ => return false,
            }
        }
        at == to
    }
}

/// What is known of functions that are called, by their addresses: for all entries of a module, which call the same ones.
pub(super) struct Called {
    written: BTreeMap<u64, u16>,
    /// So many instructions of others are looked at still.
    left: usize,
}

impl Called {
    /// With a bound that grows with the bytes of the exception directory.
    pub(super) fn new(directory: usize) -> Self {
        /// For each entry as many instructions as a part of `perlasm` has, and some more.
        const PER_BYTE: usize = 64;
        Self { written: BTreeMap::new(), left: directory.saturating_mul(PER_BYTE).saturating_add(LONGEST_CALLED) }
    }

    /// The registers that the function at `target` writes: all, where that cannot be told.
    fn written<'c>(&mut self, target: u64, module: &dyn Fn(u64) -> Option<&'c [u8]>) -> u16 {
        if let Some(known) = self.written.get(&target) {
            return *known;
        }
        let written = module(target).and_then(|code| self.look(code)).unwrap_or(u16::MAX);
        self.written.insert(target, written);
        written
    }

    /// The registers that the function at the front of `code` writes, as far as it is followed without leaving it.
    fn look(&mut self, code: &[u8]) -> Option<u16> {
        let (mut written, mut queue, mut seen) = (0, Vec::from([0usize]), BTreeSet::new());
        while let Some(at) = queue.pop() {
            if !seen.insert(at) {
                continue;
            }
            self.left = self.left.checked_sub(1)?;
            if seen.len() > LONGEST_CALLED {
                return None;
            }
            let instruction = decode(code.get(at..)?).filter(|instruction| !instruction.moves_stack())?;
            written |= instruction.written();
            let next = at + instruction.bytes;
            match instruction.flow {
                Flow::Next => queue.push(next),
                Flow::Branch { distance, is_conditional } => {
                    let target = i64::try_from(at).ok()?.checked_add(distance)?;
                    queue.push(usize::try_from(target).ok()?);
                    queue.extend(is_conditional.then_some(next));
                }
                Flow::Return(_) => {}
                Flow::Call(_) | Flow::Anywhere(_) | Flow::Ends => return None,
            }
        }
        Some(written)
    }
}

/// From each instruction to the next its rule.
fn rules(
    follower: &Follower<'_, '_>,
    before: usize,
    start: u64,
    programs: &mut Programs,
) -> (FunctionRules, Vec<Range<u64>>) {
    let machine = Arch::X86_64.machine();
    let gap = (Rule::bare(Kind::Unsupported, RuleSource::Pdata), Slots::SAME);
    let address = |at: usize| start.saturating_add(at.saturating_sub(before) as u64);
    let mut rules: FunctionRules = Vec::new();
    let mut lost: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    while let Some(rest) = follower.code.get(at..).filter(|rest| !rest.is_empty()) {
        let bytes = decode(rest).map_or(1, |instruction| instruction.bytes);
        let state = follower.states.get(&at);
        let rule = state.and_then(|state| rule(state, RuleSource::Pdata, programs));
        let is_padding = rest.get(..bytes).is_some_and(machine.is_padding);
        let range = address(at)..address(at + bytes);
        at += bytes;
        if range.is_empty() {
            continue;
        }
        if rule.is_none() && (state.is_some() || !is_padding) {
            match lost.last_mut().filter(|last| last.end == range.start) {
                Some(last) => last.end = range.end,
                None => lost.push(range.clone()),
            }
        }
        let rule = rule.unwrap_or(gap);
        if rules.last().is_none_or(|(_, last)| *last != rule) {
            rules.push((range.start, rule));
        }
    }
    (rules, lost)
}
