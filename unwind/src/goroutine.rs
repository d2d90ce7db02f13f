//! From the system stack of a thread to the goroutine that it works for.
//!
//! Go runs parts of its runtime, and C code, on the stack of the thread and not on that of the goroutine that asked for it: `runtime.systemstack`,
//! `runtime.mcall`, `runtime.asmcgocall` and `runtime.morestack` change the stack pointer from one to the other, and keep where the goroutine
//! stopped in its `sched` (Go, `runtime/runtime2.go`, type `gobuf`; `runtime/traceback.go` follows the same way). No call leads from one
//! stack to the other, so that the edge is one of its own kind.

use core::ops::Range;

use alloc::vec::Vec;
use symseal_module::{Avma, UnwindMethod};

use crate::arch::{Arch, Target};
use crate::memory::Memory;
use crate::step::{Budget, Caller, Next, Stepper};

/// What the engine has to know of a runtime of Go. Its structures change from version to version; where the fields are, the debug information
/// of the program says: `compile::go_runtime` reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoRuntime {
    /// Actual addresses of the functions that leave the goroutine's stack: `systemstack`, `mcall`, `morestack`.
    pub switches: Vec<Range<Avma>>,
    /// Those of `asmcgocall`, which does so too, but for callers that have left it already; for the others it keeps the goroutine near the
    /// stack pointer while C code runs, so that it finds its way back.
    pub c_calls: Vec<Range<Avma>>,
    /// Bytes from the beginning of a `g` to each of its fields.
    pub g: GoroutineFields,
    /// Bytes from the beginning of an `m` to `m.curg`, the goroutine that the thread works for.
    pub curg: u32,
}

/// Where the fields of a `g` are, in bytes from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoroutineFields {
    /// `g.stack.lo`: the lowest address of its stack.
    pub stack_lo: u32,
    /// `g.stack.hi`: the address after the highest.
    pub stack_hi: u32,
    /// `g.m`: the thread that runs it.
    pub m: u32,
    /// `g.sched.sp`: the stack pointer where it stopped.
    pub sched_sp: u32,
    /// `g.sched.pc`: the instruction that it goes on with.
    pub sched_pc: u32,
    /// `g.sched.bp`: its frame pointer.
    pub sched_bp: u32,
}

impl<T: Target, M: Memory> Stepper<'_, '_, T, M> {
    /// Where the goroutine stopped for which the current function runs on the stack of the thread; `None` if it is no such function, or
    /// its own stack is that of the goroutine, or not everything is known that leads there.
    pub(crate) fn goroutine(&self, budget: &mut Budget) -> Option<Next> {
        let go = self.modules.go_runtime()?;
        let here = Avma(self.lookup_pc());
        let holds = |functions: &[Range<Avma>]| functions.iter().any(|function| function.contains(&here));
        let calls_c = holds(&go.c_calls);
        if !calls_c && !holds(&go.switches) {
            return None;
        }
        let field =
            |base: u64, offset: u32| self.read(base.checked_add(u64::from(offset))?).filter(|value| *value != 0);
        // Either the goroutine or the one that stands for the thread itself; both know the thread.
        let g = self.register(g_register(T::MACHINE.arch)?, budget)?;
        let goroutine = field(field(g, go.g.m)?, go.curg)?;
        let stack = field(goroutine, go.g.stack_lo)?..field(goroutine, go.g.stack_hi)?;
        let (pc, sp) = (field(goroutine, go.g.sched_pc)?, field(goroutine, go.g.sched_sp)?);
        let is_switched = !stack.contains(&self.state.sp) && stack.contains(&sp);
        if calls_c && !self.keeps_near(goroutine, stack.end.wrapping_sub(sp)) {
            return None;
        }
        if !is_switched || !self.modules.holds(pc) {
            return None;
        }
        // The stack pointer may go anywhere; so that the walk ends, not too often.
        budget.signals = budget.signals.checked_sub(1)?;
        let fp = self.read(goroutine.checked_add(u64::from(go.g.sched_bp))?);
        // It is the instruction to go on with, and not behind a call.
        let caller = Caller { pc, sp, sp_known: true, fp, exact: true, method: UnwindMethod::GoroutineSwitch };
        Some(Ok(caller))
    }

    /// Whether the words of the stack that are there for it have the goroutine, and that it was left so many bytes below the end of its
    /// stack. If it was not left here, they may be the caller's, in some version, and have anything.
    fn keeps_near(&self, goroutine: u64, depth: u64) -> bool {
        let has = |at: i16, value: u64| self.read(Self::slot(self.state.sp, at)) == Some(value);
        let mut kept = kept_words(T::MACHINE.arch).iter();
        self.state.sp_known && kept.any(|(at, depth_at)| has(*at, goroutine) && has(*depth_at, depth))
    }
}

/// In which words from the stack pointer on `asmcgocall` keeps the goroutine while C code runs, and how deep in its stack that stopped. (Go,
/// `runtime/asm_amd64.s`, `runtime/asm_arm64.s`)
fn kept_words(arch: Arch) -> &'static [(i16, i16)] {
    match arch {
        // As in Go 1.26; as in 1.15 to 1.21.
        Arch::X86_64 => &[(1, 0), (6, 5)],
        Arch::Aarch64 => &[(0, 1)],
        _ => &[],
    }
}

/// The register that holds the current goroutine. (Go, "internal ABI specification", amd64 and arm64)
pub(crate) fn g_register(arch: Arch) -> Option<u8> {
    match arch {
        Arch::X86_64 => Some(14),
        Arch::Aarch64 => Some(28),
        _ => None,
    }
}
