//! Seals at ingest: what is hidden until one holds, whose files answer, and who may not offer others.

use std::path::Path;

use crate::support::programs::has;
use crate::support::sealing::{Built, Scene};
use crate::support::{Running, options};
use reqwest::StatusCode;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;
use symseal_builder::{SealOptions, seal_bundle};
use symseal_bundle::Digest;
use symseal_bundle::oci;
use symseal_registry::{Options as RegistryOptions, RegistryAuth, push};
use symseal_sealer::TrustChange;
use symseal_server::{AccessConfig, SealRules};

const ID: &str = "/buildid/abcdef01/debuginfo";

/// What `/api/v1/resolve` says of the program's entry point.
async fn named(scene: &Scene, server: &Running) -> Value {
    let path = scene.http.get(server.url("/buildid/abcdef01/executable")).send().await.unwrap().bytes().await.unwrap();
    // `e_entry` of a 64-bit ELF file; any address will do where there is no file.
    let entry = path.get(24..32).map_or(1, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
    let request =
        serde_json::json!({"platform": "linux", "debug_id": "abcdef01", "addresses": [format!("{entry:#x}")]});
    let answer = scene.http.post(server.url("/api/v1/resolve")).json(&request).send().await.unwrap();
    answer.json::<Value>().await.unwrap()["frames"][0].clone()
}

#[tokio::test]
async fn a_bundle_is_hidden_until_its_seal_comes_and_when_it_goes() {
    if !has("cc") {
        return;
    }
    let mut scene = Scene::new();
    let server = scene.serve(&["prod", "team/app"]).await;
    let built = scene.build("app", "abcdef01", "one", &["-g"]);
    scene.push(&server, &built, "prod/app").await.unwrap();
    for path in [
        ID,
        "/buildid/abcdef01/executable",
        "/buildid/abcdef01/section/.debug_info",
        "/s/prod/app/buildid/abcdef01/debuginfo",
    ] {
        assert_eq!(scene.answer(&server, path).await, None, "{path}");
    }
    assert_eq!(scene.get(&server, &format!("/v2/prod/app/manifests/{}", built.digest)).await.0, StatusCode::OK);
    assert_eq!(scene.verification(&server, &built).await["status"], "unsealed");
    assert!(String::from_utf8(scene.get(&server, "/metrics").await.1).unwrap().contains("symseal_build_ids 0\n"));

    assert_eq!(scene.json(&server, "/metadata?key=glob&value=*").await["results"], serde_json::json!([]));
    assert_eq!(named(&scene, &server).await["reason"], "not-in-bundle");

    let seal = scene.seal(&built);
    scene.push(&server, &built, "prod/app").await.unwrap();
    assert!(scene.answer(&server, ID).await.unwrap() == built.file);
    assert_eq!(scene.json(&server, "/metadata?key=buildid&value=abcdef01").await["results"][0]["buildid"], "abcdef01");
    let record = scene.json(&server, &format!("/api/v1/bundles/{}", built.digest)).await;
    let proved = named(&scene, &server).await;
    assert_eq!((&proved["proof"], &proved["bundle"]), (&"sealed".into(), &built.digest.to_string().into()));
    assert_eq!(proved["seal"], record["seal"]["dsse_ref"]);
    let verification = scene.verification(&server, &built).await;
    assert_eq!(verification["status"], "sealed", "{verification}");
    assert_eq!(verification["signers"][0], scene.key.key_id().to_string());
    assert_eq!(verification["log"], "log.example");
    for (prefix, shown) in [("prod", true), ("prod/app", true), ("pro", false), ("prod/app/x", false), ("team", false)]
    {
        let path = format!("/s/{prefix}/buildid/abcdef01/debuginfo");
        assert_eq!(scene.answer(&server, &path).await.is_some(), shown, "{prefix}");
        let path = format!("/s/{prefix}/symbols/_.debug/elf-buildid-sym-abcdef01/_.debug");
        assert_eq!(scene.answer(&server, &path).await.is_some(), shown, "{prefix}");
    }

    server.stop().await;
    let server = scene.serve(&["all"]).await;
    assert!(scene.answer(&server, ID).await.unwrap() == built.file);
    let url = server.url(&format!("/v2/prod/app/manifests/{seal}"));
    assert_eq!(scene.http.delete(url).send().await.unwrap().status(), StatusCode::ACCEPTED);
    assert_eq!(scene.answer(&server, ID).await, None);
    let record = scene.json(&server, &format!("/api/v1/bundles/{}", built.digest)).await;
    assert_eq!((&record["seal"], &record["shown"]), (&Value::Null, &Value::Bool(false)));
    assert_eq!(scene.put(&server, &built, "prod/app", &seal, oci::MANIFEST).await.0, StatusCode::CREATED);
    assert!(scene.answer(&server, ID).await.is_some());
    server.stop().await;
    // Without a trust directory nothing is judged, and everything is shown.
    let server = Running::start(&scene.data()).await;
    assert!(scene.answer(&server, ID).await.is_some());
    assert_eq!(scene.verification(&server, &built).await["status"], "unjudged");
}

#[tokio::test]
async fn a_seal_that_comes_before_its_bundle_counts() {
    if !has("cc") {
        return;
    }
    let mut scene = Scene::new();
    let server = scene.serve(&["all"]).await;
    let built = scene.build("app", "abcdef01", "one", &["-g"]);
    let seal = scene.seal(&built);
    let manifest: Value =
        serde_json::from_slice(&built.layout.read_blob(&seal, oci::MAX_MANIFEST_BYTES).unwrap()).unwrap();
    for part in [&manifest["config"], &manifest["layers"][0]] {
        let digest: Digest = part["digest"].as_str().unwrap().parse().unwrap();
        let url = server.url(&format!("/v2/app/blobs/uploads/?digest={digest}"));
        let body = built.layout.read_blob(&digest, 1 << 20).unwrap();
        assert_eq!(scene.http.post(url).body(body).send().await.unwrap().status(), StatusCode::CREATED);
    }
    assert_eq!(scene.put(&server, &built, "app", &seal, oci::MANIFEST).await.0, StatusCode::CREATED);
    assert_eq!(scene.answer(&server, ID).await, None);
    scene.push(&server, &built, "app").await.unwrap();
    assert!(scene.answer(&server, ID).await.unwrap() == built.file);
}

#[tokio::test]
async fn a_seal_by_a_stranger_or_of_a_revoked_key_is_none() {
    if !has("cc") {
        return;
    }
    let mut scene = Scene::new();
    let server = scene.serve(&["all"]).await;
    let built = scene.build("app", "abcdef01", "one", &["-g"]);
    seal_bundle(&built.layout, &built.digest, &scene.stranger, &mut scene.log, &SealOptions::default()).unwrap();
    scene.push(&server, &built, "app").await.unwrap();
    assert_eq!(scene.answer(&server, ID).await, None);
    let verification = scene.verification(&server, &built).await;
    assert_eq!((&verification["status"], &verification["check"]), (&"refused".into(), &"trust.key".into()));
    // A good one beside it is enough.
    scene.seal(&built);
    scene.push(&server, &built, "app").await.unwrap();
    assert!(scene.answer(&server, ID).await.is_some());
    server.stop().await;

    let trust = scene.folder.path().join("trust");
    let mut change = TrustChange::open(&trust).unwrap();
    let stolen = symseal_sealer::trust::RevocationChange { reason: "stolen".to_owned(), ..Default::default() };
    change.revoke_key(&scene.key.key_id().to_string(), stolen).unwrap();
    change.sign(std::slice::from_ref(&scene.root)).unwrap();
    let server = scene.serve(&["all"]).await;
    assert_eq!(scene.answer(&server, ID).await, None);
    assert_eq!(scene.verification(&server, &built).await["status"], "refused");
}

#[tokio::test]
async fn a_second_owner_of_a_sealed_id_is_refused_and_told_of() {
    if !has("cc") {
        return;
    }
    let mut scene = Scene::new();
    let server = scene.serve(&[]).await;
    let sealed = scene.build("app", "abcdef01", "one", &["-g1"]);
    scene.seal(&sealed);
    scene.push(&server, &sealed, "prod/app").await.unwrap();

    let evil = scene.build("evil", "abcdef01", "two, and better", &["-g3"]);
    assert!(scene.push(&server, &evil, "evil/app").await.is_err());
    let (status, error) = scene.put(&server, &evil, "evil/app", &evil.digest, oci::IMAGE_INDEX).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let message = error["errors"][0]["message"].as_str().unwrap();
    for part in ["abcdef01", &Digest::of(&sealed.file).to_string(), &Digest::of(&evil.file).to_string(), "--build-id"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(error["errors"][0]["code"], "DENIED");
    assert_eq!(scene.get(&server, &format!("/v2/evil/app/manifests/{}", evil.digest)).await.0, StatusCode::NOT_FOUND);
    assert!(scene.answer(&server, ID).await.unwrap() == sealed.file);
    let alerts = scene.json(&server, "/api/v1/alerts").await;
    let alert = &alerts["alerts"][0];
    assert_eq!((&alert["kind"], &alert["repository"]), (&"second-owner".into(), &"evil/app".into()), "{alerts}");
    let metrics = String::from_utf8(scene.get(&server, "/metrics").await.1).unwrap();
    assert!(metrics.contains("symseal_alerts_total{kind=\"second-owner\"} 2\n"), "{metrics}");

    // The owner may offer other bytes, which is told of; a new release with the same bytes is not even that.
    let rebuilt = scene.build("app", "abcdef01", "three", &["-g3"]);
    scene.push(&server, &rebuilt, "prod/app").await.unwrap();
    assert!(scene.answer(&server, ID).await.unwrap() == sealed.file);
    let alerts = scene.json(&server, "/api/v1/alerts").await;
    assert_eq!(alerts["alerts"][0]["kind"], "different-bytes", "{alerts}");
    assert_eq!(alerts["alerts"][0]["answers"], Digest::of(&sealed.file).to_string());

    // They outlive the server, whose counts begin anew.
    let before = alerts;
    server.stop().await;
    let server = scene.serve(&[]).await;
    assert_eq!(scene.json(&server, "/api/v1/alerts").await, before);
    let metrics = String::from_utf8(scene.get(&server, "/metrics").await.1).unwrap();
    assert!(metrics.contains("symseal_alerts_total{kind=\"second-owner\"} 0\n"), "{metrics}");
}

#[tokio::test]
async fn who_sealed_a_stripped_program_owns_its_debug_file() {
    if !has("cc") {
        return;
    }
    let mut scene = Scene::new();
    let server = scene.serve(&[]).await;
    let sealed = scene.build("app", "abcdef01", "stripped", &["-s"]);
    scene.seal(&sealed);
    scene.push(&server, &sealed, "prod/app").await.unwrap();
    let evil = scene.build("evil", "abcdef01", "with all debug information", &["-g3"]);
    assert!(scene.push(&server, &evil, "evil/app").await.is_err());
    let (status, error) = scene.put(&server, &evil, "evil/app", &evil.digest, oci::IMAGE_INDEX).await;
    assert_eq!(status, StatusCode::CONFLICT, "{error}");
    assert_eq!(scene.answer(&server, ID).await, None, "nobody says anything of it yet");
    let alerts = scene.json(&server, "/api/v1/alerts").await;
    assert_eq!(
        (&alerts["alerts"][0]["kind"], &alerts["alerts"][0]["file"]),
        (&"second-owner".into(), &"debuginfo".into())
    );
    // Its owner brings what belongs to it.
    let own = scene.build("app", "abcdef01", "its debug information", &["-g"]);
    scene.push(&server, &own, "prod/app").await.unwrap();
    assert!(scene.answer(&server, ID).await.unwrap() == own.file);
}

#[tokio::test]
async fn a_second_owner_learns_nothing_of_a_sealed_bundle_that_it_may_not_read() {
    if !has("cc") {
        return;
    }
    let mut scene = Scene::new();
    let owner = scene.token(&["write:secret"]).await;
    let stranger = scene.token(&["write:public", "write:loose"]).await;
    let reader = scene.token(&["write:public", "read:secret"]).await;
    let auditor = scene.token(&["audit:read"]).await;
    let mut config = symseal_server::Config::new(scene.data(), ([127, 0, 0, 1], 0).into());
    config.access = AccessConfig::Tokens { anonymous_read: Vec::new() };
    let server = symseal_server::Server::bind(config).await.unwrap().judging(scene.rules(&[])).await.unwrap();
    let server = Running::run(server);
    let push_as = async |token: &str, built: &Built, repository: &str| {
        let auth = RegistryAuth::Basic("ci".into(), token.into());
        let reference = server.reference(&format!("{repository}:1"));
        push(&built.layout, &built.digest, &reference, &RegistryOptions { auth, ..options() }).await
    };
    let sealed = scene.build("project-x", "abcdef01", "one", &["-g1"]);
    scene.seal(&sealed);
    push_as(&owner, &sealed, "secret/x").await.unwrap();

    let other = scene.build("other", "abcdef01", "two, and better", &["-g3"]);
    let secrets =
        [Digest::of(&sealed.file).to_string(), sealed.digest.to_string(), "project-x".into(), "secret".into()];
    let refused = push_as(&stranger, &other, "public/app").await.unwrap_err().to_string();
    assert!(refused.contains("409") && refused.contains("abcdef01") && refused.contains("operator"), "{refused}");
    // A file by itself is refused in the same words.
    let url = server.url("/api/v1/symbols?name=app");
    let put = scene.http.put(url).bearer_auth(&stranger).body(other.file.clone()).send().await.unwrap();
    assert_eq!(put.status(), StatusCode::CONFLICT);
    let loose: Value = serde_json::from_slice(&put.bytes().await.unwrap()).unwrap();
    assert_eq!(loose["error"]["code"], "second-owner");
    let loose = loose["error"]["message"].as_str().unwrap();
    assert!(loose.contains("abcdef01"), "{loose}");
    for secret in &secrets {
        assert!(!refused.contains(secret) && !loose.contains(secret), "{refused} {loose}");
    }
    // Who may read the sealed bundle is told all, and so is the operator.
    let manifest = other.layout.read_blob(&other.digest, oci::MAX_MANIFEST_BYTES).unwrap();
    let put = scene.http.put(server.url("/v2/public/app/manifests/1")).bearer_auth(&reader);
    let put = put.header(CONTENT_TYPE, oci::IMAGE_INDEX).body(manifest).send().await.unwrap();
    let refused = put.text().await.unwrap();
    let alerts = scene.http.get(server.url("/api/v1/alerts")).bearer_auth(&auditor).send().await.unwrap();
    let alerts: Value = serde_json::from_slice(&alerts.bytes().await.unwrap()).unwrap();
    assert_eq!(alerts["alerts"].as_array().unwrap().len(), 3, "{alerts}");
    for secret in &secrets[..3] {
        assert!(refused.contains(secret), "{refused}");
        assert!(alerts["alerts"][2].to_string().contains(secret), "{alerts}");
    }
}

#[tokio::test]
async fn a_seal_that_comes_after_both_bundles_decides_and_a_second_one_is_refused() {
    if !has("cc") {
        return;
    }
    let mut scene = Scene::new();
    let server = scene.serve(&[]).await;
    let poor = scene.build("app", "abcdef01", "one", &["-g1"]);
    let rich = scene.build("other", "abcdef01", "two", &["-g3"]);
    scene.push(&server, &poor, "prod/app").await.unwrap();
    scene.push(&server, &rich, "other/app").await.unwrap();
    assert!(scene.answer(&server, ID).await.unwrap() == rich.file);
    scene.seal(&poor);
    scene.push(&server, &poor, "prod/app").await.unwrap();
    assert!(scene.answer(&server, ID).await.unwrap() == poor.file);
    let scoped = "/s/other/buildid/abcdef01/debuginfo";
    assert!(scene.answer(&server, scoped).await.unwrap() == rich.file);

    let seal = scene.seal(&rich);
    assert!(scene.push(&server, &rich, "other/app").await.is_err());
    assert_eq!(scene.put(&server, &rich, "other/app", &seal, oci::MANIFEST).await.0, StatusCode::CONFLICT);
    assert_eq!(scene.verification(&server, &rich).await["status"], "unsealed");
    assert!(scene.answer(&server, ID).await.unwrap() == poor.file);
}

#[tokio::test]
async fn a_prefix_that_is_no_name_and_a_folder_without_trust_are_told() {
    let scene = Scene::new();
    for (trust, require, expected) in
        [("trust", "A b", "--require-seal \"A b\""), ("nowhere", "all", "symseal trust init")]
    {
        let config = symseal_server::Config::new(scene.data(), ([127, 0, 0, 1], 0).into());
        let server = symseal_server::Server::bind(config).await.unwrap();
        let rules = SealRules { trust: scene.folder.path().join(trust), require: vec![require.into()] };
        let error = server.judging(rules).await.err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(Path::new(&scene.data()).exists());
}
