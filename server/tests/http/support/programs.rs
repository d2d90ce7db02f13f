//! Compiled programs, published as bundles.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::path::Path;
use std::process::Command;

use reqwest::{Client, Response};
use symseal_builder::{Options, SymbolBundleBuilder};
use symseal_bundle::{Digest, LayoutDir};
use symseal_registry::push;

use super::{Running, http, options};

/// Whether a tool is there; without it the test says so and ends, unless the tool is required.
pub(crate) fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        missing(tool);
    }
    found
}

/// Says that a test ends for want of a tool, unless the tool is required.
pub(crate) fn missing(tool: &str) {
    let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == tool || name == "all"), "{tool} is required and was not found");
    println!("SKIP {tool}: not found");
}

pub(crate) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What a program prints.
pub(crate) fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Builds a bundle of `paths` and pushes it; its digest.
pub(crate) async fn publish(server: &Running, root: &Path, version: &str, paths: &[&Path]) -> Digest {
    let layout = LayoutDir::create(root.join(format!("layout-{version}"))).unwrap();
    let release = Options { name: "app".into(), version: version.into(), ..Options::default() };
    let builder = paths.iter().fold(SymbolBundleBuilder::new(release), |builder, path| builder.add_path(*path));
    let digest = builder.build(&layout).unwrap().digest;
    push(&layout, &digest, &server.reference(&format!("app:{version}")), &options()).await.unwrap();
    digest
}

/// A server with an empty data directory.
pub(crate) struct Fixture {
    pub(crate) root: tempfile::TempDir,
    pub(crate) server: Running,
    pub(crate) http: Client,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let server = Running::start(&root.path().join("data")).await;
        Self { server, root, http: http() }
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.http.get(self.server.url(path)).send().await.unwrap()
    }
}
