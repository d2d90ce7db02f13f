//! Step 8: the evidence card.

use std::fs;

use anyhow::{Context, Result};
use symseal_replay::Evidence;

use super::narrator::{Narrator, seconds};
use super::scene::Scene;
use crate::exit::Answer;
use crate::output::{out, outln};

/// Prints the card, writes its JSON, and answers whether everything held.
pub(super) fn finish(scene: &Scene, story: Narrator, mut evidence: Evidence, holds: bool) -> Result<Answer> {
    let (timings, whole) = story.end();
    evidence.timings_ms = timings
        .iter()
        .map(|(step, took)| (step.clone(), u64::try_from(took.as_millis()).unwrap_or(u64::MAX)))
        .collect();
    let path = scene.evidence();
    evidence.path = Some(path.display().to_string());
    fs::write(&path, serde_json::to_vec_pretty(&evidence)?).with_context(|| format!("evidence {}", path.display()))?;

    let gate_passed = evidence.gate.as_ref().is_some_and(|gate| gate.passed);
    out!("{}", card(&evidence));
    outln!("  whole road       {}", seconds(whole));
    if scene.is_kept() {
        outln!("  as JSON          {}", path.display());
    } else {
        outln!("  as JSON          {} (gone when this ends; --keep DIR keeps everything)", path.display());
    }
    for reason in evidence.gate.iter().flat_map(|gate| &gate.reasons) {
        outln!("  gate missed      {}", reason.text);
    }
    if !holds {
        outln!("  not everything held: see the lines with ✗ above");
    }
    Ok((gate_passed && holds).into())
}

fn card(evidence: &Evidence) -> String {
    let mut card = String::new();
    let mut line = |label: &str, value: String| card.push_str(&format!("  {label:<16} {value}\n"));
    let coverage = &evidence.coverage;
    line(
        "release modules",
        format!(
            "{:.2} % of {} frames named, {:.2} % proved",
            coverage.release.pct, coverage.release.frames, coverage.release.proved_pct
        ),
    );
    line(
        "all modules",
        format!(
            "{:.2} % of {} frames named, {:.2} % proved",
            coverage.all.pct, coverage.all.frames, coverage.all.proved_pct
        ),
    );
    if let Some(replay) = &evidence.replay {
        line("replay ratio", format!("{:.4} over {} replays", replay.replay_success_ratio, replay.manifest.units));
    }
    if let Some(seal) = &evidence.seal {
        line("seal", format!("{}, {} checks", seal.verdict, seal.checks.len()));
        line("signed by", seal.signer.clone().unwrap_or_else(|| "nobody known".to_owned()));
        let log = &seal.log;
        line(
            "log",
            format!(
                "{} run by {}, entry {}, {} witnesses",
                log.origin.as_deref().unwrap_or("none"),
                log.operator.as_deref().unwrap_or("nobody known"),
                log.index.map_or("none".to_owned(), |index| index.to_string()),
                log.witnesses
            ),
        );
        line("envelope", seal.dsse_ref.clone().unwrap_or_default());
    }
    if let Some(bundle) = &evidence.bundle {
        line("bundle", bundle.digest.map(|digest| digest.to_string()).unwrap_or_default());
        line("symbol index", bundle.index_digest.to_string());
    }
    line("trace", evidence.trace.digest.clone());
    line("verifier", evidence.verifier_version.clone());
    card
}

#[cfg(test)]
mod tests {
    use symseal_replay::{Coverage, Gate, GateResult, TraceEvidence};

    use super::*;

    /// The answer for evidence with this gate.
    fn answer(gate: Option<GateResult>, holds: bool) -> Answer {
        let dir = tempfile::tempdir().unwrap();
        let scene = Scene::new(Some(dir.path())).unwrap();
        let mut evidence = Evidence::new(TraceEvidence::default(), Coverage::default());
        evidence.gate = gate.or_else(|| Some(Gate::default().judge(&evidence)));
        let answer = finish(&scene, Narrator::new(), evidence, holds).unwrap();
        assert!(scene.evidence().is_file(), "the card is written whatever it says");
        answer
    }

    #[test]
    fn a_missed_gate_is_a_no() {
        assert_eq!(answer(None, true), Answer::No);
    }

    #[test]
    fn a_passed_gate_is_a_yes_only_where_everything_held() {
        let passed = || Some(GateResult { passed: true, gate: Gate::default(), reasons: Vec::new() });
        assert_eq!(answer(passed(), true), Answer::Yes);
        assert_eq!(answer(passed(), false), Answer::No);
    }
}
