//! One server on an object store: what it stored is there, whatever becomes of its directory; and it goes on as far as it can
//! while the object store is away.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use crate::gate::{Blobs, Gate};
use crate::objects::{ObjectServer, SECRET, bytes_below};
use crate::program::{command, tool};
use crate::scene::{Oras, ask, breaks, get, id, noise, publish, server, sha256, wait_until};

#[test]
fn an_empty_directory_becomes_the_same_server_again() {
    let (Some(objects), Some(_)) = (ObjectServer::start(), tool("curl")) else { return };
    let root = tempfile::tempdir().unwrap();
    let (first, second) = (root.path().join("first"), root.path().join("second"));
    let blobs = objects.url();
    let (more, environment) = (["--blobs", blobs.as_str()], objects.environment());
    let running = server(&first, &more, &environment);
    let digest = publish(root.path(), &running.address, "team/app", 1);
    let paths = [
        format!("/buildid/{}/debuginfo", id(1)),
        format!("/buildid/{}/section/.text", id(1)),
        format!("/v2/team/app/manifests/{digest}"),
        "/v2/team/app/manifests/1".to_owned(),
        "/v2/team/app/tags/list".to_owned(),
        "/v2/_catalog".to_owned(),
    ];
    let before: Vec<Vec<u8>> = paths.iter().map(|path| get(&running.address, path).body).collect();
    // Larger than one request of S3 takes here: it goes in parts.
    let large = noise((20 << 20) + 5, 1);
    let file = root.path().join("large");
    std::fs::write(&file, &large).unwrap();
    let large_digest = sha256(&large);
    let upload = format!("/v2/team/app/blobs/uploads/?digest={large_digest}");
    let sent = ask(&running.address, &upload, &["--request", "POST", "--data-binary", &format!("@{}", file.display())]);
    assert_eq!(sent.status, 201, "{sent:?}");
    assert_eq!(ask(&running.address, "/v2/team/app/manifests/1", &["--request", "DELETE"]).status, 202);
    drop(running);

    let running = server(&second, &more, &environment);
    for (path, before) in paths.iter().zip(&before) {
        let after = get(&running.address, path);
        match path.as_str() {
            "/v2/team/app/manifests/1" => assert_eq!(after.status, 404),
            "/v2/team/app/tags/list" => assert_eq!(after.json()["tags"], serde_json::json!([])),
            _ => assert!(after.status == 200 && after.body == *before, "{path}: {}", after.status),
        }
    }
    assert_eq!(get(&running.address, "/readyz").status, 200);
    let large_again = get(&running.address, &format!("/v2/team/app/blobs/{large_digest}"));
    assert!(large_again.status == 200 && large_again.body == large);
    let part = ask(&running.address, &format!("/v2/team/app/blobs/{large_digest}"), &["--range", "5-8"]);
    assert!(part.status == 206 && part.body == large[5..9]);
    // What the object store says is all there is.
    assert!(!second.join("repositories/team/app/_tags").exists());
}

#[test]
fn a_server_goes_on_as_far_as_it_can_while_the_object_store_is_away() {
    let (Some(mut objects), Some(_)) = (ObjectServer::start(), tool("curl")) else { return };
    let root = tempfile::tempdir().unwrap();
    let blobs = objects.url();
    let (more, environment) = (["--blobs", blobs.as_str()], objects.environment());
    let writer = server(&root.path().join("writer"), &more, &environment);
    let digest = publish(root.path(), &writer.address, "app", 1);
    publish(root.path(), &writer.address, "app", 2);
    let (here, elsewhere) = (format!("/buildid/{}/debuginfo", id(1)), format!("/buildid/{}/debuginfo", id(2)));
    let blob_of = |path: &str| {
        let answer = get(&writer.address, path);
        sha256(&answer.body)
    };
    let elsewhere_blob = blob_of(&elsewhere);
    drop(writer);
    // The first file is cached by being asked for, the second is in the object store alone.
    let running = server(&root.path().join("reader"), &more, &environment);
    assert_eq!(get(&running.address, &here).status, 200);

    objects.stop();
    assert_eq!(get(&running.address, &here).status, 200);
    assert_eq!(get(&running.address, &format!("/v2/app/manifests/{digest}")).status, 200);
    assert!(breaks(&running.address, &elsewhere), "a debugger would take an answer for \"there is no such file\"");
    let away = get(&running.address, &format!("/v2/app/blobs/{elsewhere_blob}"));
    assert_eq!((away.status, away.header("retry-after")), (503, vec!["5"]), "{away:?}");
    let body = String::from_utf8_lossy(&away.body).into_owned();
    // What it is, and where, is the log's.
    let names_nothing = !body.contains("s3://") && !body.contains(SECRET);
    assert!(body.contains("the server's store does not answer") && names_nothing, "{body}");
    let upload = format!("/v2/app/blobs/uploads/?digest={}", sha256(b"new"));
    let refused = ask(&running.address, &upload, &["--request", "POST", "--data-binary", "new"]);
    assert_eq!((refused.status, refused.header("retry-after")), (503, vec!["5"]), "{refused:?}");
    assert_eq!(get(&running.address, &format!("/v2/app/blobs/{}", sha256(b"new"))).status, 404);
    assert_eq!(get(&running.address, "/readyz").status, 503);
    assert_eq!(get(&running.address, "/healthz").status, 200);
    // What is nowhere is nowhere, whatever is away.
    assert_eq!(get(&running.address, &format!("/buildid/{}/debuginfo", id(3))).status, 404);

    objects.start_again();
    wait_until("the server recovers", || get(&running.address, "/readyz").status == 200);
    assert_eq!(get(&running.address, &elsewhere).status, 200);
    assert_eq!(ask(&running.address, &upload, &["--request", "POST", "--data-binary", "new"]).status, 201);
    publish(root.path(), &running.address, "app", 3);
}

/// One that is stopped takes connections and says nothing, which is worse than one that is gone.
#[test]
fn an_object_store_that_hangs_holds_readers_for_as_long_as_the_operator_says() {
    let (Some(objects), Some(_)) = (ObjectServer::start(), tool("curl")) else { return };
    let root = tempfile::tempdir().unwrap();
    let blobs = objects.url();
    let (more, mut environment) = (["--blobs", blobs.as_str()], objects.environment());
    let writer = server(&root.path().join("writer"), &more, &environment);
    publish(root.path(), &writer.address, "app", 1);
    let path = format!("/buildid/{}/debuginfo", id(1));
    let digest = sha256(&get(&writer.address, &path).body);
    drop(writer);
    for seconds in [1, 6] {
        let mut environment = environment.clone();
        environment.push(("SYMSEAL_SERVER_S3__SILENCE", format!("{seconds}s")));
        let running = server(&root.path().join(format!("reader-{seconds}")), &more, &environment);
        assert_eq!(get(&running.address, "/readyz").status, 200);
        objects.hang(true);
        // As long as it was said, and of six seconds not twice as long.
        let silence = Duration::from_secs(seconds);
        let took = |asked: Instant| {
            let took = asked.elapsed();
            assert!(took >= silence && took < silence * 3 / 2 + Duration::from_secs(2), "{seconds} s: {took:?}");
        };
        let asked = Instant::now();
        let away = get(&running.address, &format!("/v2/app/blobs/{digest}"));
        assert_eq!((away.status, away.header("retry-after")), (503, vec!["5"]), "{away:?}");
        took(asked);
        std::thread::sleep(Duration::from_millis(1100));
        let asked = Instant::now();
        assert!(breaks(&running.address, &path));
        took(asked);
        objects.hang(false);
    }
    environment.push(("SYMSEAL_SERVER_S3__SILENCE", "1s".to_owned()));
    let running = server(&root.path().join("reader"), &more, &environment);
    assert_eq!(get(&running.address, "/readyz").status, 200);
    objects.hang(true);
    let ready = get(&running.address, "/readyz");
    let body = String::from_utf8_lossy(&ready.body).into_owned();
    assert!(ready.status == 503 && body.contains("object store") && !body.contains("database"), "{body}");
    objects.hang(false);
    wait_until("the server recovers", || get(&running.address, &path).status == 200);
}

#[test]
fn the_cache_stays_within_its_bound_and_evicted_files_come_again() {
    let (Some(objects), Some(_)) = (ObjectServer::start(), tool("curl")) else { return };
    let root = tempfile::tempdir().unwrap();
    let Some(oras) = Oras::new(root.path()) else { return };
    let blobs = objects.url();
    let mut environment = objects.environment();
    environment.push(("SYMSEAL_SERVER_S3__CACHE_MIB", "3".to_owned()));
    let data = root.path().join("data");
    let running = server(&data, &["--blobs", &blobs], &environment);
    let files: Vec<(String, Vec<u8>)> = (1..9).map(|seed| (format!("file-{seed}"), noise(1 << 20, seed))).collect();
    for (name, bytes) in &files {
        std::fs::write(root.path().join(name), bytes).unwrap();
    }
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    oras.push(&format!("{}/app:1", running.address), &names);
    assert!(bytes_below(&data.join("blobs")) <= 3 << 20);
    // Eight at once of each, most of which are in the object store alone.
    std::thread::scope(|scope| {
        for reader in 0..8 {
            let (files, running) = (&files, &running);
            scope.spawn(move || {
                for turn in 0..files.len() {
                    let (name, bytes) = &files[(turn + reader / 4) % files.len()];
                    let answer = get(&running.address, &format!("/v2/app/blobs/{}", sha256(bytes)));
                    assert!(answer.status == 200 && answer.body == *bytes, "{name}: {}", answer.status);
                }
            });
        }
    });
    assert!(bytes_below(&data.join("blobs")) <= 3 << 20);
}

/// Pushes bytes as a blob; its path.
#[track_caller]
fn push_blob(folder: &std::path::Path, address: &str, bytes: &[u8]) -> String {
    let file = folder.join("blob-to-push");
    std::fs::write(&file, bytes).unwrap();
    let digest = sha256(bytes);
    let upload = format!("/v2/app/blobs/uploads/?digest={digest}");
    let sent = ask(address, &upload, &["--request", "POST", "--data-binary", &format!("@{}", file.display())]);
    assert_eq!(sent.status, 201, "{sent:?}");
    format!("/v2/app/blobs/{digest}")
}

#[test]
fn a_blob_that_is_larger_than_the_cache_is_served() {
    let (Some(objects), Some(_)) = (ObjectServer::start(), tool("curl")) else { return };
    let root = tempfile::tempdir().unwrap();
    let blobs = objects.url();
    let mut environment = objects.environment();
    environment.push(("SYMSEAL_SERVER_S3__CACHE_MIB", "3".to_owned()));
    let files = [noise(4 << 20, 1), noise(5 << 20, 2), noise(1 << 20, 3)];
    for data in ["one", "two"].map(|name| root.path().join(name)) {
        let running = server(&data, &["--blobs", &blobs], &environment);
        let paths: Vec<String> = if data.ends_with("one") {
            files.iter().map(|bytes| push_blob(root.path(), &running.address, bytes)).collect()
        } else {
            files.iter().map(|bytes| format!("/v2/app/blobs/{}", sha256(bytes))).collect()
        };
        for _ in 0..2 {
            for (path, bytes) in paths.iter().zip(&files) {
                let answer = get(&running.address, path);
                assert!(answer.status == 200 && answer.body == *bytes, "{}: {}", bytes.len(), answer.status);
            }
        }
        // The one that was used last may be larger than all may be together.
        assert!(bytes_below(&data.join("blobs")) <= 5 << 20);
    }
}

#[test]
fn a_start_that_cannot_read_what_is_there_fails_and_hides_nothing() {
    let (Some(objects), Some(_)) = (ObjectServer::start(), tool("curl")) else { return };
    let root = tempfile::tempdir().unwrap();
    let (gate, blobs) = (Gate::before(objects.port), objects.url());
    let environment = ObjectServer::environment_at(gate.port);
    let writer = server(&root.path().join("writer"), &["--blobs", &blobs], &environment);
    let digest = publish(root.path(), &writer.address, "app", 1);
    drop(writer);
    // Facts are listed and read; the manifests are not to be had.
    gate.let_blobs(Blobs::Break);
    let data = root.path().join("reader");
    let mut starting = command("symseal")
        .args(["serve", "--listen", "127.0.0.1:0", "--blobs", &blobs, "--data"])
        .arg(&data)
        .envs(environment.iter().cloned())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let status = loop {
        match starting.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if started.elapsed() > Duration::from_secs(20) => break None,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    starting.kill().unwrap();
    starting.wait().unwrap();
    let mut said = String::new();
    starting.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(status.is_some_and(|status| status.code() == Some(2)) && said.contains("does not answer"), "{said}");

    gate.let_blobs(Blobs::Pass);
    let running = server(&data, &["--blobs", &blobs], &environment);
    assert_eq!(get(&running.address, &format!("/v2/app/manifests/{digest}")).status, 200);
    assert_eq!(get(&running.address, &format!("/buildid/{}/debuginfo", id(1))).status, 200);
}

#[test]
fn a_start_with_nothing_cached_asks_the_bucket_for_many_things_at_once() {
    const HELD: Duration = Duration::from_millis(50);
    let (Some(objects), Some(_)) = (ObjectServer::start(), tool("curl")) else { return };
    let root = tempfile::tempdir().unwrap();
    let (gate, blobs) = (Gate::before(objects.port), objects.url());
    let environment = ObjectServer::environment_at(gate.port);
    let writer = server(&root.path().join("writer"), &["--blobs", &blobs], &environment);
    for release in 1..=12 {
        publish(root.path(), &writer.address, ["app", "team/app"][usize::from(release) % 2], release);
    }
    drop(writer);
    gate.hold(HELD);
    // What the writer asked for does not count.
    gate.requests();
    gate.most_held();
    let running = server(&root.path().join("reader"), &["--blobs", &blobs], &environment);
    let (requests, at_once) = (gate.requests(), gate.most_held());
    assert!(requests > 60 && at_once >= 4, "{requests} requests, at most {at_once} at once");
    gate.hold(Duration::ZERO);
    for release in 1..=12 {
        assert_eq!(get(&running.address, &format!("/buildid/{}/debuginfo", id(release))).status, 200);
    }
}

#[test]
fn many_who_wait_for_one_blob_hold_up_nobody_else() {
    let (Some(objects), Some(_)) = (ObjectServer::start(), tool("curl")) else { return };
    let root = tempfile::tempdir().unwrap();
    let (gate, blobs) = (Gate::before(objects.port), objects.url());
    let environment = ObjectServer::environment_at(gate.port);
    let writer = server(&root.path().join("writer"), &["--blobs", &blobs], &environment);
    let (cold, warm) = (noise(2 << 20, 1), noise(10_000, 2));
    let paths = [&cold, &warm].map(|bytes| push_blob(root.path(), &writer.address, bytes));
    drop(writer);
    let running = server(&root.path().join("reader"), &["--blobs", &blobs], &environment);
    assert!(get(&running.address, &paths[1]).body == warm);

    gate.let_blobs(Blobs::Wait);
    // More than there are places for work.
    let waiting: Vec<TcpStream> = (0..160)
        .map(|_| {
            let mut client = TcpStream::connect(&running.address).unwrap();
            write!(client, "GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", paths[0]).unwrap();
            client
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let quick = ask(&running.address, &paths[1], &["--max-time", "5"]);
    assert!(quick.status == 200 && quick.body == warm, "{}", quick.status);
    gate.let_blobs(Blobs::Pass);
    for mut client in waiting {
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200") && answer.ends_with(&cold));
    }
}

#[test]
fn abandoned_uploads_are_ended_behind_an_object_store_too() {
    let (Some(objects), Some(_)) = (ObjectServer::start(), tool("curl")) else { return };
    let root = tempfile::tempdir().unwrap();
    let blobs = objects.url();
    let data = root.path().join("data");
    let running = server(&data, &["--blobs", &blobs, "--gc-interval", "1s"], &objects.environment());
    let begin = || {
        let begun = ask(&running.address, "/v2/app/blobs/uploads/", &["--request", "POST", "--data", ""]);
        begun.header("location")[0].to_owned()
    };
    let (old, new) = (begin(), begin());
    let file = data.join("repositories/app/_uploads").join(old.rsplit('/').next().unwrap());
    let long_ago = SystemTime::now() - Duration::from_secs(2 * 24 * 3600);
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(long_ago).unwrap();
    wait_until("the abandoned one ends", || get(&running.address, &old).status == 404);
    assert!(!file.exists());
    assert_eq!(get(&running.address, &new).status, 204);
}

#[test]
fn damaged_bytes_in_the_object_store_are_never_served() {
    let (Some(objects), Some(_)) = (ObjectServer::start(), tool("curl")) else { return };
    let root = tempfile::tempdir().unwrap();
    let blobs = objects.url();
    let (more, environment) = (["--blobs", blobs.as_str()], objects.environment());
    let running = server(&root.path().join("one"), &more, &environment);
    publish(root.path(), &running.address, "app", 1);
    let path = format!("/buildid/{}/debuginfo", id(1));
    let bytes = get(&running.address, &path).body;
    drop(running);
    let file = objects.blob(&sha256(&bytes));
    let mut damaged = bytes.clone();
    damaged[100] ^= 1;
    std::fs::write(&file, &damaged).unwrap();
    let running = server(&root.path().join("two"), &more, &environment);
    assert!(breaks(&running.address, &path));
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    assert!(breaks(&running.address, &path));
    std::fs::write(&file, &bytes).unwrap();
    assert!(get(&running.address, &path).body == bytes);
}

#[test]
fn what_is_wrong_with_an_object_store_is_told_at_the_start() {
    let Some(objects) = ObjectServer::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let data = root.path().to_str().unwrap();
    let start = |blobs: &str, environment: &[(&'static str, String)]| {
        let mut command = crate::program::command("symseal");
        command.args(["serve", "--listen", "127.0.0.1:0", "--data", data, "--blobs", blobs]);
        crate::program::Ran::from(command.envs(environment.iter().cloned()).output().unwrap())
    };
    start("s3://no-such-bucket/x", &objects.environment()).refused(2, &["s3://no-such-bucket/x", "expected a bucket"]);
    let mut wrong = objects.environment();
    wrong.push(("AWS_SECRET_ACCESS_KEY", "another-hunter2".to_owned()));
    let refused = start(&objects.url(), &wrong);
    assert!(!refused.stderr.contains("hunter2"), "{}", refused.stderr);
    refused.refused(2, &["expected a bucket", "refuses this server's credentials"]);
    start("http://symbols", &[]).refused(2, &["blobs", "s3://BUCKET"]);
}

#[test]
fn an_object_store_that_takes_the_credentials_no_longer_is_told_from_one_that_is_away() {
    let (Some(mut objects), Some(_)) = (ObjectServer::start(), tool("curl")) else { return };
    let root = tempfile::tempdir().unwrap();
    let blobs = objects.url();
    let running = server(&root.path().join("data"), &["--blobs", blobs.as_str()], &objects.environment());
    assert_eq!(get(&running.address, "/readyz").status, 200);
    objects.stop();
    objects.secret = "another-hunter2";
    objects.start_again();
    wait_until("the refusal is seen", || {
        let ready = get(&running.address, "/readyz");
        ready.status == 503 && String::from_utf8_lossy(&ready.body).contains("refuses")
    });
    let ready = get(&running.address, "/readyz");
    let body = String::from_utf8_lossy(&ready.body).into_owned();
    assert!(body.contains("credentials") && !body.contains("does not answer"), "{body}");
    assert!(!body.contains("s3://") && !body.contains("hunter2") && !body.contains("127.0.0.1"), "{body}");
    // It passes as an absence with nobody: it is as if the store were away.
    let upload = format!("/v2/app/blobs/uploads/?digest={}", sha256(b"new"));
    let refused = ask(&running.address, &upload, &["--request", "POST", "--data-binary", "new"]);
    assert_eq!((refused.status, refused.header("retry-after")), (503, vec!["5"]), "{refused:?}");
    objects.stop();
    objects.secret = SECRET;
    objects.start_again();
    wait_until("the server recovers", || get(&running.address, "/readyz").status == 200);
}
