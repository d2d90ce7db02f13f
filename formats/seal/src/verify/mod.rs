//! Verification of a seal: one check after another, each with what it expected and what it found.

mod facts;
mod fragments;
mod histories;
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
use fragments::Fragments;
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
    /// The list of the symbol index's debug ids; `None` where the index is not at hand.
    pub modules: Option<ModuleList>,
}

/// The list of a symbol index's debug ids, as a statement gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModuleList {
    /// How many there are.
    pub count: u64,
    /// SHA-256 over the sorted ids, each followed by a line feed.
    pub sha256: Hash,
}

impl ModuleList {
    /// The list of these ids, in any order.
    #[must_use]
    pub fn of<I: IntoIterator<Item = S>, S: Into<String>>(ids: I) -> Self {
        let (count, sha256) = crate::statement::hash_of_list(ids);
        Self { count, sha256 }
    }
}

/// What the caller asks the seal to say.
#[derive(Debug, Clone, Copy, Default)]
pub struct Expectation<'a> {
    /// The release's name; `None`: any that the key may sign.
    pub name: Option<&'a str>,
    /// Its version; `None`: any.
    pub version: Option<&'a str>,
    /// The name that the bundle gives itself. Where none is asked for, the seal must not contradict it; that it is the one which
    /// is meant, nobody checked then.
    pub claimed_name: Option<&'a str>,
    /// The version that it gives itself, likewise.
    pub claimed_version: Option<&'a str>,
    /// Which parts to verify.
    pub parts: Parts,
    /// What was seen before; `None`: there is no memory, and what needs one is not checked.
    pub seen: Option<&'a Seen>,
    /// Proofs between checkpoints seen before and the seal's.
    pub consistency: &'a [ConsistencyProof],
    /// The JSON of tile fragments. One for the log and the entry of a seal stands for checkpoint and audit path in it; one that
    /// is for no seal fails `log.inclusion`.
    pub fragments: &'a [Vec<u8>],
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
/// seals by as many distinct keys. What is reported is the first seal that holds, or else the one that came furthest: by a
/// key of the policy, with a signature that holds, with the fewest failures. So a stranger's seal beside it does not hide
/// why the owner's own was refused.
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
    let mut refused = Refused::default();
    let fragments = Fragments::of(expectation.fragments, seals, trust);
    for seal in seals {
        let mut run = Run::examine(seal.as_ref(), subjects, trust, expectation, &fragments, at);
        if run.holds() {
            checkpoints.append(&mut run.checkpoints);
            signers.extend(run.facts.signer.filter(|signer| !signers.contains(signer)));
        } else {
            refused.add(&run);
        }
        if reported.as_ref().is_none_or(|first| first.reach() < run.reach()) {
            reported = Some(run);
        }
        // The keys count, so that junk beside good seals costs no more than its own check.
        if signers.len() as u64 >= trust.policy.threshold {
            break;
        }
    }
    let mut run = reported.unwrap_or_else(|| Run::examine(b"", subjects, trust, expectation, &fragments, at));
    let check = threshold(&signers, &refused, trust.policy.threshold, run.holds());
    run.push(if run.parts.dsse { check } else { Check::skipped(id::TRUST_THRESHOLD, "no signature was verified") });
    if let Some(check) = histories::two_in(seals, trust, expectation.seen) {
        run.replace(check);
    }
    run.facts.signers = signers;
    run.checkpoints = checkpoints;
    run.finish()
}

/// Seals beside those that count, and why the first of them do not.
#[derive(Default)]
struct Refused {
    count: u64,
    why: Vec<String>,
}

impl Refused {
    /// So many are told apart.
    const TOLD: usize = 4;

    fn add(&mut self, run: &Run) {
        self.count += 1;
        if self.why.len() < Self::TOLD {
            let by = run.facts.signer.map_or_else(|| "no key of the policy".to_owned(), |signer| signer.to_string());
            self.why.extend(run.first_failure().map(|check| {
                format!("the one by {by}: {}, expected {}, found {}", check.id, check.expected, check.found)
            }));
        }
    }
}

fn threshold(signers: &[KeyId], refused: &Refused, asked: u64, any_holds: bool) -> Check {
    if !any_holds {
        return Check::skipped(id::TRUST_THRESHOLD, "no seal holds");
    }
    let names: Vec<String> = signers.iter().map(ToString::to_string).collect();
    if signers.len() as u64 >= asked {
        return Check::passed(id::TRUST_THRESHOLD, format!("{asked} of {}", names.join(", ")));
    }
    let found = format!("{}: {}", signers.len(), names.join(", "));
    let mut detail =
        format!("a key counts once, however many seals it made; {} other seals do not hold", refused.count);
    for why in &refused.why {
        detail.push_str("; ");
        detail.push_str(why);
    }
    Check::failed(id::TRUST_THRESHOLD, format!("seals by {asked} distinct keys"), found).with_detail(detail)
}
