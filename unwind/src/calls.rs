//! What the code says of calls: where one led, how far a function without rules reaches that was called, whether it goes on to another one by a jump, and what
//! it has done to the frame pointer so far. Each only where the code is at hand; nothing stands against what is not.

use core::ops::Range;

use symseal_module::Avma;

use crate::arch::{Ahead, Arch, Call, Extent, FrameRecords, Jump, Target};
use crate::memory::Memory;
use crate::rule::{Kind, RuleSource};
use crate::step::{Budget, LONGEST_LEAF, Stepper};

/// Functions that end by a jump to another one, after each other, through which it is followed where a call leads.
const MOST_FUNCTIONS: usize = 3;
/// The most bytes of a function that are searched for a jump out of it.
const LONGEST_SEARCHED: u64 = 1 << 14;
/// What following the instructions of a function without rules costs, in units of a byte of code that is searched: see [`Budget::effort`].
const COST_OF_AN_EXTENT: u32 = LONGEST_LEAF as u32 / 4;

impl<T: Target, M: Memory> Stepper<'_, '_, T, M> {
    /// Whether functions without rules are followed by their instructions. Known when this is compiled: for the other processors nothing of it is there.
    pub(crate) const FOLLOWS: bool = matches!(T::MACHINE.arch, Arch::X86_64 | Arch::I686);
    /// Whether it is known how far they reach, and where they jump to.
    const READS_JUMPS: bool = Self::FOLLOWS || matches!(T::MACHINE.arch, Arch::Aarch64);

    /// The call before `pc`, if its code is at hand.
    #[inline(never)]
    pub(crate) fn call_to(&self, pc: u64) -> Option<Call> {
        Self::call_before(self.modules.code_at(pc.wrapping_sub(1))?, pc)
    }

    /// Whether the call that returns to `pc` may have led to the present function. Nothing stands against what is not at hand.
    pub(crate) fn may_have_called(&self, pc: u64, budget: &Budget) -> bool {
        match self.call_to(pc) {
            Some(Call::To(target)) => self.may_lead_here(target, budget),
            Some(Call::Indirect) => true,
            None => self.modules.code_at(pc.wrapping_sub(1)).is_none(),
        }
    }

    /// Whether the present function, which has no rule, may run because `target` was called: it may be the function itself, or go on to
    /// it by a jump.
    pub(crate) fn may_lead_here(&self, target: u64, budget: &Budget) -> bool {
        // The kernel's frame record of an interrupted function leads on from where its handler returns to, where no module may be.
        let is_at_hand = Self::FOLLOWS || self.modules.code_at(self.lookup_pc()).is_some();
        !is_at_hand || self.leads_here(target, MOST_FUNCTIONS, budget)
    }

    /// The same, over `functions` that end by a jump at most: what more of them lead to is not to be told.
    #[inline(never)]
    fn leads_here(&self, target: u64, functions: usize, budget: &Budget) -> bool {
        let goes_on = |range| {
            functions.checked_sub(1).is_none_or(|left| {
                self.has_jump(range, budget, |_, target| {
                    target.is_none_or(|target| self.leads_here(target, left, budget))
                })
            })
        };
        if self.is_covered(target) {
            return self.is_thunk(target)
                || self.runs_on_here(target, budget)
                || self.modules.record_at(target).is_none_or(|(start, end)| goes_on(start..end));
        }
        let Some(extent) = self.extent_of(target, budget) else { return true };
        self.lookup_pc().wrapping_sub(target) < extent.bytes
            || (extent.leaves && goes_on(target..target.wrapping_add(extent.bytes)))
    }

    /// Whether the present function, which has no rule, may be what the call to `target` led to that left `returns_to` in the link register. A function that
    /// has called leaves an address of its own there, or of what it called; of those calls, which led to other functions, some are known.
    #[inline(never)]
    pub(crate) fn may_be_running(&self, target: u64, returns_to: u64, budget: &Budget) -> bool {
        let here = self.lookup_pc();
        let is_covered = self.is_covered(target);
        // What was called ended before the call, and so does not reach here.
        if !is_covered && target < returns_to && returns_to <= here {
            return false;
        }
        if Self::READS_JUMPS {
            return self.may_lead_here(target, budget);
        }
        // Where jumps are not read, functions are taken to go on to others by linkage tables alone.
        if is_covered { self.is_thunk(target) } else { here.wrapping_sub(target) < LONGEST_LEAF }
    }

    /// Whether the present code is a gap behind the record that holds the instruction before `pc`, so that both may be of one function.
    #[inline(never)]
    pub(crate) fn is_behind_record_of(&self, pc: u64, budget: &Budget) -> bool {
        let record = self.modules.record_at(pc.wrapping_sub(1));
        record.is_some_and(|(_, end)| end <= self.lookup_pc() && self.is_one_gap(end, self.lookup_pc(), budget))
    }

    /// Whether nothing says where the call led that returns to `pc`: through a pointer, or a linkage table.
    pub(crate) fn leads_anywhere(&self, pc: u64) -> bool {
        match self.call_to(pc) {
            Some(Call::Indirect) => true,
            Some(Call::To(target)) => self.is_thunk(target),
            None => false,
        }
    }

    /// Whether the function at `target` goes on behind the end of its record to the present code, as its instructions tell. (glibc's `clone3`: of the
    /// system call and what follows, no rule is true of both threads)
    #[inline(never)]
    pub(crate) fn runs_on_here(&self, target: u64, budget: &Budget) -> bool {
        if !Self::FOLLOWS {
            return false;
        }
        let here = self.lookup_pc();
        let Some((start, end)) = self.modules.record_at(target) else { return false };
        start == target
            // Behind its end there is a gap before the next one, which counts as its own, or none follows.
            && (here.wrapping_sub(start) < end.wrapping_sub(start) || self.is_one_gap(end, here, budget))
            && self.extent_of(target, budget).is_some_and(|extent| here.wrapping_sub(target) < extent.bytes)
    }

    /// Whether a direct call to the function around the program counter, as its instructions tell, returns to `pc`.
    pub(crate) fn is_called_here(&self, pc: u64, nearest: u64, budget: &Budget) -> bool {
        if !Self::FOLLOWS {
            return false;
        }
        let Some(Call::To(target)) = self.call_to(pc) else { return false };
        let here = self.lookup_pc();
        let reaches = |extent: Extent| here.wrapping_sub(target) < extent.bytes;
        target >= nearest && !self.is_covered(target) && self.extent_of(target, budget).is_some_and(reaches)
    }

    /// Whether the code from `start` to `end` is near and has no rule anywhere, so that it may be one function.
    #[inline(never)]
    pub(crate) fn is_one_gap(&self, start: u64, end: u64, budget: &Budget) -> bool {
        /// Bytes between the places that are asked: no more than the shortest functions that linkers align.
        const STRIDE: usize = 16;
        end.wrapping_sub(start) < LONGEST_LEAF
            && !self.is_covered(start)
            && budget.spend(LONGEST_LEAF as u32)
            && !(start..=end).step_by(STRIDE).chain([end]).any(|at| self.is_covered(at))
    }

    /// Whether what is at `target` passes the call on to what cannot be told.
    pub(crate) fn is_thunk(&self, target: u64) -> bool {
        let (rule, _) = self.modules.locate_once(target);
        rule.source() == Some(RuleSource::Plt)
    }

    /// How far the function without rules at `target` reaches, where its instructions tell.
    #[inline(never)]
    fn extent_of(&self, target: u64, budget: &Budget) -> Option<Extent> {
        if !Self::READS_JUMPS {
            return None;
        }
        let code = self.modules.code_at(target).map(|code| code.at_address(target));
        let code = code.filter(|_| budget.spend(COST_OF_AN_EXTENT))?;
        (Self::MACHINE.extent)(code.get(..code.len().min(LONGEST_LEAF as usize))?)
    }

    /// Whether code without rules in `range`, which begins with an instruction, may go on to the present function by a jump, or by some over other functions.
    pub(crate) fn goes_on(&self, range: Range<u64>, budget: &Budget) -> bool {
        self.has_jump(range, budget, |_, target| target.is_none_or(|target| self.may_lead_here(target, budget)))
    }

    /// Whether the function with rules around `address` may have gone on to the present one by a jump, its own frame taken down: nothing but the
    /// return address was on the stack then.
    #[inline(never)]
    pub(crate) fn may_have_jumped_here(&self, address: u64, budget: &Budget) -> bool {
        // Others have no rule that tells a jump out of them from one within.
        let Some((start, end)) = self.modules.record_at(address) else { return false };
        self.has_jump(start..end, budget, |at, target| {
            let (rule, _) = self.modules.locate_once(at);
            (rule.kind(), rule.offset()) == (Some(Kind::Sp), 1)
                && target.is_none_or(|target| self.may_lead_here(target, budget))
        })
    }

    /// Whether a jump in `range`, which begins with an instruction, leads out of it and `counts`, of which it is told where it is and where it leads, if that is
    /// known; also if nothing of it is to be told.
    fn has_jump(&self, range: Range<u64>, budget: &Budget, counts: impl Fn(u64, Option<u64>) -> bool) -> bool {
        let length = range.end.wrapping_sub(range.start);
        if !Self::READS_JUMPS || length > LONGEST_SEARCHED || !budget.spend(length as u32) {
            return true;
        }
        let code = self.modules.code_at(range.start).and_then(|code| code.between(range.start, range.end));
        let mut leads_out = |at: usize, jump| {
            let at = range.start.wrapping_add(at as u64);
            match jump {
                Jump::To(distance) => {
                    let target = range.start.wrapping_add_signed(distance);
                    !range.contains(&target) && counts(at, Some(target))
                }
                Jump::Anywhere => counts(at, None),
            }
        };
        code.is_none_or(|code| (Self::MACHINE.has_jump)(code, &mut leads_out))
    }

    /// Whether the call that returns to `returns_to` led to the function around `here`, as its instructions tell, and that begins by making a frame
    /// record: then the record that has this return address is its own.
    #[inline(never)]
    pub(crate) fn made_record(&self, returns_to: u64, here: u64, budget: &Budget) -> bool {
        if !Self::FOLLOWS {
            return false;
        }
        let Some(Call::To(target)) = self.call_to(returns_to) else { return false };
        let code = self.modules.code_at(target).map(|code| code.at_address(target));
        code.is_some_and(|code| matches!((Self::MACHINE.ahead)(code), Ahead::Entry))
            && self.extent_of(target, budget).is_some_and(|extent| here.wrapping_sub(target) < extent.bytes)
    }

    /// Where the record at `fp`, which the function without rules around `here` has made, keeps the return address, and that.
    #[inline(never)]
    pub(crate) fn own_record(&self, fp: u64, sp: u64, here: u64, budget: &Budget) -> Option<(u64, u64)> {
        if !Self::FOLLOWS {
            return None;
        }
        let is_record = Self::MACHINE.frame_records == FrameRecords::BelowCfa && fp >= sp;
        if !is_record || !fp.is_multiple_of(Self::WORD as u64) {
            return None;
        }
        let slot = Self::slot(fp, 1);
        let caller = self.memory.same_stack(Avma(sp), Avma(slot)).then(|| self.read(slot))??;
        self.made_record(caller, here, budget).then_some((slot, caller))
    }

    /// Whether the call that returns to `pc` leads to the present function, and that has left the frame pointer alone so far.
    #[inline(never)]
    pub(crate) fn leaves_frame_pointer(&self, pc: u64, budget: &Budget) -> bool {
        if !Self::FOLLOWS {
            return false;
        }
        let (Some(Call::To(target)), here) = (self.call_to(pc), self.lookup_pc()) else { return false };
        // What is about to run has not run; a call that did has left the register alone.
        let end = if self.state.exact { here } else { self.state.pc };
        let code = self.modules.code_at(target).and_then(|code| code.between(target, end));
        self.is_one_gap(target, here, budget) && code.is_some_and(Self::MACHINE.keeps_frame_pointer)
    }
}
