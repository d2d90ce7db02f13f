//! Records asked for an address, independently of the symbol table's own reader.

use symseal_artifact::FunctionStream;
use symseal_symx::{FunctionRecord, NO_INLINE, StrId};

/// One frame as our records have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) symbol: String,
    pub(crate) aliases: Vec<String>,
    pub(crate) file: String,
    pub(crate) line: u64,
    pub(crate) column: u64,
    pub(crate) folded: bool,
}

/// The frames at an address relative to the image base, innermost first.
pub(crate) fn frames(stream: &FunctionStream, rva: u64) -> Vec<Found> {
    let behind = stream.functions.partition_point(|function| function.start.0 <= rva);
    let Some(function) = behind.checked_sub(1).and_then(|at| stream.functions.get(at)) else { return Vec::new() };
    if rva >= function.start.0 + function.size {
        return Vec::new();
    }
    let row = function.rows.iter().rev().find(|row| row.start.0 <= rva);
    let mut position = row.map_or((StrId::EMPTY, 0, 0), |row| (row.file, row.line, row.column));
    let mut inline = row.map_or(NO_INLINE, |row| row.inline);
    let text = |id: StrId| stream.strings.get(id).to_owned();
    let mut found = Vec::new();
    while let Some(site) = function.inlines.get(inline as usize) {
        found.push(Found {
            name: text(site.name),
            symbol: text(site.symbol),
            aliases: Vec::new(),
            file: text(position.0),
            line: position.1.into(),
            column: position.2.into(),
            folded: function.flags.folded,
        });
        position = (site.call_file, site.call_line, site.call_column);
        inline = site.parent;
    }
    found.push(Found {
        name: text(function.name),
        symbol: text(function.symbol),
        aliases: function.aliases.iter().map(|alias| text(*alias)).collect(),
        file: text(position.0),
        line: position.1.into(),
        column: position.2.into(),
        folded: function.flags.folded,
    });
    found
}

/// What every stream must hold to; the symbol table's writer relies on it.
pub(crate) fn check_shape(stream: &FunctionStream) {
    let mut reached = 0;
    for function in &stream.functions {
        assert!(function.start.0 >= reached, "{:#x} overlaps its predecessor", function.start.0);
        assert!(function.size > 0, "{:#x} is empty", function.start.0);
        reached = function.start.0.checked_add(function.size).expect("an end");
        check_rows(function);
    }
}

fn check_rows(function: &FunctionRecord) {
    let end = function.start.0 + function.size;
    assert!(function.rows.is_sorted_by(|a, b| a.start < b.start), "rows rise in {:#x}", function.start.0);
    if let (Some(first), Some(last)) = (function.rows.first(), function.rows.last()) {
        assert_eq!(first.start, function.start, "rows start with their function");
        assert!(last.start.0 < end, "rows lie in their function");
    }
    for row in &function.rows {
        assert!(row.inline == NO_INLINE || (row.inline as usize) < function.inlines.len(), "rows name inlined calls");
    }
    for (at, site) in function.inlines.iter().enumerate() {
        assert!(site.parent == NO_INLINE || (site.parent as usize) < at, "callers stand before what they call");
    }
}
