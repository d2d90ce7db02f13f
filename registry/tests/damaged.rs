//! A layout in which bytes went wrong is made right by pulling again.

use std::sync::{Arc, Mutex};

use crate::front::{Front, Manners};
use crate::support::{artifact, layout, reference, serve};
use symseal_bundle::Digest;
use symseal_registry::{Options, Progress, pull, push};

#[tokio::test]
async fn a_blob_whose_bytes_went_wrong_is_told_of_and_fetched_again() {
    let root = tempfile::tempdir().unwrap();
    let front = Front::start(serve(&root.path().join("data")).await, Manners::default());
    let source = layout(&root, "source");
    // One that is gathered in memory, one that grows in a file, and one that stays right.
    let files = [vec![1; 3000], vec![2; 2_000_000], vec![3; 500]];
    let digest = artifact(&source, &files, None);
    let place = reference(front.address, "team/app:v1");
    push(&source, &digest, &place, &Options::default()).await.unwrap();
    let target = layout(&root, "target");
    pull(&place, &target, &Options::default()).await.unwrap();

    let blobs: Vec<Digest> = files.iter().map(|bytes| Digest::of(bytes)).collect();
    for blob in &blobs[..2] {
        let path = target.blob_path(blob);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[100] ^= 1;
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    front.take();
    let told: Arc<Mutex<Vec<Digest>>> = Arc::default();
    let heard = told.clone();
    let progress = move |progress: Progress| {
        if let Progress::Damaged { digest } = progress {
            heard.lock().unwrap().push(digest);
        }
    };
    let options = Options { progress: Some(Arc::new(progress)), ..Options::default() };
    let again = pull(&place, &target, &options).await.unwrap();
    assert_eq!((again.blobs_received, again.blobs_existing, again.bytes_received), (2, 2, 2_003_000));
    let mut told = told.lock().unwrap().clone();
    told.sort();
    let mut expected = blobs[..2].to_vec();
    expected.sort();
    assert_eq!(told, expected);
    for (blob, bytes) in blobs.iter().zip(&files) {
        assert!(target.read_blob(blob, u64::MAX).unwrap() == *bytes);
    }
    let moved: u64 = front.take().iter().filter(|seen| seen.is_download()).map(|seen| seen.received).sum();
    assert_eq!(moved, 2_003_000, "what was right did not move");
}
