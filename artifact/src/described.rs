//! What one kind of debug information says about a module's functions, before names are read.
//!
//! DWARF, PDB and Go's function table each give one of these; [`merge`](crate::merge) lays it over the symbol tables.

use crate::work::Work;
use symseal_symx::{Row, StrId, SymbolSource};

/// Functions with finished line rows, and the way to their names.
pub(crate) struct Described<'s> {
    /// What the records are marked with.
    pub(crate) source: SymbolSource,
    /// In the order of units; within a unit by address and not overlapping.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) losers: Vec<Loser>,
    pub(crate) orphans: Vec<OrphanRow>,
    /// Functions that are defined and have no code of their own, where [`Naming::bare`] names them.
    pub(crate) without_code: Vec<u64>,
    pub(crate) names: Box<dyn Naming + 's>,
}

impl Described<'_> {
    /// Line rows of all functions.
    pub(crate) fn rows(&self) -> usize {
        self.pieces.iter().map(|piece| piece.rows.len()).sum()
    }
}

/// Reads names late: many functions are dropped before theirs is needed.
pub(crate) trait Naming {
    /// Names and declaration of a function.
    fn function(&mut self, function: u64, work: &mut Work) -> FunctionNames;
    /// Names of an inlined function.
    fn inlined(&mut self, origin: u64, work: &mut Work) -> InlinedNames;
    /// The name of a function as the source has it, without its scopes.
    fn bare(&mut self, _function: u64, _work: &mut Work) -> Option<String> {
        None
    }
}

/// A contiguous range of a function, its rows finished, its names still to be read.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Stated address.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// What [`Naming::function`] is asked with: for DWARF the offset in `.debug_info` of the entry.
    pub(crate) function: u64,
    /// Which unit it comes from, in the order of the file.
    pub(crate) unit: u32,
    /// Holds the function's entry point.
    pub(crate) is_entry: bool,
    pub(crate) rows: Vec<Row>,
    pub(crate) sites: Vec<Site>,
}

/// An inlined call whose names are still to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) parent: u32,
    /// What [`Naming::inlined`] is asked with.
    pub(crate) origin: u64,
    pub(crate) call_file: StrId,
    pub(crate) call_line: u32,
    pub(crate) call_column: u32,
}

/// A function's range that lost at least a part to another function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loser {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) function: u64,
    /// The function that holds the range, where this is another name of it.
    pub(crate) alias_of: Option<u64>,
}

/// A stretch of a line table that no function of its unit covers: assembly, mostly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrphanRow {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) file: StrId,
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// Whether a row of assembly, which may be code without a function, begins here and not before.
    pub(crate) begins: bool,
}

/// How a function is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FunctionNames {
    /// With namespaces and types; empty where there is no name, or where one of those is not known.
    pub(crate) name: StrId,
    /// The linkage name, or the bare name where there is none.
    pub(crate) symbol: StrId,
    /// `symbol` is a linkage name.
    pub(crate) has_linkage_name: bool,
    /// File of the declaration.
    pub(crate) file: StrId,
    pub(crate) line: u32,
}

/// How a function is called that was inlined. Hundreds of thousands of them are remembered at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct InlinedNames {
    /// As [`FunctionNames::name`], and the symbol where that is empty.
    pub(crate) name: StrId,
    /// As [`FunctionNames::symbol`].
    pub(crate) symbol: StrId,
}

impl InlinedNames {
    /// Where the name is empty, the symbol stands for it.
    pub(crate) fn new(name: StrId, symbol: StrId) -> Self {
        Self { name: if name.is_empty() { symbol } else { name }, symbol }
    }
}

impl From<FunctionNames> for InlinedNames {
    fn from(names: FunctionNames) -> Self {
        Self::new(names.name, names.symbol)
    }
}
