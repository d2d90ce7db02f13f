//! Build-ids: the notes that carry them, and what stands in where there is none.

use super::headers::Elf;
use super::{gabi, links, loaded};
use crate::IdKind;
use crate::proportion::{in_proportion, is_in_proportion};
use sha2::{Digest, Sha256};
use symseal_module::{DebugId, MAX_BUILD_ID_BYTES, ParseDebugIdError};

/// Bytes of ids that are made from a SHA-256, as many as the common build-id has.
const DERIVED_ID_BYTES: usize = 20;

/// Go's note: name `Go`, this type. (cmd/internal/buildid)
const NT_GO_BUILDID: u32 = 4;

/// A note's name without its NUL, type and content.
struct Note<'d> {
    name: &'d [u8],
    kind: u32,
    content: &'d [u8],
}

/// The id in the file's notes: GNU before Go, sections before segments, the first of each. What a supplementary file of DWARF 5
/// has instead is its checksum, which others name it by.
pub(crate) fn identity(elf: &Elf<'_>) -> Option<(DebugId, IdKind)> {
    let mut go = None;
    for bytes in note_areas(elf) {
        for note in notes(elf, bytes.0, bytes.1) {
            match (note.name, note.kind) {
                (b"GNU", gabi::NT_GNU_BUILD_ID) => {
                    // No byte, or zeros alone, identify nothing.
                    match DebugId::from_build_id(note.content) {
                        Ok(id) => return Some((id, IdKind::GnuBuildId)),
                        Err(ParseDebugIdError::Length { bytes }) if bytes > MAX_BUILD_ID_BYTES => {
                            let id = shortened(Sha256::digest(note.content).as_slice())?;
                            return Some((id, IdKind::LongBuildId));
                        }
                        Err(_) => {}
                    }
                }
                (b"Go", NT_GO_BUILDID) if go.is_none() && !note.content.is_empty() => {
                    go = shortened(Sha256::digest(note.content).as_slice());
                }
                _ => {}
            }
        }
    }
    let of_supplementary = || DebugId::from_build_id(links::supplementary_checksum(elf)?).ok();
    go.map(|id| (id, IdKind::GoBuildId)).or_else(|| of_supplementary().map(|id| (id, IdKind::GnuBuildId)))
}

/// The text of Go's note.
pub(crate) fn go_build_id<'d>(elf: &Elf<'d>) -> Option<&'d [u8]> {
    let mut all = note_areas(elf).flat_map(|(bytes, align)| notes(elf, bytes, align));
    all.find(|note| note.name == b"Go" && note.kind == NT_GO_BUILDID && !note.content.is_empty())
        .map(|note| note.content)
}

/// An id from the code's addresses and bytes; from those of the data where there is no code, and from both in a kernel module, whose
/// code is the same as that of others until it is relocated. None where nothing of that is stored, and where sections lie over each other so
/// often that it is [too much for the file](crate::proportion).
///
/// The bytes of the loaded sections are the same before and after stripping, headers and segments are not.
pub(crate) fn text_hash(elf: &Elf<'_>) -> Option<DebugId> {
    let parts = identifying(elf);
    let lengths = parts.iter().map(|(_, bytes)| bytes.len());
    if parts.iter().all(|(_, bytes)| bytes.is_empty()) || !is_in_proportion(elf.file_bytes(), lengths) {
        return None;
    }
    let mut hash = Sha256::new();
    for (svma, bytes) in parts {
        hash.update(svma.to_le_bytes());
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    }
    shortened(hash.finalize().as_slice())
}

/// What tells the file from others, with its stated addresses: of sections; of segments where no section is executable.
fn identifying<'d>(elf: &Elf<'d>) -> Vec<(u64, &'d [u8])> {
    if loaded::is_data_alone(elf) || loaded::is_kernel_module(elf) {
        let content = elf.sections.iter().filter(|section| loaded::is_content(section));
        return content.map(|section| (section.addr, section.bytes)).collect();
    }
    if elf.sections.iter().any(|section| section.is_executable()) {
        let code = elf.sections.iter().filter(|section| section.is_executable() && section.is_stored());
        return code.map(|section| (section.addr, section.bytes)).collect();
    }
    let segments = elf.segments.iter();
    let code = segments.filter(|segment| segment.kind == gabi::PT_LOAD && segment.flags & gabi::PF_X != 0);
    code.map(|segment| (segment.vaddr, elf.segment_bytes(segment).unwrap_or_default())).collect()
}

fn shortened(digest: &[u8]) -> Option<DebugId> {
    DebugId::from_build_id(digest.get(..DERIVED_ID_BYTES)?).ok()
}

/// Where notes stand, with their alignment. Some files have them in sections only, some in segments only.
fn note_areas<'d>(elf: &Elf<'d>) -> impl Iterator<Item = (&'d [u8], u64)> {
    let sections = elf.sections.iter().filter(|section| section.kind == gabi::SHT_NOTE);
    let segments = elf.segments.iter().filter(|segment| segment.kind == gabi::PT_NOTE);
    let sections = sections.map(|section| (section.bytes, section.align));
    // A debug file's program headers speak of the binary's bytes; what lies there is not a note, and is not read as one.
    let areas = sections.chain(segments.filter_map(|segment| Some((elf.segment_bytes(segment)?, segment.align))));
    in_proportion(elf.file_bytes(), areas, |area| area.0.len())
}

fn notes<'d>(elf: &Elf<'d>, mut rest: &'d [u8], align: u64) -> impl Iterator<Item = Note<'d>> {
    // 8 only where the header says so; anything else is 4. (gABI "Note Section", and binutils for the 8)
    let align = if align == 8 { 8_usize } else { 4 };
    let fields = elf.fields(rest);
    let is_little_endian = fields.is_little_endian;
    std::iter::from_fn(move || {
        let header = crate::fields::Fields { bytes: rest, is_little_endian };
        let name_size = header.u32(0)? as usize;
        let content_size = header.u32(4)? as usize;
        let kind = header.u32(8)?;
        let name = rest.get(12..name_size.checked_add(12)?)?;
        let content_start = name_size.checked_add(12)?.checked_next_multiple_of(align)?;
        let content_end = content_start.checked_add(content_size)?;
        let content = rest.get(content_start..content_end)?;
        // The last note's padding may be missing.
        rest = rest.get(content_end.checked_next_multiple_of(align)?..).unwrap_or_default();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(Note { name, kind, content })
    })
}
