//! The sources of a release: an artifact of its own, with its own digest and so with its own permission.
//!
//! [`SourceTable`] lists the files by the paths that the line tables name; the files themselves lie stored (not compressed)
//! in zip packs, which any unzip reads, at the offsets that the table gives. `docs/formats/sources.md` describes both.
//!
//! * [`SourcesWriter`]: files in the order of their paths → packs and the table.
//! * [`SourceTable::check_pack`], [`SourceEntry::slice`]: a pack and a file of it, checked.
//! * [`Sources`]: an artifact in a layout.
//! * [`joined()`]: the artifacts of several platform jobs as one.

mod artifact;
mod joined;
mod pack;
pub mod path;
mod table;
mod write;
mod zip;

pub use artifact::{Sources, manifest};
pub use joined::{JoinedSources, joined, manifests};
pub use table::{CheckedBy, PackEntry, SourceEntry, SourceTable, SourcesStatistics};
pub use write::{Pack, SourcesWriter};

use crate::digest::Digest;
use crate::layout::LayoutError;
use crate::oci::OciError;

/// The one schema of the table that this build writes and reads.
pub const SCHEMA: &str = "symseal.sources.v1";

/// Artifact type of the manifest.
pub const ARTIFACT_TYPE: &str = "application/vnd.symseal.sources.v1";
/// Media type of `sources.json`.
pub const TABLE_MEDIA_TYPE: &str = "application/vnd.symseal.source-table.v1+json";
/// Media type of a pack.
pub const PACK_MEDIA_TYPE: &str = "application/vnd.symseal.source-pack.v1+zip";
/// Title of the table.
pub const TABLE: &str = "sources.json";
/// Added to a bundle's tag for the tag of its sources.
pub const TAG_SUFFIX: &str = ".sources";

/// The largest pack, in bytes: small enough to be sent again, and far below what needs zip64.
pub const MAX_PACK_BYTES: u64 = 64 << 20;
/// A pack of fewer bytes than this is not ended by a path (see [`SourcesWriter`]).
pub const MIN_PACK_BYTES: u64 = 16 << 20;
/// The most packs, so that the manifest has fewer than 400 layers.
pub const MAX_PACKS: usize = 398;
/// The largest source file, in bytes. The largest ones that people write by program have about ten MiB.
pub const MAX_SOURCE_BYTES: u64 = 32 << 20;
/// The longest path of a source file, in bytes.
pub const MAX_PATH_BYTES: usize = 4096;
/// The largest table that is read, in bytes: about a million files.
pub const MAX_TABLE_BYTES: u64 = 256 << 20;

/// Why some bytes are no sources artifact, or none can be made.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    /// Not JSON, or not of the schema's shape.
    #[error("not a table of sources: {0}")]
    Json(#[from] serde_json::Error),
    /// Another schema.
    #[error("expected schema {SCHEMA}, found {found:?}: a newer symseal may read it")]
    Schema {
        /// The schema that it names.
        found: String,
    },
    /// Larger than [`MAX_TABLE_BYTES`].
    #[error("the table of sources is {bytes} bytes, more than the {MAX_TABLE_BYTES} that are accepted")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// Not the RFC 8785 form of its own value.
    #[error("the table of sources is not canonical JSON (RFC 8785)")]
    NotCanonical,
    /// A value that the schema's prose rules out.
    #[error("{place}: {problem}")]
    Value {
        /// Where in the table, or which file.
        place: String,
        /// What is wrong.
        problem: String,
    },
    /// A file or a pack whose bytes are not those of the table.
    #[error("{place}: expected {expected}, found {found}")]
    Bytes {
        /// Which.
        place: String,
        /// What the table says.
        expected: String,
        /// What is there.
        found: String,
    },
    /// More than [`MAX_PACKS`] packs.
    #[error("the sources fill more than {MAX_PACKS} packs of {MAX_PACK_BYTES} bytes; name fewer directories")]
    TooMany,
    /// The layout, or a blob in it.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The manifest.
    #[error("sources {digest}: {source}")]
    Oci {
        /// The manifest's digest.
        digest: Digest,
        /// What is wrong.
        source: OciError,
    },
    /// A manifest of something else.
    #[error("{digest}: expected a manifest of sources, found {found}")]
    NotSources {
        /// The manifest's digest.
        digest: Digest,
        /// What it is.
        found: String,
    },
}

/// `sources/0000.zip`, the title of a pack.
pub fn pack_title(number: usize) -> String {
    format!("sources/{number:04}.zip")
}

fn value(place: impl Into<String>, problem: impl Into<String>) -> SourcesError {
    SourcesError::Value { place: place.into(), problem: problem.into() }
}
