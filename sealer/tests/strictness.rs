//! What lenient Sigstore verifiers let through is refused here: each case was accepted by another
//! implementation in use.

use crate::support::World;
use serde_json::{Value, json};
use symseal_seal::checks::id;
use symseal_seal::encoding::to_base64;
use symseal_seal::keys::LogId;
use symseal_seal::note::{NoteSignature, SignedNote};
use symseal_seal::{Hash, Origin};

const ENTRY: &str = "/verificationMaterial/tlogEntries/0";
const CHECKPOINT: &str = "/verificationMaterial/tlogEntries/0/inclusionProof/checkpoint/envelope";

/// Signs any text as the world's log would, so that only its form can be wrong.
fn signed(world: &World, text: &str) -> String {
    let identity = world.log.identity();
    let signature = NoteSignature {
        name: identity.origin.to_string(),
        hint: identity.id().hint(),
        signature: world.log_key.sign(text.as_bytes()),
    };
    SignedNote { text: text.to_owned(), signatures: vec![signature] }.to_text()
}

fn root(world: &World) -> String {
    to_base64(&world.log.root())
}

#[track_caller]
fn check_checkpoint(world: &World, note: &str, expected: &[&str]) {
    let mut seal = world.seal_json();
    *seal.pointer_mut(CHECKPOINT).unwrap() = note.into();
    assert_eq!(world.failures(&seal), expected, "{note:?}");
}

#[test]
fn a_checkpoint_of_another_origin_by_the_same_key_is_refused() {
    let world = World::new(4);
    let origin: Origin = "log-other.symseal.internal".parse().unwrap();
    let text = format!("{origin}\n5\n{}\n", root(&world));
    // Signed under the log's own name.
    check_checkpoint(&world, &signed(&world, &text), &[id::LOG_ORIGIN]);
    // Signed under the other name, with the hint that goes with it.
    let other = world.log_key.identity(&origin).unwrap();
    let signature = world.log_key.sign(text.as_bytes());
    let line = NoteSignature { name: origin.to_string(), hint: other.id().hint(), signature };
    let note = SignedNote { text, signatures: vec![line] }.to_text();
    check_checkpoint(&world, &note, &[id::LOG_ORIGIN, id::LOG_CHECKPOINT]);
}

#[test]
fn a_signature_name_that_is_not_the_origin_is_refused() {
    let world = World::new(4);
    let note = world.log.checkpoint().replace("\u{2014} log-", "\u{2014} gol-");
    check_checkpoint(&world, &note, &[id::LOG_ORIGIN, id::LOG_CHECKPOINT]);
}

#[test]
fn a_log_id_other_than_the_pinned_one_is_refused() {
    let world = World::new(4);
    for other in [[0; 32], [0xFF; 32]] {
        let mut seal = world.seal_json();
        *seal.pointer_mut(&format!("{ENTRY}/logId/keyId")).unwrap() = to_base64(&other).into();
        assert_eq!(world.failures(&seal), [id::LOG_ID]);
    }
    // Also the truncated form that older clients knew.
    let mut seal = world.seal_json();
    *seal.pointer_mut(&format!("{ENTRY}/logId/keyId")).unwrap() = to_base64(&world.log.id().hint()).into();
    assert_eq!(world.failures(&seal), [id::SEAL_STRUCTURE]);
}

#[test]
fn a_key_id_other_than_the_hint_is_refused() {
    let world = World::new(0);
    let with = |keyid: &str| {
        let mut seal = world.seal_json();
        seal.pointer_mut("/dsseEnvelope/signatures/0").unwrap()["keyid"] = keyid.into();
        world.failures(&seal)
    };
    assert_eq!(with(&world.root.key_id().to_string()), [id::DSSE_KEYID]);
    assert_eq!(with("x"), [id::DSSE_KEYID]);
    // None, or the hint once more, say the same.
    assert_eq!(with(""), [""; 0]);
    assert_eq!(with(&world.artifact.key_id().to_string()), [""; 0]);
}

#[test]
fn a_checkpoint_is_parsed_strictly_even_where_its_signature_holds() {
    let world = World::new(4);
    let origin = world.log.identity().origin.clone();
    let root = root(&world);
    // As it should be; extension lines are allowed.
    check_checkpoint(&world, &signed(&world, &format!("{origin}\n5\n{root}\n")), &[]);
    check_checkpoint(&world, &signed(&world, &format!("{origin}\n5\n{root}\nextension 1\n")), &[]);
    for text in [
        format!("{origin}\n+5\n{root}\n"),
        format!("{origin}\n05\n{root}\n"),
        format!("{origin}\n 5\n{root}\n"),
        format!("{origin}\n5 \n{root}\n"),
        format!("{origin}\n0x5\n{root}\n"),
        format!("{origin}\n5\n{root} \n"),
        format!("{origin}\n5\n{}\n", root.trim_end_matches('=')),
        format!("{origin}\n5\n{}\n", &root[4..]),
        format!("{origin}\n5\n"),
        format!("{origin}\n5\n{root}\n\nextension\n"),
        format!("\n{origin}\n5\n{root}\n"),
        format!("{origin}\r\n5\r\n{root}\r\n"),
        format!("{origin}\n5\n{root}\next\u{1}ension\n"),
    ] {
        check_checkpoint(&world, &signed(&world, &text), &[id::LOG_CHECKPOINT]);
    }
    // A blank line before the signed part: readers that split at the first one see other text.
    let note = signed(&world, &format!("{origin}\n5\n{root}\n"));
    check_checkpoint(&world, &format!("{origin}\n9\n{root}\n\n{note}"), &[id::LOG_CHECKPOINT]);
    check_checkpoint(&world, &format!("{note}\n"), &[id::LOG_CHECKPOINT]);
    check_checkpoint(&world, note.trim_end(), &[id::LOG_CHECKPOINT]);
}

#[test]
fn a_known_key_s_signature_must_hold_and_unknown_signers_are_ignored() {
    let world = World::new(4);
    let good = SignedNote::parse(world.log.checkpoint()).unwrap();
    let own = good.signatures[0].clone();
    let with = |signatures: Vec<NoteSignature>| SignedNote { text: good.text.clone(), signatures }.to_text();
    let stranger = NoteSignature { name: "witness.example".into(), hint: [1, 2, 3, 4], signature: vec![0; 72] };
    check_checkpoint(&world, &with(vec![stranger.clone(), own.clone()]), &[]);
    let same_name = NoteSignature { hint: [9; 4], ..own.clone() };
    check_checkpoint(&world, &with(vec![same_name, own.clone()]), &[]);
    let bad = NoteSignature { signature: vec![0; 64], ..own.clone() };
    check_checkpoint(&world, &with(vec![own.clone(), bad.clone()]), &[id::LOG_CHECKPOINT]);
    check_checkpoint(&world, &with(vec![bad]), &[id::LOG_CHECKPOINT]);
    check_checkpoint(&world, &with(vec![stranger]), &[id::LOG_ORIGIN, id::LOG_CHECKPOINT]);
}

#[test]
fn the_proof_s_copies_of_size_index_and_root_must_agree() {
    let world = World::new(4);
    for (field, value) in [
        ("treeSize", json!("6")),
        ("treeSize", json!("4")),
        ("logIndex", json!("3")),
        ("rootHash", json!(to_base64(&[0; 32]))),
    ] {
        let mut seal = world.seal_json();
        *seal.pointer_mut(&format!("{ENTRY}/inclusionProof/{field}")).unwrap() = value;
        assert_eq!(world.failures(&seal), [id::LOG_INCLUSION], "{field}");
    }
}

#[test]
fn a_proof_with_more_or_fewer_hashes_is_refused() {
    let world = World::new(4);
    let pointer = format!("{ENTRY}/inclusionProof/hashes");
    let hashes = world.seal_json().pointer(&pointer).unwrap().as_array().unwrap().clone();
    let mut longer = hashes.clone();
    longer.push(hashes[0].clone());
    for other in [longer, Vec::new()] {
        let mut seal = world.seal_json();
        *seal.pointer_mut(&pointer).unwrap() = Value::Array(other);
        assert_eq!(world.failures(&seal), [id::LOG_INCLUSION]);
    }
}

#[test]
fn an_integrated_time_is_neither_used_nor_a_reason_to_refuse() {
    let world = World::new(0);
    let mut seal = world.seal_json();
    seal.pointer_mut(ENTRY).unwrap()["integratedTime"] = "9999999999".into();
    assert_eq!(world.failures(&seal), [""; 0]);
}

#[test]
fn what_no_seal_has_is_refused() {
    let world = World::new(0);
    let with = |pointer: &str, field: &str, value: Value| {
        let mut seal = world.seal_json();
        seal.pointer_mut(pointer).unwrap()[field] = value;
        world.failures(&seal)
    };
    let material = "/verificationMaterial";
    for (pointer, field) in [
        ("", "messageSignature"),
        (material, "certificate"),
        (material, "x509CertificateChain"),
        (material, "timestampVerificationData"),
        (ENTRY, "inclusionPromise"),
        ("/dsseEnvelope/signatures/0", "cert"),
    ] {
        assert_eq!(with(pointer, field, json!({})), [id::SEAL_STRUCTURE], "{field}");
    }
    let twice = vec![world.seal_json().pointer(ENTRY).unwrap().clone(); 2];
    assert_eq!(with(material, "tlogEntries", json!(twice)), [id::SEAL_STRUCTURE]);
    let signature = world.seal_json()["dsseEnvelope"]["signatures"][0].clone();
    assert_eq!(with("/dsseEnvelope", "signatures", json!([signature, signature])), [id::SEAL_STRUCTURE]);
}

#[test]
fn a_body_with_the_same_meaning_in_other_bytes_is_refused() {
    let mut world = World::new(0);
    let seal = symseal_seal::SigstoreBundle::parse(&world.seal).unwrap();
    let body: Value = serde_json::from_slice(&seal.entry.canonicalized_body).unwrap();
    // Logged and proved, but pretty-printed.
    let pretty = serde_json::to_vec_pretty(&body).unwrap();
    let appended = world.log.append(&pretty).unwrap();
    let hashes: Vec<String> = appended.proof.iter().map(|hash: &Hash| to_base64(hash)).collect();
    let mut seal = world.seal_json();
    let entry = seal.pointer_mut(ENTRY).unwrap();
    entry["canonicalizedBody"] = to_base64(&pretty).into();
    entry["logIndex"] = appended.index.to_string().into();
    entry["inclusionProof"] = json!({
        "logIndex": appended.index.to_string(), "treeSize": appended.size.to_string(),
        "rootHash": to_base64(&appended.root), "hashes": hashes, "checkpoint": {"envelope": appended.checkpoint},
    });
    assert_eq!(world.failures(&seal), [id::LOG_ENTRY]);
}

#[test]
fn an_older_checkpoint_of_the_log_still_holds_for_its_entry() {
    // A log that grew after the seal was made does not touch it.
    let mut world = World::new(2);
    for n in 0..10 {
        world.log.append(format!("later {n}").as_bytes()).unwrap();
    }
    assert_eq!(world.failures(&world.seal_json()), [""; 0]);
}

#[test]
fn log_ids_are_untruncated_key_hashes() {
    let world = World::new(0);
    let identity = world.log.identity();
    let spki = identity.key.spki();
    let public: [u8; 32] = spki[12..].try_into().unwrap();
    assert_eq!(LogId::of(identity.origin.as_str(), &public), identity.id());
    assert_ne!(LogId::of("other.example", &public), identity.id());
}
