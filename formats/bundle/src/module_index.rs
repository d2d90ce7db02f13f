//! `symbol_index/<debug id>.json`: what one module's functions are called and where they lie.
//!
//! Made from the module's `.symx` alone. Described in `docs/formats/symbol_index.md`.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};
use symseal_module::{DebugId, Rva, Svma};
use symseal_symx::Table;

/// The one schema that this build writes and reads.
pub const SCHEMA: &str = "symseal.module_index.v1";

/// Line tables are inlined while the module's JSON stays within this many bytes.
pub const INLINE_LINES_BYTES: usize = 1 << 20;

// The fields of the structures below stand in the order of their names, so that what serde_json writes is already
// canonical (RFC 8785): the JSON of a large module is written once and never held as a tree of values.

/// The index of one module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleIndex {
    /// The module.
    pub debug_id: DebugId,
    /// Every function range, by address.
    pub functions: Vec<IndexedFunction>,
    /// The lowest loaded svma. Addresses below are svma.
    pub image_base: Svma,
    /// The complete line table, where it fits; otherwise it is in the module's `.symx` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Lines>,
    /// File name of the module.
    pub name: String,
    /// Rows of the line table, inlined here or not.
    pub rows: u64,
    /// [`SCHEMA`].
    pub schema: String,
}

/// One contiguous range of a function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexedFunction {
    /// First svma.
    pub address: Svma,
    /// Other linkage names of the same code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// The size was not known: the range reaches to the next symbol.
    #[serde(default, skip_serializing_if = "is_false")]
    pub approximate: bool,
    /// File of the declaration; absent where unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Several functions share the code.
    #[serde(default, skip_serializing_if = "is_false")]
    pub folded: bool,
    /// Line of the declaration; absent where unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The name as the source language says it.
    pub name: String,
    /// A range that is not the function's entry, such as a cold part.
    #[serde(default, skip_serializing_if = "is_false")]
    pub part: bool,
    /// Bytes.
    pub size: u64,
    /// Where the name comes from, such as `dwarf`.
    pub source: String,
    /// The linkage name; absent where it is `name`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub symbol: String,
}

/// A complete line table in columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lines {
    /// Each frame: `[name, symbol, file, line, column]`; the first three index `strings`, line and column 0 mean none.
    pub frames: Vec<[u32; 5]>,
    /// Each row: `[address, size, frame, frame, …]`, by address; the frames, as indexes into `frames`, innermost first.
    pub rows: Vec<LineRow>,
    /// Texts; the first is empty and means absent.
    pub strings: Vec<String>,
}

/// A range of addresses with one answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineRow {
    /// First svma.
    pub address: Svma,
    /// Bytes.
    pub size: u64,
    /// Indexes into [`Lines::frames`], innermost first.
    pub frames: Vec<u32>,
}

/// What the index of one module says, and how much of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The JSON.
    pub json: Vec<u8>,
    /// Whether the line table is in it.
    pub lines_inlined: bool,
}

/// Why some bytes are no module index of this version.
#[derive(Debug, thiserror::Error)]
pub enum ModuleIndexError {
    /// Not JSON, or not of the schema's shape.
    #[error("not a module index: {0}")]
    Json(#[from] serde_json::Error),
    /// Another schema.
    #[error("expected schema {SCHEMA}, found {found:?}: a newer symseal may read it")]
    Schema {
        /// The schema that it names.
        found: String,
    },
    /// A number that leads to no string or frame.
    #[error("the line table refers to {what} {at}, of which there are {count}")]
    Reference {
        /// `string` or `frame`.
        what: &'static str,
        /// The number.
        at: u32,
        /// How many there are.
        count: usize,
    },
}

/// Reads the index of a module. Every reference in it leads somewhere.
pub fn parse(json: &[u8]) -> Result<ModuleIndex, ModuleIndexError> {
    let index: ModuleIndex = serde_json::from_slice(json)?;
    if index.schema != SCHEMA {
        return Err(ModuleIndexError::Schema { found: index.schema.chars().take(80).collect() });
    }
    if let Some(lines) = &index.lines {
        let check = |what, at: u32, count: usize| {
            if (at as usize) < count { Ok(()) } else { Err(ModuleIndexError::Reference { what, at, count }) }
        };
        for [name, symbol, file, ..] in &lines.frames {
            for at in [name, symbol, file] {
                check("string", *at, lines.strings.len())?;
            }
        }
        for at in lines.rows.iter().flat_map(|row| &row.frames) {
            check("frame", *at, lines.frames.len())?;
        }
    }
    Ok(index)
}

/// Writes the index of the module that `table` describes.
pub fn write(table: &Table<'_>, name: &str) -> Result<Written, serde_json::Error> {
    let mut index = ModuleIndex {
        debug_id: table.debug_id(),
        functions: functions(table),
        image_base: table.image_base(),
        lines: None,
        name: name.to_owned(),
        rows: 0,
        schema: SCHEMA.to_owned(),
    };
    let (rows, lines) = lines(table);
    index.rows = rows;
    index.lines = lines;
    if index.lines.is_some() {
        if let Some(json) = to_vec_within(&index, INLINE_LINES_BYTES)? {
            return Ok(Written { json, lines_inlined: true });
        }
        index.lines = None;
    }
    Ok(Written { json: serde_json::to_vec(&index)?, lines_inlined: false })
}

/// The JSON, unless it is longer: then no more of it is made than that.
fn to_vec_within(index: &ModuleIndex, most: usize) -> Result<Option<Vec<u8>>, serde_json::Error> {
    struct Within {
        json: Vec<u8>,
        most: usize,
    }
    impl io::Write for Within {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if bytes.len() > self.most.saturating_sub(self.json.len()) {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            self.json.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut within = Within { json: Vec::new(), most };
    match serde_json::to_writer(&mut within, index) {
        Ok(()) => Ok(Some(within.json)),
        Err(error) if error.is_io() => Ok(None),
        Err(error) => Err(error),
    }
}

fn functions(table: &Table<'_>) -> Vec<IndexedFunction> {
    let base = table.image_base();
    let functions = table.functions().filter_map(|function| {
        Some(IndexedFunction {
            address: function.start.to_svma(base)?,
            aliases: function.aliases().map(|alias| alias.text().into_owned()).collect(),
            approximate: function.flags.approximate,
            file: function.file.to_owned(),
            folded: function.flags.folded,
            line: function.line,
            name: function.name.text().into_owned(),
            part: function.flags.part,
            size: function.size,
            source: function.source.code().to_owned(),
            symbol: match function.symbol.place() == function.name.place() {
                true => String::new(),
                false => function.symbol.text().into_owned(),
            },
        })
    });
    functions.collect()
}

/// How many rows there are, and the rows, unless they cannot fit.
fn lines(table: &Table<'_>) -> (u64, Option<Lines>) {
    /// The shortest row, `["0x0",1,0],`: more rows than this bound cannot fit, so they are only counted.
    const MOST_ROWS: usize = INLINE_LINES_BYTES / 12;
    let base = table.image_base();
    let mut count = 0u64;
    let mut texts = Interned::default();
    texts.strings.intern(String::new());
    let mut rows = Vec::new();
    for hit in table.rows() {
        count += 1;
        if rows.len() > MOST_ROWS || texts.bytes > INLINE_LINES_BYTES {
            continue;
        }
        let range = hit.range();
        let (Some(address), Some(size)) = (range.start.to_svma(base), span(range.start, range.end)) else { continue };
        let frames = hit.frames().map(|frame| texts.frame(&frame)).collect();
        rows.push(LineRow { address, size, frames });
    }
    if rows.len() > MOST_ROWS || texts.bytes > INLINE_LINES_BYTES {
        return (count, None);
    }
    (count, Some(Lines { frames: texts.frames.values, rows, strings: texts.strings.values }))
}

fn span(start: Rva, end: Rva) -> Option<u64> {
    end.0.checked_sub(start.0)
}

#[derive(Default)]
struct Interned {
    strings: Pool<String>,
    /// Of all strings.
    bytes: usize,
    frames: Pool<[u32; 5]>,
}

impl Interned {
    fn string(&mut self, text: String) -> u32 {
        let bytes = text.len();
        let before = self.strings.values.len();
        let place = self.strings.intern(text);
        if self.strings.values.len() > before {
            self.bytes = self.bytes.saturating_add(bytes);
        }
        place
    }

    fn frame(&mut self, frame: &symseal_symx::Frame<'_>) -> u32 {
        let [name, symbol] = [frame.function, frame.symbol].map(|name| self.string(name.text().into_owned()));
        let file = self.string(frame.file.to_owned());
        self.frames.intern([name, symbol, file, frame.line.unwrap_or_default(), frame.column().unwrap_or_default()])
    }
}

/// Values by the order in which they were first seen.
struct Pool<T> {
    values: Vec<T>,
    places: BTreeMap<T, u32>,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { values: Vec::new(), places: BTreeMap::new() }
    }
}

impl<T: Ord + Clone> Pool<T> {
    fn intern(&mut self, value: T) -> u32 {
        if let Some(place) = self.places.get(&value) {
            return *place;
        }
        // Bounded by the rows that are taken, each with the frames of one chain.
        let place = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        self.values.push(value.clone());
        self.places.insert(value, place);
        place
    }
}

impl Serialize for LineRow {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeSeq;
        let mut row = serializer.serialize_seq(Some(self.frames.len().saturating_add(2)))?;
        row.serialize_element(&self.address)?;
        row.serialize_element(&self.size)?;
        for frame in &self.frames {
            row.serialize_element(frame)?;
        }
        row.end()
    }
}

impl<'de> Deserialize<'de> for LineRow {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = LineRow;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a row [address, size, frame, …]")
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut row: A) -> Result<LineRow, A::Error> {
                let missing = |at| serde::de::Error::invalid_length(at, &"at least an address and a size");
                let address = row.next_element()?.ok_or_else(|| missing(0))?;
                let size = row.next_element()?.ok_or_else(|| missing(1))?;
                let mut frames = Vec::new();
                while let Some(frame) = row.next_element()? {
                    frames.push(frame);
                }
                Ok(LineRow { address, size, frames })
            }
        }
        deserializer.deserialize_seq(Visitor)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde gives a reference
fn is_false(value: &bool) -> bool {
    !value
}
