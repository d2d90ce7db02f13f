//! A server on PostgreSQL: it answers what it answered on SQLite, and outlives its database.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::postgres::{PASSWORD, Postgres};
use crate::support::programs::{has, publish, run};
use crate::support::{self, Running, http};
use reqwest::StatusCode;
use symseal_builder::{SealOptions, seal_bundle};
use symseal_bundle::{Digest, LayoutDir, oci};
use symseal_registry::push;
use symseal_seal::UtcSeconds;
use symseal_sealer::{ArtifactKey, LogKey, TileLog};
use symseal_server::tokens::{NewToken, Tokens};
use symseal_server::{AccessConfig, Config, DatabaseUrl};

const ID: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa01";

fn config(data: &Path, database: &DatabaseUrl) -> Config {
    let mut config = Config::new(data, ([127, 0, 0, 1], 0).into());
    config.database = Some(database.clone());
    config
}

fn program(root: &Path) -> std::path::PathBuf {
    let (source, binary) = (root.join("app.c"), root.join("app"));
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let [from, to] = [&source, &binary].map(|path| path.to_str().unwrap());
    run("gcc", &["-g", "-o", to, from, &format!("-Wl,--build-id=0x{ID}")]);
    binary
}

async fn status(url: String) -> (StatusCode, Option<String>) {
    let answer = http().get(url).send().await.unwrap();
    let retry = answer.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    (answer.status(), retry)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_restarted_stops_no_reader_and_the_server_recovers() {
    let Some(mut postgres) = Postgres::start() else { return };
    if !has("gcc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let database: DatabaseUrl = postgres.url(&postgres.create_database()).parse().unwrap();
    let data = root.path().join("data");
    let server = Running::start_as(config(&data, &database)).await;
    let binary = program(root.path());
    let digest = publish(&server, root.path(), "1", &[&binary]).await;
    assert!(!data.join("symseal.sqlite").exists());
    let readers = [
        format!("/buildid/{ID}/debuginfo"),
        format!("/v2/app/manifests/{digest}"),
        "/v2/app/manifests/1".to_owned(),
        "/v2/app/tags/list".to_owned(),
    ];
    let bundle = server.url(&format!("/api/v1/bundles/{digest}"));
    assert_eq!(status(server.url("/readyz")).await.0, StatusCode::OK);
    let known: serde_json::Value = http().get(&bundle).send().await.unwrap().json().await.unwrap();
    assert_eq!(known["index"]["version"], "1", "{known}");

    postgres.stop();
    for path in &readers {
        assert_eq!(status(server.url(path)).await.0, StatusCode::OK, "{path}");
    }
    let body = http().get(server.url("/readyz")).send().await.unwrap();
    assert_eq!(body.status(), StatusCode::SERVICE_UNAVAILABLE);
    let body = body.text().await.unwrap();
    assert!(
        body.contains("the server's database does not answer") || body.contains("the database has not answered"),
        "{body}"
    );
    assert!(!body.contains(PASSWORD) && !body.contains("data directory"), "{body}");
    // A change that needs no record is done, and its line of the audit log is missed.
    let lost = async || {
        let metrics = http().get(server.url("/metrics")).send().await.unwrap().text().await.unwrap();
        let line = metrics.lines().find_map(|line| line.strip_prefix("symseal_audit_lines_lost_total "));
        line.unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(lost().await, 0);
    support::put_manifest(&http(), &server, "plain", &serde_json::json!({})).await.unwrap();
    assert_eq!(lost().await, 1);
    assert_eq!(status(server.url("/healthz")).await.0, StatusCode::OK);
    assert_eq!(status(bundle.clone()).await, (StatusCode::SERVICE_UNAVAILABLE, Some("5".to_owned())));

    postgres.start_again();
    let started = Instant::now();
    while status(server.url("/readyz")).await.0 != StatusCode::OK {
        assert!(started.elapsed() < Duration::from_secs(30), "the server does not recover");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(status(bundle).await.0, StatusCode::OK);
    let second = publish(&server, root.path(), "2", &[&binary]).await;
    assert_ne!(second, digest);
    server.stop().await;

    // What one server recorded another finds; what it lacks is made again out of the blobs.
    let fresh: DatabaseUrl = postgres.url(&postgres.create_database()).parse().unwrap();
    for database in [&database, &fresh] {
        let server = Running::start_as(config(&data, database)).await;
        assert_eq!(status(server.url(&format!("/api/v1/bundles/{second}"))).await.0, StatusCode::OK);
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_backup_of_the_database_is_put_back_clients_are_told_to_come_again() {
    let Some(postgres) = Postgres::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let name = postgres.create_database();
    let database: DatabaseUrl = postgres.url(&name).parse().unwrap();
    let server = Running::start_as(config(&root.path().join("data"), &database)).await;
    let trace = server.url("/api/v1/traces/00000000-0000-4000-8000-000000000001");
    let put = async || {
        let event = r#"{"event":"trace.capture","trace_id":"00000000-0000-4000-8000-000000000001","platform":"linux","frames":[]}"#;
        let answer = http().put(&trace).body(format!("{event}\n")).send().await.unwrap();
        (answer.status(), answer.headers().get("retry-after").is_some())
    };
    for table in ["changes", "traces", "replays"] {
        postgres.run(&name, &format!("ALTER TABLE {table} RENAME TO gone"));
        assert_eq!(status(server.url("/readyz")).await.0, StatusCode::SERVICE_UNAVAILABLE, "{table}");
        if table == "traces" {
            assert_eq!(put().await, (StatusCode::SERVICE_UNAVAILABLE, true));
        }
        postgres.run(&name, &format!("ALTER TABLE gone RENAME TO {table}"));
        assert_eq!(status(server.url("/readyz")).await.0, StatusCode::OK, "{table}");
    }
    assert_eq!(put().await.0, StatusCode::CREATED);
    server.stop().await;
}

/// A server on a database of its own, and a bundle that it has not got yet.
async fn server_and_bundle(postgres: &Postgres, root: &Path) -> (Running, LayoutDir, Digest) {
    let database: DatabaseUrl = postgres.url(&postgres.create_database()).parse().unwrap();
    let server = Running::start_as(config(&root.join("data"), &database)).await;
    let layout = LayoutDir::create(root.join("layout")).unwrap();
    let release = symseal_builder::Options { name: "app".into(), version: "1".into(), ..Default::default() };
    let builder = symseal_builder::SymbolBundleBuilder::new(release).add_path(program(root));
    let digest = builder.build(&layout).unwrap().digest;
    (server, layout, digest)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_the_database_cannot_record_is_told_to_come_again() {
    let Some(mut postgres) = Postgres::start() else { return };
    if !has("gcc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let (server, layout, digest) = server_and_bundle(&postgres, root.path()).await;
    postgres.stop();
    let options = symseal_registry::Options { tries: 1, ..support::options() };
    let refused = push(&layout, &digest, &server.reference("app:1"), &options).await.unwrap_err().to_string();
    assert!(refused.contains("database") && !refused.contains(PASSWORD), "{refused}");
    // Nothing of it is seen.
    assert_eq!(status(server.url(&format!("/buildid/{ID}/debuginfo"))).await.0, StatusCode::NOT_FOUND);
    postgres.start_again();
    push(&layout, &digest, &server.reference("app:1"), &support::options()).await.unwrap();
    assert_eq!(status(server.url(&format!("/buildid/{ID}/debuginfo"))).await.0, StatusCode::OK);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_or_a_seal_that_the_database_cannot_record_changes_nothing() {
    let Some(mut postgres) = Postgres::start() else { return };
    if !has("gcc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let (server, layout, bundle) = server_and_bundle(&postgres, root.path()).await;
    let at = |name: &str| root.path().join(name);
    let (key, log_key) = (ArtifactKey::generate().unwrap(), LogKey::generate().unwrap());
    let mut log = TileLog::create(&at("log"), "log.example".parse().unwrap(), log_key, &at("seen")).unwrap();
    let seal = seal_bundle(&layout, &bundle, &key, &mut log, &SealOptions::default()).unwrap();
    let options = symseal_registry::Options { tries: 1, ..support::options() };
    push(&layout, &bundle, &server.reference("app:1"), &options).await.unwrap();
    let (loose, loose_id) = (at("loose"), format!("{}2", &ID[..ID.len() - 1]));
    let [from, to] = [at("app.c"), loose.clone()].map(|path| path.to_str().unwrap().to_owned());
    run("gcc", &["-g", "-o", &to, &from, &format!("-Wl,--build-id=0x{loose_id}")]);
    let put = http().put(server.url("/api/v1/symbols?name=loose")).body(std::fs::read(&loose).unwrap());
    let put: serde_json::Value = put.send().await.unwrap().json().await.unwrap();
    let plain = support::put_manifest(&http(), &server, "plain", &serde_json::json!({})).await.unwrap();
    let plain = format!("/v2/plain/manifests/{}", plain["digest"].as_str().unwrap());
    let bytes = http().get(server.url(&plain)).send().await.unwrap().bytes().await.unwrap();
    let tag = "/v2/plain/manifests/latest".to_owned();
    let tagged = http().put(server.url(&tag)).header("content-type", oci::MANIFEST).body(bytes).send().await.unwrap();
    assert_eq!(tagged.status(), StatusCode::CREATED);
    let blob = format!("/v2/plain/blobs/{}", Digest::of(oci::EMPTY_JSON));
    let all = [
        // What the database records nothing of but that it went.
        (tag.clone(), tag, StatusCode::ACCEPTED),
        (plain.clone(), plain, StatusCode::ACCEPTED),
        (blob.clone(), blob, StatusCode::ACCEPTED),
        (format!("/v2/app/manifests/{seal}"), format!("/v2/app/manifests/{seal}"), StatusCode::ACCEPTED),
        (format!("/v2/app/manifests/{bundle}"), format!("/buildid/{ID}/debuginfo"), StatusCode::ACCEPTED),
        (
            format!("/api/v1/symbols/{}", put["manifest"].as_str().unwrap()),
            format!("/buildid/{loose_id}/debuginfo"),
            StatusCode::NO_CONTENT,
        ),
    ];
    let recorded = async || {
        let answer = http().get(server.url(&format!("/api/v1/bundles/{bundle}"))).send().await.unwrap();
        answer.json::<serde_json::Value>().await.unwrap()["seal"].clone()
    };
    let before = recorded().await;
    assert!(before.is_object(), "{before}");

    postgres.stop();
    for (path, seen, _) in &all {
        let answer = http().delete(server.url(path)).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert!(answer.headers().contains_key("retry-after"), "{path}");
        assert_eq!(status(server.url(seen)).await.0, StatusCode::OK, "{seen}");
    }
    // Nor is a seal seen that is not recorded.
    let second = ArtifactKey::generate().unwrap();
    let second = seal_bundle(&layout, &bundle, &second, &mut log, &SealOptions::default()).unwrap();
    push(&layout, &bundle, &server.reference("app:1"), &options).await.unwrap_err();
    assert_eq!(status(server.url(&format!("/v2/app/manifests/{second}"))).await.0, StatusCode::NOT_FOUND);

    postgres.start_again();
    let started = Instant::now();
    while status(server.url("/readyz")).await.0 != StatusCode::OK {
        assert!(started.elapsed() < Duration::from_secs(30), "the server does not recover");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(recorded().await, before);
    for (path, seen, done) in &all {
        assert_eq!(http().delete(server.url(path)).send().await.unwrap().status(), *done, "{path}");
        assert_eq!(status(server.url(seen)).await.0, StatusCode::NOT_FOUND, "{seen}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_was_seen_holds_while_the_database_is_away() {
    let Some(mut postgres) = Postgres::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let database: DatabaseUrl = postgres.url(&postgres.create_database()).parse().unwrap();
    let tokens = Tokens::open(root.path(), Some(&database)).await.unwrap();
    let token = async |name: &str| {
        let grants = vec!["read:*".parse().unwrap()];
        let new = NewToken { name: name.into(), created: UtcSeconds(1), expires: None, grants, keys: Vec::new() };
        tokens.create(new).await.unwrap().0.expose().to_owned()
    };
    let (seen, unseen) = (token("seen").await, token("unseen").await);
    let mut config = config(&root.path().join("data"), &database);
    config.access = AccessConfig::Tokens { anonymous_read: Vec::new() };
    let server = Running::start_as(config).await;
    let ask = async |token: &str, path: &str| http().get(server.url(path)).bearer_auth(token).send().await;
    assert_eq!(ask(&seen, "/v2/_catalog").await.unwrap().status(), StatusCode::OK);
    postgres.stop();
    // Beyond the time for which an answer is believed in any case.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert_eq!(ask(&seen, "/v2/_catalog").await.unwrap().status(), StatusCode::OK);
    let asked = Instant::now();
    assert_eq!(ask(&seen, "/v2/_catalog").await.unwrap().status(), StatusCode::OK);
    assert!(asked.elapsed() < Duration::from_secs(1), "a known token waits for a database that is away");
    assert_eq!(ask(&unseen, "/v2/_catalog").await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    // To debuggers any answer would be "there is no such file".
    assert!(ask(&unseen, &format!("/buildid/{ID}/debuginfo")).await.is_err());
    postgres.start_again();
    assert_eq!(ask(&unseen, "/v2/_catalog").await.unwrap().status(), StatusCode::OK);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_nobody_listens_for_is_told_as_that() {
    let nobody = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let database: DatabaseUrl = format!("postgres://symseal:{PASSWORD}@{nobody}/symbols").parse().unwrap();
    let root = tempfile::tempdir().unwrap();
    let Err(refused) = symseal_server::Server::bind(config(root.path(), &database)).await else {
        panic!("a server started without its database");
    };
    let refused = refused.to_string();
    assert!(refused.contains("refused") && refused.contains("that answers"), "{refused}");
    assert!(!refused.contains("pool") && !refused.contains(PASSWORD), "{refused}");
}
