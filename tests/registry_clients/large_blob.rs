//! A blob of 2 GiB goes in and comes out while the server's memory stays where it was.
#![cfg(target_os = "linux")]

use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};

use crate::program::RunningServer;

const SIZE: u64 = 2 << 30;

/// Bytes that a client sends at once.
const BLOCK: usize = 1 << 20;

/// The most that the server may take, in bytes, whatever the size of what passes through it.
const MEMORY_LIMIT: u64 = 64 << 20;

fn zeros() -> impl futures_util::Stream<Item = std::io::Result<bytes::Bytes>> {
    let block = bytes::Bytes::from(vec![0; BLOCK]);
    futures_util::stream::iter((0..SIZE / BLOCK as u64).map(move |_| Ok(block.clone())))
}

#[test]
fn a_blob_of_two_gib_is_pushed_and_pulled_in_bounded_memory() {
    let root = tempfile::tempdir().unwrap();
    let server = RunningServer::start(&root.path().join("data"));
    let url = |path: &str| format!("http://{}{path}", server.address);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut hasher = Sha256::new();
    let block = vec![0; BLOCK];
    (0..SIZE / BLOCK as u64).for_each(|_| hasher.update(&block));
    let digest = symseal_bundle::Digest::from_bytes(hasher.finalize().into());
    let started = std::time::Instant::now();
    runtime.block_on(async {
        let http = reqwest::Client::new();
        let session = http.post(url("/v2/large/blobs/uploads/")).send().await.unwrap();
        let at = session.headers()["location"].to_str().unwrap().to_owned();
        let put = http.put(url(&format!("{at}?digest={digest}"))).body(reqwest::Body::wrap_stream(zeros()));
        assert_eq!(put.send().await.unwrap().status(), 201);
        println!("pushed after {:?}, {} bytes of memory", started.elapsed(), server.peak_memory());

        let blob = http.get(url(&format!("/v2/large/blobs/{digest}"))).send().await.unwrap();
        assert_eq!(blob.headers()["content-length"], SIZE.to_string().as_str());
        let (mut body, mut pulled) = (blob.bytes_stream(), 0);
        while let Some(chunk) = body.next().await {
            let chunk = chunk.unwrap();
            assert!(chunk.iter().all(|byte| *byte == 0));
            pulled += chunk.len() as u64;
        }
        assert_eq!(pulled, SIZE);
    });
    let peak = server.peak_memory();
    println!("pulled after {:?}, {peak} bytes of memory", started.elapsed());
    assert!(peak < MEMORY_LIMIT, "{peak} bytes of {MEMORY_LIMIT}");
}
