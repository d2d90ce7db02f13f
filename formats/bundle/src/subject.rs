//! A bundle as a referrer: its image index names what it belongs to, such as the product's container image.
//! Described in `docs/formats/bundle.md`, "Subject".

use crate::compose::Composed;
use crate::digest::Digest;
use crate::layout::{LayoutDir, LayoutError};
use crate::oci::{self, Descriptor, ImageIndex, OciError};

/// Why a bundle was not given a subject.
#[derive(Debug, thiserror::Error)]
pub enum SubjectError {
    /// The layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The bundle's image index.
    #[error("bundle {digest}: {source}")]
    Oci {
        /// The bundle.
        digest: Digest,
        /// What is wrong with its image index.
        source: OciError,
    },
}

/// The composed bundle with `subject` in its image index, which gives it another digest.
pub fn with_subject(composed: Composed, subject: &Descriptor) -> Result<Composed, OciError> {
    let image_index = set(&composed.image_index, subject)?;
    Ok(Composed { digest: Digest::of(&image_index), image_index, ..composed })
}

/// Gives the bundle `bundle` of a layout a subject: `index.json` names the new image index in the place of the old one. Returns
/// the new digest. Seals of the old one stay behind: they are about another digest.
pub fn attach_subject(layout: &LayoutDir, bundle: &Digest, subject: &Descriptor) -> Result<Digest, SubjectError> {
    let bytes = layout.read_blob(bundle, oci::MAX_MANIFEST_BYTES)?;
    let bytes = set(&bytes, subject).map_err(|source| SubjectError::Oci { digest: *bundle, source })?;
    let digest = layout.write_blob(&bytes)?;
    let mut descriptor = Descriptor::of(oci::IMAGE_INDEX, &bytes);
    descriptor.artifact_type = Some(oci::BUNDLE.to_owned());
    layout.replace_in_index(bundle, descriptor)?;
    Ok(digest)
}

fn set(image_index: &[u8], subject: &Descriptor) -> Result<Vec<u8>, OciError> {
    let mut index = ImageIndex::parse(image_index)?;
    // What a registry says besides (annotations, platform) is no part of the bundle's identity.
    index.subject = Some(Descriptor::new(&subject.media_type, subject.digest, subject.size));
    index.to_bytes()
}
