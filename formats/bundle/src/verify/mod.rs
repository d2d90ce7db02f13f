//! Verification of a bundle, offline: every digest, every page tree, every id and derivation, and the seal.
//!
//! Nothing of the bundle is believed: the digests come from the image index, that index's from the seal, and the seal's
//! key and log from the trust directory alone. Checks go on after a failure wherever that makes sense.

mod chain;
mod contents;
mod extra;
mod manifests;

use std::path::PathBuf;

pub use chain::{Held, Link, chain};
use serde::Serialize;
use symseal_module::DebugId;
use symseal_seal::{CATALOGUE, Checkpoint, LogIdentity, ModuleList, SubjectDigests, checks::id, examine_seals};
pub use symseal_seal::{Check, CheckStatus, ConsistencyProof, Expectation, Parts, SealFacts, Seen, Trust, UtcSeconds};

use crate::bundle::Bundle;
use crate::digest::Digest;
use crate::module_tree::ModuleTree;
use crate::seals::FoundSeals;

/// What is asked of a bundle.
pub struct Request<'a> {
    /// Whom to trust.
    pub trust: &'a Trust,
    /// The release's name; without one, the seal must not contradict the symbol index, and the check is reported as not run.
    pub expect_name: Option<&'a str>,
    /// Its version, likewise.
    pub expect_version: Option<&'a str>,
    /// Which parts of the seal to check. Neither is the same as both.
    pub parts: Parts,
    /// The time at which validity is judged.
    pub at: UtcSeconds,
    /// Where that time is from.
    pub time_source: TimeSource,
    /// Seals from elsewhere, instead of the bundle's own; none: its own.
    pub signatures: &'a [Vec<u8>],
    /// The files that they were read from, which may lie in a pulled directory.
    pub signature_files: &'a [PathBuf],
    /// What was seen before; `None`: what needs a memory is not checked.
    pub seen: Option<&'a Seen>,
    /// Proofs between checkpoints seen before and the seal's.
    pub consistency: &'a [ConsistencyProof],
    /// The JSON of tile fragments, each of which stands for checkpoint and audit path of the seal whose entry it is for.
    pub fragments: &'a [Vec<u8>],
    /// Reads the debug id out of a binary or debug file (the object formats are another room's).
    pub identify: &'a (dyn Fn(&[u8]) -> Vec<DebugId> + Sync),
}

/// Where the time of a verification is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeSource {
    /// This machine's clock.
    Clock,
    /// The caller's word (`--at`).
    Asked,
}

/// The time at which validity was judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct JudgedAt {
    /// The time.
    pub at: UtcSeconds,
    /// Where it is from.
    pub source: TimeSource,
}

/// A check that was not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotChecked {
    /// Its id.
    pub id: &'static str,
    /// Why not.
    pub why: String,
}

/// Whether the bundle may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every check was run and passed.
    Verified,
    /// The part that was asked for passed; the rest was not looked at.
    Partial,
    /// At least one check failed.
    Refused,
}

impl Verdict {
    /// The stable text.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Partial => "partial",
            Self::Refused => "refused",
        }
    }
}

/// Why tables were not made again.
const NOT_REDERIVED: &str = "not asked for (--rederive)";

/// Whether a check is about a kit or a frame: a bundle by itself has none.
fn is_of_another_object(check: &str) -> bool {
    [id::KIT_SEAL, id::KIT_FILES, id::KIT_LOG, id::FRAME_PROOF].contains(&check)
}

/// The outcome of [`verify`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether the bundle may be used.
    pub verdict: Verdict,
    /// The bundle's digest as recomputed; none for a pulled directory, whose image index is not there.
    pub bundle: Option<Digest>,
    /// The digest of the symbol index.
    pub symbol_index: Option<Digest>,
    /// Distinct files that were hashed.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Every check, content first, then the seal's in the order of the catalogue.
    pub checks: Vec<Check>,
    /// Those of them that were not run, and why.
    pub not_checked: Vec<NotChecked>,
    /// What the seal says: signer, log, release. Worth as much as the checks.
    pub seal: SealFacts,
    /// The time at which validity was judged; none where it did not come to that.
    pub time: Option<JudgedAt>,
    /// The version of the policy.
    pub policy_version: Option<u64>,
    /// What ends soon: for a person to act on.
    pub warnings: Vec<String>,
    /// Whether what was seen is remembered now, or why not.
    pub memory: String,
    /// The checkpoints that were verified, to be remembered.
    #[serde(skip)]
    pub checkpoints: Vec<(LogIdentity, Checkpoint)>,
}

impl Report {
    /// The report where verification could not even begin.
    pub fn refused_before_start(check: Check) -> Self {
        let mut report = Self {
            verdict: Verdict::Refused,
            bundle: None,
            symbol_index: None,
            files: 0,
            bytes: 0,
            checks: vec![check],
            not_checked: Vec::new(),
            seal: SealFacts::default(),
            time: None,
            policy_version: None,
            warnings: Vec::new(),
            memory: "nothing was verified".to_owned(),
            checkpoints: Vec::new(),
        };
        report.complete("verification did not come to it");
        report
    }

    /// Adds every check of a bundle that was not run, and lists those that were not: no question is left out without a word.
    fn complete(&mut self, why: &str) {
        for info in CATALOGUE.iter().filter(|info| !is_of_another_object(info.id)) {
            if !self.checks.iter().any(|check| check.id == info.id) {
                let why = if info.id == id::TABLE_REDERIVED { NOT_REDERIVED } else { why };
                self.checks.push(Check::skipped(info.id, why));
            }
        }
        self.conclude();
    }

    /// Puts checks in the place of those of this id.
    pub fn replace(&mut self, id: &str, checks: Vec<Check>) {
        let place = self.checks.iter().position(|check| check.id == id).unwrap_or(self.checks.len());
        self.checks.retain(|check| check.id != id);
        self.checks.splice(place..place, checks);
        self.conclude();
    }

    /// Puts checks of what the bundle came in before its own.
    pub fn prepend(&mut self, checks: impl IntoIterator<Item = Check>) {
        self.checks.splice(0..0, checks);
        self.conclude();
    }

    /// What follows from the checks: a refusal, and the list of those that were not run.
    fn conclude(&mut self) {
        if self.checks.iter().any(Check::is_failed) {
            self.verdict = Verdict::Refused;
        }
        let skipped = self.checks.iter().filter(|check| check.status == CheckStatus::Skipped);
        self.not_checked = skipped.map(|check| NotChecked { id: check.id, why: check.detail.clone() }).collect();
    }

    /// The first check that failed.
    pub fn first_failure(&self) -> Option<&Check> {
        self.checks.iter().find(|check| check.is_failed())
    }
}

/// Verifies everything.
pub fn verify(bundle: &Bundle, request: &Request<'_>) -> Report {
    let mut contents = verify_contents(bundle, request.identify);
    let parts = if request.parts.dsse || request.parts.rekor { request.parts } else { Parts::default() };
    let index = bundle.index();
    let expectation = Expectation {
        name: request.expect_name,
        version: request.expect_version,
        claimed_name: Some(&index.name),
        claimed_version: Some(&index.version),
        parts,
        seen: request.seen,
        consistency: request.consistency,
        fragments: request.fragments,
    };
    let mut report = Report {
        verdict: Verdict::Refused,
        bundle: bundle.digest(),
        symbol_index: Some(bundle.index_digest()),
        files: contents.files,
        bytes: contents.bytes,
        checks: std::mem::take(&mut contents.checks),
        not_checked: Vec::new(),
        seal: SealFacts::default(),
        time: Some(JudgedAt { at: request.at, source: request.time_source }),
        policy_version: Some(request.trust.policy.version),
        warnings: request.trust.warnings(request.at),
        memory: "no state directory was given".to_owned(),
        checkpoints: Vec::new(),
    };
    report.checks.push(extra::check(bundle, request.signature_files));
    report.checks.push(Check::skipped(id::TABLE_REDERIVED, NOT_REDERIVED));
    seal(bundle, request, &expectation, &mut report);
    report.verdict = if parts.dsse && parts.rekor { Verdict::Verified } else { Verdict::Partial };
    report.complete("the bundle has no seal that can be read");
    report
}

/// What [`verify_contents`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The content checks of the catalogue. One that failed stands once for each object (up to a bound).
    pub checks: Vec<Check>,
    /// Distinct files that were hashed.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Contents {
    /// Whether no check failed.
    pub fn holds(&self) -> bool {
        !self.checks.iter().any(Check::is_failed)
    }
}

/// Verifies that the bundle's bytes are what its digest says, without asking who says so.
pub fn verify_contents(bundle: &Bundle, identify: &(dyn Fn(&[u8]) -> Vec<DebugId> + Sync)) -> Contents {
    let mut findings = Findings::default();
    // Opening the bundle compared both digests, and read the index by its schema.
    match bundle.digest() {
        Some(digest) => findings.checks.push(Check::passed(id::INDEX_DIGEST, digest.to_string())),
        None => {
            let why = "a pulled directory has no image index; its digest is reported as signed";
            findings.checks.push(Check::skipped(id::INDEX_DIGEST, why));
        }
    }
    let schema = format!("{}, {} modules", bundle.index().schema, bundle.index().statistics.modules);
    findings.checks.push(Check::passed(id::INDEX_SCHEMA, schema));
    manifests::check(bundle, &mut findings);
    let (files, bytes) = contents::check(bundle, identify, &mut findings);
    Contents { checks: findings.checks, files, bytes }
}

fn seal(bundle: &Bundle, request: &Request<'_>, expectation: &Expectation<'_>, report: &mut Report) {
    let given = || FoundSeals { seals: request.signatures.to_vec(), passed_over: 0 };
    let found = if request.signatures.is_empty() { bundle.find_seals() } else { Ok(given()) };
    let FoundSeals { seals, passed_over } = match found {
        Ok(found) if found.seals.is_empty() => {
            report.checks.push(
                Check::failed(id::SEAL_PRESENT, "a seal that refers to the bundle", "none")
                    .with_detail("seal it with `symseal bundle seal`, or give the seal's file with --signature"),
            );
            return;
        }
        Ok(found) => found,
        Err(error) => {
            report.checks.push(Check::refused_by(id::SEAL_PRESENT, "a seal that can be read", &error));
            return;
        }
    };
    let present = Check::passed(id::SEAL_PRESENT, seals.len().to_string());
    report.checks.push(match passed_over {
        0 => present,
        more => present.with_detail(format!(
            "{more} more referrers of this bundle call themselves seals and were not looked at; give a seal's file with --signature"
        )),
    });
    let subjects = subject_digests(bundle.digest().as_ref(), bundle.index_bytes());
    // Several seals are normal (keys are rotated, and a policy may ask for several), and so is junk beside them.
    let examined = examine_seals(&seals, &subjects, request.trust, expectation, request.at);
    report.checks.extend(examined.checks);
    report.seal = examined.facts;
    report.checkpoints = examined.checkpoints;
}

/// What a seal of a bundle must be about: its digest, where it is at hand, and the bytes of its `symbol_index.json`.
pub fn subject_digests(bundle: Option<&Digest>, symbol_index: &[u8]) -> SubjectDigests {
    let tree = ModuleTree::of(symbol_index).ok();
    SubjectDigests {
        bundle: bundle.map(|digest| *digest.as_bytes()),
        symbol_index: Some(*Digest::of(symbol_index).as_bytes()),
        modules_root: tree.as_ref().map(|tree| tree.root().0),
        modules: tree.as_ref().map(|tree| ModuleList::of(tree.ids())),
    }
}

/// At most so many failures of one check are listed; a damaged disk would fill pages with them.
const MAX_FAILURES_LISTED: usize = 20;

/// Checks in the making: failures are listed one by one, what passed is counted.
#[derive(Default)]
pub(crate) struct Findings {
    checks: Vec<Check>,
}

impl Findings {
    /// Notes one check over many objects: its failures, or that `passed` objects passed.
    pub(crate) fn conclude(&mut self, id: &'static str, failures: Vec<Check>, passed: String) {
        if failures.is_empty() {
            self.checks.push(Check::passed(id, passed));
            return;
        }
        let more = failures.len().saturating_sub(MAX_FAILURES_LISTED);
        self.checks.extend(failures.into_iter().take(MAX_FAILURES_LISTED));
        if more > 0 {
            self.checks.push(Check::failed(id, "no failure", format!("{more} more like these")));
        }
    }

    pub(crate) fn skip(&mut self, id: &'static str, why: &str) {
        self.checks.push(Check::skipped(id, why));
    }
}
