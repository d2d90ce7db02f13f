//! A database that is put back to an earlier state, below servers that share a bucket.

use std::collections::BTreeSet;

use serde_json::json;

use crate::replicas::Scene;
use crate::scene::{ask, get, id, publish, sha256, wait_until};

#[test]
fn servers_go_on_with_a_database_that_is_put_back() {
    let Some(scene) = Scene::new() else { return };
    let (one, two) = (scene.address(0), scene.address(1));
    publish(scene.root.path(), &one, "app", 1);
    assert_eq!(get(&two, "/v2/app/manifests/1").status, 200);
    // As a backup of an hour ago has it: fewer changes, and the next one has a number that was given before.
    scene.postgres.run(&scene.database, "TRUNCATE changes RESTART IDENTITY");
    publish(scene.root.path(), &one, "app", 2);
    wait_until("the other server sees it", || get(&two, "/v2/app/manifests/2").status == 200);
    assert_eq!(get(&two, &format!("/buildid/{}/debuginfo", id(2))).status, 200);
}

/// The record, and not only what readers ask for, which is in the bucket.
#[test]
fn a_database_that_is_put_back_while_servers_run_records_again_what_is_there_and_forgets_what_is_not() {
    let Some(mut scene) = Scene::with(&["--gc-interval", "0s"]) else { return };
    let (one, two) = (scene.address(0), scene.address(1));
    let kept = publish(scene.root.path(), &one, "app", 1);
    let gone = publish(scene.root.path(), &one, "app", 2);
    let trace = |number: u32| {
        let file = scene.root.path().join(format!("trace-{number}"));
        let id = format!("00000000-0000-4000-8000-{number:012}");
        let event = json!({ "event": "trace.capture", "trace_id": id, "platform": "linux", "frames": [] });
        std::fs::write(&file, format!("{event}\n")).unwrap();
        let body = format!("@{}", file.display());
        let put = ["--request", "PUT", "--data-binary", &body];
        assert_eq!(ask(&two, &format!("/api/v1/traces/{id}"), &put).status, 201);
    };
    trace(1);
    wait_until("nothing is left to tell", || scene.ask("SELECT count(*) FROM intents") == "0");
    let backup = scene.postgres.backup(&scene.name);
    // What has come, and gone, since; and an upload that a round condemned and a push then relied on.
    let new = publish(scene.root.path(), &two, "app", 3);
    assert_eq!(ask(&two, &format!("/v2/app/manifests/{gone}"), &["--request", "DELETE"]).status, 202);
    trace(2);
    wait_until("both have followed", || [&one, &two].iter().all(|it| get(it, "/v2/app/manifests/2").status == 404));
    scene.postgres.put_back(&scene.name, &backup);
    scene.ask("INSERT INTO condemned (digest, repository, bytes, at) VALUES ('sha256:struck-out', 'app', 0, now() - interval '2 days')");
    // So many changes that the number which was the last one is reached before anybody has looked.
    scene.ask("INSERT INTO changes (key, is_removed) SELECT 'traces/none', true FROM generate_series(1, 500)");
    let expected = format!("{:?}", BTreeSet::from([kept.as_str(), new.as_str()]));
    let recorded = |scene: &Scene| {
        let digests = scene.ask("SELECT string_agg(sha256, ' ') FROM symbol_bundles");
        format!("{:?}", digests.split(' ').collect::<BTreeSet<_>>())
    };
    wait_until("the record says what the repositories say", || recorded(&scene) == expected);
    wait_until("traces are recorded", || scene.ask("SELECT count(*) FROM traces") == "2");
    wait_until("nothing is condemned from before", || scene.ask("SELECT count(*) FROM condemned") == "0");
    for server in [&one, &two] {
        assert_eq!(get(server, &format!("/api/v1/bundles/{new}")).status, 200);
        assert_eq!(get(server, &format!("/v2/app/manifests/{gone}")).status, 404);
        assert_eq!(get(server, &format!("/buildid/{}/debuginfo", id(3))).status, 200);
    }
    let last = publish(scene.root.path(), &one, "app", 4);
    wait_until("they go on", || get(&two, "/v2/app/manifests/4").status == 200);

    // And while they are stopped.
    (0..2).for_each(|which| scene.kill(which));
    scene.postgres.put_back(&scene.name, &backup);
    (0..2).for_each(|which| scene.start(which));
    let expected = format!("{:?}", BTreeSet::from([kept.as_str(), new.as_str(), last.as_str()]));
    wait_until("a start has the record say so too", || recorded(&scene) == expected);
}

#[test]
fn what_is_taken_down_stays_so_where_the_database_is_put_back() {
    let Some(scene) = Scene::new() else { return };
    let (one, two) = (scene.address(0), scene.address(1));
    let digest = publish(scene.root.path(), &one, "app", 1);
    let blob = format!("/v2/app/blobs/{}", sha256(&get(&two, &format!("/buildid/{}/debuginfo", id(1))).body));
    scene.store(&["takedown", &digest, "--reason", "a name"]).ok();
    wait_until("it is taken down", || [&one, &two].iter().all(|server| get(server, &blob).status == 404));
    // As a backup has it that was made between the push and the takedown.
    let put_back = "DELETE FROM changes WHERE key LIKE 'tombstones/%'; \
                    SELECT setval(pg_get_serial_sequence('changes', 'number'), (SELECT max(number) FROM changes))";
    scene.postgres.run(&scene.database, put_back);
    std::thread::sleep(std::time::Duration::from_secs(5));
    publish(scene.root.path(), &one, "other", 2);
    wait_until("both go on", || [&one, &two].iter().all(|server| get(server, "/v2/other/manifests/2").status == 200));
    for server in [&one, &two] {
        assert_eq!(get(server, &blob).status, 404);
        assert_eq!(get(server, "/v2/app/manifests/1").status, 404);
        assert_eq!(get(server, &format!("/buildid/{}/debuginfo", id(1))).status, 404);
    }
}
