//! Why a kit was not packed or read.

use std::io;
use std::path::{Path, PathBuf};

use symseal_bundle::oci::OciError;
use symseal_bundle::{BundleError, Digest, LayoutError};
use symseal_sealer::SignError;

/// Why a kit was not packed or read.
#[derive(Debug, thiserror::Error)]
pub enum KitError {
    /// The operating system said no.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Something is in the way.
    #[error("{}: expected nothing of this name, found something; a kit is never overwritten: remove it, or name another", path.display())]
    Exists {
        /// The kit that was to be made.
        path: PathBuf,
    },
    /// The bundle cannot be packed from where it lies.
    #[error("bundle {}: expected an OCI layout or a digest in the local store, found what a pull by another tool left; a kit needs its image index", path.display())]
    NoLayout {
        /// The directory.
        path: PathBuf,
    },
    /// Nothing says whose the bundle is: the other site would refuse the kit.
    #[error("{place}: expected a bundle with a seal, found none; seal it first (symseal bundle seal)")]
    Unsealed {
        /// Where the bundle lies.
        place: String,
    },
    /// The sources were asked for, and are not there.
    #[error("bundle {bundle}: its sources {} are not in the layout; pull them there first, or leave out --with-sources", digest.map_or_else(|| "(none are named)".to_owned(), |digest| digest.to_string()))]
    NoSources {
        /// The bundle.
        bundle: Digest,
        /// What its index names.
        digest: Option<Digest>,
    },
    /// What was named is no kit.
    #[error("{}: expected a kit (a directory or tar file with {}), found {found}", path.display(), super::KIT_SEAL)]
    NotAKit {
        /// The directory or file.
        path: PathBuf,
        /// What is there.
        found: String,
    },
    /// A file of the kit is not what its list says.
    #[error("{}: {file}: expected {expected}, found {found}", path.display())]
    File {
        /// The kit.
        path: PathBuf,
        /// The file in it.
        file: String,
        /// What the list says.
        expected: String,
        /// What was read.
        found: String,
    },
    /// Two checkpoints of a log cannot be of one history.
    #[error("log {origin}: expected {expected}, found {found}")]
    Log {
        /// The log.
        origin: String,
        /// What must hold.
        expected: String,
        /// What does.
        found: String,
    },
    /// The layout that a bundle is read from or laid into.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The bundle.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A manifest.
    #[error("{place}: {source}")]
    Oci {
        /// Its digest or path.
        place: String,
        /// What is wrong.
        source: OciError,
    },
    /// The key gave no signature.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// The log cannot be read.
    #[error(transparent)]
    TileLog(#[from] symseal_sealer::LogError),
}

impl KitError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}
