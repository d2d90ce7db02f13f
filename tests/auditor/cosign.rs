//! cosign, unmodified, over the seal of a bundle in a registry and over its symbol index.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::program::{RunningServer, peer, symseal};
use crate::scene::{Scene, run};

struct Cosign<'s> {
    program: PathBuf,
    scene: &'s Scene,
}

impl Cosign<'_> {
    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(&self.program)
            // Nothing of this machine's Sigstore set-up, and no network but loopback, may matter.
            .env("HOME", self.scene.folder())
            .env("HTTPS_PROXY", "http://127.0.0.1:9")
            .env("DOCKER_CONFIG", "/nonexistent")
            .current_dir(self.scene.folder())
            .args(arguments)
            .output()
            .unwrap()
    }

    /// `verify-attestation` on a bundle in a registry.
    fn attestation(&self, reference: &str, key: &str, predicate: &str) -> Output {
        let fixed = ["verify-attestation", "--key", key, "--trusted-root", "trust/trusted_root.json"];
        let rest = ["--type", predicate, "--allow-http-registry", reference];
        self.run(&[&fixed[..], &rest].concat())
    }
}

#[track_caller]
fn accepted(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn cosign_verifies_the_attestation_of_a_bundle_in_our_registry_and_in_one_that_oras_copied_it_to() {
    let (Some(program), Some(oras)) = (peer("cosign"), peer("oras")) else { return };
    let Some(scene) = Scene::new() else { return };
    let cosign = Cosign { program, scene: &scene };
    let (home, away) = (RunningServer::start(&scene.path("home")), RunningServer::start(&scene.path("away")));
    let tagged = format!("{}/team/app:1.0", home.address);
    let digest = symseal(["bundle", "push", &scene.at("bundle"), &tagged]).ok().stdout.trim().to_owned();
    let copied = format!("{}/mirror/app:1.0", away.address);
    run(Command::new(oras).args(["cp", "-r", "--from-plain-http", "--to-plain-http", &tagged, &copied]));
    let predicate = symseal_seal::PREDICATE_TYPE;
    let public = "keys/artifact.pub.pem";
    for reference in [&tagged, &copied] {
        let (repository, _) = reference.rsplit_once(':').unwrap();
        let by_digest = format!("{repository}@{digest}");
        accepted(&cosign.attestation(&by_digest, public, predicate));
        let output = cosign.attestation(reference, public, predicate);
        accepted(&output);
        // What it prints is the statement that we signed.
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let payload = symseal_seal::encoding::from_base64(line["payload"].as_str().unwrap()).unwrap();
        let statement = symseal_seal::Statement::parse(&payload).unwrap();
        assert_eq!(statement.predicate.release.subject_name(), "app@1.0");

        // Another key, another predicate type, another log.
        if !scene.path("other/artifact.pub.pem").exists() {
            symseal(["key", "generate", "--output", &scene.at("other")]).ok();
        }
        assert!(!cosign.attestation(&by_digest, "other/artifact.pub.pem", predicate).status.success());
        assert!(!cosign.attestation(&by_digest, public, "https://other.example/v1").status.success());
    }
    // Release 1.1 has no seal: that of 1.0 is of no use to it.
    scene.build("unsealed", &["inputs/app"], "1.1", &[]);
    let unsealed = format!("{}/team/app:1.1", home.address);
    symseal(["bundle", "push", &scene.at("unsealed"), &unsealed]).ok();
    assert!(!cosign.attestation(&unsealed, public, predicate).status.success());
}

/// The indented command of a page that begins with these words, its lines joined.
fn command_of<'p>(page: &'p str, words: &str) -> String {
    let mut lines = page.lines().skip_while(|line| !line.starts_with(&format!("    {words}")));
    let mut command = String::new();
    for line in lines.by_ref() {
        let line: &'p str = line.trim();
        match line.strip_suffix('\\') {
            Some(start) => command.push_str(start),
            None => {
                command.push_str(line);
                break;
            }
        }
    }
    assert!(!command.is_empty(), "the page has no command {words}");
    command
}

#[test]
fn the_commands_for_cosign_on_the_page_of_provenance_work_as_they_are_written() {
    let (Some(program), Some(oras)) = (peer("cosign"), peer("oras")) else { return };
    let Some(scene) = Scene::new() else { return };
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/provenance.md")).unwrap();
    let server = RunningServer::start(&scene.path("data"));
    let reference = format!("{}/team/app:1.0", server.address);
    let digest = symseal(["bundle", "push", &scene.at("bundle"), &reference]).ok().stdout.trim().to_owned();
    // The directory in which the page's commands are given: what oras pulled, the public key, the trust directory.
    let found =
        Command::new(&oras).args(["discover", "--plain-http", "--format", "json", &reference]).output().unwrap();
    let found: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    let seal = found["referrers"][0]["digest"].as_str().unwrap();
    let pulled = scene.at("pulled");
    let (repository, _) = reference.rsplit_once(':').unwrap();
    for reference in [&reference, &format!("{repository}@{seal}")] {
        run(Command::new(&oras).args(["pull", "--plain-http", "--output", &pulled, reference]));
    }
    std::fs::copy(scene.path("keys/artifact.pub.pem"), scene.path("pulled/artifact.pub.pem")).unwrap();
    run(Command::new("cp").args(["-r", &scene.at("trust"), &pulled]));
    let bin = program.parent().unwrap().to_owned();
    let path = std::env::join_paths(
        std::iter::once(bin).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let path = path.unwrap();
    let sh = |command: &str| {
        Command::new("sh")
            .env("HOME", scene.folder())
            .env("HTTPS_PROXY", "http://127.0.0.1:9")
            .env("DOCKER_CONFIG", "/nonexistent")
            .env("PATH", &path)
            .current_dir(scene.path("pulled"))
            .args(["-c", command])
            .output()
            .unwrap()
    };
    let blob = command_of(&page, "cosign verify-blob-attestation");
    accepted(&sh(&blob));
    // Only the registry's name and the digest are the reader's own.
    let attestation = command_of(&page, "cosign verify-attestation");
    assert!(attestation.contains(" registry.example/team/app@sha256:…"), "{attestation}");
    let attestation = attestation
        .replace(" registry.example/team/app@sha256:…", &format!(" --allow-http-registry {repository}@{digest}"));
    accepted(&sh(&attestation));
    // A changed index is not what was signed.
    let index = scene.path("pulled/symbol_index.json");
    let mut bytes = std::fs::read(&index).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&index, bytes).unwrap();
    assert!(!sh(&blob).status.success());
}
