//! The description of our own API against a server that asks for tokens: schemathesis makes requests of everything that it allows and forbids, as one
//! who may do everything and as one who may do nothing, and holds each answer to it.

use std::process::Command;

use crate::support::programs::has;
use crate::support::{Running, http};
use reqwest::StatusCode;
use serde_json::Value;
use symseal_seal::UtcSeconds;
use symseal_server::tokens::{NewToken, Tokens};
use symseal_server::{AccessConfig, Config};

#[tokio::test(flavor = "multi_thread")]
async fn the_server_answers_who_may_write_and_who_may_nothing_as_its_description_says() {
    if !has("schemathesis") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let token = async |name: &str, grants: &[&str]| {
        let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
        let new = NewToken { name: name.into(), created: UtcSeconds(1), expires: None, grants, keys: Vec::new() };
        let tokens = Tokens::open(&data, None).await.unwrap();
        tokens.create(new).await.unwrap().0.expose().to_owned()
    };
    let everything = token("everything", &["write:*", "traces:read", "traces:write", "audit:read"]).await;
    let nothing = token("nothing", &["read:nowhere"]).await;
    let mut config = Config::new(&data, ([127, 0, 0, 1], 0).into());
    config.access = AccessConfig::Tokens { anonymous_read: Vec::new() };
    let server = Running::start_as(config).await;
    for (token, audit) in [(&everything, StatusCode::OK), (&nothing, StatusCode::FORBIDDEN)] {
        // The two are what they are called.
        let asked = http().get(server.url("/api/v1/audit")).bearer_auth(token).send().await.unwrap();
        assert_eq!(asked.status(), audit);
        let mut schemathesis = Command::new("schemathesis");
        schemathesis.current_dir(root.path()).args(["run", &server.url("/api/v1/openapi.json")]);
        schemathesis.args(["--header", &format!("Authorization: Bearer {token}")]);
        // What is looked up by an id that nobody knows is 404, and well asked all the same.
        schemathesis.args(["--exclude-checks", "positive_data_acceptance"]);
        schemathesis.args(["--max-examples", "10", "--seed", "1", "--workers", "1", "--no-color"]);
        let ran = tokio::task::spawn_blocking(move || schemathesis.output().unwrap()).await.unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    }
    // Who may write did: what it sent is in the audit log, refused or not; of the other nothing was taken.
    let audit = http().get(server.url("/api/v1/audit")).bearer_auth(&everything).send().await.unwrap();
    let audit: Value = audit.json().await.unwrap();
    let lines = audit["entries"].as_array().unwrap();
    assert!(lines.iter().any(|line| line["method"] == "PUT"), "{audit}");
    server.stop().await;
}
