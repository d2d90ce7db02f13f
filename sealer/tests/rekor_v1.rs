//! Seals in a Rekor v1: a dsse 0.0.1 entry, a signed entry timestamp, a checkpoint by an ECDSA key, and an
//! index over all trees beside the one in the tree.

use crate::support::rekor_v1::RekorV1;
use crate::support::{NOW, SUBJECTS, World, failures, have, statement, with_policy};
use serde_json::{Value, json};
use symseal_seal::checks::id;
use symseal_seal::entry::timestamp_message;
use symseal_seal::{
    EntryKind, Expectation, LogEntry, SigstoreBundle, Trust, UtcSeconds, examine_seal, verify_entry, verify_seal,
};
use symseal_sealer::ArtifactKey;

const ENTRY: &str = "/verificationMaterial/tlogEntries/0";

struct Sealed {
    world: World,
    log: RekorV1,
    trust: Trust,
    seal: SigstoreBundle,
}

/// A seal at place 5 of a tree of 9, in a log whose earlier trees held 1,000 entries.
fn sealed() -> Sealed {
    let world = World::new(0);
    let mut log = RekorV1::new("rekor.example - 1193050959916656506", 1_000);
    for n in 0..5 {
        log.leaf(format!("earlier {n}").as_bytes());
    }
    let envelope = symseal_sealer::sign_statement(&statement("tool", "1.0"), &world.artifact).unwrap();
    let body = RekorV1::body(&envelope, &world.artifact);
    let index = log.leaf(&body);
    for n in 0..3 {
        log.leaf(format!("later {n}").as_bytes());
    }
    let entry = log.entry(&body, index, NOW);
    let seal = SigstoreBundle { hint: world.artifact.key_id().to_string(), envelope, entry };
    let trust = log.trust(&world);
    Sealed { world, log, trust, seal }
}

impl Sealed {
    #[track_caller]
    fn check(&self, seal: &[u8], expected: &[&str]) {
        let checks = verify_seal(seal, &SUBJECTS, &self.trust, &Expectation::default(), NOW);
        assert_eq!(failures(&checks), expected, "{checks:#?}");
    }

    fn entry(&self, change: impl FnOnce(&mut LogEntry)) -> Vec<u8> {
        let mut seal = self.seal.clone();
        change(&mut seal.entry);
        seal.to_json()
    }

    /// Another body in the same place of a tree, timestamped and proved.
    fn logged(&self, body: &[u8]) -> Vec<u8> {
        let mut log = RekorV1 { leaves: Vec::new(), ..self.log.clone() };
        let index = log.leaf(body);
        self.entry(|entry| *entry = log.entry(body, index, NOW))
    }
}

#[test]
fn a_seal_in_a_rekor_v1_holds_and_its_time_is_reported() {
    let sealed = sealed();
    let json = sealed.seal.to_json();
    assert_eq!(SigstoreBundle::parse(&json).unwrap(), sealed.seal);
    let found = examine_seal(&json, &SUBJECTS, &sealed.trust, &Expectation::default(), NOW);
    assert!(found.holds(), "{:#?}", found.checks);
    assert_eq!(found.facts.integrated_time, Some(NOW));
    assert_eq!(found.facts.log_index, Some(1_005));
    assert_eq!(found.facts.tree_size, Some(9));
    assert_eq!(found.facts.log_origin.as_deref(), Some("rekor.example - 1193050959916656506"));
    assert_eq!(found.facts.rekor_tile_ref.as_deref(), Some("rekor.example/api/v1/log/entries?logIndex=1005"));
    let proved =
        verify_entry(&sealed.seal.entry, &sealed.seal.envelope, sealed.world.artifact.public(), &sealed.log.identity());
    assert_eq!(proved.unwrap().size, 9);
}

#[test]
fn a_body_that_says_something_else_is_refused_field_by_field() {
    let sealed = sealed();
    let body: Value = serde_json::from_slice(&sealed.seal.entry.canonicalized_body).unwrap();
    sealed.check(&sealed.logged(&serde_json::to_vec(&body).unwrap()), &[]);
    let stranger = ArtifactKey::generate().unwrap();
    let other_key = symseal_seal::encoding::to_base64(stranger.public().to_pem().as_bytes());
    let signature = body["spec"]["signatures"][0].clone();
    for (pointer, value, named) in [
        ("/spec/payloadHash/value", json!("00".repeat(32)), "/spec/payloadHash"),
        ("/spec/payloadHash/algorithm", json!("sha512"), "/spec/payloadHash"),
        ("/spec/signatures", json!([]), "/spec/signatures"),
        ("/spec/signatures", json!([signature, signature]), "/spec/signatures"),
        ("/spec/signatures/0/signature", json!("AAAA"), "/spec/signatures"),
        ("/spec/signatures/0/verifier", json!(other_key), "/spec/signatures"),
        ("/apiVersion", json!("0.0.2"), "/apiVersion"),
        ("/kind", json!("intoto"), "/kind"),
        ("/spec/envelopeHash/algorithm", json!("sha512"), "other bytes or further fields"),
        ("/spec/envelopeHash/value", json!("x"), "envelopeHash"),
    ] {
        let mut changed = body.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        let seal = sealed.logged(&serde_json::to_vec(&changed).unwrap());
        sealed.check(&seal, &[id::LOG_ENTRY]);
        let checks = verify_seal(&seal, &SUBJECTS, &sealed.trust, &Expectation::default(), NOW);
        let check = checks.iter().find(|check| check.is_failed()).unwrap();
        assert!(check.to_string().contains(named), "{check}");
    }
    // The hash of the text that was submitted is not kept, so any is taken.
    let mut changed = body.clone();
    changed["spec"]["envelopeHash"]["value"] = json!("00".repeat(32));
    sealed.check(&sealed.logged(&serde_json::to_vec(&changed).unwrap()), &[]);
    let mut more = body.clone();
    more["spec"]["more"] = json!(1);
    sealed.check(&sealed.logged(&serde_json::to_vec(&more).unwrap()), &[id::LOG_ENTRY]);
    sealed.check(&sealed.logged(&serde_json::to_vec_pretty(&body).unwrap()), &[id::LOG_ENTRY]);
    sealed.check(&sealed.logged(b"not json"), &[id::LOG_ENTRY]);
}

#[test]
fn the_timestamp_covers_body_time_log_and_index() {
    let sealed = sealed();
    let with_time = |time| {
        sealed.entry(|entry| {
            let EntryKind::Dsse(signed) = &mut entry.kind else { panic!("no dsse entry") };
            signed.integrated_time = time;
        })
    };
    sealed.check(&with_time(UtcSeconds(NOW.0 + 1)), &[id::LOG_TIMESTAMP]);
    sealed.check(&sealed.entry(|entry| entry.log_index += 1), &[id::LOG_TIMESTAMP]);
    let forged = sealed.entry(|entry| {
        let EntryKind::Dsse(signed) = &mut entry.kind else { panic!("no dsse entry") };
        let message =
            timestamp_message(&entry.canonicalized_body, signed.integrated_time, entry.log_id, entry.log_index);
        signed.signature = sealed.world.artifact.sign(&message);
    });
    sealed.check(&forged, &[id::LOG_TIMESTAMP]);
    // Signed by the log, but at a time at which its key did not count yet.
    let early = sealed.entry(|entry| *entry = sealed.log.entry(&entry.canonicalized_body, 5, UtcSeconds(NOW.0 - 1)));
    sealed.check(&early, &[id::LOG_TIMESTAMP]);
    let facts = examine_seal(&early, &SUBJECTS, &sealed.trust, &Expectation::default(), NOW).facts;
    assert_eq!(facts.integrated_time, None);
}

#[test]
fn the_proof_counts_within_the_tree() {
    let sealed = sealed();
    sealed.check(&sealed.entry(|entry| entry.proof_index = entry.log_index), &[id::LOG_INCLUSION]);
    sealed.check(&sealed.entry(|entry| entry.proof_index = 4), &[id::LOG_INCLUSION]);
    sealed.check(&sealed.entry(|entry| entry.proof_root = [0; 32]), &[id::LOG_INCLUSION]);
    sealed.check(&sealed.entry(|entry| entry.proof_size = 10), &[id::LOG_INCLUSION]);
    sealed.check(&sealed.entry(|entry| entry.hashes.truncate(2)), &[id::LOG_INCLUSION]);
}

#[test]
fn a_checkpoint_of_another_tree_of_the_same_log_is_refused() {
    let sealed = sealed();
    let other = RekorV1 { origin: "rekor.example - 7".parse().unwrap(), ..sealed.log.clone() };
    let moved = sealed.entry(|entry| *entry = other.entry(&entry.canonicalized_body, 5, NOW));
    sealed.check(&moved, &[id::LOG_ORIGIN]);
    // Where the policy names both trees, each counts, though they share key and id.
    let trust = with_policy(
        &sealed.world,
        |policy| {
            policy.logs = vec![sealed.log.policy(), other.policy()];
        },
        &[sealed.log.identity(), other.identity()],
    )
    .unwrap();
    for seal in [sealed.seal.to_json(), moved] {
        let checks = verify_seal(&seal, &SUBJECTS, &trust, &Expectation::default(), NOW);
        assert_eq!(failures(&checks), [""; 0]);
    }
}

#[test]
fn the_kind_of_an_entry_must_be_that_of_its_log() {
    let sealed = sealed();
    // A v1 entry under the id and origin of an embedded log.
    let checks = verify_seal(&sealed.seal.to_json(), &SUBJECTS, &sealed.world.trust, &Expectation::default(), NOW);
    assert!(failures(&checks).contains(&id::LOG_KIND), "{checks:#?}");
    // An embedded log's seal where a v1 is expected.
    let found = failures(&verify_seal(&sealed.world.seal, &SUBJECTS, &sealed.trust, &Expectation::default(), NOW));
    assert!(found.contains(&id::LOG_KIND), "{found:?}");
    let mut json: Value = serde_json::from_slice(&sealed.seal.to_json()).unwrap();
    for (pointer, field) in [(ENTRY, "integratedTime"), (ENTRY, "inclusionPromise")] {
        let mut without = json.clone();
        without.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove(field);
        sealed.check(&serde_json::to_vec(&without).unwrap(), &[id::SEAL_STRUCTURE]);
    }
    json.pointer_mut(ENTRY).unwrap()["kindVersion"] = json!({"kind": "intoto", "version": "0.0.2"});
    sealed.check(&serde_json::to_vec(&json).unwrap(), &[id::SEAL_STRUCTURE]);
}

#[test]
fn an_ed25519_key_is_no_key_of_a_rekor_v1() {
    let world = World::new(0);
    let identity = world.log_key.identity(&"rekor.example - 1".parse().unwrap()).unwrap();
    let error = with_policy(
        &world,
        |policy| {
            policy.logs[0].origin = identity.origin.to_string();
            policy.logs[0].log_id = identity.id().to_string();
        },
        std::slice::from_ref(&identity),
    );
    let error = error.map(|_| ()).unwrap_err();
    assert!(error.contains("an ECDSA P-256 key of the Rekor v1"), "{error}");
}

#[test]
fn openssl_verifies_the_timestamp_and_the_checkpoint() {
    if !have("openssl", "version") {
        return;
    }
    let sealed = sealed();
    let EntryKind::Dsse(signed) = &sealed.seal.entry.kind else { panic!("no dsse entry") };
    // The message, written down here as the documents of Rekor have it.
    let message = format!(
        r#"{{"body":"{}","integratedTime":{},"logID":"{}","logIndex":1005}}"#,
        symseal_seal::encoding::to_base64(&sealed.seal.entry.canonicalized_body),
        NOW.0,
        symseal_seal::encoding::to_hex(&symseal_seal::encoding::sha256(sealed.log.key.spki())),
    );
    let (text, line) = sealed.seal.entry.checkpoint.rsplit_once("\n\n").unwrap();
    let encoded = line.trim_end().rsplit(' ').next().unwrap();
    let with_hint = symseal_seal::encoding::from_base64(encoded).unwrap();
    let directory = sealed.world.directory.path();
    std::fs::write(directory.join("pub.pem"), sealed.log.key.public().to_pem()).unwrap();
    for (message, signature) in
        [(message.into_bytes(), signed.signature.as_slice()), (format!("{text}\n").into_bytes(), &with_hint[4..])]
    {
        std::fs::write(directory.join("message"), &message).unwrap();
        std::fs::write(directory.join("signature"), signature).unwrap();
        let output = std::process::Command::new("openssl")
            .current_dir(directory)
            .args(["dgst", "-sha256", "-verify", "pub.pem", "-signature", "signature", "message"])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "Verified OK");
    }
    // The hint of an ECDSA key has no name in it.
    let spki = symseal_seal::encoding::sha256(sealed.log.key.spki());
    assert_eq!(with_hint[..4], spki[..4]);
}
