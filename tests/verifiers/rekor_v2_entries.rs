//! Entries of a Rekor v2 by other keys than ECDSA P-256, from the real server, and in the older kind `dsse`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};
use symseal_seal::encoding::{sha256, to_base64, to_hex};
use symseal_seal::pae;

use crate::bundles::{self, all_agree};
use crate::keys::{OpensslKey, V03};
use crate::peers::{Asked, Signer};
use crate::program::tool;
use crate::rekor::Rekor;
use crate::support::World;

const TYPE: &str = "application/vnd.in-toto+json";

/// A kind of key, as openssl and a Rekor v2 call it.
struct Kind {
    name: &'static str,
    options: &'static [&'static str],
    details: &'static str,
    digest: &'static str,
    algorithm: &'static str,
}

const KINDS: &[Kind] = &[
    Kind {
        name: "P-256",
        options: &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
        details: "PKIX_ECDSA_P256_SHA_256",
        digest: "sha256",
        algorithm: "SHA2_256",
    },
    Kind {
        name: "P-384",
        options: &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"],
        details: "PKIX_ECDSA_P384_SHA_384",
        digest: "sha384",
        algorithm: "SHA2_384",
    },
    Kind {
        name: "RSA 2048",
        options: &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
        details: "PKIX_RSA_PKCS1V15_2048_SHA256",
        digest: "sha256",
        algorithm: "SHA2_256",
    },
    Kind {
        name: "RSA 3072",
        options: &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:3072"],
        details: "PKIX_RSA_PKCS1V15_3072_SHA256",
        digest: "sha256",
        algorithm: "SHA2_256",
    },
];

/// What the server answers to a request for an entry: the entry as a bundle has it.
fn logged(rekor: &Rekor, digest: &[u8], signature: &[u8], spki: &[u8], details: &str) -> Value {
    let body = json!({"hashedRekordRequestV002": {
        "digest": to_base64(digest),
        "signature": {
            "content": to_base64(signature),
            "verifier": {"publicKey": {"rawBytes": to_base64(spki)}, "keyDetails": details},
        },
    }})
    .to_string();
    let host = rekor.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let head = format!(
        "POST /api/v2/log/entries HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 201 "), "{details}: {answer}");
    serde_json::from_str(body).unwrap()
}

fn bundle(key: &OpensslKey, root: &str, entries: Value, content: (&str, Value), artifact: &[u8]) -> Asked {
    let material = json!({"publicKey": {"hint": to_base64(&sha256(&key.spki))}, "tlogEntries": entries});
    Asked {
        bundle: json!({"mediaType": V03, "verificationMaterial": material, content.0: content.1}).to_string(),
        trusted_root: root.to_owned(),
        signer: Signer::Key(key.pem.clone()),
        artifact: Some(artifact.to_vec()),
        sha256: sha256(artifact),
    }
}

fn statement(artifact: &[u8]) -> Vec<u8> {
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "artifact", "digest": {"sha256": to_hex(&sha256(artifact))}}],
        "predicateType": "https://example.org/built/v1", "predicate": {},
    });
    statement.to_string().into_bytes()
}

fn envelope(payload: &[u8], signature: &[u8]) -> (&'static str, Value) {
    let signatures = json!([{"sig": to_base64(signature)}]);
    ("dsseEnvelope", json!({"payload": to_base64(payload), "payloadType": TYPE, "signatures": signatures}))
}

#[test]
fn entries_of_a_real_rekor_v2_by_keys_of_every_kind_are_judged_as_cosign_judges_them() {
    if tool("openssl").is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(rekor) = Rekor::start(dir.path(), &["--checkpoint-interval=200ms", "--batch-max-age=50ms"]) else {
        return;
    };
    let root = symseal_seal::trust::trusted_root::one_log(&rekor.identity, symseal_seal::UtcSeconds(1_600_000_000));
    let root = String::from_utf8(root).unwrap();
    let artifact = b"an artifact\n".to_vec();
    let payload = statement(&artifact);
    let mut questions = Vec::new();
    for kind in KINDS {
        let key = OpensslKey::new(kind.options);
        let sign = |message: &[u8]| key.openssl(&["dgst", &format!("-{}", kind.digest), "-sign", "key.pem"], message);
        let hash = |message: &[u8]| key.openssl(&["dgst", &format!("-{}", kind.digest), "-binary"], message);
        let signed = pae(TYPE, &payload);
        let (by_message, by_envelope) = (sign(&artifact), sign(&signed));
        let log = |digest: &[u8], signature: &[u8]| logged(&rekor, digest, signature, &key.spki, kind.details);
        let entry = log(&hash(&signed), &by_envelope);
        let attestation = bundle(&key, &root, json!([entry]), envelope(&payload, &by_envelope), &artifact);
        questions.push((format!("an attestation by {}", kind.name), attestation, None));
        let digest = json!({"algorithm": kind.algorithm, "digest": to_base64(&hash(&artifact))});
        let content = ("messageSignature", json!({"messageDigest": digest, "signature": to_base64(&by_message)}));
        let message_entry = log(&hash(&artifact), &by_message);
        let message = bundle(&key, &root, json!([message_entry]), content, &artifact);
        // Over a digest alone only P-256 is verified: the library wants the message.
        assert_eq!(bundles::verdict(&message, true), None, "a message by {}", kind.name);
        // The entry of something else that the same key signed.
        let other = sign(b"another");
        let other = log(&hash(b"another"), &other);
        let swapped = bundle(&key, &root, json!([other]), envelope(&payload, &by_envelope), &artifact);
        let check = if kind.name == "P-256" { "artifact.digest" } else { "log.entry" };
        questions.push((format!("another entry by {}", kind.name), swapped, Some(check)));
        // Its own entry, which the log did not put there.
        let mut moved = entry.clone();
        moved["logIndex"] = "0".into();
        if entry["logIndex"] != "0" {
            let moved = bundle(&key, &root, json!([moved]), envelope(&payload, &by_envelope), &artifact);
            questions.push((format!("another place by {}", kind.name), moved, Some("log.inclusion")));
        }
        // An entry that stands twice would count twice where entries are counted.
        let twice = bundle(&key, &root, json!([entry, entry]), envelope(&payload, &by_envelope), &artifact);
        questions.push((format!("an entry twice by {}", kind.name), twice, Some("bundle.form")));
    }
    let questions: Vec<(&str, Asked, Option<&str>)> =
        questions.iter().map(|(name, asked, check)| (name.as_str(), asked.clone(), *check)).collect();
    // PyPI's sigstore has functions for parts. The command line of cosign and @sigstore/verify take SHA-256 for every curve, where a
    // Rekor v2 takes SHA-384 for P-384, so that they are not asked about that; its server made the entries.
    let (p384, others): (Vec<_>, Vec<_>) = questions.into_iter().partition(|(name, ..)| name.ends_with("P-384"));
    all_agree(&p384, |_| false, &[]);
    // @sigstore/verify takes the place from the proof, whose copy a Rekor v2's reader ignores.
    let lenient = others.iter().filter(|(name, ..)| name.starts_with("another place"));
    let lenient: Vec<(&str, &str)> = lenient.map(|(name, ..)| ("@sigstore/verify", *name)).collect();
    all_agree(&others, |peer| peer != "PyPI sigstore", &lenient);
}

#[test]
fn the_older_kind_of_entry_for_envelopes_is_read_and_held_to_its_bundle() {
    if tool("openssl").is_none() {
        return;
    }
    let mut world = World::new(2);
    let root = String::from_utf8(world.trust_files[2].clone()).unwrap();
    let artifact = b"an artifact\n".to_vec();
    let payload = statement(&artifact);
    let id = world.log.id().to_string();
    let mut questions = Vec::new();
    let key = OpensslKey::new(KINDS[0].options);
    let signature = key.sign(&pae(TYPE, &payload));
    let mut log = |change: &dyn Fn(&mut Value)| {
        let mut body = json!({
            "apiVersion": "0.0.2",
            "kind": "dsse",
            "spec": {"dsseV002": {
                "payloadHash": {"algorithm": "SHA2_256", "digest": to_base64(&sha256(&payload))},
                "signatures": [{
                    "content": to_base64(&signature),
                    "verifier": {
                        "keyDetails": KINDS[0].details,
                        "publicKey": {"rawBytes": to_base64(&key.spki)},
                    },
                }],
            }},
        });
        change(&mut body);
        let body = body.to_string().into_bytes();
        let mut entry = bundles::entry(&id, &body, &world.log.append(&body).unwrap());
        entry["kindVersion"]["kind"] = "dsse".into();
        bundle(&key, &root, json!([entry]), envelope(&payload, &signature), &artifact)
    };
    let spec = "/spec/dsseV002";
    questions.push(("as it is", log(&|_| ()), None));
    let other = |path: &'static str| {
        move |body: &mut Value| *body.pointer_mut(&format!("{spec}{path}")).unwrap() = to_base64(&[7; 32]).into()
    };
    questions.push(("another payload", log(&other("/payloadHash/digest")), Some("log.entry")));
    questions.push(("another signature", log(&other("/signatures/0/content")), Some("log.entry")));
    let stranger = OpensslKey::new(KINDS[0].options);
    let others_key = |body: &mut Value| {
        body["spec"]["dsseV002"]["signatures"][0]["verifier"]["publicKey"]["rawBytes"] =
            to_base64(&stranger.spki).into();
    };
    questions.push(("another key", log(&others_key), Some("log.entry")));
    let two = |body: &mut Value| {
        let signatures = body["spec"]["dsseV002"]["signatures"].as_array_mut().unwrap();
        signatures.push(signatures[0].clone());
    };
    questions.push(("two signatures", log(&two), Some("log.entry")));
    let as_hashedrekord = |body: &mut Value| body["kind"] = "hashedrekord".into();
    questions.push(("another kind in the body", log(&as_hashedrekord), Some("log.entry")));
    for (name, asked, expected) in &questions {
        assert_eq!(bundles::verdict(asked, false).as_deref(), *expected, "{name}");
    }
    let mut unlogged = questions[0].1.clone();
    let mut changed: Value = serde_json::from_str(&unlogged.bundle).unwrap();
    changed["verificationMaterial"]["tlogEntries"][0]["inclusionProof"]["hashes"] = json!([]);
    unlogged.bundle = changed.to_string();
    assert_eq!(bundles::verdict(&unlogged, false).as_deref(), Some("log.inclusion"));
    changed["verificationMaterial"]["tlogEntries"][0].as_object_mut().unwrap().remove("inclusionProof");
    unlogged.bundle = changed.to_string();
    assert_eq!(bundles::verdict(&unlogged, false).as_deref(), Some("bundle.form"));
    // @sigstore/verify reads that kind, too; cosign 3.1.2 does not any more.
    for peer in crate::peers::ask_all(&[questions[0].1.clone()]) {
        let Some(answers) = peer.answers else { continue };
        let expected = match peer.name {
            "@sigstore/verify" => true,
            "cosign" => false,
            _ => continue,
        };
        assert_eq!(answers[0].is_none(), expected, "{}: {:?}", peer.name, answers[0]);
    }
}
