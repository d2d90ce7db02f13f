//! What was taken down: nobody is given it, nobody may push it, and it comes back while its bytes are here.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};
use symseal_bundle::{Digest, LayoutDir, oci};
use symseal_server::tokens::{NewToken, Tokens};
use symseal_server::{AccessConfig, Collected, Config, Note, Origins, Tombstones};

use crate::support::programs::{has, publish, run};
use crate::support::{Running, http, options};

pub(crate) fn config(root: &Path) -> Config {
    Config::new(root.join("data"), ([127, 0, 0, 1], 0).into())
}

pub(crate) fn note() -> Note {
    let at = symseal_seal::UtcSeconds(
        i64::try_from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()).unwrap(),
    );
    Note { at: at.to_string(), reason: "a name that must not be known".into(), by: "a test".into() }
}

/// A program whose build-id ends so.
fn program(root: &Path, number: u8) -> PathBuf {
    let (source, binary) = (root.join(format!("app{number}.c")), root.join(format!("app{number}")));
    std::fs::write(&source, format!("int main(void) {{ return {number}; }}\n")).unwrap();
    let id = format!("-Wl,--build-id=0xabcdef{number:02x}");
    run("cc", &["-g", source.to_str().unwrap(), "-o", binary.to_str().unwrap(), &id]);
    binary
}

pub(crate) async fn status(server: &Running, path: &str) -> StatusCode {
    http().get(server.url(path)).send().await.unwrap().status()
}

/// Waits until a path answers so.
pub(crate) async fn becomes(server: &Running, path: &str, expected: StatusCode) {
    let started = Instant::now();
    while status(server, path).await != expected {
        assert!(started.elapsed() < Duration::from_secs(10), "{path} is not {expected}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) async fn json_of(server: &Running, path: &str) -> Value {
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

/// A server with a release of two programs.
pub(crate) struct Scene {
    pub(crate) root: tempfile::TempDir,
    pub(crate) server: Running,
    one: PathBuf,
    two: PathBuf,
    /// The release.
    pub(crate) first: Digest,
    pub(crate) tombstones: Tombstones,
}

impl Scene {
    /// `None` where there is no compiler.
    pub(crate) async fn start() -> Option<Self> {
        if !has("cc") {
            return None;
        }
        let root = tempfile::tempdir().unwrap();
        let server = Running::start_as(config(root.path())).await;
        let (one, two) = (program(root.path(), 1), program(root.path(), 2));
        let first = publish(&server, root.path(), "1", &[&one, &two]).await;
        let tombstones = Tombstones::open(&config(root.path())).await.unwrap();
        Some(Self { root, server, one, two, first, tombstones })
    }
}

async fn push(server: &Running, root: &Path, version: &str) -> Result<(), String> {
    let layout = LayoutDir::open(root.join(format!("layout-{version}"))).unwrap();
    let digest = layout.manifests().unwrap()[0].digest;
    let to = server.reference(&format!("app:{version}"));
    symseal_registry::push(&layout, &digest, &to, &options()).await.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_bundle_that_is_taken_down_is_nowhere_and_comes_back_when_that_is_lifted() {
    let Some(Scene { root, server, one, two, first, tombstones }) = Scene::start().await else { return };
    let root = root.path();
    let second = publish(&server, root, "2", &[&two]).await;
    let blob = Digest::of(&std::fs::read(&one).unwrap());
    let shared = Digest::of(&std::fs::read(&two).unwrap());
    assert!(statuses(&server, &first, &blob).await.iter().all(|(_, status)| *status == StatusCode::OK));

    let done = tombstones.take_down(&first.to_string(), note()).await.unwrap();
    assert_eq!((done.is_here, done.sources), (true, None));
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
    let by_tag = http().get(server.url("/v2/app/manifests/1")).send().await.unwrap();
    assert_eq!(by_tag.status(), StatusCode::NOT_FOUND);
    assert!(by_tag.text().await.unwrap().contains("was taken down on"), "by its tag too");
    // It cannot be pushed again, to whatever repository.
    let problem = push(&server, root, "1").await.unwrap_err();
    assert!(problem.contains("DENIED") && problem.contains("a name that must not be known"), "{problem}");
    let index = LayoutDir::open(root.join("layout-1")).unwrap().read_blob(&first, oci::MAX_MANIFEST_BYTES).unwrap();
    let put = http().put(server.url("/v2/elsewhere/manifests/1")).header("content-type", oci::IMAGE_INDEX).body(index);
    let refused = put.send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    let told = refused.text().await.unwrap();
    assert!(told.contains("was taken down") && !told.contains("a name that must not be known"), "{told}");
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

/// Why something was taken down is for those who might have read it: the reason may name what nobody else is to know.
#[tokio::test]
async fn the_reason_of_a_takedown_is_not_told_to_those_who_could_not_read_what_it_is_about() {
    let Some(Scene { root, server, first, one, tombstones, .. }) = Scene::start().await else { return };
    let blob = Digest::of(&std::fs::read(&one).unwrap());
    tombstones.take_down(&first.to_string(), note()).await.unwrap();
    tombstones.take_down(&blob.to_string(), note()).await.unwrap();
    server.stop().await;

    let tokens = Tokens::open(&root.path().join("data"), None).await.unwrap();
    let token = async |grant: &str| -> String {
        let grants = vec![grant.parse().unwrap()];
        let created = symseal_seal::UtcSeconds(1);
        let new = NewToken { name: grant.to_owned(), created, expires: None, grants, keys: Vec::new() };
        tokens.create(new).await.unwrap().0.expose().to_owned()
    };
    let (reader, stranger) = (token("read:app").await, token("write:other").await);
    let mut config = config(root.path());
    config.access = AccessConfig::Tokens { anonymous_read: Vec::new() };
    let server = Running::start_as(config).await;
    let answer = async |request: reqwest::RequestBuilder, token: &str| {
        let answer = request.bearer_auth(token).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    for (kind, digest) in [("manifests", &first), ("blobs", &blob)] {
        let (status, told) = answer(http().get(server.url(&format!("/v2/app/{kind}/{digest}"))), &reader).await;
        assert!(status == StatusCode::NOT_FOUND && told.contains("a name that must not be known"), "{status} {told}");
        let unknown = Digest::of(b"never pushed");
        let elsewhere =
            [digest, &unknown].map(|digest| http().get(server.url(&format!("/v2/other/q/{kind}/{digest}"))));
        for request in elsewhere {
            let (status, told) = answer(request, &stranger).await;
            assert!(status == StatusCode::NOT_FOUND && !told.contains("taken down"), "{status} {told}");
        }
        // Mounts of what the caller cannot read go on as uploads, whether it is there or not.
        for query in
            [format!("mount={digest}&from=app"), format!("mount={digest}"), format!("mount={unknown}&from=app")]
        {
            let mount = http().post(server.url(&format!("/v2/other/q/blobs/uploads/?{query}")));
            let (status, told) = answer(mount, &stranger).await;
            assert_eq!((status, told.as_str()), (StatusCode::ACCEPTED, ""), "{query}");
        }
        let push = http().post(server.url(&format!("/v2/other/q/blobs/uploads/?digest={digest}")));
        let (status, told) = answer(push.body("x"), &stranger).await;
        assert!(status == StatusCode::FORBIDDEN && !told.contains("a name that must not be known"), "{status} {told}");
    }
    server.stop().await;
}

/// What gives the first program away: as a blob, by its ids, in parts, to symbol servers' clients.
async fn routes(server: &Running, blob: &Digest) -> Vec<(String, StatusCode)> {
    let mut found = Vec::new();
    for path in [
        format!("/v2/app/blobs/{blob}"),
        format!("/v2/other/blobs/{blob}"),
        "/buildid/abcdef01/debuginfo".to_owned(),
        "/buildid/abcdef01/executable".to_owned(),
        "/buildid/abcdef01/section/.debug_info".to_owned(),
        "/s/app/buildid/abcdef01/debuginfo".to_owned(),
        "/symbols/app1/elf-buildid-abcdef01/app1".to_owned(),
        "/symbols/_.debug/elf-buildid-sym-abcdef01/_.debug".to_owned(),
        "/s/app/symbols/app1/elf-buildid-abcdef01/app1".to_owned(),
    ] {
        for request in [
            http().get(server.url(&path)),
            http().head(server.url(&path)),
            http().get(server.url(&path)).header("range", "bytes=64-127"),
            http().get(server.url(&path)).header("accept-encoding", "zstd"),
        ] {
            let status = request.send().await.unwrap().status();
            found.push((path.clone(), if status == StatusCode::PARTIAL_CONTENT { StatusCode::OK } else { status }));
        }
    }
    found
}

#[tokio::test]
async fn a_blob_that_is_taken_down_is_no_file_of_any_bundle() {
    let Some(Scene { root, server, one, two, first, tombstones }) = Scene::start().await else { return };
    let bytes = std::fs::read(&one).unwrap();
    let blob = Digest::of(&bytes);
    // Another bundle has the same file.
    let third = program(root.path(), 3);
    let second = publish(&server, root.path(), "2", &[&one, &third]).await;
    assert_ne!(first, second);
    let mount = server.url(&format!("/v2/other/blobs/uploads/?mount={blob}&from=app"));
    assert_eq!(http().post(&mount).send().await.unwrap().status(), StatusCode::CREATED);
    // Warm: mapped, and answered from there, and a compressed form is there.
    for _ in 0..3 {
        assert!(routes(&server, &blob).await.iter().all(|(_, status)| *status == StatusCode::OK));
    }
    tombstones.take_down(&blob.to_string(), note()).await.unwrap();
    becomes(&server, "/buildid/abcdef01/debuginfo", StatusCode::NOT_FOUND).await;
    for (path, status) in routes(&server, &blob).await {
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
    }
    // Its bundles stay with their other files.
    for path in [
        format!("/v2/app/manifests/{first}"),
        format!("/v2/app/manifests/{second}"),
        "/buildid/abcdef02/debuginfo".to_owned(),
        "/buildid/abcdef03/debuginfo".to_owned(),
        format!("/v2/app/blobs/{}", Digest::of(&std::fs::read(&two).unwrap())),
    ] {
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
    // Another reason is told of, though the tombstone is the same.
    let reason = || async {
        let answer = http().get(server.url(&format!("/v2/app/blobs/{blob}"))).send().await.unwrap();
        answer.text().await.unwrap()
    };
    let note = Note { reason: "a court said so".into(), ..note() };
    tombstones.take_down(&blob.to_string(), note).await.unwrap();
    let started = Instant::now();
    while !reason().await.contains("a court said so") {
        assert!(started.elapsed() < Duration::from_secs(10), "the reason stays: {}", reason().await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tombstones.lift(&blob.to_string()).await.unwrap();
    becomes(&server, "/buildid/abcdef01/debuginfo", StatusCode::OK).await;
    for (path, status) in routes(&server, &blob).await {
        assert_eq!(status, StatusCode::OK, "{path}");
    }
    let back = http().get(server.url("/buildid/abcdef01/executable")).send().await.unwrap().bytes().await.unwrap();
    assert!(back == bytes);
    server.stop().await;
}

#[tokio::test]
async fn a_takedown_that_breaks_off_gives_nothing_away_and_is_finished_by_the_server_that_runs() {
    let Some(Scene { root, server, one, first, tombstones, .. }) = Scene::start().await else { return };
    let blob = format!("/v2/app/blobs/{}", Digest::of(&std::fs::read(&one).unwrap()));
    let manifest = format!("/v2/app/manifests/{first}");
    // In another folder of the store than the bundle.
    let is_apart = |bytes: &Vec<u8>| Digest::of(bytes).hex()[..2] != first.hex()[..2];
    let elsewhere = (0_u8..9).map(|byte| vec![byte; 9]).find(is_apart).unwrap();
    let upload = server.url(&format!("/v2/other/blobs/uploads/?digest={}", Digest::of(&elsewhere)));
    assert_eq!(http().post(upload).body(elsewhere.clone()).send().await.unwrap().status(), StatusCode::CREATED);
    // The disk cannot tell what the bundle names.
    let shard = root.path().join("data/blobs/sha256").join(&first.hex()[..2]);
    let aside = root.path().join("aside");
    std::fs::rename(&shard, &aside).unwrap();
    std::fs::write(&shard, "").unwrap();
    tombstones.take_down(&first.to_string(), note()).await.unwrap();
    becomes(&server, &blob, StatusCode::SERVICE_UNAVAILABLE).await;
    assert_eq!(status(&server, &manifest).await, StatusCode::SERVICE_UNAVAILABLE);
    becomes(&server, "/buildid/abcdef01/debuginfo", StatusCode::NOT_FOUND).await;
    // Nor is anything taken to another repository, which has its own.
    let digest = blob.rsplit('/').next().unwrap();
    let mount = server.url(&format!("/v2/other/blobs/uploads/?mount={digest}&from=app"));
    assert_eq!(http().post(mount).send().await.unwrap().status(), StatusCode::ACCEPTED);
    assert_eq!(status(&server, &format!("/v2/other/blobs/{}", Digest::of(&elsewhere))).await, StatusCode::OK);
    // Whoever takes it down again changes nothing.
    tombstones.take_down(&first.to_string(), note()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(status(&server, &blob).await, StatusCode::SERVICE_UNAVAILABLE);
    std::fs::remove_file(&shard).unwrap();
    std::fs::rename(&aside, &shard).unwrap();
    becomes(&server, &blob, StatusCode::NOT_FOUND).await;
    assert_eq!(status(&server, &manifest).await, StatusCode::NOT_FOUND);
    // So does what is lifted come back.
    std::fs::rename(&shard, &aside).unwrap();
    std::fs::write(&shard, "").unwrap();
    tombstones.lift(&first.to_string()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(status(&server, &blob).await, StatusCode::NOT_FOUND);
    std::fs::remove_file(&shard).unwrap();
    std::fs::rename(&aside, &shard).unwrap();
    becomes(&server, "/buildid/abcdef01/debuginfo", StatusCode::OK).await;
    assert!(statuses(&server, &first, &digest.parse().unwrap()).await.iter().all(|(_, it)| *it == StatusCode::OK));
    server.stop().await;
}

#[tokio::test]
async fn nobody_refers_to_what_is_taken_down_be_it_through_others() {
    let Some(Scene { root, server, first, tombstones, .. }) = Scene::start().await else { return };
    let layout = LayoutDir::open(root.path().join("layout-1")).unwrap();
    let (note_of_it, note_of_note) = {
        let first_note = crate::support::referrer(&layout, &first, "a note");
        (first_note, crate::support::referrer(&layout, &first_note, "a note of the note"))
    };
    let put = async |digest: &Digest| {
        let bytes = layout.read_blob(digest, oci::MAX_MANIFEST_BYTES).unwrap();
        for text in ["a note", "a note of the note"] {
            let url = server.url(&format!("/v2/app/blobs/uploads/?digest={}", Digest::of(text.as_bytes())));
            http().post(url).body(text).send().await.unwrap();
        }
        let url = server.url(&format!("/v2/app/blobs/uploads/?digest={}", Digest::of(oci::EMPTY_JSON)));
        http().post(url).body(oci::EMPTY_JSON).send().await.unwrap();
        let url = server.url(&format!("/v2/app/manifests/{digest}"));
        http().put(url).header("content-type", oci::MANIFEST).body(bytes).send().await.unwrap()
    };
    assert_eq!(put(&note_of_it).await.status(), StatusCode::CREATED);
    tombstones.take_down(&first.to_string(), note()).await.unwrap();
    becomes(&server, &format!("/v2/app/manifests/{note_of_it}"), StatusCode::NOT_FOUND).await;
    for digest in [&note_of_it, &note_of_note] {
        let refused = put(digest).await;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        assert!(refused.text().await.unwrap().contains(&first.to_string()));
    }
    let referrers = async |subject: &Digest| json_of(&server, &format!("/v2/app/referrers/{subject}")).await;
    assert_eq!(referrers(&first).await["manifests"], json!([]));
    tombstones.lift(&first.to_string()).await.unwrap();
    becomes(&server, &format!("/v2/app/manifests/{note_of_it}"), StatusCode::OK).await;
    assert_eq!(put(&note_of_note).await.status(), StatusCode::CREATED);
    // Now both go at once.
    tombstones.take_down(&first.to_string(), note()).await.unwrap();
    becomes(&server, &format!("/v2/app/manifests/{note_of_note}"), StatusCode::NOT_FOUND).await;
    assert_eq!(referrers(&note_of_it).await["manifests"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn a_file_of_a_tree_that_is_taken_down_is_not_served() {
    if !has("cc") || !has("objcopy") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let whole = program(root, 1);
    let tree = root.join("tree");
    std::fs::create_dir(&tree).unwrap();
    let debug = tree.join("app1.debug");
    run("objcopy", &["--only-keep-debug", whole.to_str().unwrap(), debug.to_str().unwrap()]);
    std::fs::copy(&whole, tree.join("app1")).unwrap();
    run("tar", &["-C", tree.to_str().unwrap(), "-cf", tree.join("both.tar").to_str().unwrap(), "app1"]);
    let (whole, debug) = (Digest::of(&std::fs::read(&whole).unwrap()), Digest::of(&std::fs::read(&debug).unwrap()));
    let origins = Origins { trees: vec![tree], tree_interval: Duration::from_millis(200), ..Origins::default() };
    let server = Running::start_with(&root.join("data"), &origins).await;
    let executables =
        ["/buildid/abcdef01/executable", "/buildid/abcdef01/section/.text", "/symbols/app1/elf-buildid-abcdef01/app1"];
    let debuginfo = ["/buildid/abcdef01/debuginfo", "/buildid/abcdef01/section/.debug_info"];
    for path in executables.iter().chain(&debuginfo) {
        becomes(&server, path, StatusCode::OK).await;
    }
    let sha256 = async || {
        let answer = http().get(server.url(debuginfo[0])).send().await.unwrap();
        Digest::of(&answer.bytes().await.unwrap())
    };
    let tombstones = Tombstones::open(&config(root)).await.unwrap();
    // By itself and in an archive; another file of the id stays.
    tombstones.take_down(&whole.to_string(), note()).await.unwrap();
    for path in executables {
        becomes(&server, path, StatusCode::NOT_FOUND).await;
    }
    assert_eq!(sha256().await, debug);
    assert_eq!(status(&server, debuginfo[1]).await, StatusCode::OK);
    tombstones.take_down(&debug.to_string(), note()).await.unwrap();
    for path in debuginfo {
        becomes(&server, path, StatusCode::NOT_FOUND).await;
    }
    assert_eq!(json_of(&server, "/metadata?key=buildid&value=abcdef01").await["results"], json!([]));
    let found = json_of(&server, "/metadata?key=glob&value=*app1").await;
    assert_eq!(found["results"], json!([]), "{found}");
    let resolve = json!({"platform": "linux", "debug_id": "abcdef01", "addresses": ["0x1040"]});
    let named = http().post(server.url("/api/v1/resolve")).json(&resolve).send().await.unwrap();
    assert_eq!(named.json::<Value>().await.unwrap()["frames"][0]["reason"], "not-in-bundle");
    tombstones.lift(&whole.to_string()).await.unwrap();
    becomes(&server, executables[0], StatusCode::OK).await;
    assert_eq!(sha256().await, whole);
    server.stop().await;
}

#[tokio::test]
async fn a_bundle_that_was_deleted_before_is_taken_down_with_what_it_alone_named() {
    let Some(Scene { root, server, one, two, first, tombstones }) = Scene::start().await else { return };
    let root = root.path();
    let second = publish(&server, root, "2", &[&two]).await;
    let index = json_of(&server, &format!("/v2/app/manifests/{first}")).await;
    let [own, shared] = [&one, &two].map(|file| format!("/v2/app/blobs/{}", Digest::of(&std::fs::read(file).unwrap())));
    let mut alone = vec![own.clone()];
    let mut children = Vec::new();
    for child in index["manifests"].as_array().unwrap() {
        let path = format!("/v2/app/manifests/{}", child["digest"].as_str().unwrap());
        let text = http().get(server.url(&path)).send().await.unwrap().text().await.unwrap();
        children.push((child["mediaType"].as_str().unwrap().to_owned(), text));
        alone.push(path);
    }
    assert!(alone.len() > 2);
    let kept = [shared, format!("/v2/app/manifests/{second}")];
    let delete = async |server: &Running, digest: &Digest| {
        let url = server.url(&format!("/v2/app/manifests/{digest}"));
        assert_eq!(http().delete(url).send().await.unwrap().status(), StatusCode::ACCEPTED);
    };
    delete(&server, &first).await;
    // Whoever was told of it a moment ago may rely on it.
    for path in alone.iter().chain(&kept) {
        assert_eq!(status(&server, path).await, StatusCode::OK, "{path}");
    }
    assert!(tombstones.take_down(&first.to_string(), note()).await.unwrap().is_here);
    let is_gone = async |server: &Running| {
        for path in &alone {
            becomes(server, path, StatusCode::NOT_FOUND).await;
        }
        for path in &kept {
            assert_eq!(status(server, path).await, StatusCode::OK, "{path}");
        }
        for (kind, text) in &children {
            let put = http().put(server.url("/v2/app/manifests/back")).header("content-type", kind);
            assert_eq!(put.body(text.clone()).send().await.unwrap().status(), StatusCode::NOT_FOUND);
        }
    };
    is_gone(&server).await;
    server.stop().await;
    let server = Running::start_as(config(root)).await;
    is_gone(&server).await;
    assert_eq!(tombstones.lift(&first.to_string()).await.unwrap(), Some(true));
    for path in &alone {
        becomes(&server, path, StatusCode::OK).await;
    }

    // When its manifests have been collected, the files are found all the same.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let collected = server.collector.collect(Duration::from_secs(1)).await.unwrap();
    assert!(collected.manifests as usize == children.len(), "{collected:?}");
    assert_eq!(status(&server, &own).await, StatusCode::OK);
    assert!(tombstones.take_down(&first.to_string(), note()).await.unwrap().is_here);
    is_gone(&server).await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    while server.collector.collect(Duration::ZERO).await.unwrap() != Collected::default() {}
    let stored = |digest: &str| root.join("data/blobs/sha256").join(&digest[..2]).join(digest).exists();
    let hex = |path: &String| path.rsplit(':').next().unwrap().to_owned();
    assert!(!alone.iter().any(|path| stored(&hex(path))) && !stored(&first.hex()));
    assert!(kept.iter().all(|path| stored(&hex(path))));
    let marks = root.join("data/repositories/app/_deleted/sha256");
    assert_eq!(std::fs::read_dir(marks).unwrap().count(), 0);
    // A bundle that was deleted and is not taken down leaves as little.
    delete(&server, &second).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    for _ in 0..4 {
        server.collector.collect(Duration::ZERO).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!kept.iter().any(|path| stored(&hex(path))));
    server.stop().await;
}
