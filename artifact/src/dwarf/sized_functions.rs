//! Functions as a symbol table has them, to see whether split DWARF describes the same ones.

use crate::descriptors::at_code;
use crate::headers::ObjectHeaders;
use crate::symbols::SymbolTable;

/// The functions that symbols with a size name.
#[derive(Debug, Default)]
pub(crate) struct SizedFunctions {
    /// Start and end, each once, sorted.
    extents: Vec<(u64, u64)>,
    /// For each how far those up to it reach.
    reached: Vec<u64>,
}

impl SizedFunctions {
    /// Those of the full symbol table: others have a part of the functions alone.
    pub(crate) fn of(headers: &dyn ObjectHeaders<'_>) -> Self {
        let descriptors = headers.descriptors();
        let symbols = headers.symbols(SymbolTable::Symtab).filter(|symbol| symbol.type_rank == 0 && symbol.size > 0);
        let symbols = symbols.filter_map(|symbol| at_code(symbol, descriptors.as_ref()));
        let mut extents: Vec<(u64, u64)> =
            symbols.map(|symbol| (symbol.svma, symbol.svma.saturating_add(symbol.size))).collect();
        extents.sort_unstable();
        extents.dedup();
        let mut reached = Vec::with_capacity(extents.len());
        let mut furthest = 0;
        for (_, end) in &extents {
            furthest = furthest.max(*end);
            reached.push(furthest);
        }
        Self { extents, reached }
    }

    /// Whether the symbols say that no function is there: those that start at the same address reach further, or end before another one that
    /// the range runs into; where none does, the range starts within one. A range that is a little longer than a function is none: GCC counts what
    /// microMIPS code is padded with.
    pub(crate) fn contradict(&self, start: u64, end: u64) -> bool {
        let first = self.extents.partition_point(|(other, _)| *other < start);
        let here = self.extents.get(first..).unwrap_or_default().iter().take_while(|(other, _)| *other == start);
        let ends = || here.clone().map(|(_, end)| *end);
        let Some((shortest, longest)) = ends().min().zip(ends().max()) else {
            return first
                .checked_sub(1)
                .and_then(|last| self.reached.get(last))
                .is_some_and(|reached| start < *reached);
        };
        let next = self.extents.partition_point(|(other, _)| *other < longest);
        end < shortest || self.extents.get(next).is_some_and(|(next, _)| *next < end)
    }
}
