//! The evidence card: what was found about a trace, and what it was computed from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use symseal_bundle::Digest;
use symseal_seal::{Check, SealFacts};

use crate::coverage::Coverage;
use crate::gate::GateResult;
use crate::report::ReplayReport;

/// The value of [`Evidence::schema`].
pub const EVIDENCE_SCHEMA: &str = "symseal.evidence.v1";

/// Name and version of this verifier.
pub const VERIFIER_VERSION: &str = concat!("symseal ", env!("CARGO_PKG_VERSION"));

/// `evidence.json`. `docs/formats/evidence.md` and its schema describe it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// [`EVIDENCE_SCHEMA`].
    pub schema: String,
    /// Name and version of the program that computed this.
    pub verifier_version: String,
    /// What was looked at.
    pub trace: TraceEvidence,
    /// What the names come from.
    pub bundle: Option<BundleEvidence>,
    /// What the seal rests on, check by check. Null where no seal was looked at.
    pub seal: Option<SealEvidence>,
    /// How many frames have a name, and how many names are proved.
    pub coverage: Coverage,
    /// Whether the same trace gives the same answer under other conditions.
    pub replay: Option<ReplayReport>,
    /// What the gate says of all this.
    pub gate: Option<GateResult>,
    /// Milliseconds by step.
    pub timings_ms: BTreeMap<String, u64>,
    /// Where this card was written; null where it was only printed.
    pub path: Option<String>,
}

/// The trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEvidence {
    /// Its id.
    pub trace_id: String,
    /// The digest in its `trace.end`.
    pub digest: String,
    /// When it was captured (RFC 3339, UTC).
    pub captured_at: String,
    /// How: `ptrace`.
    pub method: String,
    /// Stacks in it.
    pub samples: u64,
    /// Threads that could not be captured.
    pub lost: u64,
    /// The longest time that a thread was stopped, in nanoseconds.
    pub longest_stop_ns: u64,
}

/// The bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleEvidence {
    /// Its digest: recomputed from its image index, or (`digest_is_signed`) as the seal says it.
    pub digest: Option<Digest>,
    /// True where the digest is only what the seal says, because the image index is not at hand.
    pub digest_is_signed: bool,
    /// Digest of its `symbol_index.json`.
    pub index_digest: Digest,
    /// The release's name.
    pub name: String,
    /// The release's version.
    pub version: String,
    /// Modules in it.
    pub modules: u64,
}

/// The seal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealEvidence {
    /// `verified`, `partial` or `refused`.
    pub verdict: String,
    /// Every check, in the order in which they were run.
    pub checks: Vec<CheckEvidence>,
    /// Id of the key that signed.
    pub signer: Option<String>,
    /// `dsse:` and the digest of the envelope.
    pub dsse_ref: Option<String>,
    /// The log that holds the entry.
    pub log: LogEvidence,
}

/// The transparency log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEvidence {
    /// Who runs it, as the trust policy says.
    pub operator: Option<String>,
    /// Its origin.
    pub origin: Option<String>,
    /// Its id.
    pub id: Option<String>,
    /// Position of the entry.
    pub index: Option<u64>,
    /// Entries of the log at the checkpoint.
    pub tree_size: Option<u64>,
    /// `<origin>/tile/entries/<N>#<index>`.
    pub tile_ref: Option<String>,
    /// Cosignatures of witnesses that were verified. With 0, only the operator itself vouches for the log.
    pub witnesses: u64,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckEvidence {
    /// Its stable id.
    pub id: String,
    /// `passed`, `failed` or `skipped`.
    pub status: String,
    /// What had to be found.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub expected: String,
    /// What was found.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub found: String,
    /// Which object, or why it was skipped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl Evidence {
    /// A card for `coverage` and nothing else yet.
    pub fn new(trace: TraceEvidence, coverage: Coverage) -> Self {
        Self {
            schema: EVIDENCE_SCHEMA.to_string(),
            verifier_version: VERIFIER_VERSION.to_string(),
            trace,
            bundle: None,
            seal: None,
            coverage,
            replay: None,
            gate: None,
            timings_ms: BTreeMap::new(),
            path: None,
        }
    }
}

impl TraceEvidence {
    /// The facts of a trace.
    pub fn of(trace: &symseal_trace::Trace) -> Self {
        Self {
            trace_id: trace.begin.trace_id.to_string(),
            digest: trace.end.digest.clone(),
            captured_at: trace.begin.captured_at.clone(),
            method: trace.begin.method.clone(),
            samples: trace.samples.len() as u64,
            lost: trace.end.lost,
            longest_stop_ns: trace.samples.iter().map(|sample| sample.stopped_ns).max().unwrap_or(0),
        }
    }
}

impl BundleEvidence {
    /// The facts of a bundle; `signed_digest` is what the seal says where the image index is not at hand.
    pub fn of(bundle: &symseal_bundle::Bundle, signed_digest: Option<Digest>) -> Self {
        let index = bundle.index();
        Self {
            digest: bundle.digest().or(signed_digest),
            digest_is_signed: bundle.digest().is_none() && signed_digest.is_some(),
            index_digest: bundle.index_digest(),
            name: index.name.clone(),
            version: index.version.clone(),
            modules: index.modules().count() as u64,
        }
    }
}

impl SealEvidence {
    /// The outcome of a verification. `verdict` is `verified`, `partial` or `refused`.
    pub fn of(verdict: &str, checks: &[Check], facts: Option<&SealFacts>) -> Self {
        let text = |value: Option<&dyn std::fmt::Display>| value.map(ToString::to_string);
        Self {
            verdict: verdict.to_string(),
            checks: checks.iter().map(CheckEvidence::of).collect(),
            signer: facts.and_then(|facts| text(facts.signer.as_ref().map(|id| id as _))),
            dsse_ref: facts.and_then(|facts| facts.dsse_ref.clone()),
            log: facts.map(LogEvidence::of).unwrap_or_default(),
        }
    }
}

impl LogEvidence {
    fn of(facts: &SealFacts) -> Self {
        Self {
            operator: facts.log_operator.clone(),
            origin: facts.log_origin.clone(),
            id: facts.log_id.as_ref().map(ToString::to_string),
            index: facts.log_index,
            tree_size: facts.tree_size,
            tile_ref: facts.rekor_tile_ref.clone(),
            witnesses: facts.witnesses,
        }
    }
}

impl CheckEvidence {
    fn of(check: &Check) -> Self {
        Self {
            id: check.id.to_string(),
            status: check.status.code().to_string(),
            expected: check.expected.clone(),
            found: check.found.clone(),
            detail: check.detail.clone(),
        }
    }
}
