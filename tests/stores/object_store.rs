//! One server on an object store: what it stored is there, whatever becomes of its directory; and it goes on as far as it can
//! while the object store is away.

use crate::objects::{ObjectServer, SECRET, bytes_below};
use crate::program::tool;
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
    assert!(body.contains("the object store s3://") && !body.contains(SECRET), "{body}");
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
    refused.refused(2, &["expected a bucket"]);
    start("http://symbols", &[]).refused(2, &["blobs", "s3://BUCKET"]);
}
