//! The next frame where no rule tells it: each way with what supports it, and none by guessing.

use symseal_module::{Avma, StopReason, UnwindMethod};

use crate::arch::x86::{Mode, is_clear_of_frame_pointer, points_elsewhere};
use crate::arch::{Ahead, Arch, Call, FrameRecords, Target};
use crate::memory::Memory;
use crate::realigned::RecordEnd;
use crate::rule::{Kind, ReturnAddress, Rule, Saved};
use crate::step::{Budget, Caller, LONGEST_LEAF, Next, Stepper};

/// No code lies below: a program counter here comes from a call through a null pointer.
pub(crate) const LOWEST_CODE: u64 = 4096;

/// What lies as near to the stack pointer is on the stack rather than code: the usual bound of a stack.
const LARGEST_STACK: u64 = 8 << 20;

/// Bytes from where the first function of a stack sets its frame pointer to zero to where its call returns: few, as it has nothing else to do.
const LONGEST_START: usize = 64;

/// Bytes before the program counter that are searched for how the function has set its frame pointer: what is further away than most functions are long is not
/// looked at, and nothing stands against the register there.
pub(crate) const LONGEST_PROLOGUE: usize = 1024;

/// Jumps that are followed for where code without rules leads to.
const MOST_JUMPS: usize = 4;

/// What supports taking the word on top of the stack for the return address.
#[derive(Clone, Copy)]
enum Evidence {
    /// A rule covers the address before it; the code is not at hand.
    None,
    /// A call ends right before it.
    Calls,
    /// A direct call ends right before it, to the code around the program counter.
    CallsHere {
        /// The instructions from the function's first one on leave the stack pointer alone.
        sp_known: bool,
    },
}

/// A frame record: where it lies and where it ends, and what it holds.
pub(crate) struct Recorded {
    pub(crate) record: u64,
    pub(crate) record_end: u64,
    caller_fp: u64,
    pub(crate) pc: u64,
}

impl<T: Target, M: Memory> Stepper<'_, '_, T, M> {
    /// Without a rule: a signal trampoline known by its instructions, a call through a null pointer, a leaf, the frame
    /// pointer. Each only with what supports it at hand; else the walk stops with `reason`.
    pub(crate) fn without_rule(&self, reason: StopReason, budget: &mut Budget) -> (Option<u64>, Next) {
        let state = self.state;
        if let Some(context) = self.context_at(state.pc, state.exact) {
            if !state.sp_known {
                return (None, Err(StopReason::RegisterUnknown));
            }
            return self.signal(context, budget);
        }
        let leaf = self.leaf(budget);
        let by_leaf = |method| {
            let (pc, evidence) = leaf?;
            let pushed = if Self::MACHINE.link.is_some() { 0 } else { Self::WORD as u64 };
            let cfa = state.sp.checked_add(pushed)?;
            // The stack pointer is the caller's own only in a function that has not moved it.
            let sp_known = match evidence {
                Evidence::CallsHere { sp_known: true } => true,
                _ => Self::MACHINE.link.is_none() || method == UnwindMethod::NullCall,
            };
            let caller = Caller { pc, sp: cfa, sp_known, fp: self.kept_fp(), exact: false, method };
            Some((sp_known.then_some(cfa), Ok(caller)))
        };
        let found = if state.exact && state.pc < LOWEST_CODE {
            by_leaf(UnwindMethod::NullCall)
        } else if let Some(aligning) = self.by_kept_stack_pointer(budget) {
            aligning
        } else if let Some(ahead) = self.by_instructions(budget) {
            ahead
        } else {
            match leaf {
                // The function has pushed its frame record already, and the link register is as it was.
                Some((pc, _)) if Self::MACHINE.link.is_some() && self.recorded_return_address() == Some(pc) => {
                    self.by_frame_pointer(budget)
                }
                // The scan looks at this word too, and at those that stand against it; where the stack pointer has not moved, none can.
                Some((_, Evidence::CallsHere { sp_known: true })) => by_leaf(UnwindMethod::Leaf),
                Some(_) if self.settings.scan && Self::MACHINE.link.is_none() => self.by_frame_pointer(budget),
                // The call at the return address leads right here.
                Some((_, Evidence::CallsHere { .. })) => by_leaf(UnwindMethod::Leaf),
                // Where nothing is known to be, as behind a wild pointer, nothing has run.
                Some((pc, Evidence::Calls)) if !self.modules.holds(state.pc) && self.is_called_from_own_frame(pc) => {
                    by_leaf(UnwindMethod::Leaf)
                }
                // Another word may be the right one: this one may be left over from an earlier call, and the frame pointer may be that of
                // a function further out.
                Some((_, Evidence::Calls)) if self.may_be_framed(budget) || self.is_called_further_out(budget) => {
                    Some((None, Err(StopReason::Ambiguous)))
                }
                Some((_, Evidence::Calls)) => by_leaf(UnwindMethod::Leaf),
                _ => self.by_frame_pointer(budget),
            }
        };
        let chain_ended = self.live_fp() == Some(0) && self.is_in_chain() && self.cleared_frame_pointer();
        let found = found.or_else(|| if self.settings.scan && !chain_ended { self.scan(budget) } else { None });
        let reason = || match reason {
            _ if chain_ended => StopReason::RootFramePointer,
            _ if self.leads_outside() => StopReason::NoModule,
            reason => reason,
        };
        found.unwrap_or_else(|| (None, Err(reason())))
    }

    /// The word on top of the stack or the one in the link register, where the code before that address shows that it was
    /// put there by a call.
    fn leaf(&self, budget: &mut Budget) -> Option<(u64, Evidence)> {
        let state = self.state;
        if !state.exact {
            return None;
        }
        let pc = match Self::MACHINE.link {
            Some(link) => self.register(link, budget).map(|pc| self.unsigned(pc)),
            None => self.read(state.sp),
        };
        let pc = pc.filter(|pc| *pc != 0)?;
        // To a trampoline no call leads: the kernel left its address for the handler that runs.
        if self.is_trampoline(pc) {
            return Some((pc, Evidence::CallsHere { sp_known: false }));
        }
        // The running code has no rule: an address that has one is not its own, and the link register got it from the caller.
        let leads_out = Self::MACHINE.link.is_some()
            && self.is_covered(pc.wrapping_sub(1))
            && !self.is_behind_record_of(pc, budget);
        let Some(code) = self.modules.code_at(pc.wrapping_sub(1)) else {
            let evidence = if leads_out { Evidence::Calls } else { Evidence::None };
            return self.is_covered(pc.wrapping_sub(1)).then_some((pc, evidence));
        };
        // Where it is pushed, a word behind a call to a function that has a rule was left over by that one.
        if Self::MACHINE.link.is_none() && !self.may_have_called(pc, budget) {
            return None;
        }
        let evidence = match Self::call_before(code, pc)? {
            // The link register keeps the address of the last call, which may be one of the running function itself, or of one that it called.
            Call::To(target) if Self::MACHINE.link.is_some() && !self.may_be_running(target, pc, budget) => {
                Evidence::None
            }
            Call::To(target)
                if state.pc.wrapping_sub(target) < LONGEST_LEAF
                    && (!self.is_covered(target) || self.runs_on_here(target, budget)) =>
            {
                let code = self.modules.code_at(target).and_then(|code| code.between(target, state.pc));
                Evidence::CallsHere { sp_known: code.is_some_and(Self::MACHINE.keeps_stack) }
            }
            _ if Self::MACHINE.link.is_some() && !leads_out && pc.abs_diff(state.pc) < LONGEST_LEAF => Evidence::None,
            _ => Evidence::Calls,
        };
        Some((pc, evidence))
    }

    /// Whether a signal trampoline begins at `pc`, by its rule or by its instructions.
    #[inline(never)]
    fn is_trampoline(&self, pc: u64) -> bool {
        self.context_at(pc, false).is_some()
    }

    /// The caller where the instructions ahead say that the frame pointer is its own still, or again: then the return address is near the
    /// stack pointer, and the frame pointer leads to the caller's caller. `Some(None)` where no call ends before that address; `None` where
    /// the instructions do not say.
    #[inline(never)]
    fn by_instructions(&self, budget: &Budget) -> Option<Option<(Option<u64>, Next)>> {
        let state = self.state;
        // Of the others nothing is read, which their code need not do either.
        if !state.exact || !matches!(Self::MACHINE.arch, Arch::X86_64 | Arch::I686) {
            return None;
        }
        let (mut place, mut ahead) = (state.pc, Ahead::Unknown);
        for _ in 0..MOST_JUMPS {
            let code = self.modules.code_at(place)?.at_address(place);
            ahead = (Self::MACHINE.ahead)(code);
            let Ahead::Jump(distance) = ahead else { break };
            place = Self::MACHINE.add(place, distance);
            // On to a function that has rules: it will return for this one.
            if self.is_covered(place) {
                ahead = Ahead::Return;
                break;
            }
        }
        let below = match ahead {
            Ahead::Entry | Ahead::Return => 0,
            Ahead::Pushed => Self::WORD,
            Ahead::Unknown | Ahead::Jump(_) => return None,
        };
        let slot = Self::MACHINE.add(state.sp, below);
        let cfa = Self::MACHINE.add(slot, Self::WORD);
        let is_pushed = below == 0 || (state.fp_known && self.read(state.sp) == Some(state.fp));
        let may_be_it = |pc: &u64| *pc != 0 && !self.is_on_stack(*pc) && self.may_have_called(*pc, budget);
        // With two words to hold what they should, which any may, the second leads to a module.
        let is_at_hand = |pc: &u64| below == 0 || self.modules.holds(pc.wrapping_sub(1));
        let called = self.read(slot).filter(|pc| is_pushed && is_at_hand(pc) && may_be_it(pc));
        Some(called.map(|pc| {
            let method = UnwindMethod::Leaf;
            (Some(cfa), Ok(Caller { pc, sp: cfa, sp_known: true, fp: self.kept_fp(), exact: false, method }))
        }))
    }

    /// Along the frame pointer, on one stack alone: from an alternate stack to the interrupted one only the signal frame leads.
    fn by_frame_pointer(&self, budget: &mut Budget) -> Option<(Option<u64>, Next)> {
        let recorded = self.recorded()?;
        let Recorded { record, record_end, caller_fp, pc } = recorded;
        // The rest of the frame lies above the record, if there is a rest.
        let sp_known = Self::MACHINE.frame_records == FrameRecords::BelowCfa;
        let cfa = sp_known.then_some(record_end);
        if pc == 0 {
            return self.is_in_chain().then_some((cfa, Err(StopReason::RootFramePointer)));
        }
        if !self.may_return_to(pc, budget) {
            return None;
        }
        // The record may be that of a function further out.
        let is_made = self.made_record(pc, self.lookup_pc(), budget);
        let is_own = || is_made && self.is_nearest_call(pc, budget);
        let is_another = || match self.settings.scan {
            true => self.has_candidate_below(record, budget),
            // Without the code here no call can be told to lead here.
            false if self.modules.code_at(self.lookup_pc()).is_none() => false,
            // To where a call through a pointer or a linkage table led, nothing says.
            false if self.leads_anywhere(pc) => self.has_candidate_below(record, budget),
            false => self.has_call_below(record, budget),
        };
        if !is_own() && (self.frame_pointer_points_elsewhere() || is_another()) {
            return None;
        }
        let (cfa, sp_known) = match self.end_of(&recorded, is_made, budget) {
            RecordEnd::Record => (cfa, sp_known),
            RecordEnd::Cfa(cfa) => (Some(cfa), true),
            RecordEnd::Unknown => (None, false),
        };
        let (method, sp) = (UnwindMethod::FramePointer, cfa.unwrap_or(record_end));
        Some((cfa, Ok(Caller { pc, sp, sp_known, fp: Some(caller_fp), exact: false, method })))
    }

    /// Whether the function, by its instructions, has let the frame pointer point to a local of its own.
    #[inline(never)]
    fn frame_pointer_points_elsewhere(&self) -> bool {
        let code =
            || self.modules.code_at(self.lookup_pc()).map(|code| code.up_to_address(self.state.pc, LONGEST_PROLOGUE));
        Self::MACHINE.arch == Arch::X86_64 && code().is_some_and(points_elsewhere)
    }

    /// Whether the frame pointer leads to what may be the return address, or the end of the chain.
    fn may_be_framed(&self, budget: &Budget) -> bool {
        self.recorded().is_some_and(|Recorded { pc, .. }| match pc {
            0 => self.is_in_chain(),
            _ => self.may_return_to(pc, budget),
        })
    }

    /// Whether `pc` lies in a module, behind a call that may have led here.
    fn may_return_to(&self, pc: u64, budget: &Budget) -> bool {
        self.modules.holds(pc.wrapping_sub(1)) && self.may_have_called(pc, budget)
    }

    /// Whether the frame record is that of the function that `pc` returns to: by its rule it is there, and it was called directly by what the record
    /// returns to. Then the present function has none.
    #[inline(never)]
    fn is_called_from_own_frame(&self, pc: u64) -> bool {
        let lookup = pc.wrapping_sub(1);
        let (rule, _) = self.modules.locate_once(lookup);
        let (Some(recorded), Some(fp)) = (self.recorded(), self.live_fp()) else { return false };
        let Some(ReturnAddress::AtCfa(at)) = rule.return_address() else { return false };
        let cfa = Self::MACHINE.add(fp, rule.offset() * Self::WORD);
        let is_there = rule.kind() == Some(Kind::Fp)
            && Self::slot(Self::origin(rule, cfa), at) == Self::slot(recorded.record_end, -1);
        let start = self.modules.record_at(lookup).map(|(start, _)| Call::To(start));
        is_there && start.is_some() && self.call_to(recorded.pc) == start
    }

    /// Whether a chain of frame pointers led here: then it has a root. Without one, the register holds anything.
    fn is_in_chain(&self) -> bool {
        self.state.method == UnwindMethod::FramePointer
    }

    /// Whether the function itself has set the frame pointer to zero before it called, as the first one of a stack does. Otherwise it may be one that keeps no
    /// frame pointers, in whose register there is still what that one left: whole programs are made so, and their callers are not known.
    #[inline(never)]
    fn cleared_frame_pointer(&self) -> bool {
        let pc = self.state.pc;
        let code = self.modules.code_at(self.lookup_pc()).map_or(&[][..], |code| code.up_to_address(pc, LONGEST_START));
        let start = pc.wrapping_sub(code.len() as u64);
        let is_one = |at: usize, instruction: &[u8]| {
            let (before, here) = code.split_at_checked(at)?;
            let after = here.strip_prefix(instruction)?;
            let place = start.wrapping_add(at as u64);
            Some(match Self::MACHINE.arch {
                Arch::X86_64 => is_clear_of_frame_pointer(before, after, Mode::Bits64),
                Arch::I686 => is_clear_of_frame_pointer(before, after, Mode::Bits32),
                _ => place.is_multiple_of(Self::MACHINE.instruction_alignment as u64),
            })
        };
        let clears = |instruction: &&[u8]| (0..code.len()).any(|at| is_one(at, instruction) == Some(true));
        Self::MACHINE.clears_frame_pointer.iter().any(clears)
    }

    /// The frame record that the frame pointer points to.
    fn recorded(&self) -> Option<Recorded> {
        if Self::MACHINE.frame_records == FrameRecords::None {
            return None;
        }
        let (record, record_end) = self.record()?;
        let (caller_fp, pc) = (self.read(record)?, self.read(Self::slot(record_end, -1))?);
        Some(Recorded { record, record_end, caller_fp, pc: self.unsigned(pc) })
    }

    /// Whether the frame pointer leads to what looks like code in no module: code that was made at run time, or loaded since.
    #[inline(never)]
    fn leads_outside(&self) -> bool {
        let pc = self.record().and_then(|(_, end)| self.read(Self::slot(end, -1))).map(|pc| self.unsigned(pc));
        let is_outside = |pc: u64| !self.modules.holds(pc.wrapping_sub(1)) && !self.is_on_stack(pc);
        Self::MACHINE.frame_records != FrameRecords::None
            && pc.is_some_and(|pc| pc > LOWEST_CODE && pc >> 63 == 0 && is_outside(pc))
    }

    /// Whether `pc` lies in no module and so near to the stack pointer that it is no code.
    pub(crate) fn is_on_stack(&self, pc: u64) -> bool {
        !self.modules.holds(pc.wrapping_sub(1)) && pc.abs_diff(self.state.sp) <= LARGEST_STACK
    }

    /// Address and end of the frame record that the frame pointer points to.
    fn record(&self) -> Option<(u64, u64)> {
        let fp = self.live_fp().filter(|fp| fp.is_multiple_of(Self::WORD as u64))?;
        let size = 2 * Self::WORD as u64;
        let start = match Self::MACHINE.frame_records {
            FrameRecords::UnderPointer => fp.checked_sub(size)?,
            _ => fp,
        };
        let end = start.checked_add(size)?;
        if start < self.state.sp {
            return None;
        }
        // The frame pointer lies between the two.
        self.memory.same_stack(Avma(self.state.sp), Avma(Self::slot(end, -1))).then_some((start, end))
    }

    /// The return address in the frame record that the frame pointer points to.
    fn recorded_return_address(&self) -> Option<u64> {
        if !matches!(Self::MACHINE.frame_records, FrameRecords::InFrame | FrameRecords::UnderPointer) {
            return None;
        }
        let (_, end) = self.record()?;
        self.read(Self::slot(end, -1)).map(|pc| self.unsigned(pc))
    }

    /// A frame that the frame pointer led to and whose rule counts from the stack pointer, which is not known. If the rule
    /// says that the function pushed a frame record, then that is where the frame pointer points, and it tells the CFA.
    pub(crate) fn by_record(&self, rule: Rule, budget: &mut Budget) -> Option<(Option<u64>, Next)> {
        // Elsewhere compilers let the frame pointer point to other places of the frame, or use its register for anything.
        if Self::MACHINE.arch != Arch::Aarch64 {
            return None;
        }
        let (Some(ReturnAddress::AtCfa(return_address)), Saved::At(record)) =
            (rule.return_address(), rule.frame_pointer())
        else {
            return None;
        };
        if self.state.exact || rule.slots_on_fp() || return_address != record.checked_add(1)? {
            return None;
        }
        let (start, _) = self.record()?;
        let origin = Self::slot(start, record.checked_neg()?);
        let cfa = Self::MACHINE.add(origin, -rule.origin() * Self::WORD);
        let (cfa, mut next) = self.by_rule(rule, cfa, budget);
        if let Ok(caller) = &mut next {
            caller.method = UnwindMethod::FramePointer;
        }
        Some((cfa, next))
    }
}
