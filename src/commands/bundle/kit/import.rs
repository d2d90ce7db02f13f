//! `symseal bundle kit import`: the kit is verified, then its bundle, and only then is anything to be seen.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args as ClapArgs;
use symseal_builder::kit::Kit;
use symseal_bundle::verify::{Report, Verdict};
use symseal_bundle::{Bundle, Digest, LayoutDir, Staging};
use symseal_seal::checks::id;
use symseal_seal::{
    Check, CheckStatus, Checkpoint, ConsistencyProof, KitStatement, LogIdentity, Parts, Seen, SignedCheckpoint, Trust,
};
use symseal_sealer::{LoadTrustError, load_trust};

use crate::commands::bundle::verify::{self, Question};
use crate::exit::Answer;
use crate::memory::Memory;
use crate::output::outln;
use crate::places::{store_dir, trust_dir};
use crate::progress;

/// Verify a kit and its bundle, and lay the bundle into the local store.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal bundle kit import /media/app-1.0.tar --trust ./trust --state ./state
  symseal bundle kit import /media/kit --trust ./trust --output ./bundle

Nothing is written where the kit lies, and nothing of it is used before its seal, every one of its files, the bundle's seal
and the log's checkpoints were verified. Exit status 1: at least one check failed, and nothing was imported.")]
pub struct Args {
    /// The kit: a directory or a tar file.
    kit: PathBuf,
    /// An OCI layout of its own, instead of the local store.
    #[arg(long, value_name = "LAYOUT")]
    output: Option<PathBuf>,
    #[command(flatten)]
    question: Question,
}

pub(super) fn run(args: &Args) -> Result<Answer> {
    let kit = Kit::open(&args.kit)?;
    let question = &args.question;
    let memory = Memory::open(&question.seal.state)?;
    let (report, imported) = match load_trust(&trust_dir(question.seal.trust.as_ref())?) {
        Ok(trust) => {
            let (mut report, imported) = import(&kit, args, &trust, &memory)?;
            if imported.is_none() {
                report.memory = memory.record(report.verdict, &trust, &[], &[]);
            }
            (report, imported)
        }
        Err(LoadTrustError::Trust { source, .. }) => {
            let mut report = Report::refused_before_start(source.to_check());
            report.memory = memory.unchanged(report.verdict);
            (report, None)
        }
        Err(unreadable) => return Err(unreadable.into()),
    };
    if question.json {
        outln!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        verify::print(&report, question.explain);
        if let Some(into) = &imported {
            outln!(
                "\nimported {} into {}",
                report.bundle.map_or_else(String::new, |digest| digest.to_string()),
                into.display()
            );
        }
    }
    Ok(imported.is_some().into())
}

/// The report, and where the bundle is now; `None` where it was refused.
fn import(kit: &Kit, args: &Args, trust: &Trust, memory: &Memory) -> Result<(Report, Option<PathBuf>)> {
    let question = &args.question;
    let (at, _) = question.seal.time();
    let sealed = match kit.verify_seal(trust, at) {
        Ok(sealed) => sealed,
        Err(check) => return Ok((Report::refused_before_start(check), None)),
    };
    let statement = &sealed.statement;
    let bar = progress::bytes_bar(format!("verifying {}", args.kit.display()));
    bar.inc_length(kit.bytes());
    let files = kit.check_files(statement, &|bytes| bar.inc(bytes));
    bar.finish_and_clear();
    let seal = Check::passed(id::KIT_SEAL, format!("a list of files by {}", sealed.signer));
    if files.is_failed() {
        let mut report = Report::refused_before_start(files);
        report.prepend([seal]);
        return Ok((report, None));
    }
    let into = match &args.output {
        Some(output) => output.clone(),
        None => store_dir(question.store.as_ref())?,
    };
    let is_new = !into.exists();
    let taken = take(kit, args, statement, trust, memory, &into);
    let is_in = taken.as_ref().is_ok_and(|report| report.verdict == Verdict::Verified);
    if is_new
        && !is_in
        && let Ok(layout) = LayoutDir::open(&into)
    {
        // What was made for this alone goes again, but not what somebody else has put there since.
        let _ = layout.remove_if_empty();
    }
    let mut report = taken?;
    report.prepend([seal, files]);
    Ok((report, is_in.then_some(into)))
}

/// Copies the bundle beside `into`, verifies the copy, and lets it be seen where all of it holds.
fn take(
    kit: &Kit,
    args: &Args,
    statement: &KitStatement,
    trust: &Trust,
    memory: &Memory,
    into: &Path,
) -> Result<Report> {
    let named: Digest = statement.predicate.bundle.parse().context("the kit's statement")?;
    let mut proofs = args.question.seal.consistency()?;
    proofs.extend(kit.consistency(statement)?);
    let target = LayoutDir::create(into).with_context(|| format!("the layout {}", into.display()))?;
    let staging = Staging::new(&target)?;
    let bar = progress::bytes_bar(format!("copying {}", args.kit.display()));
    bar.inc_length(kit.bytes());
    kit.copy_into(statement, staging.layout(), &|bytes| bar.inc(bytes))?;
    bar.finish_and_clear();
    // From here on the copy is looked at: it is what will be used.
    let mut report = match Bundle::open(staging.layout().clone(), Some(&named)) {
        Ok(bundle) if !is_named(statement, &bundle) => Report::refused_before_start(other_name(statement, &bundle)),
        Ok(bundle) => verify::examine(&bundle, trust, memory, &args.question, Parts::default(), &proofs)?,
        Err(error) => Report::refused_before_start(verify::refusal(error.into())?),
    };
    let (log, newer) = match newest(kit, statement, trust, memory, &report.checkpoints, &proofs) {
        Ok(found) => found,
        Err(check) => (check, Vec::new()),
    };
    report.prepend([log]);
    report.checkpoints.extend(newer);
    if report.verdict == Verdict::Verified {
        staging.commit()?;
        report.memory = memory.record(report.verdict, trust, &report.checkpoints, &proofs);
    }
    Ok(report)
}

/// Whether the signed list is of a release of the bundle's name and version: by the name is judged whether its key may sign it.
fn is_named(statement: &KitStatement, bundle: &Bundle) -> bool {
    let (release, index) = (&statement.predicate.release, bundle.index());
    release.name == index.name && release.version == index.version
}

fn other_name(statement: &KitStatement, bundle: &Bundle) -> Check {
    let (release, index) = (&statement.predicate.release, bundle.index());
    let expected = format!("a list for {} {}, as the bundle's index says", index.name, index.version);
    Check::failed(id::KIT_SEAL, expected, format!("{} {}", release.name, release.version))
}

/// The check `kit.log`, and the checkpoints to remember.
fn newest(
    kit: &Kit,
    statement: &KitStatement,
    trust: &Trust,
    memory: &Memory,
    sealed: &[(LogIdentity, Checkpoint)],
    proofs: &[ConsistencyProof],
) -> Result<(Check, Vec<(LogIdentity, Checkpoint)>), Check> {
    let failed = |expected: String, found: String| Check::failed(id::KIT_LOG, expected, found);
    let texts =
        kit.checkpoints(statement).map_err(|error| Check::refused_by(id::KIT_LOG, "the kit's checkpoints", &error))?;
    if texts.is_empty() {
        return Ok((
            Check::skipped(id::KIT_LOG, "the kit brings no newer checkpoint; the seal has its own"),
            Vec::new(),
        ));
    }
    // What the seals show is seen now.
    let mut shown = Seen::default();
    shown.record(trust, sealed, proofs);
    let mut newest = Vec::new();
    let mut told = Vec::new();
    let mut unproved = None;
    for (path, text) in texts {
        let signed = SignedCheckpoint::parse(&text).map_err(|error| {
            Check::refused_by(id::KIT_LOG, format!("a checkpoint in {path}"), &error).with_detail(path.clone())
        })?;
        let known = trust.policy.logs.iter().find(|log| signed.verify(&log.identity).is_ok());
        let log = known.ok_or_else(|| {
            let origins: Vec<&str> = trust.policy.logs.iter().map(|log| log.identity.origin.as_str()).collect();
            failed(
                format!("a checkpoint that a log of the policy signed: {}", origins.join(", ")),
                format!("{path} of {:.120?}", signed.checkpoint.origin),
            )
        })?;
        let agrees = |seen: &Seen| seen.freshness(trust, &log.identity, &signed.checkpoint, proofs);
        // Whoever packed the kit has the log: what its seals do not prove is refused.
        let check = agrees(&shown);
        if check.status != CheckStatus::Passed {
            let found = if check.is_failed() { check.found } else { check.detail };
            return Err(failed(format!("proofs that {path} and the seal are of one history"), found));
        }
        if let Some(check) = memory.seen().map(agrees) {
            match check.status {
                CheckStatus::Passed => {}
                CheckStatus::Failed => {
                    return Err(failed(check.expected, check.found).with_detail(format!("{path}; {}", check.detail)));
                }
                CheckStatus::Skipped => {
                    // The others are looked at all the same: one of them may be of another history.
                    let why = format!("{path}: {}; pack the kit with --since what this site saw last", check.detail);
                    unproved.get_or_insert(why);
                    continue;
                }
            }
        }
        told.push(format!("{} with {} entries", log.identity.origin, signed.checkpoint.size));
        newest.push((log.identity.clone(), signed.checkpoint));
    }
    let check =
        unproved.map_or_else(|| Check::passed(id::KIT_LOG, told.join(", ")), |why| Check::skipped(id::KIT_LOG, why));
    Ok((check, newest))
}
