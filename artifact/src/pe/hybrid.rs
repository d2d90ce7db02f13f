//! ARM64EC and ARM64X images, which hold x64 and ARM64 code side by side: which code is whose, and where functions start, by the metadata that the
//! load configuration names.
//!
//! Microsoft has not published the layout; it is LLVM's, which writes and reads these images (`chpe_metadata`,
//! `chpe_code_range_entry` and `chpe_redirection_entry` in llvm/include/llvm/Object/COFF.h; "CHPE" stands for compiled
//! hybrid portable executable). The load configuration itself: "The load configuration structure" in "PE Format".

use std::ops::Range;

use super::Pe;
use super::headers::Directory;
use super::pdata::{starts_in, u32_at};
use crate::Arch;

/// `CHPEMetadataPointer` in the load configuration of 64 bits: a stated address.
const METADATA_POINTER: usize = 200;
/// The metadata up to `ExtraRFETableSize`, the last field that is read; later versions are longer.
const METADATA_BYTES: usize = 72;
/// `chpe_range_entry`: where a range of code starts, a relative address whose two lowest bits say for which processor it is, and its bytes.
const MAPPED_RANGE: usize = 8;
const KIND: u32 = 3;
/// The kind of code for x64. The other ones are ARM64, for programs of their own and for such that run beside x64 (ARM64EC).
const X64: u32 = 2;
/// `chpe_code_range_entry`: start and end of a range of x64 code, and the entry point behind it; relative addresses.
const CODE_RANGE: usize = 12;
/// `chpe_redirection_entry`: x64 code that stands for a function, and the function; relative addresses.
const REDIRECTION: usize = 8;

/// Stated addresses at which functions start; none in other images. Tables that leave their section end with it.
pub(super) fn function_starts(pe: &Pe<'_>) -> Vec<u64> {
    let Some(metadata) = metadata(pe) else { return Vec::new() };
    let field = |at: usize| u32_at(metadata, at).unwrap_or_default();
    // CodeRangesToEntryPoints and its count, RedirectionMetadata and its count, ExtraRFETable and its size in bytes.
    let ranges = entries(pe, field(12), field(48), CODE_RANGE).flat_map(|entry| [u32_at(entry, 0), u32_at(entry, 8)]);
    let redirected =
        entries(pe, field(16), field(52), REDIRECTION).flat_map(|entry| [u32_at(entry, 0), u32_at(entry, 4)]);
    let mut starts: Vec<u64> = ranges
        .chain(redirected)
        .flatten()
        .filter(|rva| {
            pe.section_at(*rva).is_some_and(|section| section.is_executable && rva - section.rva < section.size)
        })
        .filter_map(|rva| pe.image_base.checked_add(u64::from(rva)))
        .collect();
    // The exception directory is that of the processor that the header names; this is the other one's.
    let other = match pe.arch() {
        Arch::X86_64 => Arch::Aarch64,
        _ => Arch::X86_64,
    };
    let table = pe.directory_bytes(Directory { rva: field(64), size: field(68) }).unwrap_or_default();
    starts.extend(starts_in(pe, table, other));
    starts
}

/// Code of another processor than that of the file's header: stated addresses. All code where the metadata does not say which it is; none in other
/// images.
pub(super) fn code_of_another_processor(pe: &Pe<'_>) -> Vec<Range<u64>> {
    let Some(metadata) = metadata(pe) else { return Vec::new() };
    let field = |at: usize| u32_at(metadata, at).unwrap_or_default();
    // CodeMap and its count.
    let mapped: Vec<(u32, u32)> = entries(pe, field(4), field(8), MAPPED_RANGE)
        .filter_map(|entry| Some((u32_at(entry, 0)?, u32_at(entry, 4)?)))
        .collect();
    let is_foreign = |kind: u32| (kind == X64) != (pe.arch() == Arch::X86_64);
    if mapped.is_empty() {
        let code = pe.sections.iter().filter(|section| section.is_executable);
        return code.map(|section| section.range(pe.image_base)).collect();
    }
    let foreign = mapped.into_iter().filter(|(start, _)| is_foreign(start & KIND));
    let stated = |(start, bytes): (u32, u32)| {
        let start = pe.image_base.saturating_add(u64::from(start & !KIND));
        start..start.saturating_add(u64::from(bytes))
    };
    foreign.map(stated).collect()
}

fn metadata<'d>(pe: &Pe<'d>) -> Option<&'d [u8]> {
    if !pe.is_64 || !matches!(pe.arch(), Arch::X86_64 | Arch::Aarch64) {
        return None;
    }
    let config = pe.bytes_at(pe.load_config?.rva)?;
    // The structure says its own size; images of other kinds end before the field, or have 0 there.
    let end = METADATA_POINTER.checked_add(8)?;
    if usize::try_from(u32_at(config, 0)?).ok()? < end {
        return None;
    }
    let pointer = u64::from_le_bytes(config.get(METADATA_POINTER..end)?.try_into().ok()?);
    let rva = u32::try_from(pointer.checked_sub(pe.image_base)?).ok()?;
    pe.bytes_at(rva)?.get(..METADATA_BYTES)
}

/// So many entries of a table, as far as its section has them.
fn entries<'d>(pe: &Pe<'d>, rva: u32, count: u32, size: usize) -> impl Iterator<Item = &'d [u8]> {
    let bytes = if rva == 0 { &[][..] } else { pe.bytes_at(rva).unwrap_or_default() };
    bytes.chunks_exact(size).take(usize::try_from(count).unwrap_or(usize::MAX))
}
