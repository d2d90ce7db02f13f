//! What the loader finds through program headers alone, for files without section headers.
//!
//! Sources: gABI chapter 5, "Dynamic Section" and "Hash Table"; `DT_GNU_HASH` as binutils and glibc have it; `.eh_frame_hdr`:
//! Linux Standard Base, Core, "Exception Frames".

use super::gabi;
use super::headers::{Elf, Segment};
use crate::SectionSlice;
use crate::cursor::Cursor;

/// Symbols and the texts that name them, of the table that the dynamic linker reads; empty where there is none.
pub(super) fn symbols<'d>(elf: &Elf<'d>) -> (&'d [u8], &'d [u8]) {
    if !elf.sections.is_empty() {
        return (&[], &[]);
    }
    table(elf).unwrap_or_default()
}

fn table<'d>(elf: &Elf<'d>) -> Option<(&'d [u8], &'d [u8])> {
    let segment = elf.segments.iter().find(|segment| segment.kind == gabi::PT_DYNAMIC)?;
    let entries = elf.segment_bytes(segment)?;
    let word = if elf.is_64 { 8 } else { 4 };
    let value = |tag: u64| {
        let mut entries = entries.chunks_exact(2 * word);
        let found = entries.find(|entry| elf.fields(entry).word(0, elf.is_64) == Some(tag))?;
        elf.fields(found).word(word, elf.is_64)
    };
    let count = value(gabi::DT_HASH)
        .and_then(|at| elf.fields(loaded_at(elf, at)?).u32(4).map(u64::from))
        .or_else(|| gnu_hash_count(elf, loaded_at(elf, value(gabi::DT_GNU_HASH)?)?))?;
    let symbols = loaded_at(elf, value(gabi::DT_SYMTAB)?)?;
    let length = count.checked_mul(if elf.is_64 { 24 } else { 16 })?;
    let names = loaded_at(elf, value(gabi::DT_STRTAB)?)?;
    let names_length = usize::try_from(value(gabi::DT_STRSZ)?).ok()?;
    Some((symbols.get(..usize::try_from(length).ok()?)?, names.get(..names_length)?))
}

/// The first value with that tag.
pub(super) fn value(elf: &Elf<'_>, tag: u64) -> Option<u64> {
    let word = if elf.is_64 { 8 } else { 4 };
    let mut entries =
        elf.segment_bytes(elf.segments.iter().find(|it| it.kind == gabi::PT_DYNAMIC)?)?.chunks_exact(2 * word);
    let found = entries.find(|entry| elf.fields(entry).word(0, elf.is_64) == Some(tag))?;
    elf.fields(found).word(word, elf.is_64)
}

/// Where the loader looks for libraries, one directory each. A debug file keeps the header of the section, not its bytes.
pub(super) fn run_paths<'d>(elf: &Elf<'d>) -> Vec<&'d [u8]> {
    let Some((entries, names)) = run_path_tables(elf) else { return Vec::new() };
    let word = if elf.is_64 { 8 } else { 4 };
    let mut found = Vec::new();
    // The loader takes one of each, and a table may name one long text a million times.
    let mut left = MOST_RUN_PATH_ENTRIES;
    for entry in entries.chunks_exact(2 * word) {
        let fields = elf.fields(entry);
        let (Some(tag), Some(at)) = (fields.word(0, elf.is_64), fields.word(word, elf.is_64)) else { break };
        match tag {
            gabi::DT_NULL => break,
            gabi::DT_RPATH | gabi::DT_RUNPATH if left > 0 => {
                left -= 1;
                let text = usize::try_from(at).ok().and_then(|at| names.get(at..));
                let text = text.and_then(|text| text.get(..memchr::memchr(0, text)?)).unwrap_or_default();
                found.extend(text.split(|byte| *byte == b':').filter(|path| !path.is_empty()));
                found.truncate(MOST_RUN_PATHS);
            }
            _ => {}
        }
    }
    found
}

/// More entries than any linker writes.
const MOST_RUN_PATH_ENTRIES: usize = 16;

/// More directories than any loader is given.
const MOST_RUN_PATHS: usize = 4096;

/// The dynamic section's entries, and the texts that they name.
fn run_path_tables<'d>(elf: &Elf<'d>) -> Option<(&'d [u8], &'d [u8])> {
    if !elf.sections.is_empty() {
        let section = elf.sections.iter().find(|section| section.kind == gabi::SHT_DYNAMIC)?;
        let names = elf.sections.get(usize::try_from(section.link).ok()?)?;
        return Some((section.bytes, names.bytes));
    }
    let entries = elf.segment_bytes(elf.segments.iter().find(|segment| segment.kind == gabi::PT_DYNAMIC)?)?;
    let word = if elf.is_64 { 8 } else { 4 };
    let mut values = entries.chunks_exact(2 * word);
    let found = values.find(|entry| elf.fields(entry).word(0, elf.is_64) == Some(gabi::DT_STRTAB))?;
    Some((entries, loaded_at(elf, elf.fields(found).word(word, elf.is_64)?)?))
}

/// How many symbols there are: the chain of the last bucket ends with the last symbol.
fn gnu_hash_count(elf: &Elf<'_>, table: &[u8]) -> Option<u64> {
    let number = |at: u64| {
        let bytes = table.get(usize::try_from(at).ok()?..)?;
        Cursor::new(bytes, elf.is_little_endian).unsigned(4).ok()
    };
    let (buckets, first, bloom) = (number(0)?, number(4)?, number(8)?);
    let buckets_at = bloom.checked_mul(if elf.is_64 { 8 } else { 4 })?.checked_add(16)?;
    let chains_at = buckets_at.checked_add(buckets.checked_mul(4)?)?;
    let mut last = 0;
    for bucket in 0..buckets {
        last = last.max(number(buckets_at + 4 * bucket)?);
    }
    if last < first {
        return Some(first);
    }
    loop {
        let hash = number(chains_at.checked_add(4 * (last - first))?)?;
        last += 1;
        if hash & 1 == 1 {
            return Some(last);
        }
    }
}

/// `.eh_frame_hdr` by its segment, and `.eh_frame` by the address in it, up to the end of the segment that it lies in: its own
/// end is marked within.
pub(super) fn frames<'d>(elf: &Elf<'d>) -> (Option<SectionSlice<'d>>, Option<SectionSlice<'d>>) {
    let find = || elf.segments.iter().find(|segment| segment.kind == gabi::PT_GNU_EH_FRAME);
    let Some(segment) = find().filter(|_| elf.sections.is_empty()) else { return (None, None) };
    let Some(bytes) = elf.segment_bytes(segment) else { return (None, None) };
    let header = SectionSlice { svma: segment.vaddr, bytes: bytes.into() };
    let frames = || {
        let svma = frames_at(elf, segment, bytes)?;
        Some(SectionSlice { svma, bytes: loaded_at(elf, svma)?.into() })
    };
    (Some(header), frames())
}

/// The address that the header's fifth byte starts: version 1, its encoding, two others.
fn frames_at(elf: &Elf<'_>, segment: &Segment, header: &[u8]) -> Option<u64> {
    const AT: u64 = 4;
    let [1, encoding, ..] = header else { return None };
    let mut cursor = Cursor::new(header.get(4..)?, elf.is_little_endian);
    let value = match encoding & 0xf {
        0 => cursor.unsigned(if elf.is_64 { 8 } else { 4 }).ok()?,
        2 => cursor.unsigned(2).ok()?,
        3 => cursor.unsigned(4).ok()?,
        4 | 0xc => cursor.unsigned(8).ok()?,
        0xa => i64::from((cursor.unsigned(2).ok()? as u16).cast_signed()).cast_unsigned(),
        0xb => i64::from((cursor.unsigned(4).ok()? as u32).cast_signed()).cast_unsigned(),
        _ => return None,
    };
    let base = match encoding & 0xf0 {
        0 => 0,
        0x10 => segment.vaddr.checked_add(AT)?,
        0x30 => segment.vaddr,
        _ => return None,
    };
    let address = base.wrapping_add(value);
    Some(if elf.is_64 { address } else { address & 0xffff_ffff })
}

/// The bytes from an address to the end of what its segment has in the file.
fn loaded_at<'d>(elf: &Elf<'d>, svma: u64) -> Option<&'d [u8]> {
    let loaded = elf.segments.iter().filter(|segment| segment.kind == gabi::PT_LOAD);
    let mut inside = loaded.filter(|segment| svma >= segment.vaddr && svma - segment.vaddr < segment.file_size);
    let segment = inside.next()?;
    elf.segment_bytes(segment)?.get(usize::try_from(svma - segment.vaddr).ok()?..)
}
