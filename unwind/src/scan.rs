//! The last step of the chain: a word on the stack that calls account for.
//!
//! Where no rule covers the code, no frame pointer leads on and the return address is not where the call put it, it lies somewhere above the
//! stack pointer. So do others that are left over from calls which have returned. A word is taken only if it is the only one in reach that
//! can be meant, and if what stands around it says so:
//!
//! * it is the address behind a call instruction of a known module, whose code is at hand;
//! * that call, if it is a direct one, does not lead to another function: one that has rules, or ends before the present one begins, and
//!   in either case does not go on by a jump;
//! * it leads to the code around the program counter, or the rules of the caller lead on from there: each return address that they
//!   find is behind a call to the very function that it is the return address of, up to the end of the stack or for a few frames.
//!
//! Any other word that might be meant stands against it, and then the walk ends as ambiguous. What is found so is a guess and says so. No two
//! guesses follow each other.

use symseal_module::{Avma, StopReason, UnwindMethod};

use crate::arch::{Call, Target};
use crate::memory::Memory;
use crate::rule::{Kind, ReturnAddress, Rule, Saved};
use crate::step::{Budget, Caller, Next, Stepper};

/// Words above the stack pointer of an interrupted function that are looked at, and of one that called, whose frame is smaller by the
/// room for what it has passed on. (rust-minidump looks at 160 and 40 too)
const WORDS_OF_INTERRUPTED: u64 = 160;
const WORDS_OF_CALLER: u64 = 40;
/// The most words that are looked at for what stands against a word, or against a frame record.
const MOST_WORDS: u64 = 2048;
/// Frames above a word that have to lead on for it to be believed without a direct call, and the most that are followed.
const FRAMES_TO_LEAD_ON: usize = 4;
const MOST_FRAMES: usize = 24;

/// What looking at a caller costs, in units of a byte of code that is searched: see [`Budget::effort`].
const COST_OF_A_FRAME: u32 = 64;
/// The same of looking at the words of a stack twice.
const COST_OF_WORDS: u32 = 2 * MOST_WORDS as u32;

/// What stands for a word being the return address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Evidence {
    /// It cannot be.
    None,
    /// Nothing stands against it.
    Possible,
    /// It leads on.
    Shown,
}

/// What the rules of a caller find.
#[derive(Clone, Copy)]
struct Lead {
    evidence: Evidence,
    /// Where the return addresses of the callers lie.
    slots: [u64; MOST_FRAMES],
    frames: usize,
    /// They lead to the end of the stack.
    is_whole: bool,
    /// The frame pointer as it is now is that of the caller too: a frame was found through it.
    keeps_frame_pointer: bool,
}

impl Lead {
    const NOTHING: Self = Self {
        evidence: Evidence::None,
        slots: [0; MOST_FRAMES],
        frames: 0,
        is_whole: false,
        keeps_frame_pointer: false,
    };

    fn with(self, evidence: Evidence) -> Self {
        Self { evidence, ..self }
    }

    /// One more caller, whose return address lies at `slot`.
    fn note(&mut self, slot: u64) {
        if let Some(known) = self.slots.get_mut(self.frames) {
            *known = slot;
        }
        self.frames += 1;
    }

    fn last(&self) -> u64 {
        self.frames.checked_sub(1).and_then(|last| self.slots.get(last)).copied().unwrap_or(0)
    }

    /// Which of the callers has its return address at `slot`.
    fn caller_at(&self, slot: u64) -> Option<usize> {
        self.slots.iter().take(self.frames).position(|known| *known == slot)
    }
}

impl<T: Target, M: Memory> Stepper<'_, '_, T, M> {
    /// The caller by the only word that accounts for one; `None` if there is none.
    pub(crate) fn scan(&self, budget: &Budget) -> Option<(Option<u64>, Next)> {
        let state = self.state;
        if !state.sp_known || state.method == UnwindMethod::Scan {
            return None;
        }
        // What returns to where nothing is known to be may have been no return address.
        if !state.exact && !self.modules.holds(self.lookup_pc()) {
            return None;
        }
        if !budget.spend(COST_OF_WORDS) {
            return Some((None, Err(StopReason::Ambiguous)));
        }
        let words = if state.exact { WORDS_OF_INTERRUPTED } else { WORDS_OF_CALLER };
        let last = state.sp.saturating_add((words - 1) * Self::WORD as u64);
        let nearest = self.nearest_start(budget);
        let mut found: Option<(u64, u64, Lead)> = None;
        for (slot, pc) in self.words_up_to(MOST_WORDS) {
            let Some((_, returns_to, first)) = &found else {
                if slot > last {
                    break;
                }
                let lead = self.lead(slot, pc, nearest, budget);
                found = (lead.evidence != Evidence::None).then_some((slot, pc, lead));
                continue;
            };
            // What lies beyond the end of the stack that the first one leads to is of no call.
            let stands_against = match first.caller_at(slot) {
                _ if first.is_whole && slot > first.last() => self.calls_here(pc, nearest, budget),
                None => self.lead(slot, pc, nearest, budget).evidence != Evidence::None,
                // Its own, or that of the present function, which it went on to by a jump: then all below is left over.
                Some(caller) => {
                    let callee = caller.checked_sub(1).and_then(|callee| self.read(*first.slots.get(callee)?));
                    self.may_have_jumped_here(self.unsigned(callee.unwrap_or(*returns_to)).wrapping_sub(1), budget)
                }
            };
            if stands_against {
                return Some((None, Err(StopReason::Ambiguous)));
            }
        }
        // What was not looked at may stand against it.
        if budget.is_spent() {
            return Some((None, Err(StopReason::Ambiguous)));
        }
        let (slot, pc, lead) = found.filter(|(.., lead)| lead.evidence == Evidence::Shown)?;
        // Only where calls push it does its place tell the caller's stack pointer.
        let sp_known = Self::MACHINE.link.is_none();
        let sp = slot.checked_add(Self::WORD as u64)?;
        let fp = self.kept_fp().filter(|_| lead.keeps_frame_pointer || self.leaves_frame_pointer(pc, budget));
        let caller = Caller { pc, sp, sp_known, fp, exact: false, method: UnwindMethod::Scan };
        Some((sp_known.then_some(sp), Ok(caller)))
    }

    /// Whether a word below `record` is behind a direct call to the present function: then a frame pointer to it is that of a function further out.
    #[inline(never)]
    pub(crate) fn has_call_below(&self, record: u64, budget: &Budget) -> bool {
        if !Self::FOLLOWS {
            return false;
        }
        let is_near = record.wrapping_sub(self.state.sp) <= MOST_WORDS * Self::WORD as u64;
        if !is_near || !budget.spend(COST_OF_WORDS) {
            return false;
        }
        let nearest = self.nearest_start(budget);
        let mut words = self.words_up_to(MOST_WORDS).take_while(|(slot, _)| *slot < record);
        words.any(|(_, pc)| self.is_called_here(pc, nearest, budget))
    }

    /// Whether a word above the stack pointer, as far as that of an interrupted function may lie, is behind a direct call to the present function, which has moved
    /// the stack pointer since: then the word on top of the stack may be left over.
    #[inline(never)]
    pub(crate) fn is_called_further_out(&self, budget: &Budget) -> bool {
        if !Self::FOLLOWS || !budget.spend(2 * WORDS_OF_INTERRUPTED as u32) {
            return false;
        }
        let nearest = self.nearest_start(budget);
        let moved = || {
            let code = self.modules.code_at(nearest).and_then(|code| code.between(nearest, self.state.pc));
            !code.is_some_and(Self::MACHINE.keeps_stack)
        };
        let mut words = self.words_up_to(WORDS_OF_INTERRUPTED).skip(1);
        nearest != 0 && moved() && words.any(|(_, pc)| self.is_called_here(pc, nearest, budget))
    }

    /// Whether a direct call returns to `pc`, and no other word is behind one to a function that begins nearer to the program counter.
    pub(crate) fn is_nearest_call(&self, pc: u64, budget: &Budget) -> bool {
        matches!(self.call_to(pc), Some(Call::To(target)) if target >= self.nearest_start(budget))
    }

    /// Whether a word below `record` may be the return address: then a frame pointer to it may be that of a function further out.
    #[inline(never)]
    pub(crate) fn has_candidate_below(&self, record: u64, budget: &Budget) -> bool {
        let is_near = record.wrapping_sub(self.state.sp) <= MOST_WORDS * Self::WORD as u64;
        if !is_near || !budget.spend(COST_OF_WORDS) {
            return true;
        }
        let nearest = self.nearest_start(budget);
        let mut words = self.words_up_to(MOST_WORDS).take_while(|(slot, _)| *slot < record);
        words.any(|(slot, pc)| self.lead(slot, pc, nearest, budget).evidence != Evidence::None)
    }

    /// The addresses in up to `words` words from the stack pointer on, with their places.
    fn words_up_to(&self, words: u64) -> impl Iterator<Item = (u64, u64)> {
        let slots = (0..words).map_while(|at| self.state.sp.checked_add(at * Self::WORD as u64));
        let slots = slots.take_while(|slot| self.memory.same_stack(Avma(self.state.sp), Avma(*slot)));
        slots.map_while(|slot| Some((slot, self.unsigned(self.read(slot)?))))
    }

    /// What stands for `pc`, which lies at `slot`, being the return address of the present function.
    #[inline(never)]
    fn lead(&self, slot: u64, pc: u64, nearest: u64, budget: &Budget) -> Lead {
        let lookup = pc.wrapping_sub(1);
        match self.call_to(pc) {
            None if self.modules.holds(lookup) && self.modules.code_at(lookup).is_none() => {
                Lead::NOTHING.with(Evidence::Possible)
            }
            None => Lead::NOTHING,
            Some(Call::To(target)) if !self.may_lead_here(target, budget) => Lead::NOTHING,
            Some(call) => {
                let lead = self.leads_on(slot, pc, budget);
                let Call::To(target) = call else { return lead };
                let here = self.lookup_pc();
                match lead.evidence {
                    _ if !self.is_one_gap(target, here, budget) => lead,
                    // To a function that ends before the present one begins, and does not go on to another.
                    _ if target < nearest && !self.goes_on(target..nearest, budget) => Lead::NOTHING,
                    _ if target < nearest => lead.with(Evidence::Possible),
                    // The call leads here; unless the caller's rules contradict, that is enough.
                    Evidence::None => lead.with(Evidence::Possible),
                    _ => lead.with(Evidence::Shown),
                }
            }
        }
    }

    /// Where the function begins nearest below the program counter, as far as direct calls tell that return to addresses on the stack; 0 for
    /// none.
    #[inline(never)]
    pub(crate) fn nearest_start(&self, budget: &Budget) -> u64 {
        let here = self.lookup_pc();
        let targets = self.words_up_to(MOST_WORDS).filter_map(|(_, pc)| match self.call_to(pc) {
            Some(Call::To(target)) => Some(target),
            _ => None,
        });
        targets.filter(|target| self.is_one_gap(*target, here, budget)).max().unwrap_or(0)
    }

    /// Whether a direct call to the present function returns to `pc`.
    fn calls_here(&self, pc: u64, nearest: u64, budget: &Budget) -> bool {
        let Some(Call::To(target)) = self.call_to(pc) else { return false };
        target >= nearest && self.is_one_gap(target, self.lookup_pc(), budget)
    }

    /// Whether the rules of the caller at `pc` lead on, if the stack pointer was right above `slot` before its call.
    #[inline(never)]
    fn leads_on(&self, slot: u64, pc: u64, budget: &Budget) -> Lead {
        let mut lead = Lead::NOTHING;
        // Where calls do not push the return address, its place tells nothing of the caller's frame.
        if Self::MACHINE.link.is_some() {
            return lead.with(Evidence::Possible);
        }
        let live = self.live_fp().filter(|fp| *fp > slot);
        let (mut pc, mut sp, mut fp, mut is_live) = (pc, slot.wrapping_add(Self::WORD as u64), live, true);
        while lead.frames < MOST_FRAMES {
            if !budget.spend(COST_OF_A_FRAME) {
                return lead.with(Evidence::Possible);
            }
            let lookup = pc.wrapping_sub(1);
            let (rule, _) = self.modules.locate_once(lookup);
            let shown = if lead.frames >= FRAMES_TO_LEAD_ON { Evidence::Shown } else { Evidence::Possible };
            let base = match rule.kind() {
                // The end alone, without a frame that led there, shows nothing.
                Some(Kind::End) if lead.frames > 0 => return Lead { is_whole: true, ..lead.with(Evidence::Shown) },
                Some(Kind::Sp) => Some(sp),
                Some(Kind::Fp) => fp,
                _ => None,
            };
            let (Some(base), Some(ReturnAddress::AtCfa(at))) = (base, rule.return_address()) else {
                let record = fp.filter(|_| rule == Rule::GAP || rule == Rule::NO_TABLE);
                // What cannot be followed from here on says neither yes nor no.
                let Some((slot, caller)) = record.and_then(|fp| self.own_record(fp, sp, lookup, budget)) else {
                    return lead.with(shown);
                };
                lead.keeps_frame_pointer |= is_live;
                lead.note(slot);
                (fp, is_live) = (fp.and_then(|fp| self.read(fp)), false);
                (pc, sp) = (caller, slot.wrapping_add(Self::WORD as u64));
                continue;
            };
            // Nor does what is counted from a frame pointer that may be another's.
            let is_guess = is_live && rule.kind() == Some(Kind::Fp);
            let contradicted = if is_guess { shown } else { Evidence::None };
            let cfa = Self::MACHINE.add(base, rule.offset() * Self::WORD);
            if cfa <= sp || !cfa.is_multiple_of(Self::WORD as u64) {
                return lead.with(contradicted);
            }
            let origin = Self::origin(rule, cfa);
            let slot = Self::slot(origin, at);
            let caller = match self.read(slot).map(|caller| self.unsigned(caller)) {
                None | Some(0) => return lead.with(shown),
                Some(caller) => caller,
            };
            let is_called = match self.call_to(caller) {
                Some(Call::To(target)) => {
                    self.is_thunk(target) || self.modules.record_at(lookup).is_none_or(|(start, _)| start == target)
                }
                Some(Call::Indirect) => true,
                None => false,
            };
            if !is_called {
                return lead.with(contradicted);
            }
            lead.keeps_frame_pointer |= is_guess;
            lead.note(slot);
            (fp, is_live) = match rule.frame_pointer() {
                Saved::Same => (fp, is_live),
                Saved::At(words) if !rule.slots_on_fp() => (self.read(Self::slot(origin, words)), false),
                _ => (None, false),
            };
            (pc, sp) = (caller, cfa);
        }
        lead.with(Evidence::Shown)
    }
}
