//! What of a .NET assembly is for its runtime: all of its code, or methods beside native code. (ECMA-335, II.25)

use super::Pe;
use super::headers::Directory;
use super::pdata::{self, u32_at};
use crate::Arch;
use crate::code_ranges::disjoint;
use crate::cursor::{Cursor, Damaged, Result};
use std::ops::Range;

/// `Flags` of the CLI header (II.25.3.3), and `COMIMAGE_FLAGS_ILONLY` in them.
const FLAGS: usize = 16;
const IL_ONLY: u32 = 1;
/// `ManagedNativeHeader`, zeros in the standard: where code that was compiled ahead of time is (ReadyToRun), and its size.
const NATIVE: usize = 64;
const HEADER_BYTES: usize = 72;
/// What that code begins with (`READYTORUN_SIGNATURE`), and the multiple that its functions begin at. (.NET, "ReadyToRun File Format")
const READY_TO_RUN: &[u8] = b"RTR\0";
const ALIGNMENT: u64 = 16;
/// `MetaData`, and what else of the runtime's the header leads to: `Resources`, `StrongNameSignature`, `VTableFixups`.
const METADATA: usize = 8;
const RUNTIME_DATA: [usize; 4] = [METADATA, 24, 32, 48];

/// Tables of the metadata, by their numbers. (II.22)
const MODULE: usize = 0;
const TYPE_REF: usize = 1;
const TYPE_DEF: usize = 2;
const FIELD_PTR: usize = 3;
const FIELD: usize = 4;
const METHOD_PTR: usize = 5;
const METHOD_DEF: usize = 6;
const PARAM_PTR: usize = 7;
const PARAM: usize = 8;
const MODULE_REF: usize = 0x1a;
const TYPE_SPEC: usize = 0x1b;
const ASSEMBLY_REF: usize = 0x23;

fn header<'d>(pe: &Pe<'d>) -> Option<&'d [u8]> {
    pe.cli_header.and_then(|directory| pe.bytes_at(directory.rva)?.get(..HEADER_BYTES))
}

/// Whether no section holds instructions of a processor. The jump to the runtime that assemblies for 32 bits begin with (II.25.4) is none that anybody
/// wrote, and 64-bit Windows does without.
pub(super) fn is_il_alone(pe: &Pe<'_>) -> bool {
    let Some(header) = header(pe) else { return false };
    let field = |at: usize| u32_at(header, at).unwrap_or_default();
    field(FLAGS) & IL_ONLY != 0 && field(NATIVE) == 0 && field(NATIVE + 4) == 0
}

/// Stated addresses of the functions of an image for x64 whose methods were compiled ahead of time (ReadyToRun), joined where no more than padding is between them; none of
/// another image. They are those of the exception directory. What else is in sections of code are the runtime's tables, and thunks that lead to its helpers and push
/// words on the way: no leaves, as other code of which a directory says nothing.
pub(super) fn compiled_functions(pe: &Pe<'_>) -> Option<Vec<Range<u64>>> {
    let native = directory_at(header(pe)?, NATIVE)?;
    if !pe.bytes_at(native.rva)?.starts_with(READY_TO_RUN) || pe.arch() != Arch::X86_64 {
        return None;
    }
    let entries = pe.directory_bytes(pe.exceptions?)?;
    let stated = |rva: u32| pe.image_base.saturating_add(rva.into());
    let range = |entry: &[u8]| Some(stated(u32_at(entry, 0)?)..stated(u32_at(entry, 4)?));
    let mut functions = disjoint(entries.chunks_exact(pdata::X64_ENTRY).filter_map(range).collect());
    functions.dedup_by(|next, last| {
        let joins = next.start - last.end < ALIGNMENT;
        if joins {
            last.end = next.end;
        }
        joins
    });
    Some(functions)
}

/// Stated addresses of code without those of methods for the runtime and of what the CLI header leads to, which stand in sections of code as well. What the
/// tables of a damaged assembly do not say stays code.
pub(super) fn without_methods(pe: &Pe<'_>, code: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let (Some(header), Some(directory)) = (header(pe), pe.cli_header) else { return code };
    let led_to = RUNTIME_DATA.into_iter().filter_map(|at| directory_at(header, at));
    let mut managed: Vec<Range<u32>> =
        led_to.chain([directory]).filter_map(|directory| range(directory.rva, directory.size)).collect();
    if let Some(metadata) = directory_at(header, METADATA).and_then(|directory| pe.directory_bytes(directory)) {
        // Methods behind a fault stay code.
        let _ = methods(pe, metadata, &mut managed);
    }
    let stated = |rva: u32| pe.image_base.saturating_add(rva.into());
    let managed = disjoint(managed.into_iter().map(|range| stated(range.start)..stated(range.end)).collect());
    code.into_iter().flat_map(|code| apart(code, &managed)).collect()
}

fn directory_at(header: &[u8], at: usize) -> Option<Directory> {
    let (rva, size) = (u32_at(header, at)?, u32_at(header, at + 4)?);
    (rva != 0 && size != 0).then_some(Directory { rva, size })
}

fn range(start: u32, size: u32) -> Option<Range<u32>> {
    Some(start..start.checked_add(size)?).filter(|range| !range.is_empty())
}

/// What of a range is in none of `taken`, which are sorted and apart.
fn apart(code: Range<u64>, taken: &[Range<u64>]) -> Vec<Range<u64>> {
    let first = taken.partition_point(|range| range.end <= code.start);
    let mut left = Vec::new();
    let mut position = code.start;
    for range in taken.iter().skip(first).take_while(|range| range.start < code.end) {
        if position < range.start {
            left.push(position..range.start);
        }
        position = position.max(range.end);
    }
    if position < code.end {
        left.push(position..code.end);
    }
    left
}

/// Adds where the bodies of methods are that the metadata tells of.
fn methods(pe: &Pe<'_>, metadata: &[u8], out: &mut Vec<Range<u32>>) -> Result<()> {
    let tables = tables(metadata)?;
    let mut cursor = Cursor::new(tables, true);
    cursor.skip(6)?;
    let heaps = cursor.u8()?;
    cursor.skip(1)?;
    let valid = cursor.unsigned(8)?;
    cursor.skip(8)?;
    let mut rows = [0_u64; 64];
    for (number, rows) in rows.iter_mut().enumerate() {
        if valid >> number & 1 == 1 {
            *rows = cursor.unsigned(4)?;
        }
    }
    // What Microsoft's own writer of `#-` has besides.
    if heaps & 0x40 != 0 {
        cursor.skip(4)?;
    }
    let rows_of = |table: usize| rows.get(table).copied().unwrap_or(0);
    let heap = |bit: u8| if heaps & bit == 0 { 2_u64 } else { 4 };
    let (text, guid, blob) = (heap(1), heap(2), heap(4));
    // An index says which of some tables it means in its low bits. (II.24.2.6)
    let index = |tables: &[usize], tag_bits: u32| {
        let most = tables.iter().map(|table| rows_of(*table)).max().unwrap_or(0);
        if most < 1 << (16 - tag_bits) { 2_u64 } else { 4 }
    };
    let list = |through: usize, table: usize| index(&[if rows_of(through) > 0 { through } else { table }], 0);
    let scope = index(&[MODULE, MODULE_REF, ASSEMBLY_REF, TYPE_REF], 2);
    let extends = index(&[TYPE_DEF, TYPE_REF, TYPE_SPEC], 2);
    let before = [
        (MODULE, 2 + text + 3 * guid),
        (TYPE_REF, scope + 2 * text),
        (TYPE_DEF, 4 + 2 * text + extends + list(FIELD_PTR, FIELD) + list(METHOD_PTR, METHOD_DEF)),
        (FIELD_PTR, index(&[FIELD], 0)),
        (FIELD, 2 + text + blob),
        (METHOD_PTR, index(&[METHOD_DEF], 0)),
    ];
    // Fewer than 2^32 rows of fewer than 64 bytes each.
    let bytes: u64 = before.iter().map(|(table, size)| rows_of(*table) * size).sum();
    cursor.skip(usize::try_from(bytes).map_err(|_| Damaged)?)?;
    let rest = 4 + text + blob + list(PARAM_PTR, PARAM) - 2;
    for _ in 0..rows_of(METHOD_DEF) {
        let rva = u32::try_from(cursor.unsigned(4)?).map_err(|_| Damaged)?;
        let flags = cursor.unsigned(2)?;
        cursor.skip(usize::try_from(rest).map_err(|_| Damaged)?)?;
        // `CodeTypeMask`: 0 are methods in the runtime's instructions. (II.23.1.11)
        if rva != 0
            && flags & 3 == 0
            && let Some(size) = pe.bytes_at(rva).and_then(|body| body_size(body).ok())
        {
            out.extend(range(rva, size));
        }
    }
    Ok(())
}

/// The stream of tables. (II.24.2.1)
fn tables(metadata: &[u8]) -> Result<&[u8]> {
    let mut cursor = Cursor::new(metadata, true);
    if cursor.bytes(4)? != b"BSJB" {
        return Err(Damaged);
    }
    cursor.skip(8)?;
    let version = cursor.unsigned(4)?;
    cursor.skip(usize::try_from(version).map_err(|_| Damaged)?)?;
    cursor.skip(2)?;
    for _ in 0..cursor.unsigned(2)? {
        let (offset, size) = (cursor.unsigned(4)?, cursor.unsigned(4)?);
        let name = cursor.text()?;
        // The name ends with a NUL and is padded to 4 bytes.
        cursor.skip((name.len() + 1).next_multiple_of(4) - (name.len() + 1))?;
        if name == b"#~" || name == b"#-" {
            let place = |number| usize::try_from(number).map_err(|_| Damaged);
            let (offset, size) = (place(offset)?, place(size)?);
            return metadata.get(offset..).and_then(|rest| rest.get(..size)).ok_or(Damaged);
        }
    }
    Err(Damaged)
}

/// Bytes of a method's body: header, instructions, and the sections behind them. (II.25.4)
fn body_size(body: &[u8]) -> Result<u32> {
    const TINY: u8 = 2;
    const MORE_SECTIONS: u64 = 8;
    let first = *body.first().ok_or(Damaged)?;
    if first & 3 == TINY {
        return Ok(1 + u32::from(first >> 2));
    }
    let mut cursor = Cursor::new(body, true);
    let flags = cursor.unsigned(2)?;
    cursor.skip(2)?;
    let instructions = cursor.unsigned(4)?;
    // The header says its size in words of 4 bytes: 3 of them.
    let mut end = (flags >> 12) * 4 + instructions;
    let mut has_more = flags & MORE_SECTIONS != 0;
    while has_more {
        end = end.next_multiple_of(4);
        let section = usize::try_from(end).ok().and_then(|end| body.get(end..)).ok_or(Damaged)?;
        let [kind, low, middle, high] = *section.first_chunk::<4>().ok_or(Damaged)?;
        let is_fat = kind & 0x40 != 0;
        let size = if is_fat { u32::from_le_bytes([low, middle, high, 0]) } else { low.into() };
        // A section is larger than its own header, so that each step leads on.
        end += u64::from(size.max(4));
        has_more = kind & 0x80 != 0;
    }
    let size = u32::try_from(end).map_err(|_| Damaged)?;
    if usize::try_from(size).is_ok_and(|size| size <= body.len()) { Ok(size) } else { Err(Damaged) }
}
