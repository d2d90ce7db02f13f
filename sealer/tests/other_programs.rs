//! Programs that share no code with ours agree: a Python reader written from the documents, and cosign.

use crate::support;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{World, have};
use serde_json::Value;
use symseal_seal::encoding::{to_base64, to_hex};

fn oracle(arguments: &[&Path]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracles/seal_oracle.py");
    Command::new("python3").arg(script).args(arguments).output().unwrap()
}

#[track_caller]
fn answer(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_python_reader_finds_the_same_roots_tiles_and_proofs() {
    if !have("python3", "--version") {
        return;
    }
    for before in [0, 1, 2, 6, 7] {
        let world = World::new(before);
        std::fs::write(world.path("seal.json"), &world.seal).unwrap();
        let log = answer(&oracle(&[Path::new("log"), &world.path("log")]));
        assert_eq!(log["size"], before + 1);
        assert_eq!(log["root"], to_base64(&world.log.root()));
        let seal = answer(&oracle(&[Path::new("seal"), &world.path("seal.json"), &world.path("log")]));
        assert_eq!(seal["index"], before);
        assert_eq!(seal["digests"][0], to_hex(&support::BUNDLE));
    }
}

#[test]
fn the_python_reader_follows_a_log_of_several_tiles() {
    if !have("python3", "--version") {
        return;
    }
    let mut world = World::new(0);
    for n in 0..270 {
        world.log.append(format!("entry {n}").as_bytes()).unwrap();
    }
    let found = answer(&oracle(&[Path::new("log"), &world.path("log")]));
    assert_eq!((found["size"].as_u64(), found["tiles"].as_u64()), (Some(271), Some(3)));
    let seal = symseal_sealer::seal(&support::statement("tool", "2"), &world.artifact, &mut world.log).unwrap();
    std::fs::write(world.path("seal.json"), &seal).unwrap();
    answer(&oracle(&[Path::new("seal"), &world.path("seal.json"), &world.path("log")]));
}

#[test]
fn the_python_reader_refuses_what_was_changed() {
    if !have("python3", "--version") {
        return;
    }
    let world = World::new(3);
    let path = world.path("log/tile/0/000.p/4");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(!oracle(&[Path::new("log"), &world.path("log")]).status.success());
}

/// On the PATH, or where `tests/peers cosign` puts it.
fn cosign() -> Option<PathBuf> {
    let cache = std::env::var_os("SYMSEAL_PEERS").map(PathBuf::from).or_else(|| home(".cache/symseal/peers"));
    let built = cache.map(|cache| cache.join("bin/cosign")).filter(|path| path.is_file());
    let program = built.unwrap_or_else(|| PathBuf::from("cosign"));
    have(program.to_str()?, "version").then_some(program)
}

fn home(name: &str) -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("HOME")?).join(name))
}

#[test]
fn cosign_accepts_our_seal_and_refuses_a_changed_one() {
    let Some(cosign) = cosign() else { return };
    let world = World::new(4);
    std::fs::write(world.path("artifact.pub"), world.artifact.public().to_pem()).unwrap();
    let verify = |seal: &[u8], digest: &[u8; 32], predicate: &str| {
        std::fs::write(world.path("seal.json"), seal).unwrap();
        Command::new(&cosign)
            // Nothing of this machine's Sigstore set-up, and no network, may matter.
            .env("HOME", world.directory.path())
            .env("HTTPS_PROXY", "http://127.0.0.1:9")
            .current_dir(world.directory.path())
            .args(["verify-blob-attestation", "--bundle", "seal.json", "--key", "artifact.pub"])
            .args(["--trusted-root", "trust/trusted_root.json", "--type", predicate])
            .args(["--digest", &to_hex(digest), "--digestAlg", "sha256"])
            .output()
            .unwrap()
    };
    let text = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let predicate = symseal_seal::PREDICATE_TYPE;
    for subject in [support::BUNDLE, support::INDEX] {
        let output = verify(&world.seal, &subject, predicate);
        assert!(output.status.success(), "{}", text(&output));
        assert!(text(&output).contains("Verified OK"), "{}", text(&output));
    }
    assert!(!verify(&world.seal, &[0; 32], predicate).status.success());
    assert!(!verify(&world.seal, &support::BUNDLE, "https://other.example/v1").status.success());
    for pointer in [
        "/dsseEnvelope/payload",
        "/verificationMaterial/tlogEntries/0/canonicalizedBody",
        "/verificationMaterial/tlogEntries/0/logId/keyId",
        "/verificationMaterial/tlogEntries/0/inclusionProof/hashes/0",
    ] {
        let mut seal = world.seal_json();
        let field = seal.pointer_mut(pointer).unwrap();
        let text = field.as_str().unwrap();
        let other = if text.starts_with('B') { 'C' } else { 'B' };
        *field = format!("{other}{}", &text[1..]).into();
        let output = verify(&serde_json::to_vec(&seal).unwrap(), &support::BUNDLE, predicate);
        assert!(!output.status.success(), "{pointer}");
    }
}
