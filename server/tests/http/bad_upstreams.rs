//! Other servers that are slow, have no end, or lie: what they hold up, and what of theirs is believed.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::programs::{has, run};
use crate::support::upstreams::{Does, Told, answer_with, asking, compile, ok};
use crate::support::{Running, http};
use reqwest::StatusCode;
use symseal_bundle::Digest;
use symseal_server::{Origins, Patience};

const ID: &str = "abcdef02abcdef02abcdef02abcdef02abcdef02";

/// Bytes that lie in buffers of the system and of the client between two servers, at most.
const ON_THE_WAY: usize = 32 << 20;

/// How long others are waited for here.
const STALL: Duration = Duration::from_millis(800);

fn impatient(upstreams: &[&Told]) -> Origins {
    let urls: Vec<String> = upstreams.iter().map(|told| told.url.clone()).collect();
    let origins = asking(&urls);
    Origins { patience: Patience { stall: STALL, ..origins.patience }, ..origins }
}

/// The answer's status with its bytes, if it came whole.
async fn whole(server: &Running) -> Option<(StatusCode, Vec<u8>)> {
    let answer = http().get(server.url(&format!("/buildid/{ID}/debuginfo"))).send().await.ok()?;
    let status = answer.status();
    Some((status, answer.bytes().await.ok()?.to_vec()))
}

/// Files of the cache, those that are on their way too.
fn cached(data: &Path) -> usize {
    std::fs::read_dir(data.join("cache")).unwrap().count()
}

/// A program's bytes; the build-id is near their start, as linkers place it.
fn program(root: &Path) -> Vec<u8> {
    std::fs::read(compile(root, "app", ID, 400_000)).unwrap()
}

#[tokio::test]
async fn a_body_without_an_end_fills_neither_disk_nor_memory() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let bytes = program(root.path());
    let file = Told::does(Does::NeverEnds(answer_with("", &bytes))).await;
    let data = root.path().join("file");
    let near = Running::start_with(&data, &Origins { cache_bytes: 8 << 20, ..impatient(&[&file]) }).await;
    let answer = http().get(near.url(&format!("/buildid/{ID}/debuginfo"))).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(answer.bytes().await.is_err(), "it came to an end");
    assert!(file.sent() < (4 << 20) + ON_THE_WAY, "{} bytes were taken", file.sent());
    assert_eq!(cached(&data), 0);

    // A page of an error that has none either is no reason to read on: the status says it all.
    let error = Told::does(Does::NeverEnds(b"HTTP/1.1 404 Not Found\r\n\r\nnot found, ".to_vec())).await;
    let near = Running::start_with(&root.path().join("error"), &impatient(&[&error])).await;
    assert_eq!(whole(&near).await.unwrap().0, StatusCode::NOT_FOUND);
    assert!(error.sent() < ON_THE_WAY, "{} bytes were taken", error.sent());
}

#[tokio::test]
async fn one_that_trickles_is_given_up_and_holds_nobody_who_has_another() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let bytes = program(root.path());
    // From its start, and after enough to believe it.
    for (case, sent) in [("start", 100), ("middle", 200_000)] {
        let told = Told::does(Does::Trickles(ok(bytes.len(), &bytes[..sent]))).await;
        let data = root.path().join(case);
        let near = Running::start_with(&data, &impatient(&[&told])).await;
        let started = Instant::now();
        let answer = whole(&near).await;
        assert!(answer.is_none_or(|(status, _)| status == StatusCode::BAD_GATEWAY), "{case}");
        // One period in which enough came, one in which it did not.
        assert!(started.elapsed() < STALL * 4, "{case}: {:?}", started.elapsed());
        assert_eq!(cached(&data), 0, "{case}");
    }
    let slow = Told::does(Does::Trickles(ok(bytes.len(), &bytes[..100]))).await;
    let good = Told::does(Does::Sends(ok(bytes.len(), &bytes))).await;
    let near = Running::start_with(&root.path().join("both"), &impatient(&[&slow, &good])).await;
    let started = Instant::now();
    assert!(whole(&near).await.unwrap().1 == bytes);
    assert!(started.elapsed() < STALL, "{:?}", started.elapsed());
}

#[tokio::test]
async fn what_a_server_says_of_a_file_is_held_against_the_file() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let bytes = program(root.path());
    let (length, digest) = (bytes.len(), Digest::of(&bytes).hex());
    let size = format!("Content-Length: {length}\r\n");
    let lies = [
        ("fewer bytes than there are", ok(length / 2, &bytes)),
        ("more bytes than come", ok(length + 1, &bytes)),
        ("another digest", answer_with(&format!("{size}X-DEBUGINFOD-SHA256: {}\r\n", "0".repeat(64)), &bytes)),
        ("another size", answer_with(&format!("{size}X-DEBUGINFOD-SIZE: 3\r\n"), &bytes)),
        ("a coding", answer_with(&format!("{size}Content-Encoding: gzip\r\n"), &bytes)),
    ];
    for (lie, answer) in lies {
        let told = Told::does(Does::Sends(answer)).await;
        let data = root.path().join(lie);
        let near = Running::start_with(&data, &impatient(&[&told])).await;
        let got = whole(&near).await;
        assert!(got.is_none_or(|(status, _)| status == StatusCode::BAD_GATEWAY), "{lie}");
        assert_eq!(cached(&data), 0, "{lie}");
    }
    // What is not said, or matters to nobody, is found out here.
    let truths = [
        ("nothing", answer_with("", &bytes)),
        ("its size alone", answer_with(&format!("X-DEBUGINFOD-SIZE: {length}\r\n"), &bytes)),
        ("no number", answer_with(&format!("{size}X-DEBUGINFOD-SIZE: large\r\n"), &bytes)),
        ("its digest", answer_with(&format!("{size}X-DEBUGINFOD-SHA256: {}\r\n", digest.to_uppercase()), &bytes)),
    ];
    for (case, answer) in truths {
        let told = Told::does(Does::Sends(answer)).await;
        let near = Running::start_with(&root.path().join(case), &impatient(&[&told])).await;
        assert!(whole(&near).await.unwrap().1 == bytes, "{case}");
        let kept = http().get(near.url(&format!("/buildid/{ID}/debuginfo"))).send().await.unwrap();
        assert_eq!(kept.headers()["x-debuginfod-sha256"], digest, "{case}");
        assert_eq!(kept.headers()["x-debuginfod-size"], length.to_string().as_str(), "{case}");
        assert!(kept.bytes().await.unwrap() == bytes, "{case}");
        assert_eq!(told.asked(), 1, "{case}");
    }
}

#[tokio::test]
async fn who_did_not_bring_a_file_is_asked_for_it_when_no_other_has_it() {
    if !has("cc") || !has("objcopy") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let bytes = program(root.path());
    // The first to answer each time, with half of the file.
    let half = Told::does(Does::Sends(ok(bytes.len(), &bytes[..bytes.len() / 2]))).await;
    let good = Told::does(Does::SendsLater(Duration::from_millis(300), ok(bytes.len(), &bytes))).await;
    let near = Running::start_with(&root.path().join("both"), &impatient(&[&half, &good])).await;
    assert!(whole(&near).await.is_none());
    assert!(whole(&near).await.unwrap().1 == bytes);
    assert_eq!(half.asked(), 1);
    // Alone it is asked each time: it may have been the network.
    let alone = Running::start_with(&root.path().join("alone"), &impatient(&[&half])).await;
    for asked in 2..4 {
        assert!(whole(&alone).await.is_none());
        assert_eq!(half.asked(), asked);
    }
    // A script that a debugger would run comes through no server.
    let (script, scripted) = (root.path().join("script"), root.path().join("scripted"));
    std::fs::write(&script, b"\x04name\nprint(1)\n\0").unwrap();
    let add = format!("--add-section=.debug_gdb_scripts={}", script.display());
    run("objcopy", &[&add, root.path().join("app").to_str().unwrap(), scripted.to_str().unwrap()]);
    let scripted = std::fs::read(scripted).unwrap();
    let told = Told::does(Does::Sends(ok(scripted.len(), &scripted))).await;
    let near = Running::start_with(&root.path().join("scripted-data"), &impatient(&[&told])).await;
    assert!(whole(&near).await.is_none());
}

#[tokio::test]
async fn one_that_says_nothing_is_dead_after_a_moment_and_one_that_is_busy_is_waited_for() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let bytes = program(root.path());
    let silence = Duration::from_millis(400);
    let origins = |told: &Told| {
        let origins = impatient(&[told]);
        let patience = Patience { head: Duration::from_secs(30), silence, ..origins.patience };
        Origins { patience: Patience { pause: Duration::from_secs(30), ..patience }, ..origins }
    };
    let silent = Told::does(Does::Sleeps).await;
    let near = Running::start_with(&root.path().join("silent"), &origins(&silent)).await;
    let started = Instant::now();
    assert_eq!(whole(&near).await.unwrap().0, StatusCode::BAD_GATEWAY);
    assert!(started.elapsed() < silence * 6, "{:?}", started.elapsed());
    // From then on it costs nobody anything.
    let started = Instant::now();
    assert_eq!(whole(&near).await.unwrap().0, StatusCode::BAD_GATEWAY);
    assert!(started.elapsed() < silence, "{:?}", started.elapsed());
    assert_eq!(silent.asked(), 1);

    let busy = Told::does(Does::IsBusy(silence * 4, ok(bytes.len(), &bytes))).await;
    let near = Running::start_with(&root.path().join("busy"), &origins(&busy)).await;
    assert!(whole(&near).await.unwrap().1 == bytes, "it takes an archive apart");
}
