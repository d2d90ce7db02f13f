//! The layout on disk: what becomes visible, when, and what is refused.

use crate::made;
use std::io::Write;
use std::path::Path;

use symseal_bundle::oci::{self, Descriptor, ImageIndex, Manifest};
use symseal_bundle::{Bundle, BundleError, Digest, LayoutDir, LayoutError};

fn descriptor(layout: &LayoutDir, bytes: &[u8]) -> Descriptor {
    layout.write_blob(bytes).unwrap();
    Descriptor::of(oci::IMAGE_INDEX, bytes)
}

#[test]
fn a_blob_reads_back_and_a_changed_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path().join("new/layout")).unwrap();
    let digest = layout.write_blob(b"bytes").unwrap();
    assert_eq!(layout.read_blob(&digest, 5).unwrap(), b"bytes");
    assert!(matches!(layout.read_blob(&digest, 4), Err(LayoutError::TooLarge { .. })));
    assert!(matches!(layout.read_blob(&Digest::of(b"x"), 4), Err(LayoutError::Missing { .. })));
    std::fs::write(layout.blob_path(&digest), b"bytez").unwrap();
    assert!(matches!(layout.read_blob(&digest, 5), Err(LayoutError::Digest { .. })));
    // Writing it again heals it.
    layout.write_blob(b"bytes").unwrap();
    assert_eq!(layout.read_blob(&digest, 5).unwrap(), b"bytes");
}

#[test]
fn a_writer_that_is_dropped_or_fed_other_bytes_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path()).unwrap();
    let mut writer = layout.writer().unwrap();
    writer.write_all(b"half").unwrap();
    drop(writer);
    let mut writer = layout.writer().unwrap();
    writer.write_all(b"other").unwrap();
    assert!(matches!(writer.finish(Some(&Digest::of(b"expected"))), Err(LayoutError::Digest { .. })));
    assert_eq!(files(&dir.path().join("ingest")), 0);
    assert_eq!(files(&dir.path().join("blobs/sha256")), 0);
}

#[test]
fn files_are_copied_and_downloads_adopted_only_under_their_digest() {
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path().join("layout")).unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, vec![7; 1_000_000]).unwrap();
    let digest = layout.put_file(&file).unwrap();
    assert_eq!(layout.blob_size(&digest), Some(1_000_000));
    let partial = layout.root().join("ingest/download.partial");
    std::fs::write(&partial, b"downloaded").unwrap();
    assert!(matches!(layout.adopt(&partial, &Digest::of(b"other")), Err(LayoutError::Digest { .. })));
    assert!(partial.exists());
    layout.adopt(&partial, &Digest::of(b"downloaded")).unwrap();
    assert!(!partial.exists() && layout.has(&Digest::of(b"downloaded")));
}

#[test]
fn a_tag_moves_and_no_digest_is_listed_twice() {
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path()).unwrap();
    let (a, b) = (descriptor(&layout, b"a"), descriptor(&layout, b"b"));
    let listed = |layout: &LayoutDir| -> Vec<(Digest, Option<String>)> {
        let manifests = layout.manifests().unwrap();
        manifests.iter().map(|listed| (listed.digest, listed.ref_name().map(str::to_owned))).collect()
    };
    layout.add_to_index(a.clone(), Some("v1")).unwrap();
    layout.add_to_index(a.clone(), Some("v1")).unwrap();
    layout.add_to_index(a.clone(), None).unwrap();
    assert_eq!(listed(&layout), [(a.digest, Some("v1".to_owned()))]);
    layout.add_to_index(b.clone(), Some("v1")).unwrap();
    assert_eq!(listed(&layout), [(a.digest, None), (b.digest, Some("v1".to_owned()))]);
    layout.add_to_index(b.clone(), Some("v2")).unwrap();
    assert_eq!(listed(&layout).len(), 3);
    assert!(matches!(layout.add_to_index(b, Some("no tag")), Err(LayoutError::Tag { .. })));
}

#[test]
fn concurrent_writers_lose_no_entry() {
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path()).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let layout = &layout;
            scope.spawn(move || {
                for at in 0..5 {
                    let bytes = format!("{writer}/{at}");
                    let descriptor = descriptor(layout, bytes.as_bytes());
                    layout.write_blob(b"the same for all").unwrap();
                    layout.add_to_index(descriptor, None).unwrap();
                }
            });
        }
    });
    assert_eq!(layout.manifests().unwrap().len(), 40);
    assert_eq!(files(&dir.path().join("ingest")), 0);
}

#[test]
fn other_directories_are_refused_with_their_path() {
    let dir = tempfile::tempdir().unwrap();
    let error = LayoutDir::open(dir.path()).unwrap_err();
    assert!(error.to_string().contains("there is no file oci-layout"), "{error}");
    std::fs::write(dir.path().join("thesis.txt"), b"do not touch").unwrap();
    let error = LayoutDir::create(dir.path()).unwrap_err();
    assert!(error.to_string().contains("thesis.txt"), "{error}");
    let error = LayoutDir::create(dir.path().join("thesis.txt")).unwrap_err();
    assert!(error.to_string().contains("expected a directory, found a file"), "{error}");
    assert!(matches!(LayoutDir::open(dir.path().join("absent")), Err(LayoutError::Io { .. })));
    std::fs::write(dir.path().join("oci-layout"), br#"{"imageLayoutVersion":"2.0.0"}"#).unwrap();
    assert!(matches!(LayoutDir::open(dir.path()), Err(LayoutError::NotALayout { .. })));
}

#[test]
fn a_bundle_is_opened_by_digest_or_where_there_is_no_choice() {
    let dir = tempfile::tempdir().unwrap();
    let (layout, digest) = made::bundle(dir.path());
    assert_eq!(Bundle::open(layout.clone(), None).unwrap().digest(), Some(digest));
    assert_eq!(Bundle::open_dir(dir.path()).unwrap().digest(), Some(digest));
    let bundle = Bundle::open(layout.clone(), Some(&digest)).unwrap();
    let module = bundle.module(&made::IDS[0].parse().unwrap()).unwrap();
    assert_eq!(module.files.len(), 4);
    for file in &module.files {
        assert_eq!(bundle.read(file).unwrap().len() as u64, file.size);
    }

    // A second bundle, untagged: the tagged one is meant. Tagged too: no one can say.
    let mut index = bundle.index().clone();
    index.name = "second".to_owned();
    let second = made::store(&layout, &index, None);
    assert_eq!(Bundle::open(layout.clone(), None).unwrap().digest(), Some(digest));
    made::store(&layout, &index, Some("2.0"));
    let error = Bundle::open(layout.clone(), None).unwrap_err();
    assert!(matches!(&error, BundleError::Ambiguous { digests, .. } if digests.contains(&second)), "{error}");
    assert_eq!(Bundle::open(layout, Some(&second)).unwrap().index().name, "second");
}

#[test]
fn an_image_index_of_something_else_is_no_bundle() {
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path()).unwrap();
    assert!(matches!(Bundle::open(layout.clone(), None), Err(BundleError::NotABundle { .. })));
    let other = ImageIndex::new(None, Vec::new()).to_bytes().unwrap();
    let descriptor = descriptor(&layout, &other);
    layout.add_to_index(descriptor.clone(), None).unwrap();
    assert!(matches!(Bundle::open(layout.clone(), None), Err(BundleError::NotABundle { .. })));
    let error = Bundle::open(layout, Some(&descriptor.digest)).unwrap_err();
    assert!(error.to_string().contains("expected artifact type application/vnd.symseal.bundle.v1"), "{error}");
}

#[test]
fn referrers_are_found_by_their_subject() {
    let dir = tempfile::tempdir().unwrap();
    let (layout, digest) = made::bundle(dir.path());
    assert_eq!(layout.referrers(&digest).unwrap(), []);
    let seal = layout.write_blob(b"a seal").unwrap();
    let mut manifest = Manifest::artifact(
        oci::SIGSTORE_BUNDLE,
        vec![Descriptor::new(oci::SIGSTORE_BUNDLE, seal, 6).with(oci::TITLE, "symbol_index.sigstore.json")],
    );
    manifest.subject = Some(Descriptor::new(oci::IMAGE_INDEX, digest, 1));
    manifest.annotations.insert("a".to_owned(), "b".to_owned());
    let bytes = manifest.to_bytes().unwrap();
    layout.write_blob(&bytes).unwrap();
    layout.add_to_index(Descriptor::of(oci::MANIFEST, &bytes), None).unwrap();
    let found = layout.referrers(&digest).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].artifact_type.as_deref(), Some(oci::SIGSTORE_BUNDLE));
    assert_eq!(found[0].annotations["a"], "b");
    assert_eq!(Bundle::open(layout, Some(&digest)).unwrap().seals(), [b"a seal"]);
}

fn files(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}
