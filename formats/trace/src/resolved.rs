//! `trace.resolved`: what the frames of a trace are called. A capture itself never changes.

use serde::{Deserialize, Serialize};
use symseal_module::{Avma, DebugId, MissReason, Proof, Quality, ResolverStep, StopReason, UnwindMethod};
use uuid::Uuid;

use crate::forms;

/// The frames of a trace, named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceResolved {
    /// The trace.
    pub trace_id: Uuid,
    /// The bundle that the names come from, `sha256:…`.
    pub bundle: Option<String>,
    /// Whether files of the resolving machine were looked at besides the bundle.
    #[serde(default)]
    pub local_files: bool,
    /// Whether servers were asked.
    #[serde(default)]
    pub online: bool,
    /// One row per frame, and one per inlined frame.
    pub frames: Vec<ResolvedRow>,
    /// How the walk over each sample's stack ended; empty in events of producers that did not tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<ResolvedStack>,
}

/// How the walk over one sample's stack ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedStack {
    /// The thread.
    pub thread: u32,
    /// Ordinal of the sample in the trace, from 0.
    pub sample: u32,
    /// Why the walk ended.
    pub stop: StopReason,
    /// Whether that is the end of the stack; else it may go on.
    pub complete: bool,
}

/// One frame or inlined frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedRow {
    /// Trace-wide ordinal of the row, from 0.
    pub frame_index: u64,
    /// The thread.
    pub thread: u32,
    /// Ordinal of the sample in the trace, from 0.
    pub sample: u32,
    /// Physical frame, 0 = innermost.
    pub depth: u32,
    /// Within the physical frame: 0 = the innermost inlined callee, the highest = the function itself.
    pub inline_depth: u32,
    /// The instruction pointer (avma); of callers, the return address.
    pub ip: Avma,
    /// The path of the module around it.
    pub module: Option<String>,
    /// That module's debug id.
    pub debug_id: Option<DebugId>,
    /// The function's name.
    pub function: Option<String>,
    /// Its linkage name.
    pub symbol: Option<String>,
    /// The address minus the function's start, in bytes.
    #[serde(default, with = "forms::hex_u64_option")]
    pub symbol_offset: Option<u64>,
    /// Source file.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
    /// Whether the function was inlined into the next row's.
    pub inlined: bool,
    /// How the frame was found.
    pub unwind: UnwindMethod,
    /// How it was named.
    pub resolver: ResolverStep,
    /// How much the name tells.
    pub quality: Quality,
    /// What the name rests on.
    pub proof: Proof,
    /// Why there is no better name.
    pub reason: Option<MissReason>,
    /// Whether the function's size is unknown, so that only the next symbol bounds it; left out where it is known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approximate: bool,
    /// Whether several functions share the code; left out otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub folded: bool,
    /// Whether `ip` is the next instruction to run; else it is a return address. None where the producer did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<bool>,
    /// The canonical frame address: the stack pointer of the caller (avma). None where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cfa: Option<Avma>,
    /// The value of the frame pointer register in the frame. None where it is not known, or 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame_pointer: Option<Avma>,
}
