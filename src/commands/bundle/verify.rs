//! Verifying a bundle offline: the shared half of `symseal bundle verify` and `trace-verify`.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::Args;
use symseal_artifact::ReleaseFile;
use symseal_bundle::verify::{Report, Request, Verdict, verify};
use symseal_bundle::{Bundle, BundleError};
use symseal_module::DebugId;
use symseal_seal::{Check, CheckStatus, Parts, UtcSeconds};
use symseal_sealer::{LoadTrustError, load_trust};

use crate::bundle_ref;
use crate::exit::Answer;
use crate::output::{out, outln};
use crate::places::trust_dir;
use crate::table::Table;

/// What both commands ask about a bundle.
#[derive(Args, Default)]
pub struct Question {
    /// The trust directory: root.json, policy.dsse.json, trusted_root.json.
    #[arg(long)]
    pub trust: Option<PathBuf>,
    /// Refuse unless the seal is for a release of this name; else the name that the bundle claims is compared.
    #[arg(long)]
    pub expect_name: Option<String>,
    /// Refuse unless the seal is for this version; else the version that the bundle claims is compared.
    #[arg(long)]
    pub expect_version: Option<String>,
    /// The seal in a file of its own, for what `oras pull` left.
    #[arg(long, value_name = "FILE")]
    pub signature: Option<PathBuf>,
    /// Judge validity at this time (UTC, as 2026-11-20T12:00:00Z) instead of now.
    #[arg(long, value_name = "TIME")]
    pub at: Option<UtcSeconds>,
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
        Ok(opened) => report_on(&opened.bundle, &trust_dir(question.trust.as_ref())?, question, parts)?,
        Err(error) => Report::refused_before_start(refusal(error)?),
    };
    if question.json {
        outln!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok((report.verdict != Verdict::Refused).into())
}

/// The failed check behind an error of opening a bundle: its bytes are not what its digest says. Any other error
/// stays one.
pub fn refusal(error: anyhow::Error) -> Result<Check> {
    error.chain().find_map(|cause| cause.downcast_ref::<BundleError>()?.to_check()).ok_or(error)
}

/// Verifies a bundle against a trust directory. A trust directory that does not hold together is a refusal, one
/// that cannot be read an error.
pub fn report_on(bundle: &Bundle, trust_dir: &Path, question: &Question, parts: Parts) -> Result<Report> {
    let signature = question
        .signature
        .as_ref()
        .map(|path| std::fs::read(path).with_context(|| format!("signature {}", path.display())))
        .transpose()?;
    let trust = match load_trust(trust_dir) {
        Ok(trust) => trust,
        Err(LoadTrustError::Trust { source, .. }) => return Ok(Report::refused_before_start(source.to_check())),
        Err(unreadable) => return Err(unreadable.into()),
    };
    Ok(verify(
        bundle,
        &Request {
            trust: &trust,
            expect_name: question.expect_name.as_deref(),
            expect_version: question.expect_version.as_deref(),
            parts,
            at: question.at.unwrap_or_else(now),
            signature: signature.as_deref(),
            identify: &debug_ids_of,
        },
    ))
}

/// The debug ids that a release file itself tells: several in a universal Mach-O file.
pub fn debug_ids_of(bytes: &[u8]) -> Vec<DebugId> {
    ReleaseFile::parse(bytes).map(|file| file.debug_ids()).unwrap_or_default()
}

/// This moment.
pub fn now() -> UtcSeconds {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UtcSeconds(i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX))
}

fn print(report: &Report) {
    let mut table = Table::new(&["check", "status", "found"]);
    for check in &report.checks {
        table.row([check.id.to_owned(), check.status.to_string(), found(check)]);
    }
    out!("{table}");
    let failed = report.checks.iter().filter(|check| check.is_failed()).count();
    match report.verdict {
        Verdict::Verified => outln!("\nVERIFIED: {} checks passed", passed(report)),
        Verdict::Partial => {
            outln!("\nPARTIAL: {} checks passed; those marked skipped were not asked for", passed(report))
        }
        Verdict::Refused => outln!("\nREFUSED: {failed} of {} checks failed", report.checks.len()),
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
