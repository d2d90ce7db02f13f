//! Addresses of a running process.

use std::io::{BufWriter, Write};

use anyhow::{Result, bail};
use serde::Serialize;
use symseal_module::{Avma, DebugId, MissReason, Proof, Quality, ResolverStep, Rva};
use symseal_resolver::live::{LiveAddress, LiveProcess};
use symseal_resolver::{DigestRef, Options, Outcome, ResolvedFrame, Resolver, SourceFrame, Tried};

use super::Args;
use super::questions::{Question, in_portions};
use crate::bundle_ref::NamingBundle;
use crate::exit::Answer;
use crate::frames::write_frame;
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
        resolver = NamingBundle::open(reference, args.store.as_ref())?.join(resolver);
    }
    // A process that is not there is a wrong call; one that ends from now on costs names, and is no error.
    let process = LiveProcess::attach(pid, Online::ask(online, resolver))?;
    let (mut out, mut named) = (BufWriter::new(std::io::stdout().lock()), false);
    let checked = |question: &Question| match &question.debug_id {
        Some(id) => bail!("--pid: expected addresses of the process, found one of the module {id}"),
        None => Ok(()),
    };
    in_portions(&args.addresses, checked, |questions| {
        let addresses: Vec<LiveAddress> =
            questions.iter().map(|question| LiveAddress::instruction(Avma(question.address))).collect();
        for frame in process.resolve(&addresses) {
            named |= !frame.frames.is_empty();
            if args.json {
                serde_json::to_writer(&mut out, &line(&frame, args.explain))?;
                writeln!(out)?;
            } else {
                print(&mut out, &frame)?;
            }
        }
        Ok(out.flush()?)
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
        detail: detail(frame),
        symbol_offset: shape.symbol_offset,
        approximate: shape.approximate,
        folded: shape.folded,
        frames: shape.frames,
        tried: shape.tried,
        digests: shape.digests,
    }
}

/// What the step whose reason is given said besides.
fn detail(frame: &ResolvedFrame) -> &str {
    let is_it = |outcome: Outcome| matches!(outcome, Outcome::Miss(reason) if Some(reason) == frame.reason);
    let tried = frame.tried.iter().rev().find(|tried| is_it(tried.outcome) && !tried.detail.is_empty());
    tried.map_or("", |tried| &tried.detail)
}

fn print(out: &mut impl Write, frame: &ResolvedFrame) -> std::io::Result<()> {
    let address = frame.ip.to_string();
    let name = |path: &str| visible(path.rsplit('/').next().unwrap_or_default()).to_string();
    let module = frame.module.as_ref().map(|module| (name(&module.path), module.rva));
    if frame.frames.is_empty() {
        let place = module.as_ref().map_or_else(|| "??".to_string(), |(name, rva)| format!("{name}+{rva}"));
        let reason = frame.reason.map_or("no name", MissReason::meaning);
        write!(out, "{address}  {place}  {reason}")?;
        match detail(frame) {
            "" => writeln!(out)?,
            detail => writeln!(out, " ({})", visible(detail))?,
        }
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
    Ok(())
}
