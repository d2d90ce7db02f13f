//! Universal files: several Mach-O files in one, each for a processor. (`mach-o/fat.h`)

use super::headers::Macho;
use super::loader::{CPU_SUBTYPE_MASK, FAT_MAGIC, FAT_MAGIC_64};
use super::processor::slice_name;
use crate::ArtifactError;
use crate::error::malformed;
use crate::fields::{Fields, range_of};
use crate::sniff::{FileKind, MOST_SLICES, describe_start, sniff};
use std::ops::Range;

/// How a static library begins. (ar(5))
const LIBRARY: &[u8] = b"!<arch>\n";

/// What linkers take beside Mach-O files: libraries, and LLVM's bitcode with and without a wrapper. (LLVM, "Bitcode File Format")
const FOR_LINKERS: [&[u8]; 3] = [LIBRARY, b"BC\xc0\xde", b"\xde\xc0\x17\x0b"];

/// An entry of the table.
struct Slice<'d> {
    /// Processor and kind of processor.
    cpu: (u32, u32),
    name: String,
    bytes: &'d [u8],
}

/// The slices, in the file's order. They must lie within the file and apart from each other, and be what the header
/// says.
pub(crate) fn slices(data: &[u8]) -> Result<Vec<Macho<'_>>, ArtifactError> {
    let table = table(data)?;
    let is_for_linkers = |slice: &Slice<'_>| FOR_LINKERS.iter().any(|start| slice.bytes.starts_with(start));
    if let Some(first) = table.first().filter(|_| table.iter().all(is_for_linkers)) {
        let found = format!("a universal file of what is no Mach-O file: {}", describe_start(first.bytes));
        return Err(ArtifactError::UnknownFormat { found });
    }
    table.into_iter().map(parse).collect()
}

/// Whether the file is a static library for several processors, as those in frameworks are: each slice is one.
pub fn is_universal_library(data: &[u8]) -> bool {
    sniff(data) == FileKind::MachoFat
        && table(data).is_ok_and(|slices| slices.iter().all(|slice| slice.bytes.starts_with(LIBRARY)))
}

fn parse(Slice { cpu, name, bytes }: Slice<'_>) -> Result<Macho<'_>, ArtifactError> {
    let in_slice = |error| ArtifactError::Slice { name: name.clone(), error: Box::new(error) };
    let slice = Macho::parse(bytes).map_err(in_slice)?;
    // The upper byte says what the slice can do, and some tables leave it out.
    let kind = |(cpu, subtype): (u32, u32)| (cpu, subtype & !CPU_SUBTYPE_MASK);
    if kind((slice.cpu, slice.cpu_subtype)) != kind(cpu) {
        let found = slice_name(slice.cpu, slice.cpu_subtype);
        return Err(in_slice(malformed("Mach-O header", "the processor of the table of slices", found)));
    }
    Ok(slice)
}

fn table(data: &[u8]) -> Result<Vec<Slice<'_>>, ArtifactError> {
    let header = Fields { bytes: range_of(data, "the header of a universal file", 0, 8)?, is_little_endian: false };
    let is_64 = match header.u32(0) {
        Some(FAT_MAGIC) => false,
        Some(FAT_MAGIC_64) => true,
        _ => return Err(ArtifactError::UnknownFormat { found: describe_start(data) }),
    };
    let count = header.u32(4).unwrap_or_default();
    if count == 0 || count > MOST_SLICES {
        return Err(malformed("universal file", &format!("1 to {MOST_SLICES} slices"), count));
    }
    let entry_size = if is_64 { 32 } else { 20 };
    let table = range_of(data, "the table of slices", 8, u64::from(count) * entry_size)?;
    let mut slices = Vec::new();
    let mut taken: Vec<(Range<u64>, String)> = vec![(0..8 + table.len() as u64, "the table of slices".to_owned())];
    // The size came from the two numbers above.
    for entry in table.chunks_exact(entry_size as usize) {
        let fields = Fields { bytes: entry, is_little_endian: false };
        let word = |narrow, wide| fields.word(if is_64 { wide } else { narrow }, is_64).unwrap_or_default();
        let cpu = (fields.u32(0).unwrap_or_default(), fields.u32(4).unwrap_or_default());
        let (offset, size) = (word(8, 8), word(12, 16));
        let name = format!("the {} slice", slice_name(cpu.0, cpu.1));
        let bytes = range_of(data, &name, offset, size)?;
        let range = offset..offset.saturating_add(size);
        if let Some((other, with)) = taken.iter().find(|(other, _)| other.start < range.end && range.start < other.end)
        {
            let found = format!("{name} at {range:#x?} over {with} at {other:#x?}");
            return Err(malformed("universal file", "slices that do not overlap", found));
        }
        slices.push(Slice { cpu, name: name.clone(), bytes });
        taken.push((range, name));
    }
    Ok(slices)
}
