//! Verifying a bundle offline: the shared half of `symseal bundle verify` and `trace-verify`.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Args;
use symseal_artifact::ReleaseFile;
use symseal_bundle::verify::{Report, Request, TimeSource, Verdict, verify};
use symseal_bundle::{Bundle, BundleError};
use symseal_module::DebugId;
use symseal_seal::{Check, CheckStatus, ConsistencyProof, Parts, Trust, UtcSeconds};
use symseal_sealer::{LoadTrustError, load_trust};

use super::{chain, rederive};
use crate::bundle_ref;
use crate::exit::Answer;
use crate::memory::Memory;
use crate::output::{out, outln, visible};
use crate::places::trust_dir;
use crate::seal_question::SealQuestion;
use crate::table::Table;

/// What both commands ask about a bundle.
#[derive(Args, Default)]
pub struct Question {
    #[command(flatten)]
    pub seal: SealQuestion,
    /// Make every table again from the files that it came from, and refuse one that comes out otherwise. Takes as long as
    /// building the bundle.
    #[arg(long)]
    pub rederive: bool,
    /// With --rederive: where the files are that the bundle does not hold; they are found by their sha256. Repeat for more.
    #[arg(long, value_name = "DIR|FILE", requires = "rederive")]
    pub inputs: Vec<PathBuf>,
    /// Print the chain from the files to the log's checkpoint as a table.
    #[arg(long, conflicts_with = "json")]
    pub explain: bool,
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
    /// The local bundle store.
    #[arg(long)]
    pub store: Option<PathBuf>,
}

/// Verify a bundle offline: every digest, the signature, the log proof.
#[derive(Args)]
#[command(after_help = "Examples:
  symseal bundle verify ./bundle --trust ./trust
  symseal bundle verify sha256:… --expect-name app --expect-version 1.0 --json
  symseal bundle verify ./bundle --trust ./trust --state ~/.local/state/symseal --explain
  symseal bundle verify ./bundle --trust ./trust --rederive --inputs ./release

Nothing of the bundle is trusted, and once it is here no network is used (a registry reference is pulled first). Exit status 1: at least one check failed; the table names it.")]
pub struct BundleVerifyArgs {
    /// The bundle: sha256:… in the local store, a directory, or a registry reference.
    bundle: String,
    #[command(flatten)]
    question: Question,
}

pub fn run_bundle_verify(args: &BundleVerifyArgs) -> Result<Answer> {
    run(&args.bundle, &args.question, Parts::default())
}

/// Verifies `reference`, prints the report, and answers whether what was asked holds.
pub fn run(reference: &str, question: &Question, parts: Parts) -> Result<Answer> {
    let report = match bundle_ref::open(reference, question.store.as_ref()) {
        Ok(opened) => report_on(&opened.bundle, &trust_dir(question.seal.trust.as_ref())?, question, parts)?,
        Err(error) => Report::refused_before_start(refusal(error)?),
    };
    if question.json {
        outln!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report, question.explain);
    }
    Ok((report.verdict != Verdict::Refused).into())
}

/// The failed check behind an error of opening a bundle: its bytes are not what its digest says. Any other error
/// stays one.
pub fn refusal(error: anyhow::Error) -> Result<Check> {
    error.chain().find_map(|cause| cause.downcast_ref::<BundleError>()?.to_check()).ok_or(error)
}

/// Verifies a bundle against a trust directory, and remembers what was seen. A trust directory that does not hold together
/// is a refusal, one that cannot be read an error.
pub fn report_on(bundle: &Bundle, trust_dir: &Path, question: &Question, parts: Parts) -> Result<Report> {
    let trust = match load_trust(trust_dir) {
        Ok(trust) => trust,
        Err(LoadTrustError::Trust { source, .. }) => return Ok(Report::refused_before_start(source.to_check())),
        Err(unreadable) => return Err(unreadable.into()),
    };
    let memory = Memory::open(&question.seal.state)?;
    let proofs = question.seal.consistency()?;
    let mut report = examine(bundle, &trust, &memory, question, parts, &proofs)?;
    report.memory = memory.record(report.verdict, &trust, &report.checkpoints, &proofs);
    Ok(report)
}

/// Verifies a bundle with these consistency proofs; nothing is remembered yet.
pub fn examine(
    bundle: &Bundle,
    trust: &Trust,
    memory: &Memory,
    question: &Question,
    parts: Parts,
    proofs: &[ConsistencyProof],
) -> Result<Report> {
    let (signatures, fragments) = (question.seal.signatures()?, question.seal.fragments()?);
    let (at, time_source) = question.seal.time();
    let mut report = verify(
        bundle,
        &Request {
            trust,
            expect_name: question.seal.expect_name.as_deref(),
            expect_version: question.seal.expect_version.as_deref(),
            parts,
            at,
            time_source,
            signatures: &signatures,
            signature_files: &question.seal.signature,
            seen: memory.seen(),
            consistency: proofs,
            fragments: &fragments,
            identify: &debug_ids_of,
        },
    );
    if question.rederive {
        rederive::add_to(&mut report, bundle, &question.inputs)?;
    }
    Ok(report)
}

/// The proofs in files that were named on the command line.
pub(crate) fn consistency_proofs(paths: &[PathBuf]) -> Result<Vec<ConsistencyProof>> {
    let mut all = Vec::new();
    for path in paths {
        let proofs = ConsistencyProof::parse_file(&read("consistency proofs", path)?);
        all.extend(proofs.with_context(|| format!("consistency proofs {}", path.display()))?);
    }
    Ok(all)
}

/// Reads a small file that was named on the command line.
pub(crate) fn read(what: &str, path: &Path) -> Result<Vec<u8>> {
    read_at_most(what, path, INPUT_LIMIT)
}

/// The same of at most so many bytes.
pub(crate) fn read_at_most(what: &str, path: &Path, limit: u64) -> Result<Vec<u8>> {
    let named = || format!("{what} {}", path.display());
    // Opening a named pipe waits for somebody to write into it.
    if !path.metadata().with_context(named)?.is_file() {
        bail!("{}: expected a file, found a directory, a pipe or a device", named());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(named)?;
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).with_context(named)?;
    if bytes.len() as u64 > limit {
        bail!("{}: expected at most {limit} bytes, found more", named());
    }
    Ok(bytes)
}

/// More than any seal, tile fragment or file of proofs.
const INPUT_LIMIT: u64 = 4 << 20;

/// The debug ids that a release file itself tells: several in a universal Mach-O file.
pub fn debug_ids_of(bytes: &[u8]) -> Vec<DebugId> {
    ReleaseFile::parse(bytes).map(|file| file.debug_ids()).unwrap_or_default()
}

/// This moment.
pub fn now() -> UtcSeconds {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UtcSeconds(i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX))
}

/// The checks as people read them.
pub(crate) fn check_table(checks: &[Check]) -> Table {
    let mut table = Table::new(&["check", "status", "found"]);
    for check in checks {
        table.row([check.id.to_owned(), check.status.to_string(), visible(&found(check))]);
    }
    table
}

pub(crate) fn print(report: &Report, explain: bool) {
    out!("{}", check_table(&report.checks));
    if explain {
        out!("\n{}", chain::table(report));
    }
    print_circumstances(report);
    let failed = report.checks.iter().filter(|check| check.is_failed()).count();
    match report.verdict {
        Verdict::Verified => outln!("\nVERIFIED: {} checks passed", passed(report)),
        Verdict::Partial => {
            outln!("\nPARTIAL: {} checks passed; those marked skipped were not run", passed(report))
        }
        Verdict::Refused => outln!("\nREFUSED: {failed} of {} checks failed", failed + passed(report)),
    }
}

/// What the verdict rests on beside the checks.
fn print_circumstances(report: &Report) {
    let Some(time) = report.time else { return };
    let source = match time.source {
        TimeSource::Clock => "this machine's clock",
        TimeSource::Asked => "as asked with --at",
    };
    outln!("\njudged at {}, {source}", time.at);
    if let Some(operator) = &report.seal.log_operator {
        let witnesses = report.seal.witnesses;
        let alone = if witnesses == 0 { ": nobody but the operator vouches for the log" } else { "" };
        outln!("log run by {}; {witnesses} witnesses{alone}", visible(operator));
    }
    outln!("memory of what was seen: {}", report.memory);
    for warning in &report.warnings {
        outln!("warning: {}", visible(warning));
    }
}

fn passed(report: &Report) -> usize {
    report.checks.iter().filter(|check| check.status == CheckStatus::Passed).count()
}

fn found(check: &Check) -> String {
    let mut text = match check.status {
        CheckStatus::Failed => format!("expected {}, found {}", check.expected, check.found),
        CheckStatus::Passed | CheckStatus::Skipped => check.found.clone(),
    };
    if !check.detail.is_empty() {
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.push_str(&check.detail);
    }
    text
}
