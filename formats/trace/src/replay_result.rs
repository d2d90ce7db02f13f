//! `replay.result`: the outcome of replaying a trace with one seed.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// One replay. The first six fields are a promise to readers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplayResult {
    /// This replay.
    pub replay_id: Uuid,
    /// The trace that was replayed.
    pub trace_id: Uuid,
    /// The seed, below 2^53.
    pub seed: u64,
    /// Share of replayed stacks that gave the same answer, 0 to 1.
    pub replay_success_ratio: f64,
    /// Share of frames with a verified symbol, in percent.
    pub symbol_coverage_pct: f64,
    /// Time of the verification, in milliseconds.
    pub verify_time_ms: u64,
    /// Start (RFC 3339, UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// End (RFC 3339, UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// The version of the verifying program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verifier_version: Option<String>,
    /// Share of frames whose symbol is proved by a verified seal, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proved_coverage_pct: Option<f64>,
    /// The numbers that both shares are made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<CoverageNumbers>,
    /// Anything further, as an object.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub notes: Value,
}

/// Frames, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoverageNumbers {
    /// Expected frames: those found, and one for each stack that ended early.
    pub frames: u64,
    /// Frames with a name that counts.
    pub named: u64,
    /// Of these, those whose name rests on a verified seal.
    pub proved: u64,
}
