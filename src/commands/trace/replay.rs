//! `trace-replay`: the same answers under other conditions?

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args as ClapArgs;
use symseal_module::MissReason;
use symseal_replay::{
    BundleTables, Coverage, CoverageCount, FrameKind, Gate, ReplayReport, StackCoverage, VERIFIER_VERSION, coverage,
    replay, resolve_trace,
};
use symseal_resolver::{CallSite, Options, Resolver};
use symseal_trace::{CoverageNumbers, Event, ReplayResult, Trace, TraceResolved};
use uuid::Uuid;

use super::resolve::{proof, read_trace};
use crate::bundle_ref;
use crate::exit::Answer;
use crate::output::{out, outln, visible};
use crate::seal_question::SealQuestion;
use crate::table::Table;

/// Replay a trace: unwind and resolve it again under changed conditions, and compare.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  trace-replay --bundle ./bundle --trace trace.jsonl --seeds 5
  trace-replay --bundle sha256:… --trace trace.jsonl --seeds 64 --json

Each seed relocates modules and stacks, shuffles the order, changes caches, cuts stacks off and takes tables away. Names, CFA and
frame pointer are compared, not return addresses alone. Without a workload's own account of its calls the ratio says that the
answers are stable, not that they are right. Stacks that end for want of an unwind rule are scanned, by the code of the executables
in the bundle; frames found so are marked `scan`, and never count as coverage. Exit status 1: the ratio is below the gate of 0.95.")]
pub struct Args {
    /// The trace: JSON Lines, plain, gzip or zstd.
    #[arg(long)]
    trace: PathBuf,
    /// The bundle; without it, the one that the trace names.
    #[arg(long)]
    bundle: Option<String>,
    /// How many seeds, from 1 upwards.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    seeds: u32,
    /// Read no code for stacks that rules alone do not tell: no scan, and frame pointers are believed.
    #[arg(long)]
    no_scan: bool,
    #[command(flatten)]
    seal: SealQuestion,
    /// Print one event `replay.result` per seed.
    #[arg(long)]
    json: bool,
    /// The local bundle store.
    #[arg(long)]
    store: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Answer> {
    let trace = read_trace(&args.trace)?;
    let reference = match &args.bundle {
        Some(reference) => reference.clone(),
        None => named_bundle(&trace)
            .with_context(|| format!("trace {} names no bundle: give one with --bundle", args.trace.display()))?,
    };
    let opened = bundle_ref::open(&reference, args.store.as_ref())?;
    let verifying = Instant::now();
    let Some(proof) = proof(&opened, &args.seal)? else { return Ok(Answer::No) };
    let verify_time = args.seal.trust.as_ref().map(|_| verifying.elapsed());
    let tables = BundleTables::for_trace([&opened.bundle], &trace);
    let options = Options { call_site: CallSite::of_arch(&trace.begin.arch), ..Options::default() };
    let resolver = Resolver::new(options).with_bundle_access(opened.bundle, proof, opened.access);
    let tables = if args.no_scan { tables } else { tables.with_code(&trace, &resolver) };
    let seeds = seeds(args.seeds);
    let progress = crate::progress::spinner(format!("replaying {} with {} seeds", args.trace.display(), seeds.len()));
    let report =
        replay(&trace, &resolver, &tables, &seeds).with_context(|| format!("trace {}", args.trace.display()))?;
    progress.finish_and_clear();
    let (event, threads) = resolve_trace(&trace, &resolver, &tables);
    warn_of_damage(&tables, &event);
    let covered = coverage(&threads, &resolver);
    if args.json {
        for result in results(&trace, &report, &covered, verify_time) {
            out!("{}", String::from_utf8_lossy(&Event::ReplayResult(result).to_line()?));
        }
    } else {
        print(&report, &covered);
    }
    Ok((report.replay_success_ratio >= Gate::default().min_replay_ratio && report.controls_hold()).into())
}

/// A table whose bytes are not what the bundle says is left out, and the replay goes on without it: that must not
/// happen in silence.
fn warn_of_damage(tables: &BundleTables, resolved: &TraceResolved) {
    for missing in tables.missing().iter().filter(|missing| missing.reason == MissReason::DigestMismatch) {
        let (module, detail) = (visible(&missing.module), visible(&missing.detail));
        eprintln!("warning: unwind table of {module}: {} {detail}", missing.reason.meaning());
    }
    let damaged: BTreeSet<&str> = resolved
        .frames
        .iter()
        .filter(|row| row.reason == Some(MissReason::DigestMismatch))
        .filter_map(|row| row.module.as_deref())
        .collect();
    for module in damaged {
        eprintln!("warning: symbol table of {}: {}", visible(module), MissReason::DigestMismatch.meaning());
    }
}

/// The seeds 1 to `count`.
pub(crate) fn seeds(count: u32) -> Vec<u64> {
    (1..=u64::from(count)).collect()
}

/// The bundle that the trace's summary names.
fn named_bundle(trace: &Trace) -> Option<String> {
    trace.inside.iter().chain(&trace.after).find_map(|event| match event {
        Event::Capture(summary) => summary.symbol_bundle_ref.clone(),
        _ => None,
    })
}

/// One event per seed; `verify_time` is that of the bundle's verification, where one was run.
pub(crate) fn results(
    trace: &Trace,
    report: &ReplayReport,
    covered: &Coverage,
    verify_time: Option<Duration>,
) -> Vec<ReplayResult> {
    report
        .seeds
        .iter()
        .map(|seed| ReplayResult {
            replay_id: Uuid::new_v4(),
            trace_id: trace.begin.trace_id,
            seed: seed.seed,
            replay_success_ratio: seed.replay_success_ratio,
            symbol_coverage_pct: covered.all.pct,
            verify_time_ms: verify_time.map_or(0, |took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
            verifier_version: Some(VERIFIER_VERSION.to_owned()),
            // Without a verification nothing is known to be proved, which is not the same as "nothing is".
            proved_coverage_pct: verify_time.map(|_| covered.all.proved_pct),
            coverage: Some(CoverageNumbers {
                frames: covered.all.frames,
                named: covered.all.named,
                proved: covered.all.proved,
            }),
            ..ReplayResult::default()
        })
        .collect()
}

/// Prints the report for people.
fn print(report: &ReplayReport, covered: &Coverage) {
    out!("{}", classes(report));
    outln!();
    outln!("replay_success_ratio {:.4}: the lowest of the classes", report.replay_success_ratio);
    outln!(
        "expected values: {} stacks as their threads reported them, {} from our own recording",
        report.golden.agreeing,
        report.golden.own_recording
    );
    outln!();
    out!("{}", coverage_table(covered));
    outln!();
    outln!(
        "negative controls: {} of {} changed rules were noticed",
        report.controls.mutation.noticed,
        report.controls.mutation.total
    );
}

/// The classes as a table.
pub(crate) fn classes(report: &ReplayReport) -> Table {
    let mut table = Table::new(&["class", "replays", "equal", "ratio", "95 % at least"]);
    for class in &report.classes {
        table.row([
            class.class.to_string(),
            class.units.to_string(),
            class.passed.to_string(),
            format!("{:.4}", class.ratio),
            format!("{:.4}", class.wilson_lower),
        ]);
    }
    table
}

/// How many frames have names, by where they are and by what is counted.
fn coverage_table(covered: &Coverage) -> Table {
    let mut table = Table::new(&["coverage", "of", "named", "%", "proved", "%"]);
    let mut row = |title: &str, count: &CoverageCount| {
        let pct = |share: f64| format!("{share:.2}");
        let (named, proved) = (count.named.to_string(), count.proved.to_string());
        table.row([title.to_owned(), count.frames.to_string(), named, pct(count.pct), proved, pct(count.proved_pct)]);
    };
    row("frames", &covered.all);
    for kind in FrameKind::ALL {
        if let Some(count) = covered.by_kind.get(&kind) {
            row(&format!("  {}", kind.title()), count);
        }
    }
    row("frames, with file and line", &covered.with_line);
    row("  release modules", &covered.release);
    row("inlined calls", &covered.inlined);
    row("different addresses", &covered.unique);
    let StackCoverage { stacks, named, proved, pct, proved_pct } = covered.by_stack;
    row("stacks (%: the mean of each one's share)", &CoverageCount { frames: stacks, named, proved, pct, proved_pct });
    table
}
