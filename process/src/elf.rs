//! As much of ELF as tells where an image lies and what it is called: program headers and the build-id
//! note (gABI, chapters 4 and 5). Little-endian, 64 bits: what runs on x86_64 Linux.
//!
//! It reads through a function, so that the same code serves files and the memory of a process.

use symseal_module::{DebugId, Svma};

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: u16 = 56;
/// More program headers than any linker writes; `0xffff` would mean that the count is elsewhere.
const MAX_PROGRAM_HEADERS: u16 = 1024;
/// More than all notes that are loaded take in any program.
const MAX_NOTE_BYTES: u64 = 64 << 10;
const PAGE: u64 = 4096;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PF_X: u32 = 1;
const NT_GNU_BUILD_ID: u32 = 3;

/// Why an image was not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// Nothing can be read at its start.
    #[error("cannot be read")]
    Unreadable,
    /// Not ELF, or not of 64 bits and little-endian.
    #[error("is no little-endian 64-bit ELF image")]
    NotElf64,
    /// Its headers contradict themselves.
    #[error("has malformed ELF headers")]
    Malformed,
}

/// One program header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// `p_type`.
    pub kind: u32,
    /// `p_flags`.
    pub flags: u32,
    /// `p_offset`: where its bytes are in the file.
    pub offset: u64,
    /// `p_vaddr`: its stated address.
    pub svma: Svma,
    /// `p_filesz`: bytes in the file.
    pub file_bytes: u64,
    /// `p_memsz`: bytes in memory.
    pub memory_bytes: u64,
    /// `p_align`.
    pub align: u64,
}

/// The program headers of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElfImage {
    segments: Vec<Segment>,
}

impl ElfImage {
    /// Reads the headers. `read(offset, out)` fills `out` from the file's byte `offset` on, or says false.
    pub fn read(mut read: impl FnMut(u64, &mut [u8]) -> bool) -> Result<Self, ElfError> {
        let mut header = [0; HEADER_BYTES];
        if !read(0, &mut header) {
            return Err(ElfError::Unreadable);
        }
        if !header.starts_with(b"\x7fELF\x02\x01") {
            return Err(ElfError::NotElf64);
        }
        let field = |at| u64_at(&header, at).ok_or(ElfError::Malformed);
        let half = |at| u16_at(&header, at).ok_or(ElfError::Malformed);
        let (table, entry_bytes, count) = (field(32)?, half(54)?, half(56)?);
        if entry_bytes != PROGRAM_HEADER_BYTES || count == 0 || count > MAX_PROGRAM_HEADERS {
            return Err(ElfError::Malformed);
        }
        let mut bytes = vec![0; usize::from(entry_bytes) * usize::from(count)];
        if !read(table, &mut bytes) {
            return Err(ElfError::Malformed);
        }
        let entries = bytes.chunks_exact(usize::from(entry_bytes));
        let segments = entries.map(segment_at).collect::<Option<Vec<_>>>().ok_or(ElfError::Malformed)?;
        if !segments.iter().any(|segment| segment.kind == PT_LOAD) {
            return Err(ElfError::Malformed);
        }
        Ok(Self { segments })
    }

    /// Every program header, in file order.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Those that are loaded.
    pub fn loaded(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.kind == PT_LOAD)
    }

    /// The image base: the lowest stated address of what is loaded.
    pub fn image_base(&self) -> Svma {
        self.loaded().map(|segment| segment.svma).min().unwrap_or_default()
    }

    /// The first stated address after what is loaded, rounded up to a page.
    pub fn image_end(&self) -> Option<Svma> {
        let ends = self.loaded().map(|segment| segment.svma.0.checked_add(segment.memory_bytes));
        let end = ends.collect::<Option<Vec<_>>>()?.into_iter().max()?;
        Some(Svma(end.checked_next_multiple_of(PAGE)?))
    }

    /// Actual minus stated address (wrapping) of an executable mapping that starts at `start` and maps the file from
    /// `offset` on: the bias of the loaded segment that `offset` lies in. `None` where it lies in none.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let holds = |segment: &&Segment| {
            let first = segment.offset & !(PAGE - 1);
            first <= offset && offset < segment.offset.saturating_add(segment.file_bytes)
        };
        // Neighbouring segments may share the file page at their border; only one of them is code.
        let code = self.loaded().filter(holds).find(|segment| segment.flags & PF_X != 0);
        let segment = code.or_else(|| self.loaded().find(holds))?;
        Some(start.wrapping_sub(offset).wrapping_add(segment.offset).wrapping_sub(segment.svma.0))
    }

    /// The build-id in the image's notes. `read(segment, out)` fills `out` from that segment's start on,
    /// or says false.
    pub fn build_id(&self, mut read: impl FnMut(&Segment, &mut [u8]) -> bool) -> Option<DebugId> {
        let notes = self.segments.iter().filter(|segment| segment.kind == PT_NOTE);
        notes.filter(|segment| segment.file_bytes <= MAX_NOTE_BYTES).find_map(|segment| {
            let mut bytes = vec![0; usize::try_from(segment.file_bytes).ok()?];
            if !read(segment, &mut bytes) {
                return None;
            }
            build_id_in(&bytes, segment.align)
        })
    }
}

/// The build-id among notes whose parts are aligned to `align` bytes (4, or 8 where the segment says so).
fn build_id_in(mut notes: &[u8], align: u64) -> Option<DebugId> {
    let align = if align == 8 { 8 } else { 4 };
    loop {
        let (name_bytes, value_bytes, kind) = (u32_at(notes, 0)?, u32_at(notes, 4)?, u32_at(notes, 8)?);
        let name_end = 12usize.checked_add(name_bytes as usize)?;
        let value_start = name_end.checked_next_multiple_of(align)?;
        let value_end = value_start.checked_add(value_bytes as usize)?;
        let (name, value) = (notes.get(12..name_end)?, notes.get(value_start..value_end)?);
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" {
            return DebugId::from_build_id(value).ok();
        }
        notes = notes.get(value_end.checked_next_multiple_of(align)?..)?;
    }
}

fn segment_at(entry: &[u8]) -> Option<Segment> {
    Some(Segment {
        kind: u32_at(entry, 0)?,
        flags: u32_at(entry, 4)?,
        offset: u64_at(entry, 8)?,
        svma: Svma(u64_at(entry, 16)?),
        file_bytes: u64_at(entry, 32)?,
        memory_bytes: u64_at(entry, 40)?,
        align: u64_at(entry, 48)?,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
