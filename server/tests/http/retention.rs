//! Which bundles go after a time, and that everything forgets them at once.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use reqwest::StatusCode;
use serde_json::Value;
use symseal_builder::SealOptions;
use symseal_bundle::Digest;
use symseal_seal::UtcSeconds;
use symseal_sealer::{ArtifactKey, LogKey, TileLog};
use symseal_server::tokens::{NewToken, Tokens};
use symseal_server::{Config, Decision, Note, Pins, RetentionConfig, Server};

use crate::support::programs::{has, run};
use crate::support::{Running, http, options};

const DAY: Duration = Duration::from_secs(86_400);

struct Scene {
    root: tempfile::TempDir,
    rules: Vec<RetentionConfig>,
    key: ArtifactKey,
    log: TileLog,
}

fn rule(
    prefix: &str,
    channel: Option<&str>,
    last: Option<u32>,
    days: Option<u32>,
    least: Option<u32>,
) -> RetentionConfig {
    RetentionConfig {
        prefix: prefix.parse().unwrap(),
        channel: channel.map(str::to_owned),
        keep_last: last,
        keep_younger: days.map(|days| DAY * days),
        keep_at_least: least,
    }
}

impl Scene {
    fn new(rules: Vec<RetentionConfig>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let log = TileLog::create(&at("log"), "log.example".parse().unwrap(), LogKey::generate().unwrap(), &at("seen"));
        Self { rules, key: ArtifactKey::generate().unwrap(), log: log.unwrap(), root }
    }

    fn config(&self) -> Config {
        let mut config = Config::new(self.root.path().join("data"), ([127, 0, 0, 1], 0).into());
        config.retention = self.rules.clone();
        config
    }

    /// A release with a build-id of its own, in a channel if it is sealed; pushed so many days ago.
    async fn publish(
        &mut self,
        server: &Running,
        repository: &str,
        number: u8,
        channel: Option<&str>,
        days: u32,
    ) -> Digest {
        let seal = channel.map(|channel| SealOptions { channel: Some(channel.to_owned()), ..Default::default() });
        self.publish_sealed(server, (repository, number), seal, days).await
    }

    async fn publish_sealed(
        &mut self,
        server: &Running,
        (repository, number): (&str, u8),
        seal: Option<SealOptions>,
        days: u32,
    ) -> Digest {
        let folder = self.root.path().join(format!("release-{number}"));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, binary) = (folder.join("app.c"), folder.join("app"));
        std::fs::write(&source, format!("int main(void) {{ return {number}; }}\n")).unwrap();
        let id = format!("-Wl,--build-id=0xabcdef{number:02x}");
        run("cc", &["-g", source.to_str().unwrap(), "-o", binary.to_str().unwrap(), &id]);
        let layout = symseal_bundle::LayoutDir::create(folder.join("layout")).unwrap();
        let release =
            symseal_builder::Options { name: "app".into(), version: number.to_string(), ..Default::default() };
        let digest =
            symseal_builder::SymbolBundleBuilder::new(release).add_path(&binary).build(&layout).unwrap().digest;
        if let Some(options) = seal {
            symseal_builder::seal_bundle(&layout, &digest, &self.key, &mut self.log, &options).unwrap();
        }
        let to = server.reference(&format!("{repository}:{number}"));
        symseal_registry::push(&layout, &digest, &to, &options()).await.unwrap();
        self.age(repository, &digest, days);
        digest
    }

    fn age(&self, repository: &str, digest: &Digest, days: u32) {
        let folder = self.root.path().join("data/repositories").join(repository).join("_manifests/sha256");
        let file = std::fs::File::open(folder.join(digest.hex())).unwrap();
        file.set_modified(SystemTime::now() - DAY * days - Duration::from_secs(60)).unwrap();
    }

    async fn plan(&self) -> BTreeMap<String, Decision> {
        let config = self.config();
        let plan = tokio::task::spawn_blocking(move || symseal_server::plan_retention(&config, None)).await.unwrap();
        plan.unwrap().into_iter().map(|it| (format!("{}:{}", it.repository, it.version), it)).collect()
    }
}

async fn status(server: &Running, path: &str) -> StatusCode {
    http().get(server.url(path)).send().await.unwrap().status()
}

/// The blobs in a data directory.
fn stored(data: &Path) -> usize {
    let shards = std::fs::read_dir(data.join("blobs/sha256")).unwrap();
    shards.map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap().count()).sum()
}

fn note(reason: &str) -> Note {
    Note { at: "2026-01-02T03:04:05Z".into(), reason: reason.into(), by: "a test".into() }
}

#[tokio::test]
async fn old_bundles_go_as_by_the_api_and_what_is_pinned_or_young_or_last_stays() {
    if !has("cc") {
        return;
    }
    let mut scene = Scene::new(vec![rule("team", None, Some(2), Some(30), None)]);
    let bound = Server::bind(scene.config()).await.unwrap();
    let retention = bound.retention();
    let server = Running::run(bound);
    let mut digests = Vec::new();
    for (number, days) in [(1, 90), (2, 60), (3, 45), (4, 20), (5, 3), (6, 0)] {
        digests.push(scene.publish(&server, "team/app", number, None, days).await);
    }
    // No rule is about this one.
    let elsewhere = scene.publish(&server, "other", 7, None, 900).await;
    let pins = Pins::open(&scene.config()).await.unwrap();
    assert!(pins.pin(&digests[1].to_string(), note("long support")).await.unwrap());
    assert!(!pins.pin(&Digest::of(b"nowhere").to_string(), note("")).await.unwrap());
    assert!(pins.pin("sha256:no", note("")).await.is_err());

    let plan = scene.plan().await;
    let goes: Vec<&str> = plan.iter().filter(|(_, it)| it.goes).map(|(name, _)| name.as_str()).collect();
    assert_eq!(goes, ["team/app:1", "team/app:3"]);
    assert!(
        plan["team/app:1"].reason.contains("last 2 releases")
            && plan["team/app:1"].reason.contains("90d old, kept for 30d")
    );
    assert!(plan["team/app:2"].reason.contains("pinned: long support"));
    assert!(plan["team/app:4"].reason.contains("younger than 30d"));
    assert!(plan["team/app:6"].reason.contains("last 2"));
    assert_eq!(plan.len(), 6);
    // A plan changes nothing, and what is pinned nobody deletes.
    assert_eq!(status(&server, "/buildid/abcdef01/debuginfo").await, StatusCode::OK);
    let pinned = server.url(&format!("/v2/team/app/manifests/{}", digests[1]));
    let refused = http().delete(&pinned).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert!(refused.text().await.unwrap().contains("pinned"));

    let retained = retention.round().await.unwrap();
    assert_eq!((retained.gone, retained.kept), (2, 4));
    for (number, digest) in (1..).zip(&digests) {
        let expected = if [1, 3].contains(&number) { StatusCode::NOT_FOUND } else { StatusCode::OK };
        for path in [
            format!("/v2/team/app/manifests/{digest}"),
            format!("/v2/team/app/manifests/{number}"),
            format!("/buildid/abcdef0{number}/debuginfo"),
            format!("/s/team/buildid/abcdef0{number}/executable"),
            format!("/api/v1/bundles/{digest}"),
            format!("/bundles/{digest}"),
        ] {
            assert_eq!(status(&server, &path).await, expected, "{path}");
        }
    }
    assert_eq!(status(&server, &format!("/v2/other/manifests/{elsewhere}")).await, StatusCode::OK);
    assert_eq!(retention.round().await.unwrap().gone, 0);
    // The bytes go with the collector.
    let data = scene.root.path().join("data");
    let before = stored(&data);
    while server.collector.collect(Duration::ZERO).await.unwrap() != symseal_server::Collected::default() {}
    assert!(stored(&data) < before);
    for number in [2, 4, 5, 6] {
        assert_eq!(status(&server, &format!("/buildid/abcdef0{number}/debuginfo")).await, StatusCode::OK);
    }
    let text = http().get(server.url("/metrics")).send().await.unwrap().text().await.unwrap();
    assert!(text.contains("symseal_bundles_retired_total 2\n"), "{text}");
    // Each is a line of the audit log.
    let tokens = Tokens::open(&data, None).await.unwrap();
    let grants = vec!["audit:read".parse().unwrap()];
    let new = NewToken { name: "auditor".into(), created: UtcSeconds(1), expires: None, grants, keys: Vec::new() };
    let token = tokens.create(new).await.unwrap().0.expose().to_owned();
    let audit: Value =
        http().get(server.url("/api/v1/audit")).bearer_auth(token).send().await.unwrap().json().await.unwrap();
    let lines = audit["entries"].as_array().unwrap().iter().filter(|line| line["request_id"] == "retention");
    let paths: Vec<&str> = lines.map(|line| line["path"].as_str().unwrap()).collect();
    assert_eq!(paths.len(), 2, "{audit}");
    assert!(paths.contains(&format!("/v2/team/app/manifests/{}", digests[0]).as_str()));
    server.stop().await;

    // A pin outlives a rebuild, and what is unpinned goes.
    symseal_server::rebuild(&scene.config()).await.unwrap();
    assert_eq!(pins.list().await.unwrap()[&digests[1].to_string()].reason, "long support");
    assert_eq!(symseal_server::retain_stopped(&scene.config(), None).await.unwrap().gone, 0);
    assert!(pins.unpin(&digests[1].to_string()).await.unwrap() && !pins.unpin(&digests[1].to_string()).await.unwrap());
    assert_eq!(symseal_server::retain_stopped(&scene.config(), None).await.unwrap().gone, 1);
}

#[tokio::test]
async fn channels_are_counted_by_themselves_and_a_seal_goes_with_its_bundle() {
    if !has("cc") {
        return;
    }
    let rules = vec![rule("app", Some("nightly"), Some(1), None, None), rule("app", Some(""), None, Some(1), Some(1))];
    let mut scene = Scene::new(rules);
    let bound = Server::bind(scene.config()).await.unwrap();
    let retention = bound.retention();
    let server = Running::run(bound);
    for (number, channel, days) in
        [(1, Some("nightly"), 9), (2, Some("stable"), 900), (3, Some("nightly"), 2), (4, None, 800), (5, None, 700)]
    {
        scene.publish(&server, "app", number, channel, days).await;
    }
    let plan = scene.plan().await;
    let goes: Vec<&str> = plan.iter().filter(|(_, it)| it.goes).map(|(name, _)| name.as_str()).collect();
    assert_eq!(goes, ["app:1", "app:4"]);
    assert_eq!(plan["app:1"].channels, ["nightly"]);
    assert!(plan["app:2"].reason.contains("no rule is about channel stable"), "{}", plan["app:2"].reason);
    assert!(plan["app:5"].reason.contains("always stay"), "{}", plan["app:5"].reason);
    let first = &plan["app:1"].digest;
    let referrers = async || -> Value {
        http().get(server.url(&format!("/v2/app/referrers/{first}"))).send().await.unwrap().json().await.unwrap()
    };
    let seal = referrers().await["manifests"][0]["digest"].as_str().unwrap().to_owned();
    assert_eq!(status(&server, &format!("/v2/app/manifests/{seal}")).await, StatusCode::OK);
    assert_eq!(retention.round().await.unwrap().gone, 2);
    assert_eq!(status(&server, &format!("/v2/app/manifests/{seal}")).await, StatusCode::NOT_FOUND);
    assert_eq!(referrers().await["manifests"].as_array().unwrap().len(), 0);
    assert_eq!(status(&server, "/v2/app/manifests/2").await, StatusCode::OK);
    server.stop().await;
}

#[tokio::test]
async fn what_a_bundle_that_stays_has_in_common_with_one_that_goes_stays() {
    if !has("cc") {
        return;
    }
    let mut scene = Scene::new(vec![rule("*", None, Some(1), None, None)]);
    let bound = Server::bind(scene.config()).await.unwrap();
    let retention = bound.retention();
    let server = Running::run(bound);
    let old = scene.publish(&server, "app", 1, None, 9).await;
    // The same files under another version: another bundle over the same blobs.
    let folder = scene.root.path().join("release-1");
    let layout = symseal_bundle::LayoutDir::create(folder.join("second")).unwrap();
    let release = symseal_builder::Options { name: "app".into(), version: "2".into(), ..Default::default() };
    let builder = symseal_builder::SymbolBundleBuilder::new(release).add_path(folder.join("app"));
    let new = builder.build(&layout).unwrap().digest;
    symseal_registry::push(&layout, &new, &server.reference("app:2"), &options()).await.unwrap();
    // An index that is no bundle names a third one.
    let third = scene.publish(&server, "app", 3, None, 20).await;
    let bytes =
        http().get(server.url(&format!("/v2/app/manifests/{third}"))).send().await.unwrap().bytes().await.unwrap();
    let kind = symseal_bundle::oci::IMAGE_INDEX;
    let child = serde_json::json!({"mediaType": kind, "digest": third.to_string(), "size": bytes.len()});
    let index = serde_json::json!({"schemaVersion": 2, "mediaType": kind, "manifests": [child]}).to_string();
    let put = http().put(server.url("/v2/app/manifests/all")).header("content-type", kind).body(index).send();
    assert_eq!(put.await.unwrap().status(), StatusCode::CREATED);

    assert!(scene.plan().await["app:3"].reason.contains("names it"));
    assert_eq!(retention.round().await.unwrap().gone, 1);
    while server.collector.collect(Duration::ZERO).await.unwrap() != symseal_server::Collected::default() {}
    assert_eq!(status(&server, &format!("/v2/app/manifests/{old}")).await, StatusCode::NOT_FOUND);
    let pulled = symseal_bundle::LayoutDir::create(folder.join("pulled")).unwrap();
    symseal_registry::pull(&server.reference("app:2"), &pulled, &options()).await.unwrap();
    assert_eq!(status(&server, "/buildid/abcdef01/debuginfo").await, StatusCode::OK);
    assert_eq!(status(&server, "/buildid/abcdef03/debuginfo").await, StatusCode::OK);
    server.stop().await;
}

#[tokio::test]
async fn the_newest_release_of_a_channel_is_the_one_with_the_largest_sequence() {
    if !has("cc") {
        return;
    }
    let mut scene = Scene::new(vec![rule("app", None, Some(2), None, None)]);
    let bound = Server::bind(scene.config()).await.unwrap();
    let retention = bound.retention();
    let server = Running::run(bound);
    // The third release came before the others, or the others were pushed once more: its sequence says that it is the newest.
    for (number, channel, sequence, days) in [
        (1, "stable", Some(10), 1),
        (2, "stable", Some(20), 5),
        (3, "stable", Some(30), 9),
        // Of equal ones the later arrival stays.
        (4, "nightly", Some(7), 3),
        (5, "nightly", Some(7), 2),
        (6, "nightly", Some(8), 400),
        // Without any the arrival decides, as before.
        (7, "beta", None, 3),
        (8, "beta", None, 2),
        (9, "beta", None, 1),
    ] {
        let seal = SealOptions { channel: Some(channel.into()), sequence, ..Default::default() };
        scene.publish_sealed(&server, ("app", number), Some(seal), days).await;
    }
    let plan = scene.plan().await;
    let goes: Vec<&str> = plan.iter().filter(|(_, it)| it.goes).map(|(name, _)| name.as_str()).collect();
    assert_eq!(goes, ["app:1", "app:4", "app:7"]);
    assert_eq!(retention.round().await.unwrap().gone, 3);
    for (number, expected) in
        [(1, StatusCode::NOT_FOUND), (3, StatusCode::OK), (4, StatusCode::NOT_FOUND), (6, StatusCode::OK)]
    {
        assert_eq!(status(&server, &format!("/v2/app/manifests/{number}")).await, expected, "{number}");
    }
    assert_eq!(retention.round().await.unwrap().gone, 0);
    server.stop().await;
}
