//! Why a file cannot be used as a release file.

use thiserror::Error;

/// Why a file, or a part of it without which nothing can be said, was refused. The caller adds the file's name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// The first bytes are those of no format that this build reads.
    #[error("expected an ELF, PE, PDB or Mach-O file, found {found}")]
    UnknownFormat {
        /// The first bytes, or what they are known to be.
        found: String,
    },
    /// The file ends before something that its headers place in it.
    #[error(
        "the file is cut short or damaged: expected {expected} at bytes {start:#x}..{end:#x}, but the file has {size:#x} bytes"
    )]
    Truncated {
        /// What should be there.
        expected: String,
        /// Offset of its first byte.
        start: u64,
        /// Offset behind its last byte; `u64::MAX` where it does not fit 64 bits.
        end: u64,
        /// The file's size in bytes.
        size: u64,
    },
    /// A field holds a value that the format does not allow.
    #[error("malformed {object}: expected {expected}, found {found}")]
    Malformed {
        /// The header, section or note.
        object: String,
        /// What the format asks for.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A section would be larger in memory than is allowed, or than its compressed bytes can hold.
    #[error("section {section} claims {claimed} bytes decompressed from {stored} bytes; expected at most {allowed}")]
    TooLarge {
        /// The section's name.
        section: String,
        /// Bytes that its header claims.
        claimed: u64,
        /// Bytes in the file.
        stored: u64,
        /// Bytes that are allowed.
        allowed: u64,
    },
    /// A slice of a universal Mach-O file is not what it should be. Offsets count from the slice's start.
    #[error("{name}: {error}")]
    Slice {
        /// Which one: `the arm64 slice`.
        name: String,
        /// What is wrong with it.
        error: Box<ArtifactError>,
    },
    /// The debug file does not describe the binary that it was given with.
    #[error("the debug file does not belong to the binary: expected {expected}, found {found}")]
    Mismatch {
        /// The binary's property.
        expected: String,
        /// The debug file's.
        found: String,
    },
}

/// An error for `length` bytes at `offset` that `data` does not have.
pub(crate) fn truncated(data: &[u8], expected: &str, offset: u64, length: u64) -> ArtifactError {
    ArtifactError::Truncated {
        expected: expected.to_owned(),
        start: offset,
        end: offset.saturating_add(length),
        size: data.len() as u64,
    }
}

/// An error for a field that does not hold what the format allows.
pub(crate) fn malformed(object: &str, expected: &str, found: impl ToString) -> ArtifactError {
    ArtifactError::Malformed { object: object.to_owned(), expected: expected.to_owned(), found: found.to_string() }
}
