//! Seals without a key: by the certificate and timestamp authorities of @sigstore/mock behind real HTTP, in a real Rekor v2.

use std::io::BufRead as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use symseal_seal::encoding::sha256;
use symseal_seal::trust::trusted_root;

use crate::bundles::all_agree;
use crate::peers::{Asked, Signer, node};
use crate::program::{Ran, command, compile_c, symseal};
use crate::rekor::Rekor;
use crate::support::NOW;

/// The authorities, until this is dropped.
struct Services {
    child: Child,
    said: Value,
}

impl Services {
    fn start() -> Option<Self> {
        let mut child = node("sigstore_services.cjs")?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Some(Self { said: serde_json::from_str(&line).unwrap(), child })
    }

    fn text(&self, name: &str) -> &str {
        self.said[name].as_str().unwrap()
    }

    /// Their trusted root, with this log.
    fn root(&self, rekor: &Rekor) -> Value {
        let log = trusted_root::TrustedLog {
            host: rekor.identity.origin.name().to_owned(),
            id: rekor.identity.id(),
            key: rekor.identity.key.clone(),
            validity: (NOW, None),
        };
        let logs: Value = serde_json::from_slice(&trusted_root::write(&[log])).unwrap();
        let mut root = self.said["trusted_root"].clone();
        root["tlogs"] = logs["tlogs"].clone();
        root
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `bundle seal` of the bundle in `dir`, with the log at `log`; the token is the services'.
fn sealing(dir: &Path, services: &Services, log: &str) -> Command {
    let mut command = command("symseal");
    command.current_dir(dir).stdin(Stdio::null()).env("SIGSTORE_ID_TOKEN", services.text("token"));
    command.args(["bundle", "seal", "bundle", "--fulcio", services.text("url"), "--log", log]);
    command.args(["--timestamp-authority", &format!("{}/api/v1/timestamp", services.text("url"))]);
    command.args(["--trusted-root", "root.json", "--certificate-oidc-issuer", services.text("issuer")]);
    command
}

fn ran(command: &mut Command) -> Ran {
    command.output().expect("the program starts").into()
}

fn blobs(dir: &Path) -> usize {
    std::fs::read_dir(dir.join("bundle/blobs/sha256")).unwrap().count()
}

#[test]
fn a_seal_without_a_key_is_made_and_every_verifier_takes_it() {
    let dir = tempfile::tempdir().unwrap();
    let Some(services) = Services::start() else { return };
    let Some(rekor) = Rekor::start(dir.path(), &["--checkpoint-interval=200ms", "--batch-max-age=50ms"]) else {
        return;
    };
    let Some(program) = compile_c(dir.path(), "app", "int main(void) { return 0; }\n", &["-g", "-Wl,--build-id"])
    else {
        return;
    };
    let bundle = dir.path().join("bundle");
    let (program, bundle) = (program.to_str().unwrap(), bundle.to_str().unwrap());
    symseal(["bundle", "build", program, "--name", "app", "--version", "1.0", "--output", bundle]).ok();
    let root = services.root(&rekor);
    std::fs::write(dir.path().join("root.json"), root.to_string()).unwrap();
    let log = format!("rekor-v2+{}", rekor.url);
    let identity = services.text("identity");

    // What is not as expected is refused, and leaves the layout as it was.
    let before = blobs(dir.path());
    let other = ran(sealing(dir.path(), &services, &log).args(["--certificate-identity", "somebody@example.org"]));
    other.refused(2, &["certificate.identity", "is not kept"]);
    let nowhere =
        ran(sealing(dir.path(), &services, "rekor-v2+http://127.0.0.1:9").args(["--certificate-identity", identity]));
    nowhere.refused(2, &["log http://127.0.0.1:9", "trying again is safe"]);
    let mut expired = sealing(dir.path(), &services, &log);
    expired.env("SIGSTORE_ID_TOKEN", "e30.eyJpc3MiOiJpIiwic3ViIjoicyIsImF1ZCI6ImEiLCJleHAiOjEsImlhdCI6MH0.x");
    ran(expired.args(["--certificate-identity", identity])).refused(2, &["expired at 1970-01-01"]);
    let mut nobody = sealing(dir.path(), &services, &log);
    ran(nobody.env_remove("SIGSTORE_ID_TOKEN").args(["--certificate-identity", identity]))
        .refused(2, &["SIGSTORE_ID_TOKEN"]);
    assert_eq!(blobs(dir.path()), before);

    let sealed = ran(sealing(dir.path(), &services, &log).args(["--certificate-identity", identity])).ok();
    let blob = |digest: &str| std::fs::read(dir.path().join("bundle/blobs/sha256").join(digest)).unwrap();
    let manifest: Value = serde_json::from_slice(&blob(sealed.stdout.trim().strip_prefix("sha256:").unwrap())).unwrap();
    let digest = |value: &Value| value["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap().to_owned();
    let subject = blob(&digest(&manifest["subject"]));
    let asked = Asked {
        bundle: String::from_utf8(blob(&digest(&manifest["layers"][0]))).unwrap(),
        trusted_root: root.to_string(),
        signer: Signer::Certificate { identity: identity.to_owned(), issuer: services.text("issuer").to_owned() },
        artifact: None,
        sha256: sha256(&subject),
    };
    let stranger = Asked {
        signer: Signer::Certificate { identity: "x@example.org".into(), issuer: services.text("issuer").to_owned() },
        ..asked.clone()
    };
    let other = Asked { sha256: [7; 32], ..asked.clone() };
    let questions = [
        ("as it is", asked, None),
        ("another identity", stranger, Some("certificate.identity")),
        ("another bundle", other, Some("artifact.digest")),
    ];
    // Who asks these two gives the envelope alone, and compares its subjects elsewhere.
    let lenient = [("@sigstore/verify", "another bundle"), ("PyPI sigstore", "another bundle")];
    all_agree(&questions, |_| true, &lenient);

    // A trust directory names keys; this seal is by none of them.
    let keys = dir.path().join("keys");
    symseal(["key", "generate", "--output", keys.to_str().unwrap()]).ok();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let trust = ["trust", "init", "--trust", &at("trust"), "--key", &at("keys/artifact.pub.pem"), "--name", "app"];
    symseal(trust.iter().copied().chain(["--log", at("log").as_str()])).ok();
    let verified = symseal(["bundle", "verify", bundle, "--trust", &at("trust"), "--json"]);
    assert_eq!(verified.status, 1);
    let failed = |check: &Value| check["status"] == json!("failed");
    let checks =
        verified.json()["checks"].as_array().unwrap().iter().filter(|check| failed(check)).cloned().collect::<Vec<_>>();
    assert_eq!(checks[0]["id"], "seal.structure", "{checks:?}");
}
