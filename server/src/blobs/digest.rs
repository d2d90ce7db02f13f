//! The digests that name blobs and manifests (OCI image-spec, `descriptor.md`, "Digests").

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256, Sha512};

/// A registered digest algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Algorithm {
    /// The one that bundles use.
    Sha256,
    /// Asked for by some clients; the registry API must take it.
    Sha512,
}

impl Algorithm {
    /// Every algorithm, for walking the directory.
    pub(crate) const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// The name before the colon, and of the folder.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    fn hex_len(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

/// `algorithm:hex`, with lower-case hex of the algorithm's length: by construction safe as a path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlobDigest {
    algorithm: Algorithm,
    hex: Box<str>,
}

impl BlobDigest {
    /// The sha256 of bytes that are in memory.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self::compute(Algorithm::Sha256, bytes)
    }

    /// A digest of bytes that are in memory.
    pub(crate) fn compute(algorithm: Algorithm, bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new(algorithm);
        hasher.update(bytes);
        hasher.finish()
    }

    /// A sha256 known as bytes.
    pub(crate) fn from_sha256(bytes: [u8; 32]) -> Self {
        Self { algorithm: Algorithm::Sha256, hex: hex(&bytes) }
    }

    /// The algorithm's arm.
    pub(crate) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The digits after the colon.
    pub(crate) fn hex(&self) -> &str {
        &self.hex
    }

    /// The first two digits: the folder that spreads blobs.
    pub(crate) fn shard(&self) -> &str {
        self.hex.get(..2).unwrap_or_default()
    }

    /// The digest's raw bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let digit = |byte: &u8| char::from(*byte).to_digit(16).unwrap_or_default() as u8;
        self.hex
            .as_bytes()
            .chunks_exact(2)
            .map(|pair| pair.iter().fold(0, |value, byte| value << 4 | digit(byte)))
            .collect()
    }
}

impl From<symseal_bundle::Digest> for BlobDigest {
    fn from(digest: symseal_bundle::Digest) -> Self {
        Self::from_sha256(*digest.as_bytes())
    }
}

impl fmt::Display for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.name(), self.hex)
    }
}

impl fmt::Debug for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no digest this registry knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected sha256: and 64, or sha512: and 128 lower-case hex digits")]
pub(crate) struct ParseDigestError;

impl FromStr for BlobDigest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, hex) = text.split_once(':').ok_or(ParseDigestError)?;
        let algorithm =
            Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name).ok_or(ParseDigestError)?;
        Self::from_hex(algorithm, hex)
    }
}

impl BlobDigest {
    /// A digest by the digits behind its colon.
    ///
    /// # Errors
    /// Where they are not as many lower-case digits as the algorithm has.
    pub(crate) fn from_hex(algorithm: Algorithm, hex: &str) -> Result<Self, ParseDigestError> {
        let lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if hex.len() != algorithm.hex_len() || !hex.bytes().all(lower_hex) {
            return Err(ParseDigestError);
        }
        Ok(Self { algorithm, hex: hex.into() })
    }
}

/// A digest on the way: fed as bytes arrive.
#[derive(Clone)]
pub(crate) enum Hasher {
    /// SHA-256 so far.
    Sha256(Sha256),
    /// SHA-512 so far.
    Sha512(Box<Sha512>),
}

impl Hasher {
    /// Nothing hashed yet.
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
            Algorithm::Sha512 => Self::Sha512(Box::default()),
        }
    }

    /// Takes the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(state) => state.update(bytes),
            Self::Sha512(state) => state.update(bytes),
        }
    }

    /// The digest of everything taken.
    pub(crate) fn finish(self) -> BlobDigest {
        match self {
            Self::Sha256(state) => BlobDigest { algorithm: Algorithm::Sha256, hex: hex(&state.finalize()) },
            Self::Sha512(state) => BlobDigest { algorithm: Algorithm::Sha512, hex: hex(&state.finalize()) },
        }
    }
}

fn hex(bytes: &[u8]) -> Box<str> {
    use fmt::Write as _;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_reads_what_it_prints() {
        for algorithm in Algorithm::ALL {
            let digest = BlobDigest::compute(algorithm, b"symseal");
            assert_eq!(digest.to_string().parse(), Ok(digest.clone()));
            assert_eq!(digest.bytes().len() * 2, digest.hex().len());
        }
        assert_eq!(
            BlobDigest::of(b"{}").to_string(),
            "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        );
    }

    #[test]
    fn what_could_leave_the_directory_is_no_digest() {
        let hex = "a".repeat(64);
        for text in ["", "sha256", "sha256:", "sha256:../../x", "md5:d41d8cd98f00b204e9800998ecf8427e"] {
            assert_eq!(text.parse::<BlobDigest>(), Err(ParseDigestError), "{text}");
        }
        assert!(format!("sha256:{}", hex.to_uppercase()).parse::<BlobDigest>().is_err());
        assert!(format!("sha512:{hex}").parse::<BlobDigest>().is_err());
        assert!(format!("sha256:{hex}").parse::<BlobDigest>().is_ok());
    }
}
