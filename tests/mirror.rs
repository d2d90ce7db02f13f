//! Mirrors between servers, and to layouts and back: the same digests as oras makes, nothing twice, and nothing that no trusted key sealed.

use crate::program;
#[path = "gateway/upstream.rs"]
mod upstream;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::program::{Ran, RunningServer, symseal};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};
use symseal_bundle::{Digest, oci};
use upstream::{Does, Upstream};

const SOURCE: &str = "int main(int argc, char **argv) { (void)argv; return argc - 1; }\n";

/// A server with two sealed releases and one that nobody sealed, and one that is empty.
pub(crate) struct Scene {
    pub(crate) root: tempfile::TempDir,
    pub(crate) from: RunningServer,
    pub(crate) to: RunningServer,
}

impl Scene {
    pub(crate) fn new() -> Option<Self> {
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

    pub(crate) fn at(&self, name: &str) -> String {
        self.root.path().join(name).display().to_string()
    }

    pub(crate) fn source(&self) -> String {
        format!("{}/team/app", self.from.address)
    }

    pub(crate) fn destination(&self) -> String {
        format!("{}/mirror/app", self.to.address)
    }

    pub(crate) fn mirror(&self, from: &str, to: &str, more: &[&str]) -> Ran {
        symseal(["mirror", from, to, "--json"].iter().chain(more))
    }
}

/// A front before the scene's source, and its reference.
fn front(scene: &Scene) -> (Upstream, String) {
    let front = Upstream::before(&scene.from.address);
    let reference = format!("{}/team/app", front.address());
    (front, reference)
}

/// The bytes of a manifest, as the source has them.
pub(crate) fn manifest(scene: &Scene, name: &str) -> Option<String> {
    let curl = program::tool("curl")?;
    let url = format!("http://{}/v2/team/app/manifests/{name}", scene.from.address);
    let accepted = "Accept: application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json";
    let got = Command::new(curl).args(["-sf", "--header", accepted, &url]).output().unwrap();
    assert!(got.status.success(), "{url}");
    Some(String::from_utf8(got.stdout).unwrap())
}

/// The entry of a tag.
pub(crate) fn tagged<'r>(report: &'r Value, tag: &str) -> &'r Value {
    report["tags"].as_array().unwrap().iter().find(|one| one["tag"] == tag).unwrap_or_else(|| panic!("{report:#}"))
}

/// The checks that do not hold, of a report of `bundle verify`.
fn failed_checks(report: &Value) -> Vec<String> {
    let checks = report["checks"].as_array().unwrap().iter().filter(|check| check["status"] == "failed");
    checks.map(|check| check["id"].as_str().unwrap().to_owned()).collect()
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

/// A policy by which nothing may pass is remembered too: the one before it does not come back.
#[test]
fn the_policy_is_remembered_though_no_seal_holds_by_it() {
    let Some(scene) = Scene::new() else { return };
    let (from, to, trust, before) = (scene.source(), scene.destination(), scene.at("trust"), scene.at("before"));
    let (exported, root_key) = (scene.at("before.json"), scene.at("keys/root.key.pem"));
    let shown = symseal(["trust", "show", "--trust", &trust, "--json"]).ok().json();
    symseal(["trust", "export", "--trust", &trust, "--output", &exported]).ok();
    let key = shown["keys"][0]["key_id"].as_str().unwrap();
    let revoked = ["--root-key", &root_key, "--key-id", key, "--reason", "stolen"];
    symseal(["trust", "revoke", "--trust", &trust].iter().chain(&revoked)).ok();
    let fingerprint = shown["root"]["fingerprint"].as_str().unwrap();
    symseal(["trust", "import", &exported, "--trust", &before, "--fingerprint", fingerprint]).ok();

    let reasons = |trust: &str| {
        let state = scene.at("state");
        let report = scene.mirror(&from, &to, &["--tag", "1.0", "--trust", trust, "--state", &state]).json();
        report["tags"][0]["reason"].as_str().unwrap_or_default().to_owned()
    };
    assert!(reasons(&trust).contains("revo"), "{}", reasons(&trust));
    assert!(reasons(&before).contains("policy"), "{}", reasons(&before));
}

#[test]
fn a_tag_that_moves_after_its_seal_was_judged_brings_what_was_judged() {
    let Some(scene) = Scene::new() else { return };
    let (Some(sealed), Some(unsealed)) = (manifest(&scene, "1.0"), manifest(&scene, "3.0")) else { return };
    let (moves, from) = front(&scene);
    let kind = "200 OK\r\nContent-Type: application/vnd.oci.image.index.v1+json";
    let turns = vec![Does::Says(kind, sealed.clone()), Does::Says(kind, unsealed)];
    moves.does("/v2/team/app/manifests/1.0", Does::InTurn(turns));
    let (layout, trust) = (scene.at("moved"), scene.at("trust"));
    let report = scene.mirror(&from, &layout, &["--tag", "1.0", "--trust", &trust]).ok().json();
    let digest = Digest::of(sealed.as_bytes()).to_string();
    assert_eq!((&report["mirrored"], &report["tags"][0]["digest"]), (&1.into(), &digest.as_str().into()), "{report:#}");
    let index: Value = serde_json::from_slice(&std::fs::read(Path::new(&layout).join("index.json")).unwrap()).unwrap();
    let named = index["manifests"].as_array().unwrap().iter();
    let named: Vec<_> = named.filter(|one| one["annotations"]["org.opencontainers.image.ref.name"] == "1.0").collect();
    assert!(named.len() == 1 && named[0]["digest"] == digest.as_str(), "{index:#}");
}

#[test]
fn what_is_broken_at_one_tag_keeps_back_nothing_else() {
    let Some(scene) = Scene::new() else { return };
    let Some(first) = manifest(&scene, "1.0") else { return };
    let first: Value = serde_json::from_str(&first).unwrap();
    let child = first["manifests"][0]["digest"].as_str().unwrap();
    for (at, to) in [scene.destination(), scene.at("mirrored")].into_iter().enumerate() {
        let (broken, from) = front(&scene);
        // A bundle whose manifest is gone, and one whose tag is answered with junk.
        broken.does(&format!("/v2/team/app/manifests/{child}"), Does::Says("404 Not Found", String::new()));
        broken.does("/v2/team/app/manifests/3.0", Does::Says("200 OK", "junk".to_owned()));
        let ran = scene.mirror(&from, &to, &["--tag", "?.0", "--trust", &scene.at("trust")]);
        assert_eq!(ran.status, 1, "{ran:?}");
        let report = ran.json();
        assert_eq!((&report["mirrored"], &report["failed"]), (&1.into(), &2.into()), "{at}: {report:#}");
        assert_eq!(tagged(&report, "2.0")["outcome"], "mirrored");
        assert!(tagged(&report, "1.0")["reason"].as_str().unwrap().contains("manifest"), "{report:#}");
        assert!(tagged(&report, "3.0")["digest"].is_null(), "{report:#}");
    }
    // A source that does not answer is no report.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let gone = scene.mirror(&format!("127.0.0.1:{port}/team/app"), &scene.destination(), &[]);
    assert!(gone.status == 2 && gone.stdout.is_empty(), "{gone:?}");
}

#[test]
fn junk_beside_a_bundle_is_left_out_and_the_second_run_knows_it() {
    let Some(scene) = Scene::new() else { return };
    let (Some(bundle), trust) = (manifest(&scene, "1.0"), scene.at("trust")) else { return };
    let digest = Digest::of(bundle.as_bytes());
    let listed = |more: &str| {
        let path = format!("http://{}/v2/team/app/referrers/{digest}", scene.from.address);
        let got = Command::new("curl").args(["-sf", &path]).output().unwrap();
        let mut page: Value = serde_json::from_slice(&got.stdout).unwrap();
        let nowhere = Digest::of(more.as_bytes()).to_string();
        page["manifests"].as_array_mut().unwrap().push(serde_json::json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": nowhere, "size": 7,
            "artifactType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        }));
        page.to_string()
    };
    for (at, to) in [scene.destination(), scene.at("mirrored")].into_iter().enumerate() {
        let (junk, from) = front(&scene);
        let kind = "200 OK\r\nContent-Type: application/vnd.oci.image.index.v1+json";
        junk.does(&format!("/v2/team/app/referrers/{digest}"), Does::Says(kind, listed("nowhere")));
        let arguments = ["--tag", "1.0", "--trust", &trust];
        let report = scene.mirror(&from, &to, &arguments).ok().json();
        assert_eq!(report["mirrored"], 1, "{at}: {report:#}");
        let report = scene.mirror(&from, &to, &arguments).ok().json();
        assert_eq!((&report["mirrored"], &report["unchanged"]), (&0.into(), &1.into()), "{at}: {report:#}");
    }
    let (to, store) = (format!("{}:1.0", scene.destination()), scene.at("store"));
    symseal(["bundle", "verify", &to, "--trust", &trust, "--store", &store]).ok();
}

#[test]
fn a_seal_that_goes_after_it_was_judged_is_missed_at_the_destination() {
    let Some(scene) = Scene::new() else { return };
    let (Some(bundle), trust) = (manifest(&scene, "1.0"), scene.at("trust")) else { return };
    let path = format!("/v2/team/app/referrers/{}", Digest::of(bundle.as_bytes()));
    let kind = "200 OK\r\nContent-Type: application/vnd.oci.image.index.v1+json";
    let none = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;
    for (at, to) in [scene.destination(), scene.at("mirrored")].into_iter().enumerate() {
        let (goes, from) = front(&scene);
        goes.does(&path, Does::InTurn(vec![Does::Passes, Does::Says(kind, none.to_owned())]));
        let arguments = ["--tag", "1.0", "--trust", &trust];
        let report = scene.mirror(&from, &to, &arguments).json();
        let one = tagged(&report, "1.0");
        assert_eq!(one["outcome"], "failed", "{at}: {report:#}");
        assert!(one["reason"].as_str().unwrap().contains("it has no seal"), "{at}: {report:#}");
        // The seal comes when the source shows it again.
        goes.does(&path, Does::Passes);
        assert_eq!(scene.mirror(&from, &to, &arguments).ok().json()["mirrored"], 1, "{at}");
    }
}

#[test]
fn what_a_registry_knows_by_its_sha512_alone_is_mirrored() {
    let Some(scene) = Scene::new() else { return };
    let (Some(bundle), Some(curl)) = (manifest(&scene, "1.0"), program::tool("curl")) else { return };
    let hex: String = Sha512::digest(bundle.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let (name, digest) = (format!("sha512:{hex}"), Digest::of(bundle.as_bytes()).to_string());
    let at = |what: &str| format!("http://{}/v2/team/app/manifests/{what}", scene.from.address);
    let file = scene.at("bundle.json");
    std::fs::write(&file, &bundle).unwrap();
    let run = |arguments: &[&str]| {
        let ran = Command::new(&curl).args(["-sS", "-o", "/dev/null", "-w", "%{http_code}"]).args(arguments).output();
        String::from_utf8(ran.unwrap().stdout).unwrap()
    };
    let kind = "Content-Type: application/vnd.oci.image.index.v1+json";
    let by_sha512 = format!("{}?tag=other", at(&name));
    assert_eq!(run(&["-X", "PUT", "--data-binary", &format!("@{file}"), "-H", kind, &by_sha512]), "201");
    assert_eq!(run(&["-X", "DELETE", &at(&digest)]), "202");
    assert_eq!((run(&[&at(&digest)]), run(&[&at(&name)])), ("404".to_owned(), "200".to_owned()));

    let (from, trust, layout) = (scene.source(), scene.at("trust"), scene.at("by-sha512"));
    for to in [scene.destination(), layout] {
        let arguments = ["--tag", "other", "--trust", &trust];
        let report = scene.mirror(&from, &to, &arguments).ok().json();
        assert_eq!(tagged(&report, "other")["digest"], digest.as_str(), "{report:#}");
        assert_eq!(report["mirrored"], 1, "{report:#}");
        let again = scene.mirror(&from, &to, &arguments).ok().json();
        assert_eq!((&again["mirrored"], &again["unchanged"]), (&0.into(), &1.into()), "{again:#}");
    }
    let (to, store) = (format!("{}:other", scene.destination()), scene.at("store"));
    symseal(["bundle", "verify", &to, "--trust", &trust, "--store", &store]).ok();
}

#[test]
fn patterns_of_tags_are_sound_and_like_something() {
    let Some(scene) = Scene::new() else { return };
    let (from, to) = (scene.source(), scene.destination());
    scene.mirror(&from, &to, &["--tag", "[a"]).refused(2, &["--tag [a"]);
    scene.mirror(&from, &to, &["--tag", "9.*"]).refused(1, &["9.*"]);
    let report = scene.mirror(&from, &to, &["--tag", "{1,2}.[0-9]"]).ok().json();
    assert_eq!(report["mirrored"], 2, "{report:#}");
    // One that is left of many may have a name of its own at DST.
    let named = scene.mirror(&from, &format!("{to}:newest"), &["--tag", "2.0"]).ok().json();
    assert_eq!(named["mirrored"], 1, "{named:#}");
    scene.mirror(&from, &format!("{to}:newest"), &[]).refused(2, &["one tag"]);
}

#[test]
fn what_the_destination_names_is_what_is_set_and_told() {
    let Some(scene) = Scene::new() else { return };
    let (from, to) = (format!("{}:1.0", scene.source()), scene.destination());
    let report = scene.mirror(&from, &format!("{to}:other"), &[]).ok().json();
    assert_eq!(report["tags"][0]["tag"], "other", "{report:#}");
    let again = symseal(["mirror", &from, &format!("{to}:other")]).ok();
    assert!(again.stdout.contains("unchanged  other sha256:"), "{again:?}");

    let digest = report["tags"][0]["digest"].as_str().unwrap();
    let other = format!("sha256:{}", "0".repeat(64));
    scene.mirror(&from, &format!("{to}@{other}"), &[]).refused(2, &["asks for another digest", digest]);
    // With the digest that it has it is brought, and has no tag.
    let fresh = format!("{}/by-digest/app", scene.to.address);
    let report = scene.mirror(&from, &format!("{fresh}@{digest}"), &[]).ok().json();
    assert_eq!((&report["mirrored"], &report["tags"][0]["tag"]), (&1.into(), &Value::Null), "{report:#}");
    symseal(["bundle", "inspect", &format!("{fresh}@{digest}"), "--store", &scene.at("store")]).ok();
    symseal(["bundle", "inspect", &format!("{fresh}:1.0"), "--store", &scene.at("store")]).refused(1, &["1.0"]);
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

    // oras lists the children of an index beside it: nobody refuses them.
    std::fs::remove_dir_all(&theirs).unwrap();
    let copied = Command::new(&oras)
        .args(["cp", "-r", "--from-plain-http", &format!("{from}:1.0"), "--to-oci-layout", &format!("{theirs}:1.0")])
        .stdout(Stdio::null())
        .status();
    assert!(copied.unwrap().success());
    let index: Value = serde_json::from_slice(&std::fs::read(Path::new(&theirs).join("index.json")).unwrap()).unwrap();
    assert!(index["manifests"].as_array().unwrap().len() > 1, "{index:#}");
    let carried = format!("{}/carried/app", scene.to.address);
    let brought = scene.mirror(&theirs, &carried, &["--trust", &scene.at("trust")]).ok().json();
    assert_eq!((&brought["mirrored"], &brought["refused"]), (&1.into(), &0.into()), "{brought:#}");
    symseal([
        "bundle",
        "verify",
        &format!("{carried}:1.0"),
        "--trust",
        &scene.at("trust"),
        "--store",
        &scene.at("store"),
    ])
    .ok();
}

/// Sends something to a server; the status.
fn put(url: &str, media_type: &str, bytes: &str) -> String {
    let header = format!("Content-Type: {media_type}");
    let mut sent = Command::new("curl");
    sent.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", "PUT", "-H", &header, "--data-binary", bytes, url]);
    String::from_utf8(sent.output().unwrap().stdout).unwrap()
}

/// What a server has under a tag: its media type, and the bytes.
fn tagged_at(server: &RunningServer, repository: &str) -> (String, String) {
    let url = format!("http://{}/v2/{repository}/manifests/multi", server.address);
    let got = Command::new("curl").args(["-sf", "-w", "\\n%{content_type}", &url]).output().unwrap();
    let text = String::from_utf8(got.stdout).unwrap();
    let (bytes, media_type) = text.rsplit_once('\n').unwrap();
    (media_type.to_owned(), bytes.to_owned())
}

#[test]
fn a_list_of_docker_is_mirrored_as_it_is_between_registries_and_by_a_layout() {
    let (Some(_), root) = (program::tool("curl"), tempfile::tempdir().unwrap()) else { return };
    let at = |name: &str| root.path().join(name).display().to_string();
    let (from, to) = (RunningServer::start(at("from").as_ref()), RunningServer::start(at("to").as_ref()));
    let blob = |bytes: &str| {
        let digest = Digest::of(bytes.as_bytes());
        let url = format!("http://{}/v2/docker/blobs/uploads/?digest={digest}", from.address);
        let sent = Command::new("curl").args(["-sf", "--data-binary", bytes, &url]).status().unwrap();
        assert!(sent.success(), "{bytes}");
        json!({ "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip", "size": bytes.len(), "digest": digest.to_string() })
    };
    let manifests = ["amd64", "arm64"].map(|architecture| {
        let mut config = blob(&format!(r#"{{"architecture":"{architecture}","os":"linux","rootfs":{{}}}}"#));
        config["mediaType"] = json!("application/vnd.docker.container.image.v1+json");
        let layers = [blob("of both"), blob(architecture)];
        let manifest =
            json!({ "schemaVersion": 2, "mediaType": oci::DOCKER_MANIFEST, "config": config, "layers": layers });
        let bytes = manifest.to_string();
        let digest = Digest::of(bytes.as_bytes());
        let url = format!("http://{}/v2/docker/manifests/{digest}", from.address);
        assert_eq!(put(&url, oci::DOCKER_MANIFEST, &bytes), "201");
        let platform = json!({ "architecture": architecture, "os": "linux", "variant": "v1" });
        json!({ "mediaType": oci::DOCKER_MANIFEST, "size": bytes.len(), "digest": digest.to_string(), "platform": platform })
    });
    // As Docker writes it, which is not as we would.
    let list = json!({ "schemaVersion": 2, "mediaType": oci::DOCKER_LIST, "manifests": manifests });
    let list = serde_json::to_string_pretty(&list).unwrap();
    let url = format!("http://{}/v2/docker/manifests/multi", from.address);
    assert_eq!(put(&url, oci::DOCKER_LIST, &list), "201");
    let expected = (oci::DOCKER_LIST.to_owned(), list.clone());

    let source = format!("{}/docker", from.address);
    let layout = at("layout");
    let copies = [
        (source.clone(), format!("{}/by-registry", to.address), 1),
        (source, layout.clone(), 1),
        (layout, format!("{}/by-layout", to.address), 1),
    ];
    for (from, to, brought) in &copies {
        for mirrored in [*brought, 0] {
            let told = symseal(["mirror", from, to, "--json"]).ok().json();
            assert_eq!((&told["mirrored"], &told["failed"]), (&mirrored.into(), &0.into()), "{told:#}");
        }
    }
    for repository in ["by-registry", "by-layout"] {
        assert_eq!(tagged_at(&to, repository), expected, "{repository}");
        // Whole, by somebody else's reading.
        let Some(oras) = program::peer("oras") else { return };
        let reference = format!("{}/{repository}:multi", to.address);
        let copied = Command::new(oras)
            .args(["cp", "--from-plain-http", "--to-oci-layout", &reference, &at(&format!("oras-{repository}"))])
            .output()
            .unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    }
}

#[test]
fn a_mirror_that_is_killed_goes_on() {
    let Some(scene) = Scene::new() else { return };
    let (from, to) = (scene.source(), scene.destination());
    let (trust, folder) = (scene.at("trust"), scene.root.path().join("to/blobs"));
    // Killed when so many blobs are there: during the first bundle, and later.
    for blobs in [1, 6, 12] {
        let mut child = program::command("symseal")
            .args(["mirror", &from, &to])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while files(&folder) < blobs && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = child.kill();
        child.wait().unwrap();
        // What is visible by tag is whole; its seal comes behind it.
        for version in ["1.0", "2.0"] {
            let (tagged, store) = (format!("{to}:{version}"), scene.at(&format!("store-{blobs}-{version}")));
            let verified = symseal(["bundle", "verify", &tagged, "--trust", &trust, "--store", &store, "--json"]);
            let is_absent = verified.status == 1 && verified.stderr.contains("no such manifest");
            if verified.status != 0 && !is_absent {
                assert_eq!((verified.status, failed_checks(&verified.json())), (1, vec!["seal.present".to_owned()]));
            }
            let inspected = symseal(["bundle", "inspect", &tagged, "--store", &store]);
            assert!(inspected.status == 0 || is_absent, "{inspected:?}");
        }
    }
    scene.mirror(&from, &to, &[]).ok();
    for version in ["1.0", "2.0"] {
        let store = scene.at("store");
        symseal(["bundle", "verify", &format!("{to}:{version}"), "--trust", &scene.at("trust"), "--store", &store])
            .ok();
    }
}

/// Files below a folder.
fn files(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { 1 }).sum()
}
