//! One step from a frame to its caller, by any rule and without one.

use core::cell::Cell;
use core::marker::PhantomData;

use symseal_module::{Avma, StopReason, UnwindMethod};

use crate::arch::{Call, Machine, Target};
use crate::cache::NO_MODULE;
use crate::cx::{self, Failure};
use crate::frame::{Frame, Registers};
use crate::memory::Memory;
use crate::modules::{CodeBytes, Modules};
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved};

/// Callee frames that one walk may look through for the value of a register. More means a table that was made to cost time:
/// a register is saved a few frames down, and few rules need one at all.
const RECOVERY_STEPS: u32 = 1 << 16;
/// Signal frames in one walk that lead down the stack, to a handler's alternate one. They are rare, and no other step may.
const SIGNAL_FRAMES: u32 = 32;
/// Effort that one walk may spend on scans, in bytes of code that are searched: what takes a few milliseconds.
const SCAN_EFFORT: u32 = 1 << 22;
/// How far into an assembler function without call frame information its instructions may lie.
pub(crate) const LONGEST_LEAF: u64 = 4096;

/// What a walk may still spend on what no sane stack needs much of.
pub(crate) struct Budget {
    recovery: u32,
    pub(crate) signals: u32,
    /// What scans may look at: bytes of code, or what costs as much.
    effort: Cell<u32>,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self { recovery: RECOVERY_STEPS, signals: SIGNAL_FRAMES, effort: Cell::new(SCAN_EFFORT) }
    }

    /// Takes `effort` of what is left for scans; false where there is not as much.
    pub(crate) fn spend(&self, effort: u32) -> bool {
        let left = self.effort.get().checked_sub(effort);
        self.effort.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Whether nothing is left for scans.
    pub(crate) fn is_spent(&self) -> bool {
        self.effort.get() == 0
    }
}

/// The registers of the frame that the walk is at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    /// False where `sp` is only known to be at least this: the frame pointer led here, and does not tell it.
    pub(crate) sp_known: bool,
    pub(crate) fp: u64,
    pub(crate) fp_known: bool,
    pub(crate) exact: bool,
    pub(crate) method: UnwindMethod,
}

impl State {
    pub(crate) fn of<T: Target>(registers: &Registers) -> Self {
        let mask = T::MACHINE.address_mask();
        Self {
            pc: registers.pc & mask & !T::MACHINE.mode_bits,
            sp: registers.sp & mask,
            sp_known: true,
            fp: registers.fp & mask,
            fp_known: registers.knows_frame_pointer(T::MACHINE.fp),
            exact: true,
            method: UnwindMethod::Context,
        }
    }
}

impl State {
    /// The frame as far as it is known before the step to its caller.
    pub(crate) fn frame(&self, module: u32) -> Frame {
        Frame {
            pc: Avma(self.pc),
            exact: self.exact,
            cfa: Avma(0),
            fp: if self.fp_known { self.fp } else { 0 },
            method: self.method,
            module: (module != NO_MODULE).then_some(module),
        }
    }
}

/// The registers of the caller; its stack pointer is the CFA, or where that is not known, lies no lower than `sp`.
pub(crate) struct Caller {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    pub(crate) sp_known: bool,
    pub(crate) fp: Option<u64>,
    pub(crate) exact: bool,
    pub(crate) method: UnwindMethod,
}

pub(crate) type Next = Result<Caller, StopReason>;

/// The method that a rule gives to the frame it leads to.
#[inline(always)]
pub(crate) fn method_of(rule: Rule) -> UnwindMethod {
    match rule.source() {
        Some(RuleSource::DebugFrame) => UnwindMethod::CfiDebugFrame,
        Some(RuleSource::Plt) => UnwindMethod::Plt,
        Some(RuleSource::Instructions) => UnwindMethod::Prologue,
        Some(RuleSource::Pdata) => UnwindMethod::Pdata,
        Some(RuleSource::CompactUnwind) => UnwindMethod::CompactUnwind,
        Some(RuleSource::Exidx) => UnwindMethod::Exidx,
        Some(RuleSource::GoPclntab) => UnwindMethod::GoPclntab,
        Some(RuleSource::Orc) => UnwindMethod::Orc,
        Some(RuleSource::Jit) => UnwindMethod::JitRule,
        _ => UnwindMethod::CfiEhFrame,
    }
}

/// The word of the target at `address`.
#[inline(always)]
pub(crate) fn read_word<T: Target>(memory: &impl Memory, address: u64) -> Option<u64> {
    let address = Avma(address);
    match (T::MACHINE.word, T::MACHINE.big_endian) {
        (8, false) => memory.read_u64(address),
        (8, true) => memory.read_u64(address).map(u64::swap_bytes),
        (_, false) => memory.read_u32(address).map(u64::from),
        (_, true) => memory.read_u32(address).map(|word| u64::from(word.swap_bytes())),
    }
}

/// Bit 55 of a pointer, which tells the two halves of the address space apart whatever the signature is, and those above it,
/// which repeat it in an address. (Arm ARM, D8.8)
const UPPER_HALF: u64 = !((1 << 55) - 1);

/// The address in a signed pointer, `bits` being those of an address.
pub(crate) fn without_signature(pointer: u64, bits: u64) -> u64 {
    if pointer >> 55 & 1 != 0 { pointer | !bits | UPPER_HALF } else { pointer & bits & !UPPER_HALF }
}

/// Everything that a step may look at.
pub(crate) struct Stepper<'s, 't, T, M> {
    pub(crate) modules: &'s Modules<'t>,
    registers: &'s Registers,
    pub(crate) memory: &'s M,
    /// The frames so far, the current one last.
    frames: &'s [Frame],
    pub(crate) state: &'s State,
    pub(crate) settings: Settings,
    target: PhantomData<T>,
}

/// What holds for all steps of a walk.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// The bits of an address.
    pub(crate) address_bits: u64,
    /// Whether the stack may be scanned.
    pub(crate) scan: bool,
    /// Whether frames that wait for the stack follow it.
    pub(crate) continuations: bool,
}

impl<'s, 't, T: Target, M: Memory> Stepper<'s, 't, T, M> {
    pub(crate) const MACHINE: &'static Machine = T::MACHINE;
    pub(crate) const WORD: i64 = T::MACHINE.word;

    pub(crate) fn new(
        modules: &'s Modules<'t>,
        registers: &'s Registers,
        memory: &'s M,
        frames: &'s [Frame],
        state: &'s State,
        settings: Settings,
    ) -> Self {
        Self { modules, registers, memory, frames, state, settings, target: PhantomData }
    }

    /// The CFA of the current frame, if known, and its caller or the reason for there being none.
    pub(crate) fn step(&self, rule: Rule, budget: &mut Budget) -> (Option<u64>, Next) {
        let stop = |reason| (None, Err(reason));
        if let Some(next) = self.goroutine(budget) {
            return (None, next);
        }
        match rule.kind() {
            Some(Kind::Gap) => self.without_rule(StopReason::NoRule, budget),
            // At the first instructions of an entry from a process, ORC says that nobody called, and no more: they are still on that process's stack.
            Some(Kind::End) if self.state.exact && rule.source() == Some(RuleSource::Orc) => stop(StopReason::NoRule),
            Some(Kind::End) => stop(StopReason::EndOfStack),
            Some(Kind::Signal) if !self.state.sp_known => stop(StopReason::RegisterUnknown),
            Some(Kind::Signal) => self.signal(self.context_by(rule, self.state.pc, self.state.exact), budget),
            Some(_) if rule.source() == Some(RuleSource::None) => stop(StopReason::UnsupportedRule),
            Some(Kind::MachineFrame) => self.machine_frame(rule, budget),
            Some(Kind::Sp) if !self.state.sp_known => match self.by_record(rule, budget) {
                Some(found) => found,
                None => stop(StopReason::RegisterUnknown),
            },
            // A function that called is no leaf: whatever it is, nothing describes it.
            Some(Kind::Leaf) if !self.state.exact => self.without_rule(StopReason::LeafCalled, budget),
            Some(Kind::Sp | Kind::Fp | Kind::Register | Kind::Deref | Kind::Plt | Kind::Program | Kind::Leaf) => {
                match self.cfa(rule, budget) {
                    Ok(cfa) => self.by_rule(rule, cfa, budget),
                    Err(reason) => stop(reason),
                }
            }
            None if rule == Rule::NO_TABLE => {
                let has_module = self.frames.last().is_some_and(|frame| frame.module.is_some());
                // What is no address came from a rule that is not true, and the frame pointer is that of nothing in particular.
                if !has_module && !self.state.exact && !Self::MACHINE.may_have_code(self.state.pc) {
                    return stop(StopReason::NoModule);
                }
                let reason = if has_module { StopReason::NoTable } else { StopReason::NoModule };
                self.without_rule(reason, budget)
            }
            Some(Kind::Unsupported) | None => stop(StopReason::UnsupportedRule),
        }
    }

    fn cfa(&self, rule: Rule, budget: &mut Budget) -> Result<u64, StopReason> {
        let state = self.state;
        let bytes = rule.offset() * Self::WORD;
        let mut register = |number| self.register(number, budget).ok_or(StopReason::RegisterUnknown);
        match rule.kind() {
            Some(Kind::Fp) => register(Self::MACHINE.fp).map(|base| Self::MACHINE.add(base, bytes)),
            Some(Kind::Register) => match register(rule.register()) {
                Ok(base) => Ok(Self::MACHINE.add(base, bytes)),
                Err(reason) => self.cfa_by_kept_register(rule, budget).ok_or(reason),
            },
            Some(Kind::Deref) => {
                let base = register(rule.register())?;
                let cfa = self.read(Self::MACHINE.add(base, bytes)).ok_or(StopReason::TruncatedStack)?;
                Ok(Self::MACHINE.address(cfa))
            }
            Some(Kind::Plt) => {
                // The entry pushed its number once the program counter is past the push.
                let pushed = (state.pc & 15) as i64 >= rule.offset();
                Ok(Self::MACHINE.add(state.sp, Self::WORD << u32::from(pushed)))
            }
            Some(Kind::Program) => {
                let program = self.modules.table_at(self.lookup_pc()).map_or(&[][..], |table| table.program(rule));
                let value =
                    |number| if number == Self::MACHINE.pc { Some(state.pc) } else { self.register(number, budget) };
                let cfa = cx::evaluate(program, value, |address| self.read(address)).map_err(|failure| match failure {
                    Failure::Malformed => StopReason::UnsupportedRule,
                    Failure::Register => StopReason::RegisterUnknown,
                    Failure::Memory => StopReason::TruncatedStack,
                });
                cfa.map(|cfa| Self::MACHINE.address(cfa))
            }
            _ => Ok(Self::MACHINE.add(state.sp, bytes)),
        }
    }

    /// The CFA where it counts from a register that calls need not keep, as assembler code has it across calls of its own helpers: its rule says at the
    /// return address that they keep it (OpenSSL's AES-GCM, functions of IA-32 that align their stacks). Believed where a call leads to the return address.
    #[inline(never)]
    fn cfa_by_kept_register(&self, rule: Rule, budget: &mut Budget) -> Option<u64> {
        // Elsewhere nobody counts from such a register across a call.
        if !Self::FOLLOWS || self.state.exact || !Self::MACHINE.is_volatile(rule.register()) {
            return None;
        }
        let Some(ReturnAddress::AtCfa(words)) = rule.return_address() else { return None };
        let base = self.recover(rule.register(), true, budget)? & Self::MACHINE.address_mask();
        let cfa = Self::MACHINE.add(base, rule.offset() * Self::WORD);
        let return_address = self.read(Self::slot(Self::origin(rule, cfa), words))?;
        self.call_to(return_address).map(|_| cfa)
    }

    pub(crate) fn by_rule(&self, rule: Rule, cfa: u64, budget: &mut Budget) -> (Option<u64>, Next) {
        let state = self.state;
        let stop = |reason| (Some(cfa), Err(reason));
        let return_address = rule.return_address();
        let origin = Self::origin(rule, cfa);
        // A function that popped its own return address, or never pushed it, may have its CFA right at the stack pointer.
        let popped_slot = self.link_of_popped_slot(rule, origin);
        let is_register = matches!(return_address, Some(ReturnAddress::InRegister(_)));
        let popped = popped_slot.is_some() || (state.exact && is_register);
        let across_calls = self.return_address_across_calls(return_address, budget);
        let mut sp = state.sp;
        if cfa < sp || (cfa == sp && !popped) {
            sp = match self.live_fp() {
                _ if cfa == sp && across_calls.is_some() && self.may_lead_to(cfa, budget) => sp,
                // On its own stack nothing was given back.
                _ if self.comes_back(rule, cfa, budget) => 0,
                Some(fp) if rule.kind() == Some(Kind::Fp) && self.has_lost_its_stack() => fp,
                _ => return stop(StopReason::StackNotRising),
            };
        }
        if !cfa.is_multiple_of(Self::WORD as u64) {
            return stop(StopReason::Misaligned);
        }
        let pc = match return_address {
            _ if let Some(pc) = across_calls => Ok(pc),
            _ if let Some(link) = popped_slot => self.register(link, budget).ok_or(StopReason::RegisterUnknown),
            Some(ReturnAddress::AtCfa(words)) => self.read(Self::slot(origin, words)).ok_or(StopReason::TruncatedStack),
            // Only before the register is used for something else, which a call would do to most.
            Some(ReturnAddress::InRegister(number)) if state.exact || !Self::MACHINE.is_volatile(number) => {
                self.register(number, budget).ok_or(StopReason::RegisterUnknown)
            }
            Some(ReturnAddress::InRegister(_)) => Err(StopReason::RegisterUnknown),
            None => Err(StopReason::UnsupportedRule),
        };
        let is_signed = rule.is_signed() || popped_slot.is_some();
        let pc = pc.map(|pc| if is_signed { self.unsigned(pc) } else { pc & !Self::MACHINE.mode_bits });
        let fp = match rule.frame_pointer() {
            Saved::Same => Ok(self.kept_fp()),
            Saved::Unknown => Ok(None),
            Saved::At(words) => match if rule.slots_on_fp() { self.live_fp() } else { Some(origin) } {
                None => Err(StopReason::RegisterUnknown),
                Some(base) if state.exact && is_stale(rule, Self::slot(base, words), sp, cfa) => Ok(self.kept_fp()),
                Some(base) => self.read(Self::slot(base, words)).map(Some).ok_or(StopReason::TruncatedStack),
            },
        };
        match (pc, fp) {
            (Ok(0), _) => stop(StopReason::RootFramePointer),
            (Ok(pc), Ok(fp)) => {
                let method = if rule.kind() == Some(Kind::Plt) { UnwindMethod::Plt } else { method_of(rule) };
                (Some(cfa), Ok(Caller { pc, sp: cfa, sp_known: true, fp, exact: false, method }))
            }
            (Err(reason), _) | (_, Err(reason)) => stop(reason),
        }
    }

    /// The return address of a function that says that it keeps it, while it calls, in a register which calls need not keep: assembler code that knows what
    /// its callee leaves alone (glibc's `rawmemchr` of aarch64, which calls `strlen`). Believed where a call leads to it.
    #[inline(always)]
    fn return_address_across_calls(&self, said: Option<ReturnAddress>, budget: &mut Budget) -> Option<u64> {
        match said {
            Some(ReturnAddress::InRegister(number)) if !self.state.exact => self.kept_across_calls(number, budget),
            _ => None,
        }
    }

    #[inline(never)]
    fn kept_across_calls(&self, number: u8, budget: &mut Budget) -> Option<u64> {
        if Some(number) == Self::MACHINE.link || !Self::MACHINE.is_volatile(number) {
            return None;
        }
        let pc = self.recover(number, true, budget)? & Self::MACHINE.address_mask();
        (pc != self.state.pc && self.call_to(pc).is_some()).then_some(pc)
    }

    /// The link register where the slot that the rule names for the return address lies below the stack pointer: it was given back, and what was in it is in the
    /// register, for a return or a tail call is all that follows. LLVM's tables for arm64 name the slot up to the return, and say of the value, while it is
    /// authenticated, that it is no longer signed.
    #[inline(always)]
    fn link_of_popped_slot(&self, rule: Rule, origin: u64) -> Option<u8> {
        let Some(ReturnAddress::AtCfa(words)) = rule.return_address() else { return None };
        let is_popped = self.state.exact && rule.kind() == Some(Kind::Sp) && Self::slot(origin, words) < self.state.sp;
        Self::MACHINE.link.filter(|_| is_popped)
    }

    /// Whether the rule is that of a function that runs on another stack for a while, of Go's runtime or of a kernel, which keeps a word there that leads back: its own may
    /// lie anywhere.
    #[inline(never)]
    fn comes_back(&self, rule: Rule, cfa: u64, budget: &mut Budget) -> bool {
        let is_away = match rule.source() {
            Some(RuleSource::GoPclntab) => matches!(rule.kind(), Some(Kind::Fp | Kind::Register)),
            Some(RuleSource::Orc) => rule.kind() == Some(Kind::Program),
            _ => false,
        };
        is_away && self.may_lead_to(cfa, budget)
    }

    /// Whether the stack pointer of the thread, where it stopped, points to nothing that can be read: it was overwritten, and what does not rest on it
    /// still holds.
    #[inline(never)]
    fn has_lost_its_stack(&self) -> bool {
        self.state.exact && self.state.method == UnwindMethod::Context && self.read(self.state.sp).is_none()
    }

    /// The interrupted frame: every register comes from the context that the kernel saved. The stack pointer may be anywhere,
    /// because handlers may run on a stack of their own.
    pub(crate) fn signal(&self, offset: i64, budget: &mut Budget) -> (Option<u64>, Next) {
        let context = Self::MACHINE.add(self.state.sp, offset);
        let saved = |register| self.read(Self::in_context(context, register)?);
        let sp = saved(Self::MACHINE.sp).map(|sp| Self::MACHINE.address(sp));
        match (saved(Self::MACHINE.pc), sp, saved(Self::MACHINE.fp)) {
            (Some(_), Some(sp), Some(_)) if !self.may_lead_to(sp, budget) => (None, Err(StopReason::StackNotRising)),
            (Some(pc), Some(sp), Some(fp)) => {
                let method = UnwindMethod::SignalContext;
                let pc = pc & !Self::MACHINE.mode_bits;
                (Some(sp), Ok(Caller { pc, sp, sp_known: true, fp: Some(fp), exact: true, method }))
            }
            _ => (None, Err(StopReason::TruncatedStack)),
        }
    }

    /// Whether the interrupted frame may have its stack pointer at `sp`. Not many frames lead down the stack, or nowhere.
    fn may_lead_to(&self, sp: u64, budget: &mut Budget) -> bool {
        let left = budget.signals.checked_sub(u32::from(sp <= self.state.sp));
        budget.signals = left.unwrap_or(0);
        left.is_some()
    }

    /// The interrupted frame: its program counter and stack pointer are where the processor pushed them, other registers in slots.
    fn machine_frame(&self, rule: Rule, budget: &mut Budget) -> (Option<u64>, Next) {
        let stop = |reason| (None, Err(reason));
        let (Some(ReturnAddress::AtCfa(words)), Some(to_sp)) = (rule.return_address(), Self::MACHINE.machine_frame_sp)
        else {
            return stop(StopReason::UnsupportedRule);
        };
        let Some(base) = self.register(rule.register(), budget) else { return stop(StopReason::RegisterUnknown) };
        let frame = Self::MACHINE.add(base, rule.offset() * Self::WORD);
        let fp = match rule.frame_pointer() {
            Saved::Same => self.kept_fp(),
            Saved::Unknown => None,
            Saved::At(words) => match self.read(Self::slot(frame, words)) {
                None => return stop(StopReason::TruncatedStack),
                known => known,
            },
        };
        let pc = Self::slot(frame, words);
        let sp = self.read(Self::slot(pc, to_sp)).map(|sp| Self::MACHINE.address(sp));
        match (self.read(pc), sp) {
            (Some(_), Some(sp)) if !self.may_lead_to(sp, budget) => stop(StopReason::StackNotRising),
            (Some(pc), Some(sp)) => {
                let method = UnwindMethod::SignalContext;
                (Some(sp), Ok(Caller { pc, sp, sp_known: true, fp, exact: true, method }))
            }
            _ => stop(StopReason::TruncatedStack),
        }
    }

    /// Whether a rule covers `address`.
    pub(crate) fn is_covered(&self, address: u64) -> bool {
        let (rule, _) = self.modules.locate_once(address);
        // What a leaf leaves open it leaves open for whoever it turns out to have called.
        rule != Rule::GAP && rule != Rule::NO_TABLE && rule.kind() != Some(Kind::Leaf)
    }

    /// Where the frame pointer leads.
    pub(crate) fn live_fp(&self) -> Option<u64> {
        self.kept_fp().map(|fp| Self::MACHINE.address(fp))
    }

    /// The value of its register, which may be no pointer at all: with a tag, if it has one.
    pub(crate) fn kept_fp(&self) -> Option<u64> {
        self.state.fp_known.then_some(self.state.fp)
    }

    pub(crate) fn lookup_pc(&self) -> u64 {
        self.state.pc.wrapping_sub(u64::from(!self.state.exact))
    }

    pub(crate) fn read(&self, address: u64) -> Option<u64> {
        read_word::<T>(self.memory, Self::MACHINE.address(address))
    }

    /// The address in a pointer that may be signed, or say which instructions are there.
    pub(crate) fn unsigned(&self, pointer: u64) -> u64 {
        if Self::MACHINE.signs_return_addresses {
            without_signature(pointer, self.settings.address_bits)
        } else {
            pointer & !Self::MACHINE.mode_bits
        }
    }

    pub(crate) fn slot(base: u64, words: i16) -> u64 {
        Self::MACHINE.add(base, i64::from(words) * Self::WORD)
    }

    /// Where `rule` counts from what is in memory, if not from the frame pointer.
    pub(crate) fn origin(rule: Rule, cfa: u64) -> u64 {
        Self::MACHINE.add(cfa, rule.origin() * Self::WORD)
    }

    fn in_context(context: u64, register: u8) -> Option<u64> {
        (Self::MACHINE.context_slot)(register).map(|bytes| Self::MACHINE.address(context.wrapping_add(bytes)))
    }

    /// Where the machine context is from the stack pointer on, if a signal trampoline is at `pc`.
    pub(crate) fn context_at(&self, pc: u64, exact: bool) -> Option<i64> {
        // A handler returns to the trampoline's first byte, and before that is another function's last one, of which nothing may be known.
        let (rule, _) = self.modules.locate_once(pc);
        if !exact && rule.kind() == Some(Kind::Signal) {
            return Some(rule.offset());
        }
        let code = self.modules.code_at(pc)?;
        Self::MACHINE.context_at(pc, exact, |address| code.at_address(address))
    }

    /// Where it is by the `rule` that was found for a frame at `pc`. A handler returns to a trampoline's first byte: the rule of the byte before may be that of
    /// another one, which ends there (the two of MIPS, one behind the other).
    #[inline(never)]
    fn context_by(&self, rule: Rule, pc: u64, exact: bool) -> i64 {
        let here = if exact { rule } else { self.modules.locate_once(pc).0 };
        if here.kind() == Some(Kind::Signal) { here.offset() } else { rule.offset() }
    }

    pub(crate) fn call_before(code: &CodeBytes<'_>, pc: u64) -> Option<Call> {
        (Self::MACHINE.call_before)(code.up_to_address(pc, Self::MACHINE.longest_call), pc)
    }

    /// The value of `number` in the current frame.
    pub(crate) fn register(&self, number: u8, budget: &mut Budget) -> Option<u64> {
        match number {
            _ if number == Self::MACHINE.sp => self.state.sp_known.then_some(self.state.sp),
            _ if number == Self::MACHINE.fp => self.live_fp(),
            _ => self.recover(number, false, budget).map(|value| value & Self::MACHINE.address_mask()),
        }
    }

    /// Looks through the callees, nearest first, for the one that saved `number`. The walk itself follows only the
    /// frame pointer, because almost no rule needs another register. `is_kept`: the callees keep it, though calls need not.
    fn recover(&self, number: u8, is_kept: bool, budget: &mut Budget) -> Option<u64> {
        let (mut caller, callees) = self.frames.split_last()?;
        for (at, callee) in callees.iter().enumerate().rev() {
            budget.recovery = budget.recovery.checked_sub(1)?;
            let before = at.checked_sub(1).and_then(|at| callees.get(at));
            let sp = before.map_or(self.registers.sp, |frame| frame.cfa.0);
            match caller.method {
                UnwindMethod::SignalContext => {
                    let offset = match self.modules.rule(callee) {
                        Some((rule, _)) if rule.kind() == Some(Kind::Signal) => {
                            self.context_by(rule, callee.pc.0, callee.exact)
                        }
                        Some((rule, table)) if rule.kind() == Some(Kind::MachineFrame) => {
                            let base = if rule.register() == Self::MACHINE.sp { sp } else { callee.fp };
                            let frame = Self::MACHINE.add(base, rule.offset() * Self::WORD);
                            match table.slots(self.modules.rva_of(callee)?)?.of_machine(Self::MACHINE, number)? {
                                Saved::Same => {
                                    caller = callee;
                                    continue;
                                }
                                Saved::Unknown => return None,
                                Saved::At(words) => return self.read(Self::slot(frame, words)),
                            }
                        }
                        _ => self.context_at(callee.pc.0, callee.exact)?,
                    };
                    return self.read(Self::in_context(Self::MACHINE.add(sp, offset), number)?);
                }
                UnwindMethod::Leaf | UnwindMethod::NullCall if Self::MACHINE.convention_registers.contains(&number) => {
                    return None;
                }
                // The table of each callee says whether its convention keeps those of the convention.
                _ if Self::MACHINE.is_volatile(number) && !Self::MACHINE.convention_registers.contains(&number) => {
                    // What was not found by a rule may have left out who changed it.
                    if !is_kept || matches!(caller.method, UnwindMethod::FramePointer | UnwindMethod::Scan) {
                        return None;
                    }
                }
                UnwindMethod::Leaf | UnwindMethod::NullCall => {}
                UnwindMethod::CfiEhFrame
                | UnwindMethod::CfiDebugFrame
                | UnwindMethod::Plt
                | UnwindMethod::JitRule
                | UnwindMethod::Prologue
                | UnwindMethod::Pdata
                | UnwindMethod::CompactUnwind
                | UnwindMethod::Exidx
                | UnwindMethod::GoPclntab
                | UnwindMethod::Orc => {
                    let (rule, table) = self.modules.rule(callee)?;
                    let rva = self.modules.rva_of(callee)?;
                    match table.slots(rva)?.of_machine(Self::MACHINE, number)? {
                        Saved::Same => {}
                        Saved::Unknown => return None,
                        Saved::At(words) => {
                            let origin = Self::origin(rule, callee.cfa.0);
                            let base = if rule.slots_on_fp() { callee.fp } else { origin };
                            let slot = Self::slot(base, words);
                            if !callee.exact || !is_stale(rule, slot, sp, callee.cfa.0) {
                                return self.read(slot);
                            }
                        }
                    }
                }
                UnwindMethod::FramePointer
                | UnwindMethod::Scan
                | UnwindMethod::GoroutineSwitch
                | UnwindMethod::AsyncParent
                | UnwindMethod::Context => return None,
            }
            caller = callee;
        }
        self.registers.general.get(usize::from(number)).copied().flatten()
    }
}

/// Whether `slot` was given back: in an epilogue a rule may still name a slot after the pop, and then the register has its value again. Such a slot lies below `sp`;
/// one that is counted from the frame pointer, which may be the caller's by then, anywhere outside of the frame. Above the CFA functions of Windows keep registers,
/// in the home space of their parameters.
fn is_stale(rule: Rule, slot: u64, sp: u64, cfa: u64) -> bool {
    slot < sp || (rule.slots_on_fp() && slot >= cfa)
}
