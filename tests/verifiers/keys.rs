//! Bundles of keys of one's own: ours, cosign's, and those made here by openssl.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use symseal_seal::encoding::{sha256, to_base64};
use symseal_seal::entry::hashedrekord_v002;
use symseal_seal::pae;

use crate::bundles::{all_agree, all_agree_about_files, entry, verdict};
use crate::peers::{Asked, Signer, cosign};
use crate::program::{any_tool, symseal, tool};
use crate::rekor_v1::{self, RekorV1};
use crate::support::{self, World};

pub const V03: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// Our seal of the world, as somebody else's verifier is asked about it.
fn our_seal(world: &World) -> Asked {
    Asked {
        bundle: String::from_utf8(world.seal.clone()).unwrap(),
        trusted_root: String::from_utf8(world.trust_files[2].clone()).unwrap(),
        signer: Signer::Key(world.artifact.public().to_pem()),
        artifact: None,
        sha256: support::BUNDLE,
    }
}

/// The same question about a changed bundle.
fn changed(asked: &Asked, change: impl FnOnce(&mut Value)) -> Asked {
    let mut bundle: Value = serde_json::from_str(&asked.bundle).unwrap();
    change(&mut bundle);
    Asked { bundle: bundle.to_string(), ..asked.clone() }
}

/// What looks at the whole of a key's bundle. PyPI's sigstore has functions for the parts of an attestation.
fn looks_at_all(peer: &str) -> bool {
    peer != "PyPI sigstore"
}

#[test]
fn our_seal_is_accepted_by_every_verifier_without_a_change() {
    let world = World::new(4);
    let seal = our_seal(&world);
    let by_index = Asked { sha256: support::INDEX, ..seal.clone() };
    let questions = [("the bundle", seal.clone(), None), ("symbol_index.json", by_index, None)];
    all_agree(&questions, |_| true, &[]);
    let entry = "/verificationMaterial/tlogEntries/0";
    let damaged = |field: &str| {
        changed(&seal, |bundle| {
            let field = bundle.pointer_mut(field).unwrap();
            let text = field.as_str().unwrap();
            let other = if text.starts_with('B') { 'C' } else { 'B' };
            *field = format!("{other}{}", &text[1..]).into();
        })
    };
    // Each of the functions of PyPI's sigstore refuses what is its business.
    let questions = [
        ("payload", damaged("/dsseEnvelope/payload"), Some("bundle.form")),
        ("audit path", damaged(&format!("{entry}/inclusionProof/hashes/0")), Some("log.inclusion")),
        ("checkpoint", damaged(&format!("{entry}/inclusionProof/checkpoint/envelope")), Some("log.checkpoint")),
    ];
    all_agree(&questions, |_| true, &[]);
}

pub struct OpensslKey {
    dir: tempfile::TempDir,
    pub spki: Vec<u8>,
    pub pem: String,
}

impl OpensslKey {
    pub fn new(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = Self { dir, spki: Vec::new(), pem: String::new() };
        key.openssl(&[&["genpkey", "-out", "key.pem"], options].concat(), b"");
        let spki = key.openssl(&["pkey", "-in", "key.pem", "-pubout", "-outform", "DER"], b"");
        let pem = String::from_utf8(key.openssl(&["pkey", "-in", "key.pem", "-pubout"], b"")).unwrap();
        Self { spki, pem, ..key }
    }

    pub fn openssl(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let mut command = Command::new("openssl");
        command.current_dir(self.dir.path()).args(arguments);
        crate::peers::run(command, input)
    }

    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.openssl(&["dgst", "-sha256", "-sign", "key.pem"], message)
    }
}

#[test]
fn message_signatures_and_attestations_by_keys_are_judged_as_everybody_judges_them() {
    if tool("openssl").is_none() {
        return;
    }
    let mut world = World::new(2);
    let v1 = RekorV1::new();
    let mut root: Value = serde_json::from_slice(&world.trust_files[2]).unwrap();
    root["tlogs"].as_array_mut().unwrap().push(v1.trusted(json!({"start": "2020-01-01T00:00:00Z"})));
    let artifact = b"an artifact\n".to_vec();
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "artifact", "digest": {"sha256": symseal_seal::encoding::to_hex(&sha256(&artifact))}}],
        "predicateType": "https://example.org/built/v1", "predicate": {},
    });
    let payload = statement.to_string().into_bytes();
    let log_id = world.log.id().to_string();
    let time = 1_790_000_000;
    let (mut questions, mut over_files) = (Vec::new(), Vec::new());
    for (name, options) in [
        ("P-256", &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"][..]),
        ("RSA", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]),
    ] {
        let key = OpensslKey::new(options);
        let by_message = key.sign(&artifact);
        let by_envelope = key.sign(&pae("application/vnd.in-toto+json", &payload));
        let hint = to_base64(&sha256(&key.spki));
        let bundle = |entry: Value, content: (&str, Value)| {
            let material = json!({"publicKey": {"hint": hint}, "tlogEntries": [entry]});
            let bundle = json!({"mediaType": V03, "verificationMaterial": material, content.0: content.1});
            Asked {
                bundle: bundle.to_string(),
                trusted_root: root.to_string(),
                signer: Signer::Key(key.pem.clone()),
                artifact: Some(artifact.clone()),
                sha256: sha256(&artifact),
            }
        };
        let digest = json!({"algorithm": "SHA2_256", "digest": to_base64(&sha256(&artifact))});
        let message = || ("messageSignature", json!({"messageDigest": digest, "signature": to_base64(&by_message)}));
        let envelope = || {
            let signatures = json!([{"sig": to_base64(&by_envelope)}]);
            let envelope = json!({"payload": to_base64(&payload), "payloadType": "application/vnd.in-toto+json", "signatures": signatures});
            ("dsseEnvelope", envelope)
        };
        let body = rekor_v1::hashedrekord(&sha256(&artifact), &by_message, &key.pem);
        let message_v1 = bundle(v1.entry("hashedrekord", "0.0.1", &body, time), message());
        let body = rekor_v1::dsse(&payload, &by_envelope, &key.pem);
        let envelope_v1 = bundle(v1.entry("dsse", "0.0.1", &body, time), envelope());
        if name == "P-256" {
            let body = hashedrekord_v002(&sha256(&artifact), &by_message, &key.spki);
            let logged = entry(&log_id, &body, &world.log.append(&body).unwrap());
            questions.push(("a message in a Rekor v2", bundle(logged, message()), None));
            let digest = sha256(&pae("application/vnd.in-toto+json", &payload));
            let body = hashedrekord_v002(&digest, &by_envelope, &key.spki);
            let logged = entry(&log_id, &body, &world.log.append(&body).unwrap());
            questions.push(("an attestation in a Rekor v2", bundle(logged, envelope()), None));
            let other = Asked { artifact: Some(b"another".to_vec()), sha256: sha256(b"another"), ..message_v1.clone() };
            questions.push(("another artifact", other, Some("artifact.digest")));
            let stranger = world.artifact.public().to_pem();
            let other = Asked { signer: Signer::Key(stranger), ..message_v1.clone() };
            questions.push(("another key", other, Some("signature")));
            let late = |bundle: &mut Value| {
                bundle["verificationMaterial"]["tlogEntries"][0]["integratedTime"] = "1790000001".into()
            };
            questions.push(("another time", changed(&message_v1, late), Some("log.promise")));
            let unlogged = |bundle: &mut Value| bundle["verificationMaterial"]["tlogEntries"] = json!([]);
            questions.push(("no log entry", changed(&message_v1, unlogged), Some("bundle.form")));
            let body = rekor_v1::hashedrekord(&sha256(b"another"), &by_message, &key.pem);
            let other = bundle(v1.entry("hashedrekord", "0.0.1", &body, time), message());
            questions.push(("an entry of another artifact", other, Some("artifact.digest")));
        } else {
            // Over RSA a digest is not enough for us: `ring` wants the message.
            let by_digest = Asked { artifact: None, ..message_v1.clone() };
            assert_eq!(verdict(&by_digest, false).as_deref(), Some("bundle.supported"));
            over_files.push(("a message by RSA in a Rekor v1", message_v1, None));
            questions.push(("an attestation by RSA in a Rekor v1", envelope_v1, None));
            continue;
        }
        questions.push(("a message in a Rekor v1", message_v1, None));
        questions.push(("an attestation in a Rekor v1", envelope_v1, None));
    }
    all_agree(&questions, looks_at_all, &[]);
    all_agree_about_files(&over_files, looks_at_all, &[]);
}

#[test]
fn what_cosign_signs_with_a_key_is_accepted() {
    let (Some(cosign), Some(_)) = (cosign(), any_tool(&["openssl"])) else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(rekor) = crate::rekor::Rekor::start(dir.path(), &["--checkpoint-interval=1s", "--batch-max-age=100ms"])
    else {
        return;
    };
    let write = |name: &str, value: &Value| std::fs::write(dir.path().join(name), value.to_string()).unwrap();
    let service = json!({"url": rekor.url, "majorApiVersion": 2, "operator": "test", "validFor": {"start": "2020-01-01T00:00:00Z"}});
    write(
        "config.json",
        &json!({
            "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
            "rekorTlogUrls": [service],
            "rekorTlogConfig": {"selector": "ANY"},
        }),
    );
    let root = symseal_seal::trust::trusted_root::one_log(&rekor.identity, symseal_seal::UtcSeconds(1_600_000_000));
    std::fs::write(dir.path().join("root.json"), &root).unwrap();
    let artifact = b"an artifact\n".to_vec();
    std::fs::write(dir.path().join("artifact"), &artifact).unwrap();
    write("predicate.json", &json!({"built": true}));
    let run = |arguments: &[&str]| {
        let output = Command::new(&cosign)
            .current_dir(dir.path())
            .env("HOME", dir.path())
            .env("COSIGN_PASSWORD", "a passphrase")
            .stdin(Stdio::null())
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["generate-key-pair"]);
    let common = ["--key", "cosign.key", "--signing-config", "config.json", "--trusted-root", "root.json", "-y"];
    run(&[&["sign-blob", "--bundle", "message.json"], &common[..], &["artifact"]].concat());
    let attest = [
        "attest-blob",
        "--bundle",
        "attestation.json",
        "--predicate",
        "predicate.json",
        "--type",
        "https://example.org/built/v1",
    ];
    run(&[&attest[..], &common[..], &["artifact"]].concat());
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let asked = |name: &str| Asked {
        bundle: read(name),
        trusted_root: read("root.json"),
        signer: Signer::Key(read("cosign.pub")),
        artifact: Some(artifact.clone()),
        sha256: sha256(&artifact),
    };
    let questions = [("message", asked("message.json"), None), ("attestation", asked("attestation.json"), None)];
    all_agree(&questions, looks_at_all, &[]);
}

#[test]
fn a_wrong_call_ends_with_status_2_and_says_what_was_wrong() {
    let world = World::new(0);
    let at = |name: &str| world.path(name).display().to_string();
    std::fs::write(at("seal.json"), &world.seal).unwrap();
    std::fs::write(at("key.pub"), world.artifact.public().to_pem()).unwrap();
    let (seal, key, root) = (at("seal.json"), at("key.pub"), at("trust/trusted_root.json"));
    let verify = |arguments: &[&str]| symseal([&["verify-bundle"], arguments].concat());
    let digest = format!("sha256:{}", "11".repeat(32));
    let ran = verify(&["--bundle", &seal, "--key", &key, "--trusted-root", &root, &digest]).ok();
    assert!(ran.stdout.contains("VERIFIED") && ran.stdout.contains("log entry"), "{}", ran.stdout);
    verify(&["--bundle", &seal, "--key", &key, "--trusted-root", &root, &at("nothing")]).refused(2, &["nothing"]);
    verify(&["--bundle", &seal, "--key", &seal, "--trusted-root", &root, &digest]).refused(2, &["a public key in PEM"]);
    verify(&["--bundle", &seal, "--key", &key, "--trusted-root", &seal, &digest])
        .refused(2, &["a Sigstore trusted root"]);
    verify(&["--bundle", &at("none.json"), "--key", &key, &digest]).refused(2, &["none.json"]);
    verify(&["--bundle", &seal, &digest]).refused(2, &["--key"]);
    verify(&["--bundle", &seal, "--certificate-identity", "a", &digest]).refused(2, &["--certificate-oidc-issuer"]);
    verify(&[
        "--bundle",
        &seal,
        "--key",
        &key,
        "--certificate-identity",
        "a",
        "--certificate-oidc-issuer",
        "b",
        &digest,
    ])
    .refused(2, &["cannot be used with"]);
    // Not a digest, so a file.
    verify(&["--bundle", &seal, "--key", &key, "--trusted-root", &root, "sha256:11"]).refused(2, &["sha256:11"]);
    // The built-in root does not know our log.
    let ran = verify(&["--bundle", &seal, "--key", &key, &digest]);
    assert_eq!((ran.status, ran.stdout.contains("REFUSED by the check log.id: expected: ")), (1, true), "{ran:?}");
    let ran = verify(&["--bundle", &seal, "--certificate-identity", "a", "--certificate-oidc-issuer", "b", &digest]);
    assert!(ran.status == 1 && ran.stdout.contains("REFUSED by the check signer.kind"), "{ran:?}");
}

#[test]
fn the_page_lists_the_checks_of_foreign_bundles() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/provenance.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("## Any Sigstore bundle").unwrap();
    let rows: String = section.lines().filter(|line| line.starts_with("| `")).map(|line| format!("{line}\n")).collect();
    let row = |check: &symseal_sealer::foreign::ForeignCheck| format!("| `{}` | {} |\n", check.id, check.sentence);
    assert_eq!(rows, symseal_sealer::foreign::CATALOGUE.iter().map(row).collect::<String>());
}
