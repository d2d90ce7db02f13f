//! `symseal symbolize`: addresses → frames.

mod live;
mod prove;
mod remote;

use std::io::{BufRead, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use symseal_module::{DebugId, Proof, Rva, Svma};
use symseal_resolver::{Options, Resolver, Symbolized};

use crate::bundle_ref::{self, OpenedBundle};
use crate::exit::{Answer, NotFound};
use crate::memory::StateArgs;

use remote::Remote;

/// Name addresses of one module, from a bundle alone; or of a running process.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal symbolize --bundle ./bundle --debug-id 93ac61ec5a8eb1396f9fbd350e3169a558528a40 0x401136
  symseal symbolize --remote registry.example/app:1.0 --trust ./trust --debug-id 93ac61ec… 0x401136
  symseal symbolize --bundle ./bundle --debug-id 93ac61ec… --prove frame.json 0x401136
  cut -d' ' -f1 addresses.txt | symseal symbolize --bundle sha256:… --debug-id 93ac61ec… --json
  symseal symbolize --pid 4711 --local-files --demangle 0x7f20b96d1040 0x55d0a1c2e1a9
  symseal symbolize --pid 4711 --bundle ./bundle 0x55d0a1c2e1a9

Addresses are stated addresses (svma), as llvm-symbolizer takes them; with --pid they are those of the process (avma), of any
of its modules, of code that it made itself, or of the kernel. Exit status 1: no address has a name.")]
pub struct Args {
    /// The bundle: sha256:… in the local store, a directory, or a registry reference.
    #[arg(long, required_unless_present_any = ["remote", "pid"])]
    bundle: Option<String>,
    /// A bundle in a registry, of which only the pages that are needed are read; each is verified.
    #[arg(long, value_name = "REF", conflicts_with_all = ["bundle", "prove"])]
    remote: Option<String>,
    /// With --remote: verify the bundle's seal against this trust directory first.
    #[arg(long, value_name = "DIR", requires = "remote")]
    trust: Option<PathBuf>,
    /// With --trust: remember here the newest policy and each log's checkpoints, and refuse what is older or of another history.
    #[arg(long, value_name = "DIR", requires = "trust")]
    state: Option<PathBuf>,
    /// Write a file that proves the name of the one address: `symseal verify-frame` checks it without the bundle.
    #[arg(long, value_name = "FILE")]
    prove: Option<PathBuf>,
    /// The module: build-id, GUID-age or uuid:…
    #[arg(long, value_parser = super::debug_id, required_unless_present = "pid")]
    debug_id: Option<DebugId>,
    /// A running process whose addresses these are. Its modules are named from --bundle, and with --local-files from their files.
    #[arg(long, conflicts_with_all = ["debug_id", "remote", "prove", "rva"])]
    pid: Option<u32>,
    /// With --pid: also read the files that the process has mapped, and debug files of this machine.
    #[arg(long, requires = "pid")]
    local_files: bool,
    /// Addresses in hexadecimal; read from standard input, one a line, when there are none.
    #[arg(value_parser = super::address)]
    addresses: Vec<u64>,
    /// Addresses are relative to the image base.
    #[arg(long)]
    rva: bool,
    /// Give demangled names as `function`; the raw symbol stays beside it.
    #[arg(long)]
    demangle: bool,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// The local bundle store.
    #[arg(long)]
    store: Option<PathBuf>,
}

/// Where the names come from.
enum Source {
    Bundle(Box<Resolver>),
    Remote(Box<Remote>),
}

pub fn run(args: &Args) -> Result<Answer> {
    if let Some(pid) = args.pid {
        return live::run(args, pid);
    }
    // clap does not ask for --pid beside what it cannot be with.
    if args.local_files {
        bail!("--local-files: expected --pid, whose files these are");
    }
    let debug_id = args.debug_id.as_ref().context("--debug-id: expected the module whose addresses these are")?;
    if let Some(to) = &args.prove {
        prove(args, debug_id, to)?;
    }
    let (mut source, image_base) = match &args.remote {
        Some(reference) => {
            let state = StateArgs { state: args.state.clone() };
            let remote = Remote::open(reference, debug_id, args.trust.as_deref(), &state)?;
            let image_base = remote.image_base();
            (Source::Remote(Box::new(remote)), image_base)
        }
        None => local(args, debug_id)?,
    };

    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut named = false;
    let mut answer = |value: u64| -> Result<()> {
        let svma = if args.rva { Rva(value).to_svma(image_base).unwrap_or(Svma(value)) } else { Svma(value) };
        let rva = if args.rva { Some(Rva(value)) } else { svma.to_rva(image_base) };
        // An address below the image base is in no function; the largest rva is in none either.
        let rva = rva.unwrap_or(Rva(u64::MAX));
        let symbolized = match &mut source {
            Source::Bundle(resolver) => resolver.symbolize(debug_id, rva),
            Source::Remote(remote) => remote.symbolize(rva, args.demangle)?,
        };
        named |= !symbolized.frames.is_empty();
        print(&mut out, Svma(value), &symbolized, args.json)
    };
    each_address(args, &mut answer)?;
    out.flush()?;
    if let Source::Remote(remote) = &source {
        eprintln!("{}", remote.account());
    }
    Ok(named.into())
}

/// Hands over the addresses that were given, or those on standard input, one after the other.
fn each_address(args: &Args, mut take: impl FnMut(u64) -> Result<()>) -> Result<()> {
    if !args.addresses.is_empty() {
        return args.addresses.iter().try_for_each(|address| take(*address));
    }
    let mut given = false;
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let line = line.context("standard input")?;
        let text = line.trim();
        if !text.is_empty() {
            let address = super::address(text)
                .map_err(|error| anyhow::anyhow!("standard input, line {}: {error}", number + 1))?;
            take(address)?;
            given = true;
        }
    }
    if !given {
        bail!("standard input: expected addresses, one a line, found none; give them as arguments or pipe them in");
    }
    Ok(())
}

fn open(args: &Args, debug_id: &DebugId) -> Result<OpenedBundle> {
    let reference = args.bundle.as_deref().unwrap_or_default();
    let opened = bundle_ref::open(reference, args.store.as_ref())?;
    if opened.bundle.module(debug_id).is_none() {
        return Err(NotFound(format!(
            "bundle {reference} has no module {debug_id}; `symseal bundle inspect` lists what it has"
        ))
        .into());
    }
    Ok(opened)
}

fn local(args: &Args, debug_id: &DebugId) -> Result<(Source, Svma)> {
    let opened = open(args, debug_id)?;
    let options = Options { demangle: args.demangle, ..Options::default() };
    let resolver = Resolver::new(options).with_bundle_access(opened.bundle, Proof::DigestKnown, opened.access);
    let image_base = resolver.image_base(debug_id).unwrap_or_default();
    Ok((Source::Bundle(Box::new(resolver)), image_base))
}

fn prove(args: &Args, debug_id: &DebugId, to: &Path) -> Result<()> {
    let [address] = args.addresses.as_slice() else {
        bail!("--prove {}: expected one address, found {}; a proof is of one name", to.display(), args.addresses.len());
    };
    let opened = open(args, debug_id)?;
    let image_base = opened.bundle.module(debug_id).map(|module| module.image_base).unwrap_or_default();
    let address = match args.rva {
        true => Rva(*address).to_svma(image_base).unwrap_or(Svma(*address)),
        false => Svma(*address),
    };
    let size = prove::write(&opened.bundle, debug_id, address, to)?;
    eprintln!("{}: {size} bytes; `symseal verify-frame` checks them", to.display());
    Ok(())
}

fn print(out: &mut impl Write, address: Svma, symbolized: &Symbolized, json: bool) -> Result<()> {
    if json {
        serde_json::to_writer(&mut *out, &symbolized.line(address))?;
        writeln!(out)?;
        return Ok(());
    }
    write!(out, "{address}")?;
    if symbolized.frames.is_empty() {
        let reason = symbolized.reason.map_or("no name", |reason| reason.meaning());
        writeln!(out, "  ??  {reason}")?;
    }
    for (depth, frame) in symbolized.frames.iter().enumerate() {
        let function = frame.function.as_deref().or(frame.symbol.as_deref()).unwrap_or("??");
        let blanks = if depth == 0 { 2 } else { format!("{address}").len() + 2 };
        write!(out, "{:blanks$}{function}", "")?;
        super::write_place(out, frame)?;
        writeln!(out, "{}", if frame.inlined { " (inlined)" } else { "" })?;
    }
    Ok(())
}
