//! The other verifiers: where they are, and one way to ask them all.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use symseal_seal::encoding::to_hex;

use crate::program::{required, tool};

/// The packages, by version.
const NPM: &[&str] = &[
    "@sigstore/verify@4.1.3",
    "@sigstore/bundle@5.0.1",
    "@sigstore/protobuf-specs@0.5.2",
    "@sigstore/sign@4.1.1",
    "@sigstore/mock@0.13.0",
];
const PYPI: &str = "sigstore==4.5.1";

/// Whose signature a bundle should have.
#[derive(Clone)]
pub enum Signer {
    /// PEM.
    Key(String),
    Certificate {
        identity: String,
        issuer: String,
    },
}

/// A bundle and what it should be about.
#[derive(Clone)]
pub struct Asked {
    pub bundle: String,
    pub trusted_root: String,
    pub signer: Signer,
    /// The artifact, where there is one and not only its digest.
    pub artifact: Option<Vec<u8>>,
    pub sha256: [u8; 32],
}

impl Asked {
    fn to_json(&self) -> Value {
        let mut value = json!({"bundle": self.bundle, "trusted_root": self.trusted_root});
        match &self.signer {
            Signer::Key(pem) => value["key"] = pem.as_str().into(),
            Signer::Certificate { identity, issuer } => {
                value["identity"] = identity.as_str().into();
                value["issuer"] = issuer.as_str().into();
            }
        }
        if let Some(artifact) = &self.artifact {
            value["artifact"] = STANDARD.encode(artifact).into();
        }
        value
    }

    pub fn is_dsse(&self) -> bool {
        self.bundle.contains("\"dsseEnvelope\"")
    }

    /// The bundle as a value, where it is JSON.
    fn value(&self) -> Option<Value> {
        serde_json::from_str(&self.bundle).ok()
    }

    fn predicate_type(&self) -> Option<String> {
        let payload = STANDARD.decode(self.value()?["dsseEnvelope"]["payload"].as_str()?).ok()?;
        let statement: Value = serde_json::from_slice(&payload).ok()?;
        Some(statement["predicateType"].as_str()?.to_owned())
    }
}

/// `None`: accepted; else the reason for refusing.
pub type Answer = Option<String>;

/// The answers of one verifier, in the order of the questions; `None` where it is not here.
pub struct Answers {
    pub name: &'static str,
    pub answers: Option<Vec<Answer>>,
}

/// Asks everybody.
pub fn ask_all(questions: &[Asked]) -> [Answers; 3] {
    std::thread::scope(|scope| {
        let cosign = scope.spawn(|| ask_cosign(questions));
        let npm = scope.spawn(|| ask_npm(questions));
        let pypi = ask_pypi(questions);
        [
            Answers { name: "cosign", answers: cosign.join().expect("an answer") },
            Answers { name: "@sigstore/verify", answers: npm.join().expect("an answer") },
            Answers { name: "PyPI sigstore", answers: pypi },
        ]
    })
}

pub fn cache() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/symseal/peers"));
    std::env::var_os("SYMSEAL_PEERS").map(PathBuf::from).or_else(home)
}

/// A folder of the cache, filled by `install` the first time; one test at a time. Says so where it cannot be had.
fn installed(name: &str, install: impl FnOnce(&Path) -> Command) -> Option<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().expect("nobody panicked");
    let folder = cache()?.join(name);
    let done = folder.join("installed");
    if !done.exists() {
        let work = folder.with_extension(format!("{}.part", std::process::id()));
        std::fs::create_dir_all(&work).ok()?;
        let ran = install(&work).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output();
        let failure = match ran {
            Ok(ran) if ran.status.success() => None,
            Ok(ran) => Some(String::from_utf8_lossy(&ran.stderr).lines().last().unwrap_or_default().to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(failure) = failure {
            let _ = std::fs::remove_dir_all(&work);
            assert!(!required(name), "{name} is required and could not be installed: {failure}");
            println!("SKIP {name}: could not be installed: {failure}");
            return None;
        }
        std::fs::write(work.join("installed"), "").ok()?;
        // Another process may have been quicker.
        if std::fs::rename(&work, &folder).is_err() {
            let _ = std::fs::remove_dir_all(&work);
        }
    }
    done.exists().then_some(folder)
}

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracles").join(name)
}

/// node with the pinned packages.
pub fn node(script: &str) -> Option<Command> {
    let node = tool("node")?;
    tool("npm")?;
    let folder = installed("npm-sigstore", |folder| {
        let mut npm = Command::new("timeout");
        npm.arg("300").args(["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
        npm.arg(folder).args(NPM).current_dir(folder);
        npm
    })?;
    let mut command = Command::new(node);
    command.arg(oracle(script)).env("NODE_PATH", folder.join("node_modules")).env_remove("NODE_OPTIONS");
    Some(command)
}

/// Python with the pinned packages.
fn python(script: &str) -> Option<Command> {
    let python = tool("python3")?;
    let folder = installed("pypi-sigstore", |folder| {
        let mut pip = Command::new("timeout");
        pip.args(["300", "python3", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target"]);
        pip.arg(folder).arg(PYPI);
        pip
    })?;
    let mut command = Command::new(python);
    command.arg(oracle(script)).env("PYTHONPATH", folder);
    Some(command)
}

/// Runs a program with this input, and gives its output.
#[track_caller]
pub fn run(mut command: Command, input: &[u8]) -> Vec<u8> {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output().expect("it ends")
    });
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn in_one_batch(command: Command, questions: &[Asked]) -> Vec<Answer> {
    let input = serde_json::to_vec(&questions.iter().map(Asked::to_json).collect::<Vec<_>>()).expect("JSON");
    let answers: Vec<String> = serde_json::from_slice(&run(command, &input)).expect("a list");
    assert_eq!(answers.len(), questions.len());
    answers.into_iter().map(|reason| (!reason.is_empty()).then_some(reason)).collect()
}

fn ask_npm(questions: &[Asked]) -> Option<Vec<Answer>> {
    Some(in_one_batch(node("sigstore_verify.cjs")?, questions))
}

fn ask_pypi(questions: &[Asked]) -> Option<Vec<Answer>> {
    Some(in_one_batch(python("sigstore_python.py")?, questions))
}

/// cosign, on the PATH or where `tests/peers cosign` puts it.
pub fn cosign() -> Option<PathBuf> {
    let built = cache().map(|cache| cache.join("bin/cosign")).filter(|path| path.is_file());
    built.or_else(|| tool("cosign"))
}

fn ask_cosign(questions: &[Asked]) -> Option<Vec<Answer>> {
    let program = cosign()?;
    let dir = tempfile::tempdir().expect("a folder");
    let one = |(n, asked): (usize, &Asked)| {
        let at = |name: &str| dir.path().join(format!("{n}-{name}"));
        let write = |name: &str, bytes: &[u8]| std::fs::write(at(name), bytes).expect("written");
        write("bundle.json", asked.bundle.as_bytes());
        write("root.json", asked.trusted_root.as_bytes());
        let mut command = Command::new(&program);
        // Nothing of this machine's Sigstore set-up, and no network, may matter.
        command.env("HOME", dir.path()).env("HTTPS_PROXY", "http://127.0.0.1:9").current_dir(dir.path());
        command.arg(if asked.is_dsse() { "verify-blob-attestation" } else { "verify-blob" });
        command.arg("--bundle").arg(at("bundle.json")).arg("--trusted-root").arg(at("root.json"));
        match &asked.signer {
            Signer::Key(pem) => {
                write("key.pub", pem.as_bytes());
                command.arg("--key").arg(at("key.pub"));
            }
            Signer::Certificate { identity, issuer } => {
                command.args(["--certificate-identity", identity, "--certificate-oidc-issuer", issuer]);
            }
        }
        if asked.is_dsse() {
            command.args(["--type", asked.predicate_type().as_deref().unwrap_or("custom")]);
            command.args(["--digest", &to_hex(&asked.sha256), "--digestAlg", "sha256"]);
        } else {
            write("artifact", asked.artifact.as_deref().expect("cosign reads the file"));
            command.arg(at("artifact"));
        }
        let output = command.stdin(Stdio::null()).output().expect("cosign starts");
        let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        (!output.status.success()).then_some(if told.is_empty() { "refused".into() } else { told })
    };
    // Two at a time.
    let half = questions.len().div_ceil(2);
    let both = questions.iter().enumerate().collect::<Vec<_>>();
    let (first, second) = both.split_at(half);
    let one = &one;
    Some(std::thread::scope(|scope| {
        let first = scope.spawn(move || first.iter().copied().map(one).collect::<Vec<_>>());
        let second: Vec<Answer> = second.iter().copied().map(one).collect();
        let mut answers = first.join().expect("answers");
        answers.extend(second);
        answers
    }))
}
