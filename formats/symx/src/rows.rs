//! The rows and column entries of one block, packed into as few bits as the block needs, each reached without reading
//! those before it.

use crate::bits::{MAX_BITS, TAIL, bits};
use crate::layout::u32_at;

/// The context code of a row that says "no function here".
const GAP: u32 = 0;
/// The line code of a row without a line.
const NO_LINE: u32 = 0;
/// Bytes of a row block's record.
pub(crate) const ROW_BLOCK_BYTES: usize = 16;
/// Bytes of a column block's record.
pub(crate) const COLUMN_BLOCK_BYTES: usize = 8;

/// The last of `count` entries, sorted by what `key` gives, that is at most `limit`; the first has 0.
#[inline(always)]
fn last_at_most(count: usize, limit: u64, key: impl Fn(usize) -> Option<u32>) -> Option<usize> {
    let (mut low, mut left) = (0, count);
    while left > 1 {
        let half = left / 2;
        let before = u64::from(key(low + half)?) <= limit;
        // Which half it is cannot be foretold: a conditional move costs less than a wrong guess.
        low = core::hint::select_unpredictable(before, low + half, low);
        left -= half;
    }
    Some(low)
}

/// Bytes of `count` records of fields of these widths in bits, and those that are loaded behind them.
fn packed_bytes(count: u8, widths: &[u8]) -> u64 {
    let bits: u64 = widths.iter().map(|width| u64::from(*width)).sum();
    (u64::from(count) * bits).div_ceil(8) + TAIL as u64
}

/// One block of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowBlock<'a> {
    /// First address.
    pub(crate) start: u64,
    /// How many rows there are, 1 to 255.
    pub(crate) count: usize,
    bytes: &'a [u8],
    widths: [u8; 3],
    context_base: u32,
    line_base: u32,
}

/// A row: who and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowValue {
    /// `None` in a gap.
    pub(crate) context: Option<u32>,
    /// 0 = none.
    pub(crate) line: u32,
}

impl<'a> RowBlock<'a> {
    /// The block that `record` describes; `None` where it cannot be one.
    #[inline(always)]
    pub(crate) fn new(start: u64, record: &[u8; ROW_BLOCK_BYTES], rows: &'a [u8]) -> Option<Self> {
        Self::over(start, record, rows.get(u32_at(record, 0) as usize..)?)
    }

    /// The same over the bytes from its first row on.
    #[inline(always)]
    pub(crate) fn over(start: u64, record: &[u8; ROW_BLOCK_BYTES], bytes: &'a [u8]) -> Option<Self> {
        let [.., count, address_bits, line_bits, context_bits] = *record;
        let widths = [address_bits, line_bits, context_bits];
        if count == 0 || widths.iter().any(|width| *width > MAX_BITS) {
            return None;
        }
        let (context_base, line_base) = (u32_at(record, 4), u32_at(record, 8));
        Some(Self { start, count: usize::from(count), bytes, widths, context_base, line_base })
    }

    /// Bytes from the first row on that a reader of all rows touches: it loads eight at any field.
    pub(crate) fn read_bytes(record: &[u8; ROW_BLOCK_BYTES]) -> u64 {
        let [.., count, address_bits, line_bits, context_bits] = *record;
        packed_bytes(count, &[address_bits, line_bits, context_bits])
    }

    /// Bits of one row.
    #[inline(always)]
    fn stride(&self) -> usize {
        self.widths.iter().map(|width| usize::from(*width)).sum()
    }

    /// Bytes of all rows.
    pub(crate) fn size(&self) -> usize {
        (self.count * self.stride()).div_ceil(8)
    }

    /// The last row at or below `address`, which is not below the block's start.
    #[inline(always)]
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        let (stride, width) = (self.stride(), self.widths[0]);
        last_at_most(self.count, address.saturating_sub(self.start), |row| bits(self.bytes, row * stride, width))
    }

    /// First address of row `row`.
    #[inline(always)]
    pub(crate) fn address(&self, row: usize) -> Option<u64> {
        self.start.checked_add(bits(self.bytes, row * self.stride(), self.widths[0])?.into())
    }

    /// What row `row` says.
    #[inline(always)]
    pub(crate) fn value(&self, row: usize) -> Option<RowValue> {
        let [address_bits, line_bits, context_bits] = self.widths;
        let at = row * self.stride() + usize::from(address_bits);
        let line = bits(self.bytes, at, line_bits)?;
        let context = bits(self.bytes, at + usize::from(line_bits), context_bits)?;
        Some(RowValue {
            context: (context != GAP).then(|| self.context_base.wrapping_add(context - 1)),
            line: if line == NO_LINE { 0 } else { self.line_base.wrapping_add(line - 1) },
        })
    }
}

/// The column entries of one block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnBlock<'a> {
    start: u64,
    pub(crate) count: usize,
    bytes: &'a [u8],
    widths: [u8; 2],
}

/// A stretch of addresses with one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnEntry {
    pub(crate) start: u64,
    /// `None`: to the end of the block.
    pub(crate) end: Option<u64>,
    /// 0 = none.
    pub(crate) column: u32,
}

impl<'a> ColumnBlock<'a> {
    /// The column entries of the block that starts at `start`; `None` where `record` cannot describe any.
    #[inline(always)]
    pub(crate) fn new(start: u64, record: &[u8; COLUMN_BLOCK_BYTES], columns: &'a [u8]) -> Option<Self> {
        Self::over(start, record, columns.get(u32_at(record, 0) as usize..)?)
    }

    /// The same over the bytes from its first entry on.
    #[inline(always)]
    pub(crate) fn over(start: u64, record: &[u8; COLUMN_BLOCK_BYTES], bytes: &'a [u8]) -> Option<Self> {
        let [.., count, address_bits, column_bits, _] = *record;
        if count == 0 || address_bits > MAX_BITS || column_bits > MAX_BITS {
            return None;
        }
        Some(Self { start, count: usize::from(count), bytes, widths: [address_bits, column_bits] })
    }

    /// Bytes from the first entry on that a reader of all entries touches.
    pub(crate) fn read_bytes(record: &[u8; COLUMN_BLOCK_BYTES]) -> u64 {
        let [.., count, address_bits, column_bits, _] = *record;
        packed_bytes(count, &[address_bits, column_bits])
    }

    #[inline(always)]
    fn stride(&self) -> usize {
        usize::from(self.widths[0]) + usize::from(self.widths[1])
    }

    /// Bytes of all entries.
    pub(crate) fn size(&self) -> usize {
        (self.count * self.stride()).div_ceil(8)
    }

    /// First address of entry `entry`.
    #[inline(always)]
    pub(crate) fn address(&self, entry: usize) -> Option<u64> {
        self.start.checked_add(bits(self.bytes, entry * self.stride(), self.widths[0])?.into())
    }

    #[inline(always)]
    fn find(&self, address: u64) -> Option<usize> {
        let (stride, width) = (self.stride(), self.widths[0]);
        last_at_most(self.count, address.saturating_sub(self.start), |entry| bits(self.bytes, entry * stride, width))
    }

    #[inline(always)]
    fn column(&self, entry: usize) -> u32 {
        let at = entry * self.stride() + usize::from(self.widths[0]);
        bits(self.bytes, at, self.widths[1]).unwrap_or(0)
    }

    /// The column at `address`; 0 = none.
    #[inline(always)]
    pub(crate) fn column_at(&self, address: u64) -> u32 {
        self.find(address).map_or(0, |entry| self.column(entry))
    }

    /// The entry that holds at `address`.
    pub(crate) fn entry_at(&self, address: u64) -> ColumnEntry {
        let entry = self.find(address).unwrap_or(0);
        let end = if entry + 1 < self.count { self.address(entry + 1) } else { None };
        ColumnEntry { start: self.address(entry).unwrap_or(self.start), end, column: self.column(entry) }
    }
}
