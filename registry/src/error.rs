//! Why a push or pull did not come to its end.

use symseal_bundle::{Digest, LayoutError};

/// Why a push or pull did not come to its end. Every variant names the reference or URL.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// No connection, or it broke on every try.
    #[error("{url}: {reason}, tried {tries} times: is the registry running, and is the address right?")]
    Unreachable {
        /// The URL asked.
        url: String,
        /// What the network said.
        reason: String,
        /// Tries made.
        tries: u32,
    },
    /// The registry refused.
    #[error("{url}: expected {expected}, found {status}: {message}")]
    Refused {
        /// The URL asked.
        url: String,
        /// What a registry answers when all is well.
        expected: &'static str,
        /// The HTTP status.
        status: u16,
        /// What the registry said, and what to do.
        message: String,
    },
    /// There is nothing under the reference.
    #[error("{reference}: the registry has no such {what}: check repository and tag, or push it first")]
    NotFound {
        /// The reference.
        reference: String,
        /// Manifest or blob.
        what: &'static str,
    },
    /// Credentials are missing or wrong.
    #[error(
        "{url}: the registry refuses {who}: {message}; expected credentials that allow it; where credentials are what is missing, log in with `docker login` or `oras login`, or set SYMSEAL_REGISTRY, SYMSEAL_REGISTRY_USER and SYMSEAL_REGISTRY_PASSWORD"
    )]
    Unauthorized {
        /// The URL asked.
        url: String,
        /// As whom this call came.
        who: String,
        /// What the registry said.
        message: String,
    },
    /// The registry knows who asks, and says why it will not: other credentials are mostly not what is missing.
    #[error("{url}: the registry refuses it: {message} (asked as {who})")]
    Forbidden {
        /// The URL asked.
        url: String,
        /// As whom this call came.
        who: String,
        /// What the registry said.
        message: String,
    },
    /// The bytes are not what their name says.
    #[error(
        "{url}: expected {expected}, found bytes of {found}: nothing was kept; the registry or the network changed them"
    )]
    Digest {
        /// The URL asked.
        url: String,
        /// The digest asked for.
        expected: Digest,
        /// The digest of the bytes.
        found: Digest,
    },
    /// More or fewer bytes than announced.
    #[error("{url}: expected {expected} bytes, found {found}")]
    Size {
        /// The URL asked.
        url: String,
        /// Bytes that the manifest says.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// An answer that no registry should give.
    #[error("{url}: {problem}: this registry does not follow the OCI distribution specification")]
    Protocol {
        /// The URL asked.
        url: String,
        /// What is wrong with the answer.
        problem: String,
    },
    /// The layout on this side.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A blob in the layout cannot be read, or one cannot be written.
    #[error("{path}: {source}", path = .path.display())]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A manifest that cannot be followed.
    #[error("{digest}: {problem}")]
    Manifest {
        /// The manifest.
        digest: Digest,
        /// What is wrong with it.
        problem: String,
    },
}

impl RegistryError {
    /// Whether the error says something of one object alone: that it is not there, not whole or malformed. A registry that is not to be
    /// reached, refuses or is too busy says nothing of what it holds, and a layout that cannot be written is another thing.
    pub fn is_of_one_object(&self) -> bool {
        matches!(self, Self::NotFound { .. } | Self::Manifest { .. } | Self::Digest { .. } | Self::Size { .. })
    }
}
