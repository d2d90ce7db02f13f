//! The rows and column entries of one block, packed into as few bits as the block needs, each reached without reading
//! those before it.

use crate::bits::{MAX_BITS, TAIL, bits, select};
use crate::layout::u32_at;

/// The context code of a row that says "no function here".
const GAP: u32 = 0;
/// The line code of a row without a line.
const NO_LINE: u32 = 0;
/// Bytes of a row block's record.
pub(crate) const ROW_BLOCK_BYTES: usize = 16;
/// The most rows of a tight block.
pub(crate) const TIGHT_ROWS: usize = 32;
/// Bytes of the high parts of a tight block's addresses.
const HIGH_BYTES: usize = 8;
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

/// What is said of a block of rows apart from them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRecord {
    /// Where its rows begin, in bytes of their section.
    pub(crate) offset: u32,
    context_base: u32,
    line_base: u32,
    count: u8,
    /// Bits of address, line code and context code.
    widths: [u8; 3],
    tight: bool,
}

impl BlockRecord {
    #[inline(always)]
    pub(crate) fn whole(record: &[u8; ROW_BLOCK_BYTES]) -> Self {
        let [.., count, address_bits, line_bits, context_bits] = *record;
        let (offset, context_base, line_base) = (u32_at(record, 0), u32_at(record, 4), u32_at(record, 8));
        Self { offset, context_base, line_base, count, widths: [address_bits, line_bits, context_bits], tight: false }
    }

    #[inline(always)]
    pub(crate) fn tight([offset, context_base, count, widths @ ..]: [u32; 6]) -> Self {
        // Counts and widths that are too large are none.
        let count = if count <= TIGHT_ROWS as u32 { count as u8 } else { 0 };
        let widths = widths.map(|width| width.min(u8::MAX.into()) as u8);
        Self { offset, context_base, line_base: 0, count, widths, tight: true }
    }

    /// Bytes from the offset on that a reader of all rows touches: it loads eight at any field.
    pub(crate) fn read_bytes(&self) -> u64 {
        packed_bytes(self.count, &self.widths) + if self.tight { HIGH_BYTES as u64 } else { 0 }
    }
}

/// One block of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowBlock<'a> {
    /// First address.
    pub(crate) start: u64,
    /// How many rows there are, 1 to 255.
    pub(crate) count: usize,
    /// From the packed fields of the first row on.
    bytes: &'a [u8],
    widths: [u8; 3],
    context_base: u32,
    line_base: u32,
    /// The high parts of addresses, of a tight block: a one for each row, and as many zeroes before it as its high part says.
    highs: Option<u64>,
}

/// A row of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub(crate) row: usize,
    /// Where the row's one is among the high parts.
    bit: u32,
}

/// A row: who and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowValue {
    /// `None` in a gap.
    pub(crate) context: Option<u32>,
    /// 0 = none. In a tight table, what has to be added to the line base of the context's code.
    pub(crate) line: u32,
}

impl<'a> RowBlock<'a> {
    /// The block that `record` describes; `None` where it cannot be one.
    #[inline(always)]
    pub(crate) fn new(start: u64, record: BlockRecord, rows: &'a [u8]) -> Option<Self> {
        Self::over(start, record, rows.get(record.offset as usize..)?)
    }

    /// The same over the bytes from its offset on.
    #[inline(always)]
    pub(crate) fn over(start: u64, record: BlockRecord, bytes: &'a [u8]) -> Option<Self> {
        let BlockRecord { context_base, line_base, count, widths, .. } = record;
        if count == 0 || widths.iter().any(|width| *width > MAX_BITS) {
            return None;
        }
        let (highs, bytes) = match record.tight {
            false => (None, bytes),
            true => {
                let (highs, rest) = bytes.split_first_chunk::<HIGH_BYTES>()?;
                (Some(u64::from_le_bytes(*highs)), rest)
            }
        };
        Some(Self { start, count: usize::from(count), bytes, widths, context_base, line_base, highs })
    }

    /// Bits of one row.
    #[inline(always)]
    fn stride(&self) -> usize {
        self.widths.iter().map(|width| usize::from(*width)).sum()
    }

    /// Bytes of all rows.
    pub(crate) fn size(&self) -> usize {
        let highs = if self.highs.is_some() { HIGH_BYTES } else { 0 };
        highs + (self.count * self.stride()).div_ceil(8)
    }

    /// Whether there are as many high parts as rows.
    pub(crate) fn has_all_highs(&self) -> bool {
        self.highs.is_none_or(|highs| highs.count_ones() as usize == self.count)
    }

    /// The last row at or below `address`, which is not below the block's start.
    #[inline(always)]
    pub(crate) fn find(&self, address: u64) -> Option<Position> {
        let offset = address.saturating_sub(self.start);
        let Some(highs) = self.highs else {
            let (stride, width) = (self.stride(), self.widths[0]);
            let row = last_at_most(self.count, offset, |row| bits(self.bytes, row * stride, width))?;
            return Some(Position { row, bit: 0 });
        };
        let width = self.widths[0];
        let (high, low) = (offset >> width, offset & ((1 << width) - 1));
        // Before the zero of this number are the rows whose high parts are not above it.
        let mut bit = select(!highs, high);
        let mut row = match bit {
            u64::BITS => self.count,
            bit => (bit as usize).checked_sub(high as usize).filter(|rows| *rows <= self.count)?,
        };
        loop {
            row = row.checked_sub(1)?;
            let before = highs & (1u64.checked_shl(bit).unwrap_or(0).wrapping_sub(1));
            bit = before.checked_ilog2()?;
            let below = u64::from(bit) < high.saturating_add(row as u64);
            if below || u64::from(bits(self.bytes, row * self.stride(), width)?) <= low {
                return Some(Position { row, bit });
            }
        }
    }

    /// Row `row`.
    #[inline]
    pub(crate) fn at(&self, row: usize) -> Position {
        Position { row, bit: self.highs.map_or(0, |highs| select(highs, row as u64)) }
    }

    /// The row after this one; `None` at the end of the block.
    #[inline(always)]
    pub(crate) fn next(&self, position: Position) -> Option<Position> {
        let row = position.row + 1;
        let bit = match self.highs {
            None => 0,
            Some(highs) => {
                let after = position.bit + 1;
                after + highs.checked_shr(after).unwrap_or(0).trailing_zeros()
            }
        };
        (row < self.count).then_some(Position { row, bit })
    }

    /// First address of a row.
    #[inline(always)]
    pub(crate) fn address(&self, Position { row, bit }: Position) -> Option<u64> {
        let width = self.widths[0];
        let low = u64::from(bits(self.bytes, row * self.stride(), width)?);
        let high = match self.highs {
            None => 0,
            // At most 128, and 32 bits of low parts below it.
            Some(_) => u64::from(bit).checked_sub(row as u64)? << width,
        };
        self.start.checked_add(high + low)
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
            line: match self.highs {
                _ if line == NO_LINE => 0,
                None => self.line_base.wrapping_add(line - 1),
                Some(_) => line,
            },
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
