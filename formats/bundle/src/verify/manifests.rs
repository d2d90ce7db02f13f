//! Manifests against their descriptors, and their layers against the symbol index.

use std::collections::{BTreeMap, HashSet};

use symseal_seal::checks::{Check, id};

use super::Findings;
use crate::bundle::Bundle;
use crate::digest::Digest;
use crate::layout::{LayoutDir, LayoutError};
use crate::oci::{self, Descriptor, Manifest};
use crate::title;

pub(super) fn check(bundle: &Bundle, findings: &mut Findings) {
    let (Some(layout), Some(image_index)) = (bundle.layout(), bundle.image_index()) else {
        findings.skip(id::MANIFEST_DIGEST, "a pulled directory has no manifests");
        return;
    };
    let mut failures = Vec::new();
    let mut layers = 0u64;
    let hashed: HashSet<(&Digest, u64)> = bundle.index().files().map(|file| (&file.sha256, file.size)).collect();
    // What the manifests hold, to be found again in the index: title → digest and size.
    let mut found: BTreeMap<String, (Digest, u64)> = BTreeMap::new();
    for child in &image_index.manifests {
        let manifest = match read(layout, child) {
            Ok(manifest) => manifest,
            Err(check) => {
                failures.push(check);
                continue;
            }
        };
        // All have the same one, which is reported once.
        if manifest.config == oci::empty_config() && failures.is_empty() {
            failures.extend(check_config(layout, &manifest.config));
        }
        for layer in &manifest.layers {
            layers += 1;
            // A layer that the index lists is looked at when its bytes are hashed (`blob.digest`).
            if !hashed.contains(&(&layer.digest, layer.size)) {
                failures.extend(check_size(layout, layer));
            }
            let title = layer.title().unwrap_or_default().to_owned();
            if found.insert(title.clone(), (layer.digest, layer.size)).is_some() {
                let check = Check::failed(id::MANIFEST_DIGEST, "each title once", format!("{title:?} twice"));
                failures.push(check.with_detail(child.digest.to_string()));
            }
        }
    }
    found.remove(title::SYMBOL_INDEX);
    // Unreadable manifests were reported; their layers would only be reported again.
    if failures.is_empty() {
        compare(bundle, found, &mut failures);
    }
    let passed = format!("{} manifests, {layers} layers", image_index.manifests.len());
    findings.conclude(id::MANIFEST_DIGEST, failures, passed);
}

fn read(layout: &LayoutDir, child: &Descriptor) -> Result<Manifest, Check> {
    let failed = |error: String| {
        Err(Check::failed(id::MANIFEST_DIGEST, format!("a manifest {} of {} bytes", child.digest, child.size), error))
    };
    if child.media_type != oci::MANIFEST {
        return failed(format!("a child of media type {:?}", child.media_type));
    }
    let bytes = match layout.read_blob(&child.digest, oci::MAX_MANIFEST_BYTES) {
        Ok(bytes) => bytes,
        Err(LayoutError::Digest { expected, found, path }) => {
            let check = Check::failed(id::MANIFEST_DIGEST, expected.to_string(), found.to_string());
            return Err(check.with_detail(path.display().to_string()));
        }
        Err(error) => return failed(error.to_string()),
    };
    if bytes.len() as u64 != child.size {
        return failed(format!("{} bytes", bytes.len()));
    }
    Manifest::parse(&bytes).or_else(|error| failed(error.to_string()))
}

/// The layers and the index must list the same files.
fn compare(bundle: &Bundle, mut found: BTreeMap<String, (Digest, u64)>, failures: &mut Vec<Check>) {
    for file in bundle.index().files() {
        let expected = format!("a layer {:?} {} of {} bytes", file.path, file.sha256, file.size);
        match found.remove(&file.path) {
            Some(layer) if layer == (file.sha256, file.size) => {}
            Some((digest, size)) => {
                failures.push(Check::failed(id::MANIFEST_DIGEST, expected, format!("{digest} of {size} bytes")));
            }
            None => failures.push(Check::failed(id::MANIFEST_DIGEST, expected, "none with this title")),
        }
    }
    for (title, (digest, _)) in found {
        failures.push(Check::failed(
            id::MANIFEST_DIGEST,
            "only files that the symbol index lists",
            format!("a layer {title:?} {digest}"),
        ));
    }
}

fn check_size(layout: &LayoutDir, layer: &Descriptor) -> Option<Check> {
    let Some(size) = layout.blob_size(&layer.digest) else { return Some(missing(layer)) };
    (size != layer.size).then(|| {
        Check::failed(id::MANIFEST_DIGEST, format!("{} bytes", layer.size), format!("{size} bytes"))
            .with_detail(format!("{} {}", layer.digest, layer.title().unwrap_or_default()))
    })
}

fn check_config(layout: &LayoutDir, config: &Descriptor) -> Option<Check> {
    match layout.read_blob(&config.digest, config.size) {
        Ok(_) => None,
        Err(LayoutError::Missing { .. }) => Some(missing(config)),
        Err(error) => {
            let expected = format!("the configuration {} of {} bytes", config.digest, config.size);
            Some(Check::failed(id::MANIFEST_DIGEST, expected, error.to_string()))
        }
    }
}

fn missing(layer: &Descriptor) -> Check {
    Check::failed(id::MANIFEST_DIGEST, format!("a blob {}", layer.digest), "none")
        .with_detail(layer.title().unwrap_or_default())
}
