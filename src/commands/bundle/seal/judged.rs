//! What a trust directory says of a seal that was just made: better heard now than from whoever verifies it.

use anyhow::{Context, Result};
use symseal_bundle::verify::subject_digests;
use symseal_bundle::{Bundle, Digest, LayoutDir};
use symseal_seal::checks::id;
use symseal_seal::{Check, Expectation, Trust, examine_seals};

use crate::commands::bundle::verify::now;

/// The checks that this one seal fails. That a policy asks for several seals is no fault of one.
pub(super) fn refusals(layout: &LayoutDir, bundle: &Digest, manifest: &Digest, trust: &Trust) -> Result<Vec<Check>> {
    let named = || format!("bundle {bundle}");
    let bundle = Bundle::open(layout.clone(), Some(bundle)).with_context(named)?;
    let seals = bundle.seals_in(manifest).with_context(named)?;
    let subjects = subject_digests(bundle.digest().as_ref(), bundle.index_bytes());
    let index = bundle.index();
    let expectation = Expectation { name: Some(&index.name), version: Some(&index.version), ..Expectation::default() };
    let found = examine_seals(&seals, &subjects, trust, &expectation, now());
    Ok(found.checks.into_iter().filter(|check| check.is_failed() && check.id != id::TRUST_THRESHOLD).collect())
}
