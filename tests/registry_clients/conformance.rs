//! The OCI distribution specification's own conformance suite, at a commit that `tests/peers` pins.

use std::process::Command;

use crate::program::RunningServer;
use crate::program::peer;

/// What the suite leaves out by itself, and why that is right here.
const CHOSEN: [(&str, &str); 5] = [
    ("both", "Sparse Manifests: Disabled"), // a manifest that names what is not here is refused, so that no copy has holes
    ("1.1", "Blob upload cancel: Disabled"), // these came after 1.1; the run for `dev` has them
    ("1.1", "Manifest put with tag params: Disabled"),
    ("1.1", "Tag Param: Disabled"),
    ("1.1", "Tag Param sha512: Disabled"),
];

fn passes(version: &str, at_least: u64) {
    let Some(suite) = peer("oci-conformance") else { return };
    let root = tempfile::tempdir().unwrap();
    let server = RunningServer::start(&root.path().join("data"));
    let output = Command::new(suite)
        .current_dir(root.path())
        .env_clear()
        .env("OCI_REGISTRY", &server.address)
        .env("OCI_TLS", "disabled")
        .env("OCI_VERSION", version)
        .env("OCI_REPO1", "conformance/one")
        .env("OCI_REPO2", "conformance/two")
        .env("OCI_RESULTS_DIR", root.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));

    // Every group of tests, by what of the interface and by what kind of data.
    let results = std::fs::read_to_string(root.path().join("results.yaml")).unwrap();
    let groups = results.lines().skip_while(|line| *line != "apis:").filter(|line| line.starts_with("  "));
    let (mut passed, mut others) = (0, Vec::new());
    for group in groups.map(str::trim) {
        if group.ends_with(": Pass") {
            passed += 1;
        } else {
            others.push(group);
        }
    }
    let mut chosen: Vec<&str> =
        CHOSEN.iter().filter(|(of, _)| *of == "both" || *of == version).map(|(_, group)| *group).collect();
    others.sort_unstable();
    chosen.sort_unstable();
    assert_eq!(others, chosen, "{results}");
    assert!(passed >= 45, "{passed} groups\n{results}");

    let junit = std::fs::read_to_string(root.path().join("junit.xml")).unwrap();
    let suite = junit.lines().find(|line| line.contains("<testsuite ")).unwrap();
    let count = |name: &str| -> u64 {
        let value = suite.split_once(&format!(" {name}=\"")).map(|(_, rest)| rest.split('"').next().unwrap());
        value.map_or(0, |value| value.parse().unwrap())
    };
    println!("{version}: {} tests, {passed} groups pass; left out: {chosen:?}", count("tests"));
    assert_eq!((count("failures"), count("errors"), count("skipped")), (0, 0, 0), "{suite}");
    // 1.1: the cancellation of an upload, in each of two algorithms.
    assert_eq!(count("disabled"), if version == "1.1" { 2 } else { 0 }, "{suite}");
    assert!(count("tests") >= at_least, "{suite}");
}

#[test]
fn the_conformance_suite_passes_for_version_1_1() {
    passes("1.1", 850);
}

#[test]
fn the_conformance_suite_passes_for_the_development_version() {
    passes("dev", 950);
}
