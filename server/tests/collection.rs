//! What nothing names goes in the end, and what something names, or a client was told of, never.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

#[path = "http/support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use support::{Running, http, noise};
use symseal_bundle::Digest;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const REPOSITORIES: [&str; 3] = ["one", "two/deep", "three"];

/// Longer than a push takes here, and much shorter than the test.
const GRACE: Duration = Duration::from_millis(700);

/// A client of the registry.
#[derive(Clone)]
struct Registry {
    http: Client,
    base: String,
}

impl Registry {
    fn new(server: &Running) -> Self {
        Self { http: http(), base: server.url("/v2") }
    }

    async fn status(&self, method: &str, path: &str) -> StatusCode {
        let request = self.http.request(method.parse().unwrap(), format!("{}/{path}", self.base));
        request.send().await.unwrap().status()
    }

    async fn push_blob(&self, repository: &str, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        let url = format!("{}/{repository}/blobs/uploads/?digest={digest}", self.base);
        assert_eq!(self.http.post(url).body(bytes.to_vec()).send().await.unwrap().status(), StatusCode::CREATED);
        digest
    }

    async fn put(&self, repository: &str, reference: &str, media_type: &str, bytes: &str) -> StatusCode {
        let url = format!("{}/{repository}/manifests/{reference}", self.base);
        let request = self.http.put(url).header(CONTENT_TYPE, media_type).body(bytes.to_owned());
        request.send().await.unwrap().status()
    }

    async fn get(&self, path: &str) -> Option<Vec<u8>> {
        let answer = self.http.get(format!("{}/{path}", self.base)).send().await.unwrap();
        match answer.status() {
            StatusCode::OK => Some(answer.bytes().await.unwrap().to_vec()),
            StatusCode::NOT_FOUND => None,
            other => panic!("{path}: {other}"),
        }
    }

    async fn tags(&self, repository: &str) -> Vec<String> {
        let Some(bytes) = self.get(&format!("{repository}/tags/list")).await else { return Vec::new() };
        let list: Value = serde_json::from_slice(&bytes).unwrap();
        list["tags"].as_array().unwrap().iter().map(|tag| tag.as_str().unwrap().to_owned()).collect()
    }

    /// The first thing that a manifest names, at any depth, and the repository does not give with its digest.
    async fn hole(&self, repository: &str, manifest: &[u8]) -> Option<String> {
        let mut open = vec![manifest.to_vec()];
        while let Some(manifest) = open.pop() {
            let manifest: Value = serde_json::from_slice(&manifest).unwrap();
            let list = |name: &str| manifest[name].as_array().cloned().unwrap_or_default();
            for child in list("manifests") {
                let digest = child["digest"].as_str().unwrap();
                let path = format!("{repository}/manifests/{digest}");
                let Some(bytes) = self.get(&path).await else { return Some(path) };
                open.push(bytes);
            }
            for child in list("layers") {
                let digest = child["digest"].as_str().unwrap();
                let path = format!("{repository}/blobs/{digest}");
                match self.get(&path).await {
                    Some(bytes) if Digest::of(&bytes).to_string() == digest => {}
                    _ => return Some(path),
                }
            }
        }
        None
    }
}

fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": Digest::of(bytes).to_string(), "size": bytes.len()})
}

fn manifest(layers: &[&[u8]]) -> String {
    let layers: Vec<_> = layers.iter().map(|bytes| descriptor("application/octet-stream", bytes)).collect();
    json!({"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": "a/b", "layers": layers}).to_string()
}

fn index(children: &[&str]) -> String {
    let children: Vec<_> = children.iter().map(|child| descriptor(MANIFEST, child.as_bytes())).collect();
    json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": children}).to_string()
}

/// The names of all blobs in a data directory.
fn stored(data: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for shard in std::fs::read_dir(data.join("blobs/sha256")).unwrap() {
        for file in std::fs::read_dir(shard.unwrap().path()).unwrap() {
            found.insert(file.unwrap().file_name().into_string().unwrap());
        }
    }
    found
}

fn hex(bytes: &[u8]) -> String {
    Digest::of(bytes).hex()
}

#[tokio::test]
async fn what_nothing_names_goes_after_its_grace_and_the_rest_stays_also_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let server = Running::start(root.path()).await;
    let registry = Registry::new(&server);
    let kept = manifest(&[b"kept", b"shared"]);
    let (first, second) = (manifest(&[b"shared", b"first"]), manifest(&[b"second"]));
    let both = index(&[&first, &second]);
    for bytes in ["kept", "shared", "first", "second", "never named"] {
        registry.push_blob("r", bytes.as_bytes()).await;
    }
    for (reference, kind, text) in
        [("kept", MANIFEST, &kept), ("first", MANIFEST, &first), ("second", MANIFEST, &second)]
    {
        assert_eq!(registry.put("r", reference, kind, text).await, StatusCode::CREATED);
    }
    assert_eq!(registry.put("r", "both", INDEX, &both).await, StatusCode::CREATED);
    let subject = descriptor(INDEX, both.as_bytes());
    let refer = |text: &str| {
        json!({"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": text, "layers": [], "subject": subject})
            .to_string()
    };
    let (referrer, tagged_referrer) = (refer("a/note"), refer("a/kept"));
    let by_digest = Digest::of(referrer.as_bytes()).to_string();
    assert_eq!(registry.put("r", &by_digest, MANIFEST, &referrer).await, StatusCode::CREATED);
    assert_eq!(registry.put("r", "note", MANIFEST, &tagged_referrer).await, StatusCode::CREATED);
    // An upload under way is nobody's garbage.
    let session = registry.http.post(format!("{}/r/blobs/uploads/", registry.base)).send().await.unwrap();
    let session = session.headers()["location"].to_str().unwrap().to_owned();
    let everything = stored(root.path());
    let long = Duration::from_secs(3600);
    assert_eq!(server.collector.collect(long).await.unwrap(), symseal_server::Collected::default());
    assert_eq!(stored(root.path()), everything);

    // Of the index's manifests one keeps its tag.
    for path in ["r/manifests/second".to_owned(), format!("r/manifests/{}", Digest::of(both.as_bytes()))] {
        assert_eq!(registry.status("DELETE", &path).await, StatusCode::ACCEPTED, "{path}");
    }
    // Told of within the grace period, so it stays.
    let named = format!("r/blobs/{}", Digest::of(b"never named"));
    server.stop().await;
    let server = Running::start(root.path()).await;
    let registry = Registry::new(&server);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(registry.status("HEAD", &named).await, StatusCode::OK);
    let second_path = format!("r/manifests/{}", Digest::of(second.as_bytes()));
    let short = Duration::from_secs(1);
    let collected = server.collector.collect(short).await.unwrap();
    // What the index and its manifest named is here, so a takedown of them may have to find it by their bytes.
    assert_eq!(
        (collected.manifests, collected.blobs),
        (2, 1),
        "its manifest and its referrer, of which one leaves nothing: {collected:?}"
    );
    assert_eq!(registry.status("HEAD", &named).await, StatusCode::OK);
    assert_eq!(registry.status("HEAD", &second_path).await, StatusCode::NOT_FOUND);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    server.collector.collect(short).await.unwrap();
    assert_eq!(registry.status("HEAD", &named).await, StatusCode::NOT_FOUND);
    let expected: BTreeSet<_> =
        [b"kept".as_slice(), b"shared", b"first", kept.as_bytes(), first.as_bytes(), tagged_referrer.as_bytes()]
            .map(hex)
            .into();
    assert_eq!(stored(root.path()), expected);
    assert_eq!(registry.http.get(server.url(&session)).send().await.unwrap().status(), StatusCode::NO_CONTENT);
    server.stop().await;

    let server = Running::start(root.path()).await;
    let registry = Registry::new(&server);
    for text in [&kept, &first] {
        assert_eq!(registry.hole("r", text.as_bytes()).await, None);
    }
    // A damaged manifest may name anything: nothing of its repository goes.
    server.stop().await;
    let damaged = hex(first.as_bytes());
    std::fs::write(root.path().join("blobs/sha256").join(&damaged[..2]).join(&damaged), "{").unwrap();
    let collected = symseal_server::collect_stopped(root.path(), Duration::ZERO).await.unwrap();
    assert_eq!((collected.unlinked, collected.blobs), (0, 0));
    assert_eq!(stored(root.path()), expected);
}

#[tokio::test]
async fn a_server_that_runs_keeps_its_directory_from_the_collector_of_stopped_ones() {
    let root = tempfile::tempdir().unwrap();
    let server = Running::start(root.path()).await;
    let refused = symseal_server::collect_stopped(root.path(), Duration::ZERO).await.unwrap_err();
    assert!(matches!(refused, symseal_server::ServerError::Locked { .. }), "{refused}");
    server.stop().await;
    symseal_server::collect_stopped(root.path(), Duration::ZERO).await.unwrap();
}

/// Numbers that are the same in each run, for one task.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides
    }
}

#[derive(Default)]
struct Seen {
    ended: AtomicBool,
    pushed: AtomicU64,
    /// Pushes that took longer than the grace period and were told so.
    too_slow: AtomicU64,
    pulled: AtomicU64,
    deleted: AtomicU64,
    collected: AtomicU64,
}

/// Pushes blobs of a small stock, as clients do: asks first, mounts or sends, then the manifest.
async fn push_on(registry: Registry, stock: Arc<Vec<Vec<u8>>>, seed: u64, seen: Arc<Seen>) {
    let mut dice = Dice(seed);
    while !seen.ended.load(Ordering::SeqCst) {
        let repository = REPOSITORIES[dice.roll(3)];
        let started = Instant::now();
        let push = async |dice: &mut Dice| {
            let layers: Vec<&[u8]> = (0..=dice.roll(3)).map(|_| stock[dice.roll(stock.len())].as_slice()).collect();
            for layer in &layers {
                let path = format!("{repository}/blobs/{}", Digest::of(layer));
                if registry.status("HEAD", &path).await == StatusCode::OK {
                    continue;
                }
                let from = REPOSITORIES[dice.roll(3)];
                let mount = format!("{repository}/blobs/uploads/?mount={}&from={from}", Digest::of(layer));
                if registry.status("POST", &mount).await != StatusCode::CREATED {
                    registry.push_blob(repository, layer).await;
                }
            }
            manifest(&layers)
        };
        let tag = format!("t{}", dice.roll(6));
        let status = if dice.roll(3) == 0 {
            let children = [push(&mut dice).await, push(&mut dice).await].map(|text| text.replace("a/b", "child/type"));
            let mut status = StatusCode::CREATED;
            for child in &children {
                let digest = Digest::of(child.as_bytes()).to_string();
                if status == StatusCode::CREATED
                    && registry.status("HEAD", &format!("{repository}/manifests/{digest}")).await != StatusCode::OK
                {
                    status = registry.put(repository, &digest, MANIFEST, child).await;
                }
            }
            if status == StatusCode::CREATED {
                status = registry.put(repository, &tag, INDEX, &index(&[&children[0], &children[1]])).await;
            }
            status
        } else {
            let text = push(&mut dice).await;
            registry.put(repository, &tag, MANIFEST, &text).await
        };
        let took = started.elapsed();
        match status {
            StatusCode::CREATED => seen.pushed.fetch_add(1, Ordering::SeqCst),
            StatusCode::NOT_FOUND if took >= GRACE => seen.too_slow.fetch_add(1, Ordering::SeqCst),
            // An index's manifest may be deleted by name between the two.
            other => panic!("a push of {took:?} was answered {other}: a client was told of what is not here"),
        };
    }
}

async fn pull_on(registry: Registry, seed: u64, seen: Arc<Seen>) {
    let mut dice = Dice(seed);
    while !seen.ended.load(Ordering::SeqCst) {
        let repository = REPOSITORIES[dice.roll(3)];
        let tags = registry.tags(repository).await;
        if tags.is_empty() {
            continue;
        }
        let tag = &tags[dice.roll(tags.len())];
        let Some(manifest) = registry.get(&format!("{repository}/manifests/{tag}")).await else { continue };
        let by_digest = format!("{repository}/manifests/{}", Digest::of(&manifest));
        // Only one that is deleted at this moment may have a hole.
        let mut holes = Vec::new();
        while let Some(hole) = registry.hole(repository, &manifest).await {
            holes.push(hole);
            if registry.status("HEAD", &by_digest).await == StatusCode::NOT_FOUND {
                break;
            }
            assert!(holes.len() < 4, "{by_digest} is visible without {holes:?}");
        }
        seen.pulled.fetch_add(1, Ordering::SeqCst);
    }
}

async fn delete_on(registry: Registry, seed: u64, seen: Arc<Seen>) {
    let mut dice = Dice(seed);
    while !seen.ended.load(Ordering::SeqCst) {
        let repository = REPOSITORIES[dice.roll(3)];
        let tags = registry.tags(repository).await;
        if !tags.is_empty() {
            let tag = &tags[dice.roll(tags.len())];
            if let Some(manifest) = registry.get(&format!("{repository}/manifests/{tag}")).await {
                // Tags alone leave the manifest; an index or a manifest goes by its digest.
                let reference = if dice.roll(4) == 0 { tag.clone() } else { Digest::of(&manifest).to_string() };
                registry.status("DELETE", &format!("{repository}/manifests/{reference}")).await;
                seen.deleted.fetch_add(1, Ordering::SeqCst);
            }
        }
        tokio::time::sleep(Duration::from_millis(dice.roll(40) as u64)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushers_pullers_and_deleters_never_see_a_hole_while_the_collector_runs_all_the_time() {
    let root = tempfile::tempdir().unwrap();
    let server = Running::start(root.path()).await;
    let registry = Registry::new(&server);
    let stock: Arc<Vec<Vec<u8>>> = Arc::new((0..40).map(|seed| noise(100 + 97 * seed, seed as u64 + 1)).collect());
    let seen = Arc::<Seen>::default();
    let mut tasks = Vec::new();
    for seed in 1..=5 {
        tasks.push(tokio::spawn(push_on(registry.clone(), Arc::clone(&stock), seed * 7919, Arc::clone(&seen))));
    }
    for seed in 1..=2 {
        tasks.push(tokio::spawn(pull_on(registry.clone(), seed * 104_729, Arc::clone(&seen))));
        tasks.push(tokio::spawn(delete_on(registry.clone(), seed * 1_299_709, Arc::clone(&seen))));
    }
    let (collector, counting) = (Arc::clone(&server.collector), Arc::clone(&seen));
    tasks.push(tokio::spawn(async move {
        while !counting.ended.load(Ordering::SeqCst) {
            let collected = collector.collect(GRACE).await.unwrap();
            counting.collected.fetch_add(collected.unlinked + collected.blobs, Ordering::SeqCst);
        }
    }));
    tokio::time::sleep(Duration::from_secs(6)).await;
    seen.ended.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    let count = |number: &AtomicU64| number.load(Ordering::SeqCst);
    println!(
        "{} pushed, {} too slow, {} pulled, {} deleted, {} collected",
        count(&seen.pushed),
        count(&seen.too_slow),
        count(&seen.pulled),
        count(&seen.deleted),
        count(&seen.collected)
    );
    assert!(count(&seen.pushed) > 30 && count(&seen.pulled) > 20 && count(&seen.deleted) > 20);
    assert!(count(&seen.collected) > 0);

    // At rest: every manifest that has a tag is whole, and so it is after a restart.
    server.stop().await;
    let server = Running::start(root.path()).await;
    let registry = Registry::new(&server);
    let mut digests = Vec::new();
    for repository in REPOSITORIES {
        for tag in registry.tags(repository).await {
            let manifest = registry.get(&format!("{repository}/manifests/{tag}")).await.unwrap();
            assert_eq!(registry.hole(repository, &manifest).await, None, "{repository}:{tag}");
        }
        let folder = root.path().join("repositories").join(repository).join("_manifests/sha256");
        for file in std::fs::read_dir(folder).unwrap() {
            digests.push(format!("{repository}/manifests/sha256:{}", file.unwrap().file_name().into_string().unwrap()));
        }
    }
    // Also those without a tag. Then all are deleted, and everything goes.
    for path in &digests {
        let manifest = registry.get(path).await.unwrap();
        let (repository, _) = path.split_once("/manifests/").unwrap();
        assert_eq!(registry.hole(repository, &manifest).await, None, "{path}");
    }
    for _ in 0..2 {
        // An index keeps its manifests until it is deleted itself.
        for path in &digests {
            registry.status("DELETE", path).await;
        }
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    server.collector.collect(Duration::ZERO).await.unwrap();
    server.collector.collect(Duration::ZERO).await.unwrap();
    assert_eq!(stored(root.path()), BTreeSet::new());
}
