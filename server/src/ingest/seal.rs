//! What the database records of a seal. It is read and not judged: whom to trust is the reader's decision.

use std::io;

use symseal_seal::tiles::entry_reference;
use symseal_seal::{SEAL_LIMIT, SignedCheckpoint, SigstoreBundle};

use crate::blobs::{BlobDigest, BlobDirectory, unless_lost};
use crate::repositories::Manifest;
use crate::store::SealRow;

/// What every version of the Sigstore bundle's media type starts with.
const MEDIA_TYPE_PREFIX: &str = "application/vnd.dev.sigstore.bundle";

/// Whether a manifest is a seal of its subject.
pub(crate) fn is_seal(manifest: &Manifest) -> bool {
    manifest.subject.is_some()
        && manifest.artifact_type.as_deref().is_some_and(|kind| kind.starts_with(MEDIA_TYPE_PREFIX))
}

/// Reads the seal of a manifest with exactly one layer; `None`, with a line in the log, when it is of another kind.
/// Blocks.
///
/// # Errors
/// It cannot be read now.
pub(crate) fn read_seal(manifest_bytes: &[u8], blobs: &BlobDirectory) -> io::Result<Option<SealRow>> {
    let Ok(manifest) = symseal_bundle::oci::Manifest::parse(manifest_bytes) else { return Ok(None) };
    let [layer] = manifest.layers.as_slice() else { return Ok(None) };
    let digest = BlobDigest::from(layer.digest);
    let Some(bytes) = unless_lost(blobs.read(&digest, SEAL_LIMIT as u64))? else { return Ok(None) };
    match SigstoreBundle::parse(&bytes) {
        Ok(seal) => Ok(Some(row(&seal, digest.to_string()))),
        Err(error) => {
            tracing::info!(%digest, %error, "a referrer looks like a seal and is none of symseal's");
            Ok(None)
        }
    }
}

fn row(seal: &SigstoreBundle, seal_digest: String) -> SealRow {
    let origin = SignedCheckpoint::parse(&seal.entry.checkpoint)
        .map(|checkpoint| checkpoint.checkpoint.origin)
        .unwrap_or_else(|_| seal.entry.log_id.to_string());
    let rekor_tile_ref = match origin.parse() {
        Ok(origin) => seal.entry.reference(&origin),
        Err(_) => entry_reference(&origin, seal.entry.log_index),
    };
    SealRow { signer: seal.hint.clone(), rekor_tile_ref, seal_digest, dsse_ref: seal.envelope.reference() }
}
