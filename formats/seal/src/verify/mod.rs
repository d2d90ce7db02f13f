//! Verification of a seal: one check after another, each with what it expected and what it found.

mod log;

use serde::Serialize;

use crate::checkpoint::SignedCheckpoint;
use crate::checks::{CATALOGUE, Check, CheckGroup, Parts, describe, id};
use crate::dsse::IN_TOTO_PAYLOAD_TYPE;
use crate::encoding::{Hash, sha256, to_hex};
use crate::entry::EntryKind;
use crate::keys::{KeyId, LogId};
use crate::sigstore::SigstoreBundle;
use crate::statement::{INDEX_SUBJECT, PREDICATE_TYPE, Release, STATEMENT_TYPE, Statement};
use crate::time::UtcSeconds;
use crate::trust::{PolicyKey, PolicyLog, Trust};
pub use log::verify_entry;

/// The digests that were computed from the bundle itself, to be found among the signed subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubjectDigests {
    /// SHA-256 of the image index; `None` where it is not at hand (what `oras pull` leaves), then the
    /// signed digest is reported as signed and not recomputed.
    pub bundle: Option<Hash>,
    /// SHA-256 of `symbol_index.json`.
    pub symbol_index: Option<Hash>,
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
    /// How many witnesses' cosignatures were verified: none in this version.
    pub witnesses: u64,
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
    let mut run = Run { parts: expectation.parts, checks: Vec::new(), facts: SealFacts::default() };
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
    if let Some(seal) = &seal {
        run.seal(seal, subjects, trust, expectation, at);
    }
    run.finish()
}

struct Run {
    parts: Parts,
    checks: Vec<Check>,
    facts: SealFacts,
}

impl Run {
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
        SealVerification { checks, facts: self.facts }
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
        self.log(seal, key, trust, at);
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

    fn log(&mut self, seal: &SigstoreBundle, key: Option<&PolicyKey>, trust: &Trust, at: UtcSeconds) {
        let entry = &seal.entry;
        let checkpoint = SignedCheckpoint::parse(&entry.checkpoint);
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
                id::LOG_KIND,
                id::LOG_TIMESTAMP,
                id::LOG_ORIGIN,
                id::LOG_CHECKPOINT,
                id::LOG_INCLUSION,
                id::LOG_WITNESSES,
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
        self.push(log::kind(entry, &log.identity));
        let timestamp = log::timestamp(entry, &log.identity, &log.validity);
        if let (EntryKind::Dsse(signed), false) = (&entry.kind, timestamp.is_failed()) {
            self.facts.integrated_time = Some(signed.integrated_time);
        }
        self.push(timestamp);
        let (checks, signed) = log::inclusion(entry, &log.identity, checkpoint);
        self.facts.tree_size = signed.map(|checkpoint| checkpoint.size);
        for check in checks {
            self.push(check);
        }
        self.push(if log.witness_quorum == 0 {
            Check::passed(id::LOG_WITNESSES, "0 asked for, 0 checked")
        } else {
            Check::failed(id::LOG_WITNESSES, format!("{} cosignatures", log.witness_quorum), "0 checked")
                .with_detail("this version verifies no cosignatures")
        });
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
