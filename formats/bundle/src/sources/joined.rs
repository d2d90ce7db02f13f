//! The sources of several platform jobs as one: an image index over their manifests, so that a symbol index names one digest.

use super::{ARTIFACT_TYPE, SourcesError};
use crate::digest::Digest;
use crate::oci::{self, Descriptor, ImageIndex, Manifest, OciError};

/// Sources of several parts, put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedSources {
    /// What the symbol index names: the one manifest, or the image index over several.
    pub digest: Digest,
    /// The bytes of that image index; none where one manifest is all.
    pub image_index: Option<Vec<u8>>,
}

/// The manifests of the sources with this digest, whose bytes are those of a manifest or of an image index over some. Nothing is
/// asked about what the manifests hold.
///
/// # Errors
/// [`SourcesError`] where the bytes have another digest, or are no sources.
pub fn manifests(digest: &Digest, bytes: &[u8]) -> Result<Vec<Descriptor>, SourcesError> {
    let found = Digest::of(bytes);
    if found != *digest {
        let (expected, found) = (digest.to_string(), found.to_string());
        return Err(SourcesError::Bytes { place: "the manifest of the sources".to_owned(), expected, found });
    }
    let not_sources = |found: String| SourcesError::NotSources { digest: *digest, found };
    let is_ours = |found: &Option<String>| match found.as_deref() {
        Some(ARTIFACT_TYPE) => Ok(()),
        other => Err(not_sources(format!("artifact type {:?}", other.unwrap_or_default()))),
    };
    match Manifest::parse(bytes) {
        Ok(manifest) => {
            is_ours(&manifest.artifact_type)?;
            Ok(vec![descriptor(*digest, bytes.len() as u64)])
        }
        Err(source) => {
            let index = ImageIndex::parse(bytes).map_err(|_| SourcesError::Oci { digest: *digest, source })?;
            is_ours(&index.artifact_type)?;
            match index.manifests.iter().find(|child| child.media_type != oci::MANIFEST) {
                Some(child) => Err(not_sources(format!("an image index that names a {:?}", child.media_type))),
                None => Ok(index.manifests.iter().map(|child| descriptor(child.digest, child.size)).collect()),
            }
        }
    }
}

/// Puts sources together: by the digests of their manifests, each once. None of them give none; one is itself.
///
/// # Errors
/// [`OciError`] where there are more than an image index can name.
pub fn joined(manifests: impl IntoIterator<Item = Descriptor>) -> Result<Option<JoinedSources>, OciError> {
    let mut manifests: Vec<Descriptor> = manifests.into_iter().collect();
    manifests.sort_by_key(|manifest| manifest.digest);
    manifests.dedup_by_key(|manifest| manifest.digest);
    match manifests.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(JoinedSources { digest: one.digest, image_index: None })),
        _ => {
            let bytes = ImageIndex::new(Some(ARTIFACT_TYPE), manifests).to_bytes()?;
            Ok(Some(JoinedSources { digest: Digest::of(&bytes), image_index: Some(bytes) }))
        }
    }
}

fn descriptor(digest: Digest, size: u64) -> Descriptor {
    let mut descriptor = Descriptor::new(oci::MANIFEST, digest, size);
    descriptor.artifact_type = Some(ARTIFACT_TYPE.to_owned());
    descriptor
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(layer: &[u8]) -> Vec<u8> {
        Manifest::artifact(ARTIFACT_TYPE, vec![Descriptor::of("a/b", layer)]).to_bytes().unwrap()
    }

    #[test]
    fn several_become_an_image_index_whatever_their_order_and_nesting() {
        let bytes = [manifest(b"one"), manifest(b"two"), manifest(b"three")];
        let of = |bytes: &[u8]| manifests(&Digest::of(bytes), bytes).unwrap();
        let all: Vec<Descriptor> = bytes.iter().flat_map(|bytes| of(bytes)).collect();
        let whole = joined(all.clone()).unwrap().unwrap();
        assert_eq!(joined(all.iter().rev().cloned()).unwrap().as_ref(), Some(&whole));
        let two = joined(all.iter().take(2).cloned()).unwrap().unwrap().image_index.unwrap();
        let nested = of(&two).into_iter().chain(all.iter().skip(1).cloned());
        assert_eq!(joined(nested).unwrap(), Some(whole.clone()), "an index in a join gives its manifests");
        assert_eq!(whole.digest, Digest::of(whole.image_index.as_ref().unwrap()));
        assert_eq!(of(whole.image_index.as_ref().unwrap()).len(), 3);
        let one = joined(all.into_iter().take(1)).unwrap().unwrap();
        assert_eq!(one, JoinedSources { digest: Digest::of(&bytes[0]), image_index: None });
        assert_eq!(joined([]).unwrap(), None);
    }

    #[test]
    fn what_is_no_sources_is_refused() {
        let other = Manifest::artifact("another/type", Vec::new()).to_bytes().unwrap();
        let of_others = ImageIndex::new(Some("another/type"), Vec::new()).to_bytes().unwrap();
        let nested = Descriptor::of(oci::IMAGE_INDEX, b"");
        let nested = ImageIndex::new(Some(ARTIFACT_TYPE), vec![nested]).to_bytes().unwrap();
        for bytes in [other.as_slice(), &of_others, &nested] {
            assert!(matches!(manifests(&Digest::of(bytes), bytes), Err(SourcesError::NotSources { .. })));
        }
        for bytes in [&b""[..], b"{}", b"[]"] {
            assert!(matches!(manifests(&Digest::of(bytes), bytes), Err(SourcesError::Oci { .. })));
        }
        assert!(matches!(manifests(&Digest::of(b""), &manifest(b"one")), Err(SourcesError::Bytes { .. })));
    }
}
