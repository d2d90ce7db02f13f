//! Sigstore bundles as text, and `symseal verify-bundle` asked about them.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use symseal_seal::encoding::{to_base64, to_hex};
use symseal_sealer::Appended;

use crate::peers::{Answer, Asked, Signer, ask_all};
use crate::program::{command, symseal_path};

/// A log entry of a Rekor v2.
pub fn entry(log_id: &str, body: &[u8], appended: &Appended) -> Value {
    let hashes: Vec<String> = appended.proof.iter().map(|hash| to_base64(hash)).collect();
    json!({
        "logIndex": appended.index.to_string(),
        "logId": {"keyId": log_id},
        "kindVersion": {"kind": "hashedrekord", "version": "0.0.2"},
        "inclusionProof": {
            "logIndex": appended.index.to_string(), "treeSize": appended.size.to_string(),
            "rootHash": to_base64(&appended.root), "hashes": hashes, "checkpoint": {"envelope": appended.checkpoint},
        },
        "canonicalizedBody": to_base64(body),
    })
}

/// What `symseal verify-bundle` says: the check that refuses, or nothing. Where there is an artifact it is asked twice, with
/// the file and with its digest, and the answers have to agree, unless `only_file`.
#[track_caller]
pub fn verdict(asked: &Asked, only_file: bool) -> Answer {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(dir.path().join(name), bytes).unwrap();
    write("bundle.json", asked.bundle.as_bytes());
    write("root.json", asked.trusted_root.as_bytes());
    let digest = format!("sha256:{}", to_hex(&asked.sha256));
    let by_digest = || ask(dir.path(), asked, &digest);
    let Some(artifact) = &asked.artifact else { return by_digest() };
    write("artifact", artifact);
    let by_file = ask(dir.path(), asked, "artifact");
    if !only_file {
        assert_eq!(by_digest(), by_file);
    }
    by_file
}

fn ask(dir: &Path, asked: &Asked, artifact: &str) -> Answer {
    let mut command = offline();
    command.current_dir(dir).args(["verify-bundle", "--json", "--bundle", "bundle.json"]);
    if !asked.trusted_root.is_empty() {
        command.args(["--trusted-root", "root.json"]);
    }
    match &asked.signer {
        Signer::Key(pem) => {
            std::fs::write(dir.join("key.pub"), pem).unwrap();
            command.args(["--key", "key.pub"]);
        }
        Signer::Certificate { identity, issuer } => {
            command.args(["--certificate-identity", identity, "--certificate-oidc-issuer", issuer]);
        }
    }
    let output = command.arg(artifact).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!told.contains("panicked"), "{told}");
    match output.status.code() {
        Some(2) => return Some(format!("wrong call: {told}")),
        Some(0 | 1) => {}
        other => panic!("{other:?}: {told}"),
    }
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["verdict"], if output.status.success() { "verified" } else { "refused" });
    (!output.status.success()).then(|| report["check"].as_str().unwrap().to_owned())
}

/// `symseal` without a network, where this machine lets a user have that.
fn offline() -> Command {
    static UNSHARE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    let works = *UNSHARE.get_or_init(|| {
        let works = Command::new("unshare").args(["-rn", "true"]).output().is_ok_and(|ran| ran.status.success());
        if !works {
            println!("SKIP unshare: a network is left to the program");
        }
        works
    });
    if !works {
        return command("symseal");
    }
    let plain = command("symseal");
    let mut command = Command::new("unshare");
    command.arg("-rn").arg(symseal_path());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Asks us and the others; everybody who can read such bundles has to say the same, but for those who are known to let a
/// question pass (verifier, question).
#[track_caller]
pub fn all_agree(questions: &[(&str, Asked, Option<&str>)], can_read: impl Fn(&str) -> bool, lenient: &[(&str, &str)]) {
    for (name, asked, expected) in questions {
        assert_eq!(verdict(asked, false).as_deref(), *expected, "{name}");
    }
    others_agree(questions, can_read, lenient);
}

/// [`all_agree`], where a digest is not enough for us.
#[track_caller]
pub fn all_agree_about_files(
    questions: &[(&str, Asked, Option<&str>)],
    can_read: impl Fn(&str) -> bool,
    lenient: &[(&str, &str)],
) {
    for (name, asked, expected) in questions {
        assert_eq!(verdict(asked, true).as_deref(), *expected, "{name}");
    }
    others_agree(questions, can_read, lenient);
}

#[track_caller]
fn others_agree(questions: &[(&str, Asked, Option<&str>)], can_read: impl Fn(&str) -> bool, lenient: &[(&str, &str)]) {
    let asked: Vec<Asked> = questions.iter().map(|(_, asked, _)| asked.clone()).collect();
    let mut others = Vec::new();
    for peer in ask_all(&asked) {
        let Some(answers) = peer.answers.filter(|_| can_read(peer.name)) else { continue };
        for ((name, _, expected), answer) in questions.iter().zip(answers) {
            let accepts = expected.is_none() || lenient.contains(&(peer.name, name));
            if answer.is_none() != accepts {
                others.push(format!("{} of {name}: {answer:?}", peer.name));
            }
        }
    }
    assert!(others.is_empty(), "{others:#?}");
}
