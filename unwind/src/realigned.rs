//! Code without rules that aligns its stack and keeps the caller's stack pointer in a register, on x86_64 and i686: its frame record has a copy of the return address,
//! and the CFA is not behind the record. The word that was pushed of that register is the CFA, and proves it: CFA = w where \[w - word\] is the return address too.

use symseal_module::{Avma, UnwindMethod};

use crate::arch::x86::{AROUND, CallerStack, Mode, begins_by_copying, caller_stack, has_copied, realigned_registers};
use crate::arch::{Arch, Call, Target};
use crate::memory::Memory;
use crate::step::{Budget, Caller, Next, Stepper};
use crate::without_rule::{LONGEST_PROLOGUE, LOWEST_CODE, Recorded};

/// Words below the record in which the register may have been pushed: GCC pushes those that calls keep by falling number, and at most four come before it.
const MOST_PUSHED: i16 = 6;

/// Where the frame ends that a record is of.
pub(crate) enum RecordEnd {
    /// Right behind the record.
    Record,
    /// Further up, at this CFA.
    Cfa(u64),
    /// Further up.
    Unknown,
}

impl<T: Target, M: Memory> Stepper<'_, '_, T, M> {
    const MODE: Mode = if matches!(T::MACHINE.arch, Arch::X86_64) { Mode::Bits64 } else { Mode::Bits32 };

    /// The caller of an interrupted function that is aligning its stack, or has nothing left to give back but that. `Some(None)` where the instructions say so and
    /// no call ends before the return address.
    #[inline(never)]
    pub(crate) fn by_kept_stack_pointer(&self, budget: &mut Budget) -> Option<Option<(Option<u64>, Next)>> {
        let state = self.state;
        if !Self::FOLLOWS || !state.exact {
            return None;
        }
        let code = self.modules.code_at(state.pc)?;
        let before = code.up_to_address(state.pc, AROUND).len();
        let around = code.at_address(state.pc.wrapping_sub(before as u64));
        let around = around.get(..around.len().min(2 * AROUND))?;
        let cfa = match caller_stack(around, before, Self::MODE)? {
            CallerStack::Register(number) => self.register(number, budget),
            CallerStack::Above(bytes) => Some(Self::MACHINE.add(state.sp, i64::from(bytes))),
        };
        let may_be_it = |pc: &u64| *pc >= LOWEST_CODE && !self.is_on_stack(*pc) && self.may_have_called(*pc, budget);
        let pc = cfa.and_then(|cfa| self.above_stack_pointer(cfa)).filter(may_be_it);
        Some(cfa.zip(pc).map(|(cfa, pc)| {
            let method = UnwindMethod::Leaf;
            (Some(cfa), Ok(Caller { pc, sp: cfa, sp_known: true, fp: self.kept_fp(), exact: false, method }))
        }))
    }

    /// The word below `cfa`, if that lies above the stack pointer on this stack.
    fn above_stack_pointer(&self, cfa: u64) -> Option<u64> {
        let slot = Self::slot(cfa, -1);
        let is_above = cfa.is_multiple_of(Self::WORD as u64) && slot >= self.state.sp && cfa > slot;
        let pc = (is_above && self.memory.same_stack(Avma(self.state.sp), Avma(slot))).then(|| self.read(slot))??;
        (pc != 0).then_some(pc)
    }

    /// Whether the return address of the record lies right below `cfa` too, which is further up.
    #[inline(never)]
    fn is_end_of(&self, recorded: &Recorded, cfa: u64) -> bool {
        cfa > recorded.record_end && self.above_stack_pointer(cfa) == Some(recorded.pc)
    }

    /// Where the frame ends that has this record, if it is the running function's; `is_made`: that begins by making one, as its code tells.
    #[inline(never)]
    pub(crate) fn end_of(&self, recorded: &Recorded, is_made: bool, budget: &mut Budget) -> RecordEnd {
        if !Self::FOLLOWS || is_made {
            return RecordEnd::Record;
        }
        let mut found = None;
        // Before it is pushed, and once it is popped, the register has it.
        for number in realigned_registers(Self::MODE).into_iter().filter(|_| self.state.exact) {
            found = found.or_else(|| self.register(number, budget).filter(|cfa| self.is_end_of(recorded, *cfa)));
        }
        for words in 1..=MOST_PUSHED {
            let slot = Self::slot(recorded.record, -words);
            let pushed = || self.read(slot).filter(|cfa| slot >= self.state.sp && self.is_end_of(recorded, *cfa));
            found = found.or_else(pushed);
        }
        match (found, self.copies_return_address(recorded.pc)) {
            (None, false) => RecordEnd::Record,
            (Some(cfa), true) => RecordEnd::Cfa(cfa),
            // A pointer into the stack of a function that calls itself may be like that; without the code nothing tells.
            _ => RecordEnd::Unknown,
        }
    }

    /// Whether the code of the function that was called, or that before the program counter, makes its record of a copy.
    fn copies_return_address(&self, returns_to: u64) -> bool {
        let begins_so = |target: u64| {
            let code = self.modules.code_at(target).map(|code| code.at_address(target));
            code.is_some_and(|code| {
                begins_by_copying(code.get(..code.len().min(2 * AROUND)).unwrap_or_default(), Self::MODE)
            })
        };
        let before = || {
            let code = self.modules.code_at(self.lookup_pc());
            code.is_some_and(|code| has_copied(code.up_to_address(self.state.pc, LONGEST_PROLOGUE), Self::MODE))
        };
        matches!(self.call_to(returns_to), Some(Call::To(target)) if begins_so(target)) || before()
    }
}
