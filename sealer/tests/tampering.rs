//! Every changed byte is refused, by the check that is about it.

use crate::support::{NOW, SUBJECTS, World, failures};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use symseal_seal::checks::id;
use symseal_seal::{Expectation, Trust, verify_seal};

/// What a flipped bit in each byte of the seal's file fails. The bits reach digits and letters alike.
#[test]
fn no_byte_of_a_seal_can_be_changed() {
    let world = World::new(3);
    for position in 0..world.seal.len() {
        for bit in [0x01, 0x20] {
            let mut seal = world.seal.clone();
            seal[position] ^= bit;
            let checks = world.examine(&seal).checks;
            assert!(!failures(&checks).is_empty(), "byte {position} bit {bit:#x} of the seal");
        }
    }
}

#[test]
fn no_byte_of_root_and_policy_can_be_changed() {
    let world = World::new(0);
    for (which, expected) in [(0, id::TRUST_ROOT), (1, id::TRUST_POLICY)] {
        // The line feed at the end is white space, and may be any.
        for position in 0..world.trust_files[which].len() - 1 {
            let mut files = world.trust_files.clone();
            files[which][position] ^= 0x01;
            let error = Trust::load_parts(&files[0], &files[1], &files[2]).map(|_| ()).unwrap_err();
            assert_eq!(error.check_id(), expected, "byte {position} of file {which}: {error}");
            assert_eq!(error.to_check().id, expected);
        }
    }
}

/// `trusted_root.json` is not signed: a change either fails or changes nothing that a policy pins.
#[test]
fn a_changed_trusted_root_never_makes_another_key_count() {
    let world = World::new(0);
    for position in 0..world.trust_files[2].len() {
        let mut files = world.trust_files.clone();
        files[2][position] ^= 0x01;
        match Trust::load_parts(&files[0], &files[1], &files[2]) {
            Err(error) => assert_eq!(error.check_id(), id::TRUST_LOGS),
            Ok(trust) => assert_eq!(trust.policy.logs[0].identity, world.trust.policy.logs[0].identity),
        }
    }
}

/// Changes a base64 field by flipping a bit in each of its decoded bytes.
#[track_caller]
fn flip_each_byte(world: &World, pointer: &str, expected: &[&str]) {
    let seal = world.seal_json();
    let bytes = STANDARD.decode(seal.pointer(pointer).unwrap().as_str().unwrap()).unwrap();
    for position in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[position] ^= 0x01;
        let mut seal = seal.clone();
        *seal.pointer_mut(pointer).unwrap() = STANDARD.encode(&changed).into();
        let found = world.failures(&seal);
        for id in expected {
            assert!(found.contains(id), "{pointer} byte {position}: expected {id}, found {found:?}");
        }
    }
}

const ENTRY: &str = "/verificationMaterial/tlogEntries/0";

#[test]
fn a_changed_field_fails_the_check_that_is_about_it() {
    let world = World::new(4);
    flip_each_byte(&world, "/dsseEnvelope/payload", &[id::DSSE_SIGNATURE, id::LOG_ENTRY]);
    flip_each_byte(&world, "/dsseEnvelope/signatures/0/sig", &[id::DSSE_SIGNATURE, id::LOG_ENTRY]);
    flip_each_byte(&world, &format!("{ENTRY}/canonicalizedBody"), &[id::LOG_ENTRY, id::LOG_INCLUSION]);
    flip_each_byte(&world, &format!("{ENTRY}/logId/keyId"), &[id::LOG_ID]);
    flip_each_byte(&world, &format!("{ENTRY}/inclusionProof/rootHash"), &[id::LOG_INCLUSION]);
    flip_each_byte(&world, &format!("{ENTRY}/inclusionProof/hashes/0"), &[id::LOG_INCLUSION]);
}

#[test]
fn a_changed_checkpoint_fails_log_checkpoint() {
    let world = World::new(4);
    let pointer = format!("{ENTRY}/inclusionProof/checkpoint/envelope");
    let seal = world.seal_json();
    let note = seal.pointer(&pointer).unwrap().as_str().unwrap().to_owned();
    for (position, character) in note.char_indices() {
        let other = if character == 'A' { 'B' } else { 'A' };
        let mut changed = note.clone();
        changed.replace_range(position..position + character.len_utf8(), &other.to_string());
        let mut seal = seal.clone();
        *seal.pointer_mut(&pointer).unwrap() = changed.into();
        let found = world.failures(&seal);
        assert!(found.contains(&id::LOG_CHECKPOINT), "character {position} of the checkpoint: {found:?}");
    }
}

#[test]
fn each_value_of_a_seal_is_held_to_its_meaning() {
    let world = World::new(4);
    let set = |pointer: &str, value: Value, expected: &[&str]| {
        let mut seal = world.seal_json();
        *seal.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
        assert_eq!(world.failures(&seal), expected, "{pointer}");
    };
    let entry = |field: &str| format!("{ENTRY}{field}");
    set("/mediaType", "application/vnd.dev.sigstore.bundle+json;version=0.2".into(), &[id::SEAL_STRUCTURE]);
    set("/dsseEnvelope/payloadType", "text/plain".into(), &[id::DSSE_PAYLOAD_TYPE, id::DSSE_SIGNATURE, id::LOG_ENTRY]);
    set("/verificationMaterial/publicKey/hint", "".into(), &[id::TRUST_KEY]);
    set("/dsseEnvelope/signatures", json!([]), &[id::SEAL_STRUCTURE]);
    set("/verificationMaterial/tlogEntries", json!([]), &[id::SEAL_STRUCTURE]);
    set(&entry("/kindVersion/kind"), "dsse".into(), &[id::SEAL_STRUCTURE]);
    set(&entry("/kindVersion/version"), "0.0.1".into(), &[id::SEAL_STRUCTURE]);
    set(&entry("/logIndex"), "3".into(), &[id::LOG_INCLUSION]);
    set(&entry("/logIndex"), "-4".into(), &[id::SEAL_STRUCTURE]);
    set(&entry("/logIndex"), "04".into(), &[id::SEAL_STRUCTURE]);
    set(&entry("/logIndex"), json!(4), &[]);
    set(&entry("/inclusionProof/hashes"), json!([]), &[id::LOG_INCLUSION]);
    set(&entry("/inclusionProof/hashes/0"), "AA==".into(), &[id::SEAL_STRUCTURE]);
    set(&entry("/inclusionProof/hashes"), json!(vec!["A".repeat(43) + "="; 65]), &[id::SEAL_STRUCTURE]);
    set(&entry("/inclusionProof/checkpoint/envelope"), "".into(), &[id::LOG_CHECKPOINT]);
    set(&entry("/canonicalizedBody"), "".into(), &[id::LOG_ENTRY, id::LOG_INCLUSION]);
}

#[test]
fn a_seal_cut_short_is_refused() {
    let world = World::new(1);
    for length in 0..world.seal.len() {
        let checks = verify_seal(&world.seal[..length], &SUBJECTS, &world.trust, &Expectation::default(), NOW);
        assert_eq!(failures(&checks), [id::SEAL_STRUCTURE]);
    }
}
