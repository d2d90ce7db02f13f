//! Functions as a symbol table has them, to see whether split DWARF describes the same ones.

use crate::descriptors::at_code;
use crate::headers::ObjectHeaders;
use crate::symbols::SymbolTable;

/// The functions that symbols with a size name. What the compiler calls a function's end in its symbol and in its entry is one label.
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
        let mut extents = Vec::new();
        for symbol in symbols.filter_map(|symbol| at_code(symbol, descriptors.as_ref())) {
            let extent = |start: u64| (start, start.saturating_add(symbol.size));
            extents.push(extent(symbol.svma));
            // Assemblers may leave the bit of compressed code in addresses of debug information.
            extents.extend(symbol.is_compressed.then(|| extent(symbol.svma.saturating_add(1))));
        }
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

    /// Whether the symbols say that no function is there: where some start at the same address, all have other ends; where none
    /// does, the range starts within one.
    pub(crate) fn contradict(&self, start: u64, end: u64) -> bool {
        let first = self.extents.partition_point(|(other, _)| *other < start);
        let mut here = self.extents.get(first..).unwrap_or_default().iter().take_while(|(other, _)| *other == start);
        match here.next() {
            Some(one) => one.1 != end && here.all(|(_, other)| *other != end),
            None => {
                first.checked_sub(1).and_then(|last| self.reached.get(last)).is_some_and(|reached| start < *reached)
            }
        }
    }
}
