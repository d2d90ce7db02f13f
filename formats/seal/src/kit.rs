//! The seal of a kit: a signed list of every file that travels together.
//!
//! A kit carries a bundle to a site without a network: the bundle's layout, what its log says of itself, a program that
//! verifies. Each of the bundle's files is held by the bundle's own seal; the kit's seal holds the rest, and that nothing
//! was added or left behind. It is a DSSE envelope over an in-toto statement whose subjects are the files
//! (`docs/formats/kit.md`), and stands in no log: it says who packed the kit, not what the release is.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::checks::{Check, id};
use crate::dsse::{Envelope, IN_TOTO_PAYLOAD_TYPE};
use crate::encoding::{Hash, hash_from_hex, to_hex};
use crate::keys::KeyId;
use crate::statement::{BuilderInfo, DigestSet, PREDICATE_TYPE, Release, STATEMENT_TYPE, Subject};
use crate::time::UtcSeconds;
use crate::trust::{PolicyKey, Trust};

/// The predicate type of a kit's seal.
pub const KIT_PREDICATE_TYPE: &str = "https://symseal.dev/kit/v1";
/// The largest seal of a kit that is read, in bytes: some 200,000 files.
pub const KIT_SEAL_LIMIT: usize = 64 << 20;
/// The most files of a kit.
pub const MAX_KIT_FILES: usize = 1_000_000;
/// The longest path of a file in a kit, in bytes; below what a tar header holds in its name alone.
const MAX_PATH_BYTES: usize = 100;

/// What the seal of a kit says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KitStatement {
    /// [`STATEMENT_TYPE`].
    #[serde(rename = "_type")]
    statement_type: String,
    /// Every file but the seal itself, by path; in the order of their bytes, each once.
    subject: Vec<Subject>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    /// What the files are.
    pub predicate: KitPredicate,
}

/// The predicate of [`KIT_PREDICATE_TYPE`]. Unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KitPredicate {
    /// Which release the bundle belongs to, as its index says.
    pub release: Release,
    /// The bundle's digest, `sha256:…`.
    pub bundle: String,
    /// The program that packed the kit.
    pub builder: BuilderInfo,
    /// The path of the program that verifies, where the kit has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verifier: Option<String>,
    /// The paths of checkpoints of logs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<String>,
    /// The path of a file of consistency proofs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency: Option<String>,
}

/// Whether `path` can be that of a file in a kit: letters, digits and `._-` between single slashes, no component `.` or `..`.
#[must_use]
pub fn is_kit_path(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_PATH_BYTES).contains(&path.len())
        && path.split('/').all(|part| !part.is_empty() && part != "." && part != ".." && part.bytes().all(plain))
}

impl KitStatement {
    /// The statement about these files, in any order.
    #[must_use]
    pub fn new(predicate: KitPredicate, files: impl IntoIterator<Item = (String, Hash)>) -> Self {
        let subject = |(name, hash): (String, Hash)| Subject { name, digest: DigestSet { sha256: to_hex(&hash) } };
        let mut subject: Vec<Subject> = files.into_iter().map(subject).collect();
        subject.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            statement_type: STATEMENT_TYPE.to_owned(),
            subject,
            predicate_type: KIT_PREDICATE_TYPE.to_owned(),
            predicate,
        }
    }

    /// Canonical JSON (RFC 8785): the payload that is signed.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        crate::canonical_json(self)
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// What is wrong with it, for a person to read.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let this: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        if this.statement_type != STATEMENT_TYPE || this.predicate_type != KIT_PREDICATE_TYPE {
            return Err("a statement or predicate of another type".to_owned());
        }
        this.predicate.release.check().map_err(|error| error.to_string())?;
        if this.subject.len() > MAX_KIT_FILES {
            return Err(format!("more than {MAX_KIT_FILES} files"));
        }
        // Paths in order are paths that are there once; a folder of one name with a file cannot be laid down.
        let mut before: Option<&str> = None;
        let mut folders: BTreeSet<&str> = BTreeSet::new();
        for Subject { name, digest } in &this.subject {
            if !is_kit_path(name) || before.is_some_and(|before| before >= name.as_str()) {
                return Err(format!("a path that no file of a kit has, or out of order: {name:.120?}"));
            }
            if hash_from_hex(&digest.sha256).is_none() {
                return Err(format!("a digest of {name} that is no sha256"));
            }
            folders.extend(name.match_indices('/').filter_map(|(at, _)| name.get(..at)));
            before = Some(name);
        }
        match this.subject.iter().find(|file| folders.contains(file.name.as_str())) {
            Some(both) => Err(format!("{} as a file and as a folder", both.name)),
            None => Ok(this),
        }
    }

    /// Every file but the seal itself: its path and sha256, in the order of the paths.
    pub fn files(&self) -> impl Iterator<Item = (&str, Hash)> {
        self.subject.iter().filter_map(|file| Some((file.name.as_str(), hash_from_hex(&file.digest.sha256)?)))
    }
}

/// What the seal of a kit was found to say, and who signed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedKit {
    /// The statement.
    pub statement: KitStatement,
    /// The key.
    pub signer: KeyId,
}

/// Verifies the seal of a kit against a trust directory at the time `at`.
///
/// The key must be in the policy, valid and not revoked, and allowed for the release's name; for kits, or for bundles.
///
/// # Errors
/// The check that failed: `kit.seal`, or one of the trust directory.
pub fn verify_kit(seal: &[u8], trust: &Trust, at: UtcSeconds) -> Result<SealedKit, Check> {
    let failed = |expected: String, found: String| Check::failed(id::KIT_SEAL, expected, found);
    if let Some(check) = trust.checks(at).into_iter().find(Check::is_failed) {
        return Err(check);
    }
    if seal.len() > KIT_SEAL_LIMIT {
        return Err(failed(format!("at most {KIT_SEAL_LIMIT} bytes"), seal.len().to_string()));
    }
    let envelope = Envelope::parse(seal).map_err(|error| Check::refused_by(id::KIT_SEAL, "a DSSE envelope", &error))?;
    if envelope.payload_type != IN_TOTO_PAYLOAD_TYPE {
        return Err(failed(format!("payload type {IN_TOTO_PAYLOAD_TYPE}"), format!("{:.120?}", envelope.payload_type)));
    }
    let Some(key) = trust.policy.key(&envelope.keyid) else {
        let known: Vec<String> = trust.policy.keys.iter().map(|key| key.id.to_string()).collect();
        let check = failed(format!("a key of the policy: {}", known.join(", ")), format!("{:.120?}", envelope.keyid));
        return Err(
            check.with_detail("whoever packed the kit is not trusted here; the policy must say so if it should")
        );
    };
    // Before the payload is read: nobody else's bytes reach the reader.
    if !key.key.verifies(&envelope.pae(), &envelope.signature) {
        let found = "one that it does not: the list of files or the signature was changed, or another key signed";
        return Err(failed(format!("a signature that key {} verifies", key.id), found.to_owned()));
    }
    let statement = KitStatement::parse(&envelope.payload)
        .map_err(|found| failed(format!("an in-toto statement of {KIT_PREDICATE_TYPE}"), found))?;
    may_sign(key, &statement, trust, at).map_err(|(expected, found)| failed(expected, found))?;
    Ok(SealedKit { statement, signer: key.id })
}

/// `Err` holds what was expected and what was found.
fn may_sign(key: &PolicyKey, statement: &KitStatement, trust: &Trust, at: UtcSeconds) -> Result<(), (String, String)> {
    let name = &statement.predicate.release.name;
    if !key.may_sign_name(name) {
        let expected = format!("a name among those that key {} may sign: {}", key.id, key.names.join(", "));
        return Err((expected, format!("{name:.120?}")));
    }
    // Who may seal the bundle itself may pack it, too.
    if !key.may_sign_type(KIT_PREDICATE_TYPE) && !key.may_sign_type(PREDICATE_TYPE) {
        return Err((format!("a key that may sign {KIT_PREDICATE_TYPE}"), key.predicate_types.join(", ")));
    }
    if !key.validity.contains(at) {
        return Err((format!("a time in: {}", key.validity), at.to_string()));
    }
    // Nothing says when a kit was packed, so that no exception from a revocation can apply.
    match trust.policy.revocation(key.id) {
        None => Ok(()),
        Some(_) => Err((format!("a key that is not revoked: {}", key.id), "revoked".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(files: &[&str]) -> KitStatement {
        let predicate = KitPredicate {
            release: Release::new("app", "1.0"),
            bundle: format!("sha256:{}", to_hex(&[1; 32])),
            builder: BuilderInfo { version: "0.1.0".to_owned() },
            verifier: None,
            checkpoints: Vec::new(),
            consistency: None,
        };
        KitStatement::new(predicate, files.iter().map(|path| ((*path).to_owned(), [2; 32])))
    }

    #[test]
    fn a_statement_lists_its_files_in_order_and_survives_reading() {
        let made = statement(&["oci-layout", "blobs/sha256/ab", "index.json"]);
        let read = KitStatement::parse(&made.to_json()).unwrap();
        assert_eq!(read, made);
        let paths: Vec<&str> = read.files().map(|(path, _)| path).collect();
        assert_eq!(paths, ["blobs/sha256/ab", "index.json", "oci-layout"]);
    }

    #[test]
    fn paths_that_lead_elsewhere_or_cannot_be_laid_down_are_refused() {
        for path in ["", "/a", "a/", "a//b", "./a", "a/../b", "..", "a\\b", "a b", "ä", "a\nb", &"a".repeat(101)] {
            assert!(!is_kit_path(path), "{path:?}");
            assert!(KitStatement::parse(&statement(&[path]).to_json()).is_err(), "{path:?}");
        }
        assert!(is_kit_path(&format!("blobs/sha256/{}", "a".repeat(64))));
        assert!(KitStatement::parse(&statement(&["a", "a"]).to_json()).is_err(), "twice");
        assert!(KitStatement::parse(&statement(&["a", "a-b", "a/b"]).to_json()).is_err(), "a file and a folder");
    }
}
