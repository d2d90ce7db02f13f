//! The steps of the chain as they are recorded, and what is said where none of them had a name.

use std::sync::Arc;

use symseal_bundle::Digest;
use symseal_module::{Avma, MissReason, Proof, Quality, ResolverStep, UnwindMethod};

use crate::{Answer, Outcome, ResolvedFrame, Tried};

impl Answer {
    /// Of a step that has no name to give.
    pub(crate) fn nameless(resolver: ResolverStep, quality: Quality) -> Self {
        Self {
            resolver,
            quality,
            proof: Proof::None,
            approximate: false,
            folded: false,
            frames: Vec::new(),
            aliases: Arc::default(),
            start: None,
            tried: Arc::default(),
            reason: None,
            digests: Arc::default(),
        }
    }
}

pub(crate) fn hit(step: ResolverStep) -> Tried {
    Tried { step, outcome: Outcome::Hit, detail: String::new(), lacks: String::new(), digest: None }
}

pub(crate) fn miss(step: ResolverStep, reason: MissReason, detail: String, digest: Option<Digest>) -> Tried {
    Tried { step, outcome: Outcome::Miss(reason), detail, lacks: String::new(), digest }
}

pub(crate) fn skip(step: ResolverStep, reason: MissReason) -> Tried {
    Tried { step, outcome: Outcome::Skipped(reason), detail: String::new(), lacks: String::new(), digest: None }
}

/// Why there is no name: what was there and is the wrong one says more than a server that failed, that more than a file that cannot be read, and that more
/// than a lack; of equals the later step. Steps that were not asked tell it only where none was: first one that was to be asked, and could not be.
pub(crate) fn most_telling(tried: &[Tried]) -> Option<MissReason> {
    let rank = |outcome: Outcome| match outcome {
        Outcome::Hit => None,
        Outcome::Skipped(MissReason::Unsupported) => Some(1),
        Outcome::Skipped(_) => Some(0),
        Outcome::Miss(reason) => Some(match reason {
            MissReason::DigestMismatch
            | MissReason::DebugIdMismatch
            | MissReason::ChecksumMismatch
            | MissReason::Malformed => 5,
            MissReason::ServerError => 4,
            MissReason::FileUnreadable | MissReason::NotPermitted => 3,
            _ => 2,
        }),
    };
    tried.iter().max_by_key(|step| rank(step.outcome)).and_then(|step| step.outcome.reason())
}

/// The frame at an address that lies in no module.
pub(crate) fn raw_frame(ip: Avma, unwind: UnwindMethod) -> ResolvedFrame {
    let tried = [miss(ResolverStep::ModuleOffset, MissReason::NoModule, String::new(), None), hit(ResolverStep::Raw)];
    let answer = Answer {
        tried: tried.into(),
        reason: Some(MissReason::NoModule),
        ..Answer::nameless(ResolverStep::Raw, Quality::Raw)
    };
    ResolvedFrame { ip, module: None, unwind, symbol_offset: None, answer: Arc::new(answer) }
}
