//! The acceptance gate: which evidence is good enough.

use serde::{Deserialize, Serialize};

use crate::evidence::Evidence;

/// What evidence must reach.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// Coverage of release modules, in percent.
    pub min_coverage_pct: f64,
    /// Replay success ratio.
    pub min_replay_ratio: f64,
}

impl Default for Gate {
    fn default() -> Self {
        Self { min_coverage_pct: 90.0, min_replay_ratio: 0.95 }
    }
}

/// The gate's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GateResult {
    /// Whether all was good enough.
    pub passed: bool,
    /// What was asked for.
    pub gate: Gate,
    /// What was not good enough; empty where it passed.
    pub reasons: Vec<GateReason>,
}

/// One thing that was not good enough.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateReason {
    /// Which.
    pub code: GateCode,
    /// What was expected and found, for people.
    pub text: String,
}

/// What a gate can object to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateCode {
    /// Coverage of release modules is too low.
    Coverage,
    /// No frame lies in a release module, so that coverage says nothing.
    NoReleaseFrames,
    /// The replay success ratio is too low.
    Replay,
    /// No replay was run.
    NoReplay,
    /// A negative control was not noticed: the replay cannot be believed.
    Controls,
    /// The seal was not verified.
    Seal,
    /// No seal was looked at.
    NoSeal,
}

impl Gate {
    /// Judges evidence. Everything is looked at: the reasons are all there are.
    pub fn judge(&self, evidence: &Evidence) -> GateResult {
        let mut reasons = Vec::new();
        let mut object = |code, text: String| reasons.push(GateReason { code, text });
        let release = &evidence.coverage.release;
        if release.frames == 0 {
            object(GateCode::NoReleaseFrames, "expected frames in modules with line tables, found none".to_string());
        } else if !reaches(release.pct, self.min_coverage_pct) {
            object(
                GateCode::Coverage,
                format!(
                    "expected at least {} % of the frames of release modules named, found {:.2} % ({} of {})",
                    self.min_coverage_pct, release.pct, release.named, release.frames
                ),
            );
        }
        match &evidence.replay {
            None => object(GateCode::NoReplay, "expected a replay, none was run".to_string()),
            Some(replay) => {
                if !reaches(replay.replay_success_ratio, self.min_replay_ratio) {
                    object(
                        GateCode::Replay,
                        format!(
                            "expected a replay success ratio of at least {}, found {:.4}",
                            self.min_replay_ratio, replay.replay_success_ratio
                        ),
                    );
                }
                if !replay.controls_hold() {
                    object(GateCode::Controls, "a negative control of the replay was not noticed".to_string());
                }
            }
        }
        match &evidence.seal {
            None => object(GateCode::NoSeal, "expected a verified seal, none was looked at".to_string()),
            Some(seal) if seal.verdict != "verified" => {
                let failed = seal.checks.iter().filter(|check| check.status == "failed");
                let failed: Vec<&str> = failed.map(|check| check.id.as_str()).collect();
                object(
                    GateCode::Seal,
                    format!("expected a verified seal, found {}; failed checks: {}", seal.verdict, failed.join(", ")),
                );
            }
            Some(_) => {}
        }
        GateResult { passed: reasons.is_empty(), gate: *self, reasons }
    }
}

/// What is no number reaches nothing.
fn reaches(value: f64, least: f64) -> bool {
    value >= least
}
