//! `symseal demo`: the whole road on this machine, on real binaries, on the embedded default.
//!
//! Each step is the real mechanism and talks to the next through its real interface: files in an
//! OCI layout, HTTP, SQL. One file per step.

mod build;
mod capture;
mod card;
pub(crate) mod narrator;
mod publish;
mod resolve;
mod scene;
mod seal;
mod tamper;
mod verify;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args as ClapArgs;
use symseal_replay::{BundleEvidence, Evidence, Gate, SealEvidence, TraceEvidence};

use crate::exit::Answer;
use crate::output::outln;
use narrator::Narrator;
use scene::Scene;

/// Walk the whole road on this machine: build, seal, publish, capture, resolve, replay, verify.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal demo
  symseal demo --keep ./kept      leaves bundle/, keys/, trust/, log/, trace.jsonl, resolved.jsonl and evidence.json

Nothing leaves this machine. Exit status 1: coverage of release modules below 90 %, replay ratio below 0.95, or a failed verification.")]
pub struct Args {
    /// Keep what was made in this new or empty directory.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// Seeds that the demo replays with.
const SEEDS: u32 = 5;

/// Walks the road and prints it.
pub fn run(args: &Args) -> Result<Answer> {
    let scene = Scene::new(args.keep.as_deref())?;
    let mut story = Narrator::new();
    outln!("symseal {}: from a release binary to a proved stack trace", scene::VERSION);

    let built = build::run(&scene, &mut story)?;
    let sealed = seal::run(&scene, &mut story, &built)?;
    let published = publish::run(&scene, &mut story, &built)?;
    let captured = capture::run(&scene, &mut story, &sealed, &built)?;
    let resolved = resolve::run(&scene, &mut story, &published, &captured)?;
    let replayed = resolve::replay(&mut story, &captured, &resolved, SEEDS)?;
    let verified = verify::run(&scene, &mut story, &published, &built)?;
    let tampered = tamper::run(&scene, &mut story)?;

    let mut evidence = Evidence::new(TraceEvidence::of(&captured.trace), resolved.coverage.clone());
    evidence.bundle = Some(BundleEvidence::of(&verified.bundle, None));
    evidence.seal =
        Some(SealEvidence::of(verified.report.verdict.code(), &verified.report.checks, Some(&verified.report.seal)));
    evidence.replay = Some(replayed.clone());
    evidence.gate = Some(Gate::default().judge(&evidence));

    story.step("Evidence card", "what was found, and what it was computed from");
    let recorded = published.record(&story, &captured.trace, &resolved, &replayed, verified.took)?;
    let holds = resolved.agrees && tampered && built.reproducible && published.found && recorded;
    card::finish(&scene, story, evidence, holds)
}
