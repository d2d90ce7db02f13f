//! Symbol tables of modules that came without a bundle: one file that gives none stands in nobody's way.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};
use symseal_server::{Config, LimitsConfig, Origins};

use crate::msf::Pdb;
use crate::support::programs::Fixture;
use crate::support::{Running, http};

/// The id of the PDBs that [`Pdb`] writes.
const ID: &str = "00000001000200000300000004000000";

fn symbols() -> Vec<u8> {
    format!("MODULE windows x86 {ID}1 app.pdb\nFILE 0 a.c\nFUNC 1000 10 0 main\n1000 10 5 0\n").into_bytes()
}

async fn put(fixture: &Fixture, name: &str, bytes: Vec<u8>) {
    let url = fixture.server.url(&format!("/api/v1/symbols?name={name}"));
    let answer = fixture.http.put(url).body(bytes).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::CREATED, "{}", answer.text().await.unwrap());
}

/// Name and reason that the two faces give for an address.
async fn named(server: &Running, platform: &str, id: &str, address: &str) -> (Value, Value) {
    let body = json!({ "platform": platform, "debug_id": id, "address_kind": "rva", "addresses": [address] });
    let answer = http().post(server.url("/api/v1/resolve")).json(&body).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let answer: Value = answer.json().await.unwrap();
    let frame = &answer["frames"][0];
    let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
    let breakpad = format!("{}1", id.trim_end_matches("-1"));
    let body = json!({ "jobs": [{ "memoryMap": [["app.pdb", breakpad]], "stacks": [[[0, address]]] }], "version": 5 });
    let answer = http().post(server.url("/symbolicate/v5")).json(&body).send().await.unwrap();
    if platform == "windows" {
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["results"][0]["stacks"][0][0]["function"], frame["frames"][0]["function"], "{answer}");
    }
    (frame["frames"][0]["function"].clone(), frame["reason"].clone())
}

#[tokio::test]
async fn a_pdb_without_functions_does_not_take_away_the_symbol_file_beside_it() {
    let fixture = Fixture::new().await;
    put(&fixture, "app.pdb", Pdb::default().write()).await;
    let id = format!("{ID}-1");
    let (function, reason) = named(&fixture.server, "windows", &id, "0x1000").await;
    assert_eq!((function, reason), (Value::Null, json!("no-symbol-at-address")));
    put(&fixture, "app.sym", symbols()).await;
    let (function, reason) = named(&fixture.server, "windows", &id, "0x1000").await;
    assert_eq!((function, reason), (json!("main"), Value::Null));
}

#[tokio::test]
async fn a_symbol_file_that_would_take_more_memory_than_there_is_for_tables_gives_none() {
    let limits = LimitsConfig { table_memory: Some(1 << 20), ..LimitsConfig::default() };
    let root = tempfile::tempdir().unwrap();
    let mut config = Config::new(root.path().join("data"), ([127, 0, 0, 1], 0).into());
    config.limits = limits;
    let server = Running::start_as(config).await;
    let fixture = Fixture { root, server, http: http() };
    // A symbol file takes its size eighteen times, and two are read at once.
    let most = (1 << 20) / 36;
    let mut symbols = symbols();
    while symbols.len() < most {
        symbols.extend(format!("PUBLIC {:x} 0 a\n", 0x2000 + symbols.len()).into_bytes());
    }
    put(&fixture, "large.sym", symbols.clone()).await;
    let id = format!("{ID}-1");
    assert_eq!(named(&fixture.server, "windows", &id, "0x1000").await, (Value::Null, json!("malformed")));
    let body =
        json!({ "jobs": [{ "memoryMap": [["app.pdb", format!("{ID}1")]], "stacks": [[[0, 0x1000]]] }], "version": 5 });
    let answer = fixture.http.post(fixture.server.url("/symbolicate/v5")).json(&body).send().await.unwrap();
    let answer = answer.text().await.unwrap();
    for part in ["limits.table_memory", &symbols.len().to_string(), &most.to_string()] {
        assert!(answer.contains(part), "{answer}");
    }
    // The file itself is served, and a smaller one gives its table.
    let path = format!("/symbols/app.pdb/{ID}1/app.sym");
    let served = fixture.http.get(fixture.server.url(&path)).send().await.unwrap();
    assert!(served.bytes().await.unwrap() == symbols);
    put(&fixture, "small.sym", self::symbols()).await;
    assert_eq!(named(&fixture.server, "windows", &id, "0x1000").await.0, json!("main"));
}

#[tokio::test]
async fn files_of_every_place_are_tried_for_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("app.sym"), symbols()).unwrap();
    // As large as nothing else: the first to be tried.
    std::fs::write(tree.join("app.pdb"), [Pdb::default().write(), vec![0; 1 << 16]].concat()).unwrap();
    let origins = Origins { trees: vec![tree], tree_interval: Duration::from_millis(200), ..Origins::default() };
    let root = tempfile::tempdir().unwrap();
    let server = Running::start_with(&root.path().join("data"), &origins).await;
    let fixture = Fixture { root, server, http: http() };
    put(&fixture, "app.pdb", Pdb::default().write()).await;
    let started = Instant::now();
    while named(&fixture.server, "windows", &format!("{ID}-1"), "0x1000").await.0 != json!("main") {
        assert!(started.elapsed() < Duration::from_secs(10), "the tree's symbol file is not tried");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
