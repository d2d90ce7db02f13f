//! What a report says beside its verdict: which seal it is about, what was not checked, and what each side of a failure was.

use crate::support::{MODULES, NOW, SUBJECTS, World, failures, status, with_policy};
use symseal_seal::checks::{Check, id};
use symseal_seal::trust::policy::{PolicyDocument, PolicyKeyDocument, RevocationDocument};
use symseal_seal::{CheckStatus, Expectation, ModuleList, SigstoreBundle, SubjectDigests, examine_seal, examine_seals};
use symseal_sealer::{ArtifactKey, seal};

fn find<'c>(checks: &'c [Check], id: &str) -> &'c Check {
    checks.iter().find(|check| check.id == id).unwrap()
}

#[test]
fn a_strangers_seal_does_not_hide_why_the_owners_was_refused() {
    let mut world = World::new(2);
    let stranger = ArtifactKey::generate().unwrap();
    let theirs = seal(&world.statement, &stranger, &mut world.log).unwrap();
    // Under the owner's hint, signed by the stranger: it goes further, and not as far.
    let mut forged = SigstoreBundle::parse(&theirs).unwrap();
    forged.hint = world.artifact.key_id().to_string();
    let identity = std::slice::from_ref(world.log.identity());
    let revoke = |policy: &mut PolicyDocument| {
        policy.logs[0].entries_before = Some(1);
        policy.revocations = vec![RevocationDocument {
            key_id: policy.keys[0].key_id.clone(),
            reason: "stolen".into(),
            except_digests: Vec::new(),
            except_before: Vec::new(),
        }];
    };
    let trust = with_policy(&world, revoke, identity).unwrap();
    let mut seals = [b"junk".to_vec(), theirs, forged.to_json(), world.seal.clone()];
    for _ in 0..seals.len() {
        let found = examine_seals(&seals, &SUBJECTS, &trust, &Expectation::default(), NOW);
        assert_eq!(failures(&found.checks), [id::TRUST_REVOCATION, id::LOG_INDEX], "{:#?}", found.checks);
        assert_eq!(found.facts.signer, Some(world.artifact.key_id()));
        seals.rotate_left(1);
    }
}

#[test]
fn names_that_nobody_asked_for_were_not_checked() {
    let world = World::new(0);
    let ask = |name, claimed| {
        let expectation = Expectation { name, claimed_name: claimed, ..Expectation::default() };
        examine_seal(&world.seal, &SUBJECTS, &world.trust, &expectation, NOW).checks
    };
    for claimed in [None, Some("tool")] {
        let checks = ask(None, claimed);
        let check = find(&checks, id::STATEMENT_NAME);
        assert_eq!(check.status, CheckStatus::Skipped);
        assert!(check.detail.starts_with("none in particular was asked for"), "{check}");
        assert_eq!(status(&checks, id::STATEMENT_VERSION), CheckStatus::Skipped);
    }
    assert_eq!(status(&ask(Some("tool"), None), id::STATEMENT_NAME), CheckStatus::Passed);
    // A bundle that calls itself otherwise than its seal does.
    assert_eq!(failures(&ask(None, Some("other"))), [id::STATEMENT_NAME]);
    assert_eq!(failures(&ask(Some("tool"), Some("other"))), [""; 0], "what was asked for is what counts");
}

#[test]
fn the_signed_list_of_modules_is_compared_where_the_index_is_at_hand() {
    let world = World::new(0);
    let ask = |modules: Option<ModuleList>, modules_root| {
        let subjects = SubjectDigests { modules, modules_root, ..SUBJECTS };
        let checks = examine_seal(&world.seal, &subjects, &world.trust, &Expectation::default(), NOW).checks;
        find(&checks, id::STATEMENT_MODULES).clone()
    };
    let id = "0123456789abcdef0123456789abcdef01234567";
    assert_eq!(ask(None, None).status, CheckStatus::Skipped);
    assert_eq!(ask(Some(ModuleList::of([id])), Some(MODULES)).status, CheckStatus::Passed);
    assert_eq!(ask(Some(ModuleList::of([id])), Some([0; 32])).status, CheckStatus::Failed);
    let other = ask(Some(ModuleList::of([id.replacen('0', "1", 1)])), None);
    assert_eq!(other.status, CheckStatus::Failed);
    // printf '0123456789abcdef0123456789abcdef01234567\n' | sha256sum
    let sha256 = "3d51eb31d2eaa0c0163e0e6e240f4370d06d484c91f4db87d14778c6140c67e3";
    assert_eq!(other.found, format!("1 debug ids with sha256 {sha256}"));
    assert_eq!(ask(Some(ModuleList { count: 2, ..ModuleList::of([id]) }), None).status, CheckStatus::Failed);
}

#[test]
fn each_of_several_fragments_stands_for_its_own_seal() {
    let mut world = World::new(3);
    let second = ArtifactKey::generate().unwrap();
    let by_second = seal(&world.statement, &second, &mut world.log).unwrap();
    world.log.append(b"later").unwrap();
    let both = |policy: &mut PolicyDocument| {
        policy.threshold = 2;
        policy.keys.push(PolicyKeyDocument::new(second.public(), &["tool".into()], Some(NOW)));
    };
    let trust = with_policy(&world, both, std::slice::from_ref(world.log.identity())).unwrap();
    // Without its own proof a seal needs the fragment.
    let without = |seal: &[u8]| {
        let mut bundle = SigstoreBundle::parse(seal).unwrap();
        bundle.entry.hashes.clear();
        bundle.to_json()
    };
    let fragment = |index| world.log.fragment(index).unwrap().to_json();
    let judge = |seals: &[Vec<u8>], fragments: &[Vec<u8>]| {
        let expectation = Expectation { fragments, ..Expectation::default() };
        failures(&examine_seals(seals, &SUBJECTS, &trust, &expectation, NOW).checks)
    };
    let (one, two) = (world.seal.clone(), by_second);
    assert_eq!(judge(&[one.clone(), two.clone()], &[]), [""; 0]);
    assert_eq!(judge(&[one.clone(), two.clone()], &[fragment(3)]), [""; 0], "the other keeps its own path");
    let bare = [without(&one), without(&two)];
    assert_eq!(judge(&bare, &[fragment(4), fragment(3)]), [""; 0]);
    assert_eq!(judge(&bare, &[fragment(3)]), [id::TRUST_THRESHOLD]);
    // One that is for none of them, or is none, does not pass unnoticed.
    assert_eq!(judge(&[one.clone(), two.clone()], &[fragment(0)]), [id::LOG_INCLUSION]);
    assert_eq!(judge(&[one, two], &[fragment(3), b"{}".to_vec()]), [id::TRUST_THRESHOLD]);
}

#[test]
fn no_failure_has_one_pair_of_sides_within_another() {
    let world = World::new(4);
    let mut all: Vec<Check> = Vec::new();
    let mut see = |seal: &[u8]| all.extend(world.examine(seal).checks);
    for position in (0..world.seal.len()).step_by(3) {
        let mut changed = world.seal.clone();
        changed[position] ^= 1;
        see(&changed);
        see(&world.seal[..position]);
    }
    let note = "/verificationMaterial/tlogEntries/0/inclusionProof/checkpoint/envelope";
    let good = world.seal_json().pointer(note).unwrap().as_str().unwrap().to_owned();
    let (first, rest) = good.split_once('\n').unwrap();
    for text in
        [format!("other.example\n{rest}"), format!("{first}\n+{rest}"), good.replace('\u{2014}', "-"), String::new()]
    {
        let mut seal = world.seal_json();
        *seal.pointer_mut(note).unwrap() = text.into();
        see(seal.to_string().as_bytes());
    }
    let mut hashes = SigstoreBundle::parse(&world.seal).unwrap();
    hashes.entry.hashes.pop();
    see(&hashes.to_json());
    let failed: Vec<&Check> = all.iter().filter(|check| check.is_failed()).collect();
    assert!(failed.len() > 1000);
    for check in &failed {
        // The JSON reader's own words may have one of both.
        let nested = check.found.contains("expected ") && check.found.contains(", found ");
        assert!(!check.expected.starts_with("expected ") && !nested, "{check}");
        assert!(!check.expected.is_empty() && !check.found.is_empty(), "{check:?}");
    }
    let origin =
        failed.iter().find(|check| check.id == id::LOG_ORIGIN && check.found.contains("other.example")).unwrap();
    assert_eq!(origin.to_string(), format!("log.origin failed: expected the origin {first}, found \"other.example\""));
}
