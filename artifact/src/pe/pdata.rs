//! Function starts from the exception directory, `.pdata`, and of hybrid images from what [`hybrid`] reads. ("x64 exception handling" and "ARM64 exception handling",
//! Microsoft)

use super::{Pe, hybrid};
use crate::Arch;

/// x64 `RUNTIME_FUNCTION`: begin, end, unwind information; each a relative address.
pub(super) const X64_ENTRY: usize = 12;
/// `UNW_FLAG_CHAININFO`: the entry is a part of the function that it leads to.
const CHAINED: u8 = 4;

/// ARM64 entry: begin, and packed unwind data or the address of an `.xdata` record.
const ARM64_ENTRY: usize = 8;
/// The lowest two bits of packed data: a function, or a fragment without a prologue.
const PACKED_FUNCTION: u32 = 1;
/// The unwind code `end_c`, with which the record of a fragment starts: the prologue is elsewhere.
const END_C: u8 = 0xe5;

/// Stated addresses at which functions start, sorted. Parts of functions are left out.
pub(crate) fn function_starts(pe: &Pe<'_>) -> Vec<u64> {
    let bytes = pe.exceptions.and_then(|directory| pe.directory_bytes(directory)).unwrap_or_default();
    let mut starts = starts_in(pe, bytes, pe.arch());
    starts.extend(hybrid::function_starts(pe));
    starts.sort_unstable();
    starts.dedup();
    starts
}

/// The same of a table in the form of one processor.
pub(super) fn starts_in(pe: &Pe<'_>, table: &[u8], arch: Arch) -> Vec<u64> {
    match arch {
        Arch::X86_64 => table.chunks_exact(X64_ENTRY).filter_map(|entry| x64_start(pe, entry)).collect(),
        Arch::Aarch64 => table.chunks_exact(ARM64_ENTRY).filter_map(|entry| arm64_start(pe, entry)).collect(),
        _ => Vec::new(),
    }
}

fn x64_start(pe: &Pe<'_>, entry: &[u8]) -> Option<u64> {
    let (begin, end, info) = (u32_at(entry, 0)?, u32_at(entry, 4)?, u32_at(entry, 8)?);
    // An odd address leads to another entry of the table, of which this one is a part.
    if begin >= end || info & 1 == 1 {
        return None;
    }
    let flags = pe.bytes_at(info)?.first()? >> 3;
    (flags & CHAINED == 0).then_some(pe.image_base.checked_add(u64::from(begin))?)
}

fn arm64_start(pe: &Pe<'_>, entry: &[u8]) -> Option<u64> {
    let (begin, data) = (u32_at(entry, 0)?, u32_at(entry, 4)?);
    let is_start = match data & 3 {
        0 => !is_fragment(pe.bytes_at(data)?)?,
        flag => flag == PACKED_FUNCTION,
    };
    (is_start && begin != 0).then_some(pe.image_base.checked_add(u64::from(begin))?)
}

/// Whether an `.xdata` record describes code without a prologue of its own.
fn is_fragment(record: &[u8]) -> Option<bool> {
    let header = u32_at(record, 0)?;
    let (epilogs, codes) = (header >> 22 & 0x1f, header >> 27);
    // Both counts 0: they stand in a second word, as they are larger.
    let (extra, epilogs) = match (epilogs, codes) {
        (0, 0) => (4, u32_at(record, 4)? & 0xffff),
        _ => (0, epilogs),
    };
    // With the `E` bit the single epilogue has no entry of its own.
    let scopes = if header >> 21 & 1 == 1 { 0 } else { usize::try_from(epilogs).ok()?.checked_mul(4)? };
    Some(record.get(scopes.checked_add(4 + extra)?) == Some(&END_C))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk::<4>().copied()?))
}
