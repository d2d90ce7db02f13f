//! A function's frame at each of its instructions, by following them from the first one: how the frame is made and taken down, wherever in
//! the function that happens. (x86_64 and arm64; MIPS, with its delay slots, has [`mips`](super::mips))
//!
//! An instruction's state comes from those that lead to it. What leads on from a call is followed last and by rising address, because
//! some calls never return, and what stands behind them belongs to another path.
//!
//! The registers that a function keeps are saved before they are changed and restored before their slot is given up, so that only the slots
//! are looked at. The first store of such a register is its saving; a later one is of a value of the function's own.

mod aarch64;
#[cfg(feature = "compile")]
mod x86_64;

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::layout::{Layout, Place};
use crate::arch::{Arch, Machine};

/// No function is longer, in places where an instruction may begin: what keeps the memory for a hostile input small.
const LONGEST: usize = 1 << 18;
/// Registers that a function keeps, the link register included: those with slots, the frame pointer, the link register.
const MOST_KEPT: usize = 12;
/// The most instructions of a prologue that several functions share, and call.
const LONGEST_OUTLINED: usize = 12;
/// Stretches of code that are looked at for one: a program has a handful, and a hostile file thousands, for each of its calls.
const MOST_STRETCHES: usize = 64;

/// What is to be followed.
pub(super) struct Function<'f> {
    pub(super) arch: Arch,
    pub(super) start: u64,
    pub(super) code: &'f [u8],
    /// What is said to hold in the body.
    pub(super) body: &'f Layout,
    /// What is said to hold at an address before that. It counts where no path leads to that is understood.
    pub(super) earlier: &'f dyn Fn(u64) -> Option<Layout>,
    /// Whether nothing but switches leads to what no path leads to: an exception's handlers find the body's frame.
    pub(super) has_handlers: bool,
    /// Whether other functions of the same description may follow in it.
    pub(super) may_be_joined: bool,
    /// All code of the module, with where it begins.
    pub(super) module: &'f [(u64, &'f [u8])],
}

/// What an instruction does to the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// The stack pointer moves by so many bytes.
    Move(i64),
    /// The stack pointer moves by what is not known.
    Lose,
    /// The frame pointer register becomes the stack pointer plus so many bytes.
    SetFrame(i64),
    /// The stack pointer becomes the frame pointer plus so many bytes.
    FromFrame(i64),
    /// A register is stored at the stack pointer (or the frame pointer, if true) plus so many bytes.
    Store(u8, bool, i64),
    /// A register is loaded.
    Load(u8),
    /// A register is taken from the stack, and the stack pointer is behind it.
    #[cfg(feature = "compile")]
    Pop(u8),
    /// The return address in the link register is signed, or not any more.
    Sign(bool),
}

/// Where the next instruction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    /// Behind a call, if it returns.
    Call,
    /// To a distance from the instruction's own address, or also to the next.
    Branch {
        distance: i64,
        is_conditional: bool,
    },
    /// To a place that is not known: a switch, or a tail call.
    Indirect,
    /// Nowhere: a return or a trap.
    Ends,
}

/// Whether a function of arm64 signs its return address anywhere.
#[cfg(feature = "compile")]
pub(super) fn signs(code: &[u8]) -> bool {
    code.as_chunks::<4>().0.iter().any(|word| aarch64::signs(u32::from_le_bytes(*word)))
}

/// One instruction.
struct Instruction {
    bytes: usize,
    /// In order.
    effects: [Option<Effect>; 3],
    flow: Flow,
}

impl Instruction {
    const fn of(bytes: usize, flow: Flow) -> Self {
        Self { bytes, effects: [None; 3], flow }
    }

    const fn doing(mut self, first: Effect, second: Option<Effect>, third: Option<Effect>) -> Self {
        self.effects = [Some(first), second, third];
        self
    }
}

impl Instruction {
    /// Whether a function may begin like this, and hardly anything else does.
    fn makes_frame(&self) -> bool {
        matches!(self.effects, [Some(Effect::Move(..0) | Effect::Sign(true)), ..])
    }
}

/// The frame before an instruction. Distances are in bytes up to the CFA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    sp: Option<i64>,
    fp: Option<i64>,
    /// Where registers are saved, in bytes from the CFA, in the order of [`kept`].
    saved: [Option<i32>; MOST_KEPT],
    is_signed: bool,
}

/// DWARF numbers of what a function keeps.
fn kept(machine: &'static Machine) -> impl Iterator<Item = u8> + Clone {
    machine.slot_registers.iter().copied().chain([machine.fp]).chain(machine.link).take(MOST_KEPT)
}

impl State {
    fn entry(machine: &Machine) -> Self {
        let pushed = if machine.link.is_some() { 0 } else { machine.word };
        Self { sp: Some(pushed), fp: None, saved: [None; MOST_KEPT], is_signed: false }
    }

    /// What the description of the body says.
    fn of_body(body: &Layout, machine: &'static Machine) -> Self {
        let mut state = Self { sp: None, fp: None, saved: [None; MOST_KEPT], is_signed: body.is_signed };
        if body.base == machine.fp {
            state.fp = Some(body.cfa);
        } else {
            state.sp = Some(body.cfa);
        }
        for (register, slot) in kept(machine).zip(&mut state.saved) {
            let at = match body.return_address {
                Place::AtCfa(at) if Some(register) == machine.link => Some(at),
                _ => body.saved.iter().find(|(saved, _)| *saved == register).map(|(_, at)| *at),
            };
            *slot = at.and_then(|at| i32::try_from(at).ok());
        }
        state
    }

    /// Whether the saved registers of `body` are saved here too.
    fn has_saved(&self, body: &Self) -> bool {
        self.saved.iter().zip(&body.saved).all(|(here, there)| there.is_none() || here == there)
    }

    fn apply(&mut self, effect: Effect, machine: &'static Machine, has_frame_pointer: bool) {
        match effect {
            Effect::Move(bytes) => self.sp = self.sp.and_then(|sp| sp.checked_sub(bytes)),
            Effect::Lose => self.sp = None,
            // Without a frame, the register is one like others.
            Effect::SetFrame(bytes) if has_frame_pointer => self.fp = self.sp.and_then(|sp| sp.checked_sub(bytes)),
            Effect::SetFrame(_) => {}
            Effect::FromFrame(bytes) => self.sp = self.fp.and_then(|fp| fp.checked_sub(bytes)),
            Effect::Store(register, on_fp, bytes) => {
                let base = if on_fp { self.fp } else { self.sp };
                let slot = base.and_then(|base| bytes.checked_sub(base)).and_then(|slot| i32::try_from(slot).ok());
                let known = kept(machine).zip(&mut self.saved).find(|(kept, _)| *kept == register);
                if let (Some(slot), Some((_, known @ None))) = (slot.filter(|slot| *slot < 0), known) {
                    *known = Some(slot);
                }
            }
            Effect::Load(register) if register == machine.fp => self.fp = None,
            Effect::Load(_) => {}
            #[cfg(feature = "compile")]
            Effect::Pop(register) => self.pop(register, machine),
            Effect::Sign(is_signed) => self.is_signed = is_signed,
        }
        // What lies below the stack pointer is given up.
        if let Some(sp) = self.sp {
            for slot in &mut self.saved {
                *slot = slot.filter(|slot| i64::from(*slot) >= -sp);
            }
        }
    }

    /// Where the stack pointer was lost in a frame with a frame pointer, what is restored tells where it is.
    #[cfg(feature = "compile")]
    fn pop(&mut self, register: u8, machine: &'static Machine) {
        if self.sp.is_none() && self.fp.is_some() {
            let slot = kept(machine).zip(&self.saved).find(|(kept, _)| *kept == register);
            self.sp = slot.and_then(|(_, slot)| *slot).map(|slot| -i64::from(slot));
        }
        if register == machine.fp {
            self.fp = None;
        }
        self.sp = self.sp.and_then(|sp| sp.checked_sub(machine.word));
    }

    /// Takes from this state what `other` does not confirm. `None` if they are not of one frame.
    fn meet(&self, other: &Self) -> Option<Self> {
        let agree = |a: Option<i64>, b: Option<i64>| a.filter(|_| a == b);
        let mut met = *self;
        (met.sp, met.fp) = (agree(self.sp, other.sp), agree(self.fp, other.fp));
        if (met.sp, met.fp) == (None, None) || self.is_signed != other.is_signed {
            return None;
        }
        for (slot, other) in met.saved.iter_mut().zip(&other.saved) {
            *slot = slot.filter(|_| slot == other);
        }
        Some(met)
    }

    fn layout(&self, machine: &'static Machine) -> Option<Layout> {
        let mut layout = Layout::entry(machine);
        (layout.base, layout.cfa) = match (self.fp, self.sp) {
            (Some(fp), _) => (machine.fp, fp),
            (None, Some(sp)) => (machine.sp, sp),
            (None, None) => return None,
        };
        for (register, slot) in kept(machine).zip(&self.saved) {
            let Some(slot) = slot.map(i64::from) else { continue };
            if Some(register) == machine.link {
                layout.return_address = Place::AtCfa(slot);
            } else {
                layout.save(register, slot);
            }
        }
        layout.is_signed = self.is_signed;
        Some(layout)
    }
}

/// The frame before each instruction, by rising address, and `None` where it is not known; else why the function could not be followed.
pub(super) fn follow(
    function: &Function<'_>,
    has_frame_pointer: bool,
) -> Result<Vec<(u64, Option<Layout>)>, &'static str> {
    let machine = function.arch.machine();
    let unit = machine.instruction_alignment;
    if function.code.len() / unit > LONGEST {
        return Err("compact unwind information: longer than any function");
    }
    let mut follower = Follower {
        function,
        machine,
        unit,
        has_frame_pointer,
        states: vec![None; function.code.len().div_ceil(unit)],
        queue: Vec::new(),
        behind_calls: BTreeMap::new(),
        indirect: None,
        switch: None,
    };
    let entry = State::entry(machine);
    follower.lead(0, entry);
    follower.run();
    // What only a switch leads to, or what no path leads to that is understood, or another function of the same description.
    let body = State::of_body(function.body, machine);
    let mut at = 0;
    while at < function.code.len() {
        let instruction = follower.instruction(at);
        let bytes = instruction.as_ref().map_or(unit, |instruction| instruction.bytes);
        let is_padding = function.code.get(at..at + bytes).is_some_and(machine.is_padding);
        // Padding leads to nothing: what follows it begins anew.
        if follower.states.get(at / unit).is_some_and(Option::is_none) && !is_padding {
            let makes_frame = instruction.is_some_and(|instruction| instruction.makes_frame());
            let address = function.start.saturating_add(at as u64);
            // A case of a switch may begin by making room for the arguments of a call.
            let begins_another = function.may_be_joined && makes_frame && follower.switch.is_none();
            let state = match begins_another {
                true => entry,
                false => match (function.earlier)(address) {
                    Some(layout) => State::of_body(&layout, machine),
                    None => follower.behind_switch(&body).unwrap_or(body),
                },
            };
            follower.lead(at, state);
            follower.run();
        }
        at += bytes;
    }
    let is_body = |state: &State| {
        let same_base = if has_frame_pointer { state.fp == body.fp } else { state.sp == body.sp };
        same_base && state.has_saved(&body)
    };
    if !follower.states.iter().flatten().any(is_body) {
        return Err("compact unwind information: the instructions do not make the frame that it says");
    }
    let states = follower.states.iter().enumerate().filter_map(|(at, state)| {
        let state = state.as_ref()?;
        Some((function.start.saturating_add((at * unit) as u64), state.layout(machine)))
    });
    Ok(states.collect())
}

struct Follower<'f> {
    function: &'f Function<'f>,
    machine: &'static Machine,
    /// Instructions begin at multiples of this.
    unit: usize,
    has_frame_pointer: bool,
    states: Vec<Option<State>>,
    queue: Vec<usize>,
    behind_calls: BTreeMap<usize, State>,
    /// The state at the first jump to a place that is not known.
    indirect: Option<State>,
    /// The state at all switches, or that they differ.
    switch: Option<Option<State>>,
}

impl Follower<'_> {
    /// The frame of what only a switch leads to: that of the switch. Of a jump that may leave the function too, only a frame with all that
    /// the body saves is believed.
    fn behind_switch(&self, body: &State) -> Option<State> {
        let switch = self.switch.flatten().filter(|_| !self.function.has_handlers);
        switch.or(self.indirect.filter(|state| state.has_saved(body)))
    }

    /// Whether the jump at `at` goes to what a table has, or to a sum that was made shortly before, as switches do.
    fn is_switch(&self, at: usize) -> bool {
        let Some((before, jump)) = self.function.code.split_at_checked(at) else { return false };
        match self.function.arch {
            #[cfg(feature = "compile")]
            Arch::X86_64 => x86_64::is_switch(before, jump),
            _ => aarch64::is_switch(before, jump),
        }
    }

    fn instruction(&self, at: usize) -> Option<Instruction> {
        let code = self.function.code.get(at..)?;
        match self.function.arch {
            #[cfg(feature = "compile")]
            Arch::X86_64 => x86_64::decode(self.function.code.get(..at).unwrap_or_default(), code),
            _ => aarch64::decode(code, self.machine),
        }
    }

    /// Some path leads to the instruction at `at` with `state`.
    fn lead(&mut self, at: usize, state: State) {
        let Some(known) = self.states.get_mut(at / self.unit) else { return };
        let met = match known {
            None => Some(state),
            Some(known) => known.meet(&state),
        };
        // Where two paths are not of one frame, the first counts.
        if let Some(met) = met
            && *known != Some(met)
        {
            *known = Some(met);
            self.queue.push(at);
        }
    }

    fn run(&mut self) {
        loop {
            while let Some(at) = self.queue.pop() {
                self.step(at);
            }
            let Some((at, state)) = self.behind_calls.pop_first() else { return };
            self.lead(at, state);
        }
    }

    /// What the function that is called at `at` does to its caller's frame: a part of a prologue that LLVM's outliner has made a function of, as it stores what
    /// the caller keeps, or sets the frame pointer, and moves nothing. Functions that are called otherwise make a frame of their own for that, or leave it.
    fn outlined(&self, at: usize) -> Option<Vec<Effect>> {
        if self.function.arch != Arch::Aarch64 {
            return None;
        }
        let distance = aarch64::called(self.function.code.get(at..)?)?;
        let target = self.function.start.checked_add(at as u64)?.checked_add_signed(distance)?;
        let code = self
            .function
            .module
            .iter()
            .take(MOST_STRETCHES)
            .find_map(|(start, bytes)| bytes.get(usize::try_from(target.checked_sub(*start)?).ok()?..))?;
        let words = code.as_chunks::<4>().0.iter().take(LONGEST_OUTLINED);
        let mut effects = Vec::new();
        for word in words {
            let instruction = aarch64::decode(word, self.machine)?;
            match instruction.flow {
                // What it signs is its own return address, which it authenticates as it returns.
                Flow::Next => effects.extend(
                    instruction.effects.into_iter().flatten().filter(|effect| !matches!(effect, Effect::Sign(_))),
                ),
                Flow::Ends => {
                    let is_kept = |register: u8| kept(self.machine).any(|kept| kept == register);
                    let makes_frame = effects.iter().any(|effect| match effect {
                        Effect::SetFrame(_) => true,
                        Effect::Store(register, false, _) => is_kept(*register),
                        _ => false,
                    });
                    return makes_frame.then_some(effects);
                }
                _ => return None,
            }
            if !effects.iter().all(|effect| matches!(effect, Effect::SetFrame(_) | Effect::Store(..))) {
                return None;
            }
        }
        None
    }

    fn step(&mut self, at: usize) {
        let (Some(Some(state)), Some(instruction)) = (self.states.get(at / self.unit).copied(), self.instruction(at))
        else {
            return;
        };
        let mut after = state;
        let outlined = if instruction.flow == Flow::Call { self.outlined(at) } else { None };
        for effect in instruction.effects.into_iter().flatten().chain(outlined.into_iter().flatten()) {
            after.apply(effect, self.machine, self.has_frame_pointer);
        }
        let next = at + instruction.bytes;
        match instruction.flow {
            Flow::Next => self.lead(next, after),
            Flow::Call => {
                let met = self.behind_calls.get(&next).map_or(Some(after), |known| known.meet(&after));
                self.behind_calls.insert(next, met.unwrap_or(after));
            }
            Flow::Branch { distance, is_conditional } => {
                let target = i64::try_from(at).ok().and_then(|at| at.checked_add(distance));
                if let Some(target) = target.and_then(|target| usize::try_from(target).ok())
                    && target < self.function.code.len()
                {
                    self.lead(target, after);
                }
                if is_conditional {
                    self.lead(next, after);
                }
            }
            Flow::Indirect => {
                self.indirect.get_or_insert(after);
                if self.is_switch(at) {
                    let known = self.switch.get_or_insert(Some(after));
                    *known = known.filter(|known| *known == after);
                }
            }
            Flow::Ends => {}
        }
    }
}
