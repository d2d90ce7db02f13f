//! Keys, a log and a trust directory, and sealed releases of a small program.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::program::{self, Ran, symseal};

const SOURCE: &str = "
int innermost(int x) { return x * 3; }
int main(int argc, char **argv) { (void)argv; return innermost(argc); }
";

pub(crate) struct Scene(tempfile::TempDir);

impl Scene {
    /// With the sealed release 1.0 in `bundle`; `None`, with a word about it, when there is no compiler.
    pub(crate) fn new() -> Option<Self> {
        let scene = Self::unsealed()?;
        scene.build("bundle", &["inputs/app"], "1.0", &[]);
        scene.seal("bundle");
        Some(scene)
    }

    pub(crate) fn unsealed() -> Option<Self> {
        let scene = Self(tempfile::tempdir().unwrap());
        symseal(["key", "generate", "--output", &scene.at("keys")]).ok();
        std::fs::create_dir(scene.path("inputs")).unwrap();
        program::compile_c(&scene.path("inputs"), "app", SOURCE, &["-g", "-Wl,--build-id"])?;
        let (log, log_key) = (scene.at("log"), scene.at("keys/log.key.pem"));
        let trust = ["trust", "init", "--trust", &scene.at("trust"), "--key", &scene.at("keys/artifact.pub.pem")];
        let root = scene.at("keys/root.key.pem");
        let rest = ["--name", "app", "--log", &log, "--root-key", &root, "--log-key", &log_key];
        symseal(trust.iter().chain(&rest)).ok();
        Some(scene)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn at(&self, name: &str) -> String {
        self.path(name).to_str().expect("UTF-8").to_owned()
    }

    /// Builds `version` into the layout `to`, in the place of what was there.
    pub(crate) fn build(&self, to: &str, inputs: &[&str], version: &str, more: &[&str]) {
        let _ = std::fs::remove_dir_all(self.path(to));
        let inputs: Vec<String> = inputs.iter().map(|name| self.at(name)).collect();
        let to = self.at(to);
        let mut arguments = vec!["bundle", "build", "--name", "app", "--version", version, "--output", &to];
        arguments.extend(inputs.iter().map(String::as_str));
        arguments.extend(more);
        symseal(arguments).ok();
    }

    pub(crate) fn seal(&self, bundle: &str) {
        let key = self.at("keys/artifact.key.pem");
        symseal(["bundle", "seal", &self.at(bundle), "--key", &key, "--log", &self.at("log")]).ok();
    }

    /// Further releases, each an entry of the log; `bundle` is the last.
    pub(crate) fn releases(&self, versions: &[&str]) {
        for version in versions {
            self.build("bundle", &["inputs/app"], version, &[]);
            self.seal("bundle");
        }
    }

    /// Exit status and report of `bundle verify`.
    pub(crate) fn report(&self, bundle: &str, more: &[&str]) -> (i32, Value) {
        let (bundle, trust) = (self.at(bundle), self.at("trust"));
        let ran = symseal(["bundle", "verify", &bundle, "--trust", &trust, "--json"].iter().chain(more));
        (ran.status, ran.json())
    }

    #[track_caller]
    pub(crate) fn verifies(&self, bundle: &str) -> Ran {
        symseal(["bundle", "verify", bundle, "--trust", &self.at("trust")]).ok()
    }

    /// A change of the trust directory, signed by the root key.
    pub(crate) fn change_trust(&self, arguments: &[&str]) -> Ran {
        let (command, rest) = arguments.split_first().unwrap();
        let (trust, root) = (self.at("trust"), self.at("keys/root.key.pem"));
        symseal(["trust", *command, "--trust", &trust, "--root-key", &root].iter().chain(rest))
    }
}

/// The status of a check in a report.
pub(crate) fn status<'r>(report: &'r Value, check: &str) -> &'r str {
    let found = report["checks"].as_array().unwrap().iter().find(|found| found["id"] == check);
    found.unwrap_or_else(|| panic!("no {check}: {report:#}"))["status"].as_str().unwrap()
}

/// The ids of the checks that failed.
pub(crate) fn failed(report: &Value) -> Vec<&str> {
    let checks = report["checks"].as_array().unwrap().iter();
    checks.filter(|check| check["status"] == "failed").map(|check| check["id"].as_str().unwrap()).collect()
}

#[track_caller]
pub(crate) fn run(command: &mut Command) {
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}
