//! Step 7, first half: verify everything offline.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use symseal_bundle::verify::{Report, Verdict};
use symseal_bundle::{Bundle, LayoutDir};
use symseal_seal::CheckStatus;

use super::build::BuiltBundle;
use super::narrator::Narrator;
use super::publish::Published;
use super::scene::{self, Scene};
use crate::commands::bundle::verify::{Question, refusal, report_on};
use crate::seal_question::SealQuestion;

/// A bundle with the report on it.
pub(super) struct Verified {
    pub(super) bundle: Bundle,
    pub(super) report: Report,
    /// How long it took.
    pub(super) took: Duration,
}

pub(super) fn run(
    scene: &Scene,
    story: &mut Narrator,
    _published: &Published,
    built: &BuiltBundle,
) -> Result<Verified> {
    story.step("Verify", "every digest, the signature, the log proof; then with one byte flipped");
    let bundle = Bundle::open(built.layout.clone(), Some(&built.built.digest))?;
    let started = Instant::now();
    let report = verify(&bundle, &scene.trust())?;
    let took = started.elapsed();
    let passed = report.checks.iter().filter(|check| check.status == CheckStatus::Passed).count();
    for check in report.checks.iter().filter(|check| check.is_failed()) {
        story.refuted(check.to_string());
    }
    if report.verdict == Verdict::Verified {
        story.proved(format!("{passed} checks passed over {} files, {} bytes", report.files, report.bytes));
    }
    Ok(Verified { bundle, report, took })
}

/// Verifies a bundle as the demo's release.
pub(super) fn verify(bundle: &Bundle, trust: &Path) -> Result<Report> {
    report_on(bundle, trust, &Question { seal: as_the_demo(), ..Question::default() }, Default::default())
}

/// Opens the bundle in `layout` and verifies it; one that is not what its digest says cannot even be opened.
pub(super) fn open_and_verify(layout: &Path, trust: &Path, signature: Option<&Path>) -> Result<Report> {
    let opened =
        LayoutDir::open(layout).map_err(anyhow::Error::from).and_then(|layout| Ok(Bundle::open(layout, None)?));
    let bundle = match opened {
        Ok(bundle) => bundle,
        Err(error) => return Ok(Report::refused_before_start(refusal(error)?)),
    };
    report_on(
        &bundle,
        trust,
        &Question {
            seal: SealQuestion { signature: signature.map(Path::to_owned).into_iter().collect(), ..as_the_demo() },
            ..Question::default()
        },
        Default::default(),
    )
}

/// Asks for the demo's release.
fn as_the_demo() -> SealQuestion {
    SealQuestion {
        expect_name: Some(scene::NAME.to_owned()),
        expect_version: Some(scene::VERSION.to_owned()),
        ..SealQuestion::default()
    }
}
