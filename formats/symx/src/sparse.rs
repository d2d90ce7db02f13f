//! Looking up in a table that is not at hand: from its header and the few records on the way to one answer, wherever
//! they are read from. A lookup reads some pages of a table of any size.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use crate::contexts::{Code, Context, Form, MAX_PREFIX_BYTES, Named, Origin, Shapes};
use crate::data::{Place, RawFunction, pair_of, stored, symbol_of, text_of};
use crate::layout::{Extent, HEADER_BYTES, MAX_FRAMES, MAX_PRODUCER_BYTES, Outline, SectionId, u32_at};
use crate::packed::Shape;
use crate::phrases::{self, Codes};
use crate::rows::{BlockRecord, COLUMN_BLOCK_BYTES, ColumnBlock, ROW_BLOCK_BYTES, RowBlock};
use crate::varint::Cursor;
use crate::{FunctionFlags, OpenError, SymbolSource};
use symseal_module::{DebugId, Rva, Svma};

/// Longer strings are not read: they read as absent.
const MAX_STRING_BYTES: u64 = phrases::MAX_NAME_BYTES as u64;
/// What is read first of a string: its length and, mostly, all of it.
const STRING_BYTES: u64 = 128;

/// Where the bytes of a table come from.
pub trait ReadAt {
    /// Why they cannot be had.
    type Error;

    /// Fills `into` with the bytes from `offset` on. They lie within the size with which the table was opened.
    ///
    /// # Errors
    /// Whatever keeps the bytes from being read, or from being believed.
    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<(), Self::Error>;
}

impl ReadAt for &[u8] {
    type Error = OpenError;

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<(), OpenError> {
        let found = self.len() as u64;
        let expected = offset.saturating_add(into.len() as u64);
        let bytes = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)?.get(..into.len()));
        into.copy_from_slice(bytes.ok_or(OpenError::Size { expected, found })?);
        Ok(())
    }
}

/// Why a table could not be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SparseError<E> {
    /// It is none, or none that this reader understands.
    Table(OpenError),
    /// Its bytes could not be read.
    Read(E),
}

/// A table of which the header was read, and nothing else is kept.
#[derive(Clone, Debug)]
pub struct SparseTable {
    outline: Outline,
    contexts: Shapes,
}

/// What a table knows about an address: [`Hit`](crate::Hit) with texts of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparseHit {
    /// The function whose code this is.
    pub function: SparseFunction,
    /// The chain, innermost frame first; the last one is the function itself.
    pub frames: Vec<SparseFrame>,
    /// The addresses around the one asked for that have the same frames, column included.
    pub range: Range<Rva>,
}

/// [`Function`](crate::Function) with texts of its own, without aliases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparseFunction {
    /// First byte.
    pub start: Rva,
    /// Bytes.
    pub size: u64,
    /// The name as the source language says it.
    pub name: String,
    /// The linkage name, raw.
    pub symbol: String,
    /// Where the names were read.
    pub source: SymbolSource,
    /// What is special about the range.
    pub flags: FunctionFlags,
}

/// [`Frame`](crate::Frame) with texts of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparseFrame {
    /// The name as the source language says it.
    pub function: String,
    /// The linkage name, raw.
    pub symbol: String,
    /// Source path; empty = unknown.
    pub file: String,
    /// Source line.
    pub line: Option<u32>,
    /// Source column.
    pub column: Option<u32>,
    /// Whether this function was inlined into the next frame.
    pub inlined: bool,
}

impl SparseTable {
    /// Reads and checks the header of a table of `size` bytes, as [`Table::open`](crate::Table::open) does.
    ///
    /// # Errors
    /// [`SparseError`].
    pub fn open<R: ReadAt>(size: u64, source: &mut R) -> Result<Self, SparseError<R::Error>> {
        let mut read = |extent: Extent, at: u64, len: u64| window(source, &extent, at, len).map_err(SparseError::Read);
        let file = Extent { offset: 0, size, count: 0 };
        let head = read(file, 0, HEADER_BYTES as u64)?;
        let head = read(file, 0, Outline::head_bytes(&head))?;
        let outline = Outline::read(&head, size).map_err(SparseError::Table)?;
        let section = outline.section(SectionId::Producer);
        Outline::producer(&read(section, 0, MAX_PRODUCER_BYTES as u64 + 1)?).map_err(SparseError::Table)?;
        let prefix = read(outline.section(SectionId::Contexts), 0, MAX_PREFIX_BYTES as u64)?;
        let contexts = Shapes::new(&outline, &prefix).map_err(SparseError::Table)?;
        Ok(Self { outline, contexts })
    }

    /// The module that the table describes.
    pub fn debug_id(&self) -> DebugId {
        self.outline.debug_id.clone()
    }

    /// What to add to a relative address to get the stated one.
    pub fn image_base(&self) -> Svma {
        self.outline.image_base
    }

    /// What is known about `address`, the same as [`Table::lookup`](crate::Table::lookup) says; `None` between functions
    /// and outside of them.
    ///
    /// # Errors
    /// Those of `source`.
    pub fn lookup<R: ReadAt>(&self, source: &mut R, address: Rva) -> Result<Option<SparseHit>, R::Error> {
        self.lookup_near(source, address, None)
    }

    /// The block of rows in which a lookup of `address` ends: what [`lookup_near`](Self::lookup_near) takes.
    ///
    /// # Errors
    /// Those of `source`.
    pub fn block_of<R: ReadAt>(&self, source: &mut R, address: Rva) -> Result<Option<u64>, R::Error> {
        Lookup { table: self, source }.find_block(address.0)
    }

    /// [`lookup`](Self::lookup), with a guess of the block. A right one spares the search among the blocks' starts; a wrong
    /// one changes nothing else.
    ///
    /// # Errors
    /// Those of `source`.
    pub fn lookup_near<R: ReadAt>(
        &self,
        source: &mut R,
        address: Rva,
        block: Option<u64>,
    ) -> Result<Option<SparseHit>, R::Error> {
        let mut lookup = Lookup { table: self, source };
        let block = match block {
            Some(block) if lookup.holds(block, address.0)? => Some(block),
            _ => lookup.find_block(address.0)?,
        };
        block.map_or(Ok(None), |block| lookup.hit(block, address.0))
    }
}

/// The bytes from `at` on of a section, at most `len`, fewer where it ends before.
fn window<R: ReadAt>(source: &mut R, section: &Extent, at: u64, len: u64) -> Result<Vec<u8>, R::Error> {
    let len = len.min(section.size.saturating_sub(at));
    let mut bytes = alloc::vec![0; len as usize];
    if len > 0 {
        source.read_at(section.offset.saturating_add(at), &mut bytes)?;
    }
    Ok(bytes)
}

struct Lookup<'t, R> {
    table: &'t SparseTable,
    source: &'t mut R,
}

impl<R: ReadAt> Lookup<'_, R> {
    fn section(&self, id: SectionId) -> Extent {
        self.table.outline.section(id)
    }

    fn window(&mut self, id: SectionId, at: u64, len: u64) -> Result<Vec<u8>, R::Error> {
        window(self.source, &self.section(id), at, len)
    }

    fn record<const N: usize>(&mut self, id: SectionId, index: u64) -> Result<Option<[u8; N]>, R::Error> {
        let Some(at) = index.checked_mul(N as u64) else { return Ok(None) };
        Ok(self.window(id, at, N as u64)?.first_chunk().copied())
    }

    fn block_start(&mut self, block: u64) -> Result<Option<u64>, R::Error> {
        let id = SectionId::BlockStarts;
        Ok(match self.table.outline.wide {
            false => self.record(id, block)?.map(|start| u32::from_le_bytes(start).into()),
            true => self.record(id, block)?.map(u64::from_le_bytes),
        })
    }

    /// Whether `block` is the last one that starts at or below `address`.
    fn holds(&mut self, block: u64, address: u64) -> Result<bool, R::Error> {
        let Some(next) = block.checked_add(1) else { return Ok(false) };
        let starts_before = self.block_start(block)?.is_some_and(|start| start <= address);
        Ok(starts_before && self.block_start(next)?.is_none_or(|next| address < next))
    }

    /// The last block that starts at or below `address`. By the same steps as the reader of whole tables, so that both choose the same block
    /// where damage has put them out of order.
    fn find_block(&mut self, address: u64) -> Result<Option<u64>, R::Error> {
        let (mut low, mut left) = (0, self.section(SectionId::BlockStarts).count);
        while left > 1 {
            let half = left / 2;
            if self.block_start(low + half)?.is_some_and(|start| start <= address) {
                low += half;
            }
            left -= half;
        }
        Ok(self.block_start(low)?.is_some_and(|start| left > 0 && start <= address).then_some(low))
    }

    fn block_record(&mut self, index: u64) -> Result<Option<BlockRecord>, R::Error> {
        let Some(tight) = self.table.contexts.tight else {
            let record = self.record::<ROW_BLOCK_BYTES>(SectionId::Blocks, index)?;
            return Ok(record.as_ref().map(BlockRecord::whole));
        };
        let Ok(index) = u32::try_from(index) else { return Ok(None) };
        Ok(self.packed(SectionId::Blocks, 0, tight.blocks, index)?.map(BlockRecord::tight))
    }

    fn hit(&mut self, index: u64, address: u64) -> Result<Option<SparseHit>, R::Error> {
        if !self.table.outline.wide && address > u64::from(u32::MAX) {
            return Ok(None);
        }
        let Some(start) = self.block_start(index)? else { return Ok(None) };
        let Some(record) = self.block_record(index)? else { return Ok(None) };
        let rows = self.window(SectionId::Rows, record.offset.into(), record.read_bytes())?;
        let Some(block) = RowBlock::over(start, record, &rows) else { return Ok(None) };
        let Some(row) = block.find(address) else { return Ok(None) };
        let Some(value) = block.value(row.row) else { return Ok(None) };
        let (Some(context), Some(first)) = (value.context, block.address(row)) else { return Ok(None) };
        // The last row of all is a gap; a damaged table may lack it.
        let end = match block.next(row) {
            Some(next) => block.address(next),
            None => self.block_start(index + 1)?,
        };
        let Some(end) = end else { return Ok(None) };
        let (column, from, to) = self.columns(index, start, address)?;
        let range = Rva(first.max(from))..Rva(to.map_or(end, |to| to.min(end)));
        let (frames, function) = self.frames(context, value.line, column)?;
        let function = function.unwrap_or_else(|| SparseFunction::unknown(first, end));
        Ok(Some(SparseHit { function, frames, range }))
    }

    /// The column at `address`, and the addresses from and to which it holds.
    fn columns(&mut self, index: u64, start: u64, address: u64) -> Result<(u32, u64, Option<u64>), R::Error> {
        let none = (0, 0, None);
        let record = self.record::<COLUMN_BLOCK_BYTES>(SectionId::ColumnBlocks, index)?;
        let Some(record) = record else { return Ok(none) };
        let entries = self.window(SectionId::Columns, u32_at(&record, 0).into(), ColumnBlock::read_bytes(&record))?;
        Ok(ColumnBlock::over(start, &record, &entries).map_or(none, |columns| {
            let entry = columns.entry_at(address);
            (columns.column_at(address), entry.start, entry.end)
        }))
    }

    /// Record `index` of packed ones, which begin behind `prefix` bytes of their section.
    fn packed<const N: usize>(
        &mut self,
        id: SectionId,
        prefix: usize,
        shape: Shape<N>,
        index: u32,
    ) -> Result<Option<[u32; N]>, R::Error> {
        let Some(bit) = shape.bit(index) else { return Ok(None) };
        // The bits of one record, those before it in its first byte, and the bytes that a reader of bits loads behind them.
        let bytes = self.window(id, prefix as u64 + bit / 8, (shape.stride() + 7).div_ceil(8) + 8)?;
        Ok(shape.decode(&bytes, (bit % 8) as usize))
    }

    fn context(&mut self, index: u32) -> Result<Option<Context>, R::Error> {
        let shapes = self.table.contexts;
        let id = SectionId::Contexts;
        let (codes, owners, sites) = match shapes.form {
            Form::Whole { contexts } => {
                let record = self.packed(id, shapes.prefix, contexts, index)?;
                return Ok(record.and_then(|record| Context::whole(index, record)));
            }
            Form::Sited { codes, owners, sites, .. } => (codes, owners, sites),
        };
        let Some([code]) = self.packed(id, shapes.prefix, codes, index)? else { return Ok(None) };
        Ok(match Code::new(code, owners.count) {
            Code::First(owner) => self.packed(SectionId::Owners, 0, owners, owner)?.map(Context::owner),
            Code::Second(site) => {
                self.packed(SectionId::Sites, 0, sites, site)?.and_then(|site| Context::site(index, site))
            }
        })
    }

    fn place(&mut self, context: Context) -> Result<Option<Place>, R::Error> {
        Ok(match (context.named, self.table.contexts.form) {
            (Named::Function { function, file, line_base }, _) => {
                let function = self.raw_function(function)?;
                function.map(|RawFunction { name, symbol, .. }| Place { name, symbol, file, line_base })
            }
            (Named::Place(index), _) => match self.table.contexts.tight {
                None => self.record(SectionId::Places, index.into())?.as_ref().map(Place::read),
                Some(tight) => match self.packed(SectionId::Places, 0, tight.places, index)? {
                    Some([name, symbol, file, line_base]) => {
                        let names = self.tight_names(name, symbol)?;
                        names.map(|[name, symbol]| Place { name, symbol, file, line_base })
                    }
                    None => None,
                },
            },
            (Named::Code { names, file, line_base }, Form::Sited { places, .. }) => {
                let names = match Code::new(names, places.count) {
                    Code::First(pair) => self.packed(SectionId::Places, 0, places, pair)?,
                    Code::Second(name) => Some([name; 2]),
                };
                names.map(|[name, symbol]| Place { name, symbol, file, line_base })
            }
            // Contexts that are whole have places.
            (Named::Code { .. }, Form::Whole { .. }) => None,
        })
    }

    fn frames(
        &mut self,
        context: u32,
        line: u32,
        column: u32,
    ) -> Result<(Vec<SparseFrame>, Option<SparseFunction>), R::Error> {
        let (mut index, mut line, mut column) = (context, line, column);
        let (mut frames, mut has_places) = (Vec::new(), true);
        for _ in 0..MAX_FRAMES {
            let Some(context) = self.context(index)? else { break };
            let place = if has_places { self.place(context)? } else { None };
            if let Some(place) = place {
                // The lines of outer frames, which are those of calls, count from nothing.
                if line != 0 && frames.is_empty() {
                    line = line.wrapping_add(place.line_base);
                }
                let function = self.text(SectionId::Names, place.name)?;
                frames.push(SparseFrame {
                    symbol: match place.symbol == place.name {
                        true => function.clone(),
                        false => self.text(SectionId::Names, place.symbol)?,
                    },
                    function,
                    file: self.text(SectionId::Paths, place.file)?,
                    line: (line != 0).then_some(line),
                    column: (column != 0).then_some(column),
                    inlined: matches!(context.origin, Origin::Inlined { .. }),
                });
            } else {
                // A damaged table names a place that it does not have: there are no frames from here on, and the function is known all the same.
                has_places = false;
            }
            match context.origin {
                Origin::Function(function) => return Ok((frames, self.function(function)?)),
                Origin::Inlined { caller, line: call } => {
                    column = self.call_column(index)?;
                    (index, line) = (caller, call);
                }
            }
        }
        Ok((frames, None))
    }

    /// Column of the call that inlined context `index`; 0 = none.
    fn call_column(&mut self, index: u32) -> Result<u32, R::Error> {
        let width = self.table.outline.call_column_bytes().unwrap_or(0);
        let bytes = self.window(SectionId::CallColumns, u64::from(index) * width, width)?;
        Ok(bytes.iter().rev().fold(0, |column, byte| column << 8 | u32::from(*byte)))
    }

    /// Name and symbol of their codes in a tight table.
    fn tight_names(&mut self, name: u32, symbol: u32) -> Result<Option<[u32; 2]>, R::Error> {
        let pairs = u32::try_from(self.section(SectionId::Pairs).count).unwrap_or(u32::MAX);
        Ok(match Code::new(name, pairs) {
            Code::First(pair) => self.record(SectionId::Pairs, pair.into())?.as_ref().map(pair_of),
            Code::Second(name) => Some([name, symbol_of(name, symbol)]),
        })
    }

    fn raw_function(&mut self, index: u32) -> Result<Option<RawFunction>, R::Error> {
        Ok(match self.table.contexts.tight {
            Some(tight) => match self.packed(SectionId::Functions, 0, tight.functions, index)? {
                Some(fields @ [_, _, name, symbol, ..]) => {
                    self.tight_names(name, symbol)?.map(|names| RawFunction::tight(fields, names))
                }
                None => None,
            },
            None if self.table.outline.wide => {
                self.record(SectionId::Functions, index.into())?.as_ref().map(RawFunction::wide)
            }
            None => self.record(SectionId::Functions, index.into())?.as_ref().map(RawFunction::narrow),
        })
    }

    fn function(&mut self, index: u32) -> Result<Option<SparseFunction>, R::Error> {
        let raw = self.raw_function(index)?;
        let Some((raw, source)) = raw.and_then(|raw| Some((raw, raw.source()?))) else { return Ok(None) };
        Ok(Some(SparseFunction {
            start: raw.start,
            size: raw.size,
            name: self.text(SectionId::Names, raw.name)?,
            symbol: self.text(SectionId::Names, raw.symbol)?,
            source,
            flags: raw.flags(),
        }))
    }

    fn text(&mut self, id: SectionId, offset: u32) -> Result<String, R::Error> {
        let mut bytes = self.window(id, offset.into(), STRING_BYTES)?;
        let mut cursor = Cursor::new(&bytes);
        let needed = cursor.varint().and_then(|len| len.checked_add((bytes.len() - cursor.remaining()) as u64));
        let Some(needed) = needed.filter(|needed| *needed <= MAX_STRING_BYTES) else { return Ok(String::new()) };
        if needed > bytes.len() as u64 {
            bytes = self.window(id, offset.into(), needed)?;
        }
        let stored = stored(&bytes, 0);
        if id != SectionId::Names || !self.table.outline.phrased {
            return Ok(text_of(stored).to_string());
        }
        let mut text = Vec::new();
        for number in Codes::new(stored) {
            let record = self.record(SectionId::Phrases, number as u64)?;
            if record.and_then(|record| phrases::append(&mut text, &record)).is_none() {
                return Ok(String::new());
            }
        }
        Ok(String::from_utf8(text).unwrap_or_default())
    }
}

impl SparseFunction {
    /// A function of which a damaged table says nothing.
    fn unknown(start: u64, end: u64) -> Self {
        Self {
            start: Rva(start),
            size: end.saturating_sub(start),
            name: String::new(),
            symbol: String::new(),
            source: SymbolSource::FunctionStarts,
            flags: FunctionFlags { approximate: true, ..FunctionFlags::default() },
        }
    }
}
