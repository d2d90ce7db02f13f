//! Cosignatures of witnesses: C2SP tlog-cosignature, version 1 (signature type 0x04).
//!
//! A witness signs that it saw a checkpoint at a time, and that the checkpoint follows from every
//! other one that it signed for that log.

use std::fmt;
use std::str::FromStr;

use crate::encoding::{from_base64, sha256, to_base64, to_hex};
use crate::keys::{ed25519_key, ed25519_verifies};
use crate::note::SignedNote;
use crate::time::UtcSeconds;

/// The signature type of a timestamped Ed25519 cosignature.
const COSIGNATURE_V1: u8 = 0x04;
/// Bytes of the time before the signature.
const TIME_BYTES: usize = 8;

/// A witness: its name and its Ed25519 key.
#[derive(Clone, PartialEq, Eq)]
pub struct Witness {
    name: String,
    key: ed25519_dalek::VerifyingKey,
}

/// The text is no witness key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a witness key \"<name>+<8 hex digits>+<base64 of 0x04 and 32 bytes>\" as witnesses publish it, found {found:?}"
)]
pub struct WitnessError {
    found: String,
}

/// What became of a checkpoint's cosignatures by one witness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cosigned {
    /// It signed at this time (the latest, where it signed more than once).
    At(UtcSeconds),
    /// No line is by it.
    Absent,
    /// A line with its name and key hint does not verify.
    Bad,
}

impl Witness {
    /// The witness with this name and key; `None` for a name that no signature line can have, or a weak key.
    #[must_use]
    pub fn new(name: &str, public: &[u8; 32]) -> Option<Self> {
        let plain = !name.is_empty() && !name.chars().any(|c| c.is_whitespace() || c.is_control() || c == '+');
        plain.then_some(())?;
        Some(Self { name: name.to_owned(), key: ed25519_key(public)? })
    }

    /// The name in its signature lines.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The 32 bytes of its key.
    #[must_use]
    pub fn public(&self) -> &[u8; 32] {
        self.key.as_bytes()
    }

    /// The first four bytes of `SHA-256(name ‖ 0x0A ‖ 0x04 ‖ public key)`.
    #[must_use]
    pub fn hint(&self) -> [u8; 4] {
        let mut hashed = self.name.as_bytes().to_vec();
        hashed.extend_from_slice(&[0x0A, COSIGNATURE_V1]);
        hashed.extend_from_slice(self.key.as_bytes());
        let [a, b, c, d, ..] = sha256(&hashed);
        [a, b, c, d]
    }

    /// What a witness signs: `cosignature/v1`, the time, and the text of the note.
    #[must_use]
    pub fn message(time: UtcSeconds, note_text: &str) -> Vec<u8> {
        format!("cosignature/v1\ntime {}\n{note_text}", time.0).into_bytes()
    }

    /// Looks for this witness's lines in a note. Every one of them must hold.
    #[must_use]
    pub fn cosigned(&self, note: &SignedNote) -> Cosigned {
        let hint = self.hint();
        let mut latest = None;
        for line in note.signatures.iter().filter(|line| line.name == self.name && line.hint == hint) {
            let Some((time, signature)) = line.signature.split_first_chunk::<TIME_BYTES>() else {
                return Cosigned::Bad;
            };
            let Ok(time) = i64::try_from(u64::from_be_bytes(*time)).map(UtcSeconds) else { return Cosigned::Bad };
            if !ed25519_verifies(&self.key, &Self::message(time, &note.text), signature) {
                return Cosigned::Bad;
            }
            latest = latest.max(Some(time));
        }
        latest.map_or(Cosigned::Absent, Cosigned::At)
    }
}

impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut key = vec![COSIGNATURE_V1];
        key.extend_from_slice(self.key.as_bytes());
        write!(f, "{}+{}+{}", self.name, to_hex(&self.hint()), to_base64(&key))
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Witness({self})")
    }
}

impl FromStr for Witness {
    type Err = WitnessError;

    fn from_str(text: &str) -> Result<Self, WitnessError> {
        let read = || {
            // The base64 may have a `+` of its own.
            let (name, rest) = text.split_once('+')?;
            let (_, key) = rest.split_once('+')?;
            let key = from_base64(key)?;
            let (kind, public) = key.split_first()?;
            let witness = Self::new(name, public.try_into().ok()?)?;
            // The hash guards against a slip in copying.
            (*kind == COSIGNATURE_V1 && witness.to_string() == text).then_some(witness)
        };
        read().ok_or_else(|| WitnessError { found: text.chars().take(160).collect() })
    }
}
