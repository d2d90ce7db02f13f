//! Split files that no module takes: why not, and what that says of those that were taken.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use symseal_artifact::{SplitContents, escaped};
use symseal_bundle::FileRole;

use super::{Asked, SplitFiles, Suspect, and_more, is_package, object, units};
use crate::error::BuildError;
use crate::pairing::contradiction::Contradiction;
use crate::pairing::{Pairing, Part, is_named};
use crate::report::{Mismatch, NamedBy, Side, Superseded};

/// What the units of a file are, by id.
type Contents = BTreeMap<u64, SplitContents>;

/// Tells of each file that was not taken.
pub(super) fn tell<'f>(
    pairing: &mut Pairing<'f>,
    files: &SplitFiles<'_, 'f>,
    asked: &Asked<'f>,
) -> Result<(), BuildError> {
    let taken: BTreeSet<usize> = asked.taken.iter().map(|(_, file)| *file).collect();
    // Read once for all that a file stands for: a package stands for as many as a program has sources.
    let mut taken_contents: BTreeMap<usize, Contents> = BTreeMap::new();
    for (at, part) in files.files.iter().enumerate().filter(|(at, _)| !taken.contains(at)) {
        let holders = units(*part).iter().flat_map(|unit| files.holders(*unit));
        let instead: BTreeSet<usize> = holders.copied().filter(|at| taken.contains(at)).collect();
        if instead.is_empty() {
            pairing.loose.push((part.file, reason(at, *part, asked)));
            pairing.mismatches.extend(asked.suspects.iter().filter_map(|suspect| suspect.mismatch(*part)));
        } else {
            superseded(pairing, *part, &instead, files, &mut taken_contents)?;
        }
    }
    Ok(())
}

/// A file in whose place others are taken: a conflict where theirs are other units with its ids.
fn superseded<'f>(
    pairing: &mut Pairing<'f>,
    part: Part<'f>,
    instead: &BTreeSet<usize>,
    files: &SplitFiles<'_, 'f>,
    taken_contents: &mut BTreeMap<usize, Contents>,
) -> Result<(), BuildError> {
    let own = contents(part, files)?;
    let before = pairing.conflicts.len();
    for &at in instead {
        let Some(taken) = files.part(at) else { continue };
        let theirs = match taken_contents.entry(at) {
            Entry::Occupied(read) => read.into_mut(),
            Entry::Vacant(unread) => unread.insert(contents(taken, files)?),
        };
        if let Some((unit, found)) = other_unit(&own, theirs) {
            let id = format!("unit {unit:016x}");
            pairing.conflicts.push(found.conflict(id, FileRole::SplitDwarf, part, taken));
        }
    }
    let first = instead.first().and_then(|at| files.part(*at));
    if let Some(first) = first.filter(|_| pairing.conflicts.len() == before) {
        let rule = match (is_package(first), is_package(part)) {
            (true, false) => "split DWARF of the same unit; a package comes first",
            _ => {
                "split DWARF of the same unit; the file is taken that describes the unit's code, of several that whose path fits the unit's name, then the one nearest to the binary, then the first by name"
            }
        };
        let (place, by) = (part.file.place.clone(), first.file.place.clone());
        pairing.superseded.push(Superseded { place, debug_id: None, by, rule });
    }
    Ok(())
}

/// Why a file has no module.
fn reason(at: usize, part: Part<'_>, asked: &Asked<'_>) -> &'static str {
    let mut stripped = asked.without_skeletons.iter();
    if asked.stale.iter().any(|stale| stale.file == at) {
        "split DWARF of another build of a module's sources"
    } else if is_package(part) && stripped.any(|binary| is_named(part.file, &format!("{}.dwp", binary.name))) {
        "split DWARF whose binary was stripped of the units that ask for it"
    } else {
        "split DWARF that no module asks for"
    }
}

impl Suspect<'_> {
    /// A file that is called as one that the module lacks.
    fn mismatch(&self, part: Part<'_>) -> Option<Mismatch> {
        let is_its_package =
            is_package(part) && self.names.iter().any(|name| is_named(part.file, &format!("{name}.dwp")));
        let (unit, _) = self.lacking.iter().find(|(_, name)| is_its_package || is_named(part.file, name))?;
        // One line for each file: a package has as many units as a program has sources.
        let more = if is_its_package { self.lacking.len().saturating_sub(1) } else { 0 };
        Some(Mismatch {
            named_by: NamedBy::DwoName,
            binary: Side { place: self.described.file.place.clone(), debug_id: Some(self.id.clone()) },
            debug_file: Side { place: part.file.place.clone(), debug_id: None },
            expected: format!("unit {unit:016x}{}", and_more(more)),
            found: match units(part) {
                [] => "no unit".to_owned(),
                [found, rest @ ..] => format!("unit {found:016x}{}", and_more(rest.len())),
            },
        })
    }
}

fn contents(part: Part<'_>, files: &SplitFiles<'_, '_>) -> Result<Contents, BuildError> {
    let bytes = part.file.read(files.layout)?;
    Ok(object(&bytes, part)?.map(|object| object.split_contents()).unwrap_or_default())
}

/// The first unit that both files have and that is another one in each, and in what it differs.
fn other_unit(one: &Contents, other: &Contents) -> Option<(u64, Contradiction)> {
    one.iter().find_map(|(id, first)| {
        let second = other.get(id).filter(|second| *second != first)?;
        let text = |bytes: &[u8]| escaped(bytes).into_owned();
        let only = |of: &SplitContents, without: &SplitContents| {
            let only = of.functions.difference(&without.functions).next();
            only.map_or_else(|| "no other function".to_owned(), |name| format!("the function {}", text(name)))
        };
        let source = |of: &SplitContents| format!("what was made of {} in {:?}", text(&of.name), text(&of.comp_dir));
        let is_of_another = first.name != second.name || first.comp_dir != second.comp_dir;
        let (expected, found) = match is_of_another {
            true => (source(first), source(second)),
            false => (only(first, second), only(second, first)),
        };
        Some((*id, Contradiction { expected, found }))
    })
}
