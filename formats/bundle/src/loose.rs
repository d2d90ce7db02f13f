//! The manifest of a file that was uploaded by itself: an artifact of one layer, whose title is the file's name.

use crate::Digest;
use crate::oci::{Descriptor, Manifest, OciError, TITLE};

/// `artifactType` of the manifest.
pub const LOOSE: &str = "application/vnd.symseal.loose.v1";

/// Media type of its layer.
const LOOSE_FILE: &str = "application/octet-stream";

/// The manifest of a file of `size` bytes. It follows from the file's name and bytes alone, so that its digest tells whether a server has the file under
/// this name.
///
/// # Errors
/// [`OciError`] where the name makes the manifest too large.
pub fn manifest(name: &str, digest: Digest, size: u64) -> Result<Vec<u8>, OciError> {
    let layer = Descriptor::new(LOOSE_FILE, digest, size).with(TITLE, name);
    Manifest::artifact(LOOSE, vec![layer]).to_bytes()
}
