//! Changes of a policy: only what is given changes, and nothing grows weaker without a word.

use crate::support::{NOW, World};
use symseal_seal::trust::policy::{PolicyDocument, PolicyKeyDocument, PolicyLogDocument, RevocationDocument};
use symseal_seal::{LogIdentity, LogPublicKey, Trust, UtcSeconds, Witness};
use symseal_sealer::trust::{Difference, End, KeyChange, LogChange, RevocationChange, TrustFiles};
use symseal_sealer::{ArtifactKey, LogKey, RootChange, TrustChange, TrustChangeError};

const LATER: UtcSeconds = UtcSeconds(NOW.0 + 86_400);

/// Signs a change of the world's trust directory; the policy that it says now, and what it said that it does.
fn change(
    world: &World,
    change: impl FnOnce(&mut TrustChange) -> Result<(), TrustChangeError>,
) -> Result<(PolicyDocument, Vec<Difference>), TrustChangeError> {
    let mut opened = TrustChange::open(&world.path("trust")).unwrap();
    change(&mut opened)?;
    let differences = opened.differences();
    opened.sign(std::slice::from_ref(&world.root))?;
    let files = TrustFiles::read(&world.path("trust")).unwrap();
    Ok((PolicyDocument::read_unverified(&files.policy).unwrap(), differences))
}

fn told(differences: &[Difference]) -> Vec<(&str, &str, &str)> {
    let or_none = |value: &'_ Option<String>| value.clone().map_or("none", |value| value.leak());
    differences.iter().map(|one| (one.what.as_str(), or_none(&one.before), or_none(&one.after))).collect()
}

fn witness(name: &str) -> Witness {
    let identity = LogKey::generate().unwrap().identity(&"w.example".parse().unwrap()).unwrap();
    Witness::new(name, identity.key.spki()[12..].try_into().unwrap()).unwrap()
}

#[test]
fn a_known_log_keeps_what_nobody_mentioned() {
    let world = World::new(3);
    let log = world.log.identity();
    let (one, two) = (witness("w1.example"), witness("w2.example"));
    let watched = LogChange {
        operator: Some("the release team".into()),
        not_after: Some(End::At(NOW.plus_days(90))),
        witnesses: vec![one.clone(), two.clone()],
        witness_quorum: Some(2),
        ..LogChange::default()
    };
    change(&world, |trust| trust.add_log(log, watched, LATER)).unwrap();
    let (before, _) = change(&world, |trust| trust.close_log(log.origin.as_str(), 3)).unwrap();
    let PolicyLogDocument { not_before, entries_before, witness_quorum, .. } = &before.logs[0];
    assert_eq!((*not_before, *entries_before, *witness_quorum), (Some(NOW), Some(3), 2));
    // Mentioned again with nothing said of it, as an operator does to see its fingerprint.
    let (after, differences) = change(&world, |trust| trust.add_log(log, LogChange::default(), LATER)).unwrap();
    assert_eq!((after.logs, told(&differences)), (before.logs, vec![]));
    // Only its end.
    let end = LogChange { not_after: Some(End::Never), ..LogChange::default() };
    let (after, differences) = change(&world, |trust| trust.add_log(log, end, LATER)).unwrap();
    let what = format!("logs[{}].not_after", log.origin);
    assert_eq!(told(&differences), [(what.as_str(), NOW.plus_days(90).to_string().as_str(), "none")]);
    assert_eq!((after.logs[0].entries_before, after.logs[0].witnesses.len()), (Some(3), 2));
    // An earlier start has an effect: the key's own in trusted_root.json follows.
    let early = UtcSeconds(NOW.0 - 86_400);
    let start = LogChange { not_before: Some(early), ..LogChange::default() };
    change(&world, |trust| trust.add_log(log, start, LATER)).unwrap();
    let trust = symseal_sealer::load_trust(&world.path("trust")).unwrap();
    assert_eq!(trust.policy.logs[0].validity.not_before, Some(early));
}

#[track_caller]
fn refused(answer: Result<(PolicyDocument, Vec<Difference>), TrustChangeError>, parts: &[&str]) {
    let error = answer.map(|(_, differences)| differences).unwrap_err().to_string();
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
}

#[test]
fn reopening_a_log_and_lowering_its_quorum_have_to_be_asked_for() {
    let world = World::new(3);
    let log = world.log.identity();
    let origin = log.origin.to_string();
    let quorum =
        |quorum, may_lower_quorum| LogChange { witness_quorum: Some(quorum), may_lower_quorum, ..LogChange::default() };
    let watched = LogChange { witnesses: vec![witness("w1.example"), witness("w2.example")], ..quorum(2, false) };
    change(&world, |trust| trust.add_log(log, watched, LATER)).unwrap();
    refused(change(&world, |trust| trust.add_log(log, quorum(1, false), LATER)), &["at least 2", "--lower-quorum"]);
    let (after, differences) = change(&world, |trust| trust.add_log(log, quorum(1, true), LATER)).unwrap();
    assert_eq!(after.logs[0].witness_quorum, 1);
    assert_eq!(told(&differences), [(format!("logs[{origin}].witness_quorum").as_str(), "2", "1")]);
    // A witness by its name: another key for it, and away with it.
    let anew = witness("w1.example");
    let with = LogChange { witnesses: vec![anew.clone()], ..LogChange::default() };
    let (after, _) = change(&world, |trust| trust.add_log(log, with, LATER)).unwrap();
    assert_eq!((after.logs[0].witnesses.len(), &after.logs[0].witnesses[0].key), (2, &anew.to_string()));
    let without = |name: &str| LogChange { without_witnesses: vec![name.into()], ..LogChange::default() };
    refused(change(&world, |trust| trust.add_log(log, without("w3"), LATER)), &["w1.example, w2.example", "w3"]);
    let (after, _) = change(&world, |trust| trust.add_log(log, without("w2.example"), LATER)).unwrap();
    assert_eq!(after.logs[0].witnesses.len(), 1);
    refused(change(&world, |trust| trust.add_log(log, without("w1.example"), LATER)), &["at most 0"]);
    // Closed, then at an earlier place; a later one would let entries in again.
    let close = |index| change(&world, |trust| trust.close_log(&origin, index));
    close(3).unwrap();
    refused(close(4), &["at most 3", "--reopen", "4"]);
    assert_eq!(close(2).unwrap().0.logs[0].entries_before, Some(2));
    let reopen = LogChange { reopen: true, ..LogChange::default() };
    let (after, differences) = change(&world, |trust| trust.add_log(log, reopen, LATER)).unwrap();
    assert_eq!(after.logs[0].entries_before, None);
    assert_eq!(told(&differences), [(format!("logs[{origin}].entries_before").as_str(), "2", "none")]);
    // A known origin with another key is another log, or somebody else's.
    let other = LogIdentity { key: World::new(0).log.identity().key.clone(), ..log.clone() };
    refused(
        change(&world, |trust| trust.add_log(&other, LogChange::default(), LATER)),
        &[&log.id().to_string(), &other.id().to_string(), "new origin"],
    );
}

#[test]
fn a_known_key_keeps_what_nobody_mentioned() {
    let world = World::new(0);
    let key = world.artifact.public();
    let types = vec!["https://symseal.dev/bundle/v1".to_owned(), "https://symseal.dev/kit/v1".to_owned()];
    let kits = KeyChange { predicate_types: types.clone(), ..KeyChange::default() };
    change(&world, |trust| trust.add_key(key, kits, LATER)).unwrap();
    let end = KeyChange { not_after: Some(End::At(NOW.plus_days(9))), ..KeyChange::default() };
    let (after, differences) = change(&world, |trust| trust.add_key(key, end, LATER)).unwrap();
    let PolicyKeyDocument { names, predicate_types, not_before, not_after, .. } = &after.keys[0];
    assert_eq!((names, predicate_types), (&vec!["tool*".to_owned()], &types));
    assert_eq!((*not_before, *not_after), (Some(NOW), Some(NOW.plus_days(9))));
    assert_eq!(differences.len(), 1, "{differences:?}");
    let narrower = KeyChange { names: vec!["tool".into()], ..KeyChange::default() };
    let (_, differences) = change(&world, |trust| trust.add_key(key, narrower, LATER)).unwrap();
    assert_eq!(told(&differences), [(format!("keys[{}].names", key.key_id()).as_str(), "tool*", "tool")]);
    // A new one starts now, and needs a name.
    let new = ArtifactKey::generate().unwrap();
    let nothing = KeyChange::default();
    refused(change(&world, |trust| trust.add_key(new.public(), nothing, LATER)), &["--name", "none"]);
    let named = KeyChange { names: vec!["tool".into()], ..KeyChange::default() };
    let (after, _) = change(&world, |trust| trust.add_key(new.public(), named, LATER)).unwrap();
    assert_eq!((after.keys.len(), after.keys[1].not_before), (2, Some(LATER)));
}

#[test]
fn a_second_revocation_adds_to_the_exceptions_of_the_first() {
    let mut world = World::new(0);
    let key = world.artifact.key_id().to_string();
    let origin = world.log.identity().origin.to_string();
    let digest = |byte: u8| format!("sha256:{}", symseal_seal::encoding::to_hex(&[byte; 32]));
    let mut revoke = |digests: &[u8], places: &[u64], replace| {
        let said = RevocationChange {
            reason: "stolen".into(),
            except_digests: digests.iter().map(|byte| digest(*byte)).collect(),
            except_before: places.iter().map(|index| (origin.clone(), *index)).collect(),
            replace,
        };
        let (policy, _) = change(&world, |trust| trust.revoke_key(&key, said)).unwrap();
        world.trust = symseal_sealer::load_trust(&world.path("trust")).unwrap();
        let [RevocationDocument { except_digests, except_before, .. }] = &policy.revocations[..] else {
            panic!("{policy:?}")
        };
        (except_digests.clone(), except_before.iter().map(|place| place.index).collect::<Vec<_>>())
    };
    assert_eq!(revoke(&[1], &[4], false), (vec![digest(1)], vec![4]));
    assert_eq!(revoke(&[2, 1], &[], false), (vec![digest(1), digest(2)], vec![4]));
    // The theft was earlier than first thought.
    assert_eq!(revoke(&[], &[3], false), (vec![digest(1), digest(2)], vec![3]));
    assert_eq!(revoke(&[3], &[], true), (vec![digest(3)], vec![]));
    let Trust { policy, .. } = &world.trust;
    assert_eq!(policy.version, 5);
}

/// Names in a directory, in their order.
fn names(directory: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg(unix)]
#[test]
fn a_new_root_changes_the_three_files_alone() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let world = World::new(0);
    let (trust, link) = (world.path("trust"), world.path("link"));
    let before = names(world.directory.path());
    symlink(&trust, &link).unwrap();
    std::fs::create_dir(trust.join(".git")).unwrap();
    std::fs::write(trust.join(".git/HEAD"), "ref: refs/heads/main").unwrap();
    std::fs::write(trust.join("notes.txt"), "who to telephone").unwrap();
    std::fs::set_permissions(&trust, std::fs::Permissions::from_mode(0o700)).unwrap();
    let next = ArtifactKey::generate().unwrap();
    let rotate = |version: u64, by: &[ArtifactKey]| {
        let mut change = TrustChange::open(&link).unwrap();
        let keys = vec![world.root.public().clone(), next.public().clone()];
        change.rotate(&RootChange { keys, threshold: 1, expires: None });
        let trust = change.sign(by).unwrap();
        assert_eq!(trust.root.version, version);
    };
    rotate(2, std::slice::from_ref(&world.root));
    rotate(3, std::slice::from_ref(&next));
    assert!(link.is_symlink());
    assert_eq!(names(&trust), [".git", "notes.txt", "policy.dsse.json", "root.json", "trusted_root.json"]);
    assert_eq!(std::fs::read_to_string(trust.join(".git/HEAD")).unwrap(), "ref: refs/heads/main");
    assert_eq!(std::fs::metadata(&trust).unwrap().permissions().mode() & 0o777, 0o700);
    // Nothing is left beside it.
    std::fs::remove_file(&link).unwrap();
    assert_eq!(names(world.directory.path()), before);
    let followed = symseal_sealer::load_trust(&trust).unwrap();
    assert_eq!((followed.root.version, followed.policy.version), (3, 3));
}

#[test]
fn of_two_changes_of_one_policy_the_later_is_refused_and_nothing_is_lost() {
    let world = World::new(0);
    let open = || TrustChange::open(&world.path("trust")).unwrap();
    let sign = |change: TrustChange| change.sign(std::slice::from_ref(&world.root));
    let revocation = RevocationChange { reason: "stolen".into(), ..RevocationChange::default() };
    let (mut revoke, mut prolong) = (open(), open());
    revoke.revoke_key(&world.artifact.key_id().to_string(), revocation).unwrap();
    prolong.policy().expires = Some(NOW.plus_days(900));
    sign(revoke).unwrap();
    let raced = sign(prolong).unwrap_err();
    assert!(matches!(raced, TrustChangeError::Raced { version: 1, .. }), "{raced}");
    assert!(raced.to_string().contains("give the command again"), "{raced}");
    let trust = symseal_sealer::load_trust(&world.path("trust")).unwrap();
    assert_eq!((trust.policy.version, trust.policy.revocations.len()), (2, 1));
    // Many at once: each is either in the policy or refused.
    let signed = std::thread::scope(|scope| {
        let add = |number: u32| {
            let mut change = open();
            change.policy().threshold = 1;
            change.policy().expires = Some(NOW.plus_days(number));
            sign(change).is_ok()
        };
        let threads: Vec<_> = (1..=8).map(|number| scope.spawn(move || add(number))).collect();
        threads.into_iter().map(|thread| u64::from(thread.join().unwrap())).sum::<u64>()
    });
    let trust = symseal_sealer::load_trust(&world.path("trust")).unwrap();
    assert!(signed >= 1);
    assert_eq!((trust.policy.version, trust.policy.revocations.len()), (2 + signed, 1));
    assert_eq!(names(&world.path("trust")), ["policy.dsse.json", "root.json", "trusted_root.json"]);
}

#[test]
fn what_no_policy_can_mean_is_not_signed() {
    let world = World::new(0);
    refused(
        change(&world, |trust| {
            trust.policy().threshold = 2;
            Ok(())
        }),
        &["a threshold of at most 1", "found 2"],
    );
    let reversed = KeyChange { not_before: Some(LATER), not_after: Some(End::At(NOW)), ..KeyChange::default() };
    refused(change(&world, |trust| trust.add_key(world.artifact.public(), reversed, NOW)), &["after its beginning"]);
    // A log whose checkpoints the signer signs proves nothing of the signer.
    for key in [world.artifact.public(), world.root.public()] {
        let log = LogIdentity { origin: "x.example".parse().unwrap(), key: LogPublicKey::Ecdsa(key.clone()) };
        refused(change(&world, |trust| trust.add_log(&log, LogChange::default(), NOW)), &["a key of its own"]);
    }
    assert_eq!(symseal_sealer::load_trust(&world.path("trust")).unwrap().policy.version, 1);
}
