//! What is in a registry is not moved again; what refers to an image is found from it, on old registries too.

use crate::front::{Front, Manners};
use crate::support::{artifact, layout, reference, serve};
use symseal_bundle::oci::{self, Descriptor, ImageIndex};
use symseal_bundle::{Digest, LayoutDir};
use symseal_registry::{Elsewhere, Options, RegistryError, Repository, plan, pull, push, push_with};

fn files() -> Vec<Vec<u8>> {
    vec![vec![1; 3000], vec![2; 2_000_000], Vec::new(), vec![4; 40_000]]
}

/// Pushes the artifact to `place`, and takes its files out of the layout.
async fn publish_and_forget(source: &LayoutDir, place: &symseal_registry::Reference) -> (Digest, Elsewhere) {
    let digest = artifact(source, &files(), None);
    push(source, &digest, place, &Options::default()).await.unwrap();
    let blobs: Vec<Digest> = files().iter().map(|bytes| Digest::of(bytes)).collect();
    for blob in &blobs {
        std::fs::remove_file(source.blob_path(blob)).unwrap();
    }
    let mut elsewhere = Elsewhere::default();
    elsewhere.add(place, &Options::default(), blobs);
    (digest, elsewhere)
}

/// Bytes of blobs that went through a front: to the registry, and from it.
fn moved(front: &Front) -> (u64, u64) {
    let seen = front.take();
    (
        seen.iter().filter(|seen| seen.is_upload()).map(|seen| seen.sent).sum(),
        seen.iter().filter(|seen| seen.is_download()).map(|seen| seen.received).sum(),
    )
}

#[tokio::test]
async fn what_the_destination_has_is_found_and_what_another_repository_has_is_mounted() {
    let root = tempfile::tempdir().unwrap();
    let front = Front::start(serve(&root.path().join("data")).await, Manners::default());
    let source = layout(&root, "source");
    let part = reference(front.address, "team/part:v1");
    let (digest, elsewhere) = publish_and_forget(&source, &part).await;
    front.take();

    let planned = plan(&source, &digest, &reference(front.address, "team/part:v2"), &Options::default()).await.unwrap();
    assert_eq!((planned.blobs_existing, planned.blobs_missing, planned.manifests), (5, 0, 2));
    let same = reference(front.address, "team/part:v2");
    let report = push_with(&source, &digest, &same, &elsewhere, &Options::default()).await.unwrap();
    assert_eq!((report.blobs_existing, report.blobs_sent, report.blobs_mounted), (5, 0, 0));
    assert_eq!(moved(&front), (0, 0));

    let other = reference(front.address, "team/whole:v1");
    let planned = plan(&source, &digest, &other, &Options::default()).await.unwrap();
    assert_eq!((planned.blobs_missing, planned.bytes_missing), (5, 2_043_002));
    let report = push_with(&source, &digest, &other, &elsewhere, &Options::default()).await.unwrap();
    assert_eq!((report.blobs_mounted, report.blobs_sent, report.bytes_sent), (4, 1, 2));
    assert_eq!(moved(&front), (2, 0), "the empty configuration is all that moves");

    let target = layout(&root, "target");
    let pulled = pull(&other, &target, &Options::default()).await.unwrap();
    assert_eq!((pulled.digest, pulled.blobs_received, pulled.blobs_existing), (digest, 5, 0));
    assert_eq!(pulled.bytes_received, 2_043_002);
    let again = pull(&other, &target, &Options::default()).await.unwrap();
    assert_eq!((again.blobs_received, again.blobs_existing, again.bytes_received), (0, 5, 0));
    for bytes in files() {
        assert!(target.read_blob(&Digest::of(&bytes), u64::MAX).unwrap() == bytes);
    }
}

#[tokio::test]
async fn another_registry_or_one_without_mounts_gets_a_copy_and_the_layout_keeps_none() {
    let root = tempfile::tempdir().unwrap();
    let first = serve(&root.path().join("first")).await;
    let without_mounts = Front::start(first, Manners { without_mounts: true, ..Manners::default() });
    let second = serve(&root.path().join("second")).await;
    let source = layout(&root, "source");
    let (digest, elsewhere) = publish_and_forget(&source, &reference(without_mounts.address, "team/part:v1")).await;
    let bytes: u64 = files().iter().map(|bytes| bytes.len() as u64).sum();
    for to in [reference(second, "team/whole:v1"), reference(without_mounts.address, "team/whole:v1")] {
        let report = push_with(&source, &digest, &to, &elsewhere, &Options::default()).await.unwrap();
        assert_eq!((report.blobs_mounted, report.blobs_copied, report.bytes_fetched), (0, 4, bytes), "{to}");
        assert!(files().iter().all(|bytes| !source.has(&Digest::of(bytes))));
        let target = layout(&root, &format!("target-{}", to.registry().replace(':', "-")));
        assert_eq!(pull(&to, &target, &Options::default()).await.unwrap().digest, digest);
    }
    // A refused mount began an upload; it was cancelled.
    let cancelled = without_mounts.take().into_iter().filter(|seen| seen.method == axum::http::Method::DELETE).count();
    assert_eq!(cancelled, 4);
}

#[tokio::test]
async fn a_blob_that_is_nowhere_is_named() {
    let root = tempfile::tempdir().unwrap();
    let address = serve(&root.path().join("data")).await;
    let source = layout(&root, "source");
    let digest = artifact(&source, &files(), None);
    let lost = Digest::of(&files()[1]);
    std::fs::remove_file(source.blob_path(&lost)).unwrap();
    let to = reference(address, "team/app:v1");
    let error = push(&source, &digest, &to, &Options::default()).await.unwrap_err();
    assert!(error.to_string().contains(&lost.to_string()), "{error}");
    let mut elsewhere = Elsewhere::default();
    elsewhere.add(&reference(address, "team/never-pushed"), &Options::default(), [lost]);
    let error = push_with(&source, &digest, &to, &elsewhere, &Options::default()).await.unwrap_err();
    assert!(matches!(error, RegistryError::NotFound { what: "blob", .. }), "{error}");
    assert!(error.to_string().contains(&lost.to_string()), "{error}");
}

#[tokio::test]
async fn an_index_with_a_subject_is_listed_under_it_with_and_without_the_referrers_api() {
    for without_referrers in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let data = serve(&root.path().join("data")).await;
        let front = Front::start(data, Manners { without_referrers, ..Manners::default() });
        let (images, bundles) = (layout(&root, "images"), layout(&root, "bundles"));
        let image = artifact(&images, &[vec![7; 100]], None);
        let named = reference(front.address, "team/app:v1");
        push(&images, &image, &named, &Options::default()).await.unwrap();
        let resolved = Repository::open(&named, &Options::default()).unwrap().resolve().await.unwrap().unwrap();
        assert_eq!((resolved.digest, resolved.media_type.as_str()), (image, oci::IMAGE_INDEX));

        let digest = artifact(&bundles, &[vec![8; 100]], Some(&resolved));
        let to = reference(front.address, "team/app:v1-symbols");
        for _ in 0..2 {
            let report = push(&bundles, &digest, &to, &Options::default()).await.unwrap();
            assert_eq!(report.referrers_api, !without_referrers);
        }
        // The pull of the image finds it either way.
        let target = layout(&root, "target");
        assert_eq!(pull(&named, &target, &Options::default()).await.unwrap().digest, image);
        assert!(target.has(&digest) && target.has(&Digest::of(&[8; 100])));
        let tag = reference(front.address, &format!("team/app:{}", image.to_string().replace(':', "-")));
        let listed = Repository::open(&tag, &Options::default()).unwrap().resolve().await.unwrap();
        assert_eq!(listed.is_some(), without_referrers);
        if listed.is_some() {
            let lists = layout(&root, "lists");
            let list = pull(&tag, &lists, &Options::default()).await.unwrap().digest;
            let list = ImageIndex::parse(&lists.read_blob(&list, oci::MAX_MANIFEST_BYTES).unwrap()).unwrap();
            let bytes = bundles.read_blob(&digest, oci::MAX_MANIFEST_BYTES).unwrap();
            let mut expected = Descriptor::of(oci::IMAGE_INDEX, &bytes).with("note", "an artifact");
            expected.artifact_type = Some("application/vnd.example.v1".into());
            assert_eq!(list.manifests, [expected]);
        }
    }
}

#[tokio::test]
async fn what_is_no_bundle_is_told_from_what_is_not_there() {
    let root = tempfile::tempdir().unwrap();
    let address = serve(&root.path().join("data")).await;
    let source = layout(&root, "source");
    let digest = artifact(&source, &files(), None);
    let named = reference(address, "team/app:v1");
    push(&source, &digest, &named, &Options::default()).await.unwrap();
    let of = |place: &str| Repository::open(&reference(address, place), &Options::default()).unwrap();
    let error = of("team/app:v1").bundle_indexes().await.unwrap_err().to_string();
    assert!(error.contains("is no bundle") && error.contains("application/vnd.example.v1"), "{error}");
    for missing in ["team/app:v2", "nobody/app:v1"] {
        assert_eq!(of(missing).resolve().await.unwrap(), None);
        let error = of(missing).bundle_indexes().await.unwrap_err();
        assert!(matches!(&error, RegistryError::NotFound { reference, .. } if reference.contains(missing)), "{error}");
    }
}
