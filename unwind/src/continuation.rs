//! The frames that wait for an asynchronous function of the stack, and are on no stack themselves.
//!
//! A function of Swift's asynchronous calling convention (`swiftasynccall` in C) that keeps a frame record marks it as an extended one: bit 60 of the
//! frame pointer that it saves is set, and its asynchronous context is in the word below the record. A context begins with the context of who waits
//! for it and with the function that goes on then. (LLVM, `X86FrameLowering` and `AArch64FrameLowering`, "extended frame record"; Swift,
//! `AsyncContext` in `ABI/Task.h`)

use symseal_module::{Avma, Rva, UnwindMethod};

use crate::arch::{Arch, Machine, Target};
use crate::cache::NO_MODULE;
use crate::frame::Frame;
use crate::memory::Memory;
use crate::modules::Modules;
use crate::rule::Rule;
use crate::step::Stepper;

/// More contexts than one task has: what a walk reads of a chain that was made to cost time.
const MOST_PARENTS: usize = 4096;
/// What marks a saved frame pointer.
const MARK: u64 = 1 << 60;
/// Bytes of a word of those processors.
const WORD: u64 = 8;

/// Whether frame pointers are marked on this processor.
pub(crate) const fn marks_frame_pointers(machine: &Machine) -> bool {
    matches!(machine.arch, Arch::X86_64 | Arch::Aarch64)
}

/// Whether `fp` is a marked frame pointer of a process: any other that has the bit, such as one of the kernel, has its neighbours too.
#[inline(always)]
pub(crate) const fn is_marked(fp: u64) -> bool {
    fp >> 48 == MARK >> 48
}

/// The frame pointer that `value` stands for: itself, or what it was before an asynchronous function of Swift marked it.
pub const fn frame_pointer_of(value: u64) -> u64 {
    if is_marked(value) { value & !MARK } else { value }
}

impl<T: Target, M: Memory> Stepper<'_, '_, T, M> {
    /// Where the current frame has its context, if `saved`, the caller's frame pointer with its mark, lies in its own record. (A function that has only
    /// begun has marked the register and has no record yet.)
    pub(crate) fn context_slot(&self, saved: u64, cfa: Option<u64>) -> Option<u64> {
        let record = self.live_fp()?;
        let is_within = record > self.state.sp && cfa.is_none_or(|cfa| record < cfa);
        let slot = record.checked_sub(WORD)?;
        (is_within && self.read(record) == Some(saved)).then_some(slot)
    }

    /// Writes the frames that wait for the context in `slot` to the front of `out`, as many as there is room for, and gives how many.
    pub(crate) fn parents(&self, slot: u64, out: &mut [Frame]) -> usize {
        let word = |address: u64| if address.is_multiple_of(WORD) { self.read(address) } else { None };
        let mut parent = |context: u64| {
            let resume = word(context.checked_add(WORD)?)?;
            let resume = if Self::MACHINE.signs_return_addresses { self.unsigned(resume) } else { resume };
            Some((word(context)?, resume))
        };
        word(slot).map_or(0, |context| follow(self.modules, &mut parent, context, out))
    }
}

/// Writes the frames that wait for `context` to the front of `out`, as many as there is room for, and gives how many. `parent` gives the context that waits for
/// one, and where it goes on.
#[inline(never)]
pub(crate) fn follow(
    modules: &Modules<'_>,
    parent: &mut dyn FnMut(u64) -> Option<(u64, u64)>,
    mut context: u64,
    out: &mut [Frame],
) -> usize {
    let mut written = 0;
    // Of a chain that leads back into itself nothing is true, and it shows when it comes by a context that was marked, each time later. (Brent)
    let (mut marked, mut steps, mut until) = (context, 0_u32, 1_u32);
    for _ in 0..MOST_PARENTS {
        let Some((parent, resume)) = parent(context) else { break };
        let (rule, module) = modules.locate_once(resume);
        if rule == Rule::GAP || module == NO_MODULE {
            break;
        }
        if let Some(frame) = out.get_mut(written) {
            let (pc, cfa) = (Avma(resume), Avma(parent));
            // It has not been called: the address is that of the first instruction to run.
            *frame = Frame { pc, exact: true, cfa, fp: 0, method: UnwindMethod::AsyncParent, module: Some(module) };
            written += 1;
        }
        if parent == marked {
            return 0;
        }
        steps += 1;
        if steps == until {
            (marked, steps, until) = (parent, 0, until.saturating_mul(2));
        }
        context = parent;
    }
    written
}

/// Ranges of code by rising address, in a section of a table, read in place: relative address, bytes, and what is told of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Functions<'t>(&'t [[u8; 12]]);

impl<'t> Functions<'t> {
    /// `None` if the bytes are not whole records.
    pub(crate) fn read(bytes: &'t [u8]) -> Option<Self> {
        let (records, []) = bytes.as_chunks::<12>() else { return None };
        Some(Self(records))
    }

    pub(crate) fn records(self) -> impl Iterator<Item = [u32; 3]> + use<'t> {
        self.0.iter().map(words_of)
    }

    /// Whether they rise, and do not overlap.
    pub(crate) fn rise(self) -> bool {
        let next = self.records().skip(1);
        let rises = self.records().zip(next).all(|([start, size, _], [next, ..])| size <= next.saturating_sub(start));
        rises && self.records().all(|[start, size, _]| size > 0 && start.checked_add(size).is_some())
    }

    /// Where the range begins that holds `rva`, and what is told of it.
    #[inline(never)]
    pub(crate) fn at(self, rva: Rva) -> Option<(Rva, u32)> {
        let address = u32::try_from(rva.0).ok()?;
        let next = self.0.partition_point(|record| words_of(record)[0] <= address);
        let [start, size, told] = words_of(self.0.get(next.checked_sub(1)?)?);
        (address - start < size).then_some((Rva(u64::from(start)), told))
    }
}

fn words_of(record: &[u8; 12]) -> [u32; 3] {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *record;
    [[a, b, c, d], [e, f, g, h], [i, j, k, l]].map(u32::from_le_bytes)
}
