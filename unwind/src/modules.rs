//! Which table covers an address of the process.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use symseal_module::{Avma, Rva, Svma};

use crate::arch::Arch;
use crate::cache::{KEPT_FOR_NONE, NO_GENERATION, NO_MODULE};
use crate::coroutines::CoroutineTable;
use crate::frame::Frame;
use crate::goroutine::GoRuntime;
use crate::rule::Rule;
use crate::source::Source;
use crate::table::Table;
use crate::tasks::TaskTable;

/// One mapped module, as the engine needs it.
#[derive(Debug, Clone)]
pub struct Module<'t> {
    /// First address of the module's mappings.
    pub start: Avma,
    /// First address after them.
    pub end: Avma,
    /// Actual minus stated address, wrapping.
    pub bias: u64,
    /// The module's image base. Where there is a table, the one in its header is used.
    pub image_base: Svma,
    /// The module's unwind table, where there is one.
    pub table: Option<Table<'t>>,
    /// The module's code as mapped, where it is at hand. It lets the engine see that a word on the stack follows a call, and
    /// know a signal trampoline that no rule describes; without it, it does not assume either.
    pub code: Option<CodeBytes<'t>>,
}

/// Executable bytes of a module.
#[derive(Debug, Clone, Copy)]
pub struct CodeBytes<'t> {
    /// The actual address of the first byte.
    pub start: Avma,
    /// The bytes.
    pub bytes: &'t [u8],
}

impl<'t> CodeBytes<'t> {
    /// The bytes from `address` on; empty where it lies outside.
    pub(crate) fn at_address(&self, address: u64) -> &'t [u8] {
        let offset = usize::try_from(address.wrapping_sub(self.start.0)).unwrap_or(usize::MAX);
        self.bytes.get(offset..).unwrap_or_default()
    }

    /// The bytes from `start` to `end`, if all of them are here.
    pub(crate) fn between(&self, start: u64, end: u64) -> Option<&'t [u8]> {
        self.at_address(start).get(..usize::try_from(end.wrapping_sub(start)).ok()?)
    }

    /// Up to `most` bytes that end right before `address`.
    pub(crate) fn up_to_address(&self, address: u64, most: usize) -> &'t [u8] {
        let end = usize::try_from(address.wrapping_sub(self.start.0)).unwrap_or(usize::MAX);
        self.bytes.get(end.saturating_sub(most)..end).unwrap_or_default()
    }
}

/// The modules of one process. Immutable: many threads may unwind with it at once.
#[derive(Debug, Clone)]
pub struct Modules<'t> {
    /// By rising start address.
    entries: Vec<Entry<'t>>,
    generation: u32,
    arch: Arch,
    /// The highest address in a module.
    highest: u64,
    /// The bits of an address, if the caller knows them.
    address_bits: Option<u64>,
    go: Vec<GoRuntime>,
    /// Whether the table of any module tells of tasks.
    has_tasks: bool,
    /// Whether the table of any module tells of coroutines.
    has_coroutines: bool,
}

#[derive(Debug, Clone)]
struct Entry<'t> {
    start: u64,
    /// `end - start`.
    size: u64,
    /// Actual address of relative address 0, wrapping.
    base: u64,
    table: Option<Table<'t>>,
    code: Option<CodeBytes<'t>>,
    /// Index as given by the caller.
    index: u32,
}

/// Numbers for [`Modules::new`]. 64 bits would never come to their end, but processors of 32 bits cannot count them at once.
static GENERATIONS: AtomicU32 = AtomicU32::new(1);

/// What tells entries of a cache apart that came from different sets of modules: never the same twice, and [`NO_GENERATION`] once all were given.
fn next_generation(from: &AtomicU32) -> u32 {
    let given =
        from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| (next < KEPT_FOR_NONE).then(|| next + 1));
    given.unwrap_or(NO_GENERATION)
}

/// Where a walk found its last module, which is where the next frame most likely is too.
pub(crate) type Hint = usize;

impl<'t> Modules<'t> {
    /// The modules of a process on `arch`, in any order; frames refer to them by their index in `modules`. Where two overlap, the
    /// one with the higher start address counts for the addresses from there on. A table for another architecture counts as none.
    pub fn new(arch: Arch, modules: Vec<Module<'t>>) -> Self {
        let generation = next_generation(&GENERATIONS);
        let mut entries: Vec<_> = modules
            .into_iter()
            .zip(0..NO_MODULE)
            .map(|(module, index)| {
                let table = module.table.filter(|table| table.arch() == arch);
                let image_base = table.as_ref().map_or(module.image_base, Table::image_base);
                Entry {
                    start: module.start.0,
                    size: module.end.0.saturating_sub(module.start.0),
                    base: module.bias.wrapping_add(image_base.0),
                    table,
                    code: module.code,
                    index,
                }
            })
            .filter(|entry| entry.size > 0)
            .collect();
        entries.sort_by_key(|entry| entry.start);
        // One ends where the next begins, so that whoever holds an address is the one that counts.
        let mut next = u64::MAX;
        for entry in entries.iter_mut().rev() {
            entry.size = entry.size.min(next.saturating_sub(entry.start));
            next = entry.start;
        }
        // Libraries of Go have a runtime each.
        let go = entries.iter().filter_map(|entry| {
            let go = entry.table.as_ref()?.go_runtime()?;
            Some(go.with_addresses(|rva| Some(Avma(entry.base.wrapping_add(rva.0)))))
        });
        let go = go.collect();
        let highest = entries.iter().map(|entry| entry.start.saturating_add(entry.size)).max().unwrap_or(0);
        let has = |what: fn(&Table<'t>) -> bool| entries.iter().any(|entry| entry.table.as_ref().is_some_and(what));
        let (has_tasks, has_coroutines) = (has(Table::has_tasks), has(Table::has_coroutines));
        Self { entries, generation, arch, highest, address_bits: None, go, has_tasks, has_coroutines }
    }

    /// The same with the signature of signed return addresses in the bits that are set in `mask` (aarch64: the instruction mask
    /// of the register set `NT_ARM_PAC_MASK`). Without it, every bit above those of the highest known address counts as
    /// part of the signature.
    pub fn with_signature_mask(mut self, mask: u64) -> Self {
        self.address_bits = Some(!mask);
        self
    }

    /// The same for a process with a runtime of Go besides those that the modules' tables tell of ([`Table::go_runtime`]). Stacks are
    /// followed from the system stack of a thread to its goroutine.
    pub fn with_go_runtime(mut self, go: GoRuntime) -> Self {
        self.go.push(go);
        self
    }

    /// The same without any: stacks then end where that of the thread does.
    pub fn without_go_runtimes(mut self) -> Self {
        self.go.clear();
        self
    }

    pub(crate) fn go_runtimes(&self) -> &[GoRuntime] {
        &self.go
    }

    pub(crate) fn has_tasks(&self) -> bool {
        self.has_tasks
    }

    /// What the module that holds `address` tells of tasks, its relative address 0, and the relative address that this one is.
    pub(crate) fn tasks_at(&self, address: Avma) -> Option<(TaskTable<'t>, u64, Rva)> {
        let (entry, rva) = self.rva(address.0)?;
        Some((entry.table.as_ref()?.tasks()?, entry.base, rva))
    }

    pub(crate) fn has_coroutines(&self) -> bool {
        self.has_coroutines
    }

    /// The same of coroutines.
    #[inline(never)]
    pub(crate) fn coroutines_at(&self, address: Avma) -> Option<(CoroutineTable<'t>, u64, Rva)> {
        let (entry, rva) = self.rva(address.0)?;
        Some((entry.table.as_ref()?.coroutines()?, entry.base, rva))
    }

    /// The processor of the process.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The bits of an address in a process whose stack is at `sp`.
    pub(crate) fn address_bits(&self, sp: u64) -> u64 {
        let known = || u64::MAX.checked_shr((self.highest | sp).leading_zeros()).unwrap_or(0);
        self.address_bits.unwrap_or_else(known)
    }

    /// The source record of the rule that covers `frame`: from which entry of which section the table's rule was made.
    pub fn source(&self, frame: &Frame) -> Option<Source> {
        let (entry, rva) = self.rva(frame.lookup_pc().0)?;
        entry.table.as_ref()?.source(rva)
    }

    /// The rule that covers `frame`, and its module's table; `None` where no table covers it.
    pub fn rule(&self, frame: &Frame) -> Option<(Rule, &Table<'t>)> {
        let (entry, rva) = self.rva(frame.lookup_pc().0)?;
        let table = entry.table.as_ref()?;
        Some((table.rule(rva)?, table))
    }

    /// The relative address that `frame` is looked up at in its module's table.
    pub(crate) fn rva_of(&self, frame: &Frame) -> Option<Rva> {
        self.rva(frame.lookup_pc().0).map(|(_, rva)| rva)
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    #[cfg(test)]
    pub(crate) fn with_generation(self, generation: u32) -> Self {
        Self { generation, ..self }
    }

    /// The rule and module of `address`; the module's index is that of the caller, or [`NO_MODULE`].
    #[inline(always)]
    pub(crate) fn locate(&self, address: u64, hint: &mut Hint) -> (Rule, u32) {
        let entry = match self.entries.get(*hint) {
            Some(entry) if address.wrapping_sub(entry.start) < entry.size => entry,
            _ => match self.find(address) {
                Some(at) => {
                    *hint = at;
                    match self.entries.get(at) {
                        Some(entry) => entry,
                        None => return (Rule::NO_TABLE, NO_MODULE),
                    }
                }
                None => return (Rule::NO_TABLE, NO_MODULE),
            },
        };
        let rule = match &entry.table {
            Some(table) => table.rule(Rva(address.wrapping_sub(entry.base))).unwrap_or(Rule::GAP),
            None => Rule::NO_TABLE,
        };
        (rule, entry.index)
    }

    /// The same, where it is asked for too seldom to be worth its code at each place.
    #[inline(never)]
    pub(crate) fn locate_once(&self, address: u64) -> (Rule, u32) {
        self.locate(address, &mut 0)
    }

    /// The table that holds `address`.
    pub(crate) fn table_at(&self, address: u64) -> Option<&Table<'t>> {
        self.entry(address)?.table.as_ref()
    }

    /// The code of the module that holds `address`.
    pub(crate) fn code_at(&self, address: u64) -> Option<&CodeBytes<'t>> {
        self.entry(address)?.code.as_ref()
    }

    /// Where the record begins and ends that the rule at `address` was made of: of call frame information, the function.
    pub(crate) fn record_at(&self, address: u64) -> Option<(u64, u64)> {
        let (entry, rva) = self.rva(address)?;
        let range = entry.table.as_ref()?.source_range(rva)?;
        Some((entry.base.wrapping_add(range.start.0), entry.base.wrapping_add(range.end.0)))
    }

    pub(crate) fn holds(&self, address: u64) -> bool {
        self.find(address).is_some()
    }

    /// The module that holds `address`, as an index as given by the caller.
    pub fn holder(&self, address: Avma) -> Option<usize> {
        self.entry(address.0).map(|entry| entry.index as usize)
    }

    fn rva(&self, address: u64) -> Option<(&Entry<'t>, Rva)> {
        let entry = self.entry(address)?;
        Some((entry, Rva(address.wrapping_sub(entry.base))))
    }

    #[inline(never)]
    fn entry(&self, address: u64) -> Option<&Entry<'t>> {
        self.entries.get(self.find(address)?)
    }

    fn find(&self, address: u64) -> Option<usize> {
        let at = self.entries.partition_point(|entry| entry.start <= address).checked_sub(1)?;
        let entry = self.entries.get(at)?;
        (address.wrapping_sub(entry.start) < entry.size).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_given_twice() {
        let numbers = AtomicU32::new(KEPT_FOR_NONE - 2);
        let given = [(); 4].map(|()| next_generation(&numbers));
        assert_eq!(given, [KEPT_FOR_NONE - 2, KEPT_FOR_NONE - 1, NO_GENERATION, NO_GENERATION]);
    }

    #[test]
    fn the_module_that_begins_last_before_an_address_holds_it_or_none_does() {
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            // Over each other, within each other, empty ones; each begins elsewhere.
            let mut ranges: Vec<_> = (0..random(12)).map(|at| (random(16) * 16 + at, random(60))).collect();
            ranges.sort_by_key(|(_, size)| *size);
            let module = |(start, size): &(u64, u64)| Module {
                start: Avma(*start),
                end: Avma(start + size),
                bias: *start,
                image_base: Svma(0),
                table: None,
                code: None,
            };
            let modules = Modules::new(Arch::X86_64, ranges.iter().map(module).collect());
            for address in 0..400 {
                let before = ranges.iter().enumerate().filter(|(_, (start, size))| *start <= address && *size > 0);
                let last = before.max_by_key(|(_, (start, _))| *start);
                let holds = last.filter(|(_, (start, size))| address < start + size);
                assert_eq!(modules.holder(Avma(address)), holds.map(|(at, _)| at), "{address} {ranges:?}");
            }
        }
    }
}
