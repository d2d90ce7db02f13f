//! `trace-capture`: registers, stacks and modules of a live process.

use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use symseal_artifact::ObjectFile;
use symseal_bundle::Digest;
use symseal_capture::{Options, capture};
use symseal_module::DebugId;
use symseal_resolver::FileBytes;
use symseal_trace::{Compression, Event, Trace, TraceCapture};

use crate::demo::narrator::seconds;
use crate::exit::Answer;
use crate::output::visible;
use crate::output_file::OutputFile;

/// The largest file that is read for an id, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Capture every thread of a process by ptrace: registers, stack bytes, module map, vDSO.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  trace-capture --pid 1234 --output trace.jsonl
  trace-capture --pid $(pidof app) --output trace.jsonl.zst

Captured are processes of x86_64 Linux; those of 32 bits are refused. The process is stopped for a fraction of a millisecond a thread (several where they or others keep the processors busy; 50 ms where one sleeps in the kernel and
cannot be stopped, which is lost then) and goes on. As with any debugger, a few calls in which it waits return early with EINTR (epoll_wait, semtimedop, sigtimedwait, recv with a timeout). The trace holds stack bytes, and so whatever
secrets lie on the stack; of threads of Go programs also the stack of the goroutine that they work for. A name that ends in .gz or .zst is compressed; without --output the trace goes to standard output.")]
pub struct Args {
    /// The process.
    #[arg(long)]
    pid: u32,
    /// The trace file; it appears when it is complete, and replaces one of the same name. A pipe or a device is written into.
    #[arg(long)]
    output: Option<PathBuf>,
    /// The bundle that the trace belongs to, as the trace is to remember it; `trace-replay` then needs no --bundle.
    #[arg(long, value_name = "DIGEST")]
    bundle: Option<Digest>,
    /// Bytes of stack to copy from each stack pointer upwards.
    #[arg(long, default_value_t = Options::default().stack_copy_bytes)]
    stack_bytes: u64,
    /// Describe kernel frames by BTF; this version captures no kernel frames.
    #[arg(long, hide = true)]
    with_btf: bool,
}

pub fn run(args: &Args) -> Result<Answer> {
    if args.with_btf {
        eprintln!("note: --with-btf describes kernel frames, and this version captures none by ptrace");
    }
    let options = Options { stack_copy_bytes: args.stack_bytes, identify: Some(id_by_code), ..Options::default() };
    // Before the process is stopped: an output that cannot be written should cost it nothing.
    let output = match &args.output {
        Some(output) => Some((OutputFile::open(output)?, output)),
        None if std::io::stdout().is_terminal() => {
            bail!("a trace is no text for a terminal: name a file with --output, or pipe it")
        }
        None => None,
    };
    let mut trace = capture(args.pid, &options)?;
    trace.after.push(Event::Capture(summary(&trace, args.bundle)));
    match output {
        Some((file, path)) => write_into(file, &trace, path)?,
        None => {
            trace.write(std::io::stdout().lock())?;
        }
    }
    for sample in &trace.samples {
        let stopped = seconds(std::time::Duration::from_nanos(sample.stopped_ns));
        let bytes: usize = sample.stacks.iter().map(|stack| stack.bytes.len()).sum();
        let name = visible(&sample.thread_name);
        eprintln!("thread {} {name}: stopped {stopped}, {bytes} bytes of stack", sample.thread);
    }
    let why =
        if trace.end.lost > 0 { " (ended meanwhile, or sleeping in the kernel where nothing stops them)" } else { "" };
    eprintln!("{} threads, {} modules, {} lost{why}", trace.samples.len(), trace.modules.len(), trace.end.lost);
    Ok(Answer::Yes)
}

/// The id of a file without a build-id: by its code, as a bundle has it.
fn id_by_code(file: File) -> Option<DebugId> {
    let bytes = FileBytes::read(file, MAX_FILE_BYTES).ok()?;
    ObjectFile::parse(&bytes).ok()?.debug_id().cloned()
}

/// The trace in one event, with the bundle that it belongs to.
pub fn summary(trace: &Trace, bundle: Option<Digest>) -> TraceCapture {
    TraceCapture { symbol_bundle_ref: bundle.map(|digest| digest.to_string()), ..trace.capture_summary() }
}

/// Writes the trace so that it appears whole or not at all.
pub fn write(trace: &Trace, output: &Path) -> Result<()> {
    write_into(OutputFile::open(output)?, trace, output)
}

/// Compressed as the name says.
fn write_into(mut file: OutputFile, trace: &Trace, output: &Path) -> Result<()> {
    let named = || format!("output {}", output.display());
    let compression = match output.extension().and_then(|extension| extension.to_str()) {
        Some("gz") => Compression::Gzip,
        Some("zst") => Compression::Zstd,
        _ => Compression::Plain,
    };
    trace.write_compressed(&mut file, compression).with_context(named)?;
    file.finish().with_context(named)
}
