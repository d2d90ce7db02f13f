//! Key files: what is written, what is refused, and that OpenSSL reads them.

use std::path::Path;
use std::process::Command;

use crate::support::{World, have};
use symseal_seal::SigstoreBundle;
use symseal_seal::note::SignedNote;
use symseal_sealer::{ArtifactKey, KeyFileError, LogKey};

#[cfg(unix)]
#[test]
fn keys_are_their_owner_s_alone_and_never_overwritten() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("artifact.pem");
    let key = ArtifactKey::generate_file(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let before = std::fs::read(&path).unwrap();
    assert!(matches!(ArtifactKey::generate_file(&path), Err(KeyFileError::Exists { .. })));
    assert!(matches!(LogKey::generate_file(&path), Err(KeyFileError::Exists { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(ArtifactKey::load_pem(&path).unwrap().key_id(), key.key_id());
    // Nothing but the key is left in the directory, also after the refusals.
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    let link = directory.path().join("link.pem");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    assert!(matches!(ArtifactKey::generate_file(&link), Err(KeyFileError::Exists { .. })));
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let error = ArtifactKey::generate_file(&directory.path().join("no/key.pem")).unwrap_err().to_string();
    assert!(error.contains("no/key.pem"), "{error}");
    let error = ArtifactKey::load_pem(&directory.path().join("key.pem")).unwrap_err().to_string();
    assert!(error.contains("key.pem"), "{error}");
    let error = ArtifactKey::load_pem(directory.path()).unwrap_err().to_string();
    assert!(error.contains("no regular file"), "{error}");
}

#[test]
fn signatures_are_deterministic_and_verify() {
    let key = ArtifactKey::generate().unwrap();
    let signature = key.sign(b"message");
    assert_eq!(signature, key.sign(b"message"));
    assert!(key.public().verifies(b"message", &signature));
    assert!(!key.public().verifies(b"massage", &signature));
    let other = ArtifactKey::generate().unwrap();
    assert!(!other.public().verifies(b"message", &signature));
}

fn openssl(directory: &Path, arguments: &[&str]) -> bool {
    Command::new("openssl").current_dir(directory).args(arguments).output().unwrap().status.success()
}

#[test]
fn keys_of_other_kinds_are_refused_with_the_reason() {
    if !have("openssl", "version") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let check = |arguments: &[&str], artifact: &str, log: &str| {
        let path = directory.path().join("key.pem");
        let _ = std::fs::remove_file(&path);
        let mut arguments = arguments.to_vec();
        arguments.extend(["-out", "key.pem"]);
        assert!(openssl(directory.path(), &arguments), "{arguments:?}");
        let error = ArtifactKey::load_pem(&path).map(|_| String::new()).unwrap_or_else(|error| error.to_string());
        assert!(error.contains(artifact) && error.is_empty() == artifact.is_empty(), "{arguments:?}: {error}");
        let error = LogKey::load_pem(&path).map(|_| String::new()).unwrap_or_else(|error| error.to_string());
        assert!(error.contains(log) && error.is_empty() == log.is_empty(), "{arguments:?}: {error}");
    };
    let p256 = ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
    check(&p256, "", "an ECDSA P-256 key");
    check(&["genpkey", "-algorithm", "ed25519"], "an Ed25519 key; a log entry holds only a SHA-256 digest", "");
    check(&["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"], "P-384", "P-384");
    check(&["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"], "an RSA key", "an RSA key");
    let encrypted: Vec<&str> = p256.iter().copied().chain(["-aes128", "-pass", "pass:x"]).collect();
    check(&encrypted, "the key is encrypted", "the key is encrypted");
    check(&["ecparam", "-genkey", "-noout", "-name", "prime256v1"], "SEC 1", "SEC 1");
    for (text, expected) in
        [("", "no PEM block"), ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "damaged")]
    {
        std::fs::write(directory.path().join("key.pem"), text).unwrap();
        let error = ArtifactKey::load_pem(&directory.path().join("key.pem")).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn openssl_reads_our_keys_and_verifies_our_signatures() {
    if !have("openssl", "version") {
        return;
    }
    let world = World::new(2);
    let put = |name: &str, bytes: &[u8]| std::fs::write(world.path(name), bytes).unwrap();
    let run = |arguments: &[&str]| openssl(world.directory.path(), arguments);
    let seal = SigstoreBundle::parse(&world.seal).unwrap();
    // The envelope: ECDSA over SHA-256 of the PAE, with the public key as OpenSSL derives it.
    assert!(run(&["pkey", "-in", "artifact.pem", "-pubout", "-out", "artifact.pub"]));
    assert_eq!(std::fs::read_to_string(world.path("artifact.pub")).unwrap(), world.artifact.public().to_pem());
    put("pae", &seal.envelope.pae());
    put("signature", &seal.envelope.signature);
    let verify = ["dgst", "-sha256", "-verify", "artifact.pub", "-signature", "signature", "pae"];
    assert!(run(&verify));
    put("pae", b"other");
    assert!(!run(&verify));
    // The checkpoint: Ed25519 over the note's text.
    assert!(run(&["pkey", "-in", "log.pem", "-pubout", "-out", "log.pub"]));
    let note = SignedNote::parse(&seal.entry.checkpoint).unwrap();
    put("text", note.text.as_bytes());
    put("signature", &note.signatures[0].signature);
    let verify =
        ["pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", "log.pub", "-in", "text", "-sigfile", "signature"];
    assert!(run(&verify));
    put("text", b"other");
    assert!(!run(&verify));
    // The key id is the hash of the SPKI that OpenSSL writes.
    assert!(run(&["pkey", "-pubin", "-in", "artifact.pub", "-outform", "DER", "-out", "spki"]));
    assert_eq!(symseal_seal::key_id(&std::fs::read(world.path("spki")).unwrap()), world.artifact.key_id());
}
