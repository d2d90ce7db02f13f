//! `symseal symbolize`: addresses → frames.

use std::io::{BufRead, BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use symseal_module::{DebugId, Proof, Rva, Svma};
use symseal_resolver::{Options, Resolver, Symbolized};

use crate::bundle_ref;
use crate::exit::{Answer, NotFound};

/// Name addresses of one module, from a bundle alone.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal symbolize --bundle ./bundle --debug-id 93ac61ec5a8eb1396f9fbd350e3169a558528a40 0x401136
  cut -d' ' -f1 addresses.txt | symseal symbolize --bundle sha256:… --debug-id 93ac61ec… --json

Addresses are stated addresses (svma), as llvm-symbolizer takes them. Exit status 1: no address has a name.")]
pub struct Args {
    /// The bundle: sha256:… in the local store, a directory, or a registry reference.
    #[arg(long)]
    bundle: String,
    /// The module: build-id, GUID-age or uuid:…
    #[arg(long, value_parser = super::debug_id)]
    debug_id: DebugId,
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

pub fn run(args: &Args) -> Result<Answer> {
    let opened = bundle_ref::open(&args.bundle, args.store.as_ref())?;
    if opened.bundle.module(&args.debug_id).is_none() {
        return Err(NotFound(format!(
            "bundle {} has no module {}; `symseal bundle inspect` lists what it has",
            args.bundle, args.debug_id
        ))
        .into());
    }
    let options = Options { demangle: args.demangle, ..Options::default() };
    let resolver = Resolver::new(options).with_bundle_access(opened.bundle, Proof::DigestKnown, opened.access);
    let image_base = resolver.image_base(&args.debug_id).unwrap_or_default();

    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut named = false;
    let mut answer = |value: u64| -> Result<()> {
        let svma = if args.rva { Rva(value).to_svma(image_base).unwrap_or(Svma(value)) } else { Svma(value) };
        let rva = if args.rva { Some(Rva(value)) } else { svma.to_rva(image_base) };
        // An address below the image base is in no function; the largest rva is in none either.
        let symbolized = resolver.symbolize(&args.debug_id, rva.unwrap_or(Rva(u64::MAX)));
        named |= !symbolized.frames.is_empty();
        print(&mut out, Svma(value), &symbolized, args.json)
    };
    if args.addresses.is_empty() {
        let mut given = false;
        for (number, line) in std::io::stdin().lock().lines().enumerate() {
            let line = line.context("standard input")?;
            let text = line.trim();
            if !text.is_empty() {
                let address = super::address(text)
                    .map_err(|error| anyhow::anyhow!("standard input, line {}: {error}", number + 1))?;
                answer(address)?;
                given = true;
            }
        }
        if !given {
            bail!("standard input: expected addresses, one a line, found none; give them as arguments or pipe them in");
        }
    } else {
        args.addresses.iter().try_for_each(|address| answer(*address))?;
    }
    out.flush()?;
    Ok(named.into())
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
