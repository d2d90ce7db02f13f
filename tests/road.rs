//! The demo's road with the separate commands, as a new user would walk it.

use crate::program;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::program::{RunningServer, command, run, symseal};
use serde_json::Value;

/// The program that the demo captures, waiting in its threads.
struct Workload {
    child: Child,
    reports: Vec<Value>,
}

impl Workload {
    fn start() -> Self {
        let mut child = command("symseal")
            .arg("workload")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("workload starts");
        let mut reports = Vec::new();
        for line in BufReader::new(child.stdout.take().expect("stdout")).lines() {
            let report: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
            if report["ready"] == true {
                break;
            }
            reports.push(report);
        }
        Self { child, reports }
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_separate_commands_complete_the_road() {
    let scene = tempfile::tempdir().expect("tempdir");
    let at = |name: &str| scene.path().join(name).to_str().expect("UTF-8").to_owned();

    symseal(["key", "generate", "--output", &at("keys")]).ok();
    symseal([
        "bundle",
        "build",
        program::symseal_path().to_str().unwrap(),
        "--name",
        "symseal",
        "--version",
        "9.9",
        "--output",
        &at("bundle"),
    ])
    .ok();
    symseal([
        "trust",
        "init",
        "--trust",
        &at("trust"),
        "--key",
        &at("keys/artifact.pub.pem"),
        "--name",
        "symseal",
        "--log",
        &at("log"),
    ])
    .ok();
    symseal(["bundle", "seal", &at("bundle"), "--key", &at("keys/artifact.key.pem"), "--log", &at("log")]).ok();
    let shown = symseal(["trust", "show", "--trust", &at("trust"), "--json"]).ok().json();
    assert!(shown.to_string().contains("symseal"), "{shown}");

    // Verified where it lies, and refused under another name.
    let verified = symseal(["bundle", "verify", &at("bundle"), "--trust", &at("trust"), "--json"]).ok().json();
    assert_eq!(verified["verdict"], "verified", "{verified}");
    let refused =
        symseal(["bundle", "verify", &at("bundle"), "--trust", &at("trust"), "--expect-version", "1.0", "--json"]);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.stdout.contains("statement.version"), "{refused:?}");

    // Over the server and back, into the local store.
    let server = RunningServer::start(&scene.path().join("data"));
    let reference = format!("{}/demo/symseal:9.9", server.address);
    let pushed = symseal(["bundle", "push", &at("bundle"), &reference]).ok();
    let digest = pushed.stdout.trim().to_owned();
    assert!(digest.starts_with("sha256:"), "{digest}");
    let pulled = symseal(["bundle", "pull", &reference, "--store", &at("store")]).ok();
    assert_eq!(pulled.stdout.trim(), digest);
    drop(server);
    let inspected = symseal(["bundle", "inspect", &digest, "--store", &at("store"), "--json"]).ok().json();
    let (id, _) = inspected["linux"].as_object().expect("modules").iter().next().expect("a module");

    // Captured while it waits.
    let workload = Workload::start();
    run("trace-capture", ["--pid", &workload.child.id().to_string(), "--output", &at("trace.jsonl")]).ok();
    assert!(!workload.reports.is_empty());
    drop(workload);

    let bundle = [&"--bundle".to_owned(), &digest, &"--store".to_owned(), &at("store")].map(String::clone);
    let resolved = run("trace-resolve", bundle.iter().cloned().chain([at("trace.jsonl"), "--json".into()])).ok();
    let frames: Vec<Value> = resolved.stdout.lines().map(|line| serde_json::from_str(line).expect("a frame")).collect();
    let named: Vec<&Value> = frames.iter().filter(|frame| frame["debug_id"] == **id).collect();
    assert!(named.len() > 20, "only {} frames of {id}", named.len());
    for frame in &named {
        for field in ["ip", "module", "debug_id", "unwind", "resolver", "proof"] {
            assert!(frame[field].is_string(), "no {field}: {frame}");
        }
        // Without a trust directory the names rest on digests alone.
        assert_eq!(frame["proof"], "digest-known", "{frame}");
    }
    let with_lines = named.iter().filter(|frame| frame["frames"][0]["line"].is_u64()).count();
    assert!(with_lines * 100 >= named.len() * 90, "{with_lines} of {} frames have a line", named.len());

    // The same bytes again.
    let again = run("trace-resolve", bundle.iter().cloned().chain([at("trace.jsonl"), "--json".into()])).ok();
    assert_eq!(again.stdout, resolved.stdout);

    let replayed = run(
        "trace-replay",
        bundle.iter().cloned().chain([
            "--trace".into(),
            at("trace.jsonl"),
            "--seeds".into(),
            "5".into(),
            "--json".into(),
        ]),
    )
    .ok();
    assert!(replayed.stdout.contains("replay_success_ratio"), "{}", replayed.stdout);

    let trust = ["--trust".to_owned(), at("trust")];
    run("trace-verify", bundle.iter().chain(&trust).cloned().chain(["--dsse".into(), "--rekor".into()])).ok();
    let partial = run("trace-verify", bundle.iter().chain(&trust).cloned().chain(["--dsse".into()])).ok();
    assert!(partial.stdout.contains("PARTIAL"), "{}", partial.stdout);

    a_flipped_byte_is_refused(scene.path(), &bundle, &trust);
}

/// A byte of any blob of the store, changed where it lies, is found.
fn a_flipped_byte_is_refused(scene: &Path, bundle: &[String], trust: &[String]) {
    let blobs = scene.join("store/blobs/sha256");
    for blob in std::fs::read_dir(blobs).expect("blobs") {
        let path = blob.expect("entry").path();
        let mut bytes = std::fs::read(&path).expect("read");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let mode = std::fs::metadata(&path).expect("metadata").permissions();
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, &bytes).expect("written");
        let ran = run("trace-verify", bundle.iter().chain(trust).cloned());
        // `{}`, the empty configuration, is the one blob whose content nobody reads.
        if bytes.len() > 2 {
            assert!(ran.status == 1 || ran.status == 2, "{}: {ran:?}", path.display());
        }
        bytes[middle] ^= 1;
        std::fs::write(&path, &bytes).expect("written");
        std::fs::set_permissions(&path, mode).expect("mode");
    }
    run("trace-verify", bundle.iter().chain(trust).cloned()).ok();
}
