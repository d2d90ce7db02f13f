//! Verification of a seal: one check after another, each with what it expected and what it found.

mod log;

use serde::Serialize;

use crate::checkpoint::{Checkpoint, LogIdentity, SignedCheckpoint};
use crate::checks::{CATALOGUE, Check, CheckGroup, CheckStatus, Parts, describe, id};
use crate::consistency::ConsistencyProof;
use crate::dsse::IN_TOTO_PAYLOAD_TYPE;
use crate::encoding::{Hash, sha256, to_hex};
use crate::entry::EntryKind;
use crate::fragment::TileFragment;
use crate::keys::{KeyId, LogId};
use crate::seen::Seen;
use crate::sigstore::SigstoreBundle;
use crate::statement::{INDEX_SUBJECT, PREDICATE_TYPE, Release, STATEMENT_TYPE, Statement};
use crate::time::UtcSeconds;
use crate::trust::{PolicyKey, PolicyLog, Trust};
pub use log::verify_entry;

/// Why what needs a memory was not checked.
const NO_STATE: &str = "nothing is known of what was seen before: no state directory was given";

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

/// What a seal says of itself. Worth as much as the checks beside it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SealFacts {
    /// The id of the key that signed, if the policy knows it.
    #[serde(serialize_with = "as_text")]
    pub signer: Option<KeyId>,
    /// The release.
    pub release: Option<Release>,
    /// The bundle's digest as signed, lower-case hex.
    pub signed_bundle_sha256: Option<String>,
    /// The symbol index's digest as signed, lower-case hex.
    pub signed_index_sha256: Option<String>,
    /// The root of modules as signed, lower-case hex.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_modules_root: Option<String>,
    /// `dsse:` and the SHA-256 of the envelope's canonical JSON.
    pub dsse_ref: Option<String>,
    /// `<origin>/tile/entries/<N>#<index>`, if the policy knows the log; of a Rekor v1, which has no tiles,
    /// `<host>/api/v1/log/entries?logIndex=<index>`.
    pub rekor_tile_ref: Option<String>,
    /// Origin of the log, if the policy knows it.
    pub log_origin: Option<String>,
    /// The log's id, likewise.
    #[serde(serialize_with = "as_text")]
    pub log_id: Option<LogId>,
    /// Who runs the log, as the policy says.
    pub log_operator: Option<String>,
    /// Position of the entry; in a Rekor v1 it counts over all of its trees.
    pub log_index: Option<u64>,
    /// When a Rekor v1 says that it took the entry; only where its signature over that holds.
    pub integrated_time: Option<UtcSeconds>,
    /// Size of the log at the checkpoint.
    pub tree_size: Option<u64>,
    /// How many distinct witnesses of the policy cosigned the checkpoint.
    pub witnesses: u64,
    /// Their names.
    pub witness_names: Vec<String>,
    /// The latest time at which one of them says that it saw the checkpoint.
    pub witnessed_at: Option<UtcSeconds>,
    /// The keys of all seals that hold, each once, where the policy asks for several.
    #[serde(serialize_with = "as_texts")]
    pub signers: Vec<KeyId>,
}

fn as_texts<S: serde::Serializer>(values: &[KeyId], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(ToString::to_string))
}

fn as_text<T: std::fmt::Display, S: serde::Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

/// The outcome of [`examine_seal`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealVerification {
    /// Every check of the catalogue from `seal.structure` on, in its order, each exactly once.
    pub checks: Vec<Check>,
    /// What the seal says.
    pub facts: SealFacts,
    /// The checkpoints that were verified, to be remembered where the seal holds.
    pub checkpoints: Vec<(LogIdentity, Checkpoint)>,
}

impl SealVerification {
    /// Whether no check failed.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.checks.iter().any(Check::is_failed)
    }

    /// The first check that failed.
    #[must_use]
    pub fn first_failure(&self) -> Option<&Check> {
        self.checks.iter().find(|check| check.is_failed())
    }
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

/// One seal under examination.
struct Run {
    parts: Parts,
    checks: Vec<Check>,
    facts: SealFacts,
    checkpoints: Vec<(LogIdentity, Checkpoint)>,
}

impl Run {
    fn examine(
        bundle_json: &[u8],
        subjects: &SubjectDigests,
        trust: &Trust,
        expectation: &Expectation<'_>,
        at: UtcSeconds,
    ) -> Self {
        let mut run =
            Self { parts: expectation.parts, checks: Vec::new(), facts: SealFacts::default(), checkpoints: Vec::new() };
        let seal = match SigstoreBundle::parse(bundle_json) {
            Ok(seal) => {
                run.push(Check::passed(id::SEAL_STRUCTURE, "a Sigstore bundle v0.3"));
                Some(seal)
            }
            Err(error) => {
                run.push(Check::failed(id::SEAL_STRUCTURE, "a Sigstore bundle v0.3", error.to_string()));
                None
            }
        };
        for check in trust.checks(at) {
            run.push(check);
        }
        match expectation.seen {
            Some(seen) => seen.trust_checks(trust).into_iter().for_each(|check| run.push(check)),
            None => {
                for check in [id::TRUST_ROOT_CHAIN, id::TRUST_POLICY_VERSION] {
                    run.push(Check::skipped(check, NO_STATE));
                }
            }
        }
        if let Some(seal) = &seal {
            run.seal(seal, subjects, trust, expectation, at);
        }
        run
    }

    fn holds(&self) -> bool {
        !self.checks.iter().any(Check::is_failed)
    }

    fn passed(&self, id: &str) -> bool {
        self.checks.iter().any(|check| check.id == id && check.status == CheckStatus::Passed)
    }

    fn push(&mut self, check: Check) {
        let group = describe(check.id).map_or(CheckGroup::Seal, |info| info.group);
        if self.parts.covers(group) {
            self.checks.push(check);
        }
    }

    /// Puts the checks into the catalogue's order and notes those that were not run.
    fn finish(mut self) -> SealVerification {
        let mut checks = Vec::new();
        for info in CATALOGUE.iter().filter(|info| info.group != CheckGroup::Content && info.id != id::SEAL_PRESENT) {
            let why = if self.parts.covers(info.group) { "the seal could not be read" } else { "not asked for" };
            let run = self.checks.iter().position(|check| check.id == info.id);
            checks.push(run.map_or_else(|| Check::skipped(info.id, why), |n| self.checks.swap_remove(n)));
        }
        SealVerification { checks, facts: self.facts, checkpoints: self.checkpoints }
    }

    fn seal(
        &mut self,
        seal: &SigstoreBundle,
        subjects: &SubjectDigests,
        trust: &Trust,
        expectation: &Expectation<'_>,
        at: UtcSeconds,
    ) {
        self.facts.dsse_ref = Some(seal.envelope.reference());
        let statement = Statement::parse(&seal.envelope.payload);
        let key = trust.policy.key(&seal.hint);
        self.key(seal, key, trust, statement.as_ref().ok(), at);
        self.envelope(seal, key);
        match &statement {
            Ok(statement) => self.statement(statement, subjects, expectation),
            Err(error) => {
                self.push(Check::failed(id::STATEMENT_TYPE, STATEMENT_TYPE, error.to_string()));
                for info in CATALOGUE.iter().filter(|info| info.id.starts_with("statement.")) {
                    if info.id != id::STATEMENT_TYPE {
                        self.push(Check::skipped(info.id, "the statement could not be read"));
                    }
                }
            }
        }
        self.log(seal, key, trust, expectation, at);
        self.push(match key {
            None => Check::skipped(id::TRUST_REVOCATION, "the key is not in the policy"),
            Some(key) => self.revocation(key, seal, subjects, trust),
        });
    }

    /// A revoked key's seals count for the digests that the root lists, and before the places in logs that it
    /// names: what stood there when the key was lost cannot have been put there later.
    fn revocation(&self, key: &PolicyKey, seal: &SigstoreBundle, subjects: &SubjectDigests, trust: &Trust) -> Check {
        let Some(revocation) = trust.policy.revocation(key.id) else {
            return Check::passed(id::TRUST_REVOCATION, "not revoked");
        };
        // Digests that were computed here; what the seal claims, the thief may have written.
        let own = [subjects.bundle, subjects.symbol_index];
        if let Some(digest) = revocation.except_digests.iter().find(|digest| own.contains(&Some(**digest))) {
            let found = format!("revoked, but sha256:{} is excepted", to_hex(digest));
            return Check::passed(id::TRUST_REVOCATION, found).with_detail(shortened_plain(&revocation.reason));
        }
        let proved = [id::LOG_ID, id::LOG_ENTRY, id::LOG_ORIGIN, id::LOG_CHECKPOINT, id::LOG_INCLUSION];
        let place = match &self.facts.log_origin {
            Some(origin) if proved.iter().all(|check| self.passed(check)) => {
                revocation.except_before.iter().find(|(log, _)| log == origin)
            }
            _ => None,
        };
        let index = seal.entry.tree_index();
        if let Some((origin, before)) = place.filter(|(_, before)| index < *before) {
            let found = format!("revoked, but entry {index} of {origin} stands before {before}");
            return Check::passed(id::TRUST_REVOCATION, found).with_detail(shortened_plain(&revocation.reason));
        }
        let found = match place {
            Some((origin, before)) => format!("revoked, and entry {index} of {origin} does not stand before {before}"),
            None => "revoked".to_owned(),
        };
        Check::failed(
            id::TRUST_REVOCATION,
            format!("a key that is not revoked, or an exception for it: {}", key.id),
            found,
        )
        .with_detail(shortened_plain(&revocation.reason))
    }

    fn key(
        &mut self,
        seal: &SigstoreBundle,
        key: Option<&PolicyKey>,
        trust: &Trust,
        statement: Option<&Statement>,
        at: UtcSeconds,
    ) {
        let Some(key) = key else {
            let known: Vec<String> = trust.policy.keys.iter().map(|key| key.id.to_string()).collect();
            let expected = format!("a key of the policy: {}", known.join(", "));
            self.push(Check::failed(id::TRUST_KEY, expected, shortened(&seal.hint)).with_detail(
                "the key that the seal names is not trusted here; if it should be, the policy must say so",
            ));
            self.push(Check::skipped(id::TRUST_KEY_VALIDITY, "the key is not in the policy"));
            return;
        };
        self.facts.signer = Some(key.id);
        self.push(match statement {
            None => Check::failed(id::TRUST_KEY, "a statement that names a release", "none that can be read"),
            Some(statement) => {
                let name = &statement.predicate.release.name;
                if !key.may_sign_name(name) {
                    let expected = format!("a name among those that key {} may sign: {}", key.id, key.names.join(", "));
                    Check::failed(id::TRUST_KEY, expected, shortened(name))
                } else if !key.may_sign_type(&statement.predicate_type) {
                    let types = key.predicate_types.join(", ");
                    let expected = format!("a predicate type that key {} may sign: {types}", key.id);
                    Check::failed(id::TRUST_KEY, expected, shortened(&statement.predicate_type))
                } else {
                    Check::passed(id::TRUST_KEY, format!("{} may sign {name}", key.id))
                }
            }
        });
        self.push(if key.validity.contains(at) {
            Check::passed(id::TRUST_KEY_VALIDITY, format!("{at} lies in: {}", key.validity))
        } else {
            Check::failed(id::TRUST_KEY_VALIDITY, format!("a time in: {}", key.validity), at.to_string())
                .with_detail(format!("key {}", key.id))
        });
    }

    fn envelope(&mut self, seal: &SigstoreBundle, key: Option<&PolicyKey>) {
        let envelope = &seal.envelope;
        self.push(Check::compare(id::DSSE_PAYLOAD_TYPE, IN_TOTO_PAYLOAD_TYPE, shortened_plain(&envelope.payload_type)));
        self.push(if envelope.keyid.is_empty() {
            Check::passed(id::DSSE_KEYID, "none").with_detail("the seal names its key in the public-key hint alone")
        } else {
            Check::compare(id::DSSE_KEYID, shortened_plain(&seal.hint), shortened_plain(&envelope.keyid))
        });
        self.push(if envelope.keyid.is_empty() {
            Check::passed(id::DSSE_KEYID, "none").with_detail("the seal names its key in the public-key hint alone")
        } else {
            Check::compare(id::DSSE_KEYID, shortened_plain(&seal.hint), shortened_plain(&envelope.keyid))
        });
        self.push(match key {
            None => Check::skipped(id::DSSE_SIGNATURE, "the key is not in the policy"),
            Some(key) if key.key.verifies(&envelope.pae(), &envelope.signature) => {
                Check::passed(id::DSSE_SIGNATURE, format!("a signature by {}", key.id))
            }
            Some(key) => Check::failed(
                id::DSSE_SIGNATURE,
                format!("a signature that key {} verifies", key.id),
                "one that it does not: payload, payload type or signature was changed, or another key signed",
            ),
        });
    }

    fn statement(&mut self, statement: &Statement, subjects: &SubjectDigests, expectation: &Expectation<'_>) {
        let release = &statement.predicate.release;
        self.push(Check::compare(id::STATEMENT_TYPE, STATEMENT_TYPE, shortened_plain(&statement.statement_type)));
        self.push(Check::compare(id::STATEMENT_PREDICATE, PREDICATE_TYPE, shortened_plain(&statement.predicate_type)));
        let bundle = statement.subject_digest(&release.subject_name());
        let index = statement.subject_digest(INDEX_SUBJECT);
        let subject = release.subject_name();
        self.push(subject_check(id::STATEMENT_SUBJECT_BUNDLE, &subject, bundle, subjects.bundle));
        self.push(subject_check(id::STATEMENT_SUBJECT_INDEX, INDEX_SUBJECT, index, subjects.symbol_index));
        let signed_root = &statement.predicate.modules_root;
        self.push(match (signed_root, subjects.modules_root) {
            (Some(signed), Some(found)) => {
                Check::compare(id::STATEMENT_MODULES, shortened_plain(signed), to_hex(&found))
            }
            (Some(signed), None) => {
                Check::passed(id::STATEMENT_MODULES, shortened_plain(signed)).with_detail("as signed, not recomputed")
            }
            (None, _) => {
                Check::passed(id::STATEMENT_MODULES, "none").with_detail("a frame of the bundle cannot be proved")
            }
        });
        self.facts.signed_modules_root.clone_from(signed_root);
        for (check, asked, found) in [
            (id::STATEMENT_NAME, expectation.name, &release.name),
            (id::STATEMENT_VERSION, expectation.version, &release.version),
        ] {
            self.push(match asked {
                Some(asked) => Check::compare(check, asked, found.as_str()),
                None => Check::passed(check, found.as_str()).with_detail("none in particular was asked for"),
            });
        }
        self.facts.signed_bundle_sha256 = bundle.map(|hash| to_hex(&hash));
        self.facts.signed_index_sha256 = index.map(|hash| to_hex(&hash));
        self.facts.release = Some(release.clone());
    }

    fn log(
        &mut self,
        seal: &SigstoreBundle,
        key: Option<&PolicyKey>,
        trust: &Trust,
        expectation: &Expectation<'_>,
        at: UtcSeconds,
    ) {
        let entry = &seal.entry;
        let fragment = expectation.fragment.map(TileFragment::parse);
        let checkpoint = SignedCheckpoint::parse(match &fragment {
            Some(Ok(fragment)) => &fragment.checkpoint,
            _ => &entry.checkpoint,
        });
        let origin = checkpoint.as_ref().ok().map(|signed| signed.checkpoint.origin.as_str());
        let named = trust.policy.log(entry.log_id, origin);
        self.push(match named {
            Some(log) => Check::passed(id::LOG_ID, format!("{} ({})", log.id, log.identity.origin)),
            None => {
                let known: Vec<String> = trust.policy.logs.iter().map(|log| log.id.to_string()).collect();
                Check::failed(
                    id::LOG_ID,
                    format!("a log of the policy: {}", known.join(", ")),
                    entry.log_id.to_string(),
                )
            }
        });
        self.push(match key {
            None => Check::skipped(id::LOG_ENTRY, "the key is not in the policy"),
            Some(key) => log::body(entry, &seal.envelope, &key.key),
        });
        // With one pinned log the later checks make sense even where the id was changed.
        let only = trust.policy.logs.first().filter(|_| trust.policy.logs.len() == 1);
        let Some(log) = named.or(only) else {
            for check in [
                id::LOG_KEY_VALIDITY,
                id::LOG_INDEX,
                id::LOG_KIND,
                id::LOG_TIMESTAMP,
                id::LOG_ORIGIN,
                id::LOG_CHECKPOINT,
                id::LOG_INCLUSION,
                id::LOG_WITNESSES,
                id::LOG_FRESHNESS,
            ] {
                self.push(Check::skipped(check, "the log is not in the policy"));
            }
            return;
        };
        self.log_facts(seal, log);
        self.push(if log.validity.contains(at) {
            Check::passed(id::LOG_KEY_VALIDITY, format!("{at} lies in: {}", log.validity))
        } else {
            Check::failed(id::LOG_KEY_VALIDITY, format!("a time in: {}", log.validity), at.to_string())
                .with_detail(format!("log {}", log.identity.origin))
        });
        self.push(log::index(entry, log));
        self.push(log::kind(entry, &log.identity));
        let timestamp = log::timestamp(entry, &log.identity, &log.validity);
        if let (EntryKind::Dsse(signed), false) = (&entry.kind, timestamp.is_failed()) {
            self.facts.integrated_time = Some(signed.integrated_time);
        }
        self.push(timestamp);
        let (checks, signed) = log::inclusion(entry, &log.identity, checkpoint, fragment.as_ref());
        checks.into_iter().for_each(|check| self.push(check));
        let (check, cosigned) = log::witnesses(log, signed.as_ref());
        self.push(check);
        self.facts.witnesses = cosigned.len() as u64;
        self.facts.witness_names = cosigned.iter().map(|(name, _)| name.clone()).collect();
        self.facts.witnessed_at = cosigned.iter().map(|(_, time)| *time).max();
        self.push(match (expectation.seen, &signed) {
            (None, _) => Check::skipped(id::LOG_FRESHNESS, NO_STATE),
            (Some(_), None) => Check::skipped(id::LOG_FRESHNESS, "there is no verified checkpoint"),
            (Some(seen), Some(signed)) => {
                seen.freshness(trust, &log.identity, &signed.checkpoint, expectation.consistency)
            }
        });
        if let Some(signed) = signed {
            self.facts.tree_size = Some(signed.checkpoint.size);
            self.checkpoints.push((log.identity.clone(), signed.checkpoint));
        }
    }

    fn log_facts(&mut self, seal: &SigstoreBundle, log: &PolicyLog) {
        self.facts.rekor_tile_ref = Some(seal.entry.reference(&log.identity.origin));
        self.facts.log_origin = Some(log.identity.origin.to_string());
        self.facts.log_id = Some(log.id);
        self.facts.log_operator = Some(log.operator.clone());
        self.facts.log_index = Some(seal.entry.log_index);
    }
}

/// Compares a signed subject with a recomputed digest.
fn subject_check(check: &'static str, name: &str, signed: Option<Hash>, computed: Option<Hash>) -> Check {
    let text = |hash: &Hash| format!("sha256:{}", to_hex(hash));
    match (signed, computed) {
        (None, _) => Check::failed(check, format!("exactly one subject {name} with a sha256"), "none, or several"),
        (Some(signed), None) => {
            Check::skipped(check, format!("signed as {}, not recomputed: the file is not here", text(&signed)))
        }
        (Some(signed), Some(computed)) => {
            Check::compare(check, text(&computed), text(&signed)).with_detail(format!("subject {name}"))
        }
    }
}

/// What is printed of a text that came from outside.
fn shortened(text: &str) -> String {
    format!("{:?}", shortened_plain(text))
}

/// Long texts are cut, but never so that two different ones look the same.
fn shortened_plain(text: &str) -> String {
    if text.chars().count() <= 200 && !text.chars().any(char::is_control) {
        return text.to_owned();
    }
    let start: String = text.chars().take(80).flat_map(char::escape_default).collect();
    format!("{start}… (sha256 {})", to_hex(&sha256(text.as_bytes())))
}
