//! The engine (skeleton).
use symseal_module::StopReason;
use crate::{Cache, Frame, Memory, Modules, Registers, Walk};

/// Walks a stack.
pub fn unwind(modules: &Modules<'_>, registers: &Registers, memory: &impl Memory, cache: &mut Cache, out: &mut [Frame]) -> Walk {
    let _ = (modules, registers, memory, cache, out);
    Walk { frames: 0, stop: StopReason::NoRule }
}
