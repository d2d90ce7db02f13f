//! The stream of rows, cut into blocks.

use crate::WriteError;
use crate::layout::{COLUMNS_PER_BLOCK, ROWS_PER_BLOCK};
use crate::varint::{put, put_difference};
use alloc::vec::Vec;

/// A row's head holds the step to it and one more bit; a longer step begins a new block.
const MAX_STEP: u64 = u32::MAX as u64;

/// Rows as they come, by address.
#[derive(Default)]
pub(super) struct Stream {
    starts: Vec<u64>,
    offsets: Vec<usize>,
    rows: Vec<u8>,
    row_count: u64,
    column_offsets: Vec<usize>,
    columns: Vec<u8>,
    column_count: u64,
    has_columns: bool,
    rows_in_block: usize,
    columns_in_block: usize,
    /// First address of the last row, and of the last column entry.
    row_at: u64,
    column_at: u64,
    /// What the last row says; `None` in a gap.
    current: Option<(u32, u32)>,
    /// The column that holds since `column_at`.
    column: u32,
    /// What differences are taken to.
    context: u32,
    line: u32,
    /// Where the functions so far end.
    end: u64,
}

/// The finished sections.
pub(super) struct BlockSections {
    pub(super) starts: Vec<u8>,
    pub(super) offsets: Vec<u8>,
    pub(super) rows: Vec<u8>,
    pub(super) row_count: u64,
    pub(super) column_offsets: Vec<u8>,
    pub(super) columns: Vec<u8>,
    pub(super) column_count: u64,
    pub(super) blocks: u64,
}

impl Stream {
    /// Nothing lies between the last function's end and `start`.
    pub(super) fn gap_until(&mut self, start: u64) {
        if self.current.is_some() && start > self.end {
            self.gap();
        }
    }

    /// From `address` on, `context` and `line` hold, and `column`.
    pub(super) fn row(&mut self, address: u64, context: u32, line: u32, column: u32) {
        let same_row = self.current == Some((context, line));
        if same_row && (column == self.column || self.columns_in_block < COLUMNS_PER_BLOCK) {
            self.put_column(address, column);
            return;
        }
        let block_full = self.rows_in_block >= ROWS_PER_BLOCK
            || self.columns_in_block >= COLUMNS_PER_BLOCK
            || address - self.row_at > MAX_STEP;
        if block_full || self.starts.is_empty() {
            self.begin_block(address);
            self.put_context(context, line);
            self.put_first_column(address, column);
            return;
        }
        let changed = self.current.is_none_or(|(current, _)| current != context);
        self.put_head(address, changed);
        if changed {
            self.put_context(context, line);
        } else {
            put_difference(&mut self.rows, self.line, line);
            self.line = line;
            self.current = Some((context, line));
        }
        self.put_column(address, column);
    }

    /// Where the function that was written ends.
    pub(super) fn end_function(&mut self, end: u64) {
        self.end = end;
    }

    /// Ends the stream: behind the last function there is nothing.
    pub(super) fn finish(&mut self) {
        if self.current.is_some() {
            self.gap();
        }
    }

    fn gap(&mut self) {
        let address = self.end;
        if self.rows_in_block >= ROWS_PER_BLOCK || address - self.row_at > MAX_STEP {
            self.begin_block(address);
            put(&mut self.rows, 0);
            self.put_first_column(address, 0);
        } else {
            self.put_head(address, true);
            put(&mut self.rows, 0);
        }
        self.current = None;
    }

    fn begin_block(&mut self, address: u64) {
        self.starts.push(address);
        self.offsets.push(self.rows.len());
        self.rows_in_block = 1;
        self.row_count += 1;
        self.row_at = address;
        self.context = 0;
        self.line = 0;
    }

    fn put_head(&mut self, address: u64, changed: bool) {
        put(&mut self.rows, (address - self.row_at) << 1 | u64::from(changed));
        self.row_at = address;
        self.rows_in_block += 1;
        self.row_count += 1;
    }

    fn put_context(&mut self, context: u32, line: u32) {
        // Contexts count from one here, so that a difference of zero is free to mean a gap.
        put_difference(&mut self.rows, self.context, context + 1);
        put_difference(&mut self.rows, self.line, line);
        (self.context, self.line) = (context + 1, line);
        self.current = Some((context, line));
    }

    fn put_first_column(&mut self, address: u64, column: u32) {
        self.column_offsets.push(self.columns.len());
        put(&mut self.columns, u64::from(column));
        self.has_columns |= column != 0;
        self.column_count += 1;
        self.columns_in_block = 1;
        (self.column_at, self.column) = (address, column);
    }

    fn put_column(&mut self, address: u64, column: u32) {
        if column == self.column {
            return;
        }
        put(&mut self.columns, address - self.column_at);
        put(&mut self.columns, u64::from(column));
        self.has_columns |= column != 0;
        self.column_count += 1;
        self.columns_in_block += 1;
        (self.column_at, self.column) = (address, column);
    }

    pub(super) fn into_blocks(self, wide: bool) -> Result<BlockSections, WriteError> {
        let mut starts = Vec::with_capacity(self.starts.len() * if wide { 8 } else { 4 });
        for start in &self.starts {
            match wide {
                true => starts.extend(start.to_le_bytes()),
                // The last end lies within 32 bits, and so does every start.
                false => starts.extend((*start as u32).to_le_bytes()),
            }
        }
        let no_columns = !self.has_columns;
        Ok(BlockSections {
            starts,
            offsets: offsets(&self.offsets, self.rows.len(), "bytes of rows")?,
            rows: self.rows,
            row_count: self.row_count,
            column_offsets: if no_columns {
                Vec::new()
            } else {
                offsets(&self.column_offsets, self.columns.len(), "bytes of columns")?
            },
            columns: if no_columns { Vec::new() } else { self.columns },
            column_count: if no_columns { 0 } else { self.column_count },
            blocks: self.starts.len() as u64,
        })
    }
}

fn offsets(all: &[usize], size: usize, what: &'static str) -> Result<Vec<u8>, WriteError> {
    u32::try_from(size).map_err(|_| WriteError::TooMany { what })?;
    Ok(all.iter().flat_map(|offset| (*offset as u32).to_le_bytes()).collect())
}
