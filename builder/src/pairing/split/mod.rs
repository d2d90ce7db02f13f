//! Split DWARF: `.dwo` files and `.dwp` packages, by the ids of the units that the modules' skeletons ask for. (DWARF 5,
//! section 7.3.2; GNU's `DW_AT_GNU_dwo_id` before)

mod choice;
mod left;
mod misfits;

use std::collections::{BTreeMap, BTreeSet};

use symseal_artifact::{ObjectFile, ReleaseFile};
use symseal_bundle::LayoutDir;
use symseal_module::DebugId;

use super::{Module, Paired, Pairing, Part};
use crate::error::BuildError;
use crate::inputs::InputFile;
use crate::report::{Mismatch, NamedBy, PairedBy, Side};
use choice::Choice;

/// The split files of a build.
struct SplitFiles<'p, 'f> {
    files: &'p [Part<'f>],
    /// Which of them hold a unit, by its id.
    by_unit: BTreeMap<u64, Vec<usize>>,
    layout: Option<&'p LayoutDir>,
}

/// A module whose split DWARF is not all there.
struct Suspect<'f> {
    id: DebugId,
    /// What asks for it.
    described: Part<'f>,
    /// What a package of it may be called after.
    names: Vec<&'f str>,
    /// The units, and what their files are called.
    lacking: Vec<(u64, String)>,
}

/// A file that has units of a module's ids, and of another build of their sources.
struct Stale<'f> {
    id: DebugId,
    described: Part<'f>,
    file: usize,
    /// The first of the units, and in what it contradicts the module's code.
    unit: u64,
    first: Option<(u64, u64)>,
    /// How many units.
    units: usize,
}

/// What the modules have found, and what they lack.
#[derive(Default)]
struct Asked<'f> {
    /// Binaries in which nothing asks for split DWARF.
    without_skeletons: Vec<&'f InputFile>,
    suspects: Vec<Suspect<'f>>,
    stale: Vec<Stale<'f>>,
    /// Which file was taken for which unit.
    taken: BTreeSet<(u64, usize)>,
}

/// Gives each module the split files that hold a unit which it asks for. A file may belong to several modules. Two files that give
/// different units under one id, one of which nothing takes, are an error that names both. A file whose
/// units contradict the code of the modules that ask for them is a mismatch.
pub(super) fn join<'f>(
    pairing: &mut Pairing<'f>,
    files: &[Part<'f>],
    layout: Option<&LayoutDir>,
) -> Result<(), BuildError> {
    let files = SplitFiles::new(files, layout);
    let mut asked = Asked::default();
    for (id, module) in &mut pairing.modules {
        let Some(described) = module.described() else { continue };
        let units = described.object().map(|object| object.split_asked.as_slice()).unwrap_or_default();
        if units.is_empty() {
            asked.without_skeletons.extend(module.binary.map(|binary| binary.file));
            continue;
        }
        let choice = Choice::of(id, module, described, units, &files)?;
        asked.add(module, units.len(), choice, &files);
    }
    // What is right for one module is not called wrong for another.
    asked.stale.retain(|stale| !asked.taken.contains(&(stale.unit, stale.file)));
    for stale in &asked.stale {
        if let Some(part) = files.part(stale.file) {
            pairing.mismatches.push(stale.mismatch(part));
        }
    }
    left::tell(pairing, &files, &asked)
}

impl<'f> Asked<'f> {
    /// Gives a module the files that were chosen for it.
    fn add(&mut self, module: &mut Module<'f>, units: usize, choice: Choice<'f>, files: &SplitFiles<'_, 'f>) {
        if choice.missing > 0 {
            module.missing.push(format!("split DWARF of {} of {units} units", choice.missing));
        }
        let taken: BTreeSet<usize> = choice.taken.iter().map(|(_, file)| *file).collect();
        let taken = taken.into_iter().filter_map(|file| files.part(file));
        module.split.extend(taken.map(|part| Paired { part, by: PairedBy::DwoId }));
        module.split.sort_by_key(|paired| (paired.part.file.name.clone(), paired.part.file.digest()));
        self.taken.extend(choice.taken);
        self.stale.extend(choice.stale);
        self.suspects.extend(choice.suspect);
    }
}

impl<'p, 'f> SplitFiles<'p, 'f> {
    fn new(files: &'p [Part<'f>], layout: Option<&'p LayoutDir>) -> Self {
        let mut by_unit: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (at, part) in files.iter().enumerate() {
            for unit in units(*part) {
                by_unit.entry(*unit).or_default().push(at);
            }
        }
        Self { files, by_unit, layout }
    }

    fn part(&self, file: usize) -> Option<Part<'f>> {
        self.files.get(file).copied()
    }

    /// The files that hold a unit.
    fn holders(&self, unit: u64) -> &[usize] {
        self.by_unit.get(&unit).map(Vec::as_slice).unwrap_or_default()
    }
}

impl Stale<'_> {
    /// Adds it to those that are known, where the file is one for the module already as a unit more.
    fn join(self, known: &mut Vec<Self>) {
        match known.iter_mut().find(|known| known.file == self.file && known.id == self.id) {
            Some(known) => known.units += self.units,
            None => known.push(self),
        }
    }

    fn mismatch(&self, part: Part<'_>) -> Mismatch {
        let others = and_more(self.units.saturating_sub(1));
        let function =
            self.first.map_or_else(String::new, |(start, end)| format!(" with a function at {start:#x}..{end:#x}"));
        Mismatch {
            named_by: NamedBy::DwoId,
            binary: Side { place: self.described.file.place.clone(), debug_id: Some(self.id.clone()) },
            debug_file: Side { place: part.file.place.clone(), debug_id: None },
            expected: format!("unit {:016x}{others} as it was linked", self.unit),
            found: format!("split DWARF of another build of that source{function}"),
        }
    }
}

/// ` and 3 more`; nothing of none.
fn and_more(units: usize) -> String {
    if units == 0 { String::new() } else { format!(" and {units} more") }
}

fn object<'d>(bytes: &'d [u8], part: Part<'_>) -> Result<Option<ObjectFile<'d>>, BuildError> {
    let parsed =
        ReleaseFile::parse(bytes).map_err(|source| BuildError::Artifact { place: part.file.place.clone(), source })?;
    Ok(match parsed {
        ReleaseFile::Object(object) => Some(object),
        _ => None,
    })
}

fn units<'f>(part: Part<'f>) -> &'f [u64] {
    part.object().and_then(|object| object.split.as_ref()).map(|split| split.units.as_slice()).unwrap_or_default()
}

fn is_package(part: Part<'_>) -> bool {
    part.object().and_then(|object| object.split.as_ref()).is_some_and(|split| split.is_package)
}
