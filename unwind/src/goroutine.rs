//! From the system stack of a thread to the goroutine that it works for.
//!
//! Go runs parts of its runtime, and C code, on the stack of the thread and not on that of the goroutine that asked for it: `runtime.systemstack`,
//! `runtime.mcall`, `runtime.asmcgocall` and `runtime.morestack` change the stack pointer from one to the other, and keep where the goroutine
//! stopped in its `sched` (Go, `runtime/runtime2.go`, type `gobuf`; `runtime/traceback.go` follows the same way). No call leads from one
//! stack to the other, so that the edge is one of its own kind.

use core::ops::Range;

use alloc::vec::Vec;
use symseal_module::{Avma, Rva, UnwindMethod};

use crate::arch::{Arch, Target};
use crate::memory::Memory;
use crate::step::{Budget, Caller, Next, Stepper};

/// What the engine has to know of a runtime of Go. Its structures change from version to version; where the fields are, the debug information
/// of the program says: `compile::go_runtime` reads it, and the module's table keeps it. Addresses are actual ones for the engine, stated
/// ones ([`Svma`](symseal_module::Svma)) for the compiler, and relative ones ([`Rva`]) in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoRuntime<A = Avma> {
    /// The functions that leave the goroutine's stack: `systemstack`, `mcall`, `morestack`.
    pub switches: Vec<Range<A>>,
    /// `asmcgocall`, which does so too, but for callers that have left it already; for the others it keeps the goroutine near the
    /// stack pointer while C code runs, so that it finds its way back.
    pub c_calls: Vec<Range<A>>,
    /// Bytes from the beginning of a `g` to each of its fields.
    pub g: GoroutineFields,
    /// Bytes from the beginning of an `m` to `m.curg`, the goroutine that the thread works for.
    pub curg: u32,
}

impl<A: Copy> GoRuntime<A> {
    /// The same with other addresses; without the functions that have none.
    pub fn with_addresses<B>(&self, address: impl Fn(A) -> Option<B>) -> GoRuntime<B> {
        let of = |functions: &[Range<A>]| {
            let moved = functions.iter().map(|function| Some(address(function.start)?..address(function.end)?));
            moved.flatten().collect()
        };
        GoRuntime { switches: of(&self.switches), c_calls: of(&self.c_calls), g: self.g, curg: self.curg }
    }
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

/// More functions that change stacks than any runtime has.
const MOST_FUNCTIONS: usize = 64;
/// Words of four bytes before the functions: the fields, and how many of the functions are switches.
const HEAD_WORDS: usize = 8;

/// The section of a table that keeps a runtime: the head, then for each function its offset from the start of the code and its bytes.
impl GoRuntime<Rva> {
    /// Reads a section of a table whose code begins at `text_start` and has `text_size` bytes; `None` if it is not well-formed.
    pub(crate) fn read(section: &[u8], text_start: u64, text_size: u64) -> Option<Self> {
        let (words, []) = section.as_chunks::<4>() else { return None };
        let (head, functions) = words.split_first_chunk::<HEAD_WORDS>()?;
        let [stack_lo, stack_hi, m, sched_sp, sched_pc, sched_bp, curg, switches] = head.map(u32::from_le_bytes);
        let (functions, []) = functions.as_chunks::<2>() else { return None };
        let function = |[start, size]: &[[u8; 4]; 2]| {
            let (start, size) = (u64::from(u32::from_le_bytes(*start)), u64::from(u32::from_le_bytes(*size)));
            let end = start.checked_add(size).filter(|end| size > 0 && *end <= text_size)?;
            Some(Rva(text_start.checked_add(start)?)..Rva(text_start.checked_add(end)?))
        };
        let of = |functions: &[[[u8; 4]; 2]]| functions.iter().map(function).collect::<Option<Vec<_>>>();
        let (switches, c_calls) = functions.split_at_checked(usize::try_from(switches).ok()?)?;
        let g = GoroutineFields { stack_lo, stack_hi, m, sched_sp, sched_pc, sched_bp };
        let is_sane = (1..=MOST_FUNCTIONS).contains(&functions.len());
        is_sane.then_some(Self { switches: of(switches)?, c_calls: of(c_calls)?, g, curg })
    }

    /// The bytes of the section; `None` where there is no function in the code, or where they do not fit.
    #[cfg(feature = "compile-elf")]
    pub(crate) fn write(&self, text_start: u64, text_size: u64) -> Option<Vec<u8>> {
        let of = |functions: &[Range<Rva>]| {
            let offset = |rva: Rva| u32::try_from(rva.0.checked_sub(text_start).filter(|at| *at <= text_size)?).ok();
            let words = functions.iter().filter_map(|function| {
                let (start, end) = (offset(function.start)?, offset(function.end)?);
                Some([start, end.checked_sub(start).filter(|size| *size > 0)?])
            });
            words.collect::<Vec<_>>()
        };
        let (switches, c_calls) = (of(&self.switches), of(&self.c_calls));
        let count = switches.len().checked_add(c_calls.len()).filter(|count| (1..=MOST_FUNCTIONS).contains(count));
        count?;
        let GoroutineFields { stack_lo, stack_hi, m, sched_sp, sched_pc, sched_bp } = self.g;
        let head = [stack_lo, stack_hi, m, sched_sp, sched_pc, sched_bp, self.curg, switches.len() as u32];
        let functions = switches.iter().chain(&c_calls).flatten().copied();
        Some(head.into_iter().chain(functions).flat_map(u32::to_le_bytes).collect())
    }
}

impl<T: Target, M: Memory> Stepper<'_, '_, T, M> {
    /// Where the goroutine stopped for which the current function runs on the stack of the thread; `None` if it is no such function, or
    /// its own stack is that of the goroutine, or not everything is known that leads there.
    pub(crate) fn goroutine(&self, budget: &mut Budget) -> Option<Next> {
        // Known when this is compiled: for the processors without one nothing is.
        let register = g_register(T::MACHINE.arch)?;
        let here = Avma(self.lookup_pc());
        let holds = |functions: &[Range<Avma>]| functions.iter().any(|function| function.contains(&here));
        let is_of = |go: &&GoRuntime| holds(&go.c_calls) || holds(&go.switches);
        let go = self.modules.go_runtimes().iter().find(is_of)?;
        let calls_c = holds(&go.c_calls);
        let field =
            |base: u64, offset: u32| self.read(base.checked_add(u64::from(offset))?).filter(|value| *value != 0);
        // Either the goroutine or the one that stands for the thread itself; both know the thread.
        let g = self.register(register, budget)?;
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

#[cfg(all(test, feature = "compile-elf"))]
mod tests {
    use super::*;
    use alloc::vec;

    const START: u64 = 0x1000;
    const SIZE: u64 = 0x400;

    fn runtime() -> GoRuntime<Rva> {
        let g = GoroutineFields { stack_lo: 0, stack_hi: 8, m: 0x30, sched_sp: 0x38, sched_pc: 0x40, sched_bp: 0x60 };
        let switches = [Rva(0x1000)..Rva(0x1010), Rva(0x1100)..Rva(0x1180)].into();
        GoRuntime { switches, c_calls: [Rva(0x1380)..Rva(0x1400)].into(), g, curg: 0xb8 }
    }

    #[test]
    fn what_is_written_is_read() {
        let section = runtime().write(START, SIZE).expect("a section");
        assert_eq!(section.len(), 4 * (HEAD_WORDS + 2 * 3));
        assert_eq!(GoRuntime::read(&section, START, SIZE), Some(runtime()));
    }

    #[test]
    fn functions_outside_the_code_are_not_written_and_a_section_without_any_is_none() {
        let mut some = runtime();
        some.switches.push(Rva(0xff0)..Rva(0x1010));
        some.c_calls.extend([Rva(0x13f0)..Rva(0x1401), Rva(0x1200)..Rva(0x1200)]);
        assert_eq!(some.write(START, SIZE), runtime().write(START, SIZE));
        assert_eq!(runtime().with_addresses(|_| None::<Rva>).write(START, SIZE), None);
        assert_eq!(runtime().write(0x4000, SIZE), None);
    }

    #[test]
    fn a_section_that_is_not_well_formed_is_none() {
        let section = runtime().write(START, SIZE).expect("a section");
        for length in (0..section.len()).filter(|length| *length != 4 * (HEAD_WORDS + 4)) {
            let cut = section.get(..length).expect("a part");
            // Cut between functions it is one with fewer calls of C, as long as the switches are there.
            assert_eq!(GoRuntime::read(cut, START, SIZE), None, "{length}");
        }
        // More switches than functions, an end behind the code, a function without bytes, more functions than any has.
        for (word, value) in [(7, 4), (8, SIZE as u32), (9, SIZE as u32 + 1), (9, 0), (12, u32::MAX)] {
            let mut damaged = section.clone();
            damaged.splice(4 * word..4 * word + 4, u32::to_le_bytes(value));
            assert_eq!(GoRuntime::read(&damaged, START, SIZE), None, "{word} {value}");
        }
        let many = vec![Rva(START)..Rva(START + 1); MOST_FUNCTIONS + 1];
        let many = GoRuntime { switches: many, ..runtime() };
        assert_eq!(many.write(START, SIZE), None);
    }
}
