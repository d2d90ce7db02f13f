//! The header and the section directory: where everything lies. See `docs/formats/symx.md`.

use crate::OpenError;
use crate::checksum::crc32c;
use crate::phrases::{MAX_PHRASES, PHRASE_BYTES};
use symseal_module::{DebugId, Svma};

/// The first bytes of every table.
pub(crate) const MAGIC: [u8; 4] = *b"SYMX";
/// The version that this crate writes and reads.
pub(crate) const VERSION: u16 = 1;
/// Header flag: block starts and function ranges are 64 bits wide.
pub(crate) const WIDE: u16 = 1;
/// Header flag: names are in phrases.
pub(crate) const PHRASED: u16 = 2;
/// Header flag: contexts are in sites.
pub(crate) const SITED: u16 = 4;
/// Header flag: records take as many bits as the table needs, and lines count from those of their code.
pub(crate) const TIGHT: u16 = 8;
/// Bytes of the header before the section directory.
pub(crate) const HEADER_BYTES: usize = 136;
/// Bytes of one entry of the section directory.
pub(crate) const ENTRY_BYTES: usize = 32;
/// More sections than this are refused, so that a header's check stays short.
const MAX_SECTIONS: usize = 64;
/// Where the header's own checksum lies.
pub(crate) const CHECKSUM_AT: usize = 128;
/// Every section starts at a multiple of this many bytes.
pub(crate) const ALIGNMENT: usize = 8;
/// The longest producer, in bytes.
pub(crate) const MAX_PRODUCER_BYTES: usize = 255;
/// The longest chain of frames at one address.
pub(crate) const MAX_FRAMES: u32 = 1024;

/// Bits of a function's flags.
pub(crate) const FLAG_APPROXIMATE: u8 = 1;
pub(crate) const FLAG_FOLDED: u8 = 2;
pub(crate) const FLAG_PART: u8 = 4;
pub(crate) const FLAG_ALIASED: u8 = 8;

/// The sections, by number. All of them are present in every table, in this order, but for the last ones: each is there where the header's flags ask for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SectionId {
    Producer = 1,
    BlockStarts,
    Blocks,
    Rows,
    Contexts,
    Places,
    Functions,
    Aliased,
    Aliases,
    Paths,
    Names,
    ColumnBlocks,
    Columns,
    CallColumns,
    Phrases,
    Owners,
    Sites,
    Pairs,
}

/// How many sections this version knows.
pub(crate) const SECTIONS: usize = 18;

impl SectionId {
    pub(crate) const ALL: [Self; SECTIONS] = [
        Self::Producer,
        Self::BlockStarts,
        Self::Blocks,
        Self::Rows,
        Self::Contexts,
        Self::Places,
        Self::Functions,
        Self::Aliased,
        Self::Aliases,
        Self::Paths,
        Self::Names,
        Self::ColumnBlocks,
        Self::Columns,
        Self::CallColumns,
        Self::Phrases,
        Self::Owners,
        Self::Sites,
        Self::Pairs,
    ];

    pub(crate) fn number(self) -> u32 {
        self as u32
    }

    /// Whether records take some bits each, in a table with these flags.
    fn is_packed(self, flags: u16) -> bool {
        match self {
            Self::Rows | Self::Contexts | Self::Columns | Self::Owners | Self::Sites => true,
            Self::Places => flags & (SITED | TIGHT) != 0,
            Self::Blocks | Self::Functions => flags & TIGHT != 0,
            _ => false,
        }
    }

    /// Whether the section is there, in a table with these flags.
    pub(crate) fn is_present(self, flags: u16) -> bool {
        match self {
            Self::Phrases => flags & PHRASED != 0,
            Self::Owners | Self::Sites => flags & SITED != 0,
            Self::Pairs => flags & TIGHT != 0,
            _ => true,
        }
    }

    /// Whether the section holds columns, which are reported apart from the core.
    pub(crate) fn holds_columns(self) -> bool {
        matches!(self, Self::ColumnBlocks | Self::Columns | Self::CallColumns)
    }

    /// Bytes of a record of fixed size, in a table with these flags; `None` where records differ in size.
    fn record_bytes(self, flags: u16) -> Option<u64> {
        let wide = flags & WIDE != 0;
        match self {
            packed if packed.is_packed(flags) => None,
            Self::BlockStarts => Some(if wide { 8 } else { 4 }),
            Self::Blocks => Some(16),
            Self::Aliases => Some(4),
            Self::Places => Some(12),
            Self::Aliased | Self::ColumnBlocks | Self::Pairs => Some(8),
            Self::Functions => Some(if wide { 36 } else { 28 }),
            Self::Phrases => Some(PHRASE_BYTES as u64),
            _ => None,
        }
    }
}

/// One section of an opened table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Section<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) count: u64,
}

/// Where a section lies in its file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) count: u64,
}

/// What the header says: what the table is of, and where everything in it lies.
#[derive(Clone, Debug)]
pub(crate) struct Outline {
    pub(crate) wide: bool,
    /// Names are in phrases.
    pub(crate) phrased: bool,
    /// Contexts are in sites.
    pub(crate) sited: bool,
    /// Blocks, rows, places and functions are tight.
    pub(crate) tight: bool,
    pub(crate) image_base: Svma,
    pub(crate) source_sha256: [u8; 32],
    pub(crate) debug_id: DebugId,
    sections: [Extent; SECTIONS],
}

/// The header over the whole file.
#[derive(Clone, Debug)]
pub(crate) struct Header<'a> {
    pub(crate) outline: Outline,
    bytes: &'a [u8],
}

impl<'a> Header<'a> {
    /// Reads and checks header and directory; no section is looked into.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, OpenError> {
        Ok(Self { outline: Outline::read(bytes, bytes.len() as u64)?, bytes })
    }

    pub(crate) fn section(&self, id: SectionId) -> Section<'a> {
        let extent = self.outline.section(id);
        // It ends in the file: that was checked.
        let bytes = self.bytes.get(extent.offset as usize..).and_then(|rest| rest.get(..extent.size as usize));
        Section { bytes: bytes.unwrap_or_default(), count: extent.count }
    }
}

impl Outline {
    pub(crate) fn section(&self, id: SectionId) -> Extent {
        self.sections.get(id as usize - 1).copied().unwrap_or_default()
    }

    /// Bytes of header and directory, as the first [`HEADER_BYTES`] say.
    pub(crate) fn head_bytes(header: &[u8]) -> u64 {
        (HEADER_BYTES + usize::from(u16_at(header, 58)).min(MAX_SECTIONS) * ENTRY_BYTES) as u64
    }

    /// Reads and checks header and directory of a file of `found` bytes, of which `bytes` are the first.
    pub(crate) fn read(bytes: &[u8], found: u64) -> Result<Self, OpenError> {
        if bytes.get(..MAGIC.len()) != Some(&MAGIC) {
            return Err(OpenError::Magic);
        }
        let (fixed, _) = bytes
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(OpenError::Size { expected: HEADER_BYTES as u64, found })?;
        let version = u16_at(fixed, 4);
        if version != VERSION {
            return Err(OpenError::Version { found: version });
        }
        let expected = u64_at(fixed, 8);
        if expected != found {
            return Err(OpenError::Size { expected, found });
        }
        let count = usize::from(u16_at(fixed, 58));
        if count > MAX_SECTIONS {
            return Err(OpenError::Header { field: "number of sections" });
        }
        let directory = bytes
            .get(HEADER_BYTES..HEADER_BYTES + count * ENTRY_BYTES)
            .ok_or(OpenError::Size { expected: (HEADER_BYTES + count * ENTRY_BYTES) as u64, found })?;
        let (before, rest) = fixed.split_at(CHECKSUM_AT);
        let after = rest.get(4..).unwrap_or_default();
        if crc32c(&[before, &[0; 4], after, directory]) != u32_at(fixed, CHECKSUM_AT) {
            return Err(OpenError::Checksum);
        }
        let flags = u16_at(fixed, 6);
        // Fields of 64 bits are not packed.
        if flags & !(WIDE | PHRASED | SITED | TIGHT) != 0 || flags & (WIDE | TIGHT) == WIDE | TIGHT {
            return Err(OpenError::Header { field: "flag" });
        }
        if u32_at(fixed, CHECKSUM_AT + 4) != 0 {
            return Err(OpenError::Header { field: "reserved field" });
        }
        let mut source_sha256 = [0; 32];
        source_sha256.copy_from_slice(fixed.get(24..56).unwrap_or(&[0; 32]));
        let outline = Self {
            wide: flags & WIDE != 0,
            phrased: flags & PHRASED != 0,
            sited: flags & SITED != 0,
            tight: flags & TIGHT != 0,
            image_base: Svma(u64_at(fixed, 16)),
            source_sha256,
            debug_id: read_debug_id(fixed)?,
            sections: read_directory(found, directory, flags)?,
        };
        outline.check_counts()?;
        Ok(outline)
    }

    /// Sections of which one has a record for each of the other.
    fn check_counts(&self) -> Result<(), OpenError> {
        let blocks = self.section(SectionId::BlockStarts).count;
        let columns = self.section(SectionId::ColumnBlocks).count;
        let fault = |id: SectionId| OpenError::Section { id: id.number(), problem: "has not one record per block" };
        if self.section(SectionId::Blocks).count != blocks {
            return Err(fault(SectionId::Blocks));
        }
        if columns != 0 && columns != blocks {
            return Err(fault(SectionId::ColumnBlocks));
        }
        let phrases = self.section(SectionId::Phrases).count;
        if self.phrased && !(1..=MAX_PHRASES as u64).contains(&phrases) {
            return Err(OpenError::Section {
                id: SectionId::Phrases.number(),
                problem: "has an impossible number of phrases",
            });
        }
        self.call_column_bytes().map(drop)
    }

    /// Bytes of the column of a call, of which there is one for each context: 1, 2 or 4; 0 = there are none.
    pub(crate) fn call_column_bytes(&self) -> Result<u64, OpenError> {
        let (columns, contexts) = (self.section(SectionId::CallColumns), self.section(SectionId::Contexts));
        let fault =
            OpenError::Section { id: SectionId::CallColumns.number(), problem: "has not one record per context" };
        match columns.size.checked_div(columns.count) {
            None if columns.size == 0 => Ok(0),
            _ if columns.count != contexts.count || !columns.size.is_multiple_of(columns.count) => Err(fault),
            Some(width @ (1 | 2 | 4)) => Ok(width),
            _ => Err(fault),
        }
    }

    /// The producer, which `bytes` of its section say.
    pub(crate) fn producer(bytes: &[u8]) -> Result<&str, OpenError> {
        core::str::from_utf8(bytes)
            .ok()
            .filter(|text| text.len() <= MAX_PRODUCER_BYTES)
            .ok_or(OpenError::Section { id: SectionId::Producer.number(), problem: "is no text of at most 255 bytes" })
    }
}

fn read_debug_id(fixed: &[u8; HEADER_BYTES]) -> Result<DebugId, OpenError> {
    let fault = OpenError::Header { field: "debug id" };
    let len = usize::from(fixed[57]);
    let field = fixed.get(64..128).unwrap_or_default();
    let (Some(id), Some(padding)) = (field.get(..len), field.get(len..)) else { return Err(fault) };
    let age = u32_at(fixed, 60);
    if padding.iter().any(|byte| *byte != 0) || (age != 0 && fixed[56] != 2) {
        return Err(fault);
    }
    match fixed[56] {
        1 => DebugId::from_build_id(id).map_err(|_| fault),
        2 => id.try_into().map(|guid| DebugId::Pdb { guid, age }).map_err(|_| fault),
        3 => id.try_into().map(DebugId::MachoUuid).map_err(|_| fault),
        _ => Err(fault),
    }
}

/// Kind, length, PDB age and padded bytes of an id, as the header has them.
pub(crate) fn debug_id_fields(id: &DebugId) -> (u8, u8, u32, [u8; 64]) {
    let mut field = [0; 64];
    for (slot, byte) in field.iter_mut().zip(id.as_bytes()) {
        *slot = *byte;
    }
    let (kind, age) = match id {
        DebugId::BuildId(_) => (1, 0),
        DebugId::Pdb { age, .. } => (2, *age),
        DebugId::MachoUuid(_) => (3, 0),
    };
    (kind, id.as_bytes().len() as u8, age, field)
}

/// Sections this version does not know are left alone: a later version may add some.
fn read_directory(file_size: u64, directory: &[u8], flags: u16) -> Result<[Extent; SECTIONS], OpenError> {
    let mut sections = [None; SECTIONS];
    let mut free_from = (HEADER_BYTES + directory.len()) as u64;
    let mut before = 0;
    for entry in directory.as_chunks::<ENTRY_BYTES>().0 {
        let id = u32_at(entry, 0);
        let fault = |problem| OpenError::Section { id, problem };
        let (offset, size, count) = (u64_at(entry, 8), u64_at(entry, 16), u64_at(entry, 24));
        if id <= before {
            return Err(fault("is out of order"));
        }
        if offset < free_from || !offset.is_multiple_of(ALIGNMENT as u64) {
            return Err(fault("overlaps its predecessor or is not aligned"));
        }
        before = id;
        free_from = offset.checked_add(size).ok_or(fault("does not end in the file"))?;
        if free_from > file_size {
            return Err(fault("does not end in the file"));
        }
        let Some(known) = SectionId::ALL.into_iter().find(|known| known.number() == id) else { continue };
        if !known.is_present(flags) {
            return Err(fault("is not what the header asks for"));
        }
        let fits = match known.record_bytes(flags) {
            Some(record) => count.checked_mul(record) == Some(size),
            // Packed records may take less than a byte each.
            None => count <= size || known.is_packed(flags),
        };
        if !fits {
            return Err(fault("has another size than its records"));
        }
        if let Some(slot) = sections.get_mut(id as usize - 1) {
            *slot = Some(Extent { offset, size, count });
        }
    }
    let mut complete = [Extent::default(); SECTIONS];
    for (id, (slot, section)) in SectionId::ALL.into_iter().zip(complete.iter_mut().zip(sections)) {
        let absent = (!id.is_present(flags)).then(Extent::default);
        *slot = section.or(absent).ok_or(OpenError::Section { id: id.number(), problem: "is missing" })?;
    }
    Ok(complete)
}

/// The little-endian number at `at`; 0 outside of `bytes`.
#[inline(always)]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |field| u16::from_le_bytes(*field))
}

/// The little-endian number at `at`; 0 outside of `bytes`.
#[inline(always)]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |field| u32::from_le_bytes(*field))
}

/// The little-endian number at `at`; 0 outside of `bytes`.
#[inline(always)]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |field| u64::from_le_bytes(*field))
}
