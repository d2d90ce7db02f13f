//! `trace.jit`: one function that a compiler made while the program ran, and that no file holds.

use serde::{Deserialize, Serialize};
use symseal_module::Avma;

use crate::forms;

/// A function as the process's runtime told of it, at the instant of the samples.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceJit {
    /// Its first address.
    pub start: Avma,
    /// Its bytes.
    pub size: u64,
    /// Its name as the runtime wrote it (escaped).
    pub name: String,
    /// In which of the runtime's files it was told: `perf-map`, `jitdump`.
    #[serde(default)]
    pub told_by: String,
    /// Whether other code was written over a part of it later, so that the name is a guess.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overlapped: bool,
    /// Source lines by rising offset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<TraceJitLine>,
    /// The function's call frame information, in the form of `.eh_frame` and laid out as if it lay at the first multiple of eight bytes behind the
    /// function; where a jitdump has it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "forms::base64_option")]
    pub eh_frame: Option<Vec<u8>>,
}

/// From where on a line holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceJitLine {
    /// Bytes from the function's first address.
    pub offset: u64,
    /// The line, from 1; 0 for code without one.
    pub line: u32,
    /// The source file (escaped).
    pub file: String,
}
