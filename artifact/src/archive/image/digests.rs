//! Digests of blobs, by the algorithm that they name. (OCI image specification, "Digests")

use std::io::{self, Read};

use sha2::{Digest, Sha256, Sha512};

/// The algorithm that every implementation has to know.
const SHA256: &str = "sha256";
/// The one that it may know as well.
const SHA512: &str = "sha512";

/// The algorithm of a digest that is not read.
pub(super) fn unread_algorithm(digest: &str) -> Option<&str> {
    let (algorithm, _) = digest.split_once(':')?;
    (![SHA256, SHA512].contains(&algorithm)).then_some(algorithm)
}

/// The digest of some bytes, by the algorithm of one that is expected.
pub(super) fn digest_like(expected: &str, bytes: &[u8]) -> String {
    match expected.split_once(':') {
        Some((SHA512, _)) => told(SHA512, &Sha512::digest(bytes)),
        _ => told(SHA256, &Sha256::digest(bytes)),
    }
}

/// A digest as OCI writes it.
fn told(algorithm: &str, digest: &[u8]) -> String {
    digest.iter().fold(format!("{algorithm}:"), |mut text, byte| {
        text.push_str(&format!("{byte:02x}"));
        text
    })
}

/// What has passed through a reader.
#[derive(Debug, Clone, Default)]
pub(super) struct Passed {
    hash: Sha256,
    /// Where a digest may ask for it.
    long: Option<Sha512>,
    pub(super) bytes: u64,
}

impl Passed {
    /// Its digest by the longest of the algorithms.
    pub(super) fn digest(&self) -> String {
        match &self.long {
            Some(long) => told(SHA512, &long.clone().finalize()),
            None => self.short(),
        }
    }

    /// Its digest by the algorithm of one that is expected; none where that was not computed.
    pub(super) fn digest_like(&self, expected: &str) -> Option<String> {
        match expected.split_once(':') {
            Some((SHA512, _)) => self.long.is_some().then(|| self.digest()),
            _ => unread_algorithm(expected).is_none().then(|| self.short()),
        }
    }

    fn short(&self) -> String {
        told(SHA256, &self.hash.clone().finalize())
    }

    fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        if let Some(long) = &mut self.long {
            long.update(bytes);
        }
    }

    /// Whether it is a tar of that digest, or would be with the zeros behind its last member, up to a whole record, that Skopeo 1.9 leaves out of
    /// layers in zstd:chunked. True where nobody computed such a digest: the layer itself was checked.
    pub(super) fn is_padded_to(&self, digest: &str) -> bool {
        const BLOCK: usize = 512;
        const BLOCKS_OF_A_RECORD: usize = 20;
        let mut whole = self.clone();
        (0..=BLOCKS_OF_A_RECORD).any(|_| {
            let is_same = whole.digest_like(digest).is_none_or(|found| found == digest);
            whole.update(&[0; BLOCK]);
            is_same
        })
    }
}

/// A reader that hashes what passes through it.
pub(super) struct Hashed<R> {
    input: R,
    pub(super) passed: Passed,
}

impl<R> Hashed<R> {
    /// Of the blob at a path, or one with that digest, either of which names the algorithm.
    pub(super) fn of(path_or_digest: &str, input: R) -> Self {
        let is_long = path_or_digest.split(['/', ':']).rev().nth(1) == Some(SHA512);
        let passed = Passed { long: is_long.then(Sha512::new), ..Passed::default() };
        Self { input, passed }
    }

    pub(super) fn digest(self) -> String {
        self.passed.digest()
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.passed.update(buffer.get(..read).unwrap_or_default());
        self.passed.bytes = self.passed.bytes.saturating_add(read as u64);
        Ok(read)
    }
}
