//! The engine: from frame to caller until there is none.
//!
//! Nearly every frame has a plain rule (CFA from sp or fp, return address at a fixed place below it). Those are followed in
//! one short loop whose state stays in processor registers; everything else goes through [`step`](crate::step). Both are
//! compiled once for each architecture.

use symseal_module::{Avma, StopReason, UnwindMethod};

use crate::arch::{Aarch64, Arch, Arm, I686, Mips32Big, Mips32Little, Riscv64, Target, X86_64};
use crate::cache::{Cache, NO_MODULE};
use crate::continuation::{frame_pointer_of, is_marked, marks_frame_pointers};
use crate::frame::{Continuation, Frame, Registers, Walk};
use crate::goroutine;
use crate::memory::Memory;
use crate::modules::{Hint, Modules};
use crate::rule::Rule;
use crate::step::{self, Caller, Settings, State, Stepper, read_word};

/// How far above a frame the stack is fetched before it is wanted, in bytes: a few frames, which take as long as a line does to come from the
/// second-level cache.
const PREFETCHED: u64 = 512;

/// Walks the stack of one thread from `registers` outwards and writes its frames, the innermost first, to the front of `out`. The
/// architecture is that of `modules`.
///
/// Nothing is allocated or locked, and `memory` is read at most a few times a frame. The walk ends when the stack
/// does, when the next step is not known for certain, or when `out` is full; the reason says which. Whatever the
/// tables, registers and memory hold, it ends: the stack pointer only rises, but for a bounded number of signal frames.
///
/// ```
/// use symseal_module::{Avma, StopReason};
/// use symseal_unwind::{Arch, Cache, Frame, Modules, Registers, StackBytes, unwind};
///
/// let modules = Modules::new(Arch::X86_64, Vec::new());
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
    unwind_with(modules, registers, memory, cache, out, Options::default())
}

/// What one walk is to do otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// A signature mask of this walk's own: see [`Modules::with_signature_mask`], whose mask counts where there is none here.
    pub signature_mask: Option<u64>,
    /// Whether, where nothing else leads on, the stack is searched for the one word that calls account for
    /// ([`UnwindMethod::Scan`](symseal_module::UnwindMethod::Scan)). Needs the code of the modules ([`Module::code`](crate::Module::code)). The
    /// frame pointer is then followed only where no word below it might be meant.
    pub scan: bool,
    /// Whether behind a stack that ends complete come the frames that wait for its innermost asynchronous function, coroutine or task
    /// ([`UnwindMethod::AsyncParent`], [`Walk::continuation`]). What they keep is read through the walk's memory and are on no stack.
    pub continuations: bool,
}

/// The same with options.
pub fn unwind_with(
    modules: &Modules<'_>,
    registers: &Registers,
    memory: &impl Memory,
    cache: &mut Cache,
    out: &mut [Frame],
    options: Options,
) -> Walk {
    let sp = modules.arch().machine().address(registers.sp);
    let address_bits = options.signature_mask.map_or_else(|| modules.address_bits(sp), |mask| !mask);
    let settings = Settings { address_bits, scan: options.scan, continuations: options.continuations };
    match modules.arch() {
        Arch::X86_64 => walk::<X86_64>(modules, registers, memory, cache, out, settings),
        Arch::Aarch64 => walk::<Aarch64>(modules, registers, memory, cache, out, settings),
        Arch::Mips32 => walk::<Mips32Big>(modules, registers, memory, cache, out, settings),
        Arch::Mips32Little => walk::<Mips32Little>(modules, registers, memory, cache, out, settings),
        Arch::I686 => walk::<I686>(modules, registers, memory, cache, out, settings),
        Arch::Riscv64 => walk::<Riscv64>(modules, registers, memory, cache, out, settings),
        Arch::Arm => walk::<Arm>(modules, registers, memory, cache, out, settings),
    }
}

fn walk<T: Target>(
    modules: &Modules<'_>,
    registers: &Registers,
    memory: &impl Memory,
    cache: &mut Cache,
    out: &mut [Frame],
    settings: Settings,
) -> Walk {
    // Stack pointers are compared everywhere: a tag is taken off at once.
    let untagged;
    let registers = match T::MACHINE.address(registers.sp) {
        sp if T::MACHINE.tag_bits > 0 && sp != registers.sp => {
            untagged = Registers { sp, ..*registers };
            &untagged
        }
        _ => registers,
    };
    let mut state = State::of::<T>(registers);
    let mut budget = step::Budget::new();
    let mut hint = 0;
    let mut depth = 0;
    // A frame with a plain rule may be where a goroutine's stack was left.
    let has_switches = goroutine::g_register(T::MACHINE.arch).is_some() && !modules.go_runtimes().is_empty();
    // The innermost frame that keeps an asynchronous context, and where.
    let mut asynchronous = None;
    let (frames, stop) = loop {
        let rule = if state.exact || !state.sp_known || has_switches {
            let lookup = state.pc.wrapping_sub(u64::from(!state.exact));
            let entry = cache.find_once(lookup, T::MACHINE, modules, &mut hint);
            let Some(frame) = out.get_mut(depth) else {
                break (depth, StopReason::MaxFrames);
            };
            *frame = state.frame(entry.module);
            depth += 1;
            entry.rule
        } else {
            match plain_frames::<T>(
                modules,
                memory,
                cache,
                &mut hint,
                &mut state,
                settings.address_bits,
                out,
                &mut depth,
            ) {
                Some(rule) => rule,
                None => break (depth, StopReason::MaxFrames),
            }
        };
        let frames = out.get(..depth).unwrap_or_default();
        let stepper = Stepper::<T, _>::new(modules, registers, memory, frames, &state, settings);
        let (cfa, mut next) = stepper.step(rule, &mut budget);
        // What was interrupted may have marked the register itself.
        if marks_frame_pointers(T::MACHINE)
            && let Ok(Caller { fp: Some(fp), method, .. }) = &mut next
            && is_marked(*fp)
            && *method != UnwindMethod::SignalContext
        {
            asynchronous = asynchronous.or_else(|| Some((depth - 1, stepper.context_slot(*fp, cfa)?)));
            *fp = frame_pointer_of(*fp);
        }
        if let (Some(cfa), Some(frame)) = (cfa, out.get_mut(depth - 1)) {
            frame.cfa = Avma(cfa);
        }
        match next {
            Ok(Caller { pc, sp, sp_known, fp, exact, method }) => {
                let sp = T::MACHINE.address(sp);
                state = State { pc, sp, sp_known, fp: fp.unwrap_or(0), fp_known: fp.is_some(), exact, method };
            }
            Err(stop) => break (depth, stop),
        }
    };
    cache.note_lookups(frames);
    let mut walk = Walk { frames, stop, continuation: None };
    if marks_frame_pointers(T::MACHINE)
        && settings.continuations
        && walk.is_complete()
        && let Some((found, rest)) = out.split_at_mut_checked(frames)
    {
        let stepper = Stepper::<T, _>::new(modules, registers, memory, &[], &state, settings);
        let (awaited, parents) = match asynchronous {
            Some((awaited, slot)) => (awaited, stepper.parents(slot, rest)),
            None => {
                let coroutines = || stepper.waiting_coroutines(registers, found, rest);
                let coroutines = modules.has_coroutines().then(coroutines).flatten();
                let tasks = || stepper.waiting_tasks(registers.sp, found, rest);
                coroutines.or_else(|| modules.has_tasks().then(tasks).flatten()).unwrap_or_default()
            }
        };
        walk.frames += parents;
        walk.continuation = (parents > 0).then_some(Continuation { awaited, frames: parents });
    }
    walk
}

/// Follows plain rules from a return address outwards. Ends with `state` at the last frame that was written, whose rule is
/// not plain or does not hold, and gives that rule; `None` where `out` is full.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "all of it stays in registers")]
fn plain_frames<T: Target>(
    modules: &Modules<'_>,
    memory: &impl Memory,
    cache: &mut Cache,
    hint: &mut Hint,
    state: &mut State,
    address_bits: u64,
    out: &mut [Frame],
    depth: &mut usize,
) -> Option<Rule> {
    let machine = T::MACHINE;
    let State { mut pc, mut sp, mut fp, mut fp_known, mut method, .. } = *state;
    let mut prefetched = 0;
    for frame in out.get_mut(*depth..)? {
        let lookup = pc.wrapping_sub(1);
        let entry = cache.find(pc, lookup, machine, modules, hint);
        let rule = entry.rule;
        *depth += 1;
        let base = if rule.is_fp_based() { fp } else { sp };
        let cfa = machine.add(base, i64::from(entry.cfa_offset));
        let slot = machine.add(cfa, i64::from(entry.fp_offset));
        // Where calls push it, it lies in the same place for every plain rule.
        let words_below = if machine.link.is_some() { rule.return_address_words() } else { -1 };
        let return_address = machine.add(cfa, words_below * machine.word);
        let has_base = fp_known || !rule.is_fp_based();
        let holds = entry.is_plain() && has_base && cfa > sp && cfa.is_multiple_of(machine.word as u64);
        // Zero, which is signed like any other, is the end.
        let caller = read_word::<T>(memory, return_address).map(|caller| {
            if machine.signs_return_addresses && rule.is_signed() {
                step::without_signature(caller, address_bits)
            } else {
                caller & !machine.mode_bits
            }
        });
        let words = (caller, read_word::<T>(memory, slot));
        let module = (entry.module != NO_MODULE).then_some(entry.module);
        let is_plain_fp = !marks_frame_pointers(machine) || !words.1.is_some_and(is_marked);
        if let (true, (Some(caller), Some(saved_fp))) = (holds && words.0 != Some(0) && is_plain_fp, words) {
            *frame = Frame { pc: Avma(pc), exact: false, cfa: Avma(cfa), fp, method, module };
            prefetched ^= memory.prefetch(Avma(cfa.wrapping_add(PREFETCHED)));
            pc = caller;
            sp = cfa;
            fp = if entry.saves_fp() { saved_fp } else { fp };
            fp_known |= entry.saves_fp();
            method = step::method_of(rule);
            continue;
        }
        *frame = Frame { pc: Avma(pc), exact: false, cfa: Avma(0), fp, method, module };
        *state = State { pc, sp, sp_known: true, fp, fp_known, exact: false, method };
        // Otherwise what nobody looks at were not read.
        core::hint::black_box(prefetched);
        return Some(rule);
    }
    None
}
