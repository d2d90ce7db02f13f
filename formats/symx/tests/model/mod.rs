//! Random tables, and what must be read from them, worked out from the records alone.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part of this")]

use proptest::collection::vec;
use proptest::prelude::*;
use symseal_module::{DebugId, Rva, Svma};
use symseal_symx::{
    ContextForm, Form, Frame, FunctionFlags, FunctionRecord, Hit, InlineSite, NO_INLINE, NameForm, RecordForm, Row,
    StrId, Strings, SymbolSource, TableInput,
};

/// A frame whose strings are its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedFrame {
    pub function: String,
    pub symbol: String,
    pub file: String,
    pub line: Option<u32>,
    pub column: Option<u32>,
    pub inlined: bool,
}

impl From<Frame<'_>> for OwnedFrame {
    fn from(frame: Frame<'_>) -> Self {
        Self {
            function: frame.function.text().into(),
            symbol: frame.symbol.text().into(),
            file: frame.file.into(),
            line: frame.line,
            column: frame.column(),
            inlined: frame.inlined,
        }
    }
}

/// A range of addresses with one answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub start: u64,
    pub end: u64,
    pub function: usize,
    pub frames: Vec<OwnedFrame>,
}

pub fn frames_of(hit: Hit<'_>) -> Vec<OwnedFrame> {
    hit.frames().map(OwnedFrame::from).collect()
}

/// The input of one table, owned.
#[derive(Debug, Clone)]
pub struct Module {
    pub debug_id: DebugId,
    pub image_base: Svma,
    pub producer: String,
    pub strings: Strings,
    pub functions: Vec<FunctionRecord>,
    pub form: Form,
}

impl Module {
    pub fn input(&self) -> TableInput<'_> {
        TableInput {
            debug_id: &self.debug_id,
            image_base: self.image_base,
            source_sha256: [7; 32],
            producer: &self.producer,
            strings: &self.strings,
            functions: &self.functions,
        }
    }

    pub fn write(&self) -> Vec<u8> {
        symseal_symx::write_as(&self.input(), self.form).expect("a table that can be written")
    }

    /// What the records say, range by range: the definition that the format has to meet.
    pub fn answers(&self) -> Vec<Answer> {
        let mut answers: Vec<Answer> = Vec::new();
        for (index, function) in self.functions.iter().enumerate() {
            let mut rows = function.rows.clone();
            if function.size > 0 && rows.first().is_none_or(|row| row.start > function.start) {
                let nothing = Row { start: function.start, file: StrId(0), line: 0, column: 0, inline: NO_INLINE };
                rows.insert(0, nothing);
            }
            for (at, row) in rows.iter().enumerate() {
                let end = rows.get(at + 1).map_or(function.start.0 + function.size, |next| next.start.0);
                if row.start.0 == end {
                    continue;
                }
                let frames = self.frames(function, row);
                match answers.last_mut() {
                    Some(last) if last.function == index && last.frames == frames => last.end = end,
                    _ => answers.push(Answer { start: row.start.0, end, function: index, frames }),
                }
            }
        }
        answers
    }

    fn frames(&self, function: &FunctionRecord, row: &Row) -> Vec<OwnedFrame> {
        let some = |number: u32| (number > 0).then_some(number);
        let mut frames = Vec::new();
        let (mut file, mut line, mut column, mut inline) = (row.file, row.line, row.column, row.inline);
        loop {
            let site = (inline != NO_INLINE).then(|| function.inlines[inline as usize]);
            let (name, symbol) = site.map_or((function.name, function.symbol), |site| (site.name, site.symbol));
            frames.push(OwnedFrame {
                function: self.strings.get(name).into(),
                symbol: self.strings.get(symbol).into(),
                file: self.strings.get(file).into(),
                line: some(line),
                column: some(column),
                inlined: site.is_some(),
            });
            let Some(site) = site else { return frames };
            (file, line, column, inline) = (site.call_file, site.call_line, site.call_column, site.parent);
        }
    }
}

/// Numbers that are mostly small, with those at which encodings change length.
fn number() -> impl Strategy<Value = u32> + Clone {
    prop_oneof![
        4 => 0u32..6,
        4 => 0u32..400,
        1 => prop_oneof![Just(0x7f), Just(0x80), Just(0x3fff), Just(0x4000), Just(0x1f_ffff), Just(u32::MAX)],
    ]
}

fn string() -> impl Strategy<Value = StrId> {
    (0u32..24).prop_map(StrId)
}

fn strings() -> Strings {
    let mut strings = Strings::new();
    for number in 1..24 {
        strings.intern(&match number % 4 {
            0 => format!("/usr/src/größe/{}.c", "deep/".repeat(number)),
            1 => format!("_ZN{number}f"),
            2 => "x".repeat(120 + number),
            _ => format!("ns::f<{number}>"),
        });
    }
    strings
}

fn inline_site(index: u32) -> impl Strategy<Value = InlineSite> {
    let parent = if index == 0 { Just(NO_INLINE).boxed() } else { (0..=index).boxed() };
    (parent, string(), string(), string(), number(), number()).prop_map(
        move |(parent, name, symbol, call_file, call_line, call_column)| InlineSite {
            parent: if parent == index { NO_INLINE } else { parent },
            name,
            symbol,
            call_file,
            call_line,
            call_column,
        },
    )
}

fn inlines() -> impl Strategy<Value = Vec<InlineSite>> {
    (0u32..7).prop_flat_map(|count| (0..count).map(|index| inline_site(index).boxed()).collect::<Vec<_>>())
}

type Shape = (u64, u64, Vec<(u64, StrId, u32, u32, u32)>, Vec<InlineSite>);

fn shape(with_columns: bool) -> impl Strategy<Value = Shape> {
    let gap = prop_oneof![4 => Just(0u64), 4 => 1u64..40, 1 => 0u64..0x1_0000_0000];
    let size = prop_oneof![1 => Just(0u64), 8 => 1u64..600, 1 => 1u64..0x8000_0000];
    let column = if with_columns { number().boxed() } else { Just(0).boxed() };
    let row = (any::<u64>(), (0u32..4).prop_map(StrId), number(), column, any::<u32>());
    (gap, size, prop_oneof![4 => vec(row.clone(), 0..8), 1 => vec(row, 0..300)], inlines())
}

fn function() -> impl Strategy<Value = FunctionRecord> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(approximate, folded, part)| FunctionFlags {
        approximate,
        folded,
        part,
    });
    let source = prop::sample::select(SymbolSource::ALL.to_vec());
    let aliases = prop_oneof![3 => Just(Vec::new()), 1 => vec(string(), 1..4)];
    (string(), string(), aliases, source, flags, string(), number()).prop_map(
        |(name, symbol, aliases, source, flags, file, line)| FunctionRecord {
            start: Rva(0),
            size: 0,
            name,
            symbol,
            aliases,
            source,
            flags,
            file,
            line,
            rows: Vec::new(),
            inlines: Vec::new(),
        },
    )
}

fn place(mut function: FunctionRecord, at: u64, (_, size, rows, inlines): Shape) -> FunctionRecord {
    function.start = Rva(at);
    function.size = size;
    if size > 0 {
        let rows = rows.into_iter().map(|(offset, file, line, column, inline)| Row {
            start: Rva(at + offset % size),
            file,
            line,
            column,
            inline: if inlines.is_empty() || inline % 3 == 0 { NO_INLINE } else { inline % inlines.len() as u32 },
        });
        function.rows = rows.collect();
        function.rows.sort_by_key(|row| row.start);
    }
    function.inlines = inlines;
    function
}

fn debug_id() -> impl Strategy<Value = DebugId> {
    prop_oneof![
        vec(1u8.., 1..=64).prop_map(|bytes| DebugId::from_build_id(&bytes).expect("a build-id")),
        (any::<[u8; 16]>(), any::<u32>()).prop_map(|(guid, age)| DebugId::Pdb { guid, age }),
        any::<[u8; 16]>().prop_map(DebugId::MachoUuid),
    ]
}

/// Modules of up to a dozen functions, some of them wide, some without columns.
pub fn module() -> impl Strategy<Value = Module> {
    let functions = any::<bool>().prop_flat_map(|columns| vec((function(), shape(columns)), 0..12));
    let names = prop_oneof![Just(NameForm::Whole), Just(NameForm::InPhrases)];
    let contexts = prop_oneof![Just(ContextForm::Whole), Just(ContextForm::InSites)];
    let records = prop_oneof![Just(RecordForm::Whole), Just(RecordForm::Tight)];
    let form = (names, contexts, records).prop_map(|(names, contexts, records)| Form { names, contexts, records });
    (debug_id(), any::<u64>(), 0u64..0x2000, "[ -~]{0,40}", functions, form).prop_map(
        |(debug_id, image_base, first, producer, functions, form)| {
            let mut at = first;
            let mut placed = Vec::new();
            for (function, shape) in functions {
                at += shape.0;
                let size = shape.1;
                placed.push(place(function, at, shape));
                at += size;
            }
            let image_base = Svma(image_base);
            Module { debug_id, image_base, producer, strings: strings(), functions: placed, form }
        },
    )
}
