//! Files below a directory that is served where it lies, which change while that goes on.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::programs::run;
use crate::support::{Running, http};
use crate::trees::{copy, folders, get, has_tools, looking_hourly, origins, program, text, wait};
use reqwest::StatusCode;
use symseal_bundle::Digest;

/// Who builds into a tree that is served writes to files while they are sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_written_to_while_it_is_sent_is_not_sent_to_its_end() {
    if !has_tools() {
        return;
    }
    let (folder, work, tree) = folders();
    let file = copy(&program(&work, "aaaa0011").whole, tree.join("large"));
    // What follows the last section is nobody's; more than connections hold between two programs.
    let mut bytes = std::fs::read(&file).unwrap();
    bytes.resize(64 << 20, 7);
    let bytes = bytes;
    std::fs::write(&file, &bytes).unwrap();
    let server = looking_hourly(&folder.path().join("data"), &tree).await;
    let (http, path) = (http(), "/buildid/aaaa0011/debuginfo");
    wait(&http, &server, path, StatusCode::OK).await;
    assert!(get(&http, &server, path).await.1 == bytes);

    let before = std::fs::metadata(&file).unwrap().modified().unwrap();
    for is_set_back in [true, false] {
        let mut answer = http.get(server.url(path)).send().await.unwrap();
        assert_eq!(answer.headers()["x-debuginfod-sha256"], Digest::of(&bytes).hex().as_str());
        let mut received = answer.chunk().await.unwrap().unwrap().len();
        let mut other = bytes.clone();
        other[60 << 20] = 8;
        std::fs::write(&file, &other).unwrap();
        let set_back = || std::fs::File::options().write(true).open(&file).unwrap().set_modified(before).unwrap();
        if is_set_back {
            set_back();
        }
        let broken = loop {
            match answer.chunk().await {
                Ok(Some(chunk)) => received += chunk.len(),
                ended => break ended.is_err(),
            }
        };
        assert!(broken && received < bytes.len(), "{received} bytes, its time set back: {is_set_back}");
        // It is another file than the one that was read; what it answers for is not known before the next look.
        assert!(http.get(server.url(path)).send().await.is_err());
        std::fs::write(&file, &bytes).unwrap();
    }
    server.stop().await;
}

/// Clients keep "not found" for ten minutes.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_touched_is_served_still_and_only_what_is_gone_is_not_found() {
    if !has_tools() {
        return;
    }
    let (folder, work, tree) = folders();
    let [plain, packed] = ["aaaa0031", "aaaa0032"].map(|id| program(&work, id));
    let file = copy(&plain.whole, tree.join("plain"));
    let archive = tree.join("packed.tar.gz");
    run("tar", &["-czf", text(&archive), "-C", text(&work), packed.id]);
    let server = looking_hourly(&folder.path().join("data"), &tree).await;
    let http = http();
    let [of_plain, of_packed] = [&plain, &packed].map(|it| format!("/buildid/{}/executable", it.id));
    wait(&http, &server, &of_plain, StatusCode::OK).await;
    let touch = |path: &Path| {
        let later = std::time::SystemTime::now() + Duration::from_secs(100);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(later).unwrap();
    };
    touch(&file);
    touch(&archive);
    for _ in 0..2 {
        assert!(get(&http, &server, &of_plain).await.1 == std::fs::read(&plain.whole).unwrap());
    }
    assert!(get(&http, &server, &of_packed).await.1 == std::fs::read(&packed.whole).unwrap());
    // Other bytes, as many and more.
    let mut other = std::fs::read(&plain.whole).unwrap();
    let last = other.len() - 1;
    other[last] ^= 1;
    for more in [0, 7] {
        other.resize(other.len() + more, 0);
        std::fs::write(&file, &other).unwrap();
        assert!(http.get(server.url(&of_plain)).send().await.is_err());
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(get(&http, &server, &of_plain).await.0, StatusCode::NOT_FOUND);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_written_over_and_whose_time_was_set_back_is_read_again_and_one_with_a_link_more_answers_still()
{
    if !has_tools() {
        return;
    }
    let (folder, work, tree) = folders();
    let [first, second] = ["aaaa0041", "aaaa0042"].map(|id| program(&work, id));
    let file = copy(&first.whole, tree.join("app"));
    let linked = copy(&first.stripped, tree.join("linked"));
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(86_400);
    let set_back =
        |path: &Path| std::fs::File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
    set_back(&file);
    set_back(&linked);
    let server = Running::start_with(&folder.path().join("data"), &origins(&[&tree])).await;
    let http = http();
    let [old, new] = [&first, &second].map(|it| format!("/buildid/{}/debuginfo", it.id));
    wait(&http, &server, &old, StatusCode::OK).await;
    let executable = format!("/buildid/{}/executable", first.id);
    std::fs::hard_link(&linked, folder.path().join("another")).unwrap();
    for _ in 0..20 {
        assert_eq!(get(&http, &server, &executable).await.0, StatusCode::OK, "a file that has one more link");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The ids have as many digits, so that the files have as many bytes.
    let (before, bytes) = (std::fs::metadata(&file).unwrap(), std::fs::read(&second.whole).unwrap());
    assert_eq!(before.len(), bytes.len() as u64);
    std::fs::write(&file, &bytes).unwrap();
    set_back(&file);
    assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), before.modified().unwrap());
    wait(&http, &server, &new, StatusCode::OK).await;
    wait(&http, &server, &old, StatusCode::NOT_FOUND).await;
    server.stop().await;
}

/// As `cp` and `rsync --inplace` do it.
#[tokio::test(flavor = "multi_thread")]
async fn while_a_package_is_written_over_in_its_place_nobody_is_told_that_it_has_nothing() {
    if !has_tools() {
        return;
    }
    let (folder, work, tree) = folders();
    let [stays, goes, comes] = ["aaaa0041", "aaaa0042", "aaaa0043"].map(|id| program(&work, id));
    let (package, new) = (tree.join("packed.tar.gz"), work.join("new.tar.gz"));
    run("tar", &["-czf", text(&package), "-C", text(&work), stays.id, goes.id]);
    run("tar", &["-czf", text(&new), "-C", text(&work), stays.id, comes.id]);
    let new = std::fs::read(&new).unwrap();
    let server = Running::start_with(&folder.path().join("data"), &origins(&[&tree])).await;
    let http = http();
    let [of_stays, of_goes, of_comes] = [&stays, &goes, &comes].map(|it| format!("/buildid/{}/executable", it.id));
    wait(&http, &server, &of_stays, StatusCode::OK).await;
    let mut refused = 0_u32;
    for length in [0, 0, new.len() / 3, new.len() / 2, new.len() - 1] {
        std::fs::write(&package, &new[..length]).unwrap();
        let written = Instant::now();
        // Several scans long.
        while written.elapsed() < Duration::from_millis(700) {
            for path in [&of_stays, &of_goes] {
                match http.get(server.url(path)).send().await {
                    Ok(answer) => assert_eq!(answer.status(), StatusCode::OK, "{path} at {length} bytes"),
                    Err(_) => refused += 1,
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    assert!(refused > 0, "nothing was asked for while it could not be had");
    std::fs::write(&package, &new).unwrap();
    wait(&http, &server, &of_comes, StatusCode::OK).await;
    assert!(get(&http, &server, &of_stays).await.1 == std::fs::read(&stays.whole).unwrap());
    assert_eq!(get(&http, &server, &of_goes).await.0, StatusCode::NOT_FOUND);
    server.stop().await;
}
