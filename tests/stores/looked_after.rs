//! A store that is scrubbed, rebuilt, backed up and put back.

use std::path::Path;
use std::process::Command;

use crate::objects::ObjectServer;
use crate::program::{RunningServer, command, symseal, tool};
use crate::scene::{ask, breaks, get, id, publish, server, sha256, wait_until};

fn flip(file: &Path, at: usize) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[at] ^= 1;
    std::fs::write(file, bytes).unwrap();
}

fn blob_file(data: &Path, digest: &str) -> std::path::PathBuf {
    let hex = digest.strip_prefix("sha256:").unwrap();
    data.join("blobs/sha256").join(&hex[..2]).join(hex)
}

#[test]
fn scrub_moves_damaged_blobs_aside_and_names_what_is_missing() {
    let Some(_) = tool("curl") else { return };
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let running = RunningServer::start(&data);
    let path = format!("/buildid/{}/debuginfo", id(1));
    publish(root.path(), &running.address, "app", 1);
    publish(root.path(), &running.address, "app", 2);
    let digests =
        [1, 2].map(|release| sha256(&get(&running.address, &format!("/buildid/{}/debuginfo", id(release))).body));
    let place = data.to_str().unwrap();
    // Beside the running server.
    let sound = symseal(["store", "scrub", "--data", place, "--json"]).ok().json();
    assert!(sound["blobs"].as_u64().unwrap() > 4, "{sound}");
    assert_eq!((&sound["damaged"], &sound["missing"]), (&serde_json::json!([]), &serde_json::json!([])));

    flip(&blob_file(&data, &digests[0]), 1000);
    std::fs::remove_file(blob_file(&data, &digests[1])).unwrap();
    let found = symseal(["store", "scrub", "--data", place, "--json"]);
    assert_eq!(found.status, 1, "{}", found.stderr);
    let found = found.json();
    assert_eq!(found["damaged"][0]["digest"], digests[0].as_str());
    let aside = found["damaged"][0]["moved_to"].as_str().unwrap();
    assert_eq!(sha256(&std::fs::read(aside).unwrap()), found["damaged"][0]["found"].as_str().unwrap());
    let missing: Vec<&str> =
        found["missing"].as_array().unwrap().iter().map(|it| it["digest"].as_str().unwrap()).collect();
    assert!(missing.contains(&digests[0].as_str()) && missing.contains(&digests[1].as_str()), "{missing:?}");
    assert!(breaks(&running.address, &path), "damaged bytes are served");
    symseal(["store", "scrub", "--data", place]).refused(1, &[]);
    // It comes again by being pushed.
    publish(root.path(), &running.address, "app", 1);
    assert_eq!(get(&running.address, &path).status, 200);
    symseal(["store", "scrub", "--data", root.path().join("nowhere").to_str().unwrap()]).refused(2, &["nowhere"]);
}

#[test]
fn an_object_store_is_scrubbed_too() {
    let (Some(objects), Some(_)) = (ObjectServer::start(), tool("curl")) else { return };
    let root = tempfile::tempdir().unwrap();
    let blobs = objects.url();
    let running = server(&root.path().join("one"), &["--blobs", &blobs], &objects.environment());
    publish(root.path(), &running.address, "app", 1);
    let path = format!("/buildid/{}/debuginfo", id(1));
    let digest = sha256(&get(&running.address, &path).body);
    drop(running);
    let elsewhere = root.path().join("elsewhere");
    let scrub = || {
        let mut scrub = command("symseal");
        scrub.args(["store", "scrub", "--json", "--blobs", &blobs, "--data"]).arg(&elsewhere);
        crate::program::Ran::from(scrub.envs(objects.environment()).output().unwrap())
    };
    let sound = scrub().ok().json();
    assert!(sound["blobs"].as_u64().unwrap() > 2, "{sound}");
    flip(&objects.blob(&digest), 1000);
    let found = scrub();
    assert_eq!(found.status, 1, "{}", found.stderr);
    assert_eq!(found.json()["damaged"][0]["digest"], digest.as_str());
    assert_eq!(found.json()["missing"][0]["digest"], digest.as_str());
    assert!(!objects.blob(&digest).exists());
    assert!(objects.file(&format!("damaged/{}", digest.replace(':', "-"))).exists());
    let running = server(&root.path().join("two"), &["--blobs", &blobs], &objects.environment());
    assert!(breaks(&running.address, &path));
    // Whoever pushes it again heals it.
    publish(root.path(), &running.address, "app", 1);
    assert_eq!(get(&running.address, &path).status, 200);
    assert!(objects.blob(&digest).exists());
}

#[test]
fn a_copy_of_a_running_server_serves_the_same_elsewhere() {
    let Some(_) = tool("curl") else { return };
    let root = tempfile::tempdir().unwrap();
    let (data, copy) = (root.path().join("data"), root.path().join("copy"));
    let running = RunningServer::start(&data);
    publish(root.path(), &running.address, "app", 1);
    std::fs::create_dir(&copy).unwrap();
    std::thread::scope(|scope| {
        let pushing = scope.spawn(|| {
            for release in 2..6 {
                publish(root.path(), &running.address, "app", release);
            }
        });
        wait_until("a push is under way", || get(&running.address, "/v2/app/manifests/2").status == 200);
        // What is said first, then the bytes: what was said before has its bytes.
        for folder in ["repositories", "traces", "blobs"] {
            let copied = Command::new("cp").arg("-a").arg(data.join(folder)).arg(&copy).output().unwrap();
            let stderr = String::from_utf8_lossy(&copied.stderr).into_owned();
            // Uploads end while they are copied: they are no part of a backup.
            let others = stderr.lines().filter(|line| !line.contains("_uploads") && !line.contains("/.new"));
            assert_eq!(others.collect::<Vec<_>>(), [""; 0]);
        }
        pushing.join().unwrap();
    });
    symseal(["store", "scrub", "--data", copy.to_str().unwrap()]).ok();
    let restored = RunningServer::start(&copy);
    let tags = get(&restored.address, "/v2/app/tags/list").json();
    let tags: Vec<&str> = tags["tags"].as_array().unwrap().iter().map(|tag| tag.as_str().unwrap()).collect();
    assert!(tags.contains(&"1") && tags.contains(&"2"), "{tags:?}");
    for tag in tags {
        for path in [
            format!("/v2/app/manifests/{tag}"),
            format!("/buildid/{}/debuginfo", id(tag.parse().unwrap())),
            format!("/buildid/{}/section/.debug_info", id(tag.parse().unwrap())),
        ] {
            let (there, here) = (get(&running.address, &path), get(&restored.address, &path));
            assert!(here.status == 200 && here.body == there.body, "{path}: {}", here.status);
        }
    }
    drop(restored);

    // The record is made again from the blobs.
    let place = copy.to_str().unwrap();
    let rebuilt = symseal(["store", "rebuild", "--data", place, "--json"]).ok().json();
    assert!(rebuilt["bundles"].as_u64().unwrap() >= 2 && rebuilt["ids"].as_u64().unwrap() >= 2, "{rebuilt}");
    let restored = RunningServer::start(&copy);
    let digest =
        ask(&restored.address, "/v2/app/manifests/1", &["--head"]).header("docker-content-digest")[0].to_owned();
    assert_eq!(get(&restored.address, &format!("/api/v1/bundles/{digest}")).json()["name"], "app");
    symseal(["store", "rebuild", "--data", place]).refused(2, &["another server uses"]);
}

/// What the manifests of a copy name is lost to nobody, in whatever order it was made.
#[test]
fn a_copy_without_the_links_of_its_blobs_keeps_the_bytes_and_offers_them_again() {
    let Some(_) = tool("curl") else { return };
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let running = RunningServer::start(&data);
    publish(root.path(), &running.address, "app", 1);
    let manifest = get(&running.address, "/v2/app/manifests/1").json();
    let child = manifest["manifests"][0]["digest"].as_str().unwrap().to_owned();
    let layers = get(&running.address, &format!("/v2/app/manifests/{child}")).json()["layers"].clone();
    let blob = layers[0]["digest"].as_str().unwrap().to_owned();
    let other = sha256(&get(&running.address, &format!("/buildid/{}/executable", id(1))).body);
    drop(running);
    let place = data.to_str().unwrap();
    let said = |kind: &str, digest: &str| {
        data.join("repositories/app").join(kind).join("sha256").join(digest.strip_prefix("sha256:").unwrap())
    };
    std::fs::remove_dir_all(data.join("repositories/app/_blobs")).unwrap();
    let unlinked = symseal(["store", "scrub", "--data", place, "--json"]);
    assert_eq!(unlinked.status, 1, "{}", unlinked.stderr);
    let unlinked = unlinked.json()["unlinked"].to_string();
    assert!(unlinked.contains(&blob), "{unlinked}");
    symseal(["store", "scrub", "--data", place]).refused(1, &[]);
    let gone = symseal(["store", "gc", "--data", place, "--grace", "0s", "--json"]).ok().json();
    assert_eq!(gone["blobs"], 0, "{gone}");

    // One manifest is not said to be here either.
    std::fs::remove_file(said("_manifests", &child)).unwrap();
    let running = RunningServer::start(&data);
    for path in [
        format!("/v2/app/blobs/{blob}"),
        format!("/v2/app/manifests/{child}"),
        format!("/buildid/{}/debuginfo", id(1)),
        format!("/buildid/{}/executable", id(1)),
    ] {
        assert_eq!(get(&running.address, &path).status, 200, "{path}");
    }
    drop(running);
    symseal(["store", "scrub", "--data", place]).ok();

    std::fs::remove_file(said("_blobs", &blob)).unwrap();
    std::fs::remove_file(blob_file(&data, &other)).unwrap();
    let rebuilt = symseal(["store", "rebuild", "--data", place, "--json"]).ok().json();
    assert_eq!((&rebuilt["linked"], &rebuilt["lost"]), (&1.into(), &1.into()), "{rebuilt}");
}

/// As docs/operating.md describes it.
#[test]
fn a_directory_that_is_copied_to_a_bucket_is_the_same_store_with_what_was_taken_down() {
    let (Some(objects), Some(_)) = (ObjectServer::start(), tool("curl")) else { return };
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let running = RunningServer::start(&data);
    let [gone, kept] = [1, 2].map(|release| publish(root.path(), &running.address, "app", release));
    let place = data.to_str().unwrap();
    symseal(["store", "takedown", &gone, "--reason", "ticket 1", "--data", place]).ok();
    symseal(["store", "pin", &kept, "--reason", "shipped", "--data", place]).ok();
    drop(running);
    let bucket = objects.file("");
    std::fs::create_dir_all(&bucket).unwrap();
    for folder in ["blobs", "repositories", "traces", "tombstones", "pins"] {
        let mut copy = Command::new("cp");
        let copied = copy.arg("-r").arg(data.join(folder)).arg(&bucket).status().unwrap();
        assert!(copied.success(), "{folder}");
    }
    let running = server(&root.path().join("cache"), &["--blobs", &objects.url()], &objects.environment());
    let status = |path: &str| get(&running.address, path).status;
    assert_eq!([&gone, &kept].map(|digest| status(&format!("/v2/app/manifests/{digest}"))), [404, 200]);
    assert_eq!([1, 2].map(|release| status(&format!("/buildid/{}/debuginfo", id(release)))), [404, 200]);
    let delete = ask(&running.address, &format!("/v2/app/manifests/{kept}"), &["--request", "DELETE"]);
    assert_eq!(delete.status, 405, "it is pinned");
}

#[test]
fn a_start_tells_of_tombstones_that_were_lost() {
    let Some(_) = tool("curl") else { return };
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let running = RunningServer::start(&data);
    let [lost, lifted] = [1, 2].map(|release| publish(root.path(), &running.address, "app", release));
    let place = data.to_str().unwrap();
    for digest in [&lost, &lifted] {
        symseal(["store", "takedown", digest, "--reason", "ticket 1", "--data", place]).ok();
    }
    symseal(["store", "takedown", &lifted, "--lift", "--data", place]).ok();
    drop(running);
    std::fs::remove_dir_all(data.join("tombstones")).unwrap();
    let log = root.path().join("log");
    let mut serve = command("symseal");
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data", place]).stdout(std::process::Stdio::null());
    let mut serving = serve.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    let told = || std::fs::read_to_string(&log).unwrap();
    wait_until("it is told", || told().contains("no tombstone does"));
    serving.kill().unwrap();
    serving.wait().unwrap();
    let told = told();
    assert!(told.contains(&lost) && !told.contains(&lifted), "{told}");
}
