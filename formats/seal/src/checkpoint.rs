//! C2SP checkpoints: a log's signed statement of its size and root.

use crate::encoding::{Hash, decimal, hash_from_base64, to_base64};
use crate::keys::{LogId, LogPublicKey};
use crate::note::{NoteError, SignedNote};
use crate::origin::Origin;
use crate::tlog::empty_root;

/// Which log signs: its origin and its key, and the id that both give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogIdentity {
    /// The first line of its checkpoints; its host is the name in its signatures.
    pub origin: Origin,
    /// Its key.
    pub key: LogPublicKey,
}

impl LogIdentity {
    /// The log's id, which follows from its key and, for Ed25519, its name.
    #[must_use]
    pub fn id(&self) -> LogId {
        self.key.log_id(&self.origin)
    }
}

/// The text of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// First line.
    pub origin: String,
    /// Number of entries.
    pub size: u64,
    /// RFC 6962 root of that many entries.
    pub root: Hash,
    /// Further lines, each non-empty.
    pub extensions: Vec<String>,
}

/// A checkpoint with its signature lines, none of them verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCheckpoint {
    /// What the note's text says.
    pub checkpoint: Checkpoint,
    /// The note.
    pub note: SignedNote,
}

/// A checkpoint is malformed or not what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// Not a signed note.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// A line of the text has another form.
    #[error("expected {expected} in the checkpoint's line {line}, found {found:?}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What belongs there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// The root of an empty log is SHA-256 of nothing.
    #[error("expected the root of an empty tree at size 0, found another")]
    EmptyRoot,
    /// The origin line is another log's.
    #[error("expected the origin {expected}, found {found:?}")]
    Origin {
        /// The pinned origin.
        expected: String,
        /// The first line.
        found: String,
    },
    /// No signature line has the log's name and key hint.
    #[error("expected a signature by {expected}, found signatures by {found}")]
    Unsigned {
        /// Name and key hint of the pinned log.
        expected: String,
        /// Names and key hints of the lines.
        found: String,
    },
    /// A line with the log's name and key hint does not verify.
    #[error("the signature by {signer} does not verify")]
    Signature {
        /// Name and key hint.
        signer: String,
    },
}

fn signer(name: &str, hint: [u8; 4]) -> String {
    format!("{name}+{}", crate::encoding::to_hex(&hint))
}

impl Checkpoint {
    /// The text that is signed.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{}\n{}\n{}\n", self.origin, self.size, to_base64(&self.root));
        for line in &self.extensions {
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    /// Reads the text of a note.
    ///
    /// # Errors
    /// [`CheckpointError::Line`] or [`CheckpointError::EmptyRoot`].
    pub fn parse(text: &str) -> Result<Self, CheckpointError> {
        let lines: Vec<&str> = text.strip_suffix('\n').unwrap_or(text).split('\n').collect();
        let line = |n: usize| lines.get(n).copied().unwrap_or_default();
        let wrong = |n: usize, expected: &'static str| CheckpointError::Line {
            line: n + 1,
            expected,
            found: line(n).chars().take(120).collect(),
        };
        if line(0).is_empty() {
            return Err(wrong(0, "an origin"));
        }
        let size = decimal(line(1)).ok_or_else(|| wrong(1, "a tree size in decimal, without sign or leading zero"))?;
        let root = hash_from_base64(line(2)).ok_or_else(|| wrong(2, "the base64 of a 32-byte root"))?;
        let extensions = lines.get(3..).unwrap_or_default();
        if let Some(empty) = extensions.iter().position(|line| line.is_empty()) {
            return Err(wrong(3 + empty, "an extension line that is not empty"));
        }
        if size == 0 && root != empty_root() {
            return Err(CheckpointError::EmptyRoot);
        }
        let extensions = extensions.iter().map(|line| (*line).to_owned()).collect();
        Ok(Self { origin: line(0).to_owned(), size, root, extensions })
    }
}

impl SignedCheckpoint {
    /// Reads a checkpoint file or envelope.
    ///
    /// # Errors
    /// [`CheckpointError`] says what is malformed.
    pub fn parse(note: &str) -> Result<Self, CheckpointError> {
        let note = SignedNote::parse(note)?;
        Ok(Self { checkpoint: Checkpoint::parse(&note.text)?, note })
    }

    /// Checks origin and signature: the origin line is the log's, at least one signature line has its
    /// name and key hint, and every such line verifies. Lines of unknown signers are ignored.
    ///
    /// # Errors
    /// [`CheckpointError::Origin`], [`CheckpointError::Unsigned`] or [`CheckpointError::Signature`].
    pub fn verify(&self, log: &LogIdentity) -> Result<(), CheckpointError> {
        self.verify_origin(&log.origin)?;
        self.verify_signature(log)
    }

    /// The origin half of [`Self::verify`]: first line and some signature's name.
    ///
    /// # Errors
    /// [`CheckpointError::Origin`] or [`CheckpointError::Unsigned`].
    pub fn verify_origin(&self, origin: &Origin) -> Result<(), CheckpointError> {
        if self.checkpoint.origin != origin.as_str() {
            let found = self.checkpoint.origin.chars().take(120).collect();
            return Err(CheckpointError::Origin { expected: origin.to_string(), found });
        }
        if self.note.signatures.iter().all(|line| line.name != origin.name()) {
            return Err(self.unsigned(origin.name().to_owned()));
        }
        Ok(())
    }

    /// The signature half of [`Self::verify`].
    ///
    /// # Errors
    /// [`CheckpointError::Unsigned`] or [`CheckpointError::Signature`].
    pub fn verify_signature(&self, log: &LogIdentity) -> Result<(), CheckpointError> {
        let (name, hint) = (log.origin.name(), log.id().hint());
        let mut lines = self.note.signatures.iter().filter(|line| line.name == name && line.hint == hint).peekable();
        if lines.peek().is_none() {
            return Err(self.unsigned(signer(name, hint)));
        }
        if lines.any(|line| !log.key.verifies(self.note.text.as_bytes(), &line.signature)) {
            return Err(CheckpointError::Signature { signer: signer(name, hint) });
        }
        Ok(())
    }

    fn unsigned(&self, expected: String) -> CheckpointError {
        let names: Vec<String> =
            self.note.signatures.iter().take(4).map(|line| signer(&line.name, line.hint)).collect();
        CheckpointError::Unsigned { expected, found: names.join(", ") }
    }
}
