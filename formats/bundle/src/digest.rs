//! SHA-256 digests in their one text form.

use std::borrow::Cow;
use std::fmt;
use std::io::Read;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// How many bytes are read at a time where a file is hashed.
pub(crate) const READ_CHUNK: usize = 256 * 1024;

/// The SHA-256 of some bytes. Its text, in JSON and everywhere else, is `sha256:` and 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of everything that `reader` gives, and how many bytes that was.
    pub fn of_reader(mut reader: impl Read) -> std::io::Result<(Self, u64)> {
        let mut hasher = Hasher::default();
        let mut chunk = vec![0; READ_CHUNK];
        loop {
            match reader.read(&mut chunk) {
                Ok(0) => return Ok(hasher.finish()),
                Ok(read) => hasher.update(chunk.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A digest that was computed elsewhere.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 lower-case hex digits alone.
    pub fn hex(&self) -> String {
        hex_of(&self.0)
    }

    /// Reads 64 lower-case hex digits without the `sha256:`.
    pub fn from_hex(text: &str) -> Result<Self, ParseDigestError> {
        bytes_of_hex(text).map(Self).ok_or_else(|| ParseDigestError { found: shortened(text) })
    }
}

/// A digest in the making, for bytes that come in pieces.
#[derive(Clone, Debug, Default)]
pub struct Hasher {
    state: Sha256,
    size: u64,
}

impl Hasher {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
        self.size = self.size.saturating_add(bytes.len() as u64);
    }

    /// The digest of all bytes taken, and how many they were.
    pub fn finish(self) -> (Digest, u64) {
        (Digest(self.state.finalize().into()), self.size)
    }
}

/// A text that is no `sha256:` digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected sha256: and 64 lower-case hex digits, found {found:?}")]
pub struct ParseDigestError {
    /// The text, cut where it is long.
    pub found: String,
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hex = text.strip_prefix("sha256:").ok_or_else(|| ParseDigestError { found: shortened(text) })?;
        Self::from_hex(hex).map_err(|_| ParseDigestError { found: shortened(text) })
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Lower-case hex of `bytes`.
pub(crate) fn hex_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or_default());
        text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or_default());
    }
    text
}

/// Exactly 64 lower-case hex digits as 32 bytes: upper case would give one digest two texts.
pub(crate) fn bytes_of_hex(text: &str) -> Option<[u8; 32]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != 32 || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; 32];
    for (slot, pair) in bytes.iter_mut().zip(pairs) {
        for digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            *slot = *slot << 4 | value;
        }
    }
    Some(bytes)
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_digest_reads_what_it_prints() {
        assert_eq!(Digest::of(b"").to_string(), EMPTY);
        assert_eq!(EMPTY.parse(), Ok(Digest::of(b"")));
        assert_eq!(serde_json::to_string(&Digest::of(b"")).unwrap(), format!("{EMPTY:?}"));
        assert_eq!(serde_json::from_str::<Digest>(&format!("{EMPTY:?}")).unwrap(), Digest::of(b""));
        assert_eq!(Digest::of_reader(&b"abc"[..]).unwrap(), (Digest::of(b"abc"), 3));
    }

    #[test]
    fn other_texts_are_refused() {
        let upper = EMPTY.to_uppercase();
        for text in ["", "sha256:", "sha256:00", "sha512:00", &EMPTY[7..], &EMPTY[..70], &upper, &format!("{EMPTY}0")] {
            assert!(text.parse::<Digest>().is_err(), "{text:?}");
        }
    }
}
