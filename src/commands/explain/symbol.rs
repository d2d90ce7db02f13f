//! `symseal explain symbol`: an address's name, every step that was asked for it, and the digests that it rests on.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args as ClapArgs;
use serde_json::json;
use symseal_module::{Avma, DebugId, MissReason, Proof, Rva, Svma, UnwindMethod};
use symseal_resolver::{DigestRef, Options, Outcome, ResolvedFrame, Resolver, SourceFrame, Symbolized, Tried};

use super::Question;
use crate::bundle_ref;
use crate::commands::trace::resolve::proof;
use crate::exit::Answer;
use crate::frames::{said, write_frame};
use crate::local_module;
use crate::online::{Online, OnlineArgs};
use crate::output::{out, outln, visible};
use crate::table::Table;

/// Name one address, and say which steps were asked, what each of them said, and which digests the name rests on.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal explain symbol ./bundle 93ac61ec5a8eb1396f9fbd350e3169a558528a40 0x401136 --trust ./trust
  symseal explain symbol sha256:9f2c… 93ac61ec… 0x401136 --file /usr/bin/app --json

The address is a stated one (svma), as llvm-symbolizer takes it. With --trust the bundle is verified first, and the proof of what it names is `sealed`. With
--file the steps behind the bundle are asked too: a separate debug file where debuggers look for one, then this file. docs/resolving.md explains
each step and word. Exit status 1: the address has no name, or the bundle does not hold.")]
pub struct Args {
    #[command(flatten)]
    asked: Question,
    /// The module's own file: it, and debug files of this machine, may be read as well.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Look for separate debug files below this directory, in place of /usr/lib/debug. Repeat for more.
    #[arg(long, value_name = "DIR", requires = "file")]
    debug_directory: Vec<PathBuf>,
    #[command(flatten)]
    online: OnlineArgs,
}

pub(super) fn run(args: &Args) -> Result<Answer> {
    let opened = bundle_ref::open(&args.asked.bundle, args.asked.store.as_ref())?;
    let Some(proof) = proof(&opened, &args.asked.seal)? else { return Ok(Answer::No) };
    let online = args.online.open()?;
    let options = Options {
        local_files: args.file.is_some(),
        online: online.is_some(),
        demangle: args.asked.demangle,
        ..Options::default()
    };
    let mut resolver = Resolver::new(options).with_bundle_access(opened.bundle, proof, opened.access);
    if !args.debug_directory.is_empty() {
        resolver = resolver.with_debug_directories(args.debug_directory.clone());
    }
    let resolver = Online::ask(online.as_ref(), resolver);
    let image_base = image_base(&resolver, args)?;
    let svma = if args.asked.rva {
        Rva(args.asked.address).to_svma(image_base).unwrap_or(Svma(args.asked.address))
    } else {
        Svma(args.asked.address)
    };
    // An address below the image base is in no function; the largest rva is in none either.
    let rva = svma.to_rva(image_base).unwrap_or(Rva(u64::MAX));
    let resolver = resolver.expecting(&args.asked.debug_id, &[rva]);
    let found = ask(&resolver, args, (svma, rva, image_base))?;
    online.as_ref().map_or(Ok(()), Online::finish)?;
    if args.asked.json {
        outln!("{:#}", in_json(&found, args, svma));
    } else {
        tell(&found, svma)?;
    }
    Ok((!found.frames.is_empty()).into())
}

/// Where the module says that it is to be loaded: as a bundle or a server has it, else as its own file says.
fn image_base(resolver: &Resolver, args: &Args) -> Result<Svma> {
    let name = args.file.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy());
    // A program database does not say where its program is loaded.
    let known = match args.asked.debug_id {
        DebugId::Pdb { .. } => resolver.image_base(&args.asked.debug_id),
        _ => resolver.image_base_online(&args.asked.debug_id, name.as_deref()),
    };
    if let Some(known) = known {
        return Ok(known);
    }
    let Some(file) = &args.file else { return Ok(Svma::default()) };
    let in_file = resolver.image_base_in(file, &args.asked.debug_id);
    // What is wrong with the file is said by the steps that read it.
    Ok(in_file.unwrap_or_default())
}

/// Asks for the address in the module alone, or in the file where it was said to be.
fn ask(resolver: &Resolver, args: &Args, (svma, rva, image_base): (Svma, Rva, Svma)) -> Result<Symbolized> {
    let Some(file) = &args.file else { return Ok(resolver.symbolize(&args.asked.debug_id, rva)) };
    let map = local_module::alone(file, &args.asked.debug_id, image_base)?;
    let ResolvedFrame { symbol_offset, answer, .. } = resolver.resolve(&map, Avma(svma.0), true, UnwindMethod::Context);
    Ok(Symbolized { rva, symbol_offset, answer })
}

fn in_json(found: &Symbolized, args: &Args, svma: Svma) -> serde_json::Value {
    json!({
        "debug_id": args.asked.debug_id,
        "address": svma,
        "rva": found.rva,
        "resolver": found.resolver,
        "quality": found.quality,
        "proof": found.proof,
        "approximate": found.approximate,
        "folded": found.folded,
        "reason": found.reason,
        "frames": found.frames,
        "aliases": found.aliases,
        "tried": &*found.tried,
        "digests": &*found.digests,
    })
}

fn tell(found: &Symbolized, svma: Svma) -> Result<()> {
    if found.frames.is_empty() {
        outln!("{svma}  has no name: {}", found.reason.map_or("no step was asked", MissReason::meaning));
    }
    for (depth, frame) in found.frames.iter().enumerate() {
        let lead = if depth == 0 { svma.to_string() } else { " ".repeat(svma.to_string().len()) };
        outln!("{lead}  {}", line_of(found, frame)?);
    }
    if !found.aliases.is_empty() {
        let aliases: Vec<String> = found.aliases.iter().map(|alias| visible(alias).to_string()).collect();
        outln!("{}  also called {}", " ".repeat(svma.to_string().len()), aliases.join(", "));
    }
    outln!();
    let mut steps = Table::new(&["step", "outcome", "what that means"]);
    for tried in found.tried.iter() {
        let Tried { step, outcome, .. } = tried;
        let (word, meaning) = match outcome {
            Outcome::Hit => ("answered".to_owned(), step.meaning()),
            Outcome::Miss(reason) => (format!("missed: {reason}"), reason.meaning()),
            Outcome::Skipped(reason) => (format!("skipped: {reason}"), reason.meaning()),
        };
        let detail = visible(&said(tried));
        let meaning = if detail.is_empty() { meaning.to_owned() } else { format!("{meaning} {detail}") };
        steps.row([step.to_string(), word, meaning]);
    }
    out!("{steps}");
    outln!("\nquality  {}: {}", found.quality, found.quality.meaning());
    outln!("proof    {}: {}", found.proof, found.proof.meaning());
    if found.approximate {
        outln!("size unknown: only the next symbol bounds the function");
    }
    if found.folded {
        outln!("one of several functions with this code: nobody can say which of them was called");
    }
    if found.digests.is_empty() {
        return Ok(());
    }
    outln!("\nThe name rests on");
    for DigestRef { of, digest } in found.digests.iter() {
        outln!("  {:13}  {digest}", json!(of).as_str().unwrap_or_default());
    }
    if found.proof == Proof::DigestKnown {
        outln!("  (nobody's seal was verified: say --trust DIR)");
    }
    Ok(())
}

/// Function, symbol and place.
fn line_of(found: &Symbolized, frame: &SourceFrame) -> Result<String> {
    let mut line = Vec::new();
    write_frame(&mut line, found, frame)?;
    let mut text = String::from_utf8_lossy(&line).into_owned();
    if let Some(symbol) = frame.symbol.as_deref().filter(|symbol| Some(*symbol) != frame.function.as_deref()) {
        text.push_str(&format!(" [{}]", visible(symbol)));
    }
    Ok(text)
}
