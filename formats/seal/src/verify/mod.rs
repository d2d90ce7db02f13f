//! Verification of a seal: one check after another, each with what it expected and what it found.

mod facts;
mod key;
mod log;
mod run;
mod statement;

use crate::checks::{Check, Parts, id};
use crate::consistency::ConsistencyProof;
use crate::encoding::Hash;
use crate::keys::KeyId;
use crate::seen::Seen;
use crate::time::UtcSeconds;
use crate::trust::Trust;
pub use facts::{SealFacts, SealVerification};
pub use log::verify_entry;
use run::Run;

/// The digests that were computed from the bundle itself, to be found among the signed subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubjectDigests {
    /// SHA-256 of the image index; `None` where it is not at hand (what `oras pull` leaves), then the
    /// signed digest is reported as signed and not recomputed.
    pub bundle: Option<Hash>,
    /// SHA-256 of `symbol_index.json`.
    pub symbol_index: Option<Hash>,
    /// Root of the tree over the modules' entries; `None` where there are none to make it from.
    pub modules_root: Option<Hash>,
}

/// What the caller asks the seal to say.
#[derive(Debug, Clone, Copy, Default)]
pub struct Expectation<'a> {
    /// The release's name; `None`: any that the key may sign.
    pub name: Option<&'a str>,
    /// Its version; `None`: any.
    pub version: Option<&'a str>,
    /// Which parts to verify.
    pub parts: Parts,
    /// What was seen before; `None`: there is no memory, and what needs one is not checked.
    pub seen: Option<&'a Seen>,
    /// Proofs between checkpoints seen before and the seal's.
    pub consistency: &'a [ConsistencyProof],
    /// The JSON of a tile fragment: then its checkpoint and tiles stand for those of the seal.
    pub fragment: Option<&'a [u8]>,
}

/// The checks of [`examine_seal`] alone.
#[must_use]
pub fn verify_seal(
    bundle_json: &[u8],
    subjects: &SubjectDigests,
    trust: &Trust,
    expectation: &Expectation<'_>,
    at: UtcSeconds,
) -> Vec<Check> {
    examine_seal(bundle_json, subjects, trust, expectation, at).checks
}

/// Verifies a seal (the JSON of a Sigstore bundle v0.3) offline against a trust directory at the time
/// `at`. Later checks run after a failure wherever that makes sense.
#[must_use]
pub fn examine_seal(
    bundle_json: &[u8],
    subjects: &SubjectDigests,
    trust: &Trust,
    expectation: &Expectation<'_>,
    at: UtcSeconds,
) -> SealVerification {
    examine_seals(&[bundle_json], subjects, trust, expectation, at)
}

/// Verifies the seals of one bundle. One that holds is enough where the policy's threshold is 1; else
/// seals by as many distinct keys. What is reported is the first seal that holds, or else the first.
#[must_use]
pub fn examine_seals<S: AsRef<[u8]>>(
    seals: &[S],
    subjects: &SubjectDigests,
    trust: &Trust,
    expectation: &Expectation<'_>,
    at: UtcSeconds,
) -> SealVerification {
    let mut reported: Option<Run> = None;
    let mut signers: Vec<KeyId> = Vec::new();
    let mut checkpoints = Vec::new();
    let mut refused = 0_u64;
    for seal in seals {
        let mut run = Run::examine(seal.as_ref(), subjects, trust, expectation, at);
        if run.holds() {
            checkpoints.append(&mut run.checkpoints);
            signers.extend(run.facts.signer.filter(|signer| !signers.contains(signer)));
            if reported.as_ref().is_none_or(|first| !first.holds()) {
                reported = Some(run);
            }
        } else {
            refused += 1;
            reported.get_or_insert(run);
        }
        // The keys count, so that junk beside good seals costs no more than its own check.
        if signers.len() as u64 >= trust.policy.threshold {
            break;
        }
    }
    let mut run = reported.unwrap_or_else(|| Run::examine(b"", subjects, trust, expectation, at));
    let check = threshold(&signers, refused, trust.policy.threshold, run.holds());
    run.push(if run.parts.dsse { check } else { Check::skipped(id::TRUST_THRESHOLD, "no signature was verified") });
    run.facts.signers = signers;
    run.checkpoints = checkpoints;
    run.finish()
}

fn threshold(signers: &[KeyId], refused: u64, asked: u64, any_holds: bool) -> Check {
    if !any_holds {
        return Check::skipped(id::TRUST_THRESHOLD, "no seal holds");
    }
    let names: Vec<String> = signers.iter().map(ToString::to_string).collect();
    if signers.len() as u64 >= asked {
        return Check::passed(id::TRUST_THRESHOLD, format!("{asked} of {}", names.join(", ")));
    }
    let found = format!("{}: {}", signers.len(), names.join(", "));
    Check::failed(id::TRUST_THRESHOLD, format!("seals by {asked} distinct keys"), found)
        .with_detail(format!("a key counts once, however many seals it made; {refused} other seals do not hold"))
}
