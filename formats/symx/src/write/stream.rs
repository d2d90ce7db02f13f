//! The stream of rows, cut into blocks.

use super::chains::LineBases;
use crate::bits::{BitWriter, TAIL, width_of};
use crate::rows::{ROW_BLOCK_BYTES, TIGHT_ROWS};
use crate::{FunctionRecord, WriteError};
use alloc::vec::Vec;

/// Rows in a block: more make the table smaller and the search in it longer.
const ROWS_PER_BLOCK: usize = TIGHT_ROWS;
/// Column entries that go with a block.
const COLUMNS_PER_BLOCK: usize = 64;
/// Addresses in a block are 32-bit offsets to its start.
const MAX_SPAN: u64 = u32::MAX as u64;

/// Rows as they come, by address.
#[derive(Default)]
pub(super) struct Stream {
    /// The blocks that are cut, and the one that is being filled.
    blocks: Vec<PendingBlock>,
    /// The rows of all of them: what their lines count from is known only in the end.
    rows: Vec<PendingRow>,
    /// How many of them lie before the last block.
    rows_before: usize,
    out: ColumnSections,
    has_columns: bool,
    start: u64,
    /// Column entries of the last block: offset to its start, column.
    columns: Vec<(u32, u32)>,
    /// What the last row says: context and line; `None` in a gap.
    current: Option<(u32, u32)>,
    /// The column that holds since the last column entry.
    column: u32,
    /// Where the functions so far end.
    end: u64,
}

struct PendingBlock {
    start: u64,
    /// How many rows.
    rows: u8,
}

struct PendingRow {
    /// From the block's start.
    offset: u32,
    /// [`GAP`] where there is no function.
    context: u32,
    line: u32,
}

/// No context: they are fewer.
const GAP: u32 = u32::MAX;

/// The finished sections of columns.
#[derive(Default)]
struct ColumnSections {
    blocks: Vec<u8>,
    columns: BitWriter,
    count: u64,
}

/// The finished sections.
pub(super) struct BlockSections {
    pub(super) starts: Vec<u64>,
    pub(super) blocks: BlockRecords,
    pub(super) rows: BitWriter,
    pub(super) row_count: u64,
    pub(super) column_blocks: Vec<u8>,
    pub(super) columns: BitWriter,
    pub(super) column_count: u64,
}

/// What is said of each block.
pub(super) enum BlockRecords {
    Whole(Vec<u8>),
    /// Offset, context base, number of rows, bits of address, line and context.
    Tight(Vec<[u32; 6]>),
}

impl Stream {
    /// With room for the rows of these functions, and for the gaps between them in most programs.
    pub(super) fn for_functions(functions: &[FunctionRecord]) -> Self {
        let rows = functions.iter().map(|function| function.rows.len() + 1).sum();
        Self { rows: Vec::with_capacity(rows), ..Self::default() }
    }

    /// Nothing lies between the last function's end and `start`.
    pub(super) fn gap_until(&mut self, start: u64) -> Result<(), WriteError> {
        if self.current.is_some() && start > self.end { self.push(self.end, None, self.column) } else { Ok(()) }
    }

    /// From `address` on, `context` and `line` hold, and `column`.
    pub(super) fn row(&mut self, address: u64, context: u32, line: u32, column: u32) -> Result<(), WriteError> {
        let same = self.current == Some((context, line));
        if same && column == self.column { Ok(()) } else { self.push(address, Some((context, line)), column) }
    }

    /// Where the function that was written ends.
    pub(super) fn end_function(&mut self, end: u64) {
        self.end = end;
    }

    /// Ends the stream: behind the last function there is nothing. In a tight table the lines of a context count from what `line_bases` says of it.
    pub(super) fn finish(mut self, line_bases: Option<&LineBases<'_>>) -> Result<BlockSections, WriteError> {
        if self.current.is_some() {
            self.push(self.end, None, self.column)?;
        }
        self.cut()?;
        let mut rows = BitWriter::default();
        let mut pending = self.rows.as_slice();
        let mut whole = Vec::with_capacity(if line_bases.is_some() { 0 } else { self.blocks.len() * ROW_BLOCK_BYTES });
        let mut tight = Vec::with_capacity(if line_bases.is_some() { self.blocks.len() } else { 0 });
        for block in &self.blocks {
            let (of_block, behind) = pending.split_at_checked(block.rows.into()).unwrap_or_default();
            pending = behind;
            match line_bases {
                None => write_whole(of_block, &mut rows, &mut whole)?,
                Some(bases) => tight.push(write_tight(of_block, &mut rows, bases)?),
            }
        }
        let ColumnSections { mut blocks, mut columns, mut count } = self.out;
        if !self.has_columns {
            (blocks, columns, count) = (Vec::new(), BitWriter::default(), 0);
        }
        for section in [&mut rows.bytes, &mut columns.bytes] {
            section.resize(section.len() + TAIL, 0);
        }
        Ok(BlockSections {
            starts: self.blocks.iter().map(|block| block.start).collect(),
            blocks: if line_bases.is_some() { BlockRecords::Tight(tight) } else { BlockRecords::Whole(whole) },
            rows,
            row_count: self.rows.len() as u64,
            column_blocks: blocks,
            columns,
            column_count: count,
        })
    }

    /// Each context of a row and its line.
    pub(super) fn lines(&self) -> impl Iterator<Item = (u32, u32)> {
        self.rows.iter().filter(|row| row.context != GAP && row.line != 0).map(|row| (row.context, row.line))
    }

    #[inline]
    fn push(&mut self, address: u64, value: Option<(u32, u32)>, column: u32) -> Result<(), WriteError> {
        let rows = self.rows.len() - self.rows_before;
        let full = rows >= ROWS_PER_BLOCK || self.columns.len() >= COLUMNS_PER_BLOCK;
        let (context, line) = value.unwrap_or((GAP, 0));
        if rows == 0 || full || address - self.start > MAX_SPAN {
            self.cut()?;
            self.start = address;
            self.rows.push(PendingRow { offset: 0, context, line });
            self.columns.push((0, column));
        } else {
            let offset = (address - self.start) as u32;
            if value != self.current {
                self.rows.push(PendingRow { offset, context, line });
            }
            if column != self.column {
                self.columns.push((offset, column));
            }
        }
        self.has_columns |= column != 0;
        (self.current, self.column) = (value, column);
        Ok(())
    }

    /// Ends the block that was being filled.
    fn cut(&mut self) -> Result<(), WriteError> {
        let rows = self.rows.len() - self.rows_before;
        if rows == 0 {
            return Ok(());
        }
        self.blocks.push(PendingBlock { start: self.start, rows: rows as u8 });
        self.rows_before = self.rows.len();
        self.write_columns()
    }

    fn write_columns(&mut self) -> Result<(), WriteError> {
        let out = &mut self.out;
        let address_bits = width_of(self.columns.last().map_or(0, |(offset, _)| *offset));
        let column_bits = width_of(self.columns.iter().map(|(_, column)| *column).max().unwrap_or(0));
        out.blocks.extend(offset(&out.columns, "bytes of columns")?.to_le_bytes());
        out.blocks.extend([self.columns.len() as u8, address_bits, column_bits, 0]);
        for (offset, column) in &self.columns {
            out.columns.put(*offset, address_bits);
            out.columns.put(*column, column_bits);
        }
        out.columns.align();
        out.count += self.columns.len() as u64;
        self.columns.clear();
        Ok(())
    }
}

/// Appends the rows of a block, and what is said of it.
fn write_whole(rows: &[PendingRow], out: &mut BitWriter, records: &mut Vec<u8>) -> Result<(), WriteError> {
    let (mut contexts, mut lines) = (Span::EMPTY, Span::EMPTY);
    for row in rows.iter().filter(|row| row.context != GAP) {
        contexts.add(row.context);
        if row.line != 0 {
            lines.add(row.line);
        }
    }
    let address_bits = width_of(rows.last().map_or(0, |row| row.offset));
    let (line_bits, context_bits) = (lines.width(), contexts.width());
    for field in [offset(out, "bytes of rows")?, contexts.base(), lines.base()] {
        records.extend(field.to_le_bytes());
    }
    records.extend([rows.len() as u8, address_bits, line_bits, context_bits]);
    for row in rows {
        // Codes count from one: zero is a gap, or no line.
        let context = if row.context == GAP { 0 } else { contexts.code(row.context) };
        let line = if row.line == 0 { 0 } else { lines.code(row.line) };
        out.put(row.offset, address_bits);
        out.put(line, line_bits);
        out.put(context, context_bits);
    }
    out.align();
    Ok(())
}

/// The same of a tight block.
fn write_tight(rows: &[PendingRow], out: &mut BitWriter, bases: &LineBases<'_>) -> Result<[u32; 6], WriteError> {
    let (mut contexts, mut lines) = (Span::EMPTY, 0);
    let mut codes = [0; ROWS_PER_BLOCK];
    for (row, code) in rows.iter().zip(&mut codes) {
        if row.context != GAP {
            contexts.add(row.context);
            if row.line != 0 {
                *code = row.line - bases.of(row.context);
                lines |= *code;
            }
        }
    }
    let span = rows.last().map_or(0, |row| row.offset);
    // The fewest low bits with which the ones of all rows and the zeroes before them are no more than 64.
    let room = u64::BITS - rows.len() as u32;
    let mut low_bits = width_of(span).saturating_sub(width_of(room));
    while u64::from(span) >> low_bits > room.into() {
        low_bits += 1;
    }
    let (line_bits, context_bits) = (width_of(lines), contexts.width());
    let record = [
        offset(out, "bytes of rows")?,
        contexts.base(),
        rows.len() as u32,
        low_bits.into(),
        line_bits.into(),
        context_bits.into(),
    ];
    let high = |row: &PendingRow| u64::from(row.offset) >> low_bits;
    let highs = rows.iter().zip(0u64..).fold(0, |highs, (row, before)| highs | 1u64 << (high(row) + before));
    out.bytes.extend(highs.to_le_bytes());
    for (row, line) in rows.iter().zip(codes) {
        let context = if row.context == GAP { 0 } else { contexts.code(row.context) };
        out.put((u64::from(row.offset) & ((1 << low_bits) - 1)) as u32, low_bits);
        out.put(line, line_bits);
        out.put(context, context_bits);
    }
    out.align();
    Ok(record)
}

/// The least and the greatest of some numbers.
struct Span {
    least: u32,
    greatest: u32,
}

impl Span {
    const EMPTY: Self = Self { least: u32::MAX, greatest: 0 };

    fn add(&mut self, value: u32) {
        self.least = self.least.min(value);
        self.greatest = self.greatest.max(value);
    }

    /// What codes count from; 0 where there are none.
    fn base(&self) -> u32 {
        if self.least <= self.greatest { self.least } else { 0 }
    }

    /// The code of a number that was added.
    fn code(&self, value: u32) -> u32 {
        value.wrapping_sub(self.least).wrapping_add(1)
    }

    /// How many bits the largest code takes.
    fn width(&self) -> u8 {
        if self.least <= self.greatest { width_of(self.code(self.greatest)) } else { 0 }
    }
}

fn offset(section: &BitWriter, what: &'static str) -> Result<u32, WriteError> {
    u32::try_from(section.bytes.len()).map_err(|_| WriteError::TooMany { what })
}

impl BlockSections {
    /// The block starts, as wide as the table is.
    pub(super) fn start_bytes(&self, wide: bool) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.starts.len() * 8);
        for start in &self.starts {
            match wide {
                true => bytes.extend(start.to_le_bytes()),
                // The last end lies within 32 bits, and so does every start.
                false => bytes.extend((*start as u32).to_le_bytes()),
            }
        }
        bytes
    }
}
