//! Who is at address 0, where that is code.
//!
//! Linkers put 0 in the place of the address of what they dropped (`--gc-sections`; lld with DWARF before 6, GNU ld). In most files no code is there, and
//! such ranges are left out with all that lie outside of the code. Firmware and objects have a function at 0: there the symbol
//! table says which one it is, as a linker takes the symbols of what it drops out as well.

use super::lines::{Lines, Sequence};
use super::names::Names;
use super::unit::Unit;
use super::walk::UnitEntries;
use crate::code_ranges::Text;
use crate::escaped;
use crate::folded::{base, has_two_functions, is_mangled, spells};
use crate::symbols::{MOST_ALIASES, Symbol};
use crate::work::Work;
use hashbrown::HashSet;
use std::collections::BTreeSet;

/// What the symbols of a file say that has code at address 0.
#[derive(Debug)]
pub(crate) struct AtZero {
    /// Of the symbols there, the first [`MOST_ALIASES`].
    names: Vec<String>,
    /// Of the functions there that have one.
    sizes: BTreeSet<u64>,
    /// Where symbols with a size start, and how far these and all before them reach, by start.
    sized: Vec<(u64, u64)>,
}

/// How well a function that claims address 0 agrees with the symbols there, the best last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Trust {
    /// It has the size of one, in a language whose compilers may call a function otherwise in its entry than in its symbol.
    Extent,
    /// A symbol is its own, and it does not reach into another one.
    Name,
    Both,
}

/// A function that may be at 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) function: u64,
    end: u64,
    trust: Trust,
}

impl AtZero {
    /// None where no code is at 0, or no symbol tells of code.
    pub(crate) fn of(symbols: &[Symbol<'_>], text: &Text) -> Option<Self> {
        text.clip(0, 1)?;
        let at_zero = || symbols.iter().filter(|symbol| symbol.svma == 0);
        let sized = symbols.iter().filter(|symbol| symbol.size > 0);
        let mut sized: Vec<(u64, u64)> =
            sized.map(|symbol| (symbol.svma, symbol.svma.saturating_add(symbol.size))).collect();
        sized.sort_unstable();
        let mut reached = 0;
        for (_, end) in &mut sized {
            reached = reached.max(*end);
            *end = reached;
        }
        let is_told = !symbols.is_empty();
        let is_function = |symbol: &Symbol<'_>| symbol.type_rank < 2 && symbol.size > 0;
        is_told.then(|| Self {
            names: at_zero().take(MOST_ALIASES).map(|symbol| escaped(symbol.name).into_owned()).collect(),
            sizes: at_zero().filter(|symbol| is_function(symbol)).map(|symbol| symbol.size).collect(),
            sized,
        })
    }

    /// Takes the code at 0 from those functions of a unit that are not there, and their lines. What is left claims it.
    pub(crate) fn settle(
        &self,
        unit: &Unit<'_>,
        entries: &mut UnitEntries,
        names: &mut Names<'_>,
        work: &mut Work,
    ) -> Vec<Claim> {
        let mut claims = Vec::new();
        for function in &entries.functions {
            let ranges = entries.ranges.get(function.first_range..function.behind_ranges).unwrap_or_default();
            for (_, end) in ranges.iter().filter(|(start, _)| *start == 0) {
                let trust = self.trust(unit, function.entry, *end, names, work);
                claims.extend(trust.map(|trust| Claim { function: function.entry, end: *end, trust }));
            }
        }
        keep_best(&mut claims);
        let kept: HashSet<(u64, u64)> = claims.iter().map(|claim| (claim.function, claim.end)).collect();
        let UnitEntries { functions, ranges, without_code, .. } = entries;
        for function in functions {
            let is_kept = |end: u64| kept.contains(&(function.entry, end));
            let ranges = ranges.get_mut(function.first_range..function.behind_ranges).unwrap_or_default();
            let mut dropped = false;
            for (_, end) in ranges.iter_mut().filter(|(start, end)| *start == 0 && !is_kept(*end)) {
                *end = 0;
                dropped = true;
            }
            if dropped {
                work.skip("function outside of the code (dropped by the linker)");
                if ranges.iter().all(|(start, end)| start == end) && unit.defines_by_name(function.entry) {
                    without_code.push(function.entry);
                }
            }
        }
        claims
    }

    fn trust(&self, unit: &Unit<'_>, function: u64, end: u64, names: &mut Names<'_>, work: &mut Work) -> Option<Trust> {
        work.budget.charge(self.names.len() as u64).ok()?;
        // Names are asked for again, and count then what they miss.
        let skipped = work.skipped.clone();
        let (linkage, bare) = names.called(function, work);
        work.skipped = skipped;
        let is_of = |symbol: &String| match (&linkage, &bare) {
            (Some(linkage), _) => is_the_same(symbol, linkage),
            (None, Some(bare)) => spells(symbol, bare),
            (None, None) => false,
        };
        match (self.names.iter().any(is_of), self.sizes.contains(&end)) {
            (true, true) => Some(Trust::Both),
            (true, false) => (!self.reaches_into_another(end)).then_some(Trust::Name),
            // Among hundreds of functions that were dropped one has this size by chance.
            (false, true) => {
                // GCC gives static functions of C++ no linkage name, and these are not spelled out in their symbols.
                let is_spelled =
                    !bare.as_ref().is_some_and(|bare| bare.starts_with("operator") || bare.starts_with('~'));
                let has_symbols_name = has_symbols_names(unit) && (linkage.is_some() || is_spelled);
                (!has_symbols_name).then_some(Trust::Extent)
            }
            (false, false) => None,
        }
    }

    /// Whether code from 0 to this address has the start of a symbol with a size within.
    fn reaches_into_another(&self, end: u64) -> bool {
        let behind = self.sized.partition_point(|(start, _)| *start == 0);
        self.sized.get(behind).is_some_and(|(start, _)| *start < end)
    }

    /// Whether a symbol reaches over this address.
    fn is_within_one(&self, svma: u64) -> bool {
        let before = self.sized.partition_point(|(start, _)| *start < svma);
        before.checked_sub(1).and_then(|last| self.sized.get(last)).is_some_and(|(_, reached)| svma < *reached)
    }

    /// Takes those sequences out of a unit's lines that start at 0 and are of functions that are not there. `had_claims` says that functions of
    /// the unit claimed the address; these are left.
    pub(crate) fn settle_lines(&self, had_claims: bool, claims: &[Claim], entries: &UnitEntries, lines: &mut Lines) {
        lines.sequences.retain(|sequence| sequence.start != 0 || !self.is_within_one(sequence.end));
        if !had_claims {
            return;
        }
        // Those of a section of its own end where the function does, those of several functions where the last one does.
        let there: HashSet<u64> = claims.iter().map(|claim| claim.end).collect();
        let of_any: HashSet<u64> = entries.ranges.iter().map(|(_, end)| *end).collect();
        let fit = |sequence: &Sequence| (there.contains(&sequence.end), of_any.contains(&sequence.end));
        let best = lines.sequences.iter().filter(|sequence| sequence.start == 0).map(fit).max();
        let is_there = |sequence: &Sequence| !claims.is_empty() && Some(fit(sequence)) == best;
        lines.sequences.retain(|sequence| sequence.start != 0 || is_there(sequence));
    }
}

/// Whether a function's entry has the name that its symbol has, as the unit's language tells.
fn has_symbols_names(unit: &Unit<'_>) -> bool {
    matches!(
        unit.root.language,
        Some(
            gimli::DW_LANG_C
                | gimli::DW_LANG_C89
                | gimli::DW_LANG_C99
                | gimli::DW_LANG_C11
                | gimli::DW_LANG_C17
                | gimli::DW_LANG_C_plus_plus
                | gimli::DW_LANG_C_plus_plus_03
                | gimli::DW_LANG_C_plus_plus_11
                | gimli::DW_LANG_C_plus_plus_14
                | gimli::DW_LANG_C_plus_plus_17
                | gimli::DW_LANG_C_plus_plus_20
                | gimli::DW_LANG_ObjC
                | gimli::DW_LANG_Rust
                | gimli::DW_LANG_Mips_Assembler
        )
    )
}

/// Whether two linkage names are of one function.
fn is_the_same(symbol: &str, linkage: &str) -> bool {
    let variants = || is_mangled(symbol) && is_mangled(linkage) && !has_two_functions([symbol, linkage].into_iter());
    base(symbol) == base(linkage) || variants()
}

/// Keeps the claims that agree best with the symbols.
pub(crate) fn keep_best(claims: &mut Vec<Claim>) {
    let best = claims.iter().map(|claim| claim.trust).max();
    claims.retain(|claim| Some(claim.trust) == best);
}
