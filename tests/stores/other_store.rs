//! A database is the record of one bucket, or directory: with another one nothing is struck out of it.

use std::process::Stdio;

use crate::program::{Ran, command};
use crate::replicas::Scene;
use crate::scene::{get, publish};

#[test]
fn a_database_is_not_given_to_another_store_by_a_slip() {
    let Some(mut scene) = Scene::new() else { return };
    let one = scene.address(0);
    let digest = publish(scene.root.path(), &one, "app", 1);
    let path = format!("/api/v1/bundles/{digest}");
    assert_eq!(get(&one, &path).status, 200);
    let run = |arguments: &[&str], data: &str| {
        let mut symseal = command("symseal");
        symseal.args(arguments).arg("--data").arg(scene.root.path().join(data));
        symseal.env("SYMSEAL_SERVER_DATABASE", &scene.database).envs(scene.objects.environment());
        Ran::from(symseal.stdin(Stdio::null()).output().unwrap())
    };
    let id = std::fs::read_to_string(scene.objects.file("store.id")).unwrap().trim().to_owned();
    let others = ["--blobs", "s3://symbols/team/othr"];
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    for (arguments, data) in [
        ([&["store", "rebuild"], &others[..]].concat(), "first"),
        ([&serve[..], &others[..]].concat(), "second"),
        (serve.to_vec(), "third"),
    ] {
        run(&arguments, data).refused(2, &[&id, "store.id"]);
    }
    assert_eq!(get(&one, &path).status, 200);
    assert_eq!(scene.ask("SELECT count(*) FROM symbol_bundles"), "1");

    // On purpose: what has the bytes is given the id.
    let elsewhere = scene.objects.file("").ancestors().nth(1).unwrap().join("copy");
    let copied = std::process::Command::new("cp").arg("-r").arg(scene.objects.file("")).arg(&elsewhere).status();
    assert!(copied.unwrap().success());
    run(&["store", "rebuild", "--blobs", "s3://symbols/team/copy"], "fifth").ok();
    std::fs::remove_file(elsewhere.join("store.id")).unwrap();
    run(&["store", "rebuild", "--blobs", "s3://symbols/team/copy"], "sixth").refused(2, &[&id, "store.id"]);
    std::fs::write(elsewhere.join("store.id"), &id).unwrap();
    run(&["store", "rebuild", "--blobs", "s3://symbols/team/copy"], "seventh").ok();
    // A database from before there were ids takes over the bucket's.
    scene.postgres.ask(&scene.name, "DELETE FROM secrets WHERE name = 'store-id'");
    scene.kill(1);
    scene.start(1);
    assert_eq!(scene.ask("SELECT convert_from(secret, 'UTF8') FROM secrets WHERE name = 'store-id'"), id);
}
