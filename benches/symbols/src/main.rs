//! Symbol tables side by side: lookups, first symbols, sizes and build times of `.symx`, SymCache and addr2line.
//!
//!     cargo run --release -p symseal-bench-symbols [-- [--json] [--passes N] [NAME=BINARY[,DEBUG-FILE]]...]
//!
//!     cargo run --release -p symseal-bench-symbols -- --build symx|symcache [--threads N] NAME=BINARY[,DEBUG-FILE]
//!
//! prints what one build takes in a process of its own, peak memory included.
//!
//! Without subjects: the C library with its debug file (Debian's libc6-dbg), and the `symseal` executable of the
//! release profile (`cargo build --release` in the main workspace).

mod build;
mod clock;
mod cold;
mod peers;
mod report;
mod subject;

use anyhow::{Context, Result, bail};
use peers::{Addr2line, Peer, Symcache, SymcachePaths, Symx, SymxLines};
use report::{Figures, PeerFigures};
use std::num::NonZeroUsize;
use std::path::Path;
use subject::Subject;
use symseal_symx::{ContextForm, Form, NameForm};

/// Ours in its variants, and the others.
const PEERS: usize = 8;
/// Passes over all addresses, the fastest of which counts.
const PASSES: usize = 9;
/// Builds of each table, in turn, the fastest of which counts.
const BUILDS: usize = 5;
/// Fresh processes for each figure of a first symbol.
const FRESH_PROCESSES: usize = 21;

fn main() -> Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == cold::COMMAND) {
        return cold::child(&arguments);
    }
    if arguments.first().is_some_and(|first| first == build::COMMAND) {
        return build::run(&arguments);
    }
    let json = take_flag(&mut arguments, "--json");
    let passes = match arguments.iter().position(|argument| argument == "--passes") {
        Some(at) if at + 1 < arguments.len() => {
            let value = arguments.remove(at + 1).parse().context("--passes takes a number")?;
            arguments.remove(at);
            value
        }
        _ => PASSES,
    };
    let mut all = Vec::new();
    for subject in subject::parse(&arguments)? {
        all.push(measure(&subject, passes).with_context(|| format!("measuring {}", subject.name))?);
    }
    if all.is_empty() {
        bail!("nothing to measure: install libc6-dbg or build symseal with `cargo build --release`");
    }
    if json {
        report::print_json(&all)
    } else {
        report::print_tables(&all)
    }
    Ok(())
}

fn take_flag(arguments: &mut Vec<String>, flag: &str) -> bool {
    let before = arguments.len();
    arguments.retain(|argument| argument != flag);
    arguments.len() != before
}

fn measure(subject: &Subject, passes: usize) -> Result<Figures> {
    eprintln!("{}: building tables", subject.name);
    let directory = tempfile::tempdir()?;
    let mut built = peers::build_symx(subject, NonZeroUsize::MIN, Form::default())?;
    let mut built_symcache = peers::build_symcache(subject)?;
    for _ in 1..BUILDS {
        built.times = built.times.least(peers::build_symx(subject, NonZeroUsize::MIN, Form::default())?.times);
        built_symcache.times = built_symcache.times.least(peers::build_symcache(subject)?.times);
    }
    let whole = Form { names: NameForm::Whole, contexts: ContextForm::Whole, ..Form::default() };
    let built_whole = peers::build_symx(subject, NonZeroUsize::MIN, whole)?;
    let symx_path = directory.path().join("module.symx");
    let symcache_path = directory.path().join("module.symcache");
    let whole_path = directory.path().join("whole.symx");
    std::fs::write(&symx_path, &built.bytes)?;
    std::fs::write(&whole_path, &built_whole.bytes)?;
    std::fs::write(&symcache_path, &built_symcache.bytes)?;

    let addresses = subject.addresses()?;
    let symx_bytes = map(&symx_path)?;
    let whole_bytes = map(&whole_path)?;
    let symcache_bytes = map(&symcache_path)?;
    let (decompression_ns, sections) = clock::measure(|| subject.dwarf_sections());
    let sections = sections?;
    let raw_dwarf = sections.raw_bytes();
    let symx = Symx::open(&symx_bytes)?;
    let lines = SymxLines::open(&symx_bytes)?;
    let columns = Symx::with_columns(&symx_bytes)?;
    let symbols = Symx::with_symbols(&symx_bytes)?;
    let whole = Symx::whole(&whole_bytes)?;
    let symcache = Symcache::open(&symcache_bytes)?;
    let symcache_paths = SymcachePaths::open(&symcache_bytes)?;
    let addr2line = Addr2line::open(&sections)?;
    let peers: [&dyn Peer; PEERS] = [&symx, &lines, &columns, &symbols, &whole, &symcache_paths, &symcache, &addr2line];

    eprintln!("{}: {} addresses, {passes} passes", subject.name, addresses.len());
    let mut best = [u64::MAX; PEERS];
    let mut sums = [peers::Sum::default(); PEERS];
    // Passes take turns, so that a busy moment of the machine meets every peer.
    for _ in 0..=passes {
        for (at, peer) in peers.iter().enumerate() {
            let (nanoseconds, sum) = clock::measure(|| peer.all(&addresses));
            best[at] = best[at].min(nanoseconds);
            sums[at] = sum;
        }
    }
    eprintln!("{}: first symbols", subject.name);
    let debug = subject.debug_path();
    let first = |kind: &str, path: &Path| cold::first_symbol(kind, path, addresses[0], FRESH_PROCESSES);
    let firsts = [
        Some(first(cold::SYMX, &symx_path)?),
        None,
        None,
        None,
        Some(first(cold::SYMX, &whole_path)?),
        Some(first(cold::SYMCACHE, &symcache_path)?),
        None,
        Some(first(cold::ADDR2LINE, debug)?),
    ];
    let figures = peers.iter().zip(best).zip(sums).zip(firsts).map(|(((peer, nanoseconds), sum), first)| PeerFigures {
        name: peer.name(),
        lookup_ns: nanoseconds as f64 / addresses.len() as f64,
        first_symbol_ns: first,
        sum,
    });
    Ok(Figures {
        subject: subject.name.clone(),
        addresses: addresses.len(),
        raw_dwarf,
        debug_file: std::fs::metadata(debug)?.len(),
        counts: symx.counts(),
        whole: whole.counts(),
        symcache_bytes: built_symcache.bytes.len() as u64,
        symx_build: built.times,
        symcache_build: built_symcache.times,
        decompression_ns,
        peers: figures.collect(),
    })
}

/// A map of a file that this process has just written into a directory of its own.
fn map(path: &Path) -> Result<memmap2::Mmap> {
    let file = std::fs::File::open(path)?;
    // SAFETY: nobody else knows the temporary directory, and nothing here writes the file again.
    Ok(unsafe { memmap2::Mmap::map(&file)? })
}
