//! Any bytes as a manifest or an image index: what is read can be written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use symseal_bundle::oci::{ImageIndex, Manifest};

fuzz_target!(|bytes: &[u8]| {
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
});
