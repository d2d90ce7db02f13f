//! Frames that the chain for files does not make: of JIT compilers, of the kernel, and of what is no module.

use std::sync::Arc;

use symseal_module::{Avma, MissReason, Quality, ResolverStep, Rva, Svma};
use symseal_process::{JitHit, JitSource, Mapping};

use super::LiveAddress;
use crate::jit::is_place;
use crate::trail::{hit, miss, raw_frame};
use crate::{Answer, ModuleRef, Outcome, ResolvedFrame, Tried};

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
    let (reason, unread) = if is_code_of_a_file(mapping) {
        let detail = format!(
            "{path}: mapped as code, and no ELF header is where it begins, in memory or in the file: cut short, or no ELF file"
        );
        (MissReason::Malformed, Some(miss(ResolverStep::BinaryDebugInfo, MissReason::Malformed, detail, None)))
    } else {
        (MissReason::NoModule, None)
    };
    let answer = Answer {
        reason: Some(reason),
        tried: unread.into_iter().chain([hit(ResolverStep::ModuleOffset)]).collect(),
        ..Answer::nameless(ResolverStep::ModuleOffset, Quality::ModuleOffset)
    };
    let module = Some(ModuleRef { path, debug_id: None, rva, svma: Svma(rva.0) });
    ResolvedFrame { module, answer: Arc::new(answer), ..frame }
}

/// Compilers at run time keep their code in files without a name.
fn is_code_of_a_file(mapping: &Mapping) -> bool {
    let has_name = mapping.path.starts_with(b"/") && !mapping.path.starts_with(b"/memfd:");
    mapping.executable && mapping.is_file() && has_name && !mapping.path.starts_with(b"/dev/")
}

/// The frame with a step that had nothing: in the place of what that step said before, else before the steps that have no name to give.
pub(super) fn missed(frame: ResolvedFrame, step: ResolverStep, reason: MissReason, detail: String) -> ResolvedFrame {
    let mut frame = noted(frame, step, reason, detail);
    Arc::make_mut(&mut frame.answer).reason = Some(reason);
    frame
}

/// The same where others have said why there is no name.
pub(super) fn noted(frame: ResolvedFrame, step: ResolverStep, reason: MissReason, detail: String) -> ResolvedFrame {
    told(frame, miss(step, reason, detail, None))
}

/// The same of any step that had nothing.
pub(super) fn told(mut frame: ResolvedFrame, told: Tried) -> ResolvedFrame {
    let answer = Arc::make_mut(&mut frame.answer);
    let mut tried = answer.tried.to_vec();
    match tried.iter_mut().find(|tried| tried.step == told.step && tried.outcome != Outcome::Hit) {
        Some(before) => *before = told,
        None => tried.insert(tried.iter().position(is_place).unwrap_or(tried.len()), told),
    }
    answer.tried = tried.into();
    frame
}

/// The frame with the name that a runtime wrote of its code.
pub(super) fn with_jit(frame: ResolvedFrame, lookup: Avma, (source, hit): (JitSource, JitHit<'_>)) -> ResolvedFrame {
    let detail = match source {
        JitSource::PerfMap => "perf map",
        JitSource::JitDump => "jitdump",
    };
    crate::jit::with_jit(frame, lookup, (detail, hit))
}
