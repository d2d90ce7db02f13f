//! Symbol tables by address: for each address one symbol and its aliases.

use crate::code_ranges::{Text, disjoint, touches};
use crate::descriptors::{Descriptors, at_code};
use crate::headers::ObjectHeaders;
use crate::work::Work;
use std::borrow::Cow;
use std::ops::Range;
use symseal_module::Svma;
use symseal_symx::{StrId, SymbolSource};

/// Which table a symbol stands in, the better ones first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum SymbolTable {
    /// `.symtab`, the COFF symbol table, Mach-O's `LC_SYMTAB`.
    Symtab,
    /// Public symbols of a PDB.
    Publics,
    /// The symbol table in `.gnu_debugdata`.
    MiniDebugInfo,
    /// `.dynsym`.
    Dynsym,
    /// Exports of a PE or Mach-O file.
    Exports,
}

impl SymbolTable {
    /// Better tables first: of equal symbols that of the first one is taken.
    pub(crate) const ALL: [Self; 4] = [Self::Symtab, Self::MiniDebugInfo, Self::Dynsym, Self::Exports];

    pub(crate) const fn source(self) -> SymbolSource {
        match self {
            Self::Symtab => SymbolSource::Symtab,
            Self::Publics => SymbolSource::Pdb,
            Self::Dynsym => SymbolSource::Dynsym,
            Self::MiniDebugInfo => SymbolSource::MiniDebugInfo,
            Self::Exports => SymbolSource::Exports,
        }
    }
}

/// A symbol that may name code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Symbol<'d> {
    /// Without its version.
    pub(crate) name: &'d [u8],
    /// Stated address.
    pub(crate) svma: u64,
    /// 0 = unknown.
    pub(crate) size: u64,
    /// 0 a function (`STT_FUNC`), 1 an indirect one (`STT_GNU_IFUNC`), 2 untyped (`STT_NOTYPE`).
    pub(crate) type_rank: u8,
    /// 0 global, 1 weak, 2 local.
    pub(crate) binding_rank: u8,
    /// Of Thumb, microMIPS or MIPS16 code, as bit 0 of a function's address in an ELF file of 32-bit ARM or MIPS says.
    pub(crate) is_compressed: bool,
    /// At the address of a function descriptor, which leads to the code; see [`at_code`].
    pub(crate) is_descriptor: bool,
    pub(crate) table: SymbolTable,
}

/// A function as a symbol table names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionSymbol<'d> {
    /// Where it starts: the stated address, of a PDB the address in the image as it was before it was rearranged, less its base.
    pub svma: Svma,
    /// Bytes; 0 = unknown.
    pub size: u64,
    /// As the linker knows it, without its version.
    pub name: Cow<'d, [u8]>,
}

/// All symbols of one address.
#[derive(Debug)]
pub(crate) struct SymbolGroup {
    pub(crate) svma: u64,
    /// Of the best symbol that has one; 0 = unknown.
    pub(crate) size: u64,
    pub(crate) source: SymbolSource,
    /// The best symbol first.
    pub(crate) names: Vec<StrId>,
    /// How many of them are as good as the first but for their spelling.
    pub(crate) peers: usize,
    /// How many of them are of the kind of the first, and have a size if it has one: the others may be labels, or the empty
    /// rests of functions (`.cold`) in front of it.
    pub(crate) claims: usize,
    /// Without a size it reaches to whatever comes next; else it covers its own address alone.
    pub(crate) reaches: bool,
}

/// The order among symbols of one address; `docs` of [`functions`](crate::functions) state it.
type Rank<'d> = (Standing, u8, usize, &'d [u8], SymbolTable);

/// The part of it that is not spelling.
type Standing = (bool, bool, u8, bool, u8);

fn rank<'d>(symbol: &Symbol<'d>) -> Rank<'d> {
    let underscores = match symbol.name {
        [b'_', b'_', ..] => 2,
        [b'_', ..] => 1,
        _ => 0,
    };
    let name = symbol.name;
    (standing(symbol), underscores, name.len(), name, symbol.table)
}

/// What a linker of PE files falls back to where nobody else defines a weak symbol is called `.weak.NAME.default.OTHER`; this is the name.
pub(crate) fn default_of_weak(symbol: &[u8]) -> Option<&[u8]> {
    const BEHIND: &[u8] = b".default.";
    let rest = symbol.strip_prefix(b".weak.")?;
    let end = rest.windows(BEHIND.len()).position(|window| window == BEHIND)?;
    rest.get(..end).filter(|name| !name.is_empty())
}

/// Last comes what a linker of PE files falls back to where nobody defines a weak symbol, which is seldom the name that anybody calls. What a file exports may be called otherwise there than by its linker, which a table of all symbols, or the program database, knows
/// better.
fn standing(symbol: &Symbol<'_>) -> Standing {
    let (is_default_of_weak, is_export) = (symbol.name.starts_with(b".weak."), symbol.table == SymbolTable::Exports);
    (is_default_of_weak, is_export, symbol.type_rank, symbol.size == 0, symbol.binding_rank)
}

/// Adds a file's symbols that lie in code. `as_table` says how those of its full table count, for a file in a file; `descriptors` are
/// those of the binary.
pub(crate) fn collect<'a, 'd: 'a>(
    headers: &'a dyn ObjectHeaders<'d>,
    as_table: SymbolTable,
    descriptors: Option<&Descriptors<'_>>,
    text: &Text,
    all: &mut Vec<Symbol<'a>>,
    work: &mut Work,
) {
    for table in SymbolTable::ALL {
        for symbol in headers.symbols(table) {
            if work.budget.charge(symbol.name.len() as u64 + 1).is_err() {
                work.skip("symbol beyond the work limit");
                return;
            }
            let Some(symbol) = at_code(symbol, descriptors) else { continue };
            if text.clip(symbol.svma, u64::MAX).is_some() {
                let table = if table == SymbolTable::Symtab { as_table } else { table };
                all.push(Symbol { table, ..symbol });
            }
        }
    }
}

/// The symbols by address.
pub(crate) fn groups(mut all: Vec<Symbol<'_>>, work: &mut Work) -> Vec<SymbolGroup> {
    // By rank only where several share an address: most stand alone.
    all.sort_by_key(|symbol| symbol.svma);
    let mut groups = Vec::new();
    for symbols in all.chunk_by_mut(|a, b| a.svma == b.svma) {
        symbols.sort_by(|a, b| rank(a).cmp(&rank(b)));
        let symbols = &*symbols;
        let Some(best) = symbols.first() else { continue };
        let mut names = Vec::with_capacity(symbols.len());
        let (mut peers, mut claims) = (0, 0);
        for symbol in symbols {
            let name = work.symbol(symbol.name);
            if !names.contains(&name) {
                names.push(name);
                peers += usize::from(standing(symbol) == standing(best));
                claims += usize::from((symbol.type_rank, symbol.size == 0) == (best.type_rank, best.size == 0));
            }
            if names.len() >= MOST_ALIASES {
                break;
            }
        }
        groups.push(SymbolGroup {
            svma: best.svma,
            size: symbols.iter().map(|symbol| symbol.size).find(|size| *size > 0).unwrap_or(0),
            source: best.table.source(),
            names,
            peers,
            claims,
            // What a file exports are few of its functions: most neighbours are missing.
            reaches: !matches!(best.table, SymbolTable::Dynsym | SymbolTable::Exports),
        });
    }
    groups
}

/// Where the symbols start, one byte of each, whose sizes reach over one of these addresses.
pub(crate) fn starts_of_holders<'a, 'd: 'a>(
    files: impl Iterator<Item = &'a dyn ObjectHeaders<'d>>,
    descriptors: Option<&Descriptors<'_>>,
    points: &[Range<u64>],
    text: &Text,
    work: &mut Work,
) -> Vec<Range<u64>> {
    let mut starts = Vec::new();
    // Symbols are many, and most addresses have a function.
    if points.is_empty() {
        return starts;
    }
    for file in files {
        for symbol in SymbolTable::ALL.into_iter().flat_map(|table| file.symbols(table)) {
            if work.budget.charge(1).is_err() {
                return Vec::new();
            }
            let Some(symbol) = at_code(symbol, descriptors) else { continue };
            let code = text.clip(symbol.svma, symbol.svma.saturating_add(symbol.size));
            if code.is_some_and(|(start, end)| touches(points, &(start..end))) {
                starts.push(symbol.svma..symbol.svma.saturating_add(1));
            }
        }
    }
    disjoint(starts)
}

/// The code of the groups that name these addresses where nothing else does: of those that reach over one the last that starts.
pub(crate) fn holders(groups: &[SymbolGroup], points: &[Range<u64>], text: &Text) -> Vec<Range<u64>> {
    let code = |group: &SymbolGroup| text.clip(group.svma, group.svma.saturating_add(group.size));
    let holder = |point: &Range<u64>| {
        let mut reaching = groups.iter().rev().filter_map(code);
        reaching.find(|(start, end)| (*start..*end).contains(&point.start)).map(|(start, end)| start..end)
    };
    points.iter().filter_map(holder).collect()
}

/// Adds addresses at which functions start: as ends of size-less symbols before them, and as groups without a name where
/// there is no symbol. No function is missing then, so that what is exported reaches to the next one too.
pub(crate) fn with_starts(
    mut groups: Vec<SymbolGroup>,
    starts: Vec<u64>,
    text: &Text,
    work: &mut Work,
) -> Vec<SymbolGroup> {
    if starts.is_empty() {
        return groups;
    }
    if work.budget.charge(starts.len() as u64).is_err() {
        work.skip("function start beyond the work limit");
        return groups;
    }
    groups.iter_mut().for_each(|group| group.reaches = true);
    let is_new = |svma: &u64| groups.binary_search_by_key(svma, |group| group.svma).is_err();
    let in_code = starts.into_iter().filter(|svma| text.clip(*svma, u64::MAX).is_some());
    let nameless = in_code.filter(is_new).map(|svma| SymbolGroup {
        svma,
        size: 0,
        source: SymbolSource::FunctionStarts,
        names: Vec::new(),
        peers: 0,
        claims: 0,
        reaches: true,
    });
    let nameless: Vec<SymbolGroup> = nameless.collect();
    groups.extend(nameless);
    groups.sort_by_key(|group| group.svma);
    groups.dedup_by_key(|group| group.svma);
    groups
}

/// Names of one address beyond this many are not listed.
pub(crate) const MOST_ALIASES: usize = 256;
