//! From a coroutine of C++ that the stack runs to the one that awaits it.
//!
//! The frame of a coroutine is a structure, mostly on the heap, that begins with the function that resumes it, which is null once it is at its end, and the one that
//! destroys it; the promise follows. A handle (`std::coroutine_handle`) is the address of such a frame. Who awaits a coroutine has left its handle in the
//! promise, where its author likes: the debug information says which members are handles, and in which register or slot a function that resumes keeps
//! the frame that it was given. (`compile::coroutines` reads it; GCC, `gcc/cp/coroutines.cc`; LLVM, `CoroSplit`)

use symseal_module::{Avma, Rva};

use crate::arch::{Machine, Target};
use crate::continuation::{Functions, follow};
use crate::cx;
use crate::frame::{Frame, Registers};
use crate::memory::Memory;
use crate::modules::Modules;
use crate::rule::{Rule, Saved, Slots};
use crate::step::{Budget, State, Stepper};

/// Words before what follows: how many coroutines, functions and locations there are, and zero.
pub(crate) const HEAD_WORDS: usize = 4;
/// Handles of a promise that are told of.
pub(crate) const MOST_HANDLES: usize = 3;
/// Bits of what is told of a function that are its role; those above are the number of its coroutine.
pub(crate) const ROLE_BITS: u32 = 2;
/// A part of the function that resumes, without its entry.
pub(crate) const PART: u32 = 0;
pub(crate) const RESUMES: u32 = 1;
pub(crate) const DESTROYS: u32 = 2;
/// Words of stack frames that one walk looks at for the frame of a coroutine.
const MOST_WORDS: usize = 1 << 14;

/// What the engine has to know of the coroutines of a module, in the section of a table that keeps it, read in place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CoroutineTable<'t> {
    /// Of each coroutine where its frame has the index of its suspension, whose lowest bit says that it is being destroyed, and where it has handles. 0: nowhere.
    coroutines: &'t [[u8; 16]],
    functions: Functions<'t>,
    /// Where the address of the running coroutine's frame is, by ranges of code: the number of a program's first byte.
    locations: Functions<'t>,
    programs: &'t [u8],
}

impl<'t> CoroutineTable<'t> {
    /// `None` if the section is not well-formed.
    pub(crate) fn read(section: &'t [u8]) -> Option<Self> {
        let (head, rest) = section.split_first_chunk::<{ 4 * HEAD_WORDS }>()?;
        let (words, _) = head.as_chunks::<4>();
        let [coroutines, functions, locations, 0] = words.first_chunk::<HEAD_WORDS>()?.map(u32::from_le_bytes) else {
            return None;
        };
        let bytes = |count: u32, each: usize| usize::try_from(count).ok()?.checked_mul(each);
        let (coroutines, rest) = rest.split_at_checked(bytes(coroutines, 16)?)?;
        let (functions, rest) = rest.split_at_checked(bytes(functions, 12)?)?;
        let (locations, programs) = rest.split_at_checked(bytes(locations, 12)?)?;
        let (coroutines, _) = coroutines.as_chunks();
        Some(Self {
            coroutines,
            functions: Functions::read(functions)?,
            locations: Functions::read(locations)?,
            programs,
        })
    }

    /// Whether everything that it says can be carried out.
    pub(crate) fn is_sound(&self, machine: &Machine) -> bool {
        let has_coroutine = |[.., told]: [u32; 3]| {
            told & 3 <= DESTROYS && (told >> ROLE_BITS) as usize <= self.coroutines.len().saturating_sub(1)
        };
        let has_program = |[.., at]: [u32; 3]| cx::is_valid(self.program(at), machine);
        self.functions.rise()
            && self.locations.rise()
            && self.functions.records().all(has_coroutine)
            && self.locations.records().all(has_program)
    }

    fn program(&self, at: u32) -> &'t [u8] {
        usize::try_from(at).ok().and_then(|at| self.programs.get(at..)).unwrap_or_default()
    }

    /// The coroutine and role of the function that begins at `rva`.
    fn entry(&self, rva: Rva) -> Option<(u32, u32)> {
        let (start, told) = self.functions.at(rva)?;
        let (coroutine, role) = (told >> ROLE_BITS, told & 3);
        (start == rva && role != PART).then_some((coroutine, role))
    }

    /// Where a frame of the coroutine has what: the index, and handles.
    fn places(&self, coroutine: u32) -> Option<(u32, [u32; MOST_HANDLES])> {
        let (words, _) = self.coroutines.get(coroutine as usize)?.as_chunks::<4>();
        let [index, handles @ ..] = words.first_chunk::<{ MOST_HANDLES + 1 }>()?.map(u32::from_le_bytes);
        Some((index, handles))
    }
}

/// The coroutines of a module, in the process.
#[derive(Clone, Copy)]
struct Coroutines<'t> {
    table: CoroutineTable<'t>,
    /// Actual address of relative address 0, wrapping.
    base: u64,
}

/// The coroutines of a process.
#[derive(Clone, Copy)]
struct Process<'p, 't> {
    modules: &'p Modules<'t>,
    read: &'p dyn Fn(u64) -> Option<u64>,
}

impl<'t> Process<'_, 't> {
    fn word(&self, frame: u64, offset: u32) -> Option<u64> {
        let address = frame.checked_add(u64::from(offset))?;
        if address.is_multiple_of(8) { (self.read)(address) } else { None }
    }

    fn at(&self, address: u64) -> Option<(Coroutines<'t>, Rva)> {
        let (table, base, rva) = self.modules.coroutines_at(Avma(address))?;
        Some((Coroutines { table, base }, rva))
    }

    /// What the function at `address` is, in these coroutines' module.
    fn entry(&self, of: &Coroutines<'_>, address: u64) -> Option<(u32, u32)> {
        of.table.entry(Rva(address.wrapping_sub(of.base)))
    }

    /// Whether the frame of this coroutine is at `frame`.
    #[inline(never)]
    fn is_of(&self, of: &Coroutines<'_>, coroutine: u32, frame: u64) -> bool {
        let (Some(resume), Some(destroy)) = (self.word(frame, 0), self.word(frame, 8)) else { return false };
        let Some((destroyed, DESTROYS)) = self.entry(of, destroy) else { return false };
        // At its end nothing resumes it.
        if resume == 0 { destroyed == coroutine } else { self.entry(of, resume) == Some((coroutine, RESUMES)) }
    }

    /// Whether that coroutine is being destroyed: GCC has one function for that and for going on.
    fn is_destroyed(&self, of: &Coroutines<'_>, coroutine: u32, frame: u64) -> bool {
        let Some((index @ 1.., _)) = of.table.places(coroutine) else { return false };
        let address = frame.wrapping_add(u64::from(index));
        (self.read)(address & !7).is_none_or(|word| word >> (8 * (address & 7)) & 1 != 0)
    }

    /// Which coroutine waits in the frame at `frame`, and the function that resumes it: none that is at its end.
    fn waiting(&self, frame: u64) -> Option<(Coroutines<'t>, u32, u64)> {
        let (resume, destroy) = (self.word(frame, 0)?, self.word(frame, 8)?);
        let (of, rva) = self.at(resume)?;
        let (coroutine, role) = of.table.entry(rva)?;
        let (_, destroyer) = self.entry(&of, destroy)?;
        (role == RESUMES && destroyer == DESTROYS).then_some((of, coroutine, resume))
    }

    /// The coroutine that this one leads to, if it leads to one alone: its frame, and the function that resumes it.
    #[inline(never)]
    fn parent(&self, of: &Coroutines<'_>, coroutine: u32, frame: u64) -> Option<(u64, u64)> {
        let mut found = None;
        for place in of.table.places(coroutine)?.1 {
            let Some(handle) = self.word(frame, place).filter(|handle| place != 0 && *handle != frame) else {
                continue;
            };
            let Some((.., resume)) = self.waiting(handle) else { continue };
            match found {
                Some((other, _)) if other != handle => return None,
                _ => found = Some((handle, resume)),
            }
        }
        found
    }
}

impl<T: Target, M: Memory> Stepper<'_, '_, T, M> {
    /// Writes the frames of the coroutines that wait for the innermost one that the stack runs to the front of `out`. Gives the index of the frame that runs
    /// it, and how many they are.
    pub(crate) fn waiting_coroutines(
        &self,
        registers: &Registers,
        frames: &[Frame],
        out: &mut [Frame],
    ) -> Option<(usize, usize)> {
        let mut budget = Budget::new();
        let mut register = |at: usize, number: u8| {
            let frame = frames.get(at)?;
            let sp = at.checked_sub(1).map_or(Some(registers.sp), |callee| Some(frames.get(callee)?.cfa.0))?;
            let Frame { pc: Avma(pc), exact, fp, method, .. } = *frame;
            let state = State { pc, sp, sp_known: true, fp, fp_known: fp != 0, exact, method };
            let frames = frames.get(..=at)?;
            Stepper::<T, M>::new(self.modules, registers, self.memory, frames, &state, self.settings)
                .register(number, &mut budget)
        };
        let process = Process { modules: self.modules, read: &|address| self.read(address) };
        innermost(&process, T::MACHINE, registers.sp, frames, &mut register, out)
    }
}

/// The same for every processor. `register` gives the value of one in the frame of this index.
#[inline(never)]
fn innermost(
    process: &Process<'_, '_>,
    machine: &Machine,
    mut sp: u64,
    frames: &[Frame],
    register: &mut dyn FnMut(usize, u8) -> Option<u64>,
    out: &mut [Frame],
) -> Option<(usize, usize)> {
    let mut words = MOST_WORDS;
    for (at, frame) in frames.iter().enumerate() {
        let lowest = core::mem::replace(&mut sp, frame.cfa.0);
        let Some((of, rva)) = process.at(frame.lookup_pc().0) else { continue };
        let Some((_, told)) = of.table.functions.at(rva) else { continue };
        let coroutine = told >> ROLE_BITS;
        if told & 3 == DESTROYS {
            continue;
        }
        let is_it = |address: &u64| process.is_of(&of, coroutine, *address);
        // What stands for the program counter elsewhere stands for the CFA here.
        let mut value = |number| if number == machine.pc { Some(frame.cfa.0) } else { register(at, number) };
        let located = of.table.locations.at(rva).and_then(|(_, program)| {
            cx::evaluate(of.table.program(program), &mut value, |address| (process.read)(address)).ok()
        });
        let running = located.filter(is_it).or_else(|| {
            let (rule, table) = process.modules.rule(frame)?;
            let kept = (rule, table.slots(rva)?);
            only(machine, kept, &mut value, frame, lowest, process.read, &mut words, &is_it)
        });
        // What waits for one further out does not wait for the innermost.
        let running = running?;
        if process.is_destroyed(&of, coroutine, running) {
            continue;
        }
        let mut first = Some((of, coroutine));
        let mut parent = |frame: u64| {
            let (of, coroutine) = first.take().or_else(|| process.waiting(frame).map(|(of, it, _)| (of, it)))?;
            process.parent(&of, coroutine, frame)
        };
        let written = follow(process.modules, &mut parent, running, out);
        return Some((at, written));
    }
    None
}

/// The only value of a frame, in registers and on the stack from `lowest` on, of which `is_it` holds. `kept` says which registers of its caller the frame keeps, and
/// where: those slots are not its own, and neither is a register that it would have to keep and does not.
#[allow(clippy::too_many_arguments, reason = "what a frame has, and how to look at it")]
fn only(
    machine: &Machine,
    (rule, kept): (Rule, Slots),
    value: &mut dyn FnMut(u8) -> Option<u64>,
    frame: &Frame,
    lowest: u64,
    read: &dyn Fn(u64) -> Option<u64>,
    words: &mut usize,
    is_it: &dyn Fn(&u64) -> bool,
) -> Option<u64> {
    let cfa = frame.cfa.0;
    let base = if rule.slots_on_fp() { frame.fp } else { machine.add(cfa, rule.origin() * machine.word) };
    let slot: &dyn Fn(u8) -> Option<u64> = &|number| {
        let saved = if number == machine.fp { rule.frame_pointer() } else { kept.of_machine(machine, number)? };
        let Saved::At(words) = saved else { return None };
        Some(machine.add(base, i64::from(words) * machine.word))
    };
    let registers = 0..machine.registers as u8;
    let mut found = None;
    let mut number = registers.start;
    let mut address = lowest;
    loop {
        let at = address;
        let candidate = if number < registers.end {
            let register = number;
            number += 1;
            // A slot that was given back is below.
            let is_saved = || slot(register).is_some_and(|slot| slot >= lowest);
            let is_own = if machine.is_volatile(register) { frame.exact } else { is_saved() };
            if is_own { value(register) } else { None }
        } else if at < cfa {
            *words = words.checked_sub(1)?;
            address = at.saturating_add(8);
            read(at)
        } else {
            return found;
        };
        let Some(candidate) = candidate.filter(|candidate| found != Some(*candidate) && is_it(candidate)) else {
            continue;
        };
        if address != at && registers.clone().any(|number| slot(number) == Some(at)) {
            continue;
        }
        if found.replace(candidate).is_some() {
            return None;
        }
    }
}
