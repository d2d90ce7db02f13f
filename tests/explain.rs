//! `symseal explain symbol`: the trail of one address, in words and as JSON, with the proof that the seal gives.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod program;

use std::process::Command;

use program::{symseal, tool};
use serde_json::Value;

const SOURCE: &str = "
static inline __attribute__((always_inline)) int doubled(int x) { return x * 2 + 1; }
__attribute__((noinline)) int seen(int x, volatile int *y) { *y = doubled(x); return *y + 3; }
int main(int argc, char **argv) { volatile int y = 0; (void)argv; return seen(argc, &y); }
";

struct Scene {
    root: tempfile::TempDir,
    id: String,
    /// The address of `seen`, as nm has it.
    address: String,
}

impl Scene {
    fn new() -> Option<Self> {
        let (nm, root) = (tool("nm")?, tempfile::tempdir().unwrap());
        let app = program::compile_c(root.path(), "app", SOURCE, &["-g", "-O1", "-Wl,--build-id"])?;
        let symbols = Command::new(nm).arg(&app).output().unwrap().stdout;
        let symbols = String::from_utf8(symbols).unwrap();
        let line = symbols.lines().find(|line| line.ends_with(" seen")).expect("the function");
        let address = format!("0x{}", line.split(' ').next().unwrap().trim_start_matches('0'));
        let mut scene = Self { root, id: String::new(), address };
        symseal(["key", "generate", "--output", &scene.at("keys")]).ok();
        let (key, log) = (scene.at("keys/artifact.pub.pem"), scene.at("log"));
        symseal(["trust", "init", "--trust", &scene.at("trust"), "--key", &key, "--name", "app", "--log", &log]).ok();
        let named = ["--name", "app", "--version", "1", "--output"];
        symseal(["bundle", "build", &scene.at("app")].into_iter().chain(named).chain([scene.at("bundle").as_str()]))
            .ok();
        let (key, log_key) = (scene.at("keys/artifact.key.pem"), scene.at("keys/log.key.pem"));
        symseal(["bundle", "seal", &scene.at("bundle"), "--key", &key, "--log", &log, "--log-key", &log_key]).ok();
        let index = symseal(["bundle", "inspect", &scene.at("bundle"), "--json"]).ok().json();
        scene.id = index["linux"].as_object().unwrap().keys().next().unwrap().clone();
        Some(scene)
    }

    fn at(&self, name: &str) -> String {
        self.root.path().join(name).display().to_string()
    }

    fn explain(&self, address: &str, more: &[&str]) -> program::Ran {
        let bundle = self.at("bundle");
        symseal(["explain", "symbol", &bundle, &self.id, address].iter().chain(more))
    }
}

fn steps(found: &Value) -> Vec<(String, String)> {
    let tried = found["tried"].as_array().unwrap().iter();
    tried.map(|one| (one["step"].as_str().unwrap().to_owned(), one["outcome"].to_string())).collect()
}

#[test]
fn a_sealed_name_rests_on_the_bundle_and_says_so() {
    let Some(scene) = Scene::new() else { return };
    let trust = scene.at("trust");
    let found = scene.explain(&scene.address, &["--trust", &trust, "--json"]).ok().json();
    assert_eq!(
        (&found["resolver"], &found["proof"], &found["quality"]),
        (&"local-bundle".into(), &"sealed".into(), &"full".into())
    );
    let expected = [("debuginfod", r#"{"skipped":"offline"}"#), ("local-bundle", r#""hit""#)];
    assert_eq!(steps(&found), expected.map(|(step, outcome)| (step.to_owned(), outcome.to_owned())));
    let of: Vec<&str> = found["digests"].as_array().unwrap().iter().map(|one| one["of"].as_str().unwrap()).collect();
    assert_eq!(of, ["bundle", "symbol-index", "symbol-table", "source"]);
    let told = scene.explain(&scene.address, &["--trust", &trust]).ok().stdout;
    for part in ["seen at ", "local-bundle  answered", "skipped: offline", "proof    sealed", "symbol-table   sha256:"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    // Nobody's word but the index's.
    let unsealed = scene.explain(&scene.address, &["--json"]).ok().json();
    assert_eq!(unsealed["proof"], "digest-known");
    // A trust directory that trusts nobody here.
    symseal(["key", "generate", "--output", &scene.at("others")]).ok();
    let (key, log, other) = (scene.at("others/artifact.pub.pem"), scene.at("other-log"), scene.at("other-trust"));
    symseal(["trust", "init", "--trust", &other, "--key", &key, "--name", "app", "--log", &log]).ok();
    scene.explain(&scene.address, &["--trust", &other]).refused(1, &["refused"]);
}

#[test]
fn the_files_of_this_machine_come_after_the_bundle_and_prove_nothing() {
    let Some(scene) = Scene::new() else { return };
    let app = scene.at("app");
    // Where no function is, every step says why.
    let nowhere = scene.explain("0x10", &["--file", &app, "--json"]);
    assert_eq!(nowhere.status, 1, "{nowhere:?}");
    let found = nowhere.json();
    let asked: Vec<String> = steps(&found).into_iter().map(|(step, _)| step).collect();
    assert_eq!(
        asked,
        ["debuginfod", "local-bundle", "debug-file", "binary-debug-info", "binary-symbols", "module-offset"]
    );
    assert_eq!((&found["reason"], &found["proof"]), (&"no-symbol-at-address".into(), &"none".into()));
    let told = scene.explain("0x10", &["--file", &app]);
    assert!(told.stdout.contains("0x10  has no name: The table has no function at this address."), "{told:?}");
    // A module that the bundle does not have, in a file that is of it.
    let other =
        program::compile_c(&scene.root.path().join("."), "other", SOURCE, &["-g", "-O2", "-Wl,--build-id"]).unwrap();
    let id = {
        let named = ["--name", "other", "--version", "1", "--output"];
        let layout = scene.at("other-bundle");
        symseal(["bundle", "build", other.to_str().unwrap()].into_iter().chain(named).chain([layout.as_str()])).ok();
        let index = symseal(["bundle", "inspect", &layout, "--json"]).ok().json();
        index["linux"].as_object().unwrap().keys().next().unwrap().clone()
    };
    let symbols = Command::new("nm").arg(&other).output().unwrap().stdout;
    let symbols = String::from_utf8(symbols).unwrap();
    let main = symbols.lines().find(|line| line.ends_with(" main")).unwrap().split(' ').next().unwrap().to_owned();
    let (bundle, file) = (scene.at("bundle"), other.to_str().unwrap());
    let found = symseal(["explain", "symbol", &bundle, &id, &main, "--file", file, "--json"]).ok().json();
    assert_eq!((&found["resolver"], &found["proof"]), (&"binary-debug-info".into(), &"none".into()), "{found:#}");
    assert_eq!(found["frames"][0]["function"], "main");
    // The file must be of the module that was asked for.
    let wrong = symseal(["explain", "symbol", &bundle, &id, &main, "--file", &app, "--json"]);
    assert_eq!((wrong.status, &wrong.json()["reason"]), (1, &"debug-id-mismatch".into()));
}
