//! Other servers that send a stripped program for a debug file, or a debug file for the program: who else has what was asked for is asked.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::debuginfod::Debuginfod;
use crate::support::programs::{has, run};
use crate::support::upstreams::{Does, Told, answer_with, asking, compile, ok};
use crate::support::{Running, http};
use reqwest::StatusCode;

const ID: &str = "abcdef03abcdef03abcdef03abcdef03abcdef03";

const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\nConnection: close\r\n\r\nnot found";

async fn get(server: &Running, kind: &str) -> (StatusCode, Vec<u8>) {
    let answer = http().get(server.url(&format!("/buildid/{ID}/{kind}"))).send().await.unwrap();
    (answer.status(), answer.bytes().await.unwrap().to_vec())
}

/// A program with 300 KB that are loaded, its stripped form, and its debug file as binutils and as elfutils make it.
struct Files {
    whole: Vec<u8>,
    stripped: Vec<u8>,
    debug: Vec<u8>,
    debug_of_eu_strip: Option<Vec<u8>>,
}

fn files(folder: &Path) -> Files {
    let source = folder.join("app.c");
    let loaded =
        "static const unsigned char loaded[300000] = {1, 2, 3}; int main(int n, char **v) { return loaded[n]; }\n";
    std::fs::write(&source, loaded).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (whole, stripped, debug, by_elfutils) = (path("app"), path("stripped"), path("app.debug"), path("eu.debug"));
    run("cc", &[source.to_str().unwrap(), "-g", "-o", &whole, &format!("-Wl,--build-id=0x{ID}")]);
    run("strip", &["-o", &stripped, &whole]);
    run("objcopy", &["--only-keep-debug", &whole, &debug]);
    if has("eu-strip") {
        run("eu-strip", &["-f", &by_elfutils, "-o", &path("eu.stripped"), &whole]);
    }
    let read = |path: &str| std::fs::read(path).unwrap();
    let debug_of_eu_strip = std::fs::read(&by_elfutils).ok();
    Files { whole: read(&whole), stripped: read(&stripped), debug: read(&debug), debug_of_eu_strip }
}

async fn sends(bytes: &[u8]) -> Told {
    Told::does(Does::Sends(ok(bytes.len(), bytes))).await
}

#[tokio::test]
async fn a_stripped_program_is_no_debug_file_and_does_not_hide_that_of_elfutils_server() {
    if !has("cc") || !has("objcopy") || !has("debuginfod") || !has("debuginfod-find") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let Files { stripped, debug, .. } = files(root.path());
    let folder = root.path().join("files");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(root.path().join("app.debug"), folder.join("app.debug")).unwrap();
    let debuginfod = Debuginfod::start(&folder, &root.path().join("database")).await;
    // Those who answer first: with a length, and without.
    let quick = [sends(&stripped).await, Told::does(Does::Sends(answer_with("", &stripped))).await];
    let mut upstreams: Vec<String> = quick.iter().map(|told| told.url.clone()).collect();
    upstreams.push(debuginfod.url.clone());
    let near = Running::start_with(&root.path().join("near"), &asking(&upstreams)).await;
    let mut command = Command::new("debuginfod-find");
    command
        .args(["debuginfo", ID])
        .env("DEBUGINFOD_URLS", near.url(""))
        .env("DEBUGINFOD_CACHE_PATH", root.path().join("client"))
        .env("DEBUGINFOD_TIMEOUT", "20");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let found = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read(found.trim()).unwrap() == debug, "the debug file");
    assert_eq!(get(&near, "section/.debug_info").await.0, StatusCode::OK);
    // It is what it is as the program.
    let (status, program) = get(&near, "executable").await;
    assert!(status == StatusCode::OK && program == stripped);
}

#[tokio::test]
async fn who_has_the_other_kind_alone_has_not_what_was_asked_for() {
    if !has("cc") || !has("objcopy") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let files = files(root.path());
    let absent = Told::does(Does::Sends(NOT_FOUND.to_vec())).await;
    let wrong = [("debuginfo", Some(&files.stripped)), ("executable", Some(&files.debug))];
    let wrong = wrong.into_iter().chain([("executable", files.debug_of_eu_strip.as_ref())]);
    for (number, (kind, sent)) in wrong.enumerate() {
        let Some(sent) = sent else { continue };
        let told = sends(sent).await;
        let data = root.path().join(format!("alone-{number}"));
        let near = Running::start_with(&data, &asking(&[told.url.clone(), absent.url.clone()])).await;
        for _ in 0..2 {
            assert_eq!(get(&near, kind).await.0, StatusCode::NOT_FOUND, "{number} {kind}");
        }
        assert_eq!(told.asked(), 1, "{number} {kind}");
        assert_eq!(std::fs::read_dir(data.join("cache")).unwrap().count(), 0);
    }
    // What is both is either, and every form of debug file is one.
    let right =
        [("debuginfo", Some(&files.whole)), ("executable", Some(&files.whole)), ("debuginfo", Some(&files.debug))];
    for (number, (kind, sent)) in right.into_iter().chain([("debuginfo", files.debug_of_eu_strip.as_ref())]).enumerate()
    {
        let Some(sent) = sent else { continue };
        let told = sends(sent).await;
        let near =
            Running::start_with(&root.path().join(format!("right-{number}")), &asking(std::slice::from_ref(&told.url)))
                .await;
        let (status, bytes) = get(&near, kind).await;
        assert!(status == StatusCode::OK && bytes == *sent, "{number} {kind}");
    }
}

/// What was shown of it cannot be taken back; the next one who asks gets another's.
#[tokio::test]
async fn a_file_whose_kind_is_told_by_its_end_alone_is_asked_of_others_the_next_time() {
    if !has("cc") || !has("objcopy") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    // A quarter of a program is loaded, and what follows is no debug information.
    let path = compile(root.path(), "app", ID, 400_000);
    run("objcopy", &["--rename-section", ".debug_noise=.noise", path.to_str().unwrap()]);
    run("strip", &[path.to_str().unwrap()]);
    let odd = std::fs::read(&path).unwrap();
    assert!(odd.len() > 400_000);
    let files = files(root.path());
    let first = sends(&odd).await;
    let later = Told::does(Does::SendsLater(Duration::from_millis(300), ok(files.debug.len(), &files.debug))).await;
    let near = Running::start_with(&root.path().join("near"), &asking(&[first.url.clone(), later.url.clone()])).await;
    let broken = http().get(near.url(&format!("/buildid/{ID}/debuginfo"))).send().await.unwrap();
    assert!(broken.bytes().await.is_err(), "it came whole");
    let (status, bytes) = get(&near, "debuginfo").await;
    assert!(status == StatusCode::OK && bytes == files.debug);
    assert_eq!(first.asked(), 1);
}

#[tokio::test]
async fn what_was_appended_to_a_stripped_program_is_not_taken_for_debug_information() {
    if !has("cc") || !has("objcopy") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let Files { stripped, debug, .. } = files(root.path());
    // As to programs that unpack themselves.
    let appended = [stripped.as_slice(), &[0x5a; 1_000_000]].concat();
    let first = sends(&appended).await;
    let later = Told::does(Does::SendsLater(Duration::from_millis(300), ok(debug.len(), &debug))).await;
    let near = Running::start_with(&root.path().join("near"), &asking(&[first.url.clone(), later.url.clone()])).await;
    let (status, bytes) = get(&near, "debuginfo").await;
    assert!(status == StatusCode::OK && bytes == debug, "{status}");
    assert_eq!(first.asked(), 1);
    // It is what it is as the program.
    let near = Running::start_with(&root.path().join("program"), &asking(std::slice::from_ref(&first.url))).await;
    let (status, bytes) = get(&near, "executable").await;
    assert!(status == StatusCode::OK && bytes == appended, "{status}");
}
