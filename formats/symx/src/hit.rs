//! What a lookup answers: the row, its function, its frames.

use crate::bits::touch;
use crate::contexts::{Context, Origin};
use crate::data::{Blocks, Data, NameSection, string};
use crate::layout::MAX_FRAMES;
use crate::{FunctionFlags, Name, SymbolSource};
use core::ops::Range;
use symseal_module::Rva;

/// Where a function is, and of which kind: what is known of it without its names, which lie elsewhere in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionRange {
    /// First byte.
    pub start: Rva,
    /// Bytes.
    pub size: u64,
    /// Where the names were read.
    pub source: SymbolSource,
    /// What is special about the range.
    pub flags: FunctionFlags,
}

/// One function range of a table.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    /// First byte.
    pub start: Rva,
    /// Bytes.
    pub size: u64,
    /// The name as the source language says it.
    pub name: Name<'a>,
    /// The linkage name, raw.
    pub symbol: Name<'a>,
    /// Where the names were read.
    pub source: SymbolSource,
    /// What is special about the range.
    pub flags: FunctionFlags,
    /// File of the declaration; empty = unknown.
    pub file: &'a str,
    /// Line of the declaration.
    pub line: Option<u32>,
    pub(crate) aliases: &'a [[u8; 4]],
    pub(crate) names: NameSection<'a>,
}

impl<'a> Function<'a> {
    pub(crate) fn read(data: &Data<'a>, index: u32) -> Option<Self> {
        let raw = data.function(index)?;
        Some(Self {
            start: raw.start,
            size: raw.size,
            name: data.names.name(raw.name),
            symbol: data.names.name(raw.symbol),
            source: raw.source()?,
            flags: raw.flags(),
            file: string(data.paths, raw.file),
            line: some(raw.line),
            aliases: if raw.flags & crate::layout::FLAG_ALIASED != 0 { data.aliases_of(index) } else { &[] },
            names: data.names,
        })
    }

    /// Other linkage names of the same code.
    pub fn aliases(&self) -> impl Iterator<Item = Name<'a>> + use<'a> {
        let names = self.names;
        self.aliases.iter().map(move |offset| names.name(u32::from_le_bytes(*offset)))
    }
}

/// One frame of the chain at an address. Names and the column are read when they are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The name as the source language says it.
    pub function: Name<'a>,
    /// The linkage name, raw.
    pub symbol: Name<'a>,
    /// Source path; empty = unknown.
    pub file: &'a str,
    /// Source line.
    pub line: Option<u32>,
    /// Whether this function was inlined into the next frame.
    pub inlined: bool,
    column: ColumnPlace<'a>,
}

impl Frame<'_> {
    /// Source column.
    #[inline]
    pub fn column(&self) -> Option<u32> {
        let column = match self.column {
            ColumnPlace::Row { blocks, block, address } => {
                blocks.columns_of(block).map_or(0, |columns| columns.column_at(address))
            }
            ColumnPlace::Call { data, context } => data.call_column(context),
        };
        some(column)
    }
}

/// Where the table has the column of a frame.
#[derive(Clone, Copy, Debug)]
enum ColumnPlace<'a> {
    /// Among the columns of the block, at this address.
    Row { blocks: &'a Blocks<'a>, block: usize, address: u64 },
    /// Of the call that this context was inlined by.
    Call { data: &'a Data<'a>, context: u32 },
}

/// What a table knows about an address.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    pub(crate) data: &'a Data<'a>,
    pub(crate) blocks: &'a Blocks<'a>,
    /// Number of the row's block.
    pub(crate) block: usize,
    pub(crate) context: u32,
    /// As the row says it, without the line base of the context's code.
    pub(crate) line: u32,
    /// The address asked for.
    pub(crate) address: u64,
    /// The row's first address and the next row's.
    pub(crate) row: (u64, u64),
}

impl<'a> Hit<'a> {
    /// The function whose code this is. Its names are empty where only its start is known
    /// ([`SymbolSource::FunctionStarts`]), or where a damaged table names a function that it does not have.
    pub fn function(&self) -> Function<'a> {
        self.outermost().and_then(|index| Function::read(self.data, index)).unwrap_or_else(|| {
            let FunctionRange { start, size, source, flags } = self.nameless();
            Function {
                start,
                size,
                name: Name::default(),
                symbol: Name::default(),
                source,
                flags,
                file: "",
                line: None,
                aliases: &[],
                names: self.data.names,
            }
        })
    }

    /// The range of [`Self::function`].
    #[inline]
    pub fn function_range(&self) -> FunctionRange {
        let range = |index| {
            let raw = self.data.function(index)?;
            Some(FunctionRange { start: raw.start, size: raw.size, source: raw.source()?, flags: raw.flags() })
        };
        self.outermost().and_then(range).unwrap_or_else(|| self.nameless())
    }

    fn nameless(&self) -> FunctionRange {
        FunctionRange {
            start: Rva(self.row.0),
            size: self.row.1.saturating_sub(self.row.0),
            source: SymbolSource::FunctionStarts,
            flags: FunctionFlags { approximate: true, ..FunctionFlags::default() },
        }
    }

    fn outermost(&self) -> Option<u32> {
        let mut index = self.context;
        for _ in 0..MAX_FRAMES {
            match self.data.contexts.find(index)?.origin {
                Origin::Function(function) => return Some(function),
                Origin::Inlined { caller, .. } => index = caller,
            }
        }
        None
    }

    /// The chain at this address, innermost (most deeply inlined) frame first; the last one is the function itself.
    #[inline]
    pub fn frames(&self) -> Frames<'a> {
        let (data, line) = (self.data, self.line);
        let next = data.contexts.get(self.context);
        let column = ColumnPlace::Row { blocks: self.blocks, block: self.block, address: self.address };
        let mut frames = Frames {
            data,
            ready: None,
            next,
            index: self.context,
            line,
            is_based: line != 0,
            column,
            left: MAX_FRAMES,
        };
        frames.ready = frames.read();
        frames
    }

    /// The addresses around the one asked for that have the same frames, column included.
    pub fn range(&self) -> Range<Rva> {
        let (start, end) = self.row;
        let Some(columns) = self.blocks.columns_of(self.block) else { return Rva(start)..Rva(end) };
        let entry = columns.entry_at(self.address);
        Rva(start.max(entry.start))..Rva(entry.end.map_or(end, |column_end| column_end.min(end)))
    }
}

/// The frames at one address, innermost first.
///
/// Reads ahead: a frame before it is asked for, and the context behind that, so that they come from memory while the
/// caller makes the text of the frame before. (See [`touch`].)
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    data: &'a Data<'a>,
    ready: Option<Frame<'a>>,
    /// Whose code the frame behind is.
    next: Option<Context>,
    /// Index of that context.
    index: u32,
    line: u32,
    /// The line counts from the line base of the context's code.
    is_based: bool,
    column: ColumnPlace<'a>,
    left: u32,
}

impl<'a> Frames<'a> {
    /// Reads the frame of `next`, and first the context behind it.
    #[inline(always)]
    fn read(&mut self) -> Option<Frame<'a>> {
        let (data, line, column) = (self.data, self.line, self.column);
        let context = self.next.take()?;
        let mut inlined = false;
        if let Origin::Inlined { caller, line } = context.origin {
            inlined = true;
            self.left = self.left.saturating_sub(1);
            if self.left > 0 {
                self.next = data.contexts.get(caller);
                // The line of an outer frame is that of the call, not that of the row.
                self.line = line;
                self.column = ColumnPlace::Call { data, context: core::mem::replace(&mut self.index, caller) };
            }
        }
        let place = data.place_of(context)?;
        let line_base = if core::mem::take(&mut self.is_based) { place.line_base } else { 0 };
        touch(data.names.bytes, place.name as usize);
        let function = data.names.name(place.name);
        Some(Frame {
            function,
            // Most linkage names of C are the names themselves, kept once.
            symbol: if place.symbol == place.name { function } else { data.names.name(place.symbol) },
            file: string(data.paths, place.file),
            line: some(line.wrapping_add(line_base)),
            inlined,
            column,
        })
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    #[inline]
    fn next(&mut self) -> Option<Frame<'a>> {
        let ready = self.ready.take()?;
        self.ready = self.read();
        Some(ready)
    }
}

fn some(number: u32) -> Option<u32> {
    (number != 0).then_some(number)
}
