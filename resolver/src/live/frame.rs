//! Frames that the chain for files does not make: of JIT compilers, of the kernel, and of what is no module.

use symseal_module::{Avma, MissReason, ModuleMap, Proof, Quality, ResolverStep, Rva, Svma};
use symseal_process::{JitHit, JitSource, Mapping};

use super::LiveAddress;
use crate::{ModuleRef, Options, Outcome, ResolvedFrame, Resolver, SourceFrame, Tried};

/// The bare address.
pub(super) fn raw(address: LiveAddress) -> ResolvedFrame {
    // What the chain says of an address that is in no module.
    Resolver::new(Options { address_cache: 0, ..Options::default() }).resolve(
        &ModuleMap::default(),
        address.ip,
        address.exact,
        address.unwind,
    )
}

/// An address in a mapping that is no module: a file of data, `[stack]`, memory without a name.
pub(super) fn in_mapping(address: LiveAddress, mapping: &Mapping) -> ResolvedFrame {
    let frame = raw(address);
    if mapping.path.is_empty() {
        return frame;
    }
    let rva = Rva(address.ip.0.wrapping_sub(mapping.start.0).wrapping_add(mapping.offset));
    let path = symseal_module::escape::escape(&mapping.path);
    let hit = Tried { step: ResolverStep::ModuleOffset, outcome: Outcome::Hit, detail: String::new(), digest: None };
    ResolvedFrame {
        module: Some(ModuleRef { path, debug_id: None, rva, svma: Svma(rva.0) }),
        resolver: ResolverStep::ModuleOffset,
        quality: Quality::ModuleOffset,
        reason: Some(MissReason::NoModule),
        tried: vec![hit],
        ..frame
    }
}

/// The frame with a step that had nothing, put before the one that answered.
pub(super) fn missed(
    mut frame: ResolvedFrame,
    step: ResolverStep,
    reason: MissReason,
    detail: String,
) -> ResolvedFrame {
    let tried = Tried { step, outcome: Outcome::Miss(reason), detail, digest: None };
    frame.tried.insert(frame.tried.len().saturating_sub(1), tried);
    frame.reason = Some(reason);
    frame
}

/// The frame with the name that a step had for it.
pub(super) fn with_name(
    mut frame: ResolvedFrame,
    step: ResolverStep,
    detail: String,
    name: SourceFrame,
    approximate: bool,
) -> ResolvedFrame {
    // The step that had answered before, with less.
    frame.tried.pop();
    frame.tried.push(Tried { step, outcome: Outcome::Hit, detail, digest: None });
    let quality = if name.line.is_some() { Quality::Full } else { Quality::Function };
    ResolvedFrame {
        resolver: step,
        quality,
        proof: Proof::None,
        approximate,
        frames: vec![name],
        reason: None,
        ..frame
    }
}

/// The frame with the name that a runtime wrote of its code.
pub(super) fn with_jit(frame: ResolvedFrame, lookup: Avma, (source, hit): (JitSource, JitHit<'_>)) -> ResolvedFrame {
    let line = hit.line(lookup);
    let name = SourceFrame {
        function: Some(hit.function.name.clone()),
        symbol: Some(hit.function.name.clone()),
        file: line.map(|line| line.file.to_string()),
        line: line.map(|line| line.line),
        symbol_offset: frame.ip.0.checked_sub(hit.function.start.0),
        ..SourceFrame::default()
    };
    let detail = match source {
        JitSource::PerfMap => "perf map",
        JitSource::JitDump => "jitdump",
    };
    with_name(frame, ResolverStep::JitMap, detail.to_string(), name, hit.overlapped)
}
