//! A server, or the database, dies between a change of the bucket and the row that tells of it: the servers come to the same all the same.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::program::symseal;
use crate::replicas::Scene;
use crate::scene::{ask, get, id, publish, sha256, wait_until};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Pushes a blob; the status.
fn push(address: &str, repository: &str, bytes: &str) -> u16 {
    let begun = ask(address, &format!("/v2/{repository}/blobs/uploads/"), &["--request", "POST", "--data", ""]);
    let location = begun.header("location")[0].to_owned();
    let put = ["--request", "PUT", "--data-binary", bytes];
    ask(address, &format!("{location}?digest={}", sha256(bytes.as_bytes())), &put).status
}

/// A manifest of one layer, which is in the repository.
fn manifest(address: &str, repository: &str, layer: &str) -> String {
    for bytes in ["{}", layer] {
        assert_eq!(push(address, repository, bytes), 201);
    }
    let part = |media_type: &str, bytes: &str| json!({ "mediaType": media_type, "digest": sha256(bytes.as_bytes()), "size": bytes.len() });
    let layer = part("application/octet-stream", layer);
    let config = part("application/vnd.oci.empty.v1+json", "{}");
    json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer] }).to_string()
}

fn manifest_path(repository: &str, manifest: &str) -> String {
    format!("/v2/{repository}/manifests/{}", sha256(manifest.as_bytes()))
}

fn put_manifest(address: &str, repository: &str, manifest: &str) -> u16 {
    let media_type = format!("Content-Type: {MANIFEST}");
    let put = ["--request", "PUT", "--header", &media_type, "--data-binary", manifest];
    ask(address, &manifest_path(repository, manifest), &put).status
}

fn head(address: &str, path: &str) -> u16 {
    ask(address, path, &["--head"]).status
}

/// Does something in the database whenever a change is told whose key is like this.
fn on_telling(scene: &Scene, like: &str, act: &str) {
    scene.ask("CREATE SEQUENCE IF NOT EXISTS told");
    scene.ask("ALTER SEQUENCE told RESTART");
    scene.ask(&format!(
        "CREATE OR REPLACE FUNCTION telling() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF NEW.key LIKE '{like}' THEN {act} END IF; RETURN NEW;
         END $$"
    ));
    scene.ask("DROP TRIGGER IF EXISTS telling ON changes");
    scene.ask("CREATE TRIGGER telling BEFORE INSERT ON changes FOR EACH ROW EXECUTE FUNCTION telling()");
}

fn on_telling_nothing(scene: &Scene) {
    scene.ask("DROP TRIGGER telling ON changes");
}

const FAIL: &str = "RAISE EXCEPTION 'told to fail';";

/// Only the first time.
const FAIL_ONCE: &str = "IF nextval('told') = 1 THEN RAISE EXCEPTION 'told to fail'; END IF;";

/// Kills the first server when it has written a manifest and the database is about to be told of it.
fn die_over(scene: &mut Scene, manifest: &str) {
    on_telling(scene, "%/_manifests/%", "PERFORM pg_sleep(600);");
    let url = format!("http://{}{}", scene.address(0), manifest_path("app", manifest));
    let mut putting = Command::new("curl");
    putting.args(["--silent", "--request", "PUT", "--header", &format!("Content-Type: {MANIFEST}")]);
    putting.args(["--data-binary", manifest, &url]).stdout(Stdio::null());
    let mut putting = putting.spawn().unwrap();
    let sleeping = "FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";
    let count = format!("SELECT count(*) {sleeping}");
    wait_until("the database is told", || scene.ask(&count) == "1");
    scene.kill(0);
    putting.wait().unwrap();
    scene.ask(&format!("SELECT pg_terminate_backend(pid) {sleeping}"));
    wait_until("it is not", || scene.ask(&count) == "0");
    on_telling_nothing(scene);
}

#[test]
fn what_a_server_wrote_that_was_killed_before_it_told_of_it_all_have_or_none() {
    let Some(mut scene) = Scene::with(&["--gc-interval", "0s"]) else { return };
    let (one, two) = (scene.address(0), scene.address(1));
    let first = manifest(&one, "app", "first");
    die_over(&mut scene, &first);
    scene.start(0);
    // A client that asks first does not push it again.
    assert_eq!(head(&one, &manifest_path("app", &first)), 200);
    assert_eq!(head(&two, &manifest_path("app", &first)), 200);

    // The others tell of it where the server does not come back, once nothing of its can be on the way.
    let second = manifest(&one, "app", "second");
    die_over(&mut scene, &second);
    assert_eq!(head(&two, &manifest_path("app", &second)), 404);
    scene.ask("UPDATE intents SET at = at - interval '50 seconds'");
    wait_until("it is told", || head(&two, &manifest_path("app", &second)) == 200);
    assert_eq!(scene.ask("SELECT count(*) FROM intents"), "0");
    scene.start(0);
    assert_eq!(head(&one, &manifest_path("app", &second)), 200);
}

#[test]
fn a_blob_of_which_the_database_would_not_be_told_all_servers_have_in_the_end() {
    let Some(mut scene) = Scene::with(&["--gc-interval", "0s"]) else { return };
    let (one, two) = (scene.address(0), scene.address(1));
    let path = |bytes: &str| format!("/v2/app/blobs/{}", sha256(bytes.as_bytes()));
    on_telling(&scene, "%/_blobs/%", FAIL_ONCE);
    assert_eq!(push(&one, "app", "restarted"), 503);
    scene.kill(0);
    scene.start(0);
    assert_eq!(head(&one, &path("restarted")), 200);
    assert_eq!(head(&two, &path("restarted")), 200);

    // By itself, too.
    on_telling(&scene, "%/_blobs/%", FAIL_ONCE);
    assert_eq!(push(&one, "app", "running"), 503);
    for server in [&one, &two] {
        wait_until("it is told again", || head(server, &path("running")) == 200);
    }
    // And whoever tries again need not wait for that.
    on_telling(&scene, "%/_blobs/%", FAIL_ONCE);
    assert_eq!(push(&one, "app", "again"), 503);
    assert_eq!(push(&one, "app", "again"), 201);
    assert_eq!(head(&two, &path("again")), 200);
    scene.ask("UPDATE intents SET at = at - interval '1 minute'");
    wait_until("nothing is left to tell", || scene.ask("SELECT count(*) FROM intents") == "0");
}

#[test]
fn a_deletion_of_which_the_database_would_not_be_told_all_servers_see_in_the_end() {
    let Some(mut scene) = Scene::with(&["--gc-interval", "0s"]) else { return };
    let (one, two) = (scene.address(0), scene.address(1));
    for (release, restarts) in [(1, true), (2, false)] {
        let digest = publish(scene.root.path(), &one, "team/app", release);
        let (manifest, file) =
            (format!("/v2/team/app/manifests/{digest}"), format!("/buildid/{}/debuginfo", id(release)));
        for server in [&one, &two] {
            assert_eq!((get(server, &manifest).status, get(server, &file).status), (200, 200));
        }
        on_telling(&scene, &format!("%/_manifests/{}", digest.replace(':', "/")), FAIL_ONCE);
        assert_eq!(ask(&one, &manifest, &["--request", "DELETE"]).status, 503);
        if restarts {
            scene.kill(0);
            scene.start(0);
            assert_eq!(ask(&one, &manifest, &["--request", "DELETE"]).status, 404);
        }
        for server in [&one, &two] {
            wait_until("the manifest goes", || get(server, &manifest).status == 404);
            wait_until("the file goes", || get(server, &file).status == 404);
        }
    }
}

/// Counts the times that the record of a bundle changes.
fn count_records(scene: &Scene) {
    scene.ask("CREATE SEQUENCE recorded");
    scene.ask(
        "CREATE FUNCTION recording() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             PERFORM nextval('recorded'); RETURN NULL;
         END $$",
    );
    scene.ask(
        "CREATE TRIGGER recording AFTER INSERT OR UPDATE OR DELETE ON symbol_bundles
         FOR EACH ROW EXECUTE FUNCTION recording()",
    );
}

/// What the database does not take when it is told of it, the servers hear of later, and whoever changed it has recorded nothing.
#[test]
fn what_is_recorded_of_a_bundle_follows_a_change_that_was_told_late_and_once() {
    let Some(scene) = Scene::with(&["--gc-interval", "0s"]) else { return };
    let (one, two) = (scene.address(0), scene.address(1));
    let digest = publish(scene.root.path(), &one, "team/app", 1);
    let at = |name: &str| scene.root.path().join(name).to_str().unwrap().to_owned();
    symseal(["key", "generate", "--output", &at("keys")]).ok();
    let layout = at("release-1/layout");
    symseal(["bundle", "seal", &layout, "--key", &at("keys/artifact.key.pem"), "--log", &at("log")]).ok();
    symseal(["bundle", "push", &layout, &format!("{one}/team/app:1")]).ok();
    let referrers = get(&one, &format!("/v2/team/app/referrers/{digest}")).json();
    let seal = referrers["manifests"][0]["digest"].as_str().unwrap().to_owned();
    let seal_path = format!("/v2/team/app/manifests/{seal}");
    let manifest = get(&two, &seal_path);
    let media_type = format!("Content-Type: {}", manifest.header("content-type")[0]);
    let body = String::from_utf8(manifest.body).unwrap();
    let of_bundle = |what: &str| scene.ask(&format!("SELECT {what} FROM symbol_bundles WHERE sha256 = '{digest}'"));
    let layer = serde_json::from_str::<serde_json::Value>(&body).unwrap()["layers"][0]["digest"].clone();
    assert_eq!(json!(of_bundle("seal_digest")), layer);
    count_records(&scene);

    // A seal that goes, and one that comes.
    let put = ["--request", "PUT", "--header", &media_type, "--data-binary", &body];
    for (change, has_one) in [(&["--request", "DELETE"][..], "f"), (&put, "t")] {
        scene.ask("ALTER SEQUENCE recorded RESTART");
        on_telling(&scene, &format!("%/_manifests/{}", seal.replace(':', "/")), FAIL_ONCE);
        assert_eq!(ask(&one, &seal_path, change).status, 503);
        wait_until("it is recorded", || of_bundle("seal_digest IS NOT NULL") == has_one);
        let shown = get(&two, &format!("/api/v1/bundles/{digest}")).json();
        assert_eq!(shown["seal"].is_null(), has_one == "f", "{shown}");
        // Time for the other server to write it, too.
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(scene.ask("SELECT last_value, is_called FROM recorded"), "1|t");
    }

    // A bundle that goes.
    scene.ask("ALTER SEQUENCE recorded RESTART");
    on_telling(&scene, &format!("%/_manifests/{}", digest.replace(':', "/")), FAIL_ONCE);
    let path = format!("/v2/team/app/manifests/{digest}");
    assert_eq!(ask(&one, &path, &["--request", "DELETE"]).status, 503);
    wait_until("it is not recorded", || of_bundle("count(*)") == "0");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(scene.ask("SELECT last_value, is_called FROM recorded"), "1|t");
    assert_eq!(get(&two, &format!("/api/v1/bundles/{digest}")).status, 404);

    // And one that comes, as a server left it that was killed before it recorded it.
    on_telling_nothing(&scene);
    symseal(["bundle", "push", &layout, &format!("{one}/team/app:1")]).ok();
    assert_eq!(json!(of_bundle("seal_digest")), layer);
}

#[test]
fn collection_goes_on_where_nobody_told_of_something_and_takes_it_over() {
    let Some(mut scene) = Scene::with(&["--gc-interval", "1s", "--gc-grace", "2s"]) else { return };
    let (one, two) = (scene.address(0), scene.address(1));
    let untold = manifest(&one, "app", "layer");
    on_telling(&scene, "%/_manifests/%", FAIL);
    assert_eq!(put_manifest(&one, "app", &untold), 503);
    // As a server left it that announced nothing.
    scene.kill(0);
    scene.ask("DELETE FROM intents");
    on_telling_nothing(&scene);
    let idle = "of no manifest";
    assert_eq!(push(&two, "app", idle), 201);
    let started = Instant::now();
    while scene.objects.blob(&sha256(idle.as_bytes())).exists() {
        assert!(started.elapsed() < Duration::from_secs(120), "it is not collected");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(head(&two, &manifest_path("app", &untold)), 200);
    assert_eq!(get(&two, &format!("/v2/app/blobs/{}", sha256(b"layer"))).status, 200);
    scene.start(0);
    assert_eq!(head(&one, &manifest_path("app", &untold)), 200);
}
