//! `trace.code`: memory that a process runs code in and that is no file.

use serde::{Deserialize, Serialize};
use symseal_module::Avma;

/// A stretch of executable memory without a file, at the instant of the samples. What lies in it was made while the program ran; functions that the
/// runtime told of are [`TraceJit`](crate::TraceJit)s besides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceCode {
    /// Its first address.
    pub start: Avma,
    /// The first address after it.
    pub end: Avma,
}
