//! Symbol tables by address: for each address one symbol and its aliases.

use crate::dwarf::{Text, Work};
use crate::elf::{self, Elf, Symbol, SymbolTable};
use symseal_symx::{StrId, SymbolSource};

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
}

/// The order among symbols of one address; `docs` of [`functions`](crate::functions) state it.
type Rank<'d> = (u8, bool, u8, u8, usize, &'d [u8], SymbolTable);

fn rank<'d>(symbol: &Symbol<'d>) -> Rank<'d> {
    let underscores = match symbol.name {
        [b'_', b'_', ..] => 2,
        [b'_', ..] => 1,
        _ => 0,
    };
    let name = symbol.name;
    let (type_rank, is_size_less, binding_rank) = standing(symbol);
    (type_rank, is_size_less, binding_rank, underscores, name.len(), name, symbol.table)
}

/// The part of the rank that is not spelling.
fn standing(symbol: &Symbol<'_>) -> (u8, bool, u8) {
    (symbol.type_rank, symbol.size == 0, symbol.binding_rank)
}

/// The symbols that lie in code, by address.
pub(crate) fn groups(files: &[&Elf<'_>], text: &Text, work: &mut Work) -> Vec<SymbolGroup> {
    let mut all: Vec<Symbol<'_>> = Vec::new();
    for file in files {
        for table in [SymbolTable::Symtab, SymbolTable::Dynsym] {
            for symbol in elf::symbols(file, table) {
                if work.budget.charge(symbol.name.len() as u64 + 1).is_err() {
                    work.skip("symbol beyond the work limit");
                    break;
                }
                if text.clip(symbol.svma, u64::MAX).is_some() {
                    all.push(symbol);
                }
            }
        }
    }
    all.sort_by(|a, b| a.svma.cmp(&b.svma).then_with(|| rank(a).cmp(&rank(b))));
    let mut groups = Vec::new();
    for symbols in all.chunk_by(|a, b| a.svma == b.svma) {
        let Some(best) = symbols.first() else { continue };
        let mut names = Vec::with_capacity(symbols.len());
        let mut peers = 0;
        for symbol in symbols {
            let name = work.text(symbol.name);
            if !names.contains(&name) {
                names.push(name);
                peers += usize::from(standing(symbol) == standing(best));
            }
            if names.len() >= MOST_ALIASES {
                break;
            }
        }
        groups.push(SymbolGroup {
            svma: best.svma,
            size: symbols.iter().map(|symbol| symbol.size).find(|size| *size > 0).unwrap_or(0),
            source: match best.table {
                SymbolTable::Symtab => SymbolSource::Symtab,
                SymbolTable::Dynsym => SymbolSource::Dynsym,
            },
            names,
            peers,
        });
    }
    groups
}

/// Names of one address beyond this many are not listed.
pub(crate) const MOST_ALIASES: usize = 256;
