//! The same trace, replayed: stacks, names, how sure one can be of them, and the evidence on paper.
//!
//! The caller brings a trace, a resolver with its bundles, and the unwind tables ([`BundleTables`]). The crate gives
//!
//! * [`unwind_trace`] and [`resolve_trace`]: the stacks, and their names;
//! * [`coverage`](fn@coverage): how many frames have a name, and how many of the names are proved;
//! * [`replay()`]: the equivariance test. The trace is laid out anew (modules, stacks, order, caches), cut short, or robbed of
//!   a table, and must give the same answer, or just the downgraded one that was fixed beforehand. Negative
//!   controls show that the comparison would notice an error;
//! * [`Evidence`] and [`Gate`]: the card that says all this, and whether it is good enough.
//!
//! What it refuses to do: it re-executes nothing, it reads no clock, and it takes no random numbers but those of
//! the seeds: the same trace, tables and seeds give the same report, byte for byte.
#![forbid(unsafe_code)]

mod canonical;
mod class;
mod controls;
mod coverage;
mod evidence;
mod gate;
mod golden;
mod outage;
mod relocate;
mod replay;
mod report;
mod resolve;
mod rng;
mod scene;
mod tables;
mod truncate;
mod walk;

pub use class::Class;
pub use coverage::{
    Coverage, CoverageCount, FrameKind, IncompleteStack, MAX_NAMELESS_LISTED, NamelessFrame, StackCoverage, coverage,
};
pub use evidence::{
    BundleEvidence, CheckEvidence, EVIDENCE_SCHEMA, Evidence, LogEvidence, SealEvidence, TraceEvidence,
    VERIFIER_VERSION,
};
pub use gate::{Gate, GateCode, GateReason, GateResult};
pub use golden::{GoldenTier, ReportedChain};
pub use replay::{ReplayError, replay, replay_with_goldens};
pub use report::{
    ClassResult, ControlResult, Controls, Disagreement, GoldenSummary, MAX_MISMATCHES_LISTED, Manifest, Mismatch,
    ReplayReport, SeedResult,
};
pub use resolve::{FramePlace, ResolvedThread, resolve_trace};
pub use tables::{BundleTables, MissingTable};
pub use walk::{ThreadStack, unwind_trace};
