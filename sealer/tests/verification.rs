//! A seal that was made here is verified, and every question that a verifier can ask is answered.

use crate::support;
use crate::support::{INDEX, MODULES, NOW, SUBJECTS, World, failures, statement, status};
use symseal_seal::checks::id;
use symseal_seal::trust::policy::{PolicyDocument, PolicyKeyDocument, PolicyLogDocument};
use symseal_seal::trust::{RootDocument, trusted_root};
use symseal_seal::{
    CATALOGUE, CheckGroup, CheckStatus, Envelope, Expectation, PREDICATE_TYPE, Parts, SubjectDigests, Trust,
    UtcSeconds, examine_seal, verify_seal,
};
use symseal_sealer::{ArtifactKey, load_trust, seal};

/// The release by name and version, which is a question of its own.
fn asked(parts: Parts) -> Expectation<'static> {
    Expectation { name: Some("tool"), version: Some("1.0"), parts, ..Expectation::default() }
}

#[test]
fn a_fresh_seal_passes_every_check() {
    for before in [0, 1, 5, 20] {
        let world = World::new(before);
        let verification = examine_seal(&world.seal, &SUBJECTS, &world.trust, &asked(Parts::default()), NOW);
        assert!(verification.holds(), "{:#?}", verification.checks);
        // Without a memory there is nothing to compare with.
        let unseen = [id::TRUST_ROOT_CHAIN, id::TRUST_POLICY_VERSION, id::LOG_FRESHNESS];
        for check in &verification.checks {
            let expected = if unseen.contains(&check.id) { CheckStatus::Skipped } else { CheckStatus::Passed };
            assert_eq!(check.status, expected, "{check}");
        }
        let facts = verification.facts;
        assert_eq!(facts.signer, Some(world.artifact.key_id()));
        assert_eq!(facts.log_index, Some(before as u64));
        let tile = before / 256;
        let reference = format!("{}/tile/entries/{tile:03}#{before}", world.log.identity().origin);
        assert_eq!(facts.rekor_tile_ref, Some(reference));
        assert_eq!(facts.release.unwrap().subject_name(), "tool@1.0");
    }
}

#[test]
fn every_check_of_the_catalogue_is_reported_once_and_in_order() {
    let world = World::new(0);
    let expected: Vec<&str> = CATALOGUE
        .iter()
        .filter(|info| info.group != CheckGroup::Content && info.id != id::SEAL_PRESENT)
        .map(|info| info.id)
        .collect();
    for seal in [world.seal.as_slice(), b"{}", b""] {
        let found: Vec<&str> = world.examine(seal).checks.iter().map(|check| check.id).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn what_is_no_seal_fails_its_structure_and_skips_the_rest() {
    let world = World::new(0);
    let checks = world.examine(b"not json").checks;
    assert_eq!(failures(&checks), [id::SEAL_STRUCTURE]);
    assert_eq!(status(&checks, id::TRUST_ROOT), CheckStatus::Passed);
    assert_eq!(status(&checks, id::DSSE_SIGNATURE), CheckStatus::Skipped);
}

#[test]
fn a_part_alone_skips_the_checks_of_the_other() {
    let world = World::new(2);
    for (parts, skipped) in [
        (Parts { dsse: true, rekor: false }, CheckGroup::Rekor),
        (Parts { dsse: false, rekor: true }, CheckGroup::Dsse),
    ] {
        let checks = verify_seal(&world.seal, &SUBJECTS, &world.trust, &asked(parts), NOW);
        for check in &checks {
            let group = CATALOGUE.iter().find(|info| info.id == check.id).unwrap().group;
            let unseen = [id::TRUST_ROOT_CHAIN, id::TRUST_POLICY_VERSION, id::LOG_FRESHNESS].contains(&check.id);
            // Whose signatures there are is known only where they were verified.
            let uncounted = check.id == id::TRUST_THRESHOLD && !parts.dsse;
            let expected =
                if group == skipped || unseen || uncounted { CheckStatus::Skipped } else { CheckStatus::Passed };
            assert_eq!(check.status, expected, "{check}");
        }
    }
}

#[test]
fn what_was_asked_for_is_compared() {
    let world = World::new(0);
    let ask = |name, version, subjects: SubjectDigests| {
        let expectation = Expectation { name, version, ..Expectation::default() };
        failures(&verify_seal(&world.seal, &subjects, &world.trust, &expectation, NOW))
    };
    assert_eq!(ask(Some("tool"), Some("1.0"), SUBJECTS), [""; 0]);
    assert_eq!(ask(Some("Tool"), Some("1.0"), SUBJECTS), [id::STATEMENT_NAME]);
    assert_eq!(ask(Some("tool"), Some("1.1"), SUBJECTS), [id::STATEMENT_VERSION]);
    let other = SubjectDigests { bundle: Some(INDEX), ..SUBJECTS };
    assert_eq!(ask(None, None, other), [id::STATEMENT_SUBJECT_BUNDLE]);
    let other = SubjectDigests { symbol_index: Some([0; 32]), ..SUBJECTS };
    assert_eq!(ask(None, None, other), [id::STATEMENT_SUBJECT_INDEX]);
}

#[test]
fn the_root_of_modules_is_compared_where_it_was_signed_and_computed() {
    let mut world = World::new(0);
    let mut statement = statement("tool", "1.0");
    statement.predicate.modules_root = Some("33".repeat(32));
    let signed = seal(&statement, &world.artifact, &mut world.log).unwrap();
    let ask = |modules_root| {
        let subjects = SubjectDigests { modules_root, ..SUBJECTS };
        failures(&verify_seal(&signed, &subjects, &world.trust, &Expectation::default(), NOW))
    };
    assert_eq!(ask(Some(MODULES)), [""; 0]);
    assert_eq!(ask(Some([0x34; 32])), [id::STATEMENT_MODULES]);
    assert_eq!(ask(None), [""; 0], "reported as signed");
}

#[test]
fn without_the_image_index_its_digest_is_reported_as_signed() {
    let world = World::new(0);
    let subjects = SubjectDigests { bundle: None, ..SUBJECTS };
    let found = examine_seal(&world.seal, &subjects, &world.trust, &Expectation::default(), NOW);
    assert!(found.holds());
    assert_eq!(status(&found.checks, id::STATEMENT_SUBJECT_BUNDLE), CheckStatus::Skipped);
    assert_eq!(found.facts.signed_bundle_sha256, Some("11".repeat(32)));
}

#[test]
fn a_key_may_sign_the_names_of_its_patterns_only() {
    let mut world = World::new(0);
    for (name, expected) in
        [("tool", &[][..]), ("tool-extra", &[]), ("other", &[id::TRUST_KEY]), ("Tool", &[id::TRUST_KEY])]
    {
        let sealed = seal(&statement(name, "1.0"), &world.artifact, &mut world.log).unwrap();
        assert_eq!(failures(&world.examine(&sealed).checks), expected, "{name}");
    }
}

#[test]
fn a_stranger_s_key_is_refused_by_name() {
    let mut world = World::new(0);
    let stranger = ArtifactKey::generate().unwrap();
    let sealed = seal(&statement("tool", "1.0"), &stranger, &mut world.log).unwrap();
    let verification = world.examine(&sealed);
    assert_eq!(failures(&verification.checks), [id::TRUST_KEY]);
    let check = verification.first_failure().unwrap();
    assert!(check.expected.contains(&world.artifact.key_id().to_string()), "{check}");
    assert!(check.found.contains(&stranger.key_id().to_string()), "{check}");
}

#[test]
fn a_seal_in_another_log_is_refused() {
    let (world, mut other) = (World::new(0), World::new(3));
    let sealed = seal(&world.statement, &world.artifact, &mut other.log).unwrap();
    let found = failures(&world.examine(&sealed).checks);
    assert_eq!(found, [id::LOG_ID, id::LOG_ORIGIN, id::LOG_CHECKPOINT]);
}

#[test]
fn times_are_compared_with_the_time_of_verification() {
    let world = World::new(0);
    let at = |time| failures(&verify_seal(&world.seal, &SUBJECTS, &world.trust, &Expectation::default(), time));
    assert_eq!(at(NOW), [""; 0]);
    assert_eq!(at(NOW.plus_days(365)), [""; 0]);
    assert_eq!(at(UtcSeconds(NOW.plus_days(365).0 + 1)), [id::TRUST_POLICY]);
    assert_eq!(at(UtcSeconds(NOW.0 - 1)), [id::TRUST_KEY_VALIDITY, id::LOG_KEY_VALIDITY]);
}

fn with_policy(world: &World, change: impl FnOnce(&mut PolicyDocument)) -> Result<Trust, String> {
    support::with_policy(world, change, std::slice::from_ref(world.log.identity()))
}

#[test]
fn a_policy_s_windows_are_honoured() {
    let world = World::new(0);
    let check = |change: fn(&mut PolicyDocument), expected: &[&str]| {
        let trust = with_policy(&world, change).unwrap();
        let checks = verify_seal(&world.seal, &SUBJECTS, &trust, &Expectation::default(), NOW);
        assert_eq!(failures(&checks), expected);
    };
    check(|_| {}, &[]);
    check(|policy| policy.keys[0].not_after = Some(UtcSeconds(NOW.0 - 1)), &[id::TRUST_KEY_VALIDITY]);
    check(|policy| policy.logs[0].not_after = Some(UtcSeconds(NOW.0 - 1)), &[id::LOG_KEY_VALIDITY]);
    check(|policy| policy.expires = Some(UtcSeconds(NOW.0 - 1)), &[id::TRUST_POLICY]);
    check(|policy| policy.expires = None, &[]);
    check(|policy| policy.keys[0].predicate_types = vec!["https://other".into()], &[id::TRUST_KEY]);
    check(|policy| policy.keys[0].names.clear(), &[id::TRUST_KEY]);
    check(|policy| policy.keys.clear(), &[id::TRUST_KEY]);
    check(|policy| policy.threshold = 2, &[id::TRUST_THRESHOLD]);
    check(|policy| policy.logs[0].entries_before = Some(0), &[id::LOG_INDEX]);
    check(|policy| policy.logs[0].entries_before = Some(1), &[]);
    check(|policy| policy.logs.clear(), &[id::LOG_ID]);
}

#[test]
fn a_policy_that_asks_for_more_than_can_be_checked_is_refused_by_name() {
    let world = World::new(0);
    let check = |change: fn(&mut PolicyDocument), expected: &str| {
        let error = with_policy(&world, change).map(|_| ()).unwrap_err();
        assert!(error.starts_with("trust.policy") || error.starts_with("trust.logs"), "{error}");
        assert!(error.contains(expected), "{error}");
    };
    check(|policy| policy.threshold = 0, "a threshold of at least 1, found 0");
    check(|policy| policy.logs[0].witness_quorum = 1, "a witness quorum of at most 0");
    check(|policy| policy.schema = "symseal.policy.v2".into(), "schema symseal.policy.v1");
    check(|policy| policy.version = 0, "a version of at least 1");
    check(|policy| policy.keys[0].algorithm = "ed25519".into(), "ecdsa-p256-sha256");
    check(|policy| policy.keys[0].key_id.insert(0, 'x'), "the hash of the key's SPKI");
    check(|policy| policy.keys[0].names = vec!["a*b".into()], "names that are exact or end in one *");
    check(|policy| policy.keys.push(policy.keys[0].clone()), "each key once");
    check(|policy| policy.logs.push(policy.logs[0].clone()), "each log once");
    check(|policy| policy.logs[0].origin = "localhost".into(), "bare, unique host name");
    check(|policy| policy.logs[0].origin = "other.example".into(), "a baseUrl with the host other.example");
    check(|policy| policy.logs[0].log_id = "AA==".into(), "32-byte log id");
    check(|policy| policy.logs[0].log_id.replace_range(0..4, "AAAA"), "the key of log");
}

#[test]
fn an_unknown_field_in_a_policy_is_refused() {
    let world = World::new(0);
    let mut envelope = Envelope::parse(&world.trust_files[1]).unwrap();
    let text = String::from_utf8(envelope.payload.clone()).unwrap();
    envelope.payload = text.replacen("{\"expires\"", "{\"deny\":[\"tool\"],\"expires\"", 1).into_bytes();
    envelope.signature = world.root.sign(&envelope.pae());
    let found = Trust::load_parts(&world.trust_files[0], &envelope.to_json(), &world.trust_files[2]);
    assert!(found.unwrap_err().to_string().contains("unknown field `deny`"));
}

#[test]
fn an_expired_root_is_refused() {
    let world = World::new(0);
    let root = RootDocument::one_key(world.root.public(), Some(NOW));
    let file = root.to_file(&world.root.key_id().to_string(), &world.root.sign(&root.signed_bytes()));
    let trust = Trust::load_parts(&file, &world.trust_files[1], &world.trust_files[2]).unwrap();
    let at = |time| failures(&verify_seal(&world.seal, &SUBJECTS, &trust, &Expectation::default(), time));
    assert_eq!(at(NOW), [""; 0]);
    assert_eq!(at(UtcSeconds(NOW.0 + 1)), [id::TRUST_ROOT]);
}

#[test]
fn a_policy_by_another_root_is_refused() {
    let (world, other) = (World::new(0), World::new(0));
    let error = Trust::load_parts(&world.trust_files[0], &other.trust_files[1], &world.trust_files[2]).unwrap_err();
    assert_eq!(error.check_id(), id::TRUST_POLICY);
    assert!(error.found.contains(&other.root.key_id().to_string()), "{error}");
    // The same with a forged key id.
    let mut envelope = Envelope::parse(&other.trust_files[1]).unwrap();
    envelope.keyid = world.root.key_id().to_string();
    let error = Trust::load_parts(&world.trust_files[0], &envelope.to_json(), &world.trust_files[2]).unwrap_err();
    assert_eq!(error.check_id(), id::TRUST_POLICY);
}

#[test]
fn another_log_s_key_in_the_trusted_root_is_refused() {
    let (world, other) = (World::new(0), World::new(0));
    let error = Trust::load_parts(&world.trust_files[0], &world.trust_files[1], &other.trust_files[2]).unwrap_err();
    assert_eq!(error.check_id(), id::TRUST_LOGS);
    // A key swapped under the policy's id and host.
    let theirs = String::from_utf8(trusted_root::one_log(other.log.identity(), NOW)).unwrap();
    let forged = theirs
        .replace(&other.log.id().to_string(), &world.log.id().to_string())
        .replace(other.log.identity().origin.as_str(), world.log.identity().origin.as_str());
    let error = Trust::load_parts(&world.trust_files[0], &world.trust_files[1], forged.as_bytes()).unwrap_err();
    assert_eq!(error.check_id(), id::TRUST_LOGS);
}

#[test]
fn a_trust_directory_is_read_back_and_never_overwritten() {
    let world = World::new(0);
    let path = world.path("trust");
    let trust = load_trust(&path).unwrap();
    assert_eq!(trust.policy.keys[0].id, world.artifact.key_id());
    assert_eq!(trust.policy.keys[0].predicate_types, [PREDICATE_TYPE]);
    let names = ["*".to_owned()];
    let init = symseal_sealer::TrustInit {
        root: &world.root,
        artifact: world.artifact.public(),
        names: &names,
        log: world.log.identity(),
        operator: "",
        at: NOW,
        expires: None,
    };
    let error = symseal_sealer::trust_init(&path, &init).unwrap_err().to_string();
    assert!(error.contains("never overwritten"), "{error}");
    std::fs::remove_file(path.join("policy.dsse.json")).unwrap();
    let error = load_trust(&path).unwrap_err().to_string();
    assert!(error.contains("policy.dsse.json") && error.contains("symseal trust init"), "{error}");
    let bad = ["a*b".to_owned()];
    let error = symseal_sealer::trust_init(&world.path("new"), &symseal_sealer::TrustInit { names: &bad, ..init });
    assert!(error.is_err() && !world.path("new").exists());
}

#[test]
fn several_logs_are_told_apart_by_their_id() {
    let (world, other) = (World::new(0), World::new(0));
    let mut root: serde_json::Value = serde_json::from_slice(&world.trust_files[2]).unwrap();
    let theirs: serde_json::Value = serde_json::from_slice(&other.trust_files[2]).unwrap();
    root["tlogs"].as_array_mut().unwrap().insert(0, theirs["tlogs"][0].clone());
    let envelope = Envelope::parse(&world.trust_files[1]).unwrap();
    let mut policy: PolicyDocument = serde_json::from_slice(&envelope.payload).unwrap();
    let identity = other.log.identity();
    policy.logs.insert(
        0,
        PolicyLogDocument {
            origin: identity.origin.to_string(),
            log_id: identity.id().to_string(),
            ..policy.logs[0].clone()
        },
    );
    let key: PolicyKeyDocument = policy.keys[0].clone();
    assert_eq!(key.key_id, world.artifact.key_id().to_string());
    let file = policy.to_file(&world.root.key_id().to_string(), &world.root.sign(&policy.signed_bytes()));
    let trust = Trust::load_parts(&world.trust_files[0], &file, &serde_json::to_vec(&root).unwrap()).unwrap();
    assert_eq!(failures(&verify_seal(&world.seal, &SUBJECTS, &trust, &Expectation::default(), NOW)), [""; 0]);
}
