//! Servers that ask other servers: streamed through, checked, kept; and what becomes of those that are dead.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::debuginfod::Debuginfod;
use crate::support::programs::{has, publish};
use crate::support::upstreams::{Does, Told, answer_with, asking, compile, ok};
use crate::support::{Running, http};
use reqwest::StatusCode;
use reqwest::header::{ACCEPT_RANGES, CONTENT_LENGTH, ETAG, RANGE, USER_AGENT};
use symseal_bundle::Digest;
use symseal_server::{Config, Note, Origins, Tombstones};
use tokio::net::TcpListener;

const ID: &str = "abcdef01abcdef01abcdef01abcdef01abcdef01";
const OTHER_ID: &str = "0123456701234567012345670123456701234567";

const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\nConnection: close\r\n\r\nnot found";

async fn get(server: &Running, path: &str) -> reqwest::Result<reqwest::Response> {
    http().get(server.url(path)).send().await
}

fn debuginfo(id: &str) -> String {
    format!("/buildid/{id}/debuginfo")
}

fn cached(data: &Path) -> usize {
    std::fs::read_dir(data.join("cache")).unwrap().count()
}

#[tokio::test]
async fn what_another_server_has_is_streamed_through_checked_and_kept() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let binary = compile(root.path(), "app", ID, 3_000_000);
    let bytes = std::fs::read(&binary).unwrap();
    let far = Running::start(&root.path().join("far")).await;
    publish(&far, root.path(), "1", &[&binary]).await;
    let near_data = root.path().join("near");
    let near = Running::start_with(&near_data, &asking(&[far.url("")])).await;
    let first = get(&near, &debuginfo(ID)).await.unwrap();
    assert_eq!(first.status(), StatusCode::OK);
    assert_eq!(first.headers()[CONTENT_LENGTH], bytes.len().to_string().as_str());
    assert_eq!(first.headers()["x-debuginfod-size"], bytes.len().to_string().as_str());
    assert_eq!(first.headers()["x-debuginfod-file"], "app");
    assert!(first.bytes().await.unwrap() == bytes);

    // The other server is not needed any more, also after a restart.
    far.stop().await;
    near.stop().await;
    let near = Running::start_with(&near_data, &asking(&["http://127.0.0.1:1".into()])).await;
    let kept = get(&near, &debuginfo(ID)).await.unwrap();
    assert_eq!(kept.headers()[ACCEPT_RANGES], "bytes");
    assert_eq!(kept.headers()["x-debuginfod-sha256"], Digest::of(&bytes).hex().as_str());
    assert_eq!(kept.headers()[ETAG], format!("\"{}\"", Digest::of(&bytes)).as_str());
    // What the other server would find by a name cannot be told.
    let named = get(&near, "/metadata?key=file&value=/usr/bin/app").await.unwrap();
    let named: serde_json::Value = named.json().await.unwrap();
    assert_eq!(named, serde_json::json!({ "results": [], "complete": false }));
    let metrics = get(&near, "/metrics").await.unwrap().text().await.unwrap();
    let filled = metrics.lines().find_map(|line| line.strip_prefix("symseal_cache_bytes "));
    assert!(filled.unwrap().parse::<usize>().unwrap() >= bytes.len(), "{metrics}");
    assert!(
        metrics.contains("symseal_cache_files 1\n") && metrics.contains("symseal_cache_capacity_bytes "),
        "{metrics}"
    );
    assert!(kept.bytes().await.unwrap() == bytes);
    let part = http().get(near.url(&debuginfo(ID))).header(RANGE, "bytes=1-3").send().await.unwrap();
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert!(part.bytes().await.unwrap() == bytes[1..=3]);
    // A section comes out of the file that was checked.
    let section = get(&near, &format!("/buildid/{ID}/section/.comment")).await.unwrap();
    assert_eq!(section.status(), StatusCode::OK);
    assert!(section.bytes().await.unwrap().starts_with(b"GCC"));
}

/// What elfutils' client compares with the file where it is told to (`ima:enforcing`).
#[tokio::test]
async fn a_signature_that_another_server_sends_with_a_file_goes_with_it_unchanged() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(compile(root.path(), "app", ID, 200_000)).unwrap();
    // As rpm's: a header, and as many bytes as a key of 4096 bits signs with.
    let signature = format!("030204{}", "5Af0".repeat(260));
    let length = format!("Content-Length: {}\r\nX-DEBUGINFOD-IMASIGNATURE: {signature}\r\n", bytes.len());
    let told = Told::does(Does::Sends(answer_with(&length, &bytes))).await;
    let data = root.path().join("near");
    let near = Running::start_with(&data, &asking(std::slice::from_ref(&told.url))).await;
    let streamed = get(&near, &debuginfo(ID)).await.unwrap();
    assert_eq!(streamed.headers()["x-debuginfod-imasignature"], signature.as_str());
    assert!(streamed.bytes().await.unwrap() == bytes);
    near.stop().await;
    let near = Running::start_with(&data, &asking(&["http://127.0.0.1:1".into()])).await;
    let kept = get(&near, &debuginfo(ID)).await.unwrap();
    assert_eq!(kept.headers()["x-debuginfod-imasignature"], signature.as_str());
    assert!(kept.bytes().await.unwrap() == bytes);
    let head = http().head(near.url(&debuginfo(ID))).send().await.unwrap();
    assert_eq!(head.headers()["x-debuginfod-imasignature"], signature.as_str());
    // It is the whole file's.
    let section = get(&near, &format!("/buildid/{ID}/section/.comment")).await.unwrap();
    assert!(section.status() == StatusCode::OK && !section.headers().contains_key("x-debuginfod-imasignature"));
    assert_eq!(told.asked(), 1);
}

#[tokio::test]
async fn all_who_wait_for_a_file_share_one_flight_and_see_it_come() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let binary = compile(root.path(), "app", ID, 300_000);
    let bytes = std::fs::read(&binary).unwrap();
    let (head, go_on) = (200_000, Arc::<tokio::sync::Notify>::default());
    let first = ok(bytes.len(), &bytes[..head]);
    let told = Told::does(Does::SendsInTwo(first, go_on.clone(), bytes[head..].to_vec())).await;
    let near = Running::start_with(&root.path().join("near"), &asking(std::slice::from_ref(&told.url))).await;
    let mut answers = Vec::new();
    for _ in 0..8 {
        answers.push(get(&near, &debuginfo(ID)).await.unwrap());
    }
    // What has come so far is with all of them, while the other server still waits.
    let mut begun = vec![Vec::new(); answers.len()];
    for (answer, begun) in answers.iter_mut().zip(&mut begun) {
        while begun.len() < 100_000 {
            begun.extend(answer.chunk().await.unwrap().unwrap());
        }
    }
    go_on.notify_one();
    for (answer, mut begun) in answers.into_iter().zip(begun) {
        begun.extend(answer.bytes().await.unwrap());
        assert!(begun == bytes);
    }
    assert_eq!(told.asked(), 1);
}

#[tokio::test]
async fn what_is_no_file_of_the_id_is_neither_sent_whole_nor_kept() {
    if !has("cc") || !has("objcopy") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let right = std::fs::read(compile(root.path(), "right", ID, 200_000)).unwrap();
    let wrong = std::fs::read(compile(root.path(), "wrong", OTHER_ID, 200_000)).unwrap();
    // The id stands where the start does not show it, and is another one's.
    let mut hidden = wrong.clone();
    let headers = u64::from_le_bytes(hidden[32..40].try_into().unwrap()) as usize;
    let count = u16::from_le_bytes(hidden[56..58].try_into().unwrap()) as usize;
    for header in 0..count {
        let at = headers + header * 56;
        if hidden[at] == 4 {
            hidden[at] = 0;
        }
    }
    let cases: [(&str, Vec<u8>); 7] = [
        ("a page", ok(20, b"<html>sorry!</html>\n")),
        ("another module", ok(wrong.len(), &wrong)),
        ("another module, at its end", ok(hidden.len(), &hidden)),
        ("a start without an end", ok(right.len(), &right[..right.len() / 2])),
        ("nothing", ok(0, b"")),
        ("an error", b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec()),
        ("no HTTP", b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
    ];
    for (case, answer) in cases {
        let told = Told::does(Does::Sends(answer)).await;
        let data = root.path().join(case);
        let near = Running::start_with(&data, &asking(std::slice::from_ref(&told.url))).await;
        // As elfutils' client, which would keep any error status for ten minutes.
        let sent = http().get(near.url(&debuginfo(ID))).header(USER_AGENT, "elfutils/0.188,Linux/x86_64").send().await;
        let whole = match sent {
            Ok(answer) => {
                assert_eq!(answer.status(), StatusCode::OK, "{case}");
                answer.bytes().await
            }
            Err(error) => Err(error),
        };
        assert!(whole.is_err(), "{case}: {:?}", whole.map(|bytes| bytes.len()));
        assert_eq!(cached(&data), 0, "{case}");
        let other = get(&near, &debuginfo(ID)).await;
        if let Ok(other) = other {
            assert!(other.status() == StatusCode::BAD_GATEWAY || other.bytes().await.is_err(), "{case}");
        }
        assert_eq!(get(&near, "/").await.unwrap().status(), StatusCode::OK, "{case}");
    }
}

#[tokio::test]
async fn a_dead_server_costs_nothing_once_that_is_known_and_is_asked_again_when_it_lives() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let binary = compile(root.path(), "app", ID, 1000);
    // A place where nobody listens yet.
    let place = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = place.local_addr().unwrap();
    drop(place);
    let slow = Told::does(Does::Sleeps).await;
    let near =
        Running::start_with(&root.path().join("near"), &asking(&[format!("http://{address}"), slow.url.clone()])).await;
    for _ in 0..2 {
        assert_eq!(get(&near, &debuginfo(ID)).await.unwrap().status(), StatusCode::BAD_GATEWAY);
    }
    assert_eq!(slow.asked(), 2);
    let start = Instant::now();
    for _ in 0..20 {
        let answer = get(&near, &debuginfo(ID)).await.unwrap();
        assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
        assert_eq!(answer.headers()["cache-control"], "no-store");
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(slow.asked(), 2, "it is left alone");
    // To elfutils' client the connection ends without an answer, which it does not keep.
    let broken = http().get(near.url(&debuginfo(ID))).header(USER_AGENT, "elfutils/0.188").send().await;
    assert!(broken.is_err(), "{broken:?}");

    let far = Running::start_at(&root.path().join("far"), address, &Origins::default()).await;
    publish(&far, root.path(), "1", &[&binary]).await;
    let mut found = false;
    for _ in 0..100 {
        let answer = get(&near, &debuginfo(ID)).await.unwrap();
        if answer.status() == StatusCode::OK {
            assert!(answer.bytes().await.unwrap() == std::fs::read(&binary).unwrap());
            found = true;
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(found, "it lives again");
}

#[tokio::test]
async fn absence_is_believed_for_a_while_and_only_where_all_say_it() {
    let told = Told::does(Does::Sends(NOT_FOUND.to_vec())).await;
    let root = tempfile::tempdir().unwrap();
    let near = Running::start_with(&root.path().join("near"), &asking(std::slice::from_ref(&told.url))).await;
    for _ in 0..5 {
        assert_eq!(get(&near, &debuginfo(ID)).await.unwrap().status(), StatusCode::NOT_FOUND);
    }
    assert_eq!(told.asked(), 1);
    let failing =
        Told::does(Does::Sends(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec())).await;
    let upstreams = [told.url.clone(), failing.url.clone()];
    let near = Running::start_with(&root.path().join("other"), &asking(&upstreams)).await;
    for _ in 0..3 {
        assert_eq!(get(&near, &debuginfo(ID)).await.unwrap().status(), StatusCode::BAD_GATEWAY);
    }
    assert_eq!(failing.asked(), 3, "an error is no absence");
}

#[tokio::test]
async fn two_servers_that_ask_each_other_come_to_an_end() {
    let root = tempfile::tempdir().unwrap();
    let free = async || {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        listener.local_addr().unwrap()
    };
    let (one_at, two_at): (SocketAddr, SocketAddr) = (free().await, free().await);
    let one = Running::start_at(&root.path().join("one"), one_at, &asking(&[format!("http://{two_at}")])).await;
    let _two = Running::start_at(&root.path().join("two"), two_at, &asking(&[format!("http://{one_at}")])).await;
    let start = Instant::now();
    let answer = get(&one, &debuginfo(ID)).await.unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    let text = "not found, --forwared-ttl-limit reached and will not query the upstream servers\n";
    assert_eq!(answer.text().await.unwrap(), text, "the words of elfutils' server");
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn a_pdb_and_an_image_of_another_symbol_server_are_checked_too() {
    let fixtures = std::env::var("SYMSEAL_FIXTURES").map(PathBuf::from);
    let Some(pdb) = fixtures.ok().and_then(|folder| first_pdb(&folder)) else {
        println!("SKIP fixtures: SYMSEAL_FIXTURES does not name a folder with a PDB");
        return;
    };
    let bytes = std::fs::read(&pdb).unwrap();
    let id = match symseal_artifact::ReleaseFile::parse(&bytes).unwrap() {
        symseal_artifact::ReleaseFile::Pdb(pdb) => pdb.debug_id(),
        other => panic!("{other:?}"),
    };
    let symseal_module::DebugId::Pdb { guid, age } = id else { panic!("{id}") };
    let hex: String = guid.iter().map(|byte| format!("{byte:02X}")).collect();
    let root = tempfile::tempdir().unwrap();
    let told = Told::does(Does::Sends(ok(bytes.len(), &bytes))).await;
    let origins = Origins { symbol_upstreams: vec![told.url.clone()], ..asking(&[]) };
    let data = root.path().join("near");
    let near = Running::start_with(&data, &origins).await;
    let path = format!("/symbols/app.pdb/{hex}{age:x}/app.pdb");
    for _ in 0..2 {
        let answer = get(&near, &path).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert!(answer.bytes().await.unwrap() == bytes);
    }
    assert_eq!((told.asked(), cached(&data)), (1, 1));
    let other = get(&near, &format!("/symbols/app.pdb/{hex}{:x}/app.pdb", age + 1)).await;
    let whole = match other {
        Ok(answer) if answer.status() == StatusCode::OK => answer.bytes().await.is_ok(),
        _ => false,
    };
    assert!(!whole, "it has another age");
    let image = get(&near, "/symbols/app.exe/5F3A1B2C1f000/app.exe").await.unwrap();
    assert_eq!(image.status(), StatusCode::BAD_GATEWAY, "a PDB is no image");
    assert_eq!(cached(&data), 1);
}

fn first_pdb(folder: &Path) -> Option<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).ok()?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "pdb")
                && std::fs::read(&path).is_ok_and(|bytes| bytes.starts_with(b"Microsoft C/C++ MSF 7.00"))
            {
                return Some(path);
            }
        }
    }
    None
}

#[tokio::test]
async fn elfutils_server_behind_this_one_answers_elfutils_client_before_it() {
    if !has("cc") || !has("debuginfod") || !has("debuginfod-find") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("files");
    std::fs::create_dir_all(&folder).unwrap();
    let binary = compile(&folder, "app", ID, 50_000);
    let debuginfod = Debuginfod::start(&folder, &root.path().join("database")).await;
    let near = Running::start_with(&root.path().join("near"), &asking(std::slice::from_ref(&debuginfod.url))).await;
    let find = async |arguments: &[&str], cache: &str| {
        let mut command = Command::new("debuginfod-find");
        command
            .args(arguments)
            .env("DEBUGINFOD_URLS", near.url(""))
            .env("DEBUGINFOD_CACHE_PATH", root.path().join(cache))
            .env("DEBUGINFOD_TIMEOUT", "20");
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        output.status.success().then(|| PathBuf::from(String::from_utf8(output.stdout).unwrap().trim()))
    };
    let source = folder.join("app.c");
    // From the other server, then out of the cache.
    for cache in ["first", "second"] {
        let found = find(&["executable", ID], cache).await.unwrap();
        assert!(std::fs::read(found).unwrap() == std::fs::read(&binary).unwrap());
        let found = find(&["source", ID, source.to_str().unwrap()], cache).await.unwrap();
        assert!(std::fs::read(found).unwrap() == std::fs::read(&source).unwrap());
        assert!(find(&["debuginfo", OTHER_ID], cache).await.is_none());
    }
}

#[tokio::test]
async fn a_file_of_another_server_that_is_taken_down_here_is_not_given() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let binary = compile(root.path(), "app", ID, 300_000);
    let bytes = std::fs::read(&binary).unwrap();
    let digest = Digest::of(&bytes).to_string();
    let far = Running::start(&root.path().join("far")).await;
    publish(&far, root.path(), "1", &[&binary]).await;
    // One that does not say the digest of what it sends.
    let silent = Told::does(Does::Sends(ok(bytes.len(), &bytes))).await;
    let note = Note { at: "2026-01-02T03:04:05Z".into(), reason: "a name".into(), by: "a test".into() };
    let paths = [debuginfo(ID), format!("/buildid/{ID}/executable"), format!("/buildid/{ID}/section/.comment")];
    let becomes = async |server: &Running, path: &str, expected: StatusCode| {
        let started = Instant::now();
        while get(server, path).await.unwrap().status() != expected {
            assert!(started.elapsed() < Duration::from_secs(10), "{path} is not {expected}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // What the cache has.
    let data = root.path().join("warm");
    let warm = Running::start_with(&data, &asking(&[far.url("")])).await;
    for path in &paths {
        assert!(get(&warm, path).await.unwrap().bytes().await.unwrap().len() > 4);
    }
    let config = Config::new(&data, ([127, 0, 0, 1], 0).into());
    let tombstones = Tombstones::open(&config).await.unwrap();
    tombstones.take_down(&digest, note.clone()).await.unwrap();
    for path in &paths {
        becomes(&warm, path, StatusCode::NOT_FOUND).await;
    }
    tombstones.lift(&digest).await.unwrap();
    becomes(&warm, &paths[0], StatusCode::OK).await;
    // What it has not: where the other server says what it sends nothing of it goes out, else not the whole of it, and once.
    for (name, url, first) in
        [("cold", far.url(""), StatusCode::NOT_FOUND), ("silent", silent.url.clone(), StatusCode::OK)]
    {
        let data = root.path().join(name);
        std::fs::create_dir(&data).unwrap();
        let config = Config::new(&data, ([127, 0, 0, 1], 0).into());
        Tombstones::open(&config).await.unwrap().take_down(&digest, note.clone()).await.unwrap();
        let cold = Running::start_with(&data, &asking(&[url])).await;
        let answer = get(&cold, &debuginfo(ID)).await.unwrap();
        assert_eq!(answer.status(), first, "{name}");
        if first == StatusCode::OK {
            assert!(answer.bytes().await.is_err(), "it came whole");
        }
        becomes(&cold, &debuginfo(ID), StatusCode::NOT_FOUND).await;
        cold.stop().await;
    }
    assert_eq!(silent.asked(), 1);
}
