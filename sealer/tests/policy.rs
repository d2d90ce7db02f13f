//! What a policy asks beyond one key in one log: several keys, witnesses, revocations, closed logs, root keys.

use crate::support::{BUNDLE, INDEX, NOW, SUBJECTS, World, failures, have, statement, status, with_policy};
use symseal_seal::checks::id;
use symseal_seal::encoding::{to_base64, to_hex};
use symseal_seal::note::{NoteSignature, SignedNote};
use symseal_seal::trust::policy::{
    LogPlaceDocument, PolicyDocument, PolicyKeyDocument, PolicyLogDocument, RevocationDocument, WitnessDocument,
};
use symseal_seal::trust::root::{read_chain, write_chain};
use symseal_seal::trust::{PolicyKey, RootDocument, RootSignature, SignedRoot, TrustFile};
use symseal_seal::{
    CheckStatus, Expectation, Origin, Parts, SigstoreBundle, SubjectDigests, Trust, UtcSeconds, Witness, examine_seals,
};
use symseal_sealer::{ArtifactKey, LogKey, TileLog, seal};

fn trust(world: &World, change: impl FnOnce(&mut PolicyDocument)) -> Trust {
    with_policy(world, change, std::slice::from_ref(world.log.identity())).unwrap()
}

fn check(world: &World, change: impl FnOnce(&mut PolicyDocument), seals: &[Vec<u8>], expected: &[&str]) {
    let trust = trust(world, change);
    let found = examine_seals(seals, &SUBJECTS, &trust, &Expectation::default(), NOW);
    assert_eq!(failures(&found.checks), expected, "{:#?}", found.checks);
}

#[test]
fn a_threshold_counts_distinct_keys() {
    let mut world = World::new(0);
    let second = ArtifactKey::generate().unwrap();
    let by_second = seal(&world.statement, &second, &mut world.log).unwrap();
    // The first key once more: another entry of the log.
    let again = seal(
        &statement("tool", "1.0").tap(|s| s.predicate.supersedes.push("sha256:00".into())),
        &world.artifact,
        &mut world.log,
    )
    .unwrap();
    let first = world.seal.clone();
    let both = |policy: &mut PolicyDocument| {
        policy.threshold = 2;
        policy.keys.push(PolicyKeyDocument::new(second.public(), &["tool".into()], Some(NOW)));
    };
    check(&world, both, &[first.clone(), by_second.clone()], &[]);
    check(&world, both, std::slice::from_ref(&first), &[id::TRUST_THRESHOLD]);
    check(&world, both, &[first.clone(), first.clone()], &[id::TRUST_THRESHOLD]);
    check(&world, both, &[first.clone(), again], &[id::TRUST_THRESHOLD]);
    // Junk before, between and after.
    let junk = || b"{}".to_vec();
    check(&world, both, &[junk(), first.clone(), junk(), by_second.clone(), junk()], &[]);
    check(&world, |_| {}, &[junk(), first.clone()], &[]);
    // A second key that may not sign this name does not count.
    let wrong_name = |policy: &mut PolicyDocument| {
        both(policy);
        policy.keys[1].names = vec!["other".into()];
    };
    check(&world, wrong_name, &[first.clone(), by_second.clone()], &[id::TRUST_THRESHOLD]);
    let found = examine_seals(&[first, by_second], &SUBJECTS, &trust(&world, both), &Expectation::default(), NOW);
    assert_eq!(found.facts.signers, [world.artifact.key_id(), second.key_id()]);
}

trait Tap: Sized {
    fn tap(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl Tap for symseal_seal::Statement {}

fn revoked(key: &PolicyKey, digests: &[String], before: &[(&str, u64)]) -> RevocationDocument {
    RevocationDocument {
        key_id: key.id.to_string(),
        reason: "lost laptop".into(),
        except_digests: digests.to_vec(),
        except_before: before
            .iter()
            .map(|(origin, index)| LogPlaceDocument { origin: (*origin).to_owned(), index: *index })
            .collect(),
    }
}

#[test]
fn a_revoked_key_counts_for_listed_digests_and_before_a_place_in_a_log() {
    let world = World::new(3);
    let origin = world.log.identity().origin.to_string();
    let key = &world.trust.policy.keys[0];
    let with = |digests: &[String], before: &[(&str, u64)], expected: &[&str]| {
        let revocation = revoked(key, digests, before);
        check(&world, |policy| policy.revocations = vec![revocation], std::slice::from_ref(&world.seal), expected);
    };
    let digest = |hash: [u8; 32]| format!("sha256:{}", to_hex(&hash));
    with(&[], &[], &[id::TRUST_REVOCATION]);
    with(&[digest(BUNDLE)], &[], &[]);
    with(&[digest(INDEX)], &[], &[]);
    with(&[digest([9; 32])], &[], &[id::TRUST_REVOCATION]);
    // The seal is entry 3.
    with(&[], &[(&origin, 4)], &[]);
    with(&[], &[(&origin, 3)], &[id::TRUST_REVOCATION]);
    with(&[], &[("other.example", 100)], &[id::TRUST_REVOCATION]);
}

#[test]
fn an_exception_by_digest_needs_the_digest_computed_here() {
    // A thief may sign any digest; what counts is what the verifier hashed.
    let world = World::new(0);
    let revocation = revoked(&world.trust.policy.keys[0], &[format!("sha256:{}", to_hex(&BUNDLE))], &[]);
    let trust = trust(&world, |policy| policy.revocations = vec![revocation]);
    let pulled = SubjectDigests { bundle: None, ..SUBJECTS };
    let found = examine_seals(std::slice::from_ref(&world.seal), &pulled, &trust, &Expectation::default(), NOW);
    assert_eq!(failures(&found.checks), [id::TRUST_REVOCATION]);
}

#[test]
fn an_exception_by_place_needs_the_proof_of_the_place() {
    let world = World::new(3);
    let origin = world.log.identity().origin.to_string();
    let revocation = revoked(&world.trust.policy.keys[0], &[], &[(&origin, 4)]);
    let trust = trust(&world, |policy| policy.revocations = vec![revocation]);
    let examine = |seal: &[u8], parts| {
        let expectation = Expectation { parts, ..Expectation::default() };
        failures(&examine_seals(&[seal], &SUBJECTS, &trust, &expectation, NOW).checks)
    };
    assert_eq!(examine(&world.seal, Parts::default()), [""; 0]);
    // Where the log's half is not asked for, the exception rests on it all the same.
    let dsse = Parts { dsse: true, rekor: false };
    assert_eq!(examine(&world.seal, dsse), [""; 0]);
    // A stolen key with an entry that claims an earlier place.
    let mut moved = SigstoreBundle::parse(&world.seal).unwrap();
    (moved.entry.log_index, moved.entry.proof_index) = (1, 1);
    assert_eq!(examine(&moved.to_json(), Parts::default()), [id::TRUST_REVOCATION, id::LOG_INCLUSION]);
    assert_eq!(examine(&moved.to_json(), dsse), [id::TRUST_REVOCATION]);
    // What is not asked for is not reported, and does not refuse.
    let none = Expectation { parts: dsse, ..Expectation::default() };
    let unproved = examine_seals(&[moved.to_json()], &SUBJECTS, &world.trust, &none, NOW);
    assert!(unproved.holds(), "{:#?}", unproved.checks);
    assert_eq!(status(&unproved.checks, id::LOG_INCLUSION), CheckStatus::Skipped);
}

#[test]
fn a_stolen_log_key_is_answered_by_taking_the_log_out_as_closing_it_is_not_enough() {
    let world = World::new(3);
    let new_key = LogKey::generate().unwrap();
    let create = |name: &str, origin: Origin, key: &LogKey| {
        TileLog::create(&world.path(name), origin, key.clone(), &world.path(&format!("{name}-seen"))).unwrap()
    };
    // The thief has the artifact key, too, and writes a history in the log's name, with his entry in the first place.
    let mut forged = create("forged", world.log.identity().origin.clone(), &world.log_key);
    let theirs = seal(&statement("tool", "6.6"), &world.artifact, &mut forged).unwrap();
    let mut next = create("next", "log-next.example".parse().unwrap(), &new_key);
    let both = [world.log.identity().clone(), next.identity().clone()];
    let judge = |trust: &Trust, seal: &[u8]| {
        failures(&examine_seals(&[seal], &SUBJECTS, trust, &Expectation::default(), NOW).checks)
    };
    let open_next = |policy: &mut PolicyDocument| {
        policy.logs.push(PolicyLogDocument::new(&both[1], "the new machine", Some(NOW)));
    };
    let close = |policy: &mut PolicyDocument| {
        open_next(policy);
        policy.logs[0].entries_before = Some(4);
    };
    let closed = with_policy(&world, close, &both).unwrap();
    assert_eq!(judge(&closed, &world.seal), [""; 0]);
    assert_eq!(judge(&closed, &theirs), [""; 0], "closing the log at a place stops nobody who has its key");
    // A place in it is no exception for a revoked key, for the same reason.
    let revocation = revoked(&world.trust.policy.keys[0], &[], &[(both[0].origin.as_str(), 4)]);
    let excepted = with_policy(&world, |policy| policy.revocations = vec![revocation], &both[..1]).unwrap();
    assert_eq!(judge(&excepted, &theirs), [""; 0]);
    // Nothing in it counts any more, and what must go on counting is sealed again in the new log.
    let take_out = |policy: &mut PolicyDocument| {
        open_next(policy);
        policy.logs.remove(0);
    };
    let without = with_policy(&world, take_out, &both[1..]).unwrap();
    for seal in [&theirs, &world.seal] {
        assert!(judge(&without, seal).contains(&id::LOG_ID));
    }
    let again = seal(&world.statement, &world.artifact, &mut next).unwrap();
    assert_eq!(judge(&without, &again), [""; 0]);
}

/// Adds a witness's cosignature to the checkpoint in a seal.
fn cosign(seal: &[u8], witness: &Witness, key: &LogKey, time: UtcSeconds) -> Vec<u8> {
    let mut bundle = SigstoreBundle::parse(seal).unwrap();
    let mut note = SignedNote::parse(&bundle.entry.checkpoint).unwrap();
    let mut signature = u64::try_from(time.0).unwrap().to_be_bytes().to_vec();
    signature.extend(key.sign(&Witness::message(time, &note.text)));
    note.signatures.push(NoteSignature { name: witness.name().into(), hint: witness.hint(), signature });
    bundle.entry.checkpoint = note.to_text();
    bundle.to_json()
}

fn witness(name: &str) -> (Witness, LogKey) {
    let key = LogKey::generate().unwrap();
    let identity = key.identity(&"w.example".parse().unwrap()).unwrap();
    let public: [u8; 32] = identity.key.spki()[12..].try_into().unwrap();
    (Witness::new(name, &public).unwrap(), key)
}

#[test]
fn a_quorum_of_distinct_witnesses_is_asked_for() {
    let world = World::new(2);
    let (one, one_key) = witness("w1.example");
    let (two, two_key) = witness("w2.example");
    let policy = |quorum| {
        let (one, two) = (one.to_string(), two.to_string());
        move |policy: &mut PolicyDocument| {
            let witness = |key: String| WitnessDocument { key, operator: "somebody else".into() };
            policy.logs[0].witnesses = vec![witness(one), witness(two)];
            policy.logs[0].witness_quorum = quorum;
        }
    };
    let by_one = cosign(&world.seal, &one, &one_key, NOW);
    let by_both = cosign(&by_one, &two, &two_key, UtcSeconds(NOW.0 + 5));
    check(&world, policy(0), std::slice::from_ref(&world.seal), &[]);
    check(&world, policy(1), std::slice::from_ref(&world.seal), &[id::LOG_WITNESSES]);
    check(&world, policy(1), std::slice::from_ref(&by_one), &[]);
    check(&world, policy(2), std::slice::from_ref(&by_one), &[id::LOG_WITNESSES]);
    check(&world, policy(2), std::slice::from_ref(&by_both), &[]);
    // The same witness at two times is one witness.
    let twice = cosign(&by_one, &one, &one_key, UtcSeconds(NOW.0 + 9));
    check(&world, policy(2), &[twice], &[id::LOG_WITNESSES]);
    // Nobody saw it at no time, or will see it next year.
    for time in [UtcSeconds(0), NOW.plus_days(365), UtcSeconds(i64::MAX)] {
        let untimely = cosign(&by_one, &two, &two_key, time);
        check(&world, policy(2), std::slice::from_ref(&untimely), &[id::LOG_WITNESSES]);
        let found = examine_seals(&[untimely], &SUBJECTS, &trust(&world, policy(1)), &Expectation::default(), NOW);
        assert_eq!((found.holds(), found.facts.witnesses, found.facts.witnessed_at), (true, 1, Some(NOW)));
        let told = found.checks.iter().find(|check| check.id == id::LOG_WITNESSES).unwrap();
        assert!(told.detail.contains("not counted") && told.detail.contains("w2.example"), "{told}");
    }
    // A line with a known name and hint must hold, though it is not needed.
    let forged = cosign(&by_one, &two, &one_key, NOW);
    check(&world, policy(1), &[forged], &[id::LOG_WITNESSES]);
    // A witness that the policy does not name is passed over.
    let (stranger, stranger_key) = witness("w3.example");
    check(&world, policy(1), &[cosign(&by_one, &stranger, &stranger_key, NOW)], &[]);
    let found = examine_seals(&[&by_one], &SUBJECTS, &trust(&world, policy(2)), &Expectation::default(), NOW);
    let told = found.first_failure().unwrap().to_string();
    assert_eq!(told, format!("log.witnesses failed: expected 2 cosignatures, found 1: w1.example at {NOW}"));
    let found = examine_seals(&[by_both], &SUBJECTS, &trust(&world, policy(2)), &Expectation::default(), NOW);
    assert_eq!(found.facts.witnesses, 2);
    assert_eq!(found.facts.witness_names, ["w1.example", "w2.example"]);
    assert_eq!(found.facts.witnessed_at, Some(UtcSeconds(NOW.0 + 5)));
}

#[test]
fn a_witness_key_is_read_in_its_published_form_only() {
    let (one, _) = witness("w1.example");
    let text = one.to_string();
    assert_eq!(text.parse(), Ok(one.clone()));
    let flipped = text.replacen('+', "+0", 1);
    let log_kind = format!("w1.example+{}+{}", to_hex(&one.hint()), to_base64(&[&[1], &one.public()[..]].concat()));
    for bad in ["", "w1.example", &text[1..], &flipped, &format!("{text} "), &log_kind] {
        assert!(bad.parse::<Witness>().is_err(), "{bad}");
    }
    // One key under two names, or one name twice, would count twice.
    let world = World::new(0);
    let same_key = Witness::new("w2.example", one.public()).unwrap();
    for other in [same_key, one.clone()] {
        let error = with_policy(
            &world,
            |policy| {
                let witness = |key: &Witness| WitnessDocument { key: key.to_string(), operator: String::new() };
                policy.logs[0].witnesses = vec![witness(&one), witness(&other)];
            },
            std::slice::from_ref(world.log.identity()),
        );
        assert!(error.map(|_| ()).unwrap_err().contains("each witness once"));
    }
}

#[test]
fn openssl_verifies_a_cosignature() {
    if !have("openssl", "version") {
        return;
    }
    let world = World::new(0);
    let (witness, key) = witness("w1.example");
    let sealed = SigstoreBundle::parse(&cosign(&world.seal, &witness, &key, NOW)).unwrap();
    let (text, lines) = sealed.entry.checkpoint.rsplit_once("\n\n").unwrap();
    let line = lines.lines().find(|line| line.contains("w1.example")).unwrap();
    let bytes = symseal_seal::encoding::from_base64(line.rsplit(' ').next().unwrap()).unwrap();
    let directory = world.directory.path();
    // C2SP tlog-cosignature, written out once more.
    std::fs::write(directory.join("message"), format!("cosignature/v1\ntime {}\n{text}\n", NOW.0)).unwrap();
    std::fs::write(directory.join("signature"), &bytes[12..]).unwrap();
    assert_eq!(bytes[4..12], u64::try_from(NOW.0).unwrap().to_be_bytes());
    let spki = key.identity(&"w.example".parse().unwrap()).unwrap().key.spki();
    std::fs::write(directory.join("pub.der"), spki).unwrap();
    let output = std::process::Command::new("openssl")
        .current_dir(directory)
        .args(["pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-inkey", "pub.der", "-rawin"])
        .args(["-in", "message", "-sigfile", "signature"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("Verified Successfully"), "{output:?}");
}

/// Roots of one's own: each version's keys and threshold, signed by the keys named beside it.
fn chain(versions: &[(&[&ArtifactKey], u64, &[&ArtifactKey])]) -> Vec<SignedRoot> {
    let signed = |(version, (keys, threshold, signers)): (u64, &(&[&ArtifactKey], u64, &[&ArtifactKey]))| {
        let first = keys.first().unwrap();
        let mut root = RootDocument::one_key(first.public(), None);
        root.version = version;
        root.threshold = *threshold;
        root.keys = keys.iter().map(|key| key.public().into()).collect();
        let sign = |key: &&ArtifactKey| RootSignature::new(&key.key_id().to_string(), &key.sign(&root.signed_bytes()));
        let signatures = signers.iter().map(sign).collect();
        SignedRoot { root, signatures }
    };
    (1_u64..).zip(versions).map(signed).collect()
}

#[test]
fn a_root_follows_from_the_one_before_by_both_their_keys() {
    let key = || ArtifactKey::generate().unwrap();
    let (a, b, c, d) = (key(), key(), key(), key());
    let world = World::new(0);
    let load = |chain: &[SignedRoot], policy_signers: &[&ArtifactKey]| {
        let policy = PolicyDocument::read_unverified(&world.trust_files[1]).unwrap();
        let message = policy.signed_bytes();
        let signatures = policy_signers.iter().map(|key| (key.key_id().to_string(), key.sign(&message))).collect();
        Trust::load_parts(&write_chain(chain), &policy.to_file_of(signatures), &world.trust_files[2])
            .map_err(|error| (error.file, error.to_string()))
    };
    let refused = |chain: &[SignedRoot], signers: &[&ArtifactKey], file: TrustFile, expected: &str| {
        let (found, text) = load(chain, signers).map(|_| ()).unwrap_err();
        assert_eq!(found, file, "{text}");
        assert!(text.contains(expected), "{text}");
    };
    // Two of three from the start.
    let first = (&[&a, &b, &c][..], 2, &[&a, &b][..]);
    let trust = load(&chain(&[first]), &[&b, &c]).unwrap();
    assert_eq!((trust.root.threshold, trust.policy.signed_by.len()), (2, 2));
    refused(&chain(&[first]), &[&b], TrustFile::Policy, "signatures by 2 root keys, found 1");
    refused(&chain(&[first]), &[&b, &b], TrustFile::Policy, "one signature of each root key");
    refused(&chain(&[first]), &[&b, &d], TrustFile::Policy, "a signature by the root key");
    refused(&chain(&[(first.0, 2, &[&a])]), &[&a, &b], TrustFile::Root, "signed by 2 of its own keys, found 1");
    refused(&chain(&[(first.0, 2, &[&a, &a])]), &[&a, &b], TrustFile::Root, "one signature of each root key");
    refused(&chain(&[(first.0, 4, first.0)]), &[&a, &b], TrustFile::Root, "threshold 4 of 3 keys");
    refused(&chain(&[(&[&a, &a], 1, &[&a])]), &[&a], TrustFile::Root, "each root key once");
    // c goes, d comes: a and b are keys of both.
    let second = (&[&a, &b, &d][..], 2, &[&a, &b][..]);
    let trust = load(&chain(&[first, second]), &[&a, &d]).unwrap();
    assert_eq!((trust.root.version, trust.root.history.len()), (2, 2));
    refused(&chain(&[first, second]), &[&a, &c], TrustFile::Policy, "a signature by the root key");
    // All of the new keys, too few of the old; and the other way round.
    let stolen = (&[&a, &d][..], 2, &[&a, &d][..]);
    refused(&chain(&[first, stolen]), &[&a, &d], TrustFile::Root, "2 of the previous root's keys, found 1");
    let unwilling = (&[&c, &d][..], 2, &[&a, &b, &c][..]);
    refused(&chain(&[first, unwilling]), &[&c, &d], TrustFile::Root, "signed by 2 of its own keys, found 1");
    // Gaps, and a chain that does not begin at 1.
    let mut gap = chain(&[first, second, second]);
    gap.remove(1);
    refused(&gap, &[&a, &b], TrustFile::Root, "root version 2");
    refused(&chain(&[first, second])[1..], &[&a, &b], TrustFile::Root, "root version 1");
    // Every changed byte of the chain is found.
    let file = write_chain(&chain(&[first, second]));
    assert_eq!(read_chain(&file).unwrap(), chain(&[first, second]));
    let policy = PolicyDocument::read_unverified(&world.trust_files[1]).unwrap();
    let signatures = [&a, &b].iter().map(|key| (key.key_id().to_string(), key.sign(&policy.signed_bytes()))).collect();
    let policy = policy.to_file_of(signatures);
    for place in (0..file.len()).step_by(7) {
        let mut changed = file.clone();
        changed[place] ^= 1;
        assert!(Trust::load_parts(&changed, &policy, &world.trust_files[2]).is_err(), "byte {place}");
    }
}

#[test]
fn what_ends_within_thirty_days_is_warned_of() {
    let world = World::new(0);
    let soon = NOW.plus_days(30);
    let trust = trust(&world, |policy| {
        policy.expires = Some(soon);
        policy.keys[0].not_after = Some(NOW.plus_days(31));
        policy.logs[0].not_after = Some(UtcSeconds(NOW.0 - 1));
    });
    let warnings = trust.warnings(NOW);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("the policy expires at") && warnings[0].contains("symseal trust rotate"));
    assert!(warnings[1].contains("expired at") && warnings[1].contains("symseal trust add-log"));
    assert_eq!(trust.warnings(NOW.plus_days(1)).len(), 3);
    assert_eq!(status(&trust.checks(NOW), id::TRUST_POLICY), CheckStatus::Passed);
}
