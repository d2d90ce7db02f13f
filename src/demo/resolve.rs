//! Steps 5 and 6: unwind and resolve offline from the bundle pulled back, then replay.

use anyhow::{Context, Result};
use symseal_bundle::{Bundle, Digest, LayoutDir};
use symseal_module::{Avma, Proof};
use symseal_replay::{
    BundleTables, Coverage, ReplayReport, ReportedChain, ResolvedThread, coverage, replay_with_goldens, resolve_trace,
};
use symseal_resolver::{Options, ResolvedFrame, Resolver};
use symseal_trace::{Event, TraceResolved};
use tempfile::TempDir;

use super::capture::Captured;
use super::narrator::Narrator;
use super::publish::Published;
use super::scene::Scene;
use super::verify;
use crate::bundle_ref;
use crate::commands::trace::replay::{classes, seeds};
use crate::workload::report;

/// A resolved trace, and what it was resolved with.
pub(super) struct Resolved {
    pub(super) event: TraceResolved,
    pub(super) coverage: Coverage,
    /// Whether every thread's stack is what the thread itself reported.
    pub(super) agrees: bool,
    resolver: Resolver,
    tables: BundleTables,
    _store: TempDir,
}

pub(super) fn run(scene: &Scene, story: &mut Narrator, published: &Published, captured: &Captured) -> Result<Resolved> {
    story.step("Unwind and resolve", "offline, from the bundle pulled back over HTTP");
    let store = scene.scratch()?;
    let digest = bundle_ref::pull(&published.reference, store.path())?;
    story.say(format!("pulled {digest} into a local store"));
    let open = |digest: &Digest| -> Result<Bundle> { Ok(Bundle::open(LayoutDir::open(store.path())?, Some(digest))?) };
    let bundle = open(&digest)?;
    // Names count as proved only because the seal of the very bundle in the store is verified first.
    let sealed = verify::verify(&bundle, &scene.trust())?.verdict == symseal_bundle::verify::Verdict::Verified;
    let proof = if sealed { Proof::Sealed } else { Proof::DigestKnown };
    let tables = BundleTables::for_trace([&bundle], &captured.trace);
    let resolver = Resolver::new(Options { demangle: true, ..Options::default() }).with_stored_bundle(bundle, proof);

    let (event, threads) = resolve_trace(&captured.trace, &resolver, &tables);
    for thread in &threads {
        show(story, thread);
    }
    let resolved = scene.resolved();
    std::fs::write(&resolved, Event::Resolved(event.clone()).to_line()?)
        .with_context(|| format!("resolved frames {}", resolved.display()))?;
    for missing in tables.missing() {
        story.say(format!("no unwind table for {}: {}", missing.module, missing.reason.meaning()));
    }

    let agrees = compare(story, captured, &threads);
    let coverage = coverage(&threads, &resolver);
    story.say(format!(
        "release modules {:.1} % named ({} of {} frames), all modules {:.1} %, proved {:.1} %",
        coverage.release.pct,
        coverage.release.named,
        coverage.release.frames,
        coverage.all.pct,
        coverage.all.proved_pct
    ));
    for nameless in &coverage.nameless {
        story.say(format!(
            "no name: thread {} #{} {} in {}: {}",
            nameless.thread,
            nameless.depth,
            nameless.ip,
            nameless.module.as_deref().unwrap_or("no module"),
            nameless.reason.map_or("its function is known, but no line or no size of it", |reason| reason.meaning())
        ));
    }
    Ok(Resolved { event, coverage, agrees, resolver, tables, _store: store })
}

/// Frames of a long stack that are shown at its inner and at its outer end; `trace-resolve` shows all.
const SHOWN_INNER: usize = 9;
const SHOWN_OUTER: usize = 3;

/// One thread's stack, a line a frame.
fn show(story: &Narrator, thread: &ResolvedThread) {
    let count = thread.physical();
    story.say(format!("thread {} {}: {count} frames, {}", thread.thread, thread.thread_name, thread.stop));
    for (depth, frame) in thread.frames.iter().enumerate().take(count) {
        let left_out = count.saturating_sub(SHOWN_INNER + SHOWN_OUTER);
        if left_out > 1 && (SHOWN_INNER..SHOWN_INNER + left_out).contains(&depth) {
            if depth == SHOWN_INNER {
                story.say(format!("  … {left_out} more frames"));
            }
            continue;
        }
        story.say(format!("  #{depth:<2} {}", line(frame)));
    }
}

/// Function and place of the innermost source frame, how many callers were inlined there, and the origin.
fn line(frame: &ResolvedFrame) -> String {
    let origin = format!("[{}, {}, {}]", frame.unwind, frame.resolver, frame.proof);
    let module = frame.module.as_ref().map_or("no module", |module| ends_of(&module.path, 1));
    let Some(innermost) = frame.frames.first() else {
        let offset = frame.module.as_ref().map(|module| format!("+{}", module.rva)).unwrap_or_default();
        return format!("{module}{offset}: {} {origin}", frame.reason.map_or("no name", |reason| reason.meaning()));
    };
    let function = innermost.function.as_deref().or(innermost.symbol.as_deref()).unwrap_or("??");
    let place = match (&innermost.file, innermost.line) {
        (Some(file), Some(line)) => format!("{}:{line}", ends_of(file, 2)),
        _ => module.to_owned(),
    };
    let inlined = match frame.frames.len() - 1 {
        0 => String::new(),
        callers => format!(", inlined into {callers} more"),
    };
    format!("{function} ({place}{inlined}) {origin}")
}

/// The last `parts` parts of a path.
fn ends_of(path: &str, parts: usize) -> &str {
    path.rmatch_indices('/').nth(parts - 1).and_then(|(at, _)| path.get(at + 1..)).unwrap_or(path)
}

/// Holds every stack to its thread's own report.
fn compare(story: &Narrator, captured: &Captured, threads: &[ResolvedThread]) -> bool {
    let mut right = 0;
    for reported in &captured.reports {
        let found = threads.iter().find(|thread| thread.thread == reported.thread);
        let pcs: Vec<Avma> =
            found.map(|thread| thread.frames.iter().map(|frame| frame.ip).collect()).unwrap_or_default();
        match report::compare(&reported.pcs, &pcs) {
            Ok(_) => right += 1,
            Err(mismatches) => story.refuted(format!(
                "thread {} {}: {} of {} reported frames differ, first: {:?}",
                reported.thread,
                reported.name,
                mismatches.len(),
                reported.pcs.len(),
                mismatches.first()
            )),
        }
    }
    let all = right == captured.reports.len() && right > 0;
    if all {
        let frames: usize = captured.reports.iter().map(|report| report.pcs.len()).sum();
        story.proved(format!(
            "all {right} threads have the stacks that they reported themselves, {frames} frames by address"
        ));
    }
    all
}

pub(super) fn replay(
    story: &mut Narrator,
    captured: &Captured,
    resolved: &Resolved,
    count: u32,
) -> Result<ReplayReport> {
    story.step("Replay", "the same answers under other conditions?");
    let chains: Vec<ReportedChain> = captured
        .reports
        .iter()
        .map(|report| ReportedChain { thread: report.thread, pcs: report.pcs.clone(), sps: report.sps.clone() })
        .collect();
    let report = replay_with_goldens(&captured.trace, &resolved.resolver, &resolved.tables, &seeds(count), &chains)
        .context("the trace cannot be replayed")?;
    story.say(classes(&report).to_string());
    story.proved(format!(
        "replay ratio {:.4} over {} replays with {count} seeds; {} of {} deliberately changed unwind rules were noticed",
        report.replay_success_ratio, report.manifest.units, report.controls.mutation.noticed, report.controls.mutation.total
    ));
    Ok(report)
}
