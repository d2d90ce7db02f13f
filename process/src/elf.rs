//! As much of ELF as tells where an image lies and what it is called: program headers and the build-id
//! note (gABI, chapters 4 and 5). Little-endian, of 64 and of 32 bits: what runs on x86_64 Linux, which runs programs for
//! 32 bits too.
//!
//! It reads through a function, so that the same code serves files and the memory of a process.

use core::ops::Range;

use symseal_module::{DebugId, Svma};

const HEADER_BYTES: usize = 64;
const HEADER_BYTES_32: usize = 52;
const PROGRAM_HEADER_BYTES: u16 = 56;
const PROGRAM_HEADER_BYTES_32: u16 = 32;
/// More program headers than any linker writes; `0xffff` would mean that the count is elsewhere.
const MAX_PROGRAM_HEADERS: u16 = 1024;
/// More than all notes that are loaded take in any program.
const MAX_NOTE_BYTES: u64 = 64 << 10;
const PAGE: u64 = 4096;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PF_X: u32 = 1;
const NT_GNU_BUILD_ID: u32 = 3;
/// The longest note of a build-id: its head, its name, and 64 bytes.
const BUILD_ID_NOTE_BYTES: u64 = 16 + 64;

/// Why an image was not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// Nothing can be read at its start.
    #[error("cannot be read")]
    Unreadable,
    /// Not ELF, or not little-endian.
    #[error("is no little-endian ELF image")]
    NotElf,
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
        let (first, rest) = header.split_at_mut(HEADER_BYTES_32);
        if !read(0, first) {
            return Err(ElfError::Unreadable);
        }
        let is_64 = match first.get(..6) {
            Some(b"\x7fELF\x02\x01") => true,
            Some(b"\x7fELF\x01\x01") => false,
            _ => return Err(ElfError::NotElf),
        };
        if is_64 && !read(HEADER_BYTES_32 as u64, rest) {
            return Err(ElfError::Malformed);
        }
        let half = |at| u16_at(&header, at).ok_or(ElfError::Malformed);
        let (table, entry_bytes, count, expected_bytes) = match is_64 {
            true => (u64_at(&header, 32), half(54)?, half(56)?, PROGRAM_HEADER_BYTES),
            false => (u32_at(&header, 28).map(u64::from), half(42)?, half(44)?, PROGRAM_HEADER_BYTES_32),
        };
        let table = table.ok_or(ElfError::Malformed)?;
        if entry_bytes != expected_bytes || count == 0 || count > MAX_PROGRAM_HEADERS {
            return Err(ElfError::Malformed);
        }
        let mut bytes = vec![0; usize::from(entry_bytes) * usize::from(count)];
        if !read(table, &mut bytes) {
            return Err(ElfError::Malformed);
        }
        let entries = bytes.chunks_exact(usize::from(entry_bytes));
        let segments = entries
            .map(if is_64 { segment_at } else { segment_32_at })
            .collect::<Option<Vec<_>>>()
            .ok_or(ElfError::Malformed)?;
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
    ///
    /// Where no segment of notes has one, a note right behind such a segment counts: Go's linker (1.24 and later) has its own id in the
    /// segment, and the build-id behind it.
    pub fn build_id(&self, mut read: impl FnMut(&Segment, &mut [u8]) -> bool) -> Option<DebugId> {
        let is_of_notes = |segment: &&Segment| segment.kind == PT_NOTE && segment.file_bytes <= MAX_NOTE_BYTES;
        let of_notes: Vec<&Segment> = self.segments.iter().filter(is_of_notes).collect();
        let mut first_bytes = |segment: &Segment, bytes: u64| {
            let mut notes = vec![0; usize::try_from(bytes).ok()?];
            read(segment, &mut notes).then_some(notes)
        };
        let within =
            of_notes.iter().find_map(|segment| build_id_in(&first_bytes(segment, segment.file_bytes)?, segment.align));
        within.or_else(|| {
            of_notes.iter().find_map(|segment| {
                let behind = self.note_behind(segment)?;
                let notes = first_bytes(segment, behind.end)?;
                build_id_of(notes.get(usize::try_from(behind.start).ok()?..)?)
            })
        })
    }

    /// Where a note of a build-id may lie behind a segment of notes, in bytes from that segment's beginning: no further than what is loaded with it.
    fn note_behind(&self, notes: &Segment) -> Option<Range<u64>> {
        let start = notes.file_bytes.checked_next_multiple_of(4)?;
        let room = |loaded: &Segment| {
            let at = notes.svma.0.checked_sub(loaded.svma.0)?;
            loaded.file_bytes.checked_sub(at).filter(|room| *room > start)
        };
        let room = self.loaded().find_map(room)?;
        Some(start..start.saturating_add(BUILD_ID_NOTE_BYTES).min(room))
    }
}

/// The build-id of a note that is nothing else.
fn build_id_of(note: &[u8]) -> Option<DebugId> {
    let is_build_id = u32_at(note, 0)? == 4 && u32_at(note, 8)? == NT_GNU_BUILD_ID && note.get(12..16)? == b"GNU\0";
    if is_build_id { build_id_in(note, 4) } else { None }
}

/// The build-id among notes whose parts are aligned to `align` bytes (4, or 8 where the segment says so).
pub(crate) fn build_id_in(mut notes: &[u8], align: u64) -> Option<DebugId> {
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

fn segment_32_at(entry: &[u8]) -> Option<Segment> {
    let field = |at| u32_at(entry, at).map(u64::from);
    Some(Segment {
        kind: u32_at(entry, 0)?,
        flags: u32_at(entry, 24)?,
        offset: field(4)?,
        svma: Svma(field(8)?),
        file_bytes: field(16)?,
        memory_bytes: field(20)?,
        align: field(28)?,
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Result<ElfImage, ElfError> {
        ElfImage::read(|offset, out| copy(bytes, offset, out))
    }

    fn copy(bytes: &[u8], offset: u64, out: &mut [u8]) -> bool {
        let from = usize::try_from(offset).ok().and_then(|from| bytes.get(from..)?.get(..out.len()));
        from.map(|from| out.copy_from_slice(from)).is_some()
    }

    fn note(name: &[u8], kind: u32, value: &[u8], align: usize) -> Vec<u8> {
        let mut note = Vec::new();
        note.extend((name.len() as u32).to_le_bytes());
        note.extend((value.len() as u32).to_le_bytes());
        note.extend(kind.to_le_bytes());
        note.extend(name);
        note.resize(note.len().next_multiple_of(align), 0);
        note.extend(value);
        note.resize(note.len().next_multiple_of(align), 0);
        note
    }

    /// An image with these segments: type, flags, offset, svma, bytes in file, bytes in memory.
    fn image(segments: &[[u64; 6]]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&PROGRAM_HEADER_BYTES.to_le_bytes());
        bytes[56..58].copy_from_slice(&(segments.len() as u16).to_le_bytes());
        for [kind, flags, offset, svma, file_bytes, memory_bytes] in segments {
            bytes.extend((*kind as u32).to_le_bytes());
            bytes.extend((*flags as u32).to_le_bytes());
            for field in [offset, svma, svma, file_bytes, memory_bytes, &4] {
                bytes.extend(field.to_le_bytes());
            }
        }
        bytes
    }

    #[test]
    fn the_bias_is_that_of_the_segment_that_the_mapping_comes_from() {
        // As lld lays them out: every segment's address is one page further than its offset.
        let image = read(&image(&[
            [1, 4, 0, 0, 0x1234, 0x1234],
            [1, 5, 0x1240, 0x2240, 0x800, 0x800],
            [1, 6, 0x1a40, 0x3a40, 0x10, 0x5000],
        ]))
        .unwrap();
        assert_eq!(image.bias(0x7f00_0000_2000, 0x1000), Some(0x7f00_0000_0000), "the code, not the headers before it");
        assert_eq!(image.bias(0x7f00_0000_0000, 0), Some(0x7f00_0000_0000));
        assert_eq!(image.bias(0x7f00_0000_2000, 0x9000), None);
        assert_eq!(image.image_base(), Svma(0));
        assert_eq!(image.image_end(), Some(Svma(0x9000)));
    }

    #[test]
    fn an_executable_at_its_own_address_has_no_bias() {
        let image = read(&image(&[[1, 5, 0x1000, 0x40_1000, 0x100, 0x100]])).unwrap();
        assert_eq!(image.bias(0x40_1000, 0x1000), Some(0));
    }

    #[test]
    fn an_image_linked_above_its_place_has_a_bias_below_zero() {
        let image = read(&image(&[[1, 5, 0, 0xffff_0000, 0x100, 0x100]])).unwrap();
        let bias = image.bias(0x1_0000, 0).unwrap();
        assert_eq!(0xffff_0010u64.wrapping_add(bias), 0x1_0010);
    }

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let mut notes = note(b"GNU\0", 1, &[0; 16], 4);
        notes.extend(note(b"stapsdt\0", 3, &[9; 5], 4));
        notes.extend(note(b"GNU\0", 3, &[0xab; 20], 4));
        assert_eq!(build_id_in(&notes, 4).unwrap().to_string(), "ab".repeat(20));
        let wide = [note(b"GNU\0", 5, &[1; 12], 8), note(b"GNU\0", 3, &[0xcd; 20], 8)].concat();
        assert_eq!(build_id_in(&wide, 8).unwrap().to_string(), "cd".repeat(20));
    }

    #[test]
    fn a_build_id_right_behind_the_segment_of_notes_counts_as_far_as_it_is_loaded() {
        let go = note(b"Go\0\0", 4, b"an id of Go's own, 25 byte", 4);
        let (first, gnu) = (0x200, note(b"GNU\0", NT_GNU_BUILD_ID, &[0xab; 20], 4));
        let build = |behind: &[u8], loaded: u64| {
            let length = go.len() as u64;
            let mut bytes = image(&[
                [u64::from(PT_LOAD), 5, 0, 0x40_0000, loaded, loaded],
                [u64::from(PT_NOTE), 4, first, 0x40_0000 + first, length, length],
            ]);
            bytes.resize(first as usize, 0);
            bytes.extend(go.iter().chain(behind));
            bytes.resize(0x1000, 0xcc);
            read(&bytes).unwrap().build_id(|segment, out| copy(&bytes, segment.offset, out)).map(|id| id.to_string())
        };
        let end = first + (go.len() + gnu.len()) as u64;
        assert_eq!(build(&gnu, 0x1000), Some("ab".repeat(20)));
        assert_eq!(build(&gnu, end), Some("ab".repeat(20)));
        assert_eq!(build(&gnu, end - 1), None, "it is not loaded whole");
        assert_eq!(build(&note(b"GNU\0", 1, &[0xab; 20], 4), 0x1000), None);
        assert_eq!(build(&[&[1; 4][..], &gnu].concat(), 0x1000), None, "it is not right behind");
    }

    #[test]
    fn notes_without_a_build_id_give_none() {
        assert_eq!(build_id_in(&[], 4), None);
        assert_eq!(build_id_in(&note(b"GNU\0", 1, &[0; 16], 4), 4), None);
        assert_eq!(build_id_in(&note(b"GNU\0", 3, &[0; 20], 4), 4), None, "zeroes identify nothing");
        assert_eq!(build_id_in(&note(b"GNU\0", 3, &[7; 20], 4)[..30], 4), None, "cut short");
        assert_eq!(build_id_in(&[0xff; 40], 4), None, "sizes beyond the end");
    }

    #[test]
    fn what_is_no_image_is_told_apart() {
        assert_eq!(read(b""), Err(ElfError::Unreadable));
        assert_eq!(read(&[b'x'; 64]), Err(ElfError::NotElf));
        assert_eq!(read(&[&b"\x7fELF\x02\x01"[..], &[0; 50]].concat()), Err(ElfError::Malformed), "half a header");
        assert_eq!(read(&image(&[])), Err(ElfError::Malformed));
        assert_eq!(read(&image(&[[4, 4, 0, 0, 0, 0]])), Err(ElfError::Malformed), "nothing is loaded");
        let mut short = image(&[[1, 5, 0, 0, 1, 1]]);
        short.pop();
        assert_eq!(read(&short), Err(ElfError::Malformed));
    }

    proptest! {
        #[test]
        fn no_image_makes_the_reader_panic(edits in prop::collection::vec((0..512usize, any::<u8>()), 0..8), cut in 0..600usize) {
            let mut bytes = image(&[[1, 5, 0x1000, 0x1000, 0x100, 0x100], [4, 4, 176, 176, 100, 100]]);
            bytes.extend(note(b"GNU\0", 3, &[7; 20], 4));
            bytes.resize(512, 0);
            for (at, byte) in edits {
                bytes[at] = byte;
            }
            bytes.truncate(cut);
            if let Ok(image) = read(&bytes) {
                let _ = image.build_id(|segment, out| copy(&bytes, segment.offset, out));
                let _ = (image.bias(u64::MAX, 0), image.bias(0, u64::MAX), image.image_end(), image.image_base());
            }
        }
    }
}
