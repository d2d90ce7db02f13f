//! The engine: from frame to caller until there is none.
//!
//! [`unwind`] handles the usual rule (CFA from sp or fp, return address right below it) itself; everything else
//! goes through [`step`](crate::step).

use symseal_module::{Avma, StopReason};

use crate::cache::{Cache, NO_MODULE};
use crate::frame::{Frame, Registers, Walk};
use crate::memory::Memory;
use crate::modules::Modules;
use crate::rule::{Saved, WORD};
use crate::step::{self, Caller, State, Stepper};

/// Walks the stack of one thread from `registers` outwards and writes its frames, the innermost first, to the front of `out`.
///
/// Nothing is allocated or locked, and `memory` is read at most a few times a frame. The walk ends when the stack
/// does, when the next step is not known for certain, or when `out` is full; the reason says which. Whatever the
/// tables, registers and memory hold, it ends: the stack pointer only rises, but for a bounded number of signal frames.
///
/// ```
/// use symseal_module::{Avma, StopReason};
/// use symseal_unwind::{Cache, Frame, Modules, Registers, StackBytes, unwind};
///
/// let modules = Modules::new(Vec::new());
/// let registers = Registers { pc: 0x401000, sp: 0x7ff0, ..Registers::default() };
/// let stack = StackBytes { start: Avma(0x7ff0), bytes: &[0; 16] };
/// let mut frames = [Frame::EMPTY; 64];
/// let walk = unwind(&modules, &registers, &stack, &mut Cache::new(), &mut frames);
/// assert_eq!((walk.frames, walk.stop), (1, StopReason::NoModule));
/// ```
pub fn unwind(
    modules: &Modules<'_>,
    registers: &Registers,
    memory: &impl Memory,
    cache: &mut Cache,
    out: &mut [Frame],
) -> Walk {
    let mut state = State::of(registers);
    let mut budget = step::Budget::new();
    let mut hint = 0;
    let mut depth = 0usize;
    let generation = modules.generation();
    loop {
        let lookup = state.pc.wrapping_sub(u64::from(!state.exact));
        let located = cache.get_or(lookup, generation, || modules.locate(lookup, &mut hint));
        let Some(frame) = out.get_mut(depth) else {
            cache.note_lookups(depth + 1);
            return Walk { frames: depth, stop: StopReason::MaxFrames };
        };
        *frame = Frame {
            pc: Avma(state.pc),
            exact: state.exact,
            cfa: Avma(0),
            fp: if state.fp_known { state.fp } else { 0 },
            method: state.method,
            module: (located.module != NO_MODULE).then_some(located.module),
        };
        depth += 1;

        let rule = located.rule;
        if rule.is_plain() && !state.exact && state.fp_known {
            let base = if rule.is_fp_based() { state.fp } else { state.sp };
            let cfa = base.wrapping_add_signed(i64::from(located.cfa_offset));
            if cfa > state.sp && cfa.is_multiple_of(WORD as u64) {
                let saved = rule.frame_pointer();
                // One address either way, so that the processor need not guess whether there is a slot.
                let slot = match saved {
                    Saved::At(words) => cfa.wrapping_add_signed(i64::from(words) * WORD),
                    Saved::Same | Saved::Unknown => cfa.wrapping_sub(WORD as u64),
                };
                let words = (memory.read_u64(Avma(cfa.wrapping_sub(WORD as u64))), memory.read_u64(Avma(slot)));
                if let (Some(pc), Some(fp)) = words
                    && pc != 0
                {
                    frame.cfa = Avma(cfa);
                    state.pc = pc;
                    state.sp = cfa;
                    state.fp = if matches!(saved, Saved::At(_)) { fp } else { state.fp };
                    state.fp_known = saved != Saved::Unknown;
                    state.method = step::method_of(rule);
                    continue;
                }
            }
        }

        let frames = out.get(..depth).unwrap_or_default();
        let stepper = Stepper { modules, registers, memory, frames, state: &state };
        let (cfa, next) = stepper.step(rule, &mut budget);
        if let (Some(cfa), Some(frame)) = (cfa, out.get_mut(depth - 1)) {
            frame.cfa = Avma(cfa);
        }
        match next {
            Ok(Caller { pc, sp, fp, exact, method }) => {
                state = State { pc, sp, fp: fp.unwrap_or(0), fp_known: fp.is_some(), exact, method };
            }
            Err(stop) => {
                cache.note_lookups(depth);
                return Walk { frames: depth, stop };
            }
        }
    }
}
