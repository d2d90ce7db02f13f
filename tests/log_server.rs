//! `symseal bundle seal --log http://…` through `symseal serve --log`, as a release pipeline would call it.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod program;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use program::{Ran, command, symseal};

struct Scene(tempfile::TempDir);

/// Ended when dropped.
struct Serving {
    child: Child,
    url: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Scene {
    fn at(&self, name: &str) -> String {
        self.path(name).to_str().expect("UTF-8").to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn serve(&self) -> Serving {
        let mut child = command("symseal")
            .args(["serve", "--data", &self.at("data"), "--listen", "127.0.0.1:0", "--log"])
            .args(["--log-key", &self.at("keys/log.key.pem")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().rsplit(' ').next().unwrap().to_owned();
        Serving { child, url }
    }

    fn seal(&self, url: &str) -> Command {
        let mut command = command("symseal");
        command.args(["bundle", "seal", &self.at("bundle"), "--key", &self.at("keys/artifact.key.pem")]);
        command.args(["--log", url, "--trust", &self.at("trust")]).stdin(Stdio::null()).env_remove("SYMSEAL_LOG_TOKEN");
        command
    }
}

fn ran(command: &mut Command) -> Ran {
    command.output().expect("the program starts").into()
}

fn is_private(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().unwrap().permissions().mode() & 0o777 == 0o600
}

#[test]
fn a_bundle_is_sealed_through_our_server_with_a_token_and_verified_offline() {
    let scene = Scene(tempfile::tempdir().unwrap());
    symseal(["key", "generate", "--output", &scene.at("keys")]).ok();
    let inputs = scene.path("inputs");
    std::fs::create_dir(&inputs).unwrap();
    let built = program::compile_c(&inputs, "app", "int main(void) { return 0; }\n", &["-g", "-Wl,--build-id"]);
    let Some(program) = built else { return };
    let program = program.to_str().unwrap();
    symseal(["bundle", "build", program, "--name", "app", "--version", "1.0", "--output", &scene.at("bundle")]).ok();
    let public = scene.at("keys/artifact.pub.pem");
    let (log, log_key, trust) = (scene.at("data/log"), scene.at("keys/log.key.pem"), scene.at("trust"));
    let arguments = ["trust", "init", "--trust", &trust, "--key", &public, "--name", "app", "--log", &log];
    symseal(arguments.iter().copied().chain(["--log-key", log_key.as_str()])).ok();

    let server = scene.serve();
    let create = ["token", "create", "--data", &scene.at("data"), "--name", "pipeline", "--key", &public];
    let token = symseal(create).ok().stdout.trim().to_owned();
    assert!(token.starts_with("symseal_"), "{token}");

    ran(&mut scene.seal(&server.url)).refused(2, &["401", "token"]);
    ran(scene.seal(&server.url).env("SYMSEAL_LOG_TOKEN", "symseal_x")).refused(2, &["401"]);
    std::fs::write(scene.path("token"), format!("{token}\n")).unwrap();
    ran(scene.seal(&server.url).args(["--log-token-file", &scene.at("token")])).ok();
    // The seal is a referrer that stands: sealing again answers with an entry of the same kind.
    ran(scene.seal(&server.url).env("SYMSEAL_LOG_TOKEN", &token)).ok();

    let listed = symseal(["token", "list", "--data", &scene.at("data"), "--json"]).ok().stdout;
    assert!(!listed.contains(&token), "{listed}");
    let tokens: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let id = tokens[0]["id"].as_str().unwrap();
    assert!(tokens[0]["name"] == "pipeline" && tokens[0]["holds"] == true, "{tokens}");
    symseal(["token", "revoke", "--data", &scene.at("data"), id]).ok();
    ran(scene.seal(&server.url).env("SYMSEAL_LOG_TOKEN", &token)).refused(2, &["401"]);
    symseal(["token", "revoke", "--data", &scene.at("data"), "000000000000"]).refused(1, &["symseal token list"]);
    symseal(["token", "list", "--data", &scene.at("nowhere")]).refused(2, &["nowhere"]);
    assert!(!scene.path("nowhere").exists());
    drop(server);

    let verified = symseal(["bundle", "verify", &scene.at("bundle"), "--trust", &trust]);
    verified.ok();
}

#[test]
fn a_server_makes_its_log_when_it_is_told_to_with_a_private_key() {
    let scene = Scene(tempfile::tempdir().unwrap());
    let server = scene.serve();
    assert!(is_private(&scene.path("keys/log.key.pem")));
    assert!(scene.path("data/log/checkpoint").is_file());
    // One writer at a time: the server has the lease.
    let (root, log) = (scene.at("other"), scene.at("data/log"));
    symseal(["key", "generate", "--output", &root]).ok();
    let key = scene.at("other/artifact.pub.pem");
    let arguments = ["trust", "init", "--trust", &scene.at("trust"), "--key", &key, "--name", "app", "--log", &log];
    let log_key = scene.at("keys/log.key.pem");
    symseal(arguments.iter().copied().chain(["--log-key", log_key.as_str()])).refused(2, &["lease"]);
    drop(server);
    symseal(arguments.iter().copied().chain(["--log-key", log_key.as_str()])).ok();
}
