//! Any bytes as a manifest or an image index: what is read can be written again. Those of sources can be
//! joined, and joined again.

use symseal_bundle::Digest;
use symseal_bundle::oci::{ImageIndex, Manifest};
use symseal_bundle::sources;

pub(super) fn run(bytes: &[u8]) {
    if let Ok(manifest) = Manifest::parse(bytes)
        && let Ok(again) = manifest.to_bytes()
    {
        assert_eq!(Manifest::parse(&again).unwrap(), manifest);
    }
    if let Ok(index) = ImageIndex::parse(bytes)
        && let Ok(again) = index.to_bytes()
    {
        assert_eq!(ImageIndex::parse(&again).unwrap(), index);
    }
    if let Ok(named) = sources::manifests(&Digest::of(bytes), bytes)
        && let Ok(Some(joined)) = sources::joined(named.clone())
        && let Some(again) = &joined.image_index
    {
        assert!(sources::manifests(&joined.digest, again).is_ok_and(|again| again.len() <= named.len()));
    }
}
