//! What was looked at.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::inputs::reason;

/// What was looked at and what of it was left out. A file is taken, a double, or skipped; links, and archives that were not looked
/// into, are skipped without being files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct InputReport {
    /// Files that were looked at, members of archives included.
    pub files: u64,
    /// Files that are part of a module. (Some of them may be stored under several titles, or not at all.)
    pub taken: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Files that are byte for byte one that was taken, under another name.
    pub doubles: u64,
    /// Files, links and members that are no part of the bundle: reason → how many.
    pub skipped: BTreeMap<String, u64>,
    /// Of those that look like a part of a release and are none, the first places: object files, files without an id, members of dSYM
    /// bundles without one.
    pub skipped_places: SkippedPlaces,
    /// Files and directories that were left out because the caller said so: pattern → how many. They are not looked at.
    pub excluded: BTreeMap<String, u64>,
    /// Files that are refused: dangerous ones, and damaged PE and PDB files.
    pub refused: Vec<Refused>,
    /// The archives, packages and images among the inputs, by place.
    pub archives: Vec<ArchiveReport>,
}

/// Reason → the first [`SkippedPlaces::MOST`] places, by name, of files that are passed over for it. How many there are is counted apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct SkippedPlaces(BTreeMap<String, BTreeSet<String>>);

impl SkippedPlaces {
    /// How many places are kept of one reason: a directory of a build may have a hundred thousand object files.
    pub const MOST: usize = 100;

    /// The places of one reason, by name: paths, or `archive!/member`.
    pub fn of(&self, reason: &str) -> impl Iterator<Item = &str> {
        self.0.get(reason).into_iter().flatten().map(String::as_str)
    }

    /// Which ones are kept does not depend on the order in which they come.
    pub(crate) fn add(&mut self, reason: &str, place: String) {
        let places = self.0.entry(reason.to_owned()).or_default();
        places.insert(place);
        if places.len() > Self::MOST {
            places.pop_last();
        }
    }

    pub(crate) fn absorb(&mut self, others: Self) {
        for (reason, places) in others.0 {
            places.into_iter().for_each(|place| self.add(&reason, place));
        }
    }
}

/// A file that a bundle never holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Refused {
    /// The file: a path, or `archive!/member`.
    pub place: String,
    /// Why.
    pub problem: String,
}

/// An archive, and everything in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ArchiveReport {
    /// Its path.
    pub place: String,
    /// Regular files in it and in the archives within.
    pub files: u64,
    /// Archives that were opened, itself included.
    pub archives: u64,
    /// Bytes that unpacking gave.
    pub unpacked_bytes: u64,
    /// Release files in it.
    pub taken: u64,
    /// Platforms of the container images in it.
    pub images: Vec<String>,
    /// What was not looked into.
    pub passed_over: Vec<PassedOver>,
    /// How much more was not looked into.
    pub passed_over_more: u64,
    /// How many of both are static libraries, which hold no modules.
    pub static_libraries: u64,
}

impl ArchiveReport {
    /// How many archives in it, or members, were not looked into and may hold modules.
    pub fn not_looked_into(&self) -> u64 {
        (self.passed_over.len() as u64).saturating_add(self.passed_over_more).saturating_sub(self.static_libraries)
    }
}

/// Something in an archive that was not looked into.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PassedOver {
    /// `archive!/member`.
    pub place: String,
    /// Why.
    pub reason: String,
}

impl InputReport {
    /// Files that begin like release files and are none that can be read.
    pub fn damaged(&self) -> u64 {
        self.skipped.get(reason::REFUSED).copied().unwrap_or_default()
    }

    /// Archives and members of archives that were not looked into, and may hold modules.
    pub fn not_looked_into(&self) -> u64 {
        self.archives.iter().map(ArchiveReport::not_looked_into).fold(0, u64::saturating_add)
    }

    pub(crate) fn exclude(&mut self, glob: &str) {
        *self.excluded.entry(glob.to_owned()).or_default() += 1;
    }

    pub(crate) fn skip(&mut self, reason: &str, times: u64) {
        if times > 0 {
            *self.skipped.entry(reason.to_owned()).or_default() += times;
        }
    }
}
