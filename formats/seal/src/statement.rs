//! The in-toto statement of a bundle: what a seal says.
//!
//! The form is described in `docs/formats/seal.md` and `docs/formats/schemas/statement.schema.json`.

use serde::{Deserialize, Serialize};

use crate::encoding::{Hash, hash_from_hex, sha256, to_hex};
use crate::text::is_invisible;

/// The in-toto statement type.
pub const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
/// The one predicate type of a bundle's seal.
pub const PREDICATE_TYPE: &str = "https://symseal.dev/bundle/v1";
/// The subject name under which the symbol index stands.
pub const INDEX_SUBJECT: &str = "symbol_index.json";
/// A statement is smaller than this many bytes: it goes through logs and registries whole.
pub const STATEMENT_LIMIT: usize = 64 * 1024;

/// A statement, as read; only the parts that verification compares are checked by the reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// [`STATEMENT_TYPE`].
    #[serde(rename = "_type")]
    pub statement_type: String,
    /// What the statement is about.
    pub subject: Vec<Subject>,
    /// [`PREDICATE_TYPE`].
    #[serde(rename = "predicateType")]
    pub predicate_type: String,
    /// What it says about it.
    pub predicate: Predicate,
}

/// A subject and its digests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// `NAME@VERSION` for the bundle, [`INDEX_SUBJECT`] for the symbol index.
    pub name: String,
    /// Its digests.
    pub digest: DigestSet,
}

/// The digests of a subject; algorithms other than SHA-256 are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestSet {
    /// Lower-case hex.
    pub sha256: String,
}

/// The predicate of [`PREDICATE_TYPE`]. Unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predicate {
    /// Which release the bundle belongs to.
    pub release: Release,
    /// What built it.
    pub builder: BuilderInfo,
    /// The files that went in, by base name; sorted by name, then digest. Empty where the whole list
    /// would not fit; `inputs_digest` covers it in either case.
    #[serde(default)]
    pub inputs: Vec<Input>,
    /// Count and digest of the whole list of inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_digest: Option<ListDigest>,
    /// Count and digest of the sorted list of debug ids.
    pub modules: ListDigest,
    /// Root of the tree over the modules' entries in the symbol index, lower-case hex: what a proof of one frame leads to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules_root: Option<String>,
    /// Digests (`sha256:…`) of bundles that this one replaces.
    #[serde(default)]
    pub supersedes: Vec<String>,
}

/// A release by name and version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// The product's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Such as `stable` or `nightly`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Rises with every release of a channel; below 2^53.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
}

/// The program that built the bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuilderInfo {
    /// Its version.
    pub version: String,
}

/// A file that went into the bundle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Input {
    /// Base name: never a build path.
    pub name: String,
    /// Lower-case hex.
    pub sha256: String,
}

/// How many things, and the SHA-256 of their list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListDigest {
    /// Number of items.
    pub count: u64,
    /// Lower-case hex of SHA-256 over the sorted items, each followed by a line feed.
    pub sha256: String,
}

impl ListDigest {
    /// Sorts the items by their bytes and hashes each followed by a line feed. Items hold no line feed.
    #[must_use]
    pub fn of<I: IntoIterator<Item = S>, S: Into<String>>(items: I) -> Self {
        let (count, sha256) = hash_of_list(items);
        Self { count, sha256: to_hex(&sha256) }
    }
}

/// How many items there are, and the SHA-256 over them, sorted by their bytes, each followed by a line feed.
pub(crate) fn hash_of_list<I: IntoIterator<Item = S>, S: Into<String>>(items: I) -> (u64, Hash) {
    let mut items: Vec<String> = items.into_iter().map(Into::into).collect();
    items.sort_unstable();
    let mut text = Vec::new();
    for item in &items {
        text.extend_from_slice(item.as_bytes());
        text.push(b'\n');
    }
    (items.len() as u64, sha256(&text))
}

/// What a statement is made from.
#[derive(Debug, Clone)]
pub struct StatementParts<'a> {
    /// The bundle's digest: SHA-256 of its image index.
    pub bundle: Hash,
    /// SHA-256 of `symbol_index.json`.
    pub symbol_index: Hash,
    /// Which release.
    pub release: Release,
    /// The producer's version.
    pub builder_version: &'a str,
    /// Base name and SHA-256 of every input, in any order.
    pub inputs: Vec<(String, Hash)>,
    /// Every debug id of the bundle as text, in any order.
    pub debug_ids: Vec<String>,
    /// Root of the tree over the modules' entries in the symbol index.
    pub modules_root: Option<Hash>,
    /// Digests of the bundles that this one replaces.
    pub supersedes: Vec<Hash>,
}

/// A statement cannot be made or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// Larger than [`STATEMENT_LIMIT`].
    #[error("expected a statement below {STATEMENT_LIMIT} bytes, found {found}")]
    TooLarge {
        /// Its size in bytes.
        found: usize,
    },
    /// Not the JSON form.
    #[error("expected an in-toto statement: {reason}")]
    Json {
        /// What the JSON reader said.
        reason: String,
    },
    /// A name or version that cannot stand in `NAME@VERSION`.
    #[error(
        "expected a release {field} of 1 to 200 printable characters without white space{also}, found {found:?}; choose another"
    )]
    Release {
        /// `name` or `version`.
        field: &'static str,
        /// More that is excluded.
        also: &'static str,
        /// What was given.
        found: String,
    },
    /// A sequence that JSON numbers do not hold exactly.
    #[error("expected a release sequence below 2^53, found {found}")]
    Sequence {
        /// What was given.
        found: u64,
    },
}

/// The largest integer that every JSON reader keeps, plus one.
pub const JSON_INTEGER_LIMIT: u64 = 1 << 53;

impl Release {
    /// A release with neither channel nor sequence.
    #[must_use]
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { name: name.into(), version: version.into(), channel: None, sequence: None }
    }

    /// `NAME@VERSION`.
    #[must_use]
    pub fn subject_name(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// Whether name, version and sequence can be sealed.
    ///
    /// # Errors
    /// [`StatementError::Release`] or [`StatementError::Sequence`].
    pub fn check(&self) -> Result<(), StatementError> {
        let printable = |text: &str| {
            let length = text.chars().count();
            (1..=200).contains(&length) && !text.chars().any(|c| c.is_control() || c.is_whitespace() || is_invisible(c))
        };
        // The last `@` splits a subject's name, so a version has none; `*` would read as a pattern.
        if !printable(&self.name) || self.name.contains('*') {
            return Err(StatementError::Release { field: "name", also: " and *", found: self.name.clone() });
        }
        if !printable(&self.version) || self.version.contains('@') {
            return Err(StatementError::Release { field: "version", also: " and @", found: self.version.clone() });
        }
        match self.sequence {
            Some(found) if found >= JSON_INTEGER_LIMIT => Err(StatementError::Sequence { found }),
            _ => Ok(()),
        }
    }
}

/// The last component: a build path must not enter what is signed.
fn base_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

impl Statement {
    /// Makes the statement of a bundle. The list of inputs is left out, and only its digest kept, where
    /// it would not fit.
    ///
    /// # Errors
    /// [`StatementError`] if the release cannot be sealed or the statement stays too large.
    pub fn build(parts: StatementParts<'_>) -> Result<Self, StatementError> {
        parts.release.check()?;
        let mut inputs: Vec<Input> = parts
            .inputs
            .into_iter()
            .map(|(name, hash)| Input { name: base_name(&name), sha256: to_hex(&hash) })
            .collect();
        inputs.sort();
        inputs.dedup();
        let inputs_digest = ListDigest::of(inputs.iter().map(|input| format!("{}  {}", input.sha256, input.name)));
        let subject = |name: String, hash: &Hash| Subject { name, digest: DigestSet { sha256: to_hex(hash) } };
        let mut statement = Self {
            statement_type: STATEMENT_TYPE.into(),
            subject: vec![
                subject(parts.release.subject_name(), &parts.bundle),
                subject(INDEX_SUBJECT.into(), &parts.symbol_index),
            ],
            predicate_type: PREDICATE_TYPE.into(),
            predicate: Predicate {
                release: parts.release,
                builder: BuilderInfo { version: parts.builder_version.into() },
                inputs,
                inputs_digest: Some(inputs_digest),
                modules: ListDigest::of(parts.debug_ids),
                modules_root: parts.modules_root.map(|root| to_hex(&root)),
                supersedes: parts.supersedes.iter().map(|hash| format!("sha256:{}", to_hex(hash))).collect(),
            },
        };
        if statement.to_json().len() >= STATEMENT_LIMIT {
            statement.predicate.inputs.clear();
        }
        match statement.to_json().len() {
            found if found >= STATEMENT_LIMIT => Err(StatementError::TooLarge { found }),
            _ => Ok(statement),
        }
    }

    /// Canonical JSON (RFC 8785): the payload that is signed.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        crate::canonical_json(self)
    }

    /// Reads a statement of [`PREDICATE_TYPE`]. The types are left for the caller to compare.
    ///
    /// # Errors
    /// [`StatementError::TooLarge`] or [`StatementError::Json`].
    pub fn parse(json: &[u8]) -> Result<Self, StatementError> {
        if json.len() >= STATEMENT_LIMIT {
            return Err(StatementError::TooLarge { found: json.len() });
        }
        serde_json::from_slice(json).map_err(|error| StatementError::Json { reason: error.to_string() })
    }

    /// The SHA-256 of the one subject with this name; `None` if there is none, or more than one.
    #[must_use]
    pub fn subject_digest(&self, name: &str) -> Option<Hash> {
        let mut named = self.subject.iter().filter(|subject| subject.name == name);
        match (named.next(), named.next()) {
            (Some(subject), None) => hash_from_hex(&subject.digest.sha256),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(inputs: usize) -> StatementParts<'static> {
        StatementParts {
            bundle: [1; 32],
            symbol_index: [2; 32],
            release: Release::new("tool", "1.0"),
            builder_version: "0.1.0",
            inputs: (0..inputs).rev().map(|n| (format!("lib{n:05}.so"), [3; 32])).collect(),
            debug_ids: vec!["bb".into(), "aa".into()],
            modules_root: Some([3; 32]),
            supersedes: vec![[4; 32]],
        }
    }

    #[test]
    fn a_statement_is_canonical_and_survives_reading() {
        let mut parts = parts(3);
        parts.inputs.push(("/build/of/today/lib00001.so".into(), [3; 32]));
        let statement = Statement::build(parts).unwrap();
        let json = statement.to_json();
        assert!(json.starts_with(br#"{"_type":"https://in-toto.io/Statement/v1","predicate":{"builder":"#));
        assert_eq!(Statement::parse(&json), Ok(statement.clone()));
        assert_eq!(statement.subject_digest("tool@1.0"), Some([1; 32]));
        assert_eq!(statement.subject_digest(INDEX_SUBJECT), Some([2; 32]));
        let names: Vec<&str> = statement.predicate.inputs.iter().map(|input| input.name.as_str()).collect();
        assert_eq!(names, ["lib00000.so", "lib00001.so", "lib00002.so"]);
        // printf 'aa\nbb\n' | sha256sum
        assert_eq!(
            statement.predicate.modules.sha256,
            "329d670e59ead1543a2d36865895972560bc434204c5f4a0c8219005dd312719"
        );
    }

    #[test]
    fn inputs_that_do_not_fit_are_left_to_their_digest() {
        let statement = Statement::build(parts(2_000)).unwrap();
        assert!(statement.predicate.inputs.is_empty());
        assert_eq!(statement.predicate.inputs_digest.as_ref().unwrap().count, 2_000);
        assert!(statement.to_json().len() < STATEMENT_LIMIT);
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let mut value: serde_json::Value =
            serde_json::from_slice(&Statement::build(parts(1)).unwrap().to_json()).unwrap();
        value["later"] = 1.into();
        value["predicate"]["later"] = 1.into();
        value["predicate"]["release"]["later"] = 1.into();
        value["subject"][0]["digest"]["sha512"] = "x".into();
        let read = Statement::parse(&serde_json::to_vec(&value).unwrap()).unwrap();
        assert_eq!(read, Statement::build(parts(1)).unwrap());
    }

    #[test]
    fn a_subject_named_twice_is_no_subject() {
        let mut statement = Statement::build(parts(0)).unwrap();
        statement.subject.push(statement.subject[1].clone());
        assert_eq!(statement.subject_digest(INDEX_SUBJECT), None);
    }

    #[test]
    fn releases_that_would_read_ambiguously_are_refused() {
        for (name, version) in [("", "1"), ("a", ""), ("a b", "1"), ("a*", "1"), ("a", "1@2"), ("a\n", "1")] {
            assert!(Release::new(name, version).check().is_err(), "{name:?} {version:?}");
        }
        assert!(Release::new("@scope/tool", "1.0-rc.1+b").check().is_ok());
        let release = Release { sequence: Some(1 << 53), ..Release::new("a", "1") };
        assert_eq!(release.check(), Err(StatementError::Sequence { found: 1 << 53 }));
    }

    #[test]
    fn a_statement_of_64_kib_is_refused_unread() {
        let json = vec![b' '; STATEMENT_LIMIT];
        assert_eq!(Statement::parse(&json), Err(StatementError::TooLarge { found: STATEMENT_LIMIT }));
    }
}
