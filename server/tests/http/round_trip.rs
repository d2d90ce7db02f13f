//! Our client against our server: what goes out comes back, whatever happens on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{BreakingNetwork, Direction, Running, artifact, noise, options, reference, referrer};
use symseal_bundle::LayoutDir;
use symseal_registry::{Options, Progress, RegistryError, pull, push};

const MIB: usize = 1 << 20;

fn layout(root: &tempfile::TempDir, name: &str) -> LayoutDir {
    LayoutDir::create(root.path().join(name)).unwrap()
}

/// Counts bytes on the wire and blobs that were there before.
fn counting() -> (Options, Arc<AtomicU64>, Arc<AtomicU64>) {
    let (moved, existed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (moved_too, existed_too) = (moved.clone(), existed.clone());
    let progress = move |progress| match progress {
        Progress::Moved { bytes } => drop(moved_too.fetch_add(bytes, Ordering::SeqCst)),
        Progress::Done { existed: true, .. } => drop(existed_too.fetch_add(1, Ordering::SeqCst)),
        _ => {}
    };
    (Options { progress: Some(Arc::new(progress)), ..options() }, moved, existed)
}

#[tokio::test]
async fn what_is_pushed_is_pulled_byte_by_byte_with_its_referrers() {
    let root = tempfile::tempdir().unwrap();
    let server = Running::start(&root.path().join("data")).await;
    let source = layout(&root, "source");
    let files = [noise(3 * MIB, 1), noise(700, 2), Vec::new()];
    let digest = artifact(&source, &[&files[..2], &files[1..]]);
    let notes = [referrer(&source, &digest, "one"), referrer(&source, &digest, "two")];

    let report = push(&source, &digest, &server.reference("team/app:v1"), &options()).await.unwrap();
    assert_eq!((report.blobs_sent, report.referrers, report.referrers_api), (6, 2, true));
    assert_eq!(report.digest, Some(digest));

    let target = layout(&root, "target");
    assert_eq!(pull(&server.reference("team/app:v1"), &target, &options()).await.unwrap().digest, digest);
    for bytes in &files {
        let blob = symseal_bundle::Digest::of(bytes);
        assert!(target.read_blob(&blob, u64::MAX).unwrap() == *bytes);
    }
    let mut referrers: Vec<_> = target.referrers(&digest).unwrap().into_iter().map(|found| found.digest).collect();
    referrers.sort();
    let mut expected = notes;
    expected.sort();
    assert_eq!(referrers, expected);
    assert!(target.manifests().unwrap().iter().any(|found| found.ref_name() == Some("v1") && found.digest == digest));
    assert_eq!(std::fs::read_dir(target.root().join("ingest")).unwrap().count(), 0);

    let (counted, moved, existed) = counting();
    let again = push(&source, &digest, &server.reference("team/app:v1"), &counted).await.unwrap();
    // The empty configuration is asked for once for the bundle and once for each referrer.
    assert_eq!((again.blobs_sent, again.blobs_existing), (0, 8));
    pull(&server.reference("team/app:v1"), &target, &counted).await.unwrap();
    assert_eq!(moved.load(Ordering::SeqCst), 0);
    assert!(existed.load(Ordering::SeqCst) >= 10);
    server.stop().await;
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let source = layout(&root, "source");
    let digest = artifact(&source, &[&[noise(5000, 3)]]);
    let note = referrer(&source, &digest, "note");
    let server = Running::start(&data).await;
    push(&source, &digest, &server.reference("a:v1"), &options()).await.unwrap();
    server.stop().await;

    let server = Running::start(&data).await;
    let target = layout(&root, "target");
    assert_eq!(pull(&server.reference("a:v1"), &target, &options()).await.unwrap().digest, digest);
    assert_eq!(target.referrers(&digest).unwrap()[0].digest, note);
}

#[tokio::test]
async fn two_servers_do_not_share_a_data_directory() {
    let root = tempfile::tempdir().unwrap();
    let server = Running::start(root.path()).await;
    let config = symseal_server::Config::new(root.path(), ([127, 0, 0, 1], 0).into());
    let error = symseal_server::Server::bind(config.clone()).await.err().unwrap();
    assert!(matches!(error, symseal_server::ServerError::Locked { .. }), "{error}");
    server.stop().await;
    assert!(symseal_server::Server::bind(config).await.is_ok());
}

#[tokio::test]
async fn a_push_that_breaks_off_goes_on_where_it_stopped() {
    let root = tempfile::tempdir().unwrap();
    let server = Running::start(&root.path().join("data")).await;
    let network = BreakingNetwork::start(server.address, Direction::ToServer, 5 * MIB, 2).await;
    let source = layout(&root, "source");
    let files = [noise(16 * MIB, 4)];
    let digest = artifact(&source, &[&files]);
    let (counted, moved, _) = counting();
    push(&source, &digest, &reference(network.address, "big:v1"), &counted).await.unwrap();
    // Without going on, the two cuts at 5 MiB would cost 10 MiB more; bytes in buffers are lost either way.
    let moved = moved.load(Ordering::SeqCst) as usize;
    assert!(moved < 24 * MIB, "{moved} bytes were sent for a blob of {}", 16 * MIB);

    let target = layout(&root, "target");
    pull(&server.reference("big:v1"), &target, &options()).await.unwrap();
    assert!(target.read_blob(&symseal_bundle::Digest::of(&files[0]), u64::MAX).unwrap() == files[0]);
}

#[tokio::test]
async fn a_pull_that_breaks_off_goes_on_where_it_stopped_also_in_another_run() {
    let root = tempfile::tempdir().unwrap();
    let server = Running::start(&root.path().join("data")).await;
    let source = layout(&root, "source");
    let files = [noise(16 * MIB, 5)];
    let digest = artifact(&source, &[&files]);
    push(&source, &digest, &server.reference("big:v1"), &options()).await.unwrap();

    let target = layout(&root, "target");
    let network = BreakingNetwork::start(server.address, Direction::ToClient, 5 * MIB, 1).await;
    let one_try = Options { tries: 1, ..options() };
    let error = pull(&reference(network.address, "big:v1"), &target, &one_try).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unreachable { .. }), "{error}");
    let blob = symseal_bundle::Digest::of(&files[0]);
    assert!(!target.has(&blob));
    let partial = target.root().join("ingest").join(format!("{}.partial", blob.hex()));
    let kept = std::fs::metadata(&partial).unwrap().len();
    assert!(kept > MIB as u64, "{kept} bytes were kept");

    let (counted, moved, _) = counting();
    let network = BreakingNetwork::start(server.address, Direction::ToClient, 5 * MIB, 1).await;
    pull(&reference(network.address, "big:v1"), &target, &counted).await.unwrap();
    assert!(target.read_blob(&blob, u64::MAX).unwrap() == files[0]);
    let moved = moved.load(Ordering::SeqCst);
    assert!(moved < 16 * MIB as u64, "{moved} bytes were fetched though {kept} were there");
    assert!(!partial.exists());
}

#[tokio::test]
async fn a_partial_file_with_wrong_bytes_is_fetched_anew() {
    let root = tempfile::tempdir().unwrap();
    let server = Running::start(&root.path().join("data")).await;
    let source = layout(&root, "source");
    let files = [noise(2 * MIB, 6)];
    let digest = artifact(&source, &[&files]);
    push(&source, &digest, &server.reference("a:v1"), &options()).await.unwrap();
    let target = layout(&root, "target");
    let blob = symseal_bundle::Digest::of(&files[0]);
    let ingest = target.root().join("ingest");
    for wrong in [noise(MIB, 7), noise(2 * MIB, 8), noise(3 * MIB, 9)] {
        std::fs::write(ingest.join(format!("{}.partial", blob.hex())), wrong).unwrap();
        pull(&server.reference("a:v1"), &target, &options()).await.unwrap();
        assert!(target.read_blob(&blob, u64::MAX).unwrap() == files[0]);
        std::fs::remove_file(target.blob_path(&blob)).unwrap();
    }
}

#[tokio::test]
async fn pushes_of_the_same_and_of_other_bytes_at_once_all_arrive() {
    let root = tempfile::tempdir().unwrap();
    let server = Running::start(&root.path().join("data")).await;
    let shared = noise(2 * MIB, 10);
    let pushes = (0..8_u64).map(|number| {
        let source = layout(&root, &format!("source-{number}"));
        let digest = artifact(&source, &[&[shared.clone(), noise(1000, 100 + number / 2)]]);
        let reference = server.reference(&format!("app:v{number}"));
        tokio::spawn(async move {
            push(&source, &digest, &reference, &options()).await.unwrap();
            (reference, digest)
        })
    });
    for (number, pushed) in pushes.collect::<Vec<_>>().into_iter().enumerate() {
        let (reference, digest) = pushed.await.unwrap();
        let target = layout(&root, &format!("target-{number}"));
        assert_eq!(pull(&reference, &target, &options()).await.unwrap().digest, digest);
    }
}

#[tokio::test]
async fn a_damaged_blob_in_the_layout_is_named_and_not_published() {
    let root = tempfile::tempdir().unwrap();
    let server = Running::start(&root.path().join("data")).await;
    let source = layout(&root, "source");
    let file = noise(5000, 11);
    let digest = artifact(&source, &[std::slice::from_ref(&file)]);
    let path = source.blob_path(&symseal_bundle::Digest::of(&file));
    let mut damaged = file.clone();
    damaged[17] ^= 1;
    std::fs::write(&path, damaged).unwrap();
    let error = push(&source, &digest, &server.reference("a:v1"), &options()).await.unwrap_err().to_string();
    assert!(error.contains(&path.display().to_string()), "{error}");
    let error = pull(&server.reference("a:v1"), &layout(&root, "target"), &options()).await.unwrap_err();
    assert!(matches!(error, RegistryError::NotFound { what: "manifest", .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_quickly() {
    let root = tempfile::tempdir().unwrap();
    let started = std::time::Instant::now();
    // Nobody listens on the port of a listener that is gone.
    let address = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let error = pull(&reference(address, "a:v1"), &layout(&root, "target"), &options()).await.unwrap_err().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("is the registry running"), "{error}");
    assert!(started.elapsed() < std::time::Duration::from_secs(5));
}

#[tokio::test]
async fn a_reference_with_another_digest_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let source = layout(&root, "source");
    let digest = artifact(&source, &[&[noise(10, 12)]]);
    let other = symseal_bundle::Digest::of(b"other");
    let reference = symseal_registry::Reference::parse(&format!("127.0.0.1:1/a@{other}")).unwrap();
    let error = push(&source, &digest, &reference, &options()).await.unwrap_err();
    assert!(matches!(error, RegistryError::Manifest { .. }), "{error}");
}
