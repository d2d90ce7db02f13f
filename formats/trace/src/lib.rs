//! Trace events: JSON Lines, plain, gzip or zstd. `docs/formats/trace.md` describes the format.
//!
//! A capture is a stream of events: `trace.begin`, then `trace.module` and `trace.sample` in any
//! order, then `trace.end` with a count and a digest of all lines before it. What is found out later
//! (`trace.capture`, `trace.resolved`, `replay.result`) follows as events of its own; a capture never
//! changes.
//!
//! ```
//! use symseal_trace::{Trace, TraceBegin};
//!
//! let trace = Trace { begin: TraceBegin { platform: "linux".into(), ..TraceBegin::default() }, ..Trace::default() };
//! let mut bytes = Vec::new();
//! trace.write(&mut bytes)?;
//! let read = Trace::read(bytes.as_slice())?;
//! assert_eq!(read.begin, trace.begin);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * [`Trace`]: a whole capture in memory. [`EventReader`] and [`TraceWriter`]: the same as streams.
//! * [`Event`]: one line. Unknown kinds are kept, unknown fields ignored.
//!
//! What it does not do: open files, capture, unwind or name anything.
#![forbid(unsafe_code)]

mod compress;
mod event;
mod forms;
mod jit;
mod made;
mod module;
mod read;
mod replay_result;
mod resolved;
mod sample;
mod summary;
mod time;
mod trace;
mod write;

pub use compress::{Compression, Decompressed};
pub use event::{Event, EventError};
pub use jit::{TraceJit, TraceJitLine};
pub use made::TraceCode;
pub use module::{IdentifiedBy, TraceModule};
pub use read::{EventReader, Limits, Problem, ReadError};
pub use replay_result::{CoverageNumbers, ReplayResult};
pub use resolved::{ResolvedRow, ResolvedStack, TraceResolved};
pub use sample::{StackSegment, TraceSample};
pub use summary::{CaptureFrame, TraceCapture};
pub use time::rfc3339_utc;
pub use trace::{Trace, TraceBegin, TraceEnd};
pub use uuid::Uuid;
pub use write::{TraceWriter, WriteError};
