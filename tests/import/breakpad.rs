//! Breakpad's stores: symbol files without any file of the platform.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::program::{RunningServer, peer};
use crate::scene::{get, import, post, put};

const TEST_APP: &str = "test_app.pdb/5A9832E5287241C1838ED98914E9B7FF1/test_app.sym";
const KERNEL: &str = "kernel32.pdb/BCE8785C57B44245A669896B6A19B9542/kernel32.sym";
const ARM: &str = "microdump/breakpad_unittests/D6D1FEC9A15DE7F38A236898871A2E770/breakpad_unittests.sym";

/// Breakpad's own test data.
fn testdata() -> Option<PathBuf> {
    let folder =
        std::env::var_os("SYMSEAL_FIXTURES").map(|folder| Path::new(&folder).join("breakpad/src/processor/testdata"));
    let found = folder.filter(|folder| folder.join("symbols").join(TEST_APP).is_file());
    if found.is_none() {
        println!("SKIP fixtures: SYMSEAL_FIXTURES is not set");
    }
    found
}

/// The stacks that rust-minidump walks with the symbols of a place.
fn walked(stackwalk: &Path, arguments: &[&str]) -> Value {
    let ran = Command::new(stackwalk).arg("--json").args(arguments).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    serde_json::from_slice(&ran.stdout).unwrap()
}

#[test]
fn symbol_files_are_served_as_they_are_and_their_modules_are_named() {
    let Some(testdata) = testdata() else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let read = |path: &str| std::fs::read(testdata.join("symbols").join(path)).unwrap();
    for path in [TEST_APP, KERNEL, ARM] {
        put(&store, path, &read(path));
    }
    let wrong_id = "test_app.pdb/00112233445566778899AABBCCDDEEFF1/test_app.sym";
    put(&store, wrong_id, &read(TEST_APP));
    let wrong_name = "other.pdb/5A9832E5287241C1838ED98914E9B7FF1/other.sym";
    put(&store, wrong_name, &read(TEST_APP));
    let server = RunningServer::start(&folder.path().join("data"));
    let to = format!("http://{}", server.address);
    let report = import(&store, &folder.path().join("journal"), &["--to", &to]);
    assert_eq!(report.summary["layout"], "breakpad");
    assert_eq!((report.summary["imported"].as_u64(), report.summary["refused"].as_u64()), (Some(3), Some(2)));
    // What `grep -c` counts in the three.
    assert_eq!(
        (report.summary["stack_win_records"].as_u64(), report.summary["stack_cfi_records"].as_u64()),
        (Some(6025), Some(24160))
    );
    assert!(report.outcome(wrong_id).1.contains("5A9832E5287241C1838ED98914E9B7FF-1"));
    assert!(report.outcome(wrong_name).1.contains("test_app.pdb"));
    for path in [TEST_APP, KERNEL, ARM.trim_start_matches("microdump/")] {
        let (status, bytes) = get(&server, &format!("/symbols/{path}"));
        let file = if path.starts_with("breakpad") { ARM } else { path };
        assert!(status == 200 && bytes == read(file), "{path}: {status}");
    }
    assert_eq!(get(&server, &format!("/symbols/{wrong_id}")).0, 404);

    // `FUNC` and line records of the files, at their own addresses.
    let frames = post(
        &server,
        "/symbolicate/v5",
        &json!({ "jobs": [{
            "memoryMap": [["test_app.pdb", "5A9832E5287241C1838ED98914E9B7FF1"], ["breakpad_unittests", "D6D1FEC9A15DE7F38A236898871A2E770"]],
            "stacks": [[[0, 0x1000], [1, 0]]],
        }], "version": 5 }),
    );
    let text = String::from_utf8(read(TEST_APP)).unwrap();
    let function = text.lines().find_map(|line| line.strip_prefix("FUNC 1000 ")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("1000 12 ")).unwrap().split(' ').next().unwrap();
    let frame = &frames["results"][0]["stacks"][0][0];
    assert_eq!(frame["function"], function.splitn(3, ' ').nth(2).unwrap());
    assert_eq!(frame["line"].to_string(), line);
    assert_eq!(frame["symbol_source"], "breakpad");
    assert_eq!(frames["results"][0]["found_modules"]["test_app.pdb/5A9832E5287241C1838ED98914E9B7FF1"], true);
    let resolved = post(
        &server,
        "/api/v1/resolve",
        &json!({ "platform": "windows", "debug_id": "5A9832E5287241C1838ED98914E9B7FF-1", "address_kind": "rva", "addresses": ["0x1000"] }),
    );
    assert_eq!(resolved["frames"][0]["frames"][0]["function"], frame["function"]);
    assert_eq!((&resolved["frames"][0]["proof"], &resolved["frames"][0]["quality"]), (&json!("none"), &json!("full")));
    assert_eq!(resolved["frames"][0]["resolver"], "binary-debug-info");
    assert_eq!(resolved["provenance"]["bundle"], Value::Null);
    // sha256 of the file that was imported.
    let digest = symseal_bundle::Digest::of(&read(TEST_APP)).to_string();
    assert_eq!(resolved["provenance"]["made_of"], digest.as_str());

    let Some(stackwalk) = peer("minidump-stackwalk") else { return };
    let dump = testdata.join("minidump2.dmp");
    let dump = dump.to_str().unwrap();
    let symbols = testdata.join("symbols");
    let cache = folder.path().join("cache");
    let from_files = walked(&stackwalk, &["--symbols-path", symbols.to_str().unwrap(), dump]);
    let url = format!("{to}/symbols/");
    let from_us = walked(
        &stackwalk,
        &[
            "--symbols-url",
            &url,
            "--symbols-cache",
            cache.to_str().unwrap(),
            "--symbols-tmp",
            cache.to_str().unwrap(),
            dump,
        ],
    );
    let stacks = |walk: &Value| walk["threads"].clone();
    assert_eq!(stacks(&from_us), stacks(&from_files));
    let trusts: Vec<&Value> =
        from_us["threads"][0]["frames"].as_array().unwrap().iter().map(|frame| &frame["trust"]).collect();
    assert!(trusts.iter().filter(|trust| **trust == "cfi").count() >= 3, "{trusts:?}");
}
