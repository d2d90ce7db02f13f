//! Split DWARF below trees: the files of the units that a program's skeletons ask for, found by the units' ids wherever they lie.
//! (DWARF 5, section 7.3.2; GNU's `DW_AT_GNU_dwo_id` before)
//!
//! An id is made of what was compiled, so a file of another build has another one, whatever its name; the name decides between files of one id alone.

use std::cmp::Reverse;
use std::collections::HashSet;

use symseal_artifact::{ObjectFile, SplitKind};

use super::{Place, Trees, WITHIN, read};
use crate::debug_files::{FileKind, SPLIT_UNIT, kind_code};

/// Units of one file that are kept in the index: as many as a large program has sources.
const UNITS: usize = 1 << 16;

/// Files of one unit that are compared: every build of a source without a change has one of the same id.
const COMPARED: usize = 64;

/// Files that one table is made with. Each is opened, and what its sections need in memory is beside its bytes.
const FILES: usize = 1 << 14;

/// The split DWARF that a file holds.
#[derive(Debug)]
pub(super) struct Units {
    is_package: bool,
    ids: Vec<u64>,
}

impl Units {
    /// Of an ELF file's bytes; `None` where it holds none.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let object = ObjectFile::parse(bytes).ok()?;
        let kind = object.split_kind()?;
        let mut ids = object.split_ids();
        ids.truncate(UNITS);
        (!ids.is_empty()).then_some(Self { is_package: kind == SplitKind::Dwp, ids })
    }

    /// The keys in the index.
    pub(super) fn keys(&self) -> impl Iterator<Item = Vec<u8>> {
        self.ids.iter().map(|id| key(*id))
    }

    /// The number in the place of how much debug information there is: less is better. A package is what debuggers look for first.
    pub(super) fn content_code(&self) -> u8 {
        u8::from(!self.is_package)
    }
}

/// What rows of units have in the place of a kind.
pub(super) fn kind() -> u8 {
    kind_code(FileKind::Debuginfo)
}

fn key(id: u64) -> Vec<u8> {
    [&[SPLIT_UNIT][..], &id.to_le_bytes()].concat()
}

/// A unit that a skeleton asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AskedUnit {
    /// Its id.
    pub(crate) id: u64,
    /// Where the compiler put its file; empty where that is no UTF-8.
    pub(crate) path: String,
}

/// The files of units.
#[derive(Debug, Default)]
pub(crate) struct SplitFiles {
    /// Each once, in the order of the units.
    pub(crate) places: Vec<Place>,
    /// Units whose files would be too many, or too large together.
    pub(crate) beyond: usize,
}

impl Trees {
    /// The files that have these units, of at most `bytes` together; `program` is what asks for them, where that lies in a tree. Blocks.
    pub(crate) fn split_files(&self, asked: &[AskedUnit], program: Option<&Place>, bytes: u64) -> SplitFiles {
        let (mut found, mut taken, mut left) = (SplitFiles::default(), HashSet::new(), bytes);
        let Some(ids) = self.ids.load_full() else { return found };
        let program = program.map(|place| format!("{}{WITHIN}{}", place.name(), place.member)).unwrap_or_default();
        for unit in asked {
            let holders = ids.find(&key(unit.id)).filter(|found| found.kind == kind() && self.is_given(found));
            let rank = |found: &crate::ids::Candidate<'_>| {
                let container = ids.bundle(found.bundle).map(|bundle| bundle.digest).unwrap_or_default();
                let member = read::Way::of(found.name).path;
                let path = if member.is_empty() { container.as_str() } else { member };
                let whole = format!("{container}{WITHIN}{member}");
                let near =
                    (shared(path.rsplit('/'), unit.path.rsplit('/')), shared(whole.split('/'), program.split('/')));
                (found.debug_info, Reverse(near), whole)
            };
            let Some(best) = holders.take(COMPARED).min_by_key(rank) else { continue };
            if taken.contains(best.sha256) {
                continue;
            }
            let Some(place) = self.place(&ids, &best) else { continue };
            match left.checked_sub(best.size).filter(|_| found.places.len() < FILES) {
                Some(rest) => {
                    left = rest;
                    taken.insert(*best.sha256);
                    found.places.push(place);
                }
                None => found.beyond = found.beyond.saturating_add(1),
            }
        }
        found
    }
}

/// How many names two paths share at the end from which they are given.
fn shared<'p>(one: impl Iterator<Item = &'p str>, other: impl Iterator<Item = &'p str>) -> usize {
    let is_name = |name: &&str| !matches!(*name, "" | ".");
    one.filter(is_name).zip(other.filter(is_name)).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_share_names_and_not_letters() {
        let endings = |one: &str, other: &str| shared(one.rsplit('/'), other.rsplit('/'));
        for (one, other, expected) in [
            ("/build/.libs/b.dwo", "/srv/tree/.libs/b.dwo", 2),
            ("/build/b.dwo", "/srv/tree/.libs/b.dwo", 1),
            ("/build/./x/b.dwo", "x/b.dwo", 2),
            ("ab.dwo", "b.dwo", 0),
            ("", "b.dwo", 0),
        ] {
            assert_eq!(endings(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn bytes_that_are_no_split_dwarf_have_no_units() {
        for bytes in [&b""[..], b"\x7fELF", b"text"] {
            assert!(Units::of(bytes).is_none());
        }
    }
}
