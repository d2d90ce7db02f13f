//! Mirrors between servers, and to layouts and back: the same digests as oras makes, nothing twice, and nothing that no trusted key sealed.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod program;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use program::{Ran, RunningServer, symseal};
use serde_json::Value;

const SOURCE: &str = "int main(int argc, char **argv) { (void)argv; return argc - 1; }\n";

/// A server with two sealed releases and one that nobody sealed, and one that is empty.
struct Scene {
    root: tempfile::TempDir,
    from: RunningServer,
    to: RunningServer,
}

impl Scene {
    fn new() -> Option<Self> {
        let root = tempfile::tempdir().unwrap();
        let (from, to) = (root.path().join("from"), root.path().join("to"));
        program::compile_c(root.path(), "app", SOURCE, &["-g", "-O0", "-Wl,--build-id"])?;
        let scene = Self { from: RunningServer::start(&from), to: RunningServer::start(&to), root };
        symseal(["key", "generate", "--output", &scene.at("keys")]).ok();
        let (key, log) = (scene.at("keys/artifact.pub.pem"), scene.at("log"));
        symseal(["trust", "init", "--trust", &scene.at("trust"), "--key", &key, "--name", "app", "--log", &log]).ok();
        for version in ["1.0", "2.0", "3.0"] {
            let layout = scene.at(&format!("layout-{version}"));
            let (app, here) = (scene.at("app"), scene.at(""));
            let named = ["--name", "app", "--version", version, "--output", &layout, "--sources", &here];
            symseal(["bundle", "build", &app].iter().chain(&named)).ok();
            if version != "3.0" {
                let (key, log_key) = (scene.at("keys/artifact.key.pem"), scene.at("keys/log.key.pem"));
                symseal(["bundle", "seal", &layout, "--key", &key, "--log", &log, "--log-key", &log_key]).ok();
            }
            let reference = format!("{}/team/app:{version}", scene.from.address);
            symseal(["bundle", "push", &layout, &reference, "--with-sources"]).ok();
        }
        Some(scene)
    }

    fn at(&self, name: &str) -> String {
        self.root.path().join(name).display().to_string()
    }

    fn source(&self) -> String {
        format!("{}/team/app", self.from.address)
    }

    fn destination(&self) -> String {
        format!("{}/mirror/app", self.to.address)
    }

    fn mirror(&self, from: &str, to: &str, more: &[&str]) -> Ran {
        symseal(["mirror", from, to, "--json"].iter().chain(more))
    }
}

/// Tag to digest, of those that were not refused.
fn digests(report: &Value) -> Vec<(String, String)> {
    let tags = report["tags"].as_array().unwrap().iter().filter(|one| one["outcome"] != "refused");
    let mut found: Vec<_> =
        tags.map(|one| (one["tag"].as_str().unwrap().to_owned(), one["digest"].as_str().unwrap().to_owned())).collect();
    found.sort();
    found
}

#[test]
fn a_second_run_sends_nothing_and_what_is_unsealed_stays_behind() {
    let Some(scene) = Scene::new() else { return };
    let (from, to, trust) = (scene.source(), scene.destination(), scene.at("trust"));
    let first = scene.mirror(&from, &to, &["--trust", &trust]);
    assert_eq!(first.status, 1, "one is refused: {first:?}");
    let first = first.json();
    assert_eq!((&first["mirrored"], &first["refused"]), (&5.into(), &1.into()), "{first:#}");
    let refused = first["tags"].as_array().unwrap().iter().filter(|one| one["outcome"] == "refused");
    let refused: Vec<_> = refused.map(|one| (one["tag"].clone(), one["reason"].clone())).collect();
    assert!(refused.iter().any(|(tag, reason)| tag == "3.0" && reason == "it has no seal"), "{refused:?}");
    // The releases have the same sources, which those that are sealed name.
    // The bundle is whole there, with its seal.
    let verified =
        symseal(["bundle", "verify", &format!("{to}:1.0"), "--trust", &trust, "--store", &scene.at("store")]);
    verified.ok();
    symseal(["bundle", "inspect", &format!("{to}:3.0"), "--store", &scene.at("store")]).refused(1, &["3.0"]);

    let second = scene.mirror(&from, &to, &["--trust", &trust]).json();
    assert_eq!((&second["mirrored"], &second["unchanged"]), (&0.into(), &5.into()), "{second:#}");
    // Without a trust directory everything goes; with patterns a part of it.
    let part = scene.mirror(&from, &to, &["--tag", "3.?"]).ok().json();
    assert_eq!((&part["mirrored"], &part["unchanged"]), (&1.into(), &0.into()), "{part:#}");
    // A seal that comes later is brought to a bundle that is there.
    let layout = scene.at("layout-3.0");
    let (key, log_key, log) = (scene.at("keys/artifact.key.pem"), scene.at("keys/log.key.pem"), scene.at("log"));
    symseal(["bundle", "seal", &layout, "--key", &key, "--log", &log, "--log-key", &log_key]).ok();
    symseal(["bundle", "push", &layout, &format!("{from}:3.0")]).ok();
    let sealed = scene.mirror(&from, &to, &["--trust", &trust]).ok().json();
    assert_eq!((&sealed["mirrored"], &sealed["refused"]), (&1.into(), &0.into()), "{sealed:#}");
    symseal(["bundle", "verify", &format!("{to}:3.0"), "--trust", &trust, "--store", &scene.at("store")]).ok();
}

#[test]
fn within_one_registry_blobs_are_mounted() {
    let Some(scene) = Scene::new() else { return };
    let to = format!("{}/copy/app", scene.from.address);
    let report = scene.mirror(&scene.source(), &to, &["--tag", "1.0"]).ok().json();
    let one = &report["tags"][0];
    assert_eq!(one["outcome"], "mirrored", "{report:#}");
    assert!(one["blobs_mounted"].as_u64().unwrap() > 3, "{report:#}");
    // The empty configuration alone is in hand.
    assert!(one["bytes_sent"].as_u64().unwrap() <= 2, "{report:#}");
}

#[test]
fn to_a_layout_and_back_and_by_oras_digests_are_the_same() {
    let Some(scene) = Scene::new() else { return };
    let (from, to, layout) = (scene.source(), scene.destination(), scene.at("mirrored"));
    let out = scene.mirror(&from, &layout, &[]).ok().json();
    assert_eq!(out["mirrored"], 6, "{out:#}");
    let again = scene.mirror(&from, &layout, &[]).ok().json();
    assert_eq!((&again["mirrored"], &again["unchanged"]), (&0.into(), &6.into()), "{again:#}");
    let back = scene.mirror(&layout, &to, &[]).ok().json();
    assert_eq!(digests(&back), digests(&out));
    let across = scene.mirror(&from, &to, &[]).ok().json();
    assert_eq!((&across["mirrored"], &across["unchanged"]), (&0.into(), &6.into()), "{across:#}");
    assert_eq!(digests(&across), digests(&out));
    scene.mirror(&layout, &scene.at("other"), &[]).refused(2, &["directories"]);

    let Some(oras) = program::peer("oras") else { return };
    let theirs = scene.at("by-oras");
    for (tag, digest) in digests(&out) {
        let copied = Command::new(&oras)
            .args([
                "cp",
                "-r",
                "--from-plain-http",
                &format!("{from}:{tag}"),
                "--to-oci-layout",
                &format!("{theirs}:{tag}"),
            ])
            .stdout(Stdio::null())
            .status();
        assert!(copied.unwrap().success());
        let index: Value =
            serde_json::from_slice(&std::fs::read(Path::new(&theirs).join("index.json")).unwrap()).unwrap();
        let named = index["manifests"].as_array().unwrap().iter();
        assert!(named.into_iter().any(|one| one["digest"] == digest.as_str()), "{tag} {digest}: {index:#}");
    }
    let blobs = |layout: &str| -> Vec<_> {
        let folder = std::fs::read_dir(Path::new(layout).join("blobs/sha256")).unwrap();
        let mut names: Vec<_> = folder.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(blobs(&layout), blobs(&theirs), "the same blobs, seals included");
}

#[test]
fn a_mirror_that_is_killed_goes_on() {
    let Some(scene) = Scene::new() else { return };
    let (from, to) = (scene.source(), scene.destination());
    for wait in [30, 60, 120] {
        let mut child = program::command("symseal")
            .args(["mirror", &from, &to])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        let _ = child.kill();
        child.wait().unwrap();
        // What is visible by tag is whole.
        for version in ["1.0", "2.0"] {
            let (tagged, store) = (format!("{to}:{version}"), scene.at(&format!("store-{wait}-{version}")));
            let shown = symseal(["bundle", "inspect", &tagged, "--store", &store]);
            assert!(matches!(shown.status, 0 | 1), "{shown:?}");
        }
    }
    scene.mirror(&from, &to, &[]).ok();
    for version in ["1.0", "2.0"] {
        let store = scene.at("store");
        symseal(["bundle", "verify", &format!("{to}:{version}"), "--trust", &scene.at("trust"), "--store", &store])
            .ok();
    }
}
