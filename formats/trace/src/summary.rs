//! `trace.capture`: the summary of a capture.

use serde::{Deserialize, Serialize};
use symseal_module::{Avma, DebugId};
use uuid::Uuid;

/// What a trace is, in one event. The first seven fields are a promise to readers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceCapture {
    /// The trace.
    pub trace_id: Uuid,
    /// Where it was taken: `linux`.
    pub platform: String,
    /// The debug id of the process's executable.
    pub build_id: Option<DebugId>,
    /// The frames: the innermost of each sample as captured, or all of them once the stacks were walked.
    pub frames: Vec<CaptureFrame>,
    /// The bundle that the trace belongs to, `sha256:…`, where known.
    pub symbol_bundle_ref: Option<String>,
    /// That bundle's seal: `dsse:` and the sha256 of its envelope, where known.
    pub dsse_ref: Option<String>,
    /// When it was taken (RFC 3339, UTC).
    #[serde(default)]
    pub captured_at: String,
    /// The process.
    #[serde(default)]
    pub pid: u32,
    /// The processor architecture.
    #[serde(default)]
    pub arch: String,
    /// How it was taken.
    #[serde(default)]
    pub method: String,
    /// Threads sampled.
    #[serde(default)]
    pub samples: u64,
    /// Threads that could not be sampled.
    #[serde(default)]
    pub lost: u64,
    /// The `digest` of the trace's `trace.end`.
    #[serde(default)]
    pub trace_digest: Option<String>,
}

/// One frame of the summary.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureFrame {
    /// The instruction pointer (avma).
    pub ip: Avma,
    /// The path of the module around it.
    pub module: Option<String>,
    /// That module's debug id.
    pub module_build_id: Option<DebugId>,
    /// The thread.
    #[serde(default)]
    pub thread: u32,
}
