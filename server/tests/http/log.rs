//! The server's log over HTTP: what is taken, what is refused, and what readers get.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on says so"
)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use symseal_seal::encoding::{sha256, to_base64};
use symseal_seal::tiles::{TILE_WIDTH, parse_entries, parse_hashes};
use symseal_seal::tlog::{leaf_hash, verify_inclusion};
use symseal_seal::{LogEntry, LogIdentity, SignedCheckpoint, UtcSeconds};
use symseal_sealer::{ArtifactKey, LogKey, TileLog};
use symseal_server::tokens::{Grant, NewToken, Tokens};
use symseal_server::{Config, LOG_FOLDER, LogConfig, Server};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server with a log, a registered artifact key and a token for it.
struct Scene {
    folder: tempfile::TempDir,
    identity: LogIdentity,
    log_key: LogKey,
    key: ArtifactKey,
    token: String,
    token_id: String,
}

struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Scene {
    async fn new() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let (log_key, key) = (LogKey::generate().unwrap(), ArtifactKey::generate().unwrap());
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let (directory, seen) = (data.join(LOG_FOLDER), folder.path().join("seen"));
        let log = TileLog::create(&directory, "log.example".parse().unwrap(), log_key.clone(), &seen).unwrap();
        let identity = log.identity().clone();
        drop(log);
        let mut scene = Self { folder, identity, log_key, key, token: String::new(), token_id: String::new() };
        (scene.token, scene.token_id) = scene.token_until(None).await;
        scene
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    async fn tokens(&self) -> Tokens {
        Tokens::open(&self.data(), None).await.unwrap()
    }

    async fn token_until(&self, expires: Option<UtcSeconds>) -> (String, String) {
        let keys = vec![self.key.public().key_id()];
        let new =
            NewToken { name: "test".into(), created: UtcSeconds(0), expires, grants: vec![Grant::WriteLog], keys };
        let (secret, token) = self.tokens().await.create(new).await.unwrap();
        (secret.expose().to_owned(), token.id)
    }

    fn open_log(&self) -> TileLog {
        let seen = self.folder.path().join("seen");
        TileLog::open_within(&self.data().join(LOG_FOLDER), self.log_key.clone(), &seen, Duration::from_secs(10))
            .unwrap()
    }

    async fn serve(&self) -> Running {
        let config = Config::new(self.data(), ([127, 0, 0, 1], 0).into());
        let log = LogConfig { key: self.log_key.clone(), last_seen: self.folder.path().join("seen") };
        let server = Server::bind_with_log(config, Some(log)).await.unwrap();
        let address = server.local_addr();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move { server.run(async { drop(stopped.await) }).await.unwrap() });
        Running { address, stop, task }
    }

    fn request(&self, n: u64) -> Value {
        request(&self.key, &n.to_le_bytes())
    }

    /// The entry of an answer, verified down to the log's key.
    fn verified(&self, answer: &[u8]) -> LogEntry {
        let entry = LogEntry::parse(answer).unwrap();
        let signed = SignedCheckpoint::parse(&entry.checkpoint).unwrap();
        signed.verify(&self.identity).unwrap();
        let leaf = leaf_hash(&entry.canonicalized_body);
        let (size, root) = (signed.checkpoint.size, signed.checkpoint.root);
        verify_inclusion(&leaf, entry.log_index, size, &entry.hashes, &root).unwrap();
        assert_eq!((entry.log_id, entry.proof_size), (self.identity.id(), size));
        entry
    }
}

fn request(key: &ArtifactKey, message: &[u8]) -> Value {
    json!({"hashedRekordRequestV002": {
        "digest": to_base64(&sha256(message)),
        "signature": {
            "content": to_base64(&key.sign(message)),
            "verifier": {
                "publicKey": {"rawBytes": to_base64(key.public().spki())},
                "keyDetails": "PKIX_ECDSA_P256_SHA_256",
            },
        },
    }})
}

/// Status, `x-log-index`, body.
type Answer = (u16, Option<String>, Vec<u8>);

impl Running {
    async fn post(&self, token: Option<&str>, body: impl Into<reqwest::Body>) -> Answer {
        let client = reqwest::Client::new();
        let mut request = client.post(format!("http://{}/api/v2/log/entries", self.address)).body(body);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let answer = request.send().await.unwrap();
        let index = answer.headers().get("x-log-index").map(|value| value.to_str().unwrap().to_owned());
        (answer.status().as_u16(), index, answer.bytes().await.unwrap().to_vec())
    }

    async fn get(&self, path: &str) -> (u16, String, Vec<u8>) {
        let answer = reqwest::get(format!("http://{}{path}", self.address)).await.unwrap();
        let cache = answer.headers().get("cache-control").map(|value| value.to_str().unwrap().to_owned());
        (answer.status().as_u16(), cache.unwrap_or_default(), answer.bytes().await.unwrap().to_vec())
    }

    async fn size(&self) -> u64 {
        let (status, cache, body) = self.get("/checkpoint").await;
        assert_eq!((status, cache.as_str()), (200, "no-cache"));
        SignedCheckpoint::parse(std::str::from_utf8(&body).unwrap()).unwrap().checkpoint.size
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }
}

fn message(answer: &Answer) -> String {
    let value: Value = serde_json::from_slice(&answer.2).unwrap();
    assert!(value["code"].is_number() && value["details"] == json!([]), "{value}");
    value["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_entry_is_logged_with_its_proof_and_a_second_time_answered_with_its_index() {
    let scene = Scene::new().await;
    let server = scene.serve().await;
    for n in 0..3 {
        let (status, _, body) = server.post(Some(&scene.token), scene.request(n).to_string()).await;
        assert_eq!(status, 201, "{}", String::from_utf8_lossy(&body));
        assert_eq!(scene.verified(&body).log_index, n);
    }
    // The very bytes again: a signature made anew would be another entry.
    let again = scene.request(10).to_string();
    assert_eq!(server.post(Some(&scene.token), again.clone()).await.0, 201);
    let answer = server.post(Some(&scene.token), again).await;
    assert_eq!((answer.0, answer.1.as_deref()), (409, Some("3")));
    assert!(message(&answer).contains("index 3"));
    assert_eq!(server.size().await, 4);
    server.stop().await;
    scene.open_log().check_entries().unwrap();
}

#[tokio::test]
async fn what_may_not_be_logged_is_refused_and_nothing_is_logged() {
    let scene = Scene::new().await;
    let server = scene.serve().await;
    let good = scene.request(0);
    let text = good.to_string();
    let (expired, _) = scene.token_until(Some(UtcSeconds(1))).await;
    let (revoked, revoked_id) = scene.token_until(None).await;
    assert!(scene.tokens().await.revoke(&revoked_id, UtcSeconds(1)).await.unwrap());
    let unknown = format!("symseal_{}", "0".repeat(64));
    for token in [None, Some(expired.as_str()), Some(&revoked), Some(&unknown), Some("x"), Some("")] {
        let answer = server.post(token, text.clone()).await;
        assert_eq!(answer.0, 401, "{token:?}");
        assert!(message(&answer).contains("symseal token create"), "{}", message(&answer));
    }

    let post = async |body: String| server.post(Some(&scene.token), body).await;
    let foreign = post(request(&ArtifactKey::generate().unwrap(), b"x").to_string()).await;
    assert_eq!(foreign.0, 403);
    assert!(message(&foreign).contains(&scene.key.public().key_id().to_string()));

    let mut other_digest = good.clone();
    other_digest["hashedRekordRequestV002"]["digest"] = to_base64(&[7; 32]).into();
    let answer = post(other_digest.to_string()).await;
    assert_eq!(answer.0, 400);
    assert!(message(&answer).contains("signature"), "{}", message(&answer));

    let mut ed25519 = good.clone();
    ed25519["hashedRekordRequestV002"]["signature"]["verifier"]["keyDetails"] = "PKIX_ED25519".into();
    let answer = post(ed25519.to_string()).await;
    assert_eq!(answer.0, 400);
    assert!(message(&answer).contains("ECDSA P-256"), "{}", message(&answer));

    for malformed in ["", "{}", "[]", "\u{0}", "{\"dsseRequestV002\":{}}", &text[..text.len() - 1]] {
        assert_eq!(post(malformed.to_owned()).await.0, 400, "{malformed}");
    }
    let answer = post(" ".repeat(20_000)).await;
    assert_eq!(answer.0, 413);
    assert!(message(&answer).contains("at most 16384 bytes"));

    assert_eq!(server.size().await, 0);
    // The token itself is good, until it is revoked.
    assert_eq!(post(text).await.0, 201);
    assert!(scene.tokens().await.revoke(&scene.token_id, UtcSeconds(1)).await.unwrap());
    assert_eq!(post(scene.request(1).to_string()).await.0, 401);
    assert_eq!(server.size().await, 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_at_the_same_time_share_their_rounds() {
    const COUNT: usize = 50;
    let scene = Scene::new().await;
    let server = scene.serve().await;
    let posts = (0..COUNT as u64).map(|n| server.post(Some(&scene.token), scene.request(n).to_string()));
    let answers = futures_util::future::join_all(posts).await;
    let mut indices: Vec<u64> = answers
        .iter()
        .map(|(status, _, body)| {
            assert_eq!(*status, 201, "{}", String::from_utf8_lossy(body));
            scene.verified(body).log_index
        })
        .collect();
    indices.sort_unstable();
    assert_eq!(indices, (0..COUNT as u64).collect::<Vec<_>>());
    let metrics = String::from_utf8(server.get("/metrics").await.2).unwrap();
    let count = |name: &str| -> usize {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(count("symseal_log_entries_total"), COUNT);
    let rounds = count("symseal_log_rounds_total");
    println!("{COUNT} requests at once took {rounds} rounds");
    // How many depends on how fast the disk is; on none does each request take a round of its own.
    assert!(rounds < COUNT, "{rounds}");
    server.stop().await;
}

#[tokio::test]
async fn readers_get_what_the_checkpoint_covers_and_partial_tiles_for_good() {
    let scene = Scene::new().await;
    let mut log = scene.open_log();
    let entries: Vec<Vec<u8>> = (0..300_u32).map(|n| format!("entry {n}").into_bytes()).collect();
    log.append_batch(&entries.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
    drop(log);
    // What an append that broke off would leave.
    let stray = scene.data().join("log/tile/0/001.p/45");
    std::fs::write(stray, [0; 45 * 32]).unwrap();
    let server = scene.serve().await;
    assert_eq!(server.size().await, 300);
    for prefix in ["", "/api/v2"] {
        assert_eq!(server.get(&format!("{prefix}/checkpoint")).await.0, 200);
        for (name, width) in [("000", TILE_WIDTH), ("000.p/7", 7), ("001.p/44", 44), ("001.p/3", 3)] {
            let (status, cache, tile) = server.get(&format!("{prefix}/tile/0/{name}")).await;
            assert_eq!(status, 200, "{name}");
            assert!(cache.contains("immutable"), "{cache}");
            let hashes = parse_hashes(&tile, width).unwrap();
            let (status, _, bundle) = server.get(&format!("{prefix}/tile/entries/{name}")).await;
            assert_eq!(status, 200, "{name}");
            let bundle = parse_entries(&bundle, width).unwrap();
            assert!(bundle.iter().zip(&hashes).all(|(entry, hash)| leaf_hash(entry) == *hash));
        }
        for missing in
            ["tile/0/001", "tile/0/001.p/45", "tile/0/002", "tile/3/000", "tile/0/0", "tile/entries/../x", "tile/"]
        {
            assert_eq!(server.get(&format!("{prefix}/{missing}")).await.0, 404, "{missing}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn while_another_process_holds_the_lease_entries_are_refused_and_reads_answered() {
    let scene = Scene::new().await;
    let other = scene.open_log();
    let server = scene.serve().await;
    let body = scene.request(0).to_string();
    let answer = server.post(Some(&scene.token), body.clone()).await;
    assert_eq!(answer.0, 503);
    assert!(message(&answer).contains("another process"), "{}", message(&answer));
    assert_eq!(server.size().await, 0);
    drop(other);
    assert_eq!(server.post(Some(&scene.token), body).await.0, 201);
    server.stop().await;
}

#[tokio::test]
async fn a_log_put_back_from_a_backup_takes_no_entries() {
    let scene = Scene::new().await;
    let copy = scene.folder.path().join("copy");
    let log = scene.data().join(LOG_FOLDER);
    copy_folder(&log, &copy);
    scene.open_log().append(b"newer").unwrap();
    std::fs::remove_dir_all(&log).unwrap();
    copy_folder(&copy, &log);
    let server = scene.serve().await;
    let answer = server.post(Some(&scene.token), scene.request(0).to_string()).await;
    assert_eq!(answer.0, 500);
    assert!(message(&answer).contains("cannot be written to"), "{}", message(&answer));
    assert_eq!(server.size().await, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_server_without_a_log_says_so() {
    let scene = Scene::new().await;
    let config = Config::new(scene.data(), ([127, 0, 0, 1], 0).into());
    let server = Server::bind(config).await.unwrap();
    let address = server.local_addr();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move { server.run(async { drop(stopped.await) }).await.unwrap() });
    let server = Running { address, stop, task };
    assert_eq!(server.get("/checkpoint").await.0, 404);
    let answer = server.post(Some(&scene.token), scene.request(0).to_string()).await;
    assert_eq!(answer.0, 404);
    assert!(message(&answer).contains("--log"));
    server.stop().await;
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_dir() {
            copy_folder(&file.path(), &to.join(file.file_name()));
        } else {
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}
