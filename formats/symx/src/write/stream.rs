//! The stream of rows, cut into blocks.

use crate::WriteError;
use crate::bits::{BitWriter, TAIL, width_of};
use alloc::vec::Vec;

/// Rows in a block: more make the table smaller and the search in it longer.
const ROWS_PER_BLOCK: usize = 32;
/// Column entries that go with a block.
const COLUMNS_PER_BLOCK: usize = 64;
/// Addresses in a block are 32-bit offsets to its start.
const MAX_SPAN: u64 = u32::MAX as u64;

/// Rows as they come, by address.
#[derive(Default)]
pub(super) struct Stream {
    out: BlockSections,
    has_columns: bool,
    start: u64,
    /// Rows of the block that is being filled.
    rows: Vec<PendingRow>,
    /// Its column entries: offset to the block's start, column.
    columns: Vec<(u32, u32)>,
    /// What the last row says: context and line; `None` in a gap.
    current: Option<(u32, u32)>,
    /// The column that holds since the last column entry.
    column: u32,
    /// Where the functions so far end.
    end: u64,
}

struct PendingRow {
    offset: u32,
    value: Option<(u32, u32)>,
}

/// The finished sections.
#[derive(Default)]
pub(super) struct BlockSections {
    pub(super) starts: Vec<u64>,
    pub(super) blocks: Vec<u8>,
    pub(super) rows: BitWriter,
    pub(super) row_count: u64,
    pub(super) column_blocks: Vec<u8>,
    pub(super) columns: BitWriter,
    pub(super) column_count: u64,
}

impl Stream {
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

    /// Ends the stream: behind the last function there is nothing.
    pub(super) fn finish(mut self) -> Result<BlockSections, WriteError> {
        if self.current.is_some() {
            self.push(self.end, None, self.column)?;
        }
        self.flush()?;
        let mut out = self.out;
        if !self.has_columns {
            (out.column_blocks, out.columns, out.column_count) = (Vec::new(), BitWriter::default(), 0);
        }
        for section in [&mut out.rows.bytes, &mut out.columns.bytes] {
            section.resize(section.len() + TAIL, 0);
        }
        Ok(out)
    }

    fn push(&mut self, address: u64, value: Option<(u32, u32)>, column: u32) -> Result<(), WriteError> {
        let full = self.rows.len() >= ROWS_PER_BLOCK || self.columns.len() >= COLUMNS_PER_BLOCK;
        if self.rows.is_empty() || full || address - self.start > MAX_SPAN {
            self.flush()?;
            self.start = address;
            self.rows.push(PendingRow { offset: 0, value });
            self.columns.push((0, column));
        } else {
            let offset = (address - self.start) as u32;
            if value != self.current {
                self.rows.push(PendingRow { offset, value });
            }
            if column != self.column {
                self.columns.push((offset, column));
            }
        }
        self.has_columns |= column != 0;
        (self.current, self.column) = (value, column);
        Ok(())
    }

    /// Writes the block that was being filled.
    fn flush(&mut self) -> Result<(), WriteError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        self.out.starts.push(self.start);
        self.flush_rows()?;
        self.flush_columns()
    }

    fn flush_rows(&mut self) -> Result<(), WriteError> {
        let out = &mut self.out;
        let (mut contexts, mut lines) = (Span::EMPTY, Span::EMPTY);
        for (context, line) in self.rows.iter().filter_map(|row| row.value) {
            contexts.add(context);
            if line != 0 {
                lines.add(line);
            }
        }
        let address_bits = width_of(self.rows.last().map_or(0, |row| row.offset));
        let (line_bits, context_bits) = (lines.width(), contexts.width());
        for field in [offset(&out.rows, "bytes of rows")?, contexts.base(), lines.base()] {
            out.blocks.extend(field.to_le_bytes());
        }
        out.blocks.extend([self.rows.len() as u8, address_bits, line_bits, context_bits]);
        for row in &self.rows {
            // Codes count from one: zero is a gap, or no line.
            let (context, line) = match row.value {
                Some((context, 0)) => (contexts.code(context), 0),
                Some((context, line)) => (contexts.code(context), lines.code(line)),
                None => (0, 0),
            };
            out.rows.put(row.offset, address_bits);
            out.rows.put(line, line_bits);
            out.rows.put(context, context_bits);
        }
        out.rows.align();
        out.row_count += self.rows.len() as u64;
        self.rows.clear();
        Ok(())
    }

    fn flush_columns(&mut self) -> Result<(), WriteError> {
        let out = &mut self.out;
        let address_bits = width_of(self.columns.last().map_or(0, |(offset, _)| *offset));
        let column_bits = width_of(self.columns.iter().map(|(_, column)| *column).max().unwrap_or(0));
        out.column_blocks.extend(offset(&out.columns, "bytes of columns")?.to_le_bytes());
        out.column_blocks.extend([self.columns.len() as u8, address_bits, column_bits, 0]);
        for (offset, column) in &self.columns {
            out.columns.put(*offset, address_bits);
            out.columns.put(*column, column_bits);
        }
        out.columns.align();
        out.column_count += self.columns.len() as u64;
        self.columns.clear();
        Ok(())
    }
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
