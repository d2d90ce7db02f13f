//! `symseal verify-frame`: one name's whole chain, from a file alone.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args as ClapArgs;
use serde_json::json;
use symseal_bundle::frame_proof::{self, FrameProof, MAX_PROOF_BYTES};
use symseal_bundle::verify::Verdict;
use symseal_module::{Proof, Rva};
use symseal_resolver::Symbolized;
use symseal_seal::{CheckStatus, Expectation, UtcSeconds};
use symseal_sealer::load_trust;

use super::bundle::verify::{check_table, consistency_proofs, now, read, read_at_most};
use crate::exit::Answer;
use crate::frames::write_frame;
use crate::memory::{Memory, StateArgs};
use crate::output::{out, outln};
use crate::places::trust_dir;

/// Verify one name's whole chain, from the records of a symbol table to the log, offline and without the bundle.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal symbolize --bundle ./bundle --debug-id 93ac61ec… --prove frame.json 0x401136
  symseal verify-frame frame.json --trust ./trust
  symseal verify-frame frame.json --trust ./trust --state ~/.local/state/symseal

The file proves what a sealed bundle says of an address, not that a process was there. Exit status 1: it does not hold; the table names the check.")]
pub struct Args {
    /// What `symseal symbolize --prove` wrote.
    file: PathBuf,
    /// The trust directory: root.json, policy.dsse.json, trusted_root.json.
    #[arg(long)]
    trust: Option<PathBuf>,
    /// Refuse unless the seal is for a release of this name.
    #[arg(long)]
    expect_name: Option<String>,
    /// Refuse unless the seal is for this version.
    #[arg(long)]
    expect_version: Option<String>,
    #[command(flatten)]
    state: StateArgs,
    /// Consistency proofs between checkpoints seen before and the seal's. Repeat for more files.
    #[arg(long, value_name = "FILE")]
    consistency: Vec<PathBuf>,
    /// A tile fragment of a log, as the cosignatures of witnesses come with; it stands for the audit path of the seal whose entry it is for. Repeat for
    /// seals by several keys.
    #[arg(long, value_name = "FILE")]
    fragment: Vec<PathBuf>,
    /// Judge validity at this time (UTC, as 2026-11-20T12:00:00Z) instead of now.
    #[arg(long, value_name = "TIME")]
    at: Option<UtcSeconds>,
    /// Give demangled names as `function`; the raw symbol stays beside it.
    #[arg(long)]
    demangle: bool,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Answer> {
    let what = || format!("frame proof {}", args.file.display());
    let proof = FrameProof::parse(&read_at_most("frame proof", &args.file, MAX_PROOF_BYTES)?).with_context(what)?;
    let trust = load_trust(&trust_dir(args.trust.as_ref())?)?;
    let at = args.at.unwrap_or_else(now);
    let memory = Memory::open(&args.state)?;
    let consistency = consistency_proofs(&args.consistency)?;
    let fragments = args.fragment.iter().map(|path| read("tile fragment", path)).collect::<Result<Vec<_>>>()?;
    let expectation = Expectation {
        name: args.expect_name.as_deref(),
        version: args.expect_version.as_deref(),
        seen: memory.seen(),
        consistency: &consistency,
        fragments: &fragments,
        ..Expectation::default()
    };
    let mut report = frame_proof::verify(&proof, &trust, &expectation, at);
    report.memory = memory.record(report.verdict, &trust, &report.checkpoints, &consistency);
    let holds = report.verdict == Verdict::Verified;
    let frame = report.frame.take();
    let rva = frame.as_ref().and_then(|frame| proof.address.to_rva(frame.entry.image_base)).unwrap_or(Rva(0));
    let rests_on = if holds { Proof::Sealed } else { Proof::None };
    let module = frame.as_ref().map(|frame| frame.entry.name.clone());
    let named = Symbolized::from_sparse(rva, frame.and_then(|frame| frame.hit), rests_on, args.demangle);
    if args.json {
        let line = json!({
            "address": proof.address,
            "debug_id": proof.debug_id,
            "module": module,
            "approximate": named.approximate,
            "folded": named.folded,
            "frames": named.frames,
            "report": report,
        });
        outln!("{}", serde_json::to_string_pretty(&line)?);
        return Ok(holds.into());
    }
    out!("{}", check_table(&report.checks));
    let module = module.as_deref().unwrap_or("a module that the proof does not lead to");
    outln!("\n{} in {module} {}", proof.address, proof.debug_id);
    let mut lines = Vec::new();
    for frame in &named.frames {
        write!(lines, "  ")?;
        write_frame(&mut lines, &named, frame)?;
        writeln!(lines)?;
    }
    if named.frames.is_empty() {
        writeln!(lines, "  no function")?;
    }
    out!("{}", String::from_utf8_lossy(&lines));
    outln!("\nmemory of what was seen: {}", report.memory);
    match report.verdict {
        Verdict::Refused => {
            let failed = report.checks.iter().filter(|check| check.is_failed()).count();
            let run = report.checks.iter().filter(|check| check.status != CheckStatus::Skipped).count();
            outln!("\nREFUSED: {failed} of {run} checks failed");
        }
        _ => {
            let passed = report.checks.iter().filter(|check| check.status == CheckStatus::Passed).count();
            outln!("\nVERIFIED: {passed} checks passed; those marked skipped were not run");
        }
    }
    Ok(holds.into())
}
