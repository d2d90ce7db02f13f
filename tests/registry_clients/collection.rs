//! A server that collects all the time is killed at random moments: nothing that has a name is lost, and what has none goes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use symseal_bundle::Digest;

use crate::program::{RunningServer, symseal};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const ROUNDS: u64 = 8;

/// Longer than a push of this test takes on a machine that is not busy.
const GRACE: Duration = Duration::from_millis(400);

async fn push_blob(http: &reqwest::Client, base: &str, bytes: &[u8]) -> Option<Digest> {
    let digest = Digest::of(bytes);
    let url = format!("{base}/v2/r/blobs/uploads/?digest={digest}");
    let answer = http.post(url).body(bytes.to_vec()).send().await.ok()?;
    (answer.status() == 201).then_some(digest)
}

/// Pushes manifests with a blob of their own and a shared one, and deletes every second, until the server is gone; the
/// numbers of those that were acknowledged and not deleted.
async fn work(base: String, round: u64) -> Vec<u64> {
    let http = reqwest::Client::new();
    let mut acknowledged = Vec::new();
    for number in round * 100_000.. {
        let started = std::time::Instant::now();
        let own = format!("blob {number}");
        let mut layers = Vec::new();
        for bytes in [own.as_bytes(), b"shared"] {
            let Some(digest) = push_blob(&http, &base, bytes).await else { return acknowledged };
            layers.push(json!({"mediaType": "a/b", "digest": digest.to_string(), "size": bytes.len()}));
        }
        let text =
            json!({"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": "a/b", "layers": layers}).to_string();
        let put =
            http.put(format!("{base}/v2/r/manifests/t{number}")).header("content-type", MANIFEST).body(text.clone());
        let Ok(answer) = put.send().await else { return acknowledged };
        if answer.status() == 404 && started.elapsed() >= GRACE {
            continue;
        }
        assert_eq!(answer.status(), 201);
        if number % 2 == 0 {
            acknowledged.push(number);
            continue;
        }
        let url = format!("{base}/v2/r/manifests/{}", Digest::of(text.as_bytes()));
        if http.delete(url).send().await.is_err() {
            return acknowledged;
        }
    }
    acknowledged
}

/// Every manifest that the server shows has its blobs; the numbers of those.
async fn whole(base: &str) -> Vec<u64> {
    let http = reqwest::Client::new();
    let get = async |path: String| {
        let answer = http.get(format!("{base}/v2/r/{path}")).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer.bytes().await.unwrap()
    };
    let tags: Value = serde_json::from_slice(&get("tags/list".into()).await).unwrap();
    let mut numbers = Vec::new();
    for tag in tags["tags"].as_array().unwrap() {
        let tag = tag.as_str().unwrap();
        let manifest: Value = serde_json::from_slice(&get(format!("manifests/{tag}")).await).unwrap();
        for layer in manifest["layers"].as_array().unwrap() {
            let digest = layer["digest"].as_str().unwrap();
            assert_eq!(Digest::of(&get(format!("blobs/{digest}")).await).to_string(), digest);
        }
        numbers.push(tag[1..].parse().unwrap());
    }
    numbers
}

/// Every file in a folder and those in it.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

fn blobs(data: &Path) -> usize {
    let shards = std::fs::read_dir(data.join("blobs/sha256")).unwrap();
    shards.map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap().count()).sum()
}

#[test]
fn a_server_that_is_killed_while_it_collects_loses_nothing_that_has_a_name() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let grace = format!("{}ms", GRACE.as_millis());
    let mut acknowledged = Vec::new();
    for round in 0..ROUNDS {
        let server = RunningServer::start_with(&data, &["--gc-interval", "1ms", "--gc-grace", &grace]);
        let working = runtime.spawn(work(format!("http://{}", server.address), round));
        std::thread::sleep(Duration::from_millis(450 + 137 * round % 400));
        // Killed: no signal that it could see.
        drop(server);
        acknowledged.extend(runtime.block_on(working).unwrap());
        let server = RunningServer::start_with(&data, &["--gc-interval", "0s"]);
        let found = runtime.block_on(whole(&format!("http://{}", server.address)));
        let lost: Vec<_> = acknowledged.iter().filter(|number| !found.contains(number)).collect();
        assert!(lost.is_empty(), "round {round}: {lost:?} were acknowledged and are gone");
        let refused = symseal(["store", "gc", "--data", data.to_str().unwrap()]);
        refused.refused(2, &["a server uses this data directory"]);
    }
    std::thread::sleep(Duration::from_millis(20));
    let report = symseal(["store", "gc", "--data", data.to_str().unwrap(), "--grace", "0s", "--json"]).ok().json();
    let server = RunningServer::start_with(&data, &["--gc-interval", "0s"]);
    let found = runtime.block_on(whole(&format!("http://{}", server.address)));
    println!("{} acknowledged, {} there; in the end {report}", acknowledged.len(), found.len());
    assert!(acknowledged.len() > 8, "{} manifests", acknowledged.len());
    // Each has its bytes and a blob of its own; one more is shared. Nothing else is left.
    let untagged = std::fs::read_dir(data.join("repositories/r/_manifests/sha256")).unwrap();
    let manifests = untagged.filter(|file| file.as_ref().unwrap().file_name().len() == 64).count();
    assert_eq!(blobs(&data), 2 * manifests + 1);
}

/// Who runs rounds by a schedule of his own has said in the server's file how long things stay.
#[test]
fn a_round_by_hand_keeps_to_the_grace_period_of_the_configuration() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let server = RunningServer::start_with(&data, &["--gc-interval", "0s"]);
    let bytes = b"of a push under way";
    let url = format!("http://{}/v2/r/blobs/uploads/?digest={}", server.address, Digest::of(bytes));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let pushed = runtime.block_on(reqwest::Client::new().post(&url).body(bytes.to_vec()).send()).unwrap();
    assert_eq!(pushed.status(), 201);
    drop(server);
    let two_days_ago = std::time::SystemTime::now() - Duration::from_secs(2 * 86_400);
    for file in files_below(&data) {
        std::fs::File::open(&file).unwrap().set_modified(two_days_ago).unwrap();
    }
    let config = root.path().join("server.toml");
    let round = |grace: &str, more: &[&str]| {
        std::fs::write(&config, format!("data = {:?}\n[gc]\n{grace}\n", data.display().to_string())).unwrap();
        let first = ["store", "gc", "--config", config.to_str().unwrap(), "--json"];
        symseal(first.iter().chain(more)).ok().json()["blobs"].as_u64().unwrap()
    };
    assert_eq!(round("grace = \"365d\"", &[]), 0, "the file's");
    assert_eq!(round("grace = \"1s\"", &["--grace", "365d"]), 0, "options go before the file");
    assert_eq!(round("", &["--grace", "3d"]), 0, "options alone");
    assert_eq!(round("", &[]), 1, "a day, where nothing is said");
}
