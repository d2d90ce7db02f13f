//! What was taken down: nobody is given it, nobody may push it, and it comes back while its bytes are here.

use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};
use symseal_bundle::{Digest, LayoutDir, oci};
use symseal_server::{Collected, Config, Note, Tombstones};

use crate::support::programs::{has, publish, run};
use crate::support::{Running, http, options};

fn config(root: &Path) -> Config {
    Config::new(root.join("data"), ([127, 0, 0, 1], 0).into())
}

fn note() -> Note {
    let at = symseal_seal::UtcSeconds(
        i64::try_from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()).unwrap(),
    );
    Note { at: at.to_string(), reason: "a name that must not be known".into(), by: "a test".into() }
}

/// A program whose build-id ends so.
fn program(root: &Path, number: u8) -> std::path::PathBuf {
    let (source, binary) = (root.join(format!("app{number}.c")), root.join(format!("app{number}")));
    std::fs::write(&source, format!("int main(void) {{ return {number}; }}\n")).unwrap();
    let id = format!("-Wl,--build-id=0xabcdef{number:02x}");
    run("cc", &["-g", source.to_str().unwrap(), "-o", binary.to_str().unwrap(), &id]);
    binary
}

async fn status(server: &Running, path: &str) -> StatusCode {
    http().get(server.url(path)).send().await.unwrap().status()
}

/// Waits until a path answers so.
async fn becomes(server: &Running, path: &str, expected: StatusCode) {
    let started = Instant::now();
    while status(server, path).await != expected {
        assert!(started.elapsed() < Duration::from_secs(10), "{path} is not {expected}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn json_of(server: &Running, path: &str) -> Value {
    http().get(server.url(path)).send().await.unwrap().json().await.unwrap()
}

/// What every client gets of the first release: by tag, by digest, by id, by name.
async fn statuses(server: &Running, digest: &Digest, blob: &Digest) -> Vec<(String, StatusCode)> {
    let mut found = Vec::new();
    for path in [
        format!("/v2/app/manifests/{digest}"),
        "/v2/app/manifests/1".to_owned(),
        format!("/v2/app/blobs/{blob}"),
        "/buildid/abcdef01/debuginfo".to_owned(),
        "/buildid/abcdef01/executable".to_owned(),
        "/buildid/abcdef01/section/.debug_info".to_owned(),
        "/s/app/buildid/abcdef01/debuginfo".to_owned(),
    ] {
        let status = status(server, &path).await;
        found.push((path, status));
    }
    found
}

async fn push(server: &Running, root: &Path, version: &str) -> Result<(), String> {
    let layout = LayoutDir::open(root.join(format!("layout-{version}"))).unwrap();
    let digest = layout.manifests().unwrap()[0].digest;
    let to = server.reference(&format!("app:{version}"));
    symseal_registry::push(&layout, &digest, &to, &options()).await.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_bundle_that_is_taken_down_is_nowhere_and_comes_back_when_that_is_lifted() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let server = Running::start_as(config(root)).await;
    let (one, two) = (program(root, 1), program(root, 2));
    let first = publish(&server, root, "1", &[&one, &two]).await;
    let second = publish(&server, root, "2", &[&two]).await;
    let blob = Digest::of(&std::fs::read(&one).unwrap());
    let shared = Digest::of(&std::fs::read(&two).unwrap());
    assert!(statuses(&server, &first, &blob).await.iter().all(|(_, status)| *status == StatusCode::OK));

    let tombstones = Tombstones::open(&config(root)).await.unwrap();
    assert!(tombstones.take_down(&first.to_string(), note()).await.unwrap());
    assert!(tombstones.take_down("sha256:no", note()).await.is_err());
    becomes(&server, &format!("/v2/app/manifests/{first}"), StatusCode::NOT_FOUND).await;
    let all_gone = async |server: &Running| {
        for (path, status) in statuses(server, &first, &blob).await {
            assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
        }
        for path in [format!("/bundles/{first}"), format!("/api/v1/bundles/{first}")] {
            let answer = http().get(server.url(&path)).send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::GONE, "{path}");
            assert!(answer.text().await.unwrap().contains("a name that must not be known"), "{path}");
        }
        let listed = json_of(server, "/api/v1/bundles?debug_id=abcdef01").await;
        assert_eq!(listed["bundles"], json!([]));
        assert_eq!(json_of(server, "/metadata?key=buildid&value=abcdef01").await["results"], json!([]));
        let found = json_of(server, "/api/v1/search?q=abcdef01").await;
        assert!(!found.to_string().contains(&first.to_string()), "{found}");
        let resolve = json!({"platform": "linux", "debug_id": "abcdef01", "addresses": ["0x1040"]});
        let named = http().post(server.url("/api/v1/resolve")).json(&resolve).send().await.unwrap();
        assert_eq!(named.json::<Value>().await.unwrap()["frames"][0]["reason"], "not-in-bundle");
        assert!(
            !http()
                .get(server.url("/releases"))
                .send()
                .await
                .unwrap()
                .text()
                .await
                .unwrap()
                .contains(&first.to_string())
        );
        // What the other release has too is its own.
        for path in [
            format!("/v2/app/manifests/{second}"),
            format!("/v2/app/blobs/{shared}"),
            "/buildid/abcdef02/debuginfo".into(),
        ] {
            assert_eq!(crate::takedown::status(server, &path).await, StatusCode::OK, "{path}");
        }
    };
    all_gone(&server).await;
    let refused = http().get(server.url(&format!("/v2/app/manifests/{first}"))).send().await.unwrap();
    assert!(refused.text().await.unwrap().contains("was taken down on"), "the answer names the tombstone");
    // It cannot be pushed again, to whatever repository.
    let problem = push(&server, root, "1").await.unwrap_err();
    assert!(problem.contains("DENIED") && problem.contains("a name that must not be known"), "{problem}");
    let index = LayoutDir::open(root.join("layout-1")).unwrap().read_blob(&first, oci::MAX_MANIFEST_BYTES).unwrap();
    let put = http().put(server.url("/v2/elsewhere/manifests/1")).header("content-type", oci::IMAGE_INDEX).body(index);
    assert_eq!(put.send().await.unwrap().status(), StatusCode::FORBIDDEN);
    server.stop().await;

    // A restart, a rebuild and a copy know it too.
    symseal_server::rebuild(&config(root)).await.unwrap();
    let server = Running::start_as(config(root)).await;
    all_gone(&server).await;
    assert_eq!(tombstones.list().await.unwrap()[&first.to_string()].by, "a test");
    // Nothing that belongs to it is collected within the grace period.
    server.collector.collect(Duration::from_secs(3600)).await.unwrap();
    assert_eq!(tombstones.lift(&first.to_string()).await.unwrap(), Some(true));
    becomes(&server, "/buildid/abcdef01/debuginfo", StatusCode::OK).await;
    for (path, status) in statuses(&server, &first, &blob).await {
        assert_eq!(status, StatusCode::OK, "{path}");
    }
    assert_eq!(json_of(&server, &format!("/api/v1/bundles/{first}")).await["name"], "app");
    assert_eq!(tombstones.lift(&first.to_string()).await.unwrap(), None);

    // After it the bytes go, and lifting lifts the ban alone.
    tombstones.take_down(&first.to_string(), note()).await.unwrap();
    becomes(&server, "/buildid/abcdef01/debuginfo", StatusCode::NOT_FOUND).await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    while server.collector.collect(Duration::ZERO).await.unwrap() != Collected::default() {}
    let hex = blob.hex();
    assert!(!root.join("data/blobs/sha256").join(&hex[..2]).join(&hex).exists());
    assert_eq!(tombstones.lift(&first.to_string()).await.unwrap(), Some(false));
    let started = Instant::now();
    while push(&server, root, "1").await.is_err() {
        assert!(started.elapsed() < Duration::from_secs(10), "it cannot be pushed again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(statuses(&server, &first, &blob).await.iter().all(|(_, status)| *status == StatusCode::OK));
    server.stop().await;
}

#[tokio::test]
async fn a_blob_that_is_taken_down_is_no_file_of_any_bundle() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let server = Running::start_as(config(root)).await;
    let (one, two) = (program(root, 1), program(root, 2));
    let first = publish(&server, root, "1", &[&one, &two]).await;
    let bytes = std::fs::read(&one).unwrap();
    let blob = Digest::of(&bytes);
    // Warm: mapped, and answered from there.
    for _ in 0..3 {
        assert_eq!(status(&server, "/buildid/abcdef01/debuginfo").await, StatusCode::OK);
    }
    let mount = server.url(&format!("/v2/other/blobs/uploads/?mount={blob}&from=app"));
    assert_eq!(http().post(&mount).send().await.unwrap().status(), StatusCode::CREATED);
    let tombstones = Tombstones::open(&config(root)).await.unwrap();
    tombstones.take_down(&blob.to_string(), note()).await.unwrap();
    becomes(&server, "/buildid/abcdef01/debuginfo", StatusCode::NOT_FOUND).await;
    for path in [
        format!("/v2/app/blobs/{blob}"),
        format!("/v2/other/blobs/{blob}"),
        "/buildid/abcdef01/executable".to_owned(),
        "/buildid/abcdef01/section/.debug_info".to_owned(),
    ] {
        assert_eq!(status(&server, &path).await, StatusCode::NOT_FOUND, "{path}");
    }
    // Its bundle stays with its other files.
    for path in [format!("/v2/app/manifests/{first}"), "/buildid/abcdef02/debuginfo".to_owned()] {
        assert_eq!(status(&server, &path).await, StatusCode::OK, "{path}");
    }
    let url = server.url(&format!("/v2/app/blobs/uploads/?digest={blob}"));
    for refused in [http().post(&mount).send().await, http().post(url).body(bytes.clone()).send().await] {
        let refused = refused.unwrap();
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        let body: Value = refused.json().await.unwrap();
        assert_eq!(body["errors"][0]["code"], "DENIED");
        assert!(body["errors"][0]["message"].as_str().unwrap().contains("a name that must not be known"), "{body}");
    }
    let layer = json!({"mediaType": "a/b", "digest": blob.to_string(), "size": bytes.len()});
    let text = json!({"schemaVersion": 2, "mediaType": oci::MANIFEST, "artifactType": "a/b", "layers": [layer]});
    let put =
        http().put(server.url("/v2/app/manifests/x")).header("content-type", oci::MANIFEST).body(text.to_string());
    assert_eq!(put.send().await.unwrap().status(), StatusCode::FORBIDDEN);
    let loose = http().put(server.url("/api/v1/symbols?name=app")).body(bytes.clone()).send().await.unwrap();
    assert_eq!(loose.status(), StatusCode::FORBIDDEN);
    assert_eq!(loose.json::<Value>().await.unwrap()["error"]["code"], "taken-down");
    tombstones.lift(&blob.to_string()).await.unwrap();
    becomes(&server, "/buildid/abcdef01/debuginfo", StatusCode::OK).await;
    assert_eq!(status(&server, &format!("/v2/app/blobs/{blob}")).await, StatusCode::OK);
    let back = http().get(server.url("/buildid/abcdef01/executable")).send().await.unwrap().bytes().await.unwrap();
    assert!(back == bytes);
    server.stop().await;
}
