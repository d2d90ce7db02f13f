//! Records → bytes.

mod chains;
mod packed;
mod pairs;
mod phrases;
mod sections;
mod stream;
mod text;

use crate::layout::{self, MAX_PRODUCER_BYTES};
use crate::{FunctionRecord, NO_INLINE, Row, StrId, TableInput, WriteError};
use alloc::vec::Vec;
use chains::Chains;
use phrases::Coder;
use sections::{Functions, Sections, assemble};
use stream::Stream;
use text::Text;

/// Writes a table. The same input gives the same bytes, on any host.
///
/// # Errors
/// [`WriteError::Record`] where a record breaks a rule that [`FunctionRecord`] states, [`WriteError::TooMany`] where
/// something exceeds what 32-bit references can number.
pub fn write(input: &TableInput<'_>) -> Result<Vec<u8>, WriteError> {
    write_as(input, Form::default())
}

/// How a table keeps what large ones can say in fewer bytes. The default is what published tables have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Form {
    /// How names are kept.
    pub names: NameForm,
    /// How contexts are kept: whose code a row is, and through which calls.
    pub contexts: ContextForm,
    /// How records and rows are kept.
    pub records: RecordForm,
}

/// How names are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NameForm {
    /// In phrases where all names together have 256 KiB and more, which makes them several times smaller; whole where
    /// they have less.
    #[default]
    BySize,
    /// Whole: a reader borrows them.
    Whole,
    /// In phrases, however few there are.
    InPhrases,
}

/// How contexts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ContextForm {
    /// In sites where there are 65,536 and more, and smaller in sites; else whole. What the bytes of published tables are.
    #[default]
    BySize,
    /// Whole: each says all of it.
    Whole,
    /// In sites, however few there are: what several say is kept once.
    InSites,
}

/// How the records of functions, of places and of blocks are kept, and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RecordForm {
    /// In as many bits as the table's own numbers take; whole where addresses have more than 32 bits.
    #[default]
    Tight,
    /// In bytes, as all tables were before there were tight ones.
    Whole,
}

/// [`write`], in another form.
///
/// # Errors
/// Those of [`write`].
pub fn write_as(input: &TableInput<'_>, form: Form) -> Result<Vec<u8>, WriteError> {
    if input.strings.overflowed() {
        return Err(WriteError::TooMany { what: "strings" });
    }
    if input.producer.len() > MAX_PRODUCER_BYTES {
        return Err(WriteError::TooMany { what: "bytes in the producer's name" });
    }
    let end = check_ranges(input.functions)?;
    let wide = end > u64::from(u32::MAX);
    let coder = match form.names {
        NameForm::BySize => Coder::for_large(input.functions, input.strings),
        NameForm::Whole => None,
        NameForm::InPhrases => Some(Coder::for_any(input.functions, input.strings)),
    };
    let mut writer = Writer {
        names: Text::new(input.strings, coder),
        paths: Text::new(input.strings, None),
        chains: Chains::for_functions(input.functions),
        stream: Stream::for_functions(input.functions),
        functions: match form.records {
            RecordForm::Tight if !wide => Functions::Tight(Vec::with_capacity(input.functions.len())),
            _ => Functions::Whole(Vec::with_capacity(input.functions.len() * if wide { 36 } else { 28 })),
        },
        aliased: Vec::new(),
        aliases: Vec::new(),
        wide,
    };
    for (index, function) in input.functions.iter().enumerate() {
        writer.function(index, function)?;
    }
    let sections = Sections {
        stream: writer.stream,
        chains: writer.chains,
        functions: writer.functions,
        aliased: writer.aliased,
        aliases: writer.aliases,
        paths: writer.paths,
        names: writer.names,
    };
    assemble(input, wide, form.contexts, sections)
}

/// That the ranges are sorted and apart from each other; the end of the last one.
fn check_ranges(functions: &[FunctionRecord]) -> Result<u64, WriteError> {
    let (mut last_start, mut free_from) = (0, 0);
    for (index, function) in functions.iter().enumerate() {
        let fault = |rule| WriteError::Record { function: index, rule };
        let start = function.start.0;
        let end = start.checked_add(function.size).ok_or(fault("an end below 2^64"))?;
        if start < last_start || (function.size > 0 && start < free_from) {
            return Err(fault("a start at or after the end of its predecessor"));
        }
        last_start = start;
        free_from = free_from.max(end);
    }
    Ok(free_from)
}

struct Writer<'a> {
    names: Text<'a>,
    paths: Text<'a>,
    chains: Chains,
    stream: Stream,
    functions: Functions,
    aliased: Vec<u8>,
    aliases: Vec<u8>,
    wide: bool,
}

impl Writer<'_> {
    fn function(&mut self, index: usize, function: &FunctionRecord) -> Result<(), WriteError> {
        let number = u32::try_from(index).map_err(|_| WriteError::TooMany { what: "functions" })?;
        self.record(number, function)?;
        let fault = |rule| WriteError::Record { function: index, rule };
        if function.size == 0 {
            return if function.rows.is_empty() { Ok(()) } else { Err(fault("no rows in a function of size 0")) };
        }
        let inlines = &function.inlines;
        self.chains.begin_function(number, function, &mut self.names)?;
        let (start, end) = (function.start.0, function.start.0 + function.size);
        self.stream.gap_until(start)?;
        let nothing = Row { start: function.start, file: StrId::EMPTY, line: 0, column: 0, inline: NO_INLINE };
        let before = function.rows.first().is_none_or(|row| row.start.0 > start).then_some(&nothing);
        let mut rows = before.into_iter().chain(&function.rows).peekable();
        let mut last = start;
        while let Some(row) = rows.next() {
            if row.start.0 < last || row.start.0 >= end {
                return Err(fault("rows sorted by start, within the function"));
            }
            last = row.start.0;
            if rows.peek().is_some_and(|next| next.start == row.start) {
                continue;
            }
            let file = self.paths.offset(row.file)?;
            let Self { chains, names, paths, .. } = self;
            let context =
                chains.row_context(inlines, row.inline, file, names, paths).map_err(|fault| fault.at(index))?;
            self.stream.row(row.start.0, context, row.line, row.column)?;
        }
        self.stream.end_function(end);
        Ok(())
    }

    fn record(&mut self, number: u32, function: &FunctionRecord) -> Result<(), WriteError> {
        let mut flags = 0u8;
        for (set, bit) in [
            (function.flags.approximate, layout::FLAG_APPROXIMATE),
            (function.flags.folded, layout::FLAG_FOLDED),
            (function.flags.part, layout::FLAG_PART),
            (!function.aliases.is_empty(), layout::FLAG_ALIASED),
        ] {
            flags |= if set { bit } else { 0 };
        }
        let name = self.names.offset(function.name)?;
        let symbol = self.names.offset(function.symbol)?;
        let file = self.paths.offset(function.file)?;
        let (range, source) = ([function.start.0, function.size], function.source.number());
        match &mut self.functions {
            // `check_ranges` found no end beyond 32 bits.
            Functions::Tight(records) => {
                let [start, size] = range.map(|value| value as u32);
                records.push([start, size, name, symbol, file, function.line, source.into(), flags.into()]);
            }
            Functions::Whole(bytes) => {
                for value in range {
                    match self.wide {
                        true => bytes.extend(value.to_le_bytes()),
                        false => bytes.extend((value as u32).to_le_bytes()),
                    }
                }
                let attributes = u32::from(source) | u32::from(flags) << 8;
                for value in [name, symbol, file, function.line, attributes] {
                    bytes.extend(value.to_le_bytes());
                }
            }
        }
        if !function.aliases.is_empty() {
            let first = u32::try_from(self.aliases.len() / 4).map_err(|_| WriteError::TooMany { what: "aliases" })?;
            self.aliased.extend(number.to_le_bytes());
            self.aliased.extend(first.to_le_bytes());
            for alias in &function.aliases {
                self.aliases.extend(self.names.offset(*alias)?.to_le_bytes());
            }
        }
        Ok(())
    }
}
