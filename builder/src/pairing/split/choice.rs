//! Which of the files that hold a unit is taken for a module.

use std::cmp::Reverse;

use symseal_module::DebugId;

use super::misfits::Misfits;
use super::{SplitFiles, Stale, Suspect, is_package};
use crate::error::BuildError;
use crate::inputs::file::SplitAsked;
use crate::pairing::{Module, Part, is_named};

/// What is taken for a module, and what it lacks.
pub(super) struct Choice<'f> {
    /// The units for which there is a file, and which one.
    pub(super) taken: Vec<(u64, usize)>,
    /// How many units have none.
    pub(super) missing: usize,
    /// Files that would have them, were they of this build.
    pub(super) stale: Vec<Stale<'f>>,
    /// The module, where no file has some of its units' ids.
    pub(super) suspect: Option<Suspect<'f>>,
}

impl<'f> Choice<'f> {
    /// For the module with `id`, whose units are asked for in `described`.
    pub(super) fn of(
        id: &DebugId,
        module: &Module<'f>,
        described: Part<'f>,
        asked: &[SplitAsked],
        files: &SplitFiles<'_, 'f>,
    ) -> Result<Self, BuildError> {
        let chooser = Chooser::new(module, described, asked, files)?;
        let (mut taken, mut stale, mut lacking) = (Vec::new(), Vec::new(), Vec::new());
        for unit in asked {
            let holders = files.holders(unit.id);
            if let Some(file) = chooser.best(unit) {
                taken.push((unit.id, file));
            } else if holders.is_empty() {
                let name = unit.name.rsplit('/').next().unwrap_or(&unit.name);
                lacking.push((unit.id, name.to_owned()));
            } else {
                for &file in holders {
                    let first = chooser.misfits.first(unit.id, file);
                    Stale { id: id.clone(), described, file, unit: unit.id, first, units: 1 }.join(&mut stale);
                }
            }
        }
        let missing = asked.len().saturating_sub(taken.len());
        let binary = module.binary.map(|binary| binary.file.name.as_str());
        let suspect = (!lacking.is_empty()).then(|| {
            let names = std::iter::once(described.file.name.as_str()).chain(binary).collect();
            Suspect { id: id.clone(), described, names, lacking }
        });
        Ok(Self { taken, missing, stale, suspect })
    }
}

/// Chooses for one module.
struct Chooser<'c, 'f> {
    described: Part<'f>,
    files: &'c SplitFiles<'c, 'f>,
    /// What a package of the module is called.
    package_names: Vec<String>,
    misfits: Misfits,
}

impl<'c, 'f> Chooser<'c, 'f> {
    fn new(
        module: &Module<'f>,
        described: Part<'f>,
        asked: &[SplitAsked],
        files: &'c SplitFiles<'c, 'f>,
    ) -> Result<Self, BuildError> {
        let parts = module.binary.iter().chain([&described]);
        let package_names = parts.map(|part| format!("{}.dwp", part.file.name)).collect();
        let mut chooser = Self { described, files, package_names, misfits: Misfits::default() };
        chooser.compare(asked.iter().flat_map(|unit| chooser.candidates(unit)).collect())?;
        // Where what comes first is of another build, one of the others may be right.
        let without = |unit: &&SplitAsked| chooser.candidates(unit).iter().all(|at| chooser.is_stale(unit, *at));
        let others = asked.iter().filter(without).flat_map(|unit| files.holders(unit.id));
        chooser.compare(others.copied().collect())?;
        Ok(chooser)
    }

    fn compare(&mut self, files: Vec<usize>) -> Result<(), BuildError> {
        self.misfits.compare(self.described, files, self.files)
    }

    /// The best of the candidates, or else of all files that hold the unit; none where all are of another build.
    fn best(&self, unit: &SplitAsked) -> Option<usize> {
        let best = |of: &[usize]| {
            of.iter().copied().filter(|at| !self.is_stale(unit, *at)).min_by_key(|at| self.rank(unit, *at))
        };
        best(&self.candidates(unit)).or_else(|| best(self.files.holders(unit.id)))
    }

    /// Of the files that hold a unit those of which one is taken: a package is before single files, as it is what debuggers look for, and of
    /// packages those that are called after the module's own files.
    fn candidates(&self, unit: &SplitAsked) -> Vec<usize> {
        let holders = self.files.holders(unit.id);
        let parts = holders.iter().filter_map(|at| Some((*at, self.files.part(*at)?)));
        let packages: Vec<(usize, Part<'_>)> = parts.filter(|(_, part)| is_package(*part)).collect();
        let is_own = |part: Part<'_>| self.package_names.iter().any(|name| is_named(part.file, name));
        let own: Vec<usize> = packages.iter().filter(|(_, part)| is_own(*part)).map(|(at, _)| *at).collect();
        let packages = packages.into_iter().map(|(at, _)| at).collect();
        [own, packages].into_iter().find(|found| !found.is_empty()).unwrap_or_else(|| holders.to_vec())
    }

    fn is_stale(&self, unit: &SplitAsked, file: usize) -> bool {
        self.misfits.contradicts(unit.id, file)
    }

    /// What comes first is least: what fits the code, then whose path fits the unit's name, then what is near.
    fn rank(&self, unit: &SplitAsked, file: usize) -> impl Ord + use<> {
        let part = self.files.part(file)?;
        let alike = shared_ending(&part.file.place, &unit.path());
        let near = shared_beginning(&part.file.place, &self.described.file.place);
        let misfits = self.misfits.rank(unit.id, file);
        Some((misfits, Reverse(alike), Reverse(near), part.file.name.clone(), part.file.digest()))
    }
}

/// How many names two paths share at their ends.
fn shared_ending(one: &str, other: &str) -> usize {
    let names = |path| str::rsplit(path, '/').filter(|name| !matches!(*name, "" | "."));
    names(one).zip(names(other)).take_while(|(one, other)| one == other).count()
}

/// How many names two paths share at their beginnings.
fn shared_beginning(one: &str, other: &str) -> usize {
    one.split('/').zip(other.split('/')).take_while(|(one, other)| one == other).count()
}
