//! The seals of a bundle in a layout: Sigstore bundles in manifests that refer to it, found and not verified.

use std::collections::HashSet;

use crate::bundle::BundleError;
use crate::digest::Digest;
use crate::layout::{LayoutDir, LayoutError};
use crate::oci::{self, Descriptor, Manifest};

/// The largest seal that is read, in bytes: no larger one is accepted.
pub const MAX_SEAL_BYTES: u64 = symseal_seal::SEAL_LIMIT as u64;
/// The most seals of one bundle that are looked at, of one referrer, and the most bytes of all. Anybody who may push to a repository may add
/// referrers.
const MAX_SEALS: usize = 16_384;
const MAX_SEALS_OF_A_REFERRER: usize = 16;
const MAX_BYTES_OF_SEALS: u64 = 64 << 20;

/// The seals that refer to a bundle, unverified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundSeals {
    /// Their bytes, each once, in the order of the layout's `index.json`.
    pub seals: Vec<Vec<u8>>,
    /// How many more there are than are looked at.
    pub passed_over: u64,
}

/// What no seal can be (a manifest that is none, a blob that is missing, too large or has other bytes) is passed over: anybody may
/// let a referrer point at a bundle, and junk must not hide a good seal. It is an error where nothing else is left.
pub(crate) fn find(layout: &LayoutDir, bundle: &Digest) -> Result<FoundSeals, BundleError> {
    let mut found = FoundSeals::default();
    let mut junk = None;
    let (mut looked_at, mut taken, mut bytes) = (HashSet::new(), HashSet::new(), 0);
    for listed in layout.manifests()? {
        if listed.media_type != oci::MANIFEST || !looked_at.insert(listed.digest) {
            continue;
        }
        // One manifest at a time: each may have 4 MiB.
        let manifest = match layout.read_blob(&listed.digest, oci::MAX_MANIFEST_BYTES) {
            Err(LayoutError::Missing { .. } | LayoutError::TooLarge { .. }) => continue,
            manifest => manifest?,
        };
        let Ok(manifest) = Manifest::parse(&manifest) else { continue };
        let kind = manifest.artifact_type.as_deref().unwrap_or(&manifest.config.media_type);
        if kind != oci::SIGSTORE_BUNDLE || manifest.subject.as_ref().is_none_or(|subject| subject.digest != *bundle) {
            continue;
        }
        for layer in seal_layers(&manifest) {
            if !taken.insert(layer.digest) {
                continue;
            }
            if found.seals.len() >= MAX_SEALS || bytes >= MAX_BYTES_OF_SEALS {
                found.passed_over += 1;
                continue;
            }
            match layout.read_blob(&layer.digest, MAX_SEAL_BYTES) {
                Ok(seal) => {
                    bytes += seal.len() as u64;
                    found.seals.push(seal);
                }
                Err(error) => junk = Some(error),
            }
        }
    }
    match junk {
        Some(error) if found.seals.is_empty() => Err(error.into()),
        _ => Ok(found),
    }
}

/// The seals in one manifest.
pub(crate) fn seals_of_referrer(layout: &LayoutDir, referrer: &Digest) -> Result<Vec<Vec<u8>>, BundleError> {
    let bytes = layout.read_blob(referrer, oci::MAX_MANIFEST_BYTES)?;
    let manifest = Manifest::parse(&bytes).map_err(|source| BundleError::Oci { place: *referrer, source })?;
    seal_layers(&manifest).map(|layer| Ok(layout.read_blob(&layer.digest, MAX_SEAL_BYTES)?)).collect()
}

/// Writers put one into each manifest.
fn seal_layers(manifest: &Manifest) -> impl Iterator<Item = &Descriptor> {
    manifest.layers.iter().filter(|layer| layer.media_type == oci::SIGSTORE_BUNDLE).take(MAX_SEALS_OF_A_REFERRER)
}
