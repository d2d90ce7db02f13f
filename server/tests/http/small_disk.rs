//! A data directory on a disk that gets full: what is said, what is left of it, and what goes on.
//!
//! The disk is a tmpfs in a mount namespace, in which the test runs itself again.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::programs::{has, run};
use crate::support::{Running, http, noise};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Method, StatusCode};
use serde_json::Value;
use symseal_builder::{Options, SymbolBundleBuilder};
use symseal_bundle::oci::{self, ImageIndex, Manifest};
use symseal_bundle::{Digest, LayoutDir};

/// Where the disk is, for the test within.
const PLACE: &str = "SYMSEAL_SMALL_DISK";
/// Its size, in bytes.
const SIZE: usize = 24 << 20;
/// What a file takes of it, at least.
const PAGE: usize = 4096;

/// The disk, within; without, the test is run again with one, and there is nothing left to do.
fn small_disk(test: &str) -> Option<PathBuf> {
    if let Some(place) = std::env::var_os(PLACE) {
        return Some(place.into());
    }
    let place = tempfile::tempdir().unwrap();
    let mount = format!("mount -t tmpfs -o size={SIZE} none \"$0\" && exec \"$@\"");
    let within = |namespaces: &[&str], program: &Path| {
        let mut command = Command::new("unshare");
        command.args(namespaces).args(["sh", "-c", &mount]).arg(place.path()).arg(program);
        command
    };
    let works = |namespaces: &&[&str]| {
        within(namespaces, Path::new("true")).output().is_ok_and(|output| output.status.success())
    };
    // As root; else as one's own root.
    let Some(namespaces) = [&["--mount"][..], &["--user", "--map-root-user", "--mount"]].into_iter().find(works) else {
        let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
        let is_required = required.split(',').any(|name| name == "namespaces" || name == "all");
        assert!(!is_required, "namespaces is required, and no disk can be mounted in one");
        println!("SKIP namespaces: no disk can be mounted in one");
        return None;
    };
    let mut inner = within(namespaces, &std::env::current_exe().unwrap());
    inner.args(["--exact", &format!("small_disk::{test}"), "--nocapture"]).env(PLACE, place.path());
    let output = inner.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    None
}

/// What fills the disk.
struct Ballast(File);

impl Ballast {
    /// Takes all that is left.
    fn fill(disk: &Path) -> Self {
        let mut file = File::create(disk.join("ballast")).unwrap();
        let page = [0; PAGE];
        while file.write_all(&page).is_ok() {}
        Self(file)
    }

    /// Gives some of it back.
    fn shrink(&self, bytes: usize) -> bool {
        let size = self.0.metadata().unwrap().len();
        self.0.set_len(size.saturating_sub(bytes as u64)).unwrap();
        size > 0
    }
}

/// Bytes of all files below a folder.
fn used(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => used(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

struct Scene {
    http: Client,
    server: Running,
    /// Not on the small disk.
    work: tempfile::TempDir,
}

impl Scene {
    async fn status(&self, path: &str) -> StatusCode {
        self.http.get(self.server.url(path)).send().await.unwrap().status()
    }

    async fn post_blob(&self, bytes: Vec<u8>) -> (StatusCode, String) {
        let url = self.server.url(&format!("/v2/app/blobs/uploads/?digest={}", Digest::of(&bytes)));
        let answer = self.http.post(url).body(bytes).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    async fn put_manifest(&self, reference: &str, media_type: &str, bytes: &[u8]) -> (StatusCode, String) {
        let url = self.server.url(&format!("/v2/app/manifests/{reference}"));
        let answer = self.http.put(url).header(CONTENT_TYPE, media_type).body(bytes.to_vec()).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    async fn upload(&self, name: &str, bytes: Vec<u8>) -> (StatusCode, String) {
        let url = self.server.url(&format!("/api/v1/symbols?name={name}"));
        let answer = self.http.put(url).body(bytes).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    fn compile(&self, id: &str) -> PathBuf {
        let (source, binary) = (self.work.path().join("app.c"), self.work.path().join(format!("app-{id}")));
        std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let id = format!("-Wl,--build-id=0x{id}");
        run("cc", &["-g", source.to_str().unwrap(), "-o", binary.to_str().unwrap(), &id]);
        binary
    }

    /// Pushes a bundle but for its index; the index.
    async fn push_all_but_the_index(&self, id: &str) -> Vec<u8> {
        let layout = LayoutDir::create(self.work.path().join(format!("layout-{id}"))).unwrap();
        let release = Options { name: "app".into(), version: id.into(), ..Options::default() };
        let built = SymbolBundleBuilder::new(release).add_path(self.compile(id)).build(&layout).unwrap();
        let read = |digest: &Digest| layout.read_blob(digest, 64 << 20).unwrap();
        let index = read(&built.digest);
        for child in ImageIndex::parse(&index).unwrap().manifests {
            let manifest = read(&child.digest);
            let parsed = Manifest::parse(&manifest).unwrap();
            for blob in parsed.layers.iter().chain([&parsed.config]) {
                assert_eq!(self.post_blob(read(&blob.digest)).await.0, StatusCode::CREATED);
            }
            let (status, said) = self.put_manifest(&child.digest.to_string(), oci::MANIFEST, &manifest).await;
            assert_eq!(status, StatusCode::CREATED, "{said}");
        }
        index
    }
}

#[track_caller]
fn is_told((status, said): (StatusCode, String)) {
    assert_eq!(status, StatusCode::INSUFFICIENT_STORAGE, "{said}");
    assert!(said.contains("free space"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_stops_no_reader_and_is_forgotten_when_there_is_room_again() {
    if !has("cc") {
        return;
    }
    let Some(disk) = small_disk("a_full_disk_is_told_stops_no_reader_and_is_forgotten_when_there_is_room_again") else {
        return;
    };
    let data = disk.join("data");
    let work = tempfile::tempdir().unwrap();
    let mut scene = Scene { http: http(), server: Running::start(&data).await, work };
    let first = scene.push_all_but_the_index("aaaa0001").await;
    assert_eq!(scene.put_manifest("1", oci::IMAGE_INDEX, &first).await.0, StatusCode::CREATED);
    let index = scene.push_all_but_the_index("aaaa0002").await;
    let digest = Digest::of(&index);

    // An upload for which there is no room leaves nothing behind.
    let before = used(&data);
    is_told(scene.post_blob(noise(SIZE, 1)).await);
    assert!(used(&data) < before + (1 << 20), "{} bytes are left of an upload", used(&data) - before);

    // Nor does the request in a session that found none, in pieces or at its end: half of a blob would keep the disk full for a day. What was acknowledged
    // before stays, and is where the client goes on.
    for (method, query) in [(Method::PATCH, String::new()), (Method::PUT, format!("?digest={digest}"))] {
        let session = scene.http.post(scene.server.url("/v2/app/blobs/uploads/")).send().await.unwrap();
        let location = session.headers()["location"].to_str().unwrap().to_owned();
        let (first, session) = (noise(PAGE, 7), scene.server.url(&location));
        let taken = scene.http.patch(&session).body(first.clone()).send().await.unwrap();
        assert_eq!(taken.status(), StatusCode::ACCEPTED);
        let url = scene.server.url(&format!("{location}{query}"));
        let answer = scene.http.request(method.clone(), url).body(noise(SIZE, 4)).send().await.unwrap();
        assert_eq!(answer.headers()["range"], format!("0-{}", PAGE - 1), "{method}");
        is_told((answer.status(), answer.text().await.unwrap()));
        assert!(used(&data) < before + (1 << 20), "{method}: {} bytes are left", used(&data) - before);
        assert_eq!(scene.status(&location).await, StatusCode::NO_CONTENT, "{method}: the session goes on");
        let whole = [first, noise(PAGE, 8)].concat();
        let end = format!("{session}?digest={}", Digest::of(&whole));
        let ended =
            scene.http.put(end).header("content-range", format!("{PAGE}-{}", 2 * PAGE - 1)).body(noise(PAGE, 8));
        assert_eq!(ended.send().await.unwrap().status(), StatusCode::CREATED, "{method}");
        assert_eq!(scene.status("/readyz").await, StatusCode::OK, "{method}");
    }

    // Nothing at all is left.
    let ballast = Ballast::fill(&disk);
    assert_eq!(scene.status("/readyz").await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(scene.status("/healthz").await, StatusCode::OK);
    is_told(scene.post_blob(noise(PAGE, 2)).await);
    is_told(scene.upload("app", std::fs::read(scene.compile("aaaa0003")).unwrap()).await);
    let known = format!("/api/v1/bundles/{}", Digest::of(&first));
    let readers = [
        known.as_str(),
        "/buildid/aaaa0001/debuginfo",
        "/v2/app/manifests/1",
        "/v2/app/tags/list",
        "/metadata?key=glob&value=*",
        "/",
    ];
    for path in readers {
        assert_eq!(scene.status(path).await, StatusCode::OK, "{path}");
    }

    // A little more each time: wherever the room ends, in the blob, in the database or in what makes it visible, nothing of the bundle is seen.
    let (mut refusals, started) = (0, Instant::now());
    loop {
        let (status, said) = scene.put_manifest("2", oci::IMAGE_INDEX, &index).await;
        if status == StatusCode::CREATED {
            break;
        }
        is_told((status, said));
        refusals += 1;
        assert_eq!(scene.status(&known).await, StatusCode::OK, "what the database has is read");
        assert_eq!(scene.status("/v2/app/manifests/2").await, StatusCode::NOT_FOUND);
        assert_eq!(scene.status("/buildid/aaaa0002/debuginfo").await, StatusCode::NOT_FOUND);
        // Lines of the audit log take some of it too: after the first places it goes faster.
        let pages = if refusals < 64 { 1 } else { 32 };
        assert!(ballast.shrink(pages * PAGE), "there is room, and the push is refused");
    }
    assert!(refusals > 1, "{refusals}");
    // No request waits for a connection of the database that is left in a transaction.
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    drop(ballast);
    std::fs::remove_file(disk.join("ballast")).unwrap();

    // The same server takes what it refused, and the next one has it all.
    assert_eq!(scene.post_blob(noise(1 << 20, 3)).await.0, StatusCode::CREATED);
    assert_eq!(scene.upload("app", std::fs::read(scene.compile("aaaa0003")).unwrap()).await.0, StatusCode::CREATED);
    for round in 0..2 {
        for path in readers.iter().copied().chain(["/buildid/aaaa0002/debuginfo", "/buildid/aaaa0003/executable"]) {
            assert_eq!(scene.status(path).await, StatusCode::OK, "{path}, round {round}");
        }
        let record = scene.http.get(scene.server.url(&format!("/api/v1/bundles/{digest}"))).send().await.unwrap();
        let record: Value = record.json().await.unwrap();
        assert_eq!(record["index"]["version"], "aaaa0002", "{record}");
        scene.server.stop().await;
        scene.server = Running::start(&data).await;
    }
    // What refused uploads left is nobody's, and half-written files are gone.
    tokio::time::sleep(Duration::from_millis(20)).await;
    scene.server.collector.collect(Duration::ZERO).await.unwrap();
    assert_eq!(std::fs::read_dir(data.join("temporary")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_need_room_are_told_so_and_not_where_the_server_keeps_what() {
    if !has("cc") {
        return;
    }
    let Some(disk) = small_disk("names_that_need_room_are_told_so_and_not_where_the_server_keeps_what") else { return };
    let work = tempfile::tempdir().unwrap();
    let scene = Scene { http: http(), server: Running::start(&disk.join("data")).await, work };
    assert_eq!(scene.upload("app", std::fs::read(scene.compile("aaaa0003")).unwrap()).await.0, StatusCode::CREATED);
    let ballast = Ballast::fill(&disk);
    let id = "0300AAAA0000000000000000000000000";
    let ask = async || {
        let body = format!(r#"{{"jobs":[{{"memoryMap":[["app","{id}"]],"stacks":[[[0,4096]]]}}],"version":5}}"#);
        let asked = scene.http.post(scene.server.url("/symbolicate/v5")).body(body);
        asked.send().await.unwrap().json::<Value>().await.unwrap()["results"][0].take()
    };
    let answer = ask().await;
    let error = &answer["module_errors"][format!("app/{id}")][0];
    assert_eq!(error["name"], "Unreadable", "{answer}");
    let said = error["message"].as_str().unwrap();
    assert!(said.contains("disk is full") && !said.contains(disk.to_str().unwrap()), "{said}");
    let symbols = scene.server.url(&format!("/symbols/app/{id}/app.sym"));
    let refused = scene.http.get(&symbols).send().await.unwrap();
    is_told((refused.status(), refused.text().await.unwrap()));
    // A client of elfutils would keep any status as "there is nothing".
    scene.http.get(&symbols).header("user-agent", "elfutils/0.192").send().await.unwrap_err();
    drop(ballast);
    std::fs::remove_file(disk.join("ballast")).unwrap();
    assert_eq!(ask().await["found_modules"][format!("app/{id}")], true);
    assert_eq!(scene.status(&format!("/symbols/app/{id}/app.sym")).await, StatusCode::OK);
}
