//! From paths to identified release files.

mod archive;
mod exclude;
pub(crate) mod file;
mod file_bytes;
mod identify;
mod loose;
mod names;
mod spool;
mod walk;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

pub use exclude::{Exclude, ParseExcludeError};
pub(crate) use file::{Content, InputFile, ObjectFacts, PdbFacts, Tells};
pub(crate) use file_bytes::FileBytes;
pub(crate) use spool::Spool;

use symseal_artifact::{ArtifactError, Limits, MAX_PASSED_OVER};
use symseal_bundle::pages::Measured;
use symseal_bundle::workers::{self, Budget};

use crate::error::{BuildError, place_of};
use crate::progress::{Progress, Tell};
use crate::report::{ArchiveReport, InputReport, PassedOver, Refused, SkippedPlaces};
pub(crate) use identify::reason;
use walk::Candidate;

/// Everything that was found in the inputs.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// In no particular order.
    pub(crate) files: Vec<InputFile>,
    pub(crate) report: InputReport,
}

/// How inputs are read.
pub(crate) struct Reading<'r> {
    pub(crate) jobs: usize,
    pub(crate) spool: &'r Spool,
    pub(crate) tell: &'r Tell<'r>,
    pub(crate) limits: &'r Limits,
    pub(crate) exclude: &'r Exclude,
    pub(crate) budget: &'r Budget,
    /// Where this build writes: what lies there is no input.
    pub(crate) output: Option<&'r Path>,
}

/// What one candidate gave.
#[derive(Debug, Default)]
pub(crate) struct Found {
    files: Vec<InputFile>,
    /// Files that were looked at, members of archives included.
    seen: u64,
    /// Hard links in archives that gave a file a further name.
    linked: u64,
    skipped: Vec<(&'static str, u64)>,
    /// Of those that begin like release files, the first places by reason.
    skipped_places: SkippedPlaces,
    refused: Vec<Refused>,
    archives: Vec<ArchiveReport>,
    /// Packages and programs of a kind that is not read, within an archive: the first [`MAX_PASSED_OVER`] of them, how many more, and how many of all are programs.
    unread: Vec<PassedOver>,
    unread_more: u64,
    unread_programs: u64,
    /// Patterns by which files were left out, once for each file.
    excluded: Vec<String>,
}

impl Found {
    /// What was found in something that belongs to it.
    fn absorb(&mut self, other: Self) {
        self.files.extend(other.files);
        self.seen += other.seen;
        self.linked += other.linked;
        self.skipped.extend(other.skipped);
        self.skipped_places.absorb(other.skipped_places);
        self.refused.extend(other.refused);
        self.archives.extend(other.archives);
        self.unread.extend(other.unread);
        self.unread_more += other.unread_more;
        self.unread_programs += other.unread_programs;
        self.excluded.extend(other.excluded);
    }

    fn skip(&mut self, reason: &'static str, times: u64) {
        if times > 0 {
            self.skipped.push((reason, times));
        }
    }

    /// One that begins like a release file, and is none for this reason.
    fn skip_one(&mut self, reason: &'static str, place: String) {
        self.skip(reason, 1);
        if reason != reason::NO_RELEASE_FILE {
            self.skipped_places.add(reason, place);
        }
    }

    /// An archive may have a million of them.
    fn leave_unread(&mut self, place: String, reason: String) {
        match self.unread.len() < MAX_PASSED_OVER {
            true => self.unread.push(PassedOver { place, reason }),
            false => self.unread_more += 1,
        }
    }

    fn refuse(&mut self, place: String, problem: &str) {
        self.refused.push(Refused { place, problem: problem.to_owned() });
    }
}

/// Finds and identifies the release files at or below `paths`.
pub(crate) fn gather(paths: &[PathBuf], reading: &Reading<'_>) -> Result<Gathered, BuildError> {
    let mut walked = walk::walk(paths, reading.output, reading.exclude)?;
    // The largest first, so that no thread is left alone with it at the end.
    walked.candidates.sort_by(|a, b| (b.size, &a.path).cmp(&(a.size, &b.path)));
    let total = walked.candidates.len() as u64;
    let total_bytes = walked.candidates.iter().map(|candidate| candidate.size).fold(0, u64::saturating_add);
    // Files that are damaged, so that one build tells them all.
    let damaged = Mutex::new(BTreeMap::new());
    let found = workers::run(&walked.candidates, reading.jobs, |candidate: &Candidate| {
        let found = loose::look(candidate, reading).or_else(|error| match error {
            BuildError::Artifact { place, source } => {
                damaged.lock().unwrap_or_else(PoisonError::into_inner).insert(place, source);
                Ok(Found::default())
            }
            other => Err(other),
        })?;
        (reading.tell)(&Progress::Looked { path: &candidate.path, bytes: candidate.size, total, total_bytes });
        Ok::<_, BuildError>(found)
    })?;
    refuse_damaged(damaged.into_inner().unwrap_or_else(PoisonError::into_inner))?;
    // Also those that left out nothing: a pattern with a slip in it is seen by that.
    let excluded = reading.exclude.globs().iter().map(|glob| (glob.clone(), 0)).collect();
    let mut report = InputReport { excluded, ..InputReport::default() };
    walked.excluded.iter().for_each(|glob| report.exclude(glob));
    report.skip(reason::LINK, walked.links);
    report.skip(reason::SPECIAL, walked.special);
    let mut files = Vec::new();
    for one in found {
        report.files += one.seen;
        for (reason, times) in one.skipped {
            report.skip(reason, times);
        }
        report.skipped_places.absorb(one.skipped_places);
        one.excluded.iter().for_each(|glob| report.exclude(glob));
        report.refused.extend(one.refused);
        report.archives.extend(one.archives);
        files.extend(one.files);
    }
    let links = walked.link_names.iter().map(|(path, name)| (place_of(path), name.clone()));
    names::give(&mut files, links);
    report.refused.sort();
    report.archives.sort();
    Ok(Gathered { files, report })
}

/// The error for release files that are damaged, if there are any.
fn refuse_damaged(mut damaged: BTreeMap<String, ArtifactError>) -> Result<(), BuildError> {
    let Some((place, source)) = damaged.pop_first() else { return Ok(()) };
    let first = BuildError::Artifact { place, source };
    match damaged.len() {
        0 => Err(first),
        _ => Err(BuildError::Damaged { first: Box::new(first), others: damaged.into_keys().collect() }),
    }
}

/// Every file at or below `paths`, as it lies there: archives are not looked into.
pub(crate) fn files_below(paths: &[PathBuf]) -> Result<Vec<PathBuf>, BuildError> {
    Ok(walk::walk(paths, None, &Exclude::default())?
        .candidates
        .into_iter()
        .filter(|found| !found.is_layout)
        .map(|found| found.path)
        .collect())
}

/// The file that was at `path` once, under the place and name that it had; `None` where it is no release file.
pub(crate) fn identified(
    place: &str,
    path: &Path,
    name: &str,
    bytes: &[u8],
    measured: Measured,
) -> Result<Option<InputFile>, BuildError> {
    let loose = || file::Bytes::Loose(path.to_owned());
    Ok(match loose::judge(bytes, false, place)? {
        loose::Judged::Taken(content) => {
            let dsym = file::dsym_place(place);
            Some(InputFile::new(place.to_owned(), loose(), name.to_owned(), measured, content, dsym))
        }
        _ => None,
    })
}
