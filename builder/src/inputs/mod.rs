//! From paths to identified release files.

mod archive;
pub(crate) mod file;
mod identify;
mod loose;
mod spool;
mod walk;

use std::path::{Path, PathBuf};

pub(crate) use file::{Content, InputFile, ObjectFacts, PdbFacts, Tells};
pub(crate) use spool::Spool;

use symseal_artifact::Limits;

use crate::error::BuildError;
use crate::progress::{Progress, Tell};
use crate::report::{ArchiveReport, InputReport, Refused};
use crate::workers::{self, Budget};
use identify::reason;
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
    /// Where this build writes: what lies there is no input.
    pub(crate) output: Option<&'r Path>,
}

/// What one candidate gave.
#[derive(Debug, Default)]
pub(crate) struct Found {
    files: Vec<InputFile>,
    /// Files that were looked at, members of archives included.
    seen: u64,
    skipped: Vec<(&'static str, u64)>,
    refused: Vec<Refused>,
    archives: Vec<ArchiveReport>,
}

impl Found {
    fn skip(&mut self, reason: &'static str, times: u64) {
        if times > 0 {
            self.skipped.push((reason, times));
        }
    }

    fn refuse(&mut self, place: String, problem: &str) {
        self.refused.push(Refused { place, problem: problem.to_owned() });
    }
}

/// Finds and identifies the release files at or below `paths`.
pub(crate) fn gather(paths: &[PathBuf], reading: &Reading<'_>) -> Result<Gathered, BuildError> {
    let mut walked = walk::walk(paths, reading.output)?;
    // The largest first, so that no thread is left alone with it at the end.
    walked.candidates.sort_by(|a, b| (b.size, &a.path).cmp(&(a.size, &b.path)));
    let largest = walked.candidates.iter().map(|candidate| candidate.size).max().unwrap_or_default();
    let budget = Budget::for_largest(largest);
    let total = walked.candidates.len() as u64;
    let total_bytes = walked.candidates.iter().map(|candidate| candidate.size).fold(0, u64::saturating_add);
    let found = workers::run(&walked.candidates, reading.jobs, |candidate: &Candidate| {
        let found = loose::look(candidate, reading, &budget)?;
        (reading.tell)(&Progress::Looked { path: &candidate.path, bytes: candidate.size, total, total_bytes });
        Ok::<_, BuildError>(found)
    })?;
    let mut report = InputReport::default();
    report.skip(reason::LINK, walked.links);
    report.skip(reason::SPECIAL, walked.special);
    let mut files = Vec::new();
    for one in found {
        report.files += one.seen;
        for (reason, times) in one.skipped {
            report.skip(reason, times);
        }
        report.refused.extend(one.refused);
        report.archives.extend(one.archives);
        files.extend(one.files);
    }
    report.refused.sort();
    report.archives.sort();
    Ok(Gathered { files, report })
}
