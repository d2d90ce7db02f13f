//! Frames that the chain for files does not make: of JIT compilers, of the kernel, and of what is no module.

use std::sync::Arc;

use symseal_module::{Avma, MissReason, Quality, ResolverStep, Rva, Svma};
use symseal_process::{JitHit, JitSource, Mapping};

use super::LiveAddress;
use crate::resolver::{hit, miss, raw_frame};
use crate::{Answer, ModuleRef, ResolvedFrame, SourceFrame, Tried};

/// The bare address.
pub(super) fn raw(address: LiveAddress) -> ResolvedFrame {
    raw_frame(address.ip, address.unwind)
}

/// An address in a mapping that is no module: a file of data, `[stack]`, memory without a name.
pub(super) fn in_mapping(address: LiveAddress, mapping: &Mapping) -> ResolvedFrame {
    let frame = raw(address);
    if mapping.path.is_empty() {
        return frame;
    }
    let rva = Rva(address.ip.0.wrapping_sub(mapping.start.0).wrapping_add(mapping.offset));
    let path = symseal_module::escape::escape(&mapping.path);
    let answer = Answer {
        reason: Some(MissReason::NoModule),
        tried: Arc::new([hit(ResolverStep::ModuleOffset)]),
        ..Answer::nameless(ResolverStep::ModuleOffset, Quality::ModuleOffset)
    };
    let module = Some(ModuleRef { path, debug_id: None, rva, svma: Svma(rva.0) });
    ResolvedFrame { module, answer: Arc::new(answer), ..frame }
}

/// The frame with a step that had nothing, put before the one that answered.
pub(super) fn missed(
    mut frame: ResolvedFrame,
    step: ResolverStep,
    reason: MissReason,
    detail: String,
) -> ResolvedFrame {
    let answer = Arc::make_mut(&mut frame.answer);
    let mut tried = answer.tried.to_vec();
    tried.insert(tried.len().saturating_sub(1), miss(step, reason, detail, None));
    answer.tried = tried.into();
    answer.reason = Some(reason);
    frame
}

/// The frame with the name that a step had for it, of a function that begins at `start`.
pub(super) fn with_name(
    frame: ResolvedFrame,
    (step, detail): (ResolverStep, String),
    (name, start): (SourceFrame, Avma),
    approximate: bool,
) -> ResolvedFrame {
    let mut tried = frame.answer.tried.to_vec();
    // The step that had answered before, with less.
    tried.pop();
    tried.push(Tried { detail, ..hit(step) });
    let quality = if name.line.is_some() { Quality::Full } else { Quality::Function };
    let answer = Answer { approximate, frames: vec![name], tried: tried.into(), ..Answer::nameless(step, quality) };
    let symbol_offset = frame.ip.0.checked_sub(start.0);
    ResolvedFrame { symbol_offset, answer: Arc::new(answer), ..frame }
}

/// The frame with the name that a runtime wrote of its code.
pub(super) fn with_jit(frame: ResolvedFrame, lookup: Avma, (source, hit): (JitSource, JitHit<'_>)) -> ResolvedFrame {
    let line = hit.line(lookup);
    let name = SourceFrame {
        function: Some(hit.function.name.clone()),
        symbol: Some(hit.function.name.clone()),
        file: line.map(|line| line.file.to_string()),
        line: line.map(|line| line.line),
        ..SourceFrame::default()
    };
    let detail = match source {
        JitSource::PerfMap => "perf map",
        JitSource::JitDump => "jitdump",
    };
    with_name(frame, (ResolverStep::JitMap, detail.to_string()), (name, hit.function.start), hit.overlapped)
}
