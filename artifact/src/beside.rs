//! Two kinds of debug information of one module: MinGW's run time has DWARF where a program's own code has a PDB.

use crate::described::{Described, FunctionNames, InlinedNames, Naming};
use crate::work::Work;

/// Marks numbers of the second one. Neither offsets in `.debug_info` nor a PDB's numbers reach so far, and Go's have the
/// bit above.
const SECOND: u64 = 1 << 62;

/// Whether a function's number is that of the second one.
pub(crate) const fn is_second(number: u64) -> bool {
    number & (SECOND << 1) == 0 && number & SECOND != 0
}

/// Asks each for its own.
struct Both<'s> {
    first: Box<dyn Naming + 's>,
    second: Box<dyn Naming + 's>,
}

impl Naming for Both<'_> {
    fn function(&mut self, function: u64, work: &mut Work) -> FunctionNames {
        let own = if is_second(function) { &mut self.second } else { &mut self.first };
        own.function(function & !SECOND, work)
    }

    fn inlined(&mut self, origin: u64, work: &mut Work) -> InlinedNames {
        let own = if is_second(origin) { &mut self.second } else { &mut self.first };
        own.inlined(origin & !SECOND, work)
    }

    fn bare(&mut self, function: u64, work: &mut Work) -> Option<String> {
        let own = if is_second(function) { &mut self.second } else { &mut self.first };
        own.bare(function & !SECOND, work)
    }
}

/// The first one, and the second one's functions where the first has none. Stretches of line tables without a function
/// are the first one's alone.
pub(crate) fn beside<'s>(mut first: Described<'s>, second: Described<'s>) -> Described<'s> {
    let behind = first.pieces.iter().map(|piece| piece.unit).max().map_or(0, |unit| unit.saturating_add(1));
    first.pieces.extend(second.pieces.into_iter().map(|mut piece| {
        piece.unit = piece.unit.saturating_add(behind);
        piece.function |= SECOND;
        for site in &mut piece.sites {
            site.origin |= SECOND;
        }
        piece
    }));
    first.losers.extend(second.losers.into_iter().map(|mut loser| {
        loser.function |= SECOND;
        loser
    }));
    first.without_code.extend(second.without_code.into_iter().map(|function| function | SECOND));
    first.names = Box::new(Both { first: first.names, second: second.names });
    first
}
