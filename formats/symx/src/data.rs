//! The sections of an opened table as records, and access to one record each. Nothing here trusts the bytes: what
//! lies outside of its section reads as absent.

use crate::contexts::{Code, Context, Contexts, Form, Named, Shapes, Tight};
use crate::layout::{self, Header, SectionId, u32_at, u64_at};
use crate::packed::Packed;
use crate::phrases::Phrases;
use crate::rows::{BlockRecord, COLUMN_BLOCK_BYTES, ColumnBlock, ROW_BLOCK_BYTES, RowBlock};
use crate::varint::Cursor;
use crate::{FunctionFlags, Name, OpenError, SymbolSource};
use symseal_module::Rva;

/// Narrow (32-bit) or wide (64-bit) records, the whole table alike.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Starts<'a> {
    Narrow(&'a [[u8; 4]]),
    Wide(&'a [[u8; 8]]),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Functions<'a> {
    Narrow(&'a [[u8; 28]]),
    Wide(&'a [[u8; 36]]),
    Tight(Packed<'a, 8>),
}

/// The records of places, where contexts are whole.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Places<'a> {
    Whole(&'a [[u8; 12]]),
    Tight(Packed<'a, 4>),
}

/// The records of blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BlockRecords<'a> {
    Whole(&'a [[u8; ROW_BLOCK_BYTES]]),
    Tight(Packed<'a, 6>),
}

/// What leads from an address to a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks<'a> {
    pub(crate) starts: Starts<'a>,
    pub(crate) records: BlockRecords<'a>,
    pub(crate) rows: &'a [u8],
    /// Empty in a table without columns.
    pub(crate) column_records: &'a [[u8; COLUMN_BLOCK_BYTES]],
    pub(crate) columns: &'a [u8],
}

/// What leads from a row to names and paths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Data<'a> {
    pub(crate) contexts: Contexts<'a>,
    /// Of a table whose contexts are whole.
    pub(crate) places: Places<'a>,
    pub(crate) functions: Functions<'a>,
    pub(crate) aliased: &'a [[u8; 8]],
    pub(crate) aliases: &'a [[u8; 4]],
    pub(crate) paths: &'a [u8],
    pub(crate) names: NameSection<'a>,
    pub(crate) call_columns: CallColumns<'a>,
    /// Names and symbols that differ, of a tight table.
    pub(crate) pairs: &'a [[u8; 8]],
}

/// Names, and what they are put together from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameSection<'a> {
    pub(crate) bytes: &'a [u8],
    /// `None` where names are whole.
    pub(crate) phrases: Option<Phrases<'a>>,
}

/// Columns of the calls, in the narrowest integers that hold them all.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallColumns<'a> {
    None,
    Bytes(&'a [u8]),
    Halves(&'a [[u8; 2]]),
    Words(&'a [[u8; 4]]),
}

/// What a frame shows, offsets in the names and in the paths; and what the lines of rows in this code count from, 0 in a table that is not tight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) name: u32,
    pub(crate) symbol: u32,
    pub(crate) file: u32,
    pub(crate) line_base: u32,
}

/// A function record, its strings still offsets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawFunction {
    pub(crate) start: Rva,
    pub(crate) size: u64,
    pub(crate) name: u32,
    pub(crate) symbol: u32,
    pub(crate) file: u32,
    pub(crate) line: u32,
    pub(crate) source: u8,
    pub(crate) flags: u8,
    pub(crate) reserved: u16,
}

impl<'a> NameSection<'a> {
    /// The name at `offset`.
    #[inline(always)]
    pub(crate) fn name(&self, offset: u32) -> Name<'a> {
        Name::at(self.bytes, offset, self.phrases)
    }
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(header: &Header<'a>, tight: Option<&Tight>) -> Self {
        let bytes = |id| header.section(id).bytes;
        let starts = bytes(SectionId::BlockStarts);
        Self {
            starts: match header.outline.wide {
                false => Starts::Narrow(starts.as_chunks().0),
                true => Starts::Wide(starts.as_chunks().0),
            },
            records: match tight {
                None => BlockRecords::Whole(bytes(SectionId::Blocks).as_chunks().0),
                Some(tight) => BlockRecords::Tight(Packed::new(tight.blocks, bytes(SectionId::Blocks))),
            },
            rows: bytes(SectionId::Rows),
            column_records: bytes(SectionId::ColumnBlocks).as_chunks().0,
            columns: bytes(SectionId::Columns),
        }
    }

    /// How many blocks there are.
    pub(crate) fn len(&self) -> usize {
        match self.starts {
            Starts::Narrow(starts) => starts.len(),
            Starts::Wide(starts) => starts.len(),
        }
    }

    /// First address of block `block`.
    #[inline(always)]
    pub(crate) fn start(&self, block: usize) -> Option<u64> {
        match self.starts {
            Starts::Narrow(starts) => starts.get(block).map(|start| u64::from(u32::from_le_bytes(*start))),
            Starts::Wide(starts) => starts.get(block).map(|start| u64::from_le_bytes(*start)),
        }
    }

    /// The last block that starts at or below `address`.
    #[inline(always)]
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        let after = match self.starts {
            Starts::Narrow(starts) => {
                let address = u32::try_from(address).ok()?;
                starts.partition_point(|start| u32::from_le_bytes(*start) <= address)
            }
            Starts::Wide(starts) => starts.partition_point(|start| u64::from_le_bytes(*start) <= address),
        };
        after.checked_sub(1)
    }

    /// What is said of block `block`.
    #[inline(always)]
    pub(crate) fn record(&self, block: usize) -> Option<BlockRecord> {
        match &self.records {
            BlockRecords::Whole(records) => records.get(block).map(BlockRecord::whole),
            BlockRecords::Tight(records) => records.get(u32::try_from(block).ok()?).map(BlockRecord::tight),
        }
    }

    /// The rows of block `block`.
    #[inline(always)]
    pub(crate) fn block(&self, block: usize) -> Option<RowBlock<'a>> {
        RowBlock::new(self.start(block)?, self.record(block)?, self.rows)
    }

    /// The column entries of block `block`; `None` in a table without columns.
    #[inline(always)]
    pub(crate) fn columns_of(&self, block: usize) -> Option<ColumnBlock<'a>> {
        ColumnBlock::new(self.start(block)?, self.column_records.get(block)?, self.columns)
    }
}

impl<'a> Data<'a> {
    pub(crate) fn new(header: &Header<'a>, shapes: &Shapes) -> Result<Self, OpenError> {
        let bytes = |id| header.section(id).bytes;
        let contexts = Contexts::new(shapes, bytes);
        let columns = bytes(SectionId::CallColumns);
        let call_columns = match header.outline.call_column_bytes()? {
            0 => CallColumns::None,
            1 => CallColumns::Bytes(columns),
            2 => CallColumns::Halves(columns.as_chunks().0),
            _ => CallColumns::Words(columns.as_chunks().0),
        };
        let functions = bytes(SectionId::Functions);
        Ok(Self {
            contexts,
            places: match &shapes.tight {
                _ if header.outline.sited => Places::Whole(&[]),
                None => Places::Whole(bytes(SectionId::Places).as_chunks().0),
                Some(tight) => Places::Tight(Packed::new(tight.places, bytes(SectionId::Places))),
            },
            functions: match &shapes.tight {
                Some(tight) => Functions::Tight(Packed::new(tight.functions, functions)),
                None if header.outline.wide => Functions::Wide(functions.as_chunks().0),
                None => Functions::Narrow(functions.as_chunks().0),
            },
            aliased: bytes(SectionId::Aliased).as_chunks().0,
            aliases: bytes(SectionId::Aliases).as_chunks().0,
            paths: bytes(SectionId::Paths),
            names: NameSection {
                bytes: bytes(SectionId::Names),
                phrases: header.outline.phrased.then(|| bytes(SectionId::Phrases).as_chunks().0),
            },
            call_columns,
            pairs: bytes(SectionId::Pairs).as_chunks().0,
        })
    }

    #[inline(always)]
    pub(crate) fn place(&self, index: u32) -> Option<Place> {
        match &self.places {
            Places::Whole(records) => records.get(index as usize).map(Place::read),
            Places::Tight(records) => {
                let [name, symbol, file, line_base] = records.get(index)?;
                let [name, symbol] = self.tight_names(name, symbol)?;
                Some(Place { name, symbol, file, line_base })
            }
        }
    }

    /// Name and symbol of their codes in a tight table.
    #[inline(always)]
    fn tight_names(&self, name: u32, symbol: u32) -> Option<[u32; 2]> {
        // Pairs were counted when the table was opened, and more than 2^32 have no codes.
        match Code::new(name, u32::try_from(self.pairs.len()).unwrap_or(u32::MAX)) {
            Code::First(pair) => self.pairs.get(pair as usize).map(pair_of),
            Code::Second(name) => Some([name, symbol_of(name, symbol)]),
        }
    }

    /// What a frame of `context` shows.
    #[inline(always)]
    pub(crate) fn place_of(&self, context: Context) -> Option<Place> {
        match context.named {
            Named::Place(place) => self.place(place),
            Named::Function { function, file, line_base } => {
                let RawFunction { name, symbol, .. } = self.function(function)?;
                Some(Place { name, symbol, file, line_base })
            }
            Named::Code { names, file, line_base } => {
                let Form::Sited { places, .. } = self.contexts.form() else { return None };
                let [name, symbol] = match Code::new(names, places.count()) {
                    Code::First(pair) => places.get(pair)?,
                    Code::Second(name) => [name; 2],
                };
                Some(Place { name, symbol, file, line_base })
            }
        }
    }

    /// Column of the call that inlined context `index`; 0 = none.
    #[inline(always)]
    pub(crate) fn call_column(&self, index: u32) -> u32 {
        let index = index as usize;
        match self.call_columns {
            CallColumns::None => 0,
            CallColumns::Bytes(columns) => columns.get(index).copied().map_or(0, u32::from),
            CallColumns::Halves(columns) => columns.get(index).map_or(0, |column| u16::from_le_bytes(*column).into()),
            CallColumns::Words(columns) => columns.get(index).map_or(0, |column| u32::from_le_bytes(*column)),
        }
    }

    pub(crate) fn function_count(&self) -> u32 {
        let count = match self.functions {
            Functions::Narrow(records) => records.len(),
            Functions::Wide(records) => records.len(),
            Functions::Tight(records) => return records.count(),
        };
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    #[inline]
    pub(crate) fn function(&self, index: u32) -> Option<RawFunction> {
        match self.functions {
            Functions::Narrow(records) => records.get(index as usize).map(RawFunction::narrow),
            Functions::Wide(records) => records.get(index as usize).map(RawFunction::wide),
            Functions::Tight(records) => {
                let fields @ [_, _, name, symbol, ..] = records.get(index)?;
                Some(RawFunction::tight(fields, self.tight_names(name, symbol)?))
            }
        }
    }

    /// The aliases of function `index`, as offsets in the names.
    pub(crate) fn aliases_of(&self, index: u32) -> &'a [[u8; 4]] {
        let first = |at: usize| self.aliased.get(at).map(|record| u32_at(record, 4) as usize);
        let found = self.aliased.binary_search_by_key(&index, |record| u32_at(record, 0));
        let Some((at, start)) = found.ok().and_then(|at| Some((at, first(at)?))) else { return &[] };
        let end = first(at + 1).unwrap_or(self.aliases.len());
        self.aliases.get(start..end).unwrap_or_default()
    }
}

impl Place {
    #[inline(always)]
    pub(crate) fn read(record: &[u8; 12]) -> Self {
        Self { name: u32_at(record, 0), symbol: u32_at(record, 4), file: u32_at(record, 8), line_base: 0 }
    }
}

/// The symbol beside `name` of which a tight table has a code: 0 where it is the name, else its offset and one.
#[inline(always)]
pub(crate) fn symbol_of(name: u32, code: u32) -> u32 {
    code.checked_sub(1).unwrap_or(name)
}

/// Name and symbol of a pair.
#[inline(always)]
pub(crate) fn pair_of(record: &[u8; 8]) -> [u32; 2] {
    [u32_at(record, 0), u32_at(record, 4)]
}

impl RawFunction {
    /// Of a record's fields, and the names that its codes stand for.
    pub(crate) fn tight([start, size, _, _, file, line, source, flags]: [u32; 8], [name, symbol]: [u32; 2]) -> Self {
        Self {
            start: Rva(start.into()),
            size: size.into(),
            name,
            symbol,
            file,
            line,
            // What takes more than a byte is no known one.
            source: u8::try_from(source).unwrap_or(u8::MAX),
            flags: u8::try_from(flags).unwrap_or(u8::MAX),
            reserved: 0,
        }
    }

    pub(crate) fn narrow(record: &[u8; 28]) -> Self {
        Self::read(u32_at(record, 0).into(), u32_at(record, 4).into(), record.split_at(8).1)
    }

    pub(crate) fn wide(record: &[u8; 36]) -> Self {
        Self::read(u64_at(record, 0), u64_at(record, 8), record.split_at(16).1)
    }

    fn read(start: u64, size: u64, rest: &[u8]) -> Self {
        let attributes = u32_at(rest, 16);
        Self {
            start: Rva(start),
            size,
            name: u32_at(rest, 0),
            symbol: u32_at(rest, 4),
            file: u32_at(rest, 8),
            line: u32_at(rest, 12),
            source: attributes as u8,
            flags: (attributes >> 8) as u8,
            reserved: (attributes >> 16) as u16,
        }
    }

    pub(crate) fn source(&self) -> Option<SymbolSource> {
        SymbolSource::from_number(self.source)
    }

    pub(crate) fn flags(&self) -> FunctionFlags {
        FunctionFlags {
            approximate: self.flags & layout::FLAG_APPROXIMATE != 0,
            folded: self.flags & layout::FLAG_FOLDED != 0,
            part: self.flags & layout::FLAG_PART != 0,
        }
    }
}

/// What a string section has at `offset`: the bytes of a string, or of its codes; none where there is no string.
#[inline]
pub(crate) fn stored(section: &[u8], offset: u32) -> &[u8] {
    section
        .get(offset as usize..)
        .and_then(|bytes| {
            let mut cursor = Cursor::new(bytes);
            let len = cursor.varint()?;
            cursor.take(len)
        })
        .unwrap_or_default()
}

/// Bytes as a text; empty where they are none.
#[inline]
pub(crate) fn text_of(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).unwrap_or_default()
}

/// The string at `offset` of a section of whole strings; empty where there is none.
#[inline]
pub(crate) fn string(section: &[u8], offset: u32) -> &str {
    text_of(stored(section, offset))
}
