//! `trace-resolve`: a trace → named frames, each with its origin.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use serde::Serialize;
use symseal_bundle::verify::Verdict;
use symseal_module::{Proof, StopReason};
use symseal_replay::{BundleTables, FramePlace, ResolvedThread, resolve_trace};
use symseal_resolver::{CallSite, FrameLine, Options, Resolver};
use symseal_trace::{Event, Limits, Trace};

use crate::bundle_ref::{self, OpenedBundle};
use crate::commands::bundle::verify::{Question, report_on};
use crate::exit::Answer;
use crate::frames::{Lacks, write_frame, write_steps};
use crate::online::{Online, OnlineArgs};
use crate::output::visible;
use crate::seal_question::SealQuestion;

use super::local_tables::{self, LocalRules};

/// Unwind the stacks of a trace and name every frame, from a bundle alone.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  trace-resolve --bundle ./bundle trace.jsonl
  trace-resolve --bundle sha256:… --trust ./trust trace.jsonl --json
  DEBUGINFOD_URLS=https://debuginfod.example trace-resolve --bundle ./bundle --online --lock symbols.lock trace.jsonl

With --trust the bundle is verified first, and names that come from it carry the proof `sealed`. Frames without a name
are listed with the reason. The trace file is not changed.

Where a stack ends for want of an unwind rule, it is scanned for the one word that calls account for, by the code of the
executables in the bundle (with --local-files also of those where the process had them). Such a frame is marked `scan`: it
is a guess, and never counts as coverage. Where two words may be meant, none is taken.")]
pub struct Args {
    /// The bundle: sha256:… in the local store, a directory, or a registry reference.
    #[arg(long)]
    bundle: String,
    /// The trace: JSON Lines, plain, gzip or zstd.
    trace: PathBuf,
    #[command(flatten)]
    seal: SealQuestion,
    /// Also read the binaries where the process had them, for names and for unwind rules that the bundle lacks; the output says so.
    #[arg(long)]
    local_files: bool,
    /// Read no code for stacks that rules alone do not tell: no scan, and frame pointers are believed.
    #[arg(long)]
    no_scan: bool,
    #[command(flatten)]
    online: OnlineArgs,
    /// Give demangled names as `function`; the raw symbol stays beside it.
    #[arg(long)]
    demangle: bool,
    /// Show every step that was tried for each frame.
    #[arg(long)]
    explain: bool,
    /// One JSON object per frame and line.
    #[arg(long, conflicts_with = "event")]
    json: bool,
    /// Print the event `trace.resolved`, as the server takes it.
    #[arg(long)]
    event: bool,
    /// The local bundle store.
    #[arg(long)]
    store: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Answer> {
    let online = args.online.open()?;
    let trace = read_trace(&args.trace)?;
    let opened = bundle_ref::open(&args.bundle, args.store.as_ref())?;
    let Some(proof) = proof(&opened, &args.seal)? else { return Ok(Answer::No) };
    let tables = BundleTables::for_trace([&opened.bundle], &trace);
    let options = Options {
        local_files: args.local_files,
        online: online.is_some(),
        demangle: args.demangle,
        call_site: CallSite::of_arch(&trace.begin.arch),
        ..Options::default()
    };
    let resolver = Resolver::new(options).with_bundle_access(opened.bundle, proof, opened.access);
    let resolver = Online::ask(online.as_ref(), resolver);
    let (tables, local) = match args.local_files {
        true => local_tables::add(tables, &trace, &resolver, args.explain),
        false => (tables, LocalRules::default()),
    };
    let tables = if args.no_scan { tables } else { tables.with_code(&trace, &resolver) };
    for missing in tables.missing_code().iter().filter(|_| args.explain) {
        let (module, detail) = (visible(&missing.module), visible(&missing.detail));
        eprintln!("no code to scan by of {module}: {} {detail}", missing.reason.meaning());
    }
    let (event, threads) = resolve_trace(&trace, &resolver, &tables);
    online.as_ref().map_or(Ok(()), Online::finish)?;
    if !args.local_files {
        local_tables::advise(&threads);
    }
    let mut lacks = Lacks::default();
    threads.iter().flat_map(|thread| &thread.frames).for_each(|frame| lacks.warn(frame));

    let mut out = BufWriter::new(std::io::stdout().lock());
    if args.event {
        out.write_all(&Event::Resolved(event).to_line()?)?;
    } else {
        for thread in &threads {
            if args.json {
                print_json(&mut out, thread, &local, args.explain)?
            } else {
                print_thread(&mut out, thread, &local, args.explain)?
            }
        }
    }
    out.flush()?;
    Ok(Answer::Yes)
}

/// Reads a whole trace; errors name the file.
pub fn read_trace(path: &Path) -> Result<Trace> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("trace {name}"))?;
    if file.metadata().with_context(|| format!("trace {name}"))?.is_dir() {
        bail!("trace {name}: expected a file of JSON Lines, found a directory");
    }
    Ok(Trace::read_named(BufReader::new(file), &name, Limits::default())?)
}

/// The proof that the bundle's names carry: with a trust directory it is verified first. None where that failed; the
/// failed checks are on standard error.
pub(crate) fn proof(opened: &OpenedBundle, seal: &SealQuestion) -> Result<Option<Proof>> {
    let Some(trust) = seal.asked()? else { return Ok(Some(Proof::DigestKnown)) };
    let question = Question { seal: seal.clone(), ..Question::default() };
    let report = report_on(&opened.bundle, trust, &question, Default::default())?;
    if report.verdict == Verdict::Verified {
        return Ok(Some(Proof::Sealed));
    }
    for check in report.checks.iter().filter(|check| check.is_failed()) {
        eprintln!("refused: {check}");
    }
    Ok(None)
}

#[derive(Serialize)]
struct Line<'a> {
    thread: u32,
    thread_name: &'a str,
    depth: usize,
    /// Of a frame that is on no stack: the depth of the frame that it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<usize>,
    /// `local-file`, where the rules that it was found by are those of a file on this machine and of no bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<&'static str>,
    #[serde(flatten)]
    place: FramePlace,
    /// Of the outermost frame of a stack: why the walk ended there, and whether that is the stack's end.
    #[serde(flatten)]
    end: Option<StackEnd>,
    #[serde(flatten)]
    frame: FrameLine<'a>,
}

#[derive(Serialize)]
struct StackEnd {
    stop: StopReason,
    complete: bool,
}

fn print_json(out: &mut impl Write, thread: &ResolvedThread, local: &LocalRules, explain: bool) -> Result<()> {
    let end = || StackEnd { stop: thread.stop, complete: thread.is_complete() };
    for (depth, (frame, place)) in thread.frames.iter().zip(&thread.places).enumerate() {
        let line = Line {
            thread: thread.thread,
            thread_name: &thread.thread_name,
            depth,
            waits_for: thread.awaited_by(depth),
            rules: local.found(thread, depth).then_some("local-file"),
            place: *place,
            end: (depth + 1 == thread.physical()).then(end),
            frame: frame.line(explain),
        };
        serde_json::to_writer(&mut *out, &line)?;
        writeln!(out)?;
    }
    Ok(())
}

/// Prints one thread's stack for people.
fn print_thread(
    out: &mut impl Write,
    thread: &ResolvedThread,
    local: &LocalRules,
    explain: bool,
) -> std::io::Result<()> {
    let name = visible(&thread.thread_name);
    writeln!(out, "thread {} {name}: {} frames, {}", thread.thread, thread.physical(), thread.stop)?;
    for (depth, frame) in thread.frames.iter().enumerate() {
        if let Some(awaited) = thread.awaited.filter(|_| depth == thread.physical()) {
            writeln!(out, "  on no stack, waiting for #{awaited}:")?;
        }
        let rules = if local.found(thread, depth) { " of a local file" } else { "" };
        let origin = format!("[{}{rules} · {} · {}]", frame.unwind, frame.resolver, frame.proof);
        let module = visible(frame.module.as_ref().map_or("?", |module| file_name(&module.path)));
        if frame.frames.is_empty() {
            let offset = frame.module.as_ref().map(|module| format!("+{}", module.rva)).unwrap_or_default();
            let reason = frame.reason.map_or("no name", |reason| reason.meaning());
            writeln!(out, "  #{depth:<2} {} {module}{offset}  {reason}  {origin}", frame.ip)?;
        }
        for (inline_depth, source) in frame.frames.iter().enumerate() {
            if inline_depth == 0 {
                write!(out, "  #{depth:<2} {} ", frame.ip)?;
            } else {
                write!(out, "       {:18} ", "")?;
            }
            write_frame(out, frame, source)?;
            if source.inlined {
                writeln!(out)?;
            } else {
                writeln!(out, " ({module})  {origin}")?;
            }
        }
        if explain {
            write_steps(out, frame)?;
        }
    }
    writeln!(out)
}

/// The last part of a path.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
