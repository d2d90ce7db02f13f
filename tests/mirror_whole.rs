//! Destinations of mirrors that lost something, or have something else: what is missing is sent, and what is damaged is told.

use std::path::Path;

use serde_json::Value;
use symseal_bundle::{Digest, oci};

use crate::mirror::{Scene, manifest, tagged};
use crate::program::{Ran, symseal};

/// The largest blob of a layout, which is a file of the bundle.
fn largest_blob(layout: &str) -> Digest {
    let blobs = std::fs::read_dir(Path::new(layout).join("blobs/sha256")).unwrap().map(Result::unwrap);
    let largest = blobs.max_by_key(|blob| blob.metadata().unwrap().len()).unwrap();
    format!("sha256:{}", largest.file_name().to_str().unwrap()).parse().unwrap()
}

/// Changes one byte of a file.
fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn what_a_layout_lacks_is_brought_again_and_what_is_damaged_where_bytes_are_compared() {
    let Some(scene) = Scene::new() else { return };
    let (from, to, trust) = (scene.source(), scene.at("mirrored"), scene.at("trust"));
    let Some(bundle) = manifest(&scene, "1.0") else { return };
    let bundle_digest = Digest::of(bundle.as_bytes());
    let index: Value = serde_json::from_str(&bundle).unwrap();
    let child: Digest = index["manifests"][0]["digest"].as_str().unwrap().parse().unwrap();
    let run = |more: &[&str]| scene.mirror(&from, &to, &[&["--tag", "1.0"], more].concat());
    let outcome = |ran: Ran| tagged(&ran.ok().json(), "1.0")["outcome"].as_str().unwrap().to_owned();
    assert_eq!(outcome(run(&[])), "mirrored");
    let layout = symseal_bundle::LayoutDir::open(&to).unwrap();
    let seal = layout.referrers(&bundle_digest).unwrap()[0].digest;
    let (file, at) = (largest_blob(&to), |digest: &Digest| layout.blob_path(digest));

    // What is missing or has another size is found by every run: a file, a manifest below the bundle's, and a seal.
    for lost in [file, child, seal] {
        std::fs::remove_file(at(&lost)).unwrap();
        let repaired = run(&["--trust", &trust]).ok().json();
        // A seal whose manifest is gone is not there at all.
        let expected = if lost == seal { "mirrored" } else { "repaired" };
        assert_eq!(tagged(&repaired, "1.0")["outcome"], expected, "{lost}: {repaired:#}");
        assert!(layout.is_sound(&lost), "{lost}");
        assert_eq!(outcome(run(&["--trust", &trust])), "unchanged", "{lost}");
    }
    let whole = std::fs::read(at(&file)).unwrap();
    std::fs::write(at(&file), &whole[1..]).unwrap();
    let repaired = run(&[]).ok().json();
    let one = tagged(&repaired, "1.0");
    assert_eq!((&one["outcome"], &one["blobs_sent"]), (&"repaired".into(), &1.into()), "{repaired:#}");
    assert!(one["reason"].as_str().unwrap().contains(&format!("{file}: {} bytes expected", whole.len())), "{one:#}");

    // Other bytes of that size by --check alone; those of manifests, which are read anyway, always.
    flip(&at(&file));
    assert_eq!(outcome(run(&[])), "unchanged");
    assert_eq!(outcome(run(&["--check"])), "repaired");
    assert!(layout.is_sound(&file));
    for damaged in [child, seal] {
        flip(&at(&damaged));
        assert_eq!(outcome(run(&[])), "repaired", "{damaged}");
        assert!(layout.is_sound(&damaged));
    }
    // A seal whose own bytes are others does not hold at DST, though it does at SRC.
    let sealing = oci::Manifest::parse(&layout.read_blob(&seal, oci::MAX_MANIFEST_BYTES).unwrap()).unwrap();
    flip(&at(&sealing.layers[0].digest));
    let failed = run(&["--trust", &trust]);
    let (status, report) = (failed.status, failed.json());
    assert!(status == 1 && tagged(&report, "1.0")["outcome"] == "failed", "{report:#}");
    assert_eq!(outcome(run(&["--check", "--trust", &trust])), "repaired");
    assert_eq!(outcome(run(&["--check", "--trust", &trust])), "unchanged");
    symseal(["bundle", "verify", &to, "--trust", &trust]).ok();
}

#[test]
fn what_a_registry_lost_is_sent_again_and_what_it_has_damaged_is_named() {
    let Some(scene) = Scene::new() else { return };
    let (trust, layout) = (scene.at("trust"), scene.at("layout-1.0"));
    let Some(bundle) = manifest(&scene, "1.0") else { return };
    let index: Value = serde_json::from_str(&bundle).unwrap();
    let child: Digest = index["manifests"][0]["digest"].as_str().unwrap().parse().unwrap();
    let file = largest_blob(&layout);
    let kept = |digest: &Digest| {
        let hex = digest.hex().to_string();
        scene.root.path().join("to/blobs/sha256").join(&hex[..2]).join(&hex)
    };
    // From a registry, and from a layout.
    let carried = scene.at("carried");
    scene.mirror(&scene.source(), &carried, &["--tag", "1.0"]).ok();
    for (at, from) in [scene.source(), carried].into_iter().enumerate() {
        let to = format!("{}/mirror{at}/app", scene.to.address);
        let common = ["--tag", "1.0", "--trust", trust.as_str()];
        let run = |more: &[&str]| scene.mirror(&from, &to, &[&common, more].concat());
        let outcome = |ran: Ran| tagged(&ran.ok().json(), "1.0")["outcome"].as_str().unwrap().to_owned();
        assert_eq!(outcome(run(&["--check"])), "mirrored");
        assert_eq!(outcome(run(&[])), "unchanged");
        for lost in [file, child] {
            std::fs::remove_file(kept(&lost)).unwrap();
            assert_eq!(outcome(run(&[])), "repaired", "{at}: {lost}");
            assert_eq!(Digest::of(&std::fs::read(kept(&lost)).unwrap()), lost);
            assert_eq!(outcome(run(&[])), "unchanged");
        }
        // Other bytes under a digest: the registry takes no others, until they are gone.
        flip(&kept(&file));
        assert_eq!(outcome(run(&[])), "unchanged");
        let damaged = run(&["--check"]);
        let (status, report) = (damaged.status, damaged.json());
        let reason = tagged(&report, "1.0")["reason"].as_str().unwrap();
        assert!(status == 1 && reason.contains("1 damaged blob"), "{report:#}");
        assert!(reason.contains(&file.to_string()) && reason.contains("symseal store scrub"), "{reason}");
        symseal(["store", "scrub", "--data", &scene.at("to")]);
        assert_eq!(outcome(run(&["--check"])), "repaired");
        assert_eq!(outcome(run(&["--check"])), "unchanged");
    }
}
