//! The description of our own API against the server that it describes: schemathesis makes requests of everything that it allows and forbids,
//! and holds each answer to it.

use crate::program;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::program::{RunningServer, symseal};
use serde_json::Value;

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn described() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/formats/openapi.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn the_server_answers_as_its_description_says() {
    let Some(schemathesis) = program::peer("schemathesis") else { return };
    let root = tempfile::tempdir().unwrap();
    let server = RunningServer::start(&root.path().join("data"));
    let Some(binary) = program::compile_c(root.path(), "app", "int main(void) { return 0; }\n", &["-g"]) else {
        return;
    };
    let layout = text(&root.path().join("layout"));
    symseal(["bundle", "build", &text(&binary), "--name", "app", "--version", "1", "--output", &layout]).ok();
    symseal(["bundle", "push", &layout, &format!("{}/app:1", server.address)]).ok();
    symseal(["upload", "--to", &format!("http://{}", server.address), &text(&binary)]).ok();

    let ran: program::Ran = Command::new(schemathesis)
        .current_dir(root.path())
        .args(["run", &format!("http://{}/api/v1/openapi.json", server.address)])
        // What is looked up by an id that nobody knows is 404, and well asked all the same.
        .args(["--exclude-checks", "positive_data_acceptance"])
        .args(["--max-examples", "25", "--seed", "1", "--workers", "1", "--no-color"])
        .output()
        .unwrap()
        .into();
    assert_eq!(ran.status, 0, "{}\n{}", ran.stdout, ran.stderr);
    let operations =
        described()["paths"].as_object().unwrap().values().map(|path| path.as_object().unwrap().len()).sum::<usize>();
    assert!(ran.stdout.contains(&format!("Tested: {operations}")), "{operations}: {}", ran.stdout);
}

#[test]
fn every_path_of_our_own_api_is_described() {
    let routes = Path::new(env!("CARGO_MANIFEST_DIR")).join("server/src/routes.rs");
    let routes = std::fs::read_to_string(routes).unwrap();
    let routed: BTreeSet<&str> =
        routes.split('"').filter(|text| text.starts_with("/api/v1/") && !text.ends_with("openapi.json")).collect();
    let described = described();
    let described: BTreeSet<String> = described["paths"].as_object().unwrap().keys().cloned().collect();
    let described: BTreeSet<&str> =
        described.iter().map(String::as_str).filter(|path| path.starts_with("/api/")).collect();
    let same_shape = |path: &&str| {
        path.split('/').map(|part| if part.starts_with('{') { "{}" } else { part }).collect::<Vec<_>>().join("/")
    };
    let shapes = |paths: &BTreeSet<&str>| paths.iter().map(same_shape).collect::<BTreeSet<_>>();
    assert_eq!(shapes(&routed), shapes(&described));
}
