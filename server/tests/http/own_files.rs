//! What the server keeps for itself is given by no directory that holds it, and its data directory is its owner's.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use crate::support::programs::{has, publish};
use crate::support::upstreams::compile;
use crate::support::{Running, http};
use reqwest::StatusCode;
use symseal_server::Origins;

#[tokio::test]
async fn a_directory_that_holds_the_data_directory_gives_nothing_of_it() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().canonicalize().unwrap();
    std::fs::create_dir(folder.join("all")).unwrap();
    let (all, data) = (folder.join("all"), folder.join("all/data"));
    let (key, free) = (all.join("log.key.pem"), all.join("free.c"));
    for file in [&key, &free] {
        std::fs::write(file, "text").unwrap();
    }
    let origins = Origins {
        source_roots: vec![all.clone()],
        trees: vec![all.clone()],
        tree_interval: Duration::from_millis(200),
        withheld: vec![key.clone()],
        ..Origins::default()
    };
    let server = Running::start_with(&data, &origins).await;
    assert_eq!(std::fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
    let bundle = publish(&server, &folder, "1", &[&compile(&folder, "pushed", "abcdef01", 64)]).await;
    std::fs::copy(compile(&folder, "in-place", "abcdef02", 64), all.join("in-place")).unwrap();
    let status = async |path: &str| http().get(server.url(path)).send().await.unwrap().status();
    for _ in 0..100 {
        if status("/buildid/abcdef02/executable").await == StatusCode::OK {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(status("/buildid/abcdef02/executable").await, StatusCode::OK, "the rest of the directory is served");
    let source = async |path: &Path| status(&format!("/buildid/abcdef01/source{}", path.display())).await;
    assert_eq!(source(&free).await, StatusCode::OK);
    std::os::unix::fs::symlink("data/symseal.sqlite", all.join("link")).unwrap();
    for path in [key, all.join("link"), data.join("symseal.sqlite"), data.join("lock")] {
        assert!(path.exists(), "{}", path.display());
        assert_eq!(source(&path).await, StatusCode::NOT_FOUND, "{}", path.display());
    }
    // What was pushed is in blobs below the directory, and goes with its bundle.
    assert_eq!(status("/buildid/abcdef01/executable").await, StatusCode::OK);
    let gone = http().delete(server.url(&format!("/v2/app/manifests/{bundle}"))).send().await.unwrap();
    assert_eq!(gone.status(), StatusCode::ACCEPTED);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(status("/buildid/abcdef01/executable").await, StatusCode::NOT_FOUND);
    server.stop().await;
}

#[tokio::test]
async fn a_page_of_another_site_writes_nothing_and_reads_nothing_under_a_name_of_its_own() {
    let root = tempfile::tempdir().unwrap();
    let server = Running::start(&root.path().join("data")).await;
    let upload = server.url(&format!("/v2/a/b/blobs/uploads/?digest={}", symseal_bundle::Digest::of(b"page")));
    let write = |headers: &[(&'static str, &'static str)]| {
        let mut request = http().post(&upload).body("page");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        async move { request.send().await.unwrap().status() }
    };
    assert_eq!(
        write(&[("origin", "http://evil.example"), ("content-type", "text/plain")]).await,
        StatusCode::FORBIDDEN
    );
    assert_eq!(write(&[("sec-fetch-site", "cross-site")]).await, StatusCode::FORBIDDEN);
    let read = async |host: &'static str| {
        http().get(server.url("/v2/_catalog")).header("host", host).send().await.unwrap().status()
    };
    assert_eq!(read("evil.example:8790").await, StatusCode::MISDIRECTED_REQUEST);
    assert_eq!(read("localhost:8790").await, StatusCode::OK);
    assert_eq!(write(&[("sec-fetch-site", "none")]).await, StatusCode::CREATED);
    server.stop().await;
}
