//! Mutants of a trust directory, and seals that a policy does not take. Other verifiers have no such policy.

use serde_json::Value;
use symseal_seal::checks::id;
use symseal_seal::note::{NoteSignature, SignedNote};
use symseal_seal::trust::policy::{
    LogPlaceDocument, PolicyDocument, PolicyKeyDocument, RevocationDocument, WitnessDocument,
};
use symseal_seal::trust::{POLICY_FILE, ROOT_FILE, TRUSTED_ROOT_FILE};
use symseal_seal::{Envelope, Expectation, Seen, SigstoreBundle, Trust, UtcSeconds, Witness, examine_seal};
use symseal_sealer::{LogKey, RootChange, TrustChange};

use crate::mutants::{Mutants, Question, flip, leaves, readable};
use crate::support::{NOW, World, with_policy};

pub fn add(mutants: &mut Mutants<'_>, other: &World) {
    files(mutants, other);
    policies(mutants);
    witnesses(mutants);
}

fn load(files: &[Vec<u8>; 3]) -> Vec<&'static str> {
    Trust::load_parts(&files[0], &files[1], &files[2])
        .map(|_| ())
        .err()
        .map(|error| error.check_id())
        .into_iter()
        .collect()
}

fn files(mutants: &mut Mutants<'_>, other: &World) {
    let world = mutants.world;
    assert_eq!(load(&world.trust_files), [""; 0]);
    let with = |which: usize, file: Vec<u8>| {
        let mut files = world.trust_files.clone();
        files[which] = file;
        load(&files)
    };
    let root: Value = serde_json::from_slice(&world.trust_files[0]).unwrap();
    for leaf in leaves(&root) {
        let mut changed = root.clone();
        flip(changed.pointer_mut(&leaf).unwrap());
        let found = with(0, changed.to_string().into_bytes());
        mutants.ours("root.json", readable(&leaf), id::TRUST_ROOT, found);
    }
    // With all that a policy can say.
    let witness = witness("w1.example").0;
    let mut document = PolicyDocument::read_unverified(&world.trust_files[1]).unwrap();
    document.require_consistency = true;
    document.keys[0].not_after = Some(NOW.plus_days(365));
    document.logs[0].not_after = Some(NOW.plus_days(365));
    document.logs[0].entries_before = Some(1000);
    document.logs[0].witnesses = vec![WitnessDocument { key: witness.to_string(), operator: "somebody else".into() }];
    document.revocations = vec![RevocationDocument {
        key_id: world.root.key_id().to_string(),
        reason: "stolen".into(),
        except_digests: vec![format!("sha256:{}", "11".repeat(32))],
        except_before: vec![LogPlaceDocument { origin: document.logs[0].origin.clone(), index: 9 }],
    }];
    let signature = world.root.sign(&document.signed_bytes());
    let file = document.to_file(&world.root.key_id().to_string(), &signature);
    assert_eq!(with(1, file.clone()), [""; 0]);
    let envelope = Envelope::parse(&file).unwrap();
    let policy: Value = serde_json::from_slice(&envelope.payload).unwrap();
    let unsigned = |payload: Vec<u8>| Envelope { payload, ..envelope.clone() }.to_json();
    for leaf in leaves(&policy) {
        let mut changed = policy.clone();
        flip(changed.pointer_mut(&leaf).unwrap());
        let found = with(1, unsigned(changed.to_string().into_bytes()));
        mutants.ours("policy", readable(&leaf), id::TRUST_POLICY, found);
    }
    let resigned = |payload: Vec<u8>| {
        let mut envelope = Envelope { payload, ..envelope.clone() };
        envelope.signature = world.root.sign(&envelope.pae());
        envelope.to_json()
    };
    let text = String::from_utf8(envelope.payload.clone()).unwrap();
    let twice = text.replacen("\"threshold\"", "\"threshold\":0,\"threshold\"", 1);
    mutants.ours("policy", "signed: a key twice", id::TRUST_POLICY, with(1, resigned(twice.into_bytes())));
    mutants.ours("policy", "signature: a bit", id::TRUST_POLICY, {
        let mut changed = envelope.clone();
        changed.signature[20] ^= 1;
        with(1, changed.to_json())
    });
    mutants.ours("policy", "of another root", id::TRUST_POLICY, with(1, other.trust_files[1].clone()));
    let middle = world.trust_files[1].len() / 2;
    mutants.ours("policy", "cut in the middle", id::TRUST_POLICY, with(1, world.trust_files[1][..middle].to_vec()));
    mutants.ours("root.json", "of another trust directory", id::TRUST_POLICY, with(0, other.trust_files[0].clone()));
    let root_text = String::from_utf8(world.trust_files[0].clone()).unwrap();
    let twice = root_text.replacen("\"version\"", "\"version\":1,\"version\"", 1);
    mutants.ours("root.json", "a key twice", id::TRUST_ROOT, with(0, twice.into_bytes()));
    mutants.ours("trusted_root.json", "another log's", id::TRUST_LOGS, with(2, other.trust_files[2].clone()));
    let mut logs: Value = serde_json::from_slice(&world.trust_files[2]).unwrap();
    let theirs: Value = serde_json::from_slice(&other.trust_files[2]).unwrap();
    logs["tlogs"][0]["publicKey"]["rawBytes"] = theirs["tlogs"][0]["publicKey"]["rawBytes"].clone();
    mutants.ours("trusted_root.json", "another log's key", id::TRUST_LOGS, with(2, logs.to_string().into_bytes()));
}

fn policies(mutants: &mut Mutants<'_>) {
    let world = mutants.world;
    let identity = std::slice::from_ref(world.log.identity());
    let trust = |change: &dyn Fn(&mut PolicyDocument)| with_policy(world, |policy| change(policy), identity).unwrap();
    let judge = |trust: &Trust, seals: &[Vec<u8>]| Question { trust, ..Question::of(world) }.failures(seals);
    let good = std::slice::from_ref(&world.seal);
    let part = "policy";

    let late = Question { at: NOW.plus_days(366), ..Question::of(world) };
    mutants.ours(part, "expired", id::TRUST_POLICY, late.failures(good));
    let newer = trust(&|policy| policy.version = 2);
    let mut seen = Seen::default();
    let question = Question::of(world);
    let shown = examine_seal(&world.seal, &question.subjects, &newer, &question.expectation, NOW).checkpoints;
    seen.record(&newer, &shown, &[]);
    let expectation = Expectation { seen: Some(&seen), ..question.expectation };
    mutants.ours(
        part,
        "older than the one seen last",
        id::TRUST_POLICY_VERSION,
        Question { expectation, ..question }.failures(good),
    );
    let mut seen = Seen::default();
    seen.record(&rotated(world), &[], &[]);
    let expectation = Expectation { seen: Some(&seen), ..Question::of(world).expectation };
    let found = Question { expectation, ..Question::of(world) }.failures(good);
    mutants.ours("root.json", "older than the one seen last", id::TRUST_ROOT_CHAIN, found);
    let second = symseal_sealer::ArtifactKey::generate().unwrap();
    let two = trust(&|policy| {
        policy.threshold = 2;
        policy.keys.push(PolicyKeyDocument::new(second.public(), &["tool".into()], Some(NOW)));
    });
    let twice = [world.seal.clone(), world.seal.clone()];
    mutants.ours(part, "one key twice for a threshold of 2", id::TRUST_THRESHOLD, judge(&two, &twice));

    let origin = world.log.identity().origin.to_string();
    let index = SigstoreBundle::parse(&world.seal).unwrap().entry.log_index;
    let stolen = trust(&|policy| {
        policy.revocations = vec![RevocationDocument {
            key_id: policy.keys[0].key_id.clone(),
            reason: "stolen".into(),
            except_digests: Vec::new(),
            except_before: vec![LogPlaceDocument { origin: origin.clone(), index }],
        }];
    });
    let mut moved = SigstoreBundle::parse(&world.seal).unwrap();
    (moved.entry.log_index, moved.entry.proof_index) = (0, 0);
    let moved = moved.to_json();
    mutants.unchanged(
        part,
        "a stolen key, its entry back-dated",
        id::TRUST_REVOCATION,
        judge(&stolen, std::slice::from_ref(&moved)),
        &moved,
    );
    mutants.unchanged(part, "a stolen key, a later entry", id::TRUST_REVOCATION, judge(&stolen, good), &world.seal);
    let closed = trust(&|policy| policy.logs[0].entries_before = Some(index));
    mutants.unchanged(part, "an entry after the log was closed", id::LOG_INDEX, judge(&closed, good), &world.seal);
    let ended = trust(&|policy| policy.keys[0].not_after = Some(UtcSeconds(NOW.0 - 1)));
    mutants.unchanged(part, "a key after its time", id::TRUST_KEY_VALIDITY, judge(&ended, good), &world.seal);
    let ended = trust(&|policy| policy.logs[0].not_after = Some(UtcSeconds(NOW.0 - 1)));
    mutants.unchanged(part, "a log after its time", id::LOG_KEY_VALIDITY, judge(&ended, good), &world.seal);
    let elsewhere = trust(&|policy| policy.keys[0].names = vec!["another".into()]);
    mutants.unchanged(part, "a key that may not sign this name", id::TRUST_KEY, judge(&elsewhere, good), &world.seal);
}

/// The world's trust directory after a rotation of its root.
fn rotated(world: &World) -> Trust {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in [ROOT_FILE, POLICY_FILE, TRUSTED_ROOT_FILE].into_iter().zip(&world.trust_files) {
        std::fs::write(directory.path().join(name), bytes).unwrap();
    }
    let mut change = TrustChange::open(directory.path()).unwrap();
    change.rotate(&RootChange { keys: vec![world.root.public().clone()], threshold: 1, expires: None });
    change.sign(std::slice::from_ref(&world.root)).unwrap()
}

/// A witness and its key.
fn witness(name: &str) -> (Witness, LogKey) {
    let key = LogKey::generate().unwrap();
    let identity = key.identity(&"w.example".parse().unwrap()).unwrap();
    let public: [u8; 32] = identity.key.spki()[12..].try_into().unwrap();
    (Witness::new(name, &public).unwrap(), key)
}

fn witnesses(mutants: &mut Mutants<'_>) {
    let world = mutants.world;
    let ((one, one_key), (two, _)) = (witness("w1.example"), witness("w2.example"));
    let document = |witness: &Witness| WitnessDocument { key: witness.to_string(), operator: "somebody else".into() };
    let trust = with_policy(
        world,
        |policy| {
            policy.logs[0].witnesses = vec![document(&one), document(&two)];
            policy.logs[0].witness_quorum = 2;
        },
        std::slice::from_ref(world.log.identity()),
    )
    .unwrap();
    let cosigned = |lines: &[(&Witness, &LogKey, i64)]| {
        let mut bundle = SigstoreBundle::parse(&world.seal).unwrap();
        let mut note = SignedNote::parse(&bundle.entry.checkpoint).unwrap();
        for (witness, key, time) in lines {
            let mut signature = u64::try_from(*time).unwrap().to_be_bytes().to_vec();
            signature.extend(key.sign(&Witness::message(UtcSeconds(*time), &note.text)));
            note.signatures.push(NoteSignature { name: witness.name().into(), hint: witness.hint(), signature });
        }
        bundle.entry.checkpoint = note.to_text();
        bundle.to_json()
    };
    for (name, seal) in [
        ("no witness of two", world.seal.clone()),
        ("one witness twice for two", cosigned(&[(&one, &one_key, NOW.0), (&one, &one_key, NOW.0 + 9)])),
        ("a cosignature by another's key", cosigned(&[(&one, &one_key, NOW.0), (&two, &one_key, NOW.0)])),
    ] {
        let found = Question { trust: &trust, ..Question::of(world) }.failures(std::slice::from_ref(&seal));
        mutants.unchanged("witnesses", name, id::LOG_WITNESSES, found, &seal);
    }
}
