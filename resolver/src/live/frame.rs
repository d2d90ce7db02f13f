//! Frames that the chain for files does not make: of JIT compilers, of the kernel, and of what is no module.

use std::sync::Arc;

use symseal_module::{Avma, MissReason, Quality, ResolverStep, Rva, Svma};
use symseal_process::{JitHit, JitSource, Mapping};

use super::LiveAddress;
use crate::resolver::{hit, miss, raw_frame};
use crate::{Answer, ModuleRef, Outcome, ResolvedFrame, SourceFrame, Tried};

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

/// Whether a step is one of the last two, which have a place and no name.
fn is_place(tried: &Tried) -> bool {
    matches!(tried.step, ResolverStep::ModuleOffset | ResolverStep::Raw)
}

/// The frame with a step that had nothing: in the place of what that step said before, else before the steps that have no name to give.
pub(super) fn missed(
    mut frame: ResolvedFrame,
    step: ResolverStep,
    reason: MissReason,
    detail: String,
) -> ResolvedFrame {
    let answer = Arc::make_mut(&mut frame.answer);
    let mut tried = answer.tried.to_vec();
    let told = miss(step, reason, detail, None);
    match tried.iter_mut().find(|tried| tried.step == step && tried.outcome != Outcome::Hit) {
        Some(before) => *before = told,
        None => tried.insert(tried.iter().position(is_place).unwrap_or(tried.len()), told),
    }
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
    // The steps without a name come after this one, and were not needed.
    let mut tried: Vec<Tried> = frame.answer.tried.iter().filter(|tried| !is_place(tried)).cloned().collect();
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
