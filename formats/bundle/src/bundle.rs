//! A bundle, opened: its symbol index, checked by digest, and the way to its files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use symseal_module::DebugId;
use symseal_seal::checks::{Check, id};

use crate::digest::Digest;
use crate::index::{FileEntry, IndexError, MAX_INDEX_BYTES, ModuleEntry, SymbolIndex};
use crate::layout::{self, LayoutDir, LayoutError};
use crate::oci::{self, ImageIndex, Manifest, OciError};
use crate::seals::{self, FoundSeals, MAX_SEAL_BYTES, seals_of_referrer};
use crate::title;

/// Why a bundle cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The layout or one of its blobs.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The symbol index.
    #[error("{place}: {source}")]
    Index {
        /// The bundle.
        place: String,
        /// What is wrong.
        source: IndexError,
    },
    /// A manifest of the bundle.
    #[error("{place}: {source}")]
    Oci {
        /// The manifest's digest.
        place: Digest,
        /// What is wrong.
        source: OciError,
    },
    /// No bundle where one was looked for.
    #[error("{path} holds no bundle: {problem}")]
    NotABundle {
        /// The layout or directory.
        path: PathBuf,
        /// What was found.
        problem: String,
    },
    /// Several bundles, and none was named.
    #[error("{path} holds {} bundles, name one by its digest: {}", digests.len(), listed(digests))]
    Ambiguous {
        /// The layout.
        path: PathBuf,
        /// The bundles.
        digests: Vec<Digest>,
    },
    /// A file that is not the one the index lists.
    #[error("{path}: expected {expected} of {size} bytes, found {found}")]
    File {
        /// The file.
        path: PathBuf,
        /// Its digest in the index.
        expected: Digest,
        /// Its size in the index.
        size: u64,
        /// The digest that its bytes have.
        found: Digest,
    },
}

/// An opened bundle. Its symbol index is checked; its files are checked as they are read.
#[derive(Debug, Clone)]
pub struct Bundle {
    source: Source,
    index: SymbolIndex,
    index_bytes: Arc<[u8]>,
    index_digest: Digest,
}

#[derive(Debug, Clone)]
enum Source {
    /// An OCI layout or a bundle store, and the bundle's image index there.
    Layout { layout: LayoutDir, digest: Digest, image_index: Box<ImageIndex> },
    /// A directory that `oras pull` left: files by title, no image index.
    Pulled(PathBuf),
}

impl Bundle {
    /// Opens the bundle `digest` of a layout or store; without a digest the only one in `index.json` (or, of several, the only tagged one).
    ///
    /// The image index, the root manifest and the symbol index are read, their digests checked.
    pub fn open(layout: LayoutDir, digest: Option<&Digest>) -> Result<Self, BundleError> {
        let digest = match digest {
            Some(digest) => *digest,
            None => sole_bundle(&layout)?,
        };
        let not_a_bundle = |problem: String| BundleError::NotABundle {
            path: layout.root().to_owned(),
            problem: format!("{digest}: {problem}"),
        };
        let bytes = layout.read_blob(&digest, oci::MAX_MANIFEST_BYTES)?;
        let image_index = ImageIndex::parse(&bytes).map_err(|source| BundleError::Oci { place: digest, source })?;
        if image_index.artifact_type.as_deref() != Some(oci::BUNDLE) {
            return Err(not_a_bundle(format!(
                "expected artifact type {}, found {}",
                oci::BUNDLE,
                image_index.artifact_type.as_deref().unwrap_or("none")
            )));
        }
        let root = image_index.manifests.first().ok_or_else(|| not_a_bundle("the image index is empty".to_owned()))?;
        let bytes = layout.read_blob(&root.digest, oci::MAX_MANIFEST_BYTES)?;
        let manifest = Manifest::parse(&bytes).map_err(|source| BundleError::Oci { place: root.digest, source })?;
        let layer = manifest.layers.first().filter(|layer| layer.title() == Some(title::SYMBOL_INDEX));
        let layer =
            layer.ok_or_else(|| not_a_bundle("its first manifest does not begin with symbol_index.json".to_owned()))?;
        let bytes = layout.read_blob(&layer.digest, MAX_INDEX_BYTES)?;
        let index = SymbolIndex::parse(&bytes)
            .map_err(|source| BundleError::Index { place: format!("bundle {digest}"), source })?;
        let index_digest = layer.digest;
        let image_index = Box::new(image_index);
        Ok(Self {
            source: Source::Layout { layout, digest, image_index },
            index,
            index_bytes: bytes.into(),
            index_digest,
        })
    }

    /// Opens a directory that `oras pull` left: `symbol_index.json` in it, the files at their titles. It holds no
    /// image index, so the bundle's digest is not known from it.
    pub fn open_pulled(dir: impl Into<PathBuf>) -> Result<Self, BundleError> {
        let dir = dir.into();
        let path = dir.join(title::SYMBOL_INDEX);
        let bytes = layout::read_bounded(&path, MAX_INDEX_BYTES)?;
        let index = SymbolIndex::parse(&bytes)
            .map_err(|source| BundleError::Index { place: path.display().to_string(), source })?;
        let index_digest = Digest::of(&bytes);
        Ok(Self { source: Source::Pulled(dir), index, index_bytes: bytes.into(), index_digest })
    }

    /// Opens a directory of either kind: an OCI layout (with its only bundle) or what `oras pull` left.
    pub fn open_dir(dir: impl Into<PathBuf>) -> Result<Self, BundleError> {
        let dir = dir.into();
        if dir.join("oci-layout").exists() || !dir.join(title::SYMBOL_INDEX).exists() {
            return Self::open(LayoutDir::open(dir)?, None);
        }
        Self::open_pulled(dir)
    }

    /// The bundle's digest; `None` for a pulled directory, which has no image index.
    pub fn digest(&self) -> Option<Digest> {
        match &self.source {
            Source::Layout { digest, .. } => Some(*digest),
            Source::Pulled(_) => None,
        }
    }

    /// The symbol index.
    pub fn index(&self) -> &SymbolIndex {
        &self.index
    }

    /// The bytes of `symbol_index.json`.
    pub fn index_bytes(&self) -> &[u8] {
        &self.index_bytes
    }

    /// The digest of `symbol_index.json`.
    pub fn index_digest(&self) -> Digest {
        self.index_digest
    }

    /// The image index; `None` for a pulled directory.
    pub fn image_index(&self) -> Option<&ImageIndex> {
        match &self.source {
            Source::Layout { image_index, .. } => Some(image_index),
            Source::Pulled(_) => None,
        }
    }

    /// The layout that holds the bundle; `None` for a pulled directory.
    pub fn layout(&self) -> Option<&LayoutDir> {
        match &self.source {
            Source::Layout { layout, .. } => Some(layout),
            Source::Pulled(_) => None,
        }
    }

    /// The layout's or pulled directory's path.
    pub fn root(&self) -> &Path {
        match &self.source {
            Source::Layout { layout, .. } => layout.root(),
            Source::Pulled(dir) => dir,
        }
    }

    /// The module with this id.
    pub fn module(&self, id: &DebugId) -> Option<&ModuleEntry> {
        self.index.module(id)
    }

    /// Where a file of the bundle lies. Nothing is checked: see [`Bundle::read`].
    pub fn file_path(&self, file: &FileEntry) -> PathBuf {
        match &self.source {
            Source::Layout { layout, .. } => layout.blob_path(&file.sha256),
            // The title was checked when the index was read.
            Source::Pulled(dir) => dir.join(&file.path),
        }
    }

    /// A file's bytes. Size and digest are checked.
    pub fn read(&self, file: &FileEntry) -> Result<Vec<u8>, BundleError> {
        let path = self.file_path(file);
        let bytes = layout::read_bounded(&path, file.size)?;
        let found = Digest::of(&bytes);
        if found != file.sha256 {
            return Err(BundleError::File { path, expected: file.sha256, size: file.size, found });
        }
        Ok(bytes)
    }

    /// The Sigstore bundles that refer to this bundle, as far as they can be read: see [`Bundle::read_seals`].
    pub fn seals(&self) -> Vec<Vec<u8>> {
        self.read_seals().unwrap_or_default()
    }

    /// The Sigstore bundles in one manifest that refers to this bundle; none for a pulled directory, which has no manifests.
    pub fn seals_in(&self, referrer: &Digest) -> Result<Vec<Vec<u8>>, BundleError> {
        match &self.source {
            Source::Layout { layout, .. } => seals_of_referrer(layout, referrer),
            Source::Pulled(_) => Ok(Vec::new()),
        }
    }

    /// The Sigstore bundles that refer to this bundle, as they are: nothing in them is checked here.
    pub fn read_seals(&self) -> Result<Vec<Vec<u8>>, BundleError> {
        self.find_seals().map(|found| found.seals)
    }

    /// The same, and how many more there are than are looked at.
    pub fn find_seals(&self) -> Result<FoundSeals, BundleError> {
        match &self.source {
            Source::Layout { layout, digest, .. } => seals::find(layout, digest),
            Source::Pulled(dir) => {
                let path = dir.join(title::SEAL);
                let seals = if path.exists() { vec![layout::read_bounded(&path, MAX_SEAL_BYTES)?] } else { Vec::new() };
                Ok(FoundSeals { seals, passed_over: 0 })
            }
        }
    }
}

impl BundleError {
    /// The check that failed, where this error means that the bundle is not what its digest says; `None` where it
    /// could not be looked at.
    pub fn to_check(&self) -> Option<Check> {
        let (check, expected) = match self {
            Self::Layout(LayoutError::Digest { expected, found, path }) => {
                let check = Check::failed(id::INDEX_DIGEST, expected.to_string(), found.to_string());
                return Some(check.with_detail(path.display().to_string()));
            }
            Self::Layout(LayoutError::Missing { digest, .. }) => (id::MANIFEST_DIGEST, format!("a blob {digest}")),
            Self::Layout(LayoutError::TooLarge { max, .. }) => (id::INDEX_SCHEMA, format!("at most {max} bytes")),
            Self::Layout(_) => return None,
            Self::Index { .. } => (id::INDEX_SCHEMA, "a symbol index of schema symseal.symbol_index.v1".to_owned()),
            Self::Oci { .. } => (id::MANIFEST_DIGEST, "a manifest of a bundle".to_owned()),
            Self::NotABundle { .. } | Self::Ambiguous { .. } => (id::INDEX_SCHEMA, "one bundle".to_owned()),
            Self::File { expected, found, path, .. } => {
                let check = Check::failed(id::BLOB_DIGEST, expected.to_string(), found.to_string());
                return Some(check.with_detail(path.display().to_string()));
            }
        };
        Some(Check::refused_by(check, expected, self))
    }
}

fn sole_bundle(layout: &LayoutDir) -> Result<Digest, BundleError> {
    let mut tagged = Vec::new();
    let mut all = Vec::new();
    for listed in layout.manifests()? {
        if listed.media_type != oci::IMAGE_INDEX {
            continue;
        }
        // Other tools do not always copy the artifact type into `index.json`.
        let bytes = match layout.read_blob(&listed.digest, oci::MAX_MANIFEST_BYTES) {
            Err(LayoutError::Missing { .. }) => continue,
            bytes => bytes?,
        };
        let index = ImageIndex::parse(&bytes).map_err(|source| BundleError::Oci { place: listed.digest, source })?;
        if index.artifact_type.as_deref() != Some(oci::BUNDLE) {
            continue;
        }
        if listed.ref_name().is_some() && !tagged.contains(&listed.digest) {
            tagged.push(listed.digest);
        }
        if !all.contains(&listed.digest) {
            all.push(listed.digest);
        }
    }
    match (all.as_slice(), tagged.as_slice()) {
        ([digest], _) | (_, [digest]) => Ok(*digest),
        ([], _) => Err(BundleError::NotABundle {
            path: layout.root().to_owned(),
            problem: "its index.json names no image index of the type application/vnd.symseal.bundle.v1".to_owned(),
        }),
        _ => Err(BundleError::Ambiguous { path: layout.root().to_owned(), digests: all }),
    }
}

fn listed(digests: &[Digest]) -> String {
    digests.iter().map(Digest::to_string).collect::<Vec<_>>().join(", ")
}
