//! Reading a `.uwt` file in place.

use core::fmt;
use core::ops::Range;

use symseal_module::{DebugId, Rva, Svma, crc32};

use crate::arch::Arch;
use crate::coroutines::CoroutineTable;
use crate::cx::{self, Operation};
use crate::format::{
    BUCKET_SHIFT, DIRECTORY_ENTRY_BYTES, HEADER_BYTES, MAGIC, MAX_RULES, MAX_SECTIONS, NARROW_BUCKETS,
    NARROW_ROW_RULES, SectionKind, VERSION, at,
};
use crate::goroutine::GoRuntime;
use crate::numbers::Numbers;
use crate::rule::{Kind, Rule, Slots};
use crate::tasks::TaskTable;

/// An unwind table over the bytes of its file. Opening looks at the header alone; [`verify`](Self::verify) looks at everything.
///
/// Every access is checked against the bounds of its section, so that a damaged table gives wrong rules at worst. It is
/// cheap to clone.
#[derive(Clone)]
pub struct Table<'a> {
    text_start: u64,
    text_size: u64,
    buckets: Numbers<'a, 2, 4>,
    row_address: &'a [u8],
    row_rule: Numbers<'a, 1, 2>,
    rules: &'a [[u8; 8]],
    /// [`Machine::slot_words`](crate::arch::Machine::slot_words) for each rule.
    slots: &'a [[u8; 8]],
    /// One for each rule, or none.
    convention_slots: &'a [[u8; 8]],
    programs: &'a [u8],
    /// The section of Go's runtime, where there is one.
    go_runtime: Option<&'a [u8]>,
    tasks: Option<&'a [u8]>,
    coroutines: Option<&'a [u8]>,
    /// The section of reasons, where there is one.
    pub(crate) reasons: Option<&'a [u8]>,
    pub(crate) source_index: &'a [[u8; 16]],
    pub(crate) source_map: &'a [u8],
    pub(crate) bytes: &'a [u8],
    image_base: Svma,
    arch: Arch,
    producer: &'a str,
    debug_id: &'a str,
}

/// How much a table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Rows: changes of rule along the code.
    pub rows: usize,
    /// Distinct rules.
    pub rules: usize,
    /// Bytes of code that the table spans, gaps included.
    pub text_bytes: u64,
    /// Bytes of programs.
    pub program_bytes: usize,
    /// Bytes of the file, all of which may be touched in memory.
    pub file_bytes: usize,
}

/// Where a section lies: one entry of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirectoryEntry {
    pub(crate) kind: u32,
    pub(crate) crc: u32,
    offset: u64,
    length: u64,
}

impl DirectoryEntry {
    fn read(bytes: &[u8; DIRECTORY_ENTRY_BYTES]) -> Option<Self> {
        Some(Self {
            kind: u32_at(bytes, 0)?,
            crc: u32_at(bytes, 4)?,
            offset: u64_at(bytes, 8)?,
            length: u64_at(bytes, 16)?,
        })
    }

    /// The section's bytes, if they lie in the file after its directory.
    pub(crate) fn slice<'a>(&self, file: &'a [u8]) -> Option<&'a [u8]> {
        let start = usize::try_from(self.offset).ok()?;
        let end = start.checked_add(usize::try_from(self.length).ok()?)?;
        file.get(start..end)
    }
}

impl<'a> Table<'a> {
    /// Opens the table in `bytes`, which must be the whole file.
    pub fn open(bytes: &'a [u8]) -> Result<Self, OpenError> {
        let truncated = OpenError::Truncated { expected: HEADER_BYTES as u64, found: bytes.len() as u64 };
        let header = bytes.first_chunk::<HEADER_BYTES>().ok_or(truncated)?;
        let word = |at| u64_at(header, at).ok_or(truncated);
        let half = |at| u32_at(header, at).ok_or(truncated);
        if !header.starts_with(&MAGIC) {
            return Err(OpenError::NotATable);
        }
        let version =
            header.get(at::VERSION..).and_then(|rest| rest.first_chunk::<2>()).map_or(0, |v| u16::from_le_bytes(*v));
        if version != VERSION {
            return Err(OpenError::Version { found: version });
        }
        let (arch, flags) = (header.get(at::ARCH).copied(), header.get(at::FLAGS).copied());
        let arch = arch.and_then(Arch::from_number).ok_or(OpenError::Arch { found: arch.unwrap_or_default() })?;
        let flags = flags.unwrap_or_default();
        if flags & !(NARROW_ROW_RULES | NARROW_BUCKETS) != 0 {
            return Err(OpenError::Flags { found: flags });
        }
        let file_size = word(at::FILE_SIZE)?;
        if file_size != bytes.len() as u64 {
            return Err(OpenError::Truncated { expected: file_size, found: bytes.len() as u64 });
        }
        let sections = half(at::SECTIONS)? as usize;
        if sections > MAX_SECTIONS {
            return Err(OpenError::Header { what: "more sections than any table has" });
        }
        let directory_end = HEADER_BYTES + sections * DIRECTORY_ENTRY_BYTES;
        let directory =
            bytes.get(HEADER_BYTES..directory_end).ok_or(OpenError::Header { what: "a cut section directory" })?;
        let (before, after) = header.split_at(at::HEADER_CRC);
        if crc32(&[before, &[0; 4], after.get(4..).unwrap_or_default(), directory]) != half(at::HEADER_CRC)? {
            return Err(OpenError::Header { what: "a checksum that does not match" });
        }
        let section = |kind: SectionKind| section(bytes, directory, kind as u32).ok_or(OpenError::Section { kind });

        let (text_start, text_end) = (word(at::TEXT_START)?, word(at::TEXT_END)?);
        let text_size =
            text_end.checked_sub(text_start).ok_or(OpenError::Header { what: "an end of code before its start" })?;
        let rows = usize::try_from(word(at::ROWS)?).ok().filter(|rows| u32::try_from(*rows).is_ok());
        let rows = rows.ok_or(OpenError::Header { what: "more than 2^32 rows" })?;
        let rules = usize::try_from(word(at::RULES)?).ok().filter(|rules| *rules <= MAX_RULES);
        let rules = rules.ok_or(OpenError::Header { what: "more than 65536 rules" })?;
        let buckets =
            usize::try_from(text_size.div_ceil(1 << BUCKET_SHIFT)).ok().and_then(|buckets| buckets.checked_add(1));
        let buckets = buckets.ok_or(OpenError::Section { kind: SectionKind::Buckets })?;
        let text = |kind| core::str::from_utf8(section(kind)?).map_err(|_| OpenError::Section { kind });
        let debug_id = text(SectionKind::DebugId)?;
        let slot_words = rules.checked_mul(arch.machine().slot_words);
        let slot_words = slot_words.ok_or(OpenError::Header { what: "more than 65536 rules" })?;
        let convention_slots = match section(SectionKind::ConventionSlots) {
            Ok(bytes) if !arch.machine().convention_registers.is_empty() => {
                array(bytes, Some(rules), SectionKind::ConventionSlots)?
            }
            _ => &[],
        };
        if debug_id.parse::<DebugId>().is_err() {
            return Err(OpenError::Section { kind: SectionKind::DebugId });
        }
        Ok(Self {
            text_start,
            text_size,
            buckets: Numbers::over(section(SectionKind::Buckets)?, buckets, flags & NARROW_BUCKETS != 0)
                .ok_or(OpenError::Section { kind: SectionKind::Buckets })?,
            row_address: array::<1>(section(SectionKind::RowAddress)?, Some(rows), SectionKind::RowAddress)?
                .as_flattened(),
            row_rule: Numbers::over(section(SectionKind::RowRule)?, rows, flags & NARROW_ROW_RULES != 0)
                .ok_or(OpenError::Section { kind: SectionKind::RowRule })?,
            rules: array(section(SectionKind::Rules)?, Some(rules), SectionKind::Rules)?,
            slots: array(section(SectionKind::Slots)?, Some(slot_words), SectionKind::Slots)?,
            convention_slots,
            programs: section(SectionKind::Programs)?,
            go_runtime: section(SectionKind::GoRuntime).ok(),
            tasks: section(SectionKind::Tasks).ok(),
            coroutines: section(SectionKind::Coroutines).ok(),
            reasons: section(SectionKind::Reasons).ok(),
            source_index: array(section(SectionKind::SourceIndex)?, None, SectionKind::SourceIndex)?,
            source_map: section(SectionKind::SourceMap)?,
            bytes,
            image_base: Svma(word(at::IMAGE_BASE)?),
            arch,
            producer: text(SectionKind::Producer)?,
            debug_id,
        })
    }

    /// The rule at `rva`. `None` outside the code that the table spans; inside, an address without information has a rule of
    /// kind [`Kind::Gap`].
    #[inline(always)]
    pub fn rule(&self, rva: Rva) -> Option<Rule> {
        let number = self.rule_number(rva)?;
        self.rules.get(number).map(|rule| Rule(u64::from_le_bytes(*rule)))
    }

    /// The slots of the other saved registers at `rva`.
    pub fn slots(&self, rva: Rva) -> Option<Slots> {
        self.slots_of(self.rule_number(rva)?)
    }

    /// The slots of the rule of this number.
    pub(crate) fn slots_of(&self, number: usize) -> Option<Slots> {
        let words = self.arch.machine().slot_words;
        let start = number.checked_mul(words)?;
        let from = self.slots.get(start..start.checked_add(words)?)?;
        let mut slots = Slots::SAME;
        for (to, from) in slots.0.iter_mut().zip(from) {
            *to = u64::from_le_bytes(*from);
        }
        if !self.arch.machine().convention_registers.is_empty()
            && let Some(word) = slots.0.get_mut(words)
        {
            *word = self.convention_slots.get(number).map_or(Slots::UNKNOWN_WORD, |from| u64::from_le_bytes(*from));
        }
        Some(slots)
    }

    #[inline(always)]
    fn rule_number(&self, rva: Rva) -> Option<usize> {
        let offset = rva.0.wrapping_sub(self.text_start);
        if offset >= self.text_size {
            return None;
        }
        let bucket = usize::try_from(offset >> BUCKET_SHIFT).ok()?;
        let [first, end] = self.buckets.pair(bucket)?;
        let before_end = first.checked_add(count_up_to(self.row_address, first..end, offset as u8)?)?;
        // The row in force may lie in an earlier bucket: then it is the last one before this bucket's first.
        let row = before_end.checked_sub(1)?;
        self.row_rule.get(row)
    }

    /// The module's debug id.
    pub fn debug_id(&self) -> DebugId {
        // Checked when the table was opened.
        self.debug_id.parse().unwrap_or(DebugId::MachoUuid([0; 16]))
    }

    /// The module's image base: relative addresses count from here.
    pub fn image_base(&self) -> Svma {
        self.image_base
    }

    /// What leads from the stack of a thread to its goroutine, if the module is a Go program and that is known.
    pub fn go_runtime(&self) -> Option<GoRuntime<Rva>> {
        GoRuntime::read(self.go_runtime?, self.text_start, self.text_size)
    }

    /// What leads from a task of Rust to the one that waits for it, if that is known.
    pub(crate) fn tasks(&self) -> Option<TaskTable<'a>> {
        TaskTable::read(self.tasks?)
    }

    pub(crate) fn has_tasks(&self) -> bool {
        self.tasks.is_some()
    }

    /// Whether that is there and well-formed, or not there.
    pub(crate) fn has_sound_tasks(&self) -> bool {
        self.tasks.is_none() || self.tasks().is_some_and(|tasks| tasks.is_sound())
    }

    /// What leads from a coroutine of C++ to the one that waits for it, if that is known.
    pub(crate) fn coroutines(&self) -> Option<CoroutineTable<'a>> {
        CoroutineTable::read(self.coroutines?)
    }

    pub(crate) fn has_coroutines(&self) -> bool {
        self.coroutines.is_some()
    }

    /// Whether that is there and well-formed, or not there.
    pub(crate) fn has_sound_coroutines(&self) -> bool {
        let is_sound = |it: CoroutineTable<'_>| it.is_sound(self.arch.machine());
        self.coroutines.is_none() || self.coroutines().is_some_and(is_sound)
    }

    pub(crate) fn has_go_runtime(&self) -> bool {
        self.go_runtime.is_some()
    }

    /// SHA-256 of the file that the rules were made of.
    pub fn source_sha256(&self) -> [u8; 32] {
        self.bytes.get(at::SOURCE_SHA256..).and_then(|rest| rest.first_chunk::<32>()).copied().unwrap_or_default()
    }

    /// The producer's name and version.
    pub fn producer(&self) -> &'a str {
        self.producer
    }

    /// The processor.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// How much the table holds.
    pub fn counts(&self) -> Counts {
        Counts {
            rows: self.row_address.len(),
            rules: self.rules.len(),
            text_bytes: self.text_size,
            program_bytes: self.programs.len(),
            file_bytes: self.bytes.len(),
        }
    }

    /// Every row: its first address and its rule with the slots that go with it, by rising address. Ends early where the table
    /// is damaged.
    pub fn rows(&self) -> impl Iterator<Item = (Rva, Rule, Slots)> + '_ {
        (0..self.buckets.len()).map_while(|bucket| self.buckets.pair(bucket)).enumerate().flat_map(
            move |(bucket, pair)| {
                let [first, end] = pair;
                let start = self.text_start.wrapping_add((bucket as u64) << BUCKET_SHIFT);
                let addresses = self.row_address.get(first..end).unwrap_or_default();
                addresses.iter().zip(first..end).map_while(move |(address, row)| {
                    let number = self.row_rule.get(row)?;
                    let (rule, slots) = (self.rules.get(number)?, self.slots_of(number)?);
                    let rva = Rva(start.wrapping_add(u64::from(*address)));
                    Some((rva, Rule(u64::from_le_bytes(*rule)), slots))
                })
            },
        )
    }

    /// First address after the code that the table spans.
    pub fn text_end(&self) -> Rva {
        Rva(self.text_start.wrapping_add(self.text_size))
    }

    /// First address of the code that the table spans, rounded down to a bucket.
    pub fn text_start(&self) -> Rva {
        Rva(self.text_start)
    }

    /// Bytes of code that the table spans.
    pub(crate) fn text_bytes(&self) -> u64 {
        self.text_size
    }

    /// The operations of the program of `rule`, without the one that ends it; none for a rule of another kind. Ends early where the program is
    /// damaged, and after the most operations that a program may have.
    pub fn operations(&self, rule: Rule) -> impl Iterator<Item = Operation> + use<'a> {
        let mut rest = self.program(rule);
        let steps = core::iter::from_fn(move || {
            let (operation, length) = cx::decode(rest)?;
            rest = rest.get(length..)?;
            Some(operation)
        });
        steps.take_while(|operation| *operation != Operation::End).take(cx::MAX_STEPS)
    }

    /// The bytes from the program of `rule` on.
    pub(crate) fn program(&self, rule: Rule) -> &'a [u8] {
        if rule.kind() != Some(Kind::Program) {
            return &[];
        }
        usize::try_from(rule.offset()).ok().and_then(|at| self.programs.get(at..)).unwrap_or_default()
    }

    pub(crate) fn buckets(&self) -> Numbers<'a, 2, 4> {
        self.buckets
    }

    pub(crate) fn row_addresses(&self) -> &'a [u8] {
        self.row_address
    }

    pub(crate) fn row_rules(&self) -> Numbers<'a, 1, 2> {
        self.row_rule
    }

    pub(crate) fn all_rules(&self) -> &'a [[u8; 8]] {
        self.rules
    }

    /// The section directory.
    pub(crate) fn directory(&self) -> impl Iterator<Item = DirectoryEntry> + use<'a> {
        let sections = u32_at(self.bytes, at::SECTIONS).unwrap_or(0) as usize;
        let (entries, _) = self.bytes.get(HEADER_BYTES..).unwrap_or_default().as_chunks::<DIRECTORY_ENTRY_BYTES>();
        entries.iter().take(sections).filter_map(DirectoryEntry::read)
    }
}

impl fmt::Debug for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("debug_id", &self.debug_id)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

/// How many of the sorted `addresses` in `range` are at most `low`.
///
/// Eight at a time in one register: a bucket has four rows on average, and a loop over bytes would end at an
/// unpredictable place each time.
#[inline(always)]
fn count_up_to(addresses: &[u8], range: Range<usize>, low: u8) -> Option<usize> {
    let rows = range.end.checked_sub(range.start)?;
    if rows <= 8
        && let Some(eight) = addresses.get(range.start..).and_then(|rest| rest.first_chunk::<8>())
    {
        // Rows of the following buckets become 0xff, which counts only for a bound of 0xff, where all rows count.
        let others = u64::MAX.checked_shl(8 * rows as u32).unwrap_or(0);
        return Some(count_of_eight(u64::from_le_bytes(*eight) | others, low).min(rows));
    }
    Some(count_of_many(addresses.get(range)?, low))
}

/// How many of the eight bytes in `addresses` are at most `low`.
#[inline(always)]
fn count_of_eight(addresses: u64, low: u8) -> usize {
    const LANES: u64 = 0x0001_0001_0001_0001;
    // In each 16-bit lane: 0x100 + low - address keeps bit 8 exactly where address <= low.
    let bound = (u64::from(low) | 0x100) * LANES;
    let even = bound.wrapping_sub(addresses & (LANES * 0xff)) >> 8 & LANES;
    let odd = bound.wrapping_sub(addresses >> 8 & (LANES * 0xff)) >> 8 & LANES;
    ((even + odd).wrapping_mul(LANES) >> 48) as usize
}

#[inline(never)]
fn count_of_many(addresses: &[u8], low: u8) -> usize {
    addresses.partition_point(|address| *address <= low)
}

fn section<'a>(file: &'a [u8], directory: &[u8], kind: u32) -> Option<&'a [u8]> {
    let (entries, _) = directory.as_chunks::<DIRECTORY_ENTRY_BYTES>();
    entries.iter().filter_map(DirectoryEntry::read).find(|entry| entry.kind == kind)?.slice(file)
}

/// The section as an array of `N`-byte elements, of which there must be `length`.
fn array<const N: usize>(bytes: &[u8], length: Option<usize>, kind: SectionKind) -> Result<&[[u8; N]], OpenError> {
    let (elements, rest) = bytes.as_chunks::<N>();
    let fits = rest.is_empty() && length.is_none_or(|length| length == elements.len());
    fits.then_some(elements).ok_or(OpenError::Section { kind })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk::<4>().map(|word| u32::from_le_bytes(*word))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk::<8>().map(|word| u64::from_le_bytes(*word))
}

/// Why bytes are no table that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// They do not begin with the magic number.
    NotATable,
    /// Another version of the format.
    Version {
        /// The version in the header.
        found: u16,
    },
    /// A processor that this version does not know.
    Arch {
        /// The number in the header.
        found: u8,
    },
    /// Flags that this version does not know.
    Flags {
        /// The flags in the header.
        found: u8,
    },
    /// Not as many bytes as the header says.
    Truncated {
        /// Bytes that there should be.
        expected: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// The header contradicts itself.
    Header {
        /// What is wrong with it.
        what: &'static str,
    },
    /// A section is missing, lies outside the file or has an impossible length.
    Section {
        /// Which one.
        kind: SectionKind,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unwind table: ")?;
        match self {
            Self::NotATable => f.write_str("expected a file that begins with UWT1"),
            Self::Version { found } => {
                write!(f, "expected format version {VERSION}, found {found}: make the table again")
            }
            Self::Arch { found } => write!(f, "expected a known processor, found number {found}"),
            Self::Flags { found } => write!(f, "expected no flags, found {found:#x}: made by a newer version"),
            Self::Truncated { expected, found } => write!(f, "expected {expected} bytes, found {found}"),
            Self::Header { what } => write!(f, "the header has {what}"),
            Self::Section { kind } => write!(f, "the section {kind:?} is missing or damaged"),
        }
    }
}

impl core::error::Error for OpenError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn counting_eight_at_a_time_counts_as_one_at_a_time_does() {
        let mut seed = 1u64;
        for length in 0..40usize {
            for _ in 0..200 {
                let mut addresses: Vec<u8> = (0..length)
                    .map(|_| {
                        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        (seed >> 56) as u8
                    })
                    .collect();
                addresses.sort_unstable();
                for low in [0, 1, 127, 128, 254, 255, (seed >> 40) as u8] {
                    let from = length / 3;
                    let expected = addresses[from..].iter().filter(|address| **address <= low).count();
                    assert_eq!(count_up_to(&addresses, from..length, low), Some(expected), "{addresses:?} {low}");
                    // With rows of other buckets behind.
                    let mut longer = addresses.clone();
                    longer.extend([0, 7, 255, 3, 9, 1, 2, 3, 4]);
                    assert_eq!(count_up_to(&longer, from..length, low), Some(expected), "{addresses:?} {low}");
                }
            }
        }
    }
}
