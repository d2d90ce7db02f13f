//! The rows and column entries of one block.

use crate::layout::{MAX_COLUMNS_PER_BLOCK, MAX_ROWS_PER_BLOCK};
use crate::varint::Cursor;

/// Where a row says that there is no function.
pub(crate) const GAP: u32 = 0;

/// Reads the rows of a block, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowReader<'a> {
    cursor: Cursor<'a>,
    left: usize,
    /// First address of the row last read.
    pub(crate) address: u64,
    /// Its context plus one, or [`GAP`].
    pub(crate) state: u32,
    /// Its line; 0 = none. Means nothing in a gap.
    pub(crate) line: u32,
    /// The last context plus one that was no gap: differences are taken to it.
    last: u32,
}

impl<'a> RowReader<'a> {
    /// Reads the first row of the block that starts at `start` and whose rows are `bytes`.
    #[inline(always)]
    pub(crate) fn new(start: u64, bytes: &'a [u8]) -> Option<Self> {
        let cursor = Cursor::new(bytes);
        let mut reader = Self { cursor, left: MAX_ROWS_PER_BLOCK - 1, address: start, state: GAP, line: 0, last: 0 };
        reader.changed()?;
        Some(reader)
    }

    /// The address of the next row, if there is one, and whether its context differs. [`enter`](Self::enter) goes there.
    #[inline(always)]
    pub(crate) fn peek(&mut self) -> Option<(u64, bool)> {
        self.left = self.left.checked_sub(1)?;
        let head = self.cursor.varint()?;
        Some((self.address.checked_add(head >> 1)?, head & 1 != 0))
    }

    /// Reads the rest of the row whose head was peeked at.
    #[inline(always)]
    pub(crate) fn enter(&mut self, (address, changed): (u64, bool)) -> Option<()> {
        self.address = address;
        if changed { self.changed() } else { self.step_line() }
    }

    #[inline(always)]
    fn changed(&mut self) -> Option<()> {
        let step = self.cursor.difference()?;
        if step == 0 {
            self.state = GAP;
            return Some(());
        }
        self.last = self.last.wrapping_add(step);
        self.state = self.last;
        self.step_line()
    }

    #[inline(always)]
    fn step_line(&mut self) -> Option<()> {
        self.line = self.line.wrapping_add(self.cursor.difference()?);
        Some(())
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.cursor.is_empty()
    }
}

/// A stretch of addresses with one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnEntry {
    pub(crate) start: u64,
    /// `None`: to the end of the block.
    pub(crate) end: Option<u64>,
    pub(crate) column: u32,
}

/// The column entry that holds at `address`, in the entries of the block that starts at `start`.
pub(crate) fn column_at(start: u64, bytes: &[u8], address: u64) -> ColumnEntry {
    let mut cursor = Cursor::new(bytes);
    let mut entry = ColumnEntry { start, end: None, column: cursor.varint().unwrap_or(0) as u32 };
    for _ in 1..MAX_COLUMNS_PER_BLOCK {
        let Some(next) = cursor.varint().and_then(|step| entry.start.checked_add(step)) else { break };
        if next > address {
            entry.end = Some(next);
            break;
        }
        let Some(column) = cursor.varint() else { break };
        entry.start = next;
        entry.column = column as u32;
    }
    entry
}
