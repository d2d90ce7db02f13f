//! Addresses of a running process.

use std::io::Write;

use anyhow::{Result, bail};
use serde::Serialize;
use symseal_module::{Avma, DebugId, MissReason, Proof, Quality, ResolverStep, Rva, UnwindMethod};
use symseal_resolver::live::{LiveAddress, LiveLimits, LiveSymbolizer, ProcessError};
use symseal_resolver::{DigestRef, Options, ResolvedFrame, Resolver, SourceFrame, Tried};

use super::Args;
use super::questions::{Question, in_portions};
use crate::exit::Answer;
use crate::frames::{Lacks, lack, write_frame, write_lack, write_steps};
use crate::online::Online;
use crate::output::visible;

/// One line of `symbolize --pid --json`.
#[derive(Serialize)]
struct Line<'a> {
    address: Avma,
    module: Option<&'a str>,
    debug_id: Option<&'a DebugId>,
    module_offset: Option<Rva>,
    resolver: ResolverStep,
    quality: Quality,
    proof: Proof,
    reason: Option<MissReason>,
    /// What a person wants to know beyond the reason.
    #[serde(skip_serializing_if = "str::is_empty")]
    detail: &'a str,
    symbol_offset: Option<Rva>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    approximate: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    folded: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    aliases: &'a [String],
    frames: &'a [SourceFrame],
    #[serde(skip_serializing_if = "Option::is_none")]
    tried: Option<&'a [Tried]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digests: Option<&'a [DigestRef]>,
}

pub(super) fn run(args: &Args, pid: u32, online: Option<&Online>) -> Result<Answer> {
    let options = Options {
        local_files: args.local_files,
        online: online.is_some(),
        demangle: args.demangle,
        ..Options::default()
    };
    let mut resolver = Resolver::new(options);
    if let Some(reference) = &args.bundle {
        let Some(bundle) = args.naming_bundle(reference)? else { return Ok(Answer::No) };
        resolver = bundle.join(resolver);
    }
    let symbolizer = LiveSymbolizer::new(Online::ask(online, resolver), LiveLimits::default());
    let process = match symbolizer.process(pid) {
        Ok(process) => Ok(process),
        // A process that is not there is a wrong call; one that ends from now on, or cannot be looked at, costs names, and is no error.
        Err(error @ ProcessError::NoSuchProcess { .. }) => return Err(error.into()),
        Err(error) => {
            eprintln!("warning: {}", visible(&error.to_string()));
            Err(error)
        }
    };
    let (mut named, mut lacks) = (false, Lacks::default());
    let checked = |question: &Question| match &question.debug_id {
        Some(id) => bail!("--pid: expected addresses of the process, found one of the module {id}"),
        None => Ok(()),
    };
    in_portions(args, checked, |out, questions| {
        let addresses: Vec<LiveAddress> =
            questions.iter().map(|question| address_of(args, Avma(question.address))).collect();
        // Standard input may have more of the same modules.
        let frames = match &process {
            Ok(process) if args.addresses.is_empty() => process.resolve(&addresses),
            Ok(process) => process.resolve_once(&addresses),
            Err(error) => symbolizer.without_process(&addresses, error),
        };
        for frame in frames {
            named |= !frame.frames.is_empty();
            lacks.warn(&frame);
            if args.json {
                serde_json::to_writer(&mut *out, &line(&frame, args.explain))?;
                writeln!(out)?;
            } else {
                print(out, &frame, args.explain)?;
            }
        }
        Ok(())
    })?;
    Ok(named.into())
}

fn line(frame: &ResolvedFrame, explain: bool) -> Line<'_> {
    let shape = frame.line(explain);
    Line {
        address: frame.ip,
        module: shape.module,
        debug_id: shape.debug_id,
        module_offset: shape.module_offset,
        resolver: shape.resolver,
        quality: shape.quality,
        proof: shape.proof,
        reason: shape.reason,
        detail: lack(frame),
        symbol_offset: shape.symbol_offset,
        approximate: shape.approximate,
        folded: shape.folded,
        aliases: shape.aliases,
        frames: shape.frames,
        tried: shape.tried,
        digests: shape.digests,
    }
}

/// An address as it was said to be.
fn address_of(args: &Args, ip: Avma) -> LiveAddress {
    match args.return_addresses {
        true => LiveAddress::return_address(ip, UnwindMethod::Context),
        false => LiveAddress::instruction(ip),
    }
}

fn print(out: &mut impl Write, frame: &ResolvedFrame, explain: bool) -> std::io::Result<()> {
    let address = frame.ip.to_string();
    let name = |path: &str| visible(path.rsplit('/').next().unwrap_or_default()).to_string();
    let module = frame.module.as_ref().map(|module| (name(&module.path), module.rva));
    if frame.frames.is_empty() {
        let place = module.as_ref().map_or_else(|| "??".to_string(), |(name, rva)| format!("{name}+{rva}"));
        write!(out, "{address}  {place}  ")?;
        write_lack(out, frame)?;
    }
    for (depth, source) in frame.frames.iter().enumerate() {
        let shown = if depth == 0 { address.as_str() } else { "" };
        write!(out, "{shown:width$}  ", width = address.len())?;
        write_frame(out, frame, source)?;
        match (source.inlined, &module) {
            (true, _) => writeln!(out)?,
            (false, Some((name, _))) => writeln!(out, " ({name})  [{}]", frame.resolver)?,
            (false, None) => writeln!(out, "  [{}]", frame.resolver)?,
        }
    }
    if explain { write_steps(out, frame) } else { Ok(()) }
}
