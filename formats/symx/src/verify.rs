//! Whether everything in a table holds together.

use crate::bits::TAIL;
use crate::checksum::crc32c;
use crate::contexts::{Code, Form, Named, Origin};
use crate::data::{BlockRecords, Functions, Places};
use crate::layout::{ENTRY_BYTES, FLAG_ALIASED, HEADER_BYTES, MAX_FRAMES, SectionId, u32_at, u64_at};
use crate::phrases::{decode, phrase_text};
use crate::varint::Cursor;
use crate::{Table, VerifyError};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

type Checked = Result<(), VerifyError>;

fn fault(section: SectionId, problem: impl Into<String>) -> VerifyError {
    VerifyError { section: section.number(), problem: problem.into() }
}

fn check(holds: bool, section: SectionId, problem: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(fault(section, problem())) }
}

/// A fault of something that has a number. Apart, for the words of a fault take more code than what finds it.
#[cold]
#[inline(never)]
fn wrong(section: SectionId, what: &str, number: u64, problem: &str) -> VerifyError {
    fault(section, format!("{what} {number} {problem}"))
}

/// That something that has a number is as it has to be.
#[inline(always)]
fn ensure(holds: bool, section: SectionId, what: &str, number: u64, problem: &str) -> Checked {
    if holds { Ok(()) } else { Err(wrong(section, what, number, problem)) }
}

pub(crate) fn verify(table: &Table<'_>) -> Checked {
    checksums(table)?;
    let paths = strings(table, SectionId::Paths)?;
    let names = strings(table, SectionId::Names)?;
    phrases(table)?;
    let covered = functions(table, &paths, &names)?;
    aliases(table, &names)?;
    places(table, &paths, &names)?;
    sites(table, &paths, &names)?;
    let owners = contexts(table)?;
    let in_rows = rows(table, &owners)?;
    check(in_rows == covered, SectionId::Rows, || {
        format!("rows for {covered} bytes of functions expected, found them for {in_rows}")
    })?;
    columns(table)
}

/// Every section, known or not, against its checksum; and that nothing hides between them.
fn checksums(table: &Table<'_>) -> Checked {
    let bytes = table.bytes;
    let between = |problem: &str| VerifyError { section: 0, problem: problem.into() };
    let count = usize::from(crate::layout::u16_at(bytes, 58));
    let mut end = HEADER_BYTES + count * ENTRY_BYTES;
    let directory = bytes.get(HEADER_BYTES..end).unwrap_or_default();
    for entry in directory.as_chunks::<ENTRY_BYTES>().0 {
        let section = u32_at(entry, 0);
        // `open` has seen that each section lies in the file, behind its predecessor.
        let (offset, size) = (u64_at(entry, 8) as usize, u64_at(entry, 16) as usize);
        let padding = bytes.get(end..offset).ok_or(between("sections overlap"))?;
        if padding.len() >= 8 || padding.iter().any(|byte| *byte != 0) {
            return Err(between("expected less than 8 bytes of zeroes between sections"));
        }
        end = offset.saturating_add(size);
        let found = crc32c(&[bytes.get(offset..end).unwrap_or_default()]);
        let expected = u32_at(entry, 4);
        if found != expected {
            let problem = format!("checksum {expected:#010x} expected, found {found:#010x}");
            return Err(VerifyError { section, problem });
        }
    }
    let tail = bytes.get(end..).unwrap_or_default();
    if tail.len() >= 8 || tail.iter().any(|byte| *byte != 0) {
        return Err(between("expected less than 8 bytes of zeroes after the last section"));
    }
    Ok(())
}

/// Where the strings of a section start, ascending.
fn strings(table: &Table<'_>, id: SectionId) -> Result<Vec<u32>, VerifyError> {
    let section = table.header.section(id);
    let mut cursor = Cursor::new(section.bytes);
    let (mut starts, mut buffer) = (Vec::new(), Vec::new());
    while !cursor.is_empty() {
        let at = section.bytes.len() - cursor.remaining();
        let stored = cursor.varint().and_then(|len| cursor.take(len));
        let text = match (id, table.data.names.phrases) {
            (SectionId::Names, Some(phrases)) => {
                buffer.clear();
                stored.and_then(|coded| decode(&mut buffer, coded, phrases)).map(|()| buffer.as_slice())
            }
            _ => stored,
        };
        let text = text.and_then(|text| core::str::from_utf8(text).ok());
        let at32 = u32::try_from(at).ok();
        let (Some(text), Some(at32)) = (text, at32) else {
            return Err(fault(id, format!("no UTF-8 string at offset {at}")));
        };
        check(!text.is_empty() || at == 0, id, || format!("an empty string at offset {at}, expected at 0 only"))?;
        starts.push(at32);
    }
    check(section.bytes.first() == Some(&0), id, || "expected the empty string first".into())?;
    check(starts.len() as u64 == section.count, id, || {
        format!("{} strings expected, found {}", section.count, starts.len())
    })?;
    Ok(starts)
}

/// That each phrase is a text with zeroes behind it.
fn phrases(table: &Table<'_>) -> Checked {
    let id = SectionId::Phrases;
    (0..).zip(table.data.names.phrases.unwrap_or_default()).try_for_each(|(number, record): (u32, _)| {
        let text = phrase_text(record).ok_or_else(|| wrong(id, "phrase", number as u64, "has an impossible length"))?;
        let rest = record.get(1 + text.len()..).unwrap_or_default();
        check(rest.iter().all(|byte| *byte == 0), id, || format!("phrase {number} has something behind its text"))
    })
}

#[inline(never)]
fn check_string(starts: &[u32], offset: u32, section: SectionId, index: u32) -> Checked {
    check(starts.binary_search(&offset).is_ok(), section, || {
        format!("record {index} refers to offset {offset}, where no string starts")
    })
}

/// How many bytes all functions have together.
fn functions(table: &Table<'_>, paths: &[u32], names: &[u32]) -> Result<u64, VerifyError> {
    let id = SectionId::Functions;
    let data = &table.data;
    let (mut last_start, mut free_from, mut covered) = (0, 0, 0u64);
    for index in 0..data.function_count() {
        let Some(function) = data.function(index) else { break };
        check_string(names, function.name, id, index)?;
        check_string(names, function.symbol, id, index)?;
        check_string(paths, function.file, id, index)?;
        let start = function.start.0;
        let end = start.checked_add(function.size);
        let end = end.ok_or_else(|| wrong(id, "function", index as u64, "ends beyond 2^64"))?;
        check(start >= last_start && (function.size == 0 || start >= free_from), id, || {
            format!("function {index} starts at {start:#x}, before the end of its predecessor")
        })?;
        ensure(
            function.source().is_some() && function.flags <= 0xf && function.reserved == 0,
            id,
            "function",
            index as u64,
            "has unknown attributes",
        )?;
        let aliased = !data.aliases_of(index).is_empty();
        ensure(
            aliased == (function.flags & FLAG_ALIASED != 0),
            id,
            "function",
            index as u64,
            "is flagged as having aliases and has none, or the reverse",
        )?;
        last_start = start;
        free_from = free_from.max(end);
        // Ranges do not overlap, so the sum stays below 2^64.
        covered += function.size;
    }
    Ok(covered)
}

fn aliases(table: &Table<'_>, names: &[u32]) -> Checked {
    let data = &table.data;
    let mut before: Option<(u32, u32)> = None;
    for (index, record) in data.aliased.iter().enumerate() {
        let (function, first) = (u32_at(record, 0), u32_at(record, 4));
        let ascending = before.map_or(first == 0, |(owner, start)| function > owner && first > start);
        let inside = function < data.function_count() && (first as usize) < data.aliases.len();
        ensure(ascending && inside, SectionId::Aliased, "record", index as u64, "is out of order or of bounds")?;
        before = Some((function, first));
    }
    check(before.is_some() || data.aliases.is_empty(), SectionId::Aliases, || "aliases of no function".into())?;
    (0u32..)
        .zip(data.aliases)
        .try_for_each(|(index, offset)| check_string(names, u32::from_le_bytes(*offset), SectionId::Aliases, index))
}

/// What contexts that are whole are put together from, and that tight records end as they have to.
fn places(table: &Table<'_>, paths: &[u32], names: &[u32]) -> Checked {
    let id = SectionId::Places;
    let data = &table.data;
    let count = match data.places {
        Places::Whole(records) => records.len() as u32,
        Places::Tight(records) => {
            end(id, records.ends_well())?;
            records.count()
        }
    };
    for (index, record) in (0u32..).zip(data.pairs) {
        check_string(names, u32_at(record, 0), SectionId::Pairs, index)?;
        check_string(names, u32_at(record, 4), SectionId::Pairs, index)?;
    }
    if let Functions::Tight(records) = data.functions {
        end(SectionId::Functions, records.ends_well())?;
    }
    if let BlockRecords::Tight(records) = table.blocks.records {
        end(SectionId::Blocks, records.ends_well())?;
    }
    (0..count).try_for_each(|index| {
        let Some(place) = data.place(index) else { return Ok(()) };
        check_string(names, place.name, id, index)?;
        check_string(names, place.symbol, id, index)?;
        check_string(paths, place.file, id, index)
    })
}

/// What contexts are put together from, and that all packed sections end as they have to.
fn sites(table: &Table<'_>, paths: &[u32], names: &[u32]) -> Checked {
    let data = &table.data;
    let (codes, owners, sites, places) = match data.contexts.form() {
        Form::Whole { contexts } => return end(SectionId::Contexts, contexts.ends_well()),
        Form::Sited { codes, owners, sites, places } => (codes, owners, sites, places),
    };
    end(SectionId::Contexts, codes.ends_well())?;
    end(SectionId::Owners, owners.ends_well())?;
    end(SectionId::Sites, sites.ends_well())?;
    end(SectionId::Places, places.ends_well())?;
    for index in 0..owners.count() {
        let [function, file, _] = owners.get(index).unwrap_or_default();
        let id = SectionId::Owners;
        ensure(function < data.function_count(), id, "owner", index as u64, "is a function that is not there")?;
        check_string(paths, file, SectionId::Owners, index)?;
    }
    for index in 0..places.count() {
        for name in places.get(index).unwrap_or_default() {
            check_string(names, name, SectionId::Places, index)?;
        }
    }
    for index in 0..sites.count() {
        let [code, file, distance, ..] = sites.get(index).unwrap_or_default();
        ensure(distance > 0, SectionId::Sites, "site", index as u64, "is inlined into itself")?;
        if let Code::Second(name) = Code::new(code, places.count()) {
            check_string(names, name, SectionId::Sites, index)?;
        }
        check_string(paths, file, SectionId::Sites, index)?;
    }
    Ok(())
}

fn end(id: SectionId, ends_well: bool) -> Checked {
    if ends_well { Ok(()) } else { Err(fault(id, "something behind the last record")) }
}

/// The function that each context belongs to in the end.
fn contexts(table: &Table<'_>) -> Result<Vec<u32>, VerifyError> {
    let id = SectionId::Contexts;
    let data = &table.data;
    let mut owners: Vec<(u32, u32)> = Vec::with_capacity(data.contexts.count() as usize);
    let mut inlined = 0;
    for index in 0..data.contexts.count() {
        let at = |problem: &str| wrong(id, "context", index as u64, problem);
        let context =
            data.contexts.find(index).ok_or_else(|| at("has a caller that is not before it, or an unknown code"))?;
        let place = data.place_of(context).ok_or_else(|| at("has names that are not there"))?;
        let (owner, depth) = match context.origin {
            Origin::Function(function) => {
                // Names of a function's own code that are the function's need no look.
                let names = match context.named {
                    Named::Function { .. } => Some((place.name, place.symbol)),
                    Named::Place(_) | Named::Code { .. } => {
                        data.function(function).map(|function| (function.name, function.symbol))
                    }
                };
                check(names == Some((place.name, place.symbol)), id, || {
                    format!("context {index} has other names than its function {function}")
                })?;
                (function, 1)
            }
            Origin::Inlined { caller, .. } => {
                inlined += 1;
                let caller = owners.get(caller as usize);
                caller.map(|(owner, depth)| (*owner, depth + 1)).ok_or_else(|| at("has no caller"))?
            }
        };
        check(depth <= MAX_FRAMES, id, || format!("context {index} is more than {MAX_FRAMES} frames deep"))?;
        owners.push((owner, depth));
    }
    let expected = data.contexts.inlined();
    check(inlined == expected, id, || format!("{expected} inlined contexts expected, found {inlined}"))?;
    Ok(owners.into_iter().map(|(owner, _)| owner).collect())
}

/// How many bytes the rows say something about.
fn rows(table: &Table<'_>, owners: &[u32]) -> Result<u64, VerifyError> {
    let id = SectionId::Rows;
    let blocks = &table.blocks;
    let (mut count, mut covered, mut size, mut gap) = (0u64, 0u64, 0, true);
    for index in 0..blocks.len() {
        let at = |problem: &str| wrong(id, "block", index as u64, problem);
        let block = blocks.block(index).ok_or_else(|| at("has an impossible record"))?;
        ensure(
            blocks.record(index).is_some_and(|record| record.offset as usize == size),
            id,
            "block",
            index as u64,
            "does not follow its predecessor",
        )?;
        size += block.size();
        ensure(block.has_all_highs(), id, "block", index as u64, "has not one high part per row")?;
        for row in 0..block.count {
            let value = block.value(row).ok_or_else(|| at("breaks off"))?;
            let position = block.at(row);
            let start = block.address(position).ok_or_else(|| at("breaks off"))?;
            ensure(row > 0 || start == block.start, id, "block", index as u64, "does not begin at its start")?;
            let next = match block.next(position) {
                Some(next) => block.address(next),
                None => blocks.start(index + 1),
            };
            ensure(!gap || value.context.is_some(), id, "block", index as u64, "has a gap after a gap")?;
            gap = value.context.is_none();
            match next {
                Some(end) if end > start => covered += owned(table, owners, value.context, start, end)?,
                Some(_) => return Err(at("is not sorted")),
                None => check(gap, id, || "the last row is no gap".into())?,
            }
        }
        count += block.count as u64;
    }
    check_tail(id, blocks.rows, size)?;
    let expected = table.header.section(id).count;
    check(count == expected, id, || format!("{expected} rows expected, found {count}"))?;
    Ok(covered)
}

/// That packed bits end where the last block does, but for the zeroes that a reader may load.
fn check_tail(id: SectionId, bytes: &[u8], size: usize) -> Checked {
    check(bytes.get(size..) == Some(&[0; TAIL]), id, || format!("expected {size} bytes and 8 zeroes after them"))
}

/// The offset in the record of a block.
fn start_of<const N: usize>(record: Option<&[u8; N]>) -> usize {
    record.map_or(0, |record| u32_at(record, 0) as usize)
}

/// The bytes of a row, seen to lie in the function that the row is of.
fn owned(table: &Table<'_>, owners: &[u32], context: Option<u32>, start: u64, end: u64) -> Result<u64, VerifyError> {
    let Some(context) = context else { return Ok(0) };
    let function = owners.get(context as usize).and_then(|owner| table.data.function(*owner));
    let inside = function.is_some_and(|function| start >= function.start.0 && end - function.start.0 <= function.size);
    check(inside, SectionId::Rows, || format!("the row at {start:#x} is outside of the function it belongs to"))?;
    Ok(end - start)
}

fn columns(table: &Table<'_>) -> Checked {
    let id = SectionId::Columns;
    let blocks = &table.blocks;
    let (mut count, mut size) = (0, 0);
    for index in 0..blocks.column_records.len() {
        let at = |problem: &str| wrong(id, "the columns of block", index as u64, problem);
        let columns = blocks.columns_of(index).ok_or_else(|| at("have an impossible record"))?;
        let record = blocks.column_records.get(index);
        check(start_of(record) == size && record.is_some_and(|record| record[7] == 0), id, || {
            format!("the columns of block {index} do not follow their predecessor")
        })?;
        size += columns.size();
        let mut before = None;
        for entry in 0..columns.count {
            let address = columns.address(entry).ok_or_else(|| at("break off"))?;
            let sorted = before.map_or(blocks.start(index) == Some(address), |before| address > before);
            ensure(sorted, id, "the columns of block", index as u64, "are not sorted")?;
            before = Some(address);
        }
        check(blocks.start(index + 1).is_none_or(|next| before < Some(next)), id, || {
            format!("the columns of block {index} reach into the next")
        })?;
        count += columns.count as u64;
    }
    check_tail(id, blocks.columns, size)?;
    let expected = table.header.section(id).count;
    check(count == expected, id, || format!("{expected} column entries expected, found {count}"))
}
