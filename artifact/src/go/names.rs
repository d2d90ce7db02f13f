//! Names of functions in Go's table, and of a program that has DWARF for its C parts alone.

use super::header::Table;
use crate::described::{Described, FunctionNames, InlinedNames, Naming};
use crate::work::Work;
use symseal_symx::StrId;

/// What is known of a function before its name is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declared {
    /// Offset of the name.
    pub(crate) name: u32,
    pub(crate) file: StrId,
    pub(crate) line: u32,
}

/// Reads names from the table.
pub(crate) struct GoNames<'t, 'd> {
    pub(crate) table: &'t Table<'d>,
    /// By the number of the function.
    pub(crate) functions: Vec<Declared>,
}

impl GoNames<'_, '_> {
    /// Go's linker writes one name for language and linker.
    fn names(&self, name: u32, work: &mut Work) -> FunctionNames {
        let name = self.table.name(name).map_or(StrId::EMPTY, |name| work.text(name));
        FunctionNames { name, symbol: name, has_linkage_name: !name.is_empty(), ..FunctionNames::default() }
    }
}

impl Naming for GoNames<'_, '_> {
    fn function(&mut self, function: u64, work: &mut Work) -> FunctionNames {
        let declared = usize::try_from(function & !GO).ok().and_then(|number| self.functions.get(number).copied());
        let Some(Declared { name, file, line }) = declared else { return FunctionNames::default() };
        FunctionNames { file, line, ..self.names(name, work) }
    }

    fn inlined(&mut self, origin: u64, work: &mut Work) -> InlinedNames {
        u32::try_from(origin & !GO).map_or_else(|_| InlinedNames::default(), |name| self.names(name, work).into())
    }
}

/// Marks numbers of Go's functions, which DWARF's offsets do not reach.
const GO: u64 = 1 << 63;

/// Pieces of Go's table rank behind those of every unit.
pub(crate) const GO_UNIT: u32 = u32::MAX;

/// Marks a number as that of a Go function.
pub(crate) const fn go_number(number: u64) -> u64 {
    number | GO
}

/// Whether a number is that of a Go function.
pub(crate) const fn is_go(number: u64) -> bool {
    number & GO != 0
}

/// Asks DWARF for its functions, and Go's table for its own.
struct Both<'s> {
    dwarf: Box<dyn Naming + 's>,
    go: Box<dyn Naming + 's>,
}

impl Naming for Both<'_> {
    fn function(&mut self, function: u64, work: &mut Work) -> FunctionNames {
        if is_go(function) { self.go.function(function, work) } else { self.dwarf.function(function, work) }
    }

    fn inlined(&mut self, origin: u64, work: &mut Work) -> InlinedNames {
        if is_go(origin) { self.go.inlined(origin, work) } else { self.dwarf.inlined(origin, work) }
    }

    fn bare(&mut self, function: u64, work: &mut Work) -> Option<String> {
        if is_go(function) { self.go.bare(function, work) } else { self.dwarf.bare(function, work) }
    }
}

impl<'s> Described<'s> {
    /// Go's functions where DWARF has none: a program may have DWARF for its C parts alone.
    pub(crate) fn beside(self, mut dwarf: Described<'s>) -> Self {
        if dwarf.pieces.is_empty() && dwarf.orphans.is_empty() {
            return self;
        }
        dwarf.pieces.extend(self.pieces);
        dwarf.names = Box::new(Both { dwarf: dwarf.names, go: self.names });
        dwarf
    }
}
