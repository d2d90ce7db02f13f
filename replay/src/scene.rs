//! A trace in the form that is unwound and transformed: modules, registers, stack words.

use std::collections::BTreeMap;

use symseal_module::{Avma, DebugId, MappedModule, ModuleMap, Svma};
use symseal_trace::{Trace, TraceSample};
use symseal_unwind::{CodeBytes, Memory, Registers, StackBytes, StackRegions};

/// The names of the general registers of x86_64 by DWARF number (System V ABI, figure 3.36).
pub(crate) const X86_64_GENERAL: [&str; 16] =
    ["rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];

/// Everything of a trace that a walk depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scene {
    /// In the order of the trace; overlapping ones left out as [`ModuleMap`] does.
    pub(crate) modules: Vec<SceneModule>,
    /// Code that the process made, in memory without a file or where its runtime told of it: first address and the one behind it, by rising address. It is in no module, and stays
    /// where it is.
    pub(crate) made: Vec<(u64, u64)>,
    pub(crate) snapshots: Vec<Snapshot>,
}

/// One mapped module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SceneModule {
    pub(crate) path: String,
    pub(crate) debug_id: Option<DebugId>,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) bias: u64,
    pub(crate) image_base: Svma,
    /// The image itself, where the trace carries it.
    pub(crate) image: Option<Vec<u8>>,
}

/// One thread at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) thread: u32,
    pub(crate) thread_name: String,
    /// Ordinal of the sample in the trace.
    pub(crate) sample: u32,
    /// By name; flags and segment bases included, for the conservative rewriting looks at all of them.
    pub(crate) registers: BTreeMap<String, u64>,
    pub(crate) segments: Vec<Segment>,
}

/// A copied stretch of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) start: u64,
    /// The mapping that it was copied from, without what lies on the other side of a module's border: an
    /// alternate stack may be a static variable, and then it moves with its module.
    pub(crate) mapping: (u64, u64),
    pub(crate) bytes: Vec<u8>,
}

impl Segment {
    /// The first address after the copy.
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes.len() as u64)
    }
}

impl Scene {
    pub(crate) fn of(trace: &Trace) -> Self {
        let map = ModuleMap::new(trace.modules.iter().map(|module| module.to_mapped()).collect());
        let kept = |start: Avma| map.modules().iter().any(|module| module.start == start);
        let mut modules: Vec<SceneModule> = Vec::new();
        for module in &trace.modules {
            let known = modules.iter().any(|other| other.start == module.start.0);
            if !kept(module.start) || known {
                continue;
            }
            modules.push(SceneModule {
                path: module.path.clone(),
                debug_id: module.debug_id.clone(),
                start: module.start.0,
                end: module.end.0,
                bias: module.bias,
                image_base: module.image_base,
                image: module.bytes.clone(),
            });
        }
        let snapshots =
            trace.samples.iter().zip(0..).map(|(sample, ordinal)| Snapshot::of(sample, ordinal, &modules)).collect();
        Self { modules, made: made_code(trace), snapshots }
    }

    /// The ranges of the modules, numbered as in [`Self::modules`].
    pub(crate) fn module_ranges(&self) -> Ranges {
        Ranges::new(self.modules.iter().map(|module| (module.start, module.end)))
    }

    /// The modules as the resolver takes them.
    pub(crate) fn module_map(&self) -> ModuleMap {
        let mapped = self.modules.iter().map(SceneModule::mapped);
        ModuleMap::new(mapped.collect())
    }
}

/// Where the code lies that the process made, joined where functions touch or lie over each other.
fn made_code(trace: &Trace) -> Vec<(u64, u64)> {
    let end = |start: u64, size: u64| start.saturating_add(size);
    let told = trace.jit.iter().map(|it| (it.start.0, end(it.start.0, it.size)));
    let mut told: Vec<(u64, u64)> = told.chain(trace.code.iter().map(|it| (it.start.0, it.end.0))).collect();
    told.sort_unstable();
    let mut made: Vec<(u64, u64)> = Vec::new();
    for (start, end) in told.into_iter().filter(|(start, end)| start < end) {
        match made.last_mut().filter(|last| start <= last.1) {
            Some(last) => last.1 = last.1.max(end),
            None => made.push((start, end)),
        }
    }
    made
}

impl SceneModule {
    /// The module as the resolver takes it.
    pub(crate) fn mapped(&self) -> MappedModule {
        MappedModule {
            path: self.path.clone(),
            debug_id: self.debug_id.clone(),
            start: Avma(self.start),
            end: Avma(self.end),
            bias: self.bias,
            image_base: self.image_base,
        }
    }

    /// The image as code, where the trace carries it.
    pub(crate) fn image_code(&self) -> Option<CodeBytes<'_>> {
        self.image.as_ref().map(|bytes| CodeBytes { start: Avma(self.start), bytes })
    }
}

impl Snapshot {
    fn of(sample: &TraceSample, ordinal: u32, modules: &[SceneModule]) -> Self {
        Self {
            thread: sample.thread,
            thread_name: sample.thread_name.clone(),
            sample: ordinal,
            registers: sample.registers.iter().map(|(name, value)| (name.clone(), value.0)).collect(),
            segments: sample
                .stacks
                .iter()
                .map(|segment| Segment {
                    start: segment.start.0,
                    mapping: extent(
                        segment.start.0,
                        // A mapping that does not hold its own copy is taken as that of the copy.
                        segment.mapping_start.min(segment.start).0,
                        segment.mapping_end.max(segment.end()).0,
                        modules,
                    ),
                    bytes: segment.bytes.clone(),
                })
                .collect(),
        }
    }

    /// The registers as the engine takes them.
    pub(crate) fn engine_registers(&self) -> Registers {
        let get = |name: &str| self.registers.get(name).copied();
        Registers {
            pc: get("rip").unwrap_or(0),
            sp: get("rsp").unwrap_or(0),
            fp: get("rbp").unwrap_or(0),
            general: std::array::from_fn(|at| X86_64_GENERAL.get(at).copied().and_then(get)),
        }
    }

    /// How many words of stacks were copied.
    pub(crate) fn copied_words(&self) -> usize {
        self.segments.iter().map(|segment| segment.bytes.len() / size_of::<u64>()).sum()
    }

    /// Runs `read` with the snapshot's stack memory.
    pub(crate) fn with_memory<T>(&self, read: impl FnOnce(Stacks<'_>) -> T) -> T {
        let regions: Vec<StackBytes<'_>> = self
            .segments
            .iter()
            .map(|segment| StackBytes { start: Avma(segment.start), bytes: &segment.bytes })
            .collect();
        read(Stacks { copied: StackRegions(&regions), segments: &self.segments })
    }

    /// Whether `length` bytes from `start` on were copied, or all up to the end of their mapping.
    pub(crate) fn is_copied_from(&self, start: u64, length: u64) -> bool {
        let end = start.saturating_add(length);
        let mut at = start;
        // The end of one piece may be the beginning of another.
        for _ in 0..=self.segments.len() {
            let piece = self.segments.iter().find(|segment| segment.start <= at && at < segment.end());
            let Some(piece) = piece else { return false };
            at = piece.end();
            if at >= end || at >= piece.mapping.1 {
                return true;
            }
        }
        false
    }

    /// Every aligned word of the copied stacks.
    pub(crate) fn stack_words(&self) -> impl Iterator<Item = u64> + '_ {
        self.segments.iter().flat_map(|segment| {
            let skip = usize::try_from(segment.start.wrapping_neg() % 8).unwrap_or(0);
            let (words, _) = segment.bytes.get(skip..).unwrap_or_default().as_chunks::<8>();
            words.iter().map(|word| u64::from_le_bytes(*word))
        })
    }
}

/// Ranges of addresses that do not overlap, for finding the one that a pointer points into.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranges {
    /// Start, end and the caller's number, by rising start.
    sorted: Vec<(u64, u64, usize)>,
}

impl Ranges {
    pub(crate) fn new(ranges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut sorted: Vec<_> =
            ranges.into_iter().enumerate().map(|(number, (start, end))| (start, end, number)).collect();
        sorted.sort_unstable();
        Self { sorted }
    }

    /// The number of the range that a pointer of value `address` points into. The end counts: the return address
    /// of a last call that never returns lies there, and so may the frame address of the outermost frame. Where
    /// one range ends and the next begins, the pointer belongs to the first: nothing returns to a module's header.
    pub(crate) fn pointed_into(&self, address: u64) -> Option<usize> {
        let after = self.sorted.partition_point(|(start, _, _)| *start < address);
        let below = after.checked_sub(1).and_then(|at| self.sorted.get(at));
        if let Some((_, end, number)) = below
            && address <= *end
        {
            return Some(*number);
        }
        self.sorted.get(after).filter(|(start, _, _)| *start == address).map(|(_, _, number)| *number)
    }

    /// The number of the range that holds the byte at `address`.
    pub(crate) fn holding(&self, address: u64) -> Option<usize> {
        let after = self.sorted.partition_point(|(start, _, _)| *start <= address);
        let (_, end, number) = self.sorted.get(after.checked_sub(1)?)?;
        (address < *end).then_some(*number)
    }
}

/// The part of a mapping that belongs together with the address `at` in it.
fn extent(at: u64, mut start: u64, mut end: u64, modules: &[SceneModule]) -> (u64, u64) {
    for module in modules {
        if module.end <= at {
            start = start.max(module.end);
        } else if at < module.start {
            end = end.min(module.start);
        } else {
            start = start.max(module.start);
            end = end.min(module.end);
        }
    }
    (start, end)
}

/// The copied stacks of a snapshot.
pub(crate) struct Stacks<'m> {
    copied: StackRegions<'m>,
    segments: &'m [Segment],
}

impl Memory for Stacks<'_> {
    #[inline]
    fn read_u64(&self, address: Avma) -> Option<u64> {
        self.copied.read_u64(address)
    }

    /// By mappings: a stack may have been copied in pieces, and a shorter copy must not change the answer.
    fn same_stack(&self, a: Avma, b: Avma) -> bool {
        self.segments.iter().any(|segment| {
            let (start, end) = segment.mapping;
            (start..end).contains(&a.0) && (start..end).contains(&b.0)
        })
    }
}

/// A memory that remembers what a walk wanted to read.
pub(crate) struct Watched<'m> {
    pub(crate) memory: Stacks<'m>,
    /// Addresses read, in order.
    pub(crate) reads: std::cell::RefCell<Vec<u64>>,
}

impl Memory for Watched<'_> {
    fn read_u64(&self, address: Avma) -> Option<u64> {
        self.reads.borrow_mut().push(address.0);
        self.memory.read_u64(address)
    }

    fn same_stack(&self, a: Avma, b: Avma) -> bool {
        self.memory.same_stack(a, b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_one_mapping_are_one_stack_and_two_mappings_are_two() {
        let segment = |start, mapping| Segment { start, mapping, bytes: vec![0; 16] };
        let snapshot = Snapshot {
            thread: 1,
            thread_name: String::new(),
            sample: 0,
            registers: BTreeMap::new(),
            segments: vec![
                segment(0x1100, (0x1000, 0x2000)),
                segment(0x1800, (0x1000, 0x2000)),
                segment(0x2000, (0x2000, 0x3000)),
            ],
        };
        snapshot.with_memory(|memory| {
            let same = |a, b| memory.same_stack(Avma(a), Avma(b));
            assert!(same(0x1100, 0x1808) && same(0x2000, 0x2fff));
            assert!(!same(0x1100, 0x2000) && !same(0x1100, 0x1100_0000));
        });
    }

    #[test]
    fn bytes_count_as_copied_up_to_the_end_of_their_mapping() {
        let segment = |start, end, mapping| Segment { start, mapping, bytes: vec![0; end - start as usize] };
        let mut snapshot = Snapshot {
            thread: 1,
            thread_name: String::new(),
            sample: 0,
            registers: BTreeMap::new(),
            segments: vec![segment(0x1100, 0x1800, (0x1000, 0x2000)), segment(0x3000, 0x4000, (0x3000, 0x4000))],
        };
        assert!(snapshot.is_copied_from(0x1100, 0x700) && snapshot.is_copied_from(0x1700, 0x100));
        assert!(!snapshot.is_copied_from(0x1100, 0x701) && !snapshot.is_copied_from(0x10f8, 8));
        assert!(snapshot.is_copied_from(0x3800, 0x8000), "there is no more");
        snapshot.segments.push(segment(0x1800, 0x2000, (0x1000, 0x2000)));
        assert!(snapshot.is_copied_from(0x1100, 0x8000), "in two pieces");
    }
}
