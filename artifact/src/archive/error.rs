//! Why an archive could not be read to its end.

use thiserror::Error;

/// Why an archive was not read to its end. Everything that was visited before stays visited.
///
/// An archive is named by the archives around it, outermost first, joined by `!/`: `release.zip!/tool.deb`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// Something is beyond what [`Limits`](super::Limits) allow: a bomb, or a release that needs higher limits.
    #[error("{}: expected at most {allowed} {limit}, found {found} or more", place(archive, member))]
    Limit {
        /// The archive.
        archive: String,
        /// The member that was read at that moment.
        member: String,
        /// The limit.
        limit: LimitKind,
        /// What is allowed, in the limit's unit.
        allowed: u64,
        /// What was found before reading stopped; the truth may be more.
        found: u64,
    },
    /// The archive is damaged, cut short, or not what its first bytes say.
    #[error("{}: expected {expected}, found {found}", place(archive, member))]
    Damaged {
        /// The archive.
        archive: String,
        /// The member that was read at that moment; `-` before the first one.
        member: String,
        /// What the format asks for.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The bytes are no archive of a kind that is read here.
    #[error("{archive}: expected an archive or a compressed file, found {found}")]
    NoArchive {
        /// The file.
        archive: String,
        /// Its first bytes.
        found: String,
    },
    /// The caller's reader failed.
    #[error("archive {archive} cannot be read: {reason}")]
    Unreadable {
        /// The archive, or the blob of an image.
        archive: String,
        /// What the reader said.
        reason: String,
    },
    /// The bytes of an image's blob have another digest or size than the image's manifest says.
    #[error("image {archive}, blob {blob}: expected {expected}, found {found}")]
    Mismatch {
        /// The image.
        archive: String,
        /// The blob.
        blob: String,
        /// Digest or size of the manifest.
        expected: String,
        /// Digest or size of the bytes.
        found: String,
    },
}

/// Archive and member in words; the archive alone where nothing of it was read yet, or where the member is the archive itself.
fn place(archive: &str, member: &str) -> String {
    let is_itself = archive == member || archive.strip_suffix(member).is_some_and(|outer| outer.ends_with("!/"));
    if member == "-" || is_itself {
        format!("archive {archive}")
    } else {
        format!("archive {archive}, member {member}")
    }
}

/// What [`Limits`](super::Limits) bound, with the unit that the figures have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitKind {
    /// Entries of all archives together.
    Members,
    /// Unpacked bytes of one member.
    MemberBytes,
    /// Unpacked bytes altogether.
    TotalBytes,
    /// Unpacked bytes for each packed one.
    Ratio,
    /// Bytes of one path.
    PathBytes,
    /// Bytes of the past that a compressed stream may refer to.
    WindowBytes,
    /// Bytes of headers and names that must be held in memory.
    HeaderBytes,
}

impl std::fmt::Display for LimitKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Members => "members in all",
            Self::MemberBytes => "bytes in one member",
            Self::TotalBytes => "unpacked bytes in all",
            Self::Ratio => "unpacked bytes for each packed byte",
            Self::PathBytes => "bytes in a path",
            Self::WindowBytes => "bytes of decompression window (a fixed bound, to which zstd --long=27 keeps)",
            Self::HeaderBytes => "bytes of headers and names in memory",
        })
    }
}

/// Why the walk ends early.
#[derive(Debug)]
pub(super) enum Halt {
    /// The archive is at fault.
    Archive(ArchiveError),
    /// The visitor wants no more; its own error is with the caller.
    Visitor,
}

impl From<ArchiveError> for Halt {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}
