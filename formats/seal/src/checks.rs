//! The checks that verification runs: what one says, and the catalogue of their ids.
//!
//! An id is a promise to users: it stands in JSON, in error texts and in `docs/formats/seal.md`,
//! and is never given another meaning. A test holds that page to [`CATALOGUE`].

use std::fmt;

use serde::Serialize;

/// How one check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// What was expected was found.
    Passed,
    /// Something else was found.
    Failed,
    /// Not run: not asked for, or what it needs was missing; `detail` says which.
    Skipped,
}

impl CheckStatus {
    /// The stable text: `passed`, `failed` or `skipped`.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

impl fmt::Display for CheckStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// One check of a verification: what it expected, what it found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// An id of [`CATALOGUE`].
    pub id: &'static str,
    /// How it ended.
    pub status: CheckStatus,
    /// What had to be found, as text for a person; empty where there is nothing to compare.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub expected: String,
    /// What was found, likewise.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub found: String,
    /// Which object was checked, why it was skipped, or what to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl Check {
    /// A check that held; `found` is what it saw (it is also what was expected).
    #[must_use]
    pub fn passed(id: &'static str, found: impl Into<String>) -> Self {
        let found = found.into();
        Self { id, status: CheckStatus::Passed, expected: found.clone(), found, detail: String::new() }
    }

    /// A check that did not hold.
    #[must_use]
    pub fn failed(id: &'static str, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { id, status: CheckStatus::Failed, expected: expected.into(), found: found.into(), detail: String::new() }
    }

    /// A check that an error refused. The readers' errors say both sides themselves ("expected A, found B"); they are taken
    /// apart here, so that no report has one pair within another. `expected` stands where the error has what was found alone.
    #[must_use]
    pub fn refused_by(id: &'static str, expected: impl Into<String>, error: &impl fmt::Display) -> Self {
        let text = error.to_string();
        match Sides::of(&text) {
            None => Self::failed(id, expected, text),
            Some(Sides { of, expected, found }) => Self::failed(id, expected, found).with_detail(of),
        }
    }

    /// A check that was not run, and why.
    #[must_use]
    pub fn skipped(id: &'static str, why: impl Into<String>) -> Self {
        Self { id, status: CheckStatus::Skipped, expected: String::new(), found: String::new(), detail: why.into() }
    }

    /// Passed when the two texts are equal, failed otherwise.
    #[must_use]
    pub fn compare(id: &'static str, expected: impl Into<String>, found: impl Into<String>) -> Self {
        let (expected, found) = (expected.into(), found.into());
        let status = if expected == found { CheckStatus::Passed } else { CheckStatus::Failed };
        Self { id, status, expected, found, detail: String::new() }
    }

    /// The same check with `detail` set.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Whether the check failed.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.status == CheckStatus::Failed
    }
}

/// The parts of an error's text: of what it speaks, what it expected and what it found.
pub(crate) struct Sides<'t> {
    pub(crate) of: &'t str,
    pub(crate) expected: &'t str,
    pub(crate) found: &'t str,
}

impl<'t> Sides<'t> {
    /// Of `[what: ]expected A, found B`, `… expected A: why not` or `… expected A`; `None` for any other text.
    pub(crate) fn of(text: &'t str) -> Option<Self> {
        let (of, rest) = text.split_once("expected ")?;
        let of = if of.is_empty() { of } else { of.strip_suffix(": ")? };
        let ends = [", found ", ": "].into_iter().filter_map(|end| Some((rest.find(end)?, end)));
        let (expected, found) = match ends.min() {
            Some((_, end)) => rest.split_once(end)?,
            None => (rest, "something else"),
        };
        Some(Self { of, expected, found })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id, self.status)?;
        match self.status {
            CheckStatus::Passed => {
                if !self.found.is_empty() {
                    write!(f, ": {}", self.found)?;
                }
            }
            CheckStatus::Failed => write!(f, ": expected {}, found {}", self.expected, self.found)?,
            CheckStatus::Skipped => {}
        }
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        Ok(())
    }
}

/// Which parts of a seal are to be verified. The default is everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// The DSSE envelope, its statement and its key.
    pub dsse: bool,
    /// The transparency-log entry, its proof and its checkpoint.
    pub rekor: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Self { dsse: true, rekor: true }
    }
}

impl Parts {
    /// Whether checks of this group are run under these parts.
    #[must_use]
    pub fn covers(self, group: CheckGroup) -> bool {
        match group {
            CheckGroup::Dsse => self.dsse,
            CheckGroup::Rekor => self.rekor,
            CheckGroup::Content | CheckGroup::Seal | CheckGroup::Trust => true,
        }
    }
}

/// What a check is about, and so which part flag runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CheckGroup {
    /// The bundle's own bytes.
    Content,
    /// That there is a seal and that it has the right form.
    Seal,
    /// The envelope and the statement in it.
    Dsse,
    /// The trust directory, and the key that it must know.
    Trust,
    /// The log entry, its proof and its checkpoint.
    Rekor,
}

impl CheckGroup {
    /// The stable text: `content`, `seal`, `dsse`, `trust` or `rekor`.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Seal => "seal",
            Self::Dsse => "dsse",
            Self::Trust => "trust",
            Self::Rekor => "rekor",
        }
    }
}

/// A line of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckInfo {
    /// The stable id.
    pub id: &'static str,
    /// What it is about.
    pub group: CheckGroup,
    /// What holds when it passes, in one sentence.
    pub sentence: &'static str,
}

/// The catalogue's entry of an id.
#[must_use]
pub fn describe(id: &str) -> Option<&'static CheckInfo> {
    CATALOGUE.iter().find(|info| info.id == id)
}

macro_rules! catalogue {
    ($($group:ident $constant:ident $id:literal $sentence:literal)*) => {
        /// The ids as constants, so that a misspelt one does not compile.
        pub mod id {
            $(#[doc = $sentence] pub const $constant: &str = $id;)*
        }

        /// Every check that verification knows, in the order in which it is run.
        pub const CATALOGUE: &[CheckInfo] = &[
            $(CheckInfo { id: $id, group: CheckGroup::$group, sentence: $sentence },)*
        ];
    };
}

catalogue! {
    Content BLOB_DIGEST "blob.digest" "Every file that the symbol index lists is present with the size and sha256 that the index gives."
    Content BLOB_EXTRA "blob.extra" "A pulled directory holds the bundle's files and its seal, nothing else, and no link."
    Content MANIFEST_DIGEST "manifest.digest" "Every manifest that the image index reaches has the size and digest of its descriptor, and their layers are the files of the symbol index."
    Content INDEX_DIGEST "index.digest" "The image index and the symbol index have the digests by which they were asked for."
    Content INDEX_SCHEMA "index.schema" "The symbol index is canonical JSON of a schema version that this program reads."
    Content PAGE_ROOT "page.root" "The page tree of every file has the root that the symbol index gives."
    Content PIECE_ROOT "piece.root" "The tree over the pieces of every symbol table has the root that the symbol index gives, where it gives one."
    Content MODULE_BUILD_ID "module.build-id" "The debug id read from each module's own file is the one under which the symbol index lists it."
    Content TABLE_DERIVATION "table.derivation" "Every table names, as its source, the sha256 of a file that the symbol index lists for the same module."
    Content FRAME_PROOF "frame.proof" "The records of a frame's proof lead, by their pieces, their table and its module's entry, to a root of modules."
    Content TABLE_REDERIVED "table.rederived" "Every table is, byte for byte, the one that this program makes again from the files that the module was made from."
    Content KIT_SEAL "kit.seal" "A kit's list of files is signed by a key of the policy that may sign kits or bundles of this name."
    Content KIT_FILES "kit.files" "A kit holds the files of its list with the sha256 that the list gives, and no other file and no link."
    Content KIT_LOG "kit.log" "The checkpoints of a kit are signed by logs of the policy, and agree with the seal's and with those seen before."
    Seal SEAL_PRESENT "seal.present" "The bundle has a seal."
    Seal SEAL_STRUCTURE "seal.structure" "The seal is a Sigstore bundle v0.3 with a public-key hint, one DSSE signature and one log entry, within the size limits."
    Trust TRUST_ROOT "trust.root" "root.json is well formed, has not expired, and each of its roots is signed by enough of its own keys and of those before."
    Trust TRUST_ROOT_CHAIN "trust.root-chain" "The root seen last is this one or one before it, from which it follows by rotations that the old and the new keys signed."
    Trust TRUST_POLICY "trust.policy" "policy.dsse.json is signed by as many root keys as the root asks for, has not expired, and asks for nothing that this program cannot check."
    Trust TRUST_POLICY_VERSION "trust.policy-version" "The policy is not older than the one seen last, and not another one of the same version."
    Trust TRUST_LOGS "trust.logs" "trusted_root.json gives, for every log of the policy, a key whose log id is the policy's, under the policy's origin."
    Trust TRUST_KEY "trust.key" "The key that the seal names is in the policy and may sign this name and predicate type."
    Trust TRUST_KEY_VALIDITY "trust.key-validity" "The time of verification lies within the key's validity."
    Trust TRUST_REVOCATION "trust.revocation" "The key is not revoked, or the revocation excepts this bundle or this place in the log."
    Trust TRUST_THRESHOLD "trust.threshold" "As many distinct keys as the policy asks for have made seals of the bundle that hold."
    Dsse DSSE_PAYLOAD_TYPE "dsse.payload-type" "The envelope's payload type is application/vnd.in-toto+json."
    Dsse DSSE_KEYID "dsse.keyid" "The envelope's key id, where it has one, equals the seal's public-key hint."
    Dsse DSSE_SIGNATURE "dsse.signature" "The policy's key verifies the signature over the envelope's PAE."
    Dsse STATEMENT_TYPE "statement.type" "The payload is an in-toto Statement v1 below 64 KiB."
    Dsse STATEMENT_PREDICATE "statement.predicate" "The statement's predicate type is https://symseal.dev/bundle/v1 and its predicate can be read."
    Dsse STATEMENT_SUBJECT_BUNDLE "statement.subject.bundle" "The subject NAME@VERSION is the release that the predicate names, and its sha256 is the bundle's digest."
    Dsse STATEMENT_SUBJECT_INDEX "statement.subject.index" "The subject symbol_index.json has the sha256 of the symbol index."
    Dsse STATEMENT_MODULES "statement.modules" "The list of modules, and the root over them where the statement names one, are those of the symbol index."
    Dsse STATEMENT_NAME "statement.name" "The release's name is the one that was asked for."
    Dsse STATEMENT_VERSION "statement.version" "The release's version is the one that was asked for."
    Rekor LOG_ID "log.id" "The entry's log id is that of a log in the policy."
    Rekor LOG_KEY_VALIDITY "log.key-validity" "The time of verification lies within the log key's validity."
    Rekor LOG_INDEX "log.index" "The entry stands before the place at which the policy closed the log, if it did."
    Rekor LOG_KIND "log.kind" "The entry is of the kind that the log takes: dsse 0.0.1 in a Rekor v1, hashedrekord 0.0.2 in any other."
    Rekor LOG_ENTRY "log.entry" "The logged body is, byte for byte, the entry of this envelope, signature and key."
    Rekor LOG_TIMESTAMP "log.timestamp" "The key of a Rekor v1 verifies the signed entry timestamp, and was valid at that time; other logs sign no times."
    Rekor LOG_ORIGIN "log.origin" "The checkpoint's origin line and its signature's name are the policy's origin."
    Rekor LOG_CHECKPOINT "log.checkpoint" "The checkpoint is a strictly formed signed note that the log's key verifies."
    Rekor LOG_INCLUSION "log.inclusion" "The audit path, or the tile fragment given for it, has exactly what it needs and leads from the entry to the checkpoint's root."
    Rekor LOG_WITNESSES "log.witnesses" "As many distinct witnesses as the policy asks for have cosigned the checkpoint, and no line of a known witness fails."
    Rekor LOG_FRESHNESS "log.freshness" "The checkpoint is the first that is seen of the log, or agrees with those before: the same root at one size, and at another a consistency proof."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_sentences_end_with_a_full_stop() {
        for (n, info) in CATALOGUE.iter().enumerate() {
            assert!(info.sentence.ends_with('.'), "{}", info.id);
            assert_eq!(CATALOGUE.iter().position(|other| other.id == info.id), Some(n), "{} twice", info.id);
        }
    }

    #[test]
    fn an_error_that_says_both_sides_is_not_nested() {
        let sides = |error: &str| {
            let check = Check::refused_by(id::LOG_CHECKPOINT, "a checkpoint", &error);
            [check.expected, check.found, check.detail]
        };
        assert_eq!(sides("expected the origin a, found \"b\""), ["the origin a", "\"b\"", ""]);
        assert_eq!(
            sides("expected the JSON of a seal: EOF, found at 1"),
            ["the JSON of a seal", "EOF, found at 1", ""]
        );
        assert_eq!(sides("expected base64 in sig"), ["base64 in sig", "something else", ""]);
        assert_eq!(sides("tile/0/000: expected 32 bytes, found 9"), ["32 bytes", "9", "tile/0/000"]);
        let plain = "the signature by a does not verify";
        assert_eq!(sides(plain), ["a checkpoint", plain, ""]);
    }

    #[test]
    fn a_failed_check_prints_its_id_and_both_sides() {
        let check = Check::failed(id::LOG_ORIGIN, "a.example", "b.example").with_detail("entry 0");
        assert_eq!(check.to_string(), "log.origin failed: expected a.example, found b.example (entry 0)");
    }
}
