//! What a verifier remembers, and what it refuses because of that; tile fragments and consistency proofs.

use crate::support::{NOW, SUBJECTS, World, failures, with_policy};
use symseal_seal::checks::id;
use symseal_seal::{
    Check, CheckStatus, ConsistencyProof, Expectation, Seen, SigstoreBundle, TileFragment, Trust, examine_seal,
    examine_seals,
};
use symseal_sealer::{StateDir, TileLog};

/// The seal under a newer checkpoint of the world's log.
fn at_head(world: &World) -> Vec<u8> {
    let mut bundle = SigstoreBundle::parse(&world.seal).unwrap();
    let found = world.log.find(&bundle.entry.canonicalized_body).unwrap().unwrap();
    bundle.entry.proof_size = found.size;
    bundle.entry.proof_root = found.root;
    bundle.entry.hashes = found.proof;
    bundle.entry.checkpoint = found.checkpoint;
    bundle.to_json()
}

fn judge(seal: &[u8], trust: &Trust, seen: &Seen, proofs: &[ConsistencyProof]) -> (Vec<Check>, Option<Seen>) {
    let expectation = Expectation { seen: Some(seen), consistency: proofs, ..Expectation::default() };
    let found = examine_seal(seal, &SUBJECTS, trust, &expectation, NOW);
    let mut after = seen.clone();
    after.record(trust, &found.checkpoints, proofs);
    let holds = found.holds();
    (found.checks, holds.then_some(after))
}

fn freshness(checks: &[Check]) -> &Check {
    checks.iter().find(|check| check.id == id::LOG_FRESHNESS).unwrap()
}

#[test]
fn trees_of_another_size_need_a_consistency_proof_and_only_larger_ones_are_refused_without() {
    let mut world = World::new(5);
    let (old, small) = (world.seal.clone(), world.log.size());
    let (checks, seen) = judge(&old, &world.trust, &Seen::default(), &[]);
    assert_eq!(freshness(&checks).status, CheckStatus::Passed, "{checks:#?}");
    let seen = seen.unwrap();
    assert_eq!(Seen::parse(&seen.to_json()), Ok(seen.clone()));
    for n in 0..300 {
        world.log.append(format!("later {n}").as_bytes()).unwrap();
    }
    let new = at_head(&world);
    // Not checked, and the policy takes it.
    let (checks, after) = judge(&new, &world.trust, &seen, &[]);
    let check = freshness(&checks);
    assert_eq!(check.status, CheckStatus::Skipped);
    assert!(check.detail.starts_with("not checked: 306 entries, 6 seen before"), "{check}");
    // Nothing says that it is of the history that was seen: a second time it is checked no better.
    let after = after.unwrap();
    assert_eq!(Seen::parse(&after.to_json()), Ok(after.clone()));
    let (checks, again) = judge(&new, &world.trust, &after, &[]);
    assert!(freshness(&checks).detail.starts_with("not checked: 306 entries, 6 seen before"), "{checks:#?}");
    assert_eq!(again, Some(after));
    // Or the policy asks for a proof.
    let identity = std::slice::from_ref(world.log.identity());
    let require = |policy: &mut symseal_seal::trust::PolicyDocument| {
        policy.version = 2;
        policy.require_consistency = true;
    };
    let strict = with_policy(&world, require, identity).unwrap();
    assert_eq!(failures(&judge(&new, &strict, &seen, &[]).0), [id::LOG_FRESHNESS]);
    let proof = world.log.consistency(small, world.log.size()).unwrap();
    let file = ConsistencyProof::to_file(std::slice::from_ref(&proof));
    assert_eq!(ConsistencyProof::parse_file(&file).as_deref(), Ok(std::slice::from_ref(&proof)));
    let (checks, after) = judge(&new, &strict, &seen, std::slice::from_ref(&proof));
    assert!(after.is_some(), "{checks:#?}");
    assert!(freshness(&checks).found.contains("consistent with 6 seen before"));
    // A proof that is given must hold, whichever tree is the older one.
    let mut wrong = proof.clone();
    wrong.hashes[0] = [0; 32];
    assert_eq!(failures(&judge(&new, &world.trust, &seen, &[wrong.clone()]).0), [id::LOG_FRESHNESS]);
    let (_, newest) = judge(&new, &strict, &Seen::default(), &[]);
    let newest = newest.unwrap();
    assert_eq!(failures(&judge(&old, &strict, &newest, &[wrong]).0), [id::LOG_FRESHNESS]);
    // The old bundle after the newer one is normal, and no proof of anything, also where the policy is strict.
    let (checks, after) = judge(&old, &strict, &newest, &[]);
    assert_eq!(freshness(&checks).status, CheckStatus::Skipped);
    assert!(freshness(&checks).detail.starts_with("not checked: 6 entries, 306 seen before"), "{checks:#?}");
    assert!(after.is_some());
    let (checks, _) = judge(&old, &strict, &newest, std::slice::from_ref(&proof));
    assert!(freshness(&checks).found.contains("consistent with 306 seen before"), "{checks:#?}");
    // One of another pair, or of another log, is none.
    let other = ConsistencyProof { from: 7, ..proof.clone() };
    let elsewhere = ConsistencyProof { origin: "other.example".into(), ..proof };
    assert_eq!(freshness(&judge(&new, &world.trust, &seen, &[other, elsewhere]).0).status, CheckStatus::Skipped);
}

#[test]
fn the_same_size_with_another_root_is_always_refused() {
    // Two histories by the same log: the same key and origin, other entries.
    let world = World::new(5);
    let fork = world.path("fork");
    let origin = world.log.identity().origin.clone();
    let mut forked = TileLog::create(&fork, origin, world.log_key.clone(), &world.path("fork-seen")).unwrap();
    for n in 0..5 {
        forked.append(format!("another {n}").as_bytes()).unwrap();
    }
    let theirs = symseal_sealer::seal(&world.statement, &world.artifact, &mut forked).unwrap();
    assert_eq!(forked.size(), world.log.size());
    let (_, seen) = judge(&world.seal, &world.trust, &Seen::default(), &[]);
    let (checks, after) = judge(&theirs, &world.trust, &seen.clone().unwrap(), &[]);
    assert_eq!(failures(&checks), [id::LOG_FRESHNESS]);
    assert!(freshness(&checks).detail.contains("two histories"));
    assert!(after.is_none());
    // A larger fork is found by the proof that it cannot have.
    forked.append(b"one more").unwrap();
    let mut bundle = SigstoreBundle::parse(&theirs).unwrap();
    let found = forked.find(&bundle.entry.canonicalized_body).unwrap().unwrap();
    (bundle.entry.proof_size, bundle.entry.proof_root) = (found.size, found.root);
    (bundle.entry.hashes, bundle.entry.checkpoint) = (found.proof, found.checkpoint);
    let proof = forked.consistency(6, 7).unwrap();
    let (checks, _) = judge(&bundle.to_json(), &world.trust, &seen.unwrap(), &[proof]);
    assert_eq!(failures(&checks), [id::LOG_FRESHNESS]);
}

/// The same log's key and origin over other entries, with the world's statement sealed at the end.
fn fork(world: &World, name: &str, before: usize) -> Vec<u8> {
    fork_of(world, name, "another", before)
}

fn other_fork(world: &World, name: &str, before: usize) -> Vec<u8> {
    fork_of(world, name, "one more", before)
}

fn fork_of(world: &World, name: &str, entries: &str, before: usize) -> Vec<u8> {
    let origin = world.log.identity().origin.clone();
    let seen = world.path(&format!("{name}-seen"));
    let mut forked = TileLog::create(&world.path(name), origin, world.log_key.clone(), &seen).unwrap();
    for n in 0..before {
        forked.append(format!("{entries} {n}").as_bytes()).unwrap();
    }
    symseal_sealer::seal(&world.statement, &world.artifact, &mut forked).unwrap()
}

#[test]
fn a_fork_that_nothing_proves_is_held_against_nothing_that_is_proved_and_the_honest_log_goes_on() {
    let mut world = World::new(2);
    let require = |policy: &mut symseal_seal::trust::PolicyDocument| policy.require_consistency = true;
    let strict = with_policy(&world, require, std::slice::from_ref(world.log.identity())).unwrap();
    let (_, seen) = judge(&world.seal, &strict, &Seen::default(), &[]);
    let seen = seen.unwrap();
    let smaller = fork(&world, "smaller", 0);
    let (checks, after) = judge(&smaller, &strict, &seen, &[]);
    assert_eq!(freshness(&checks).status, CheckStatus::Skipped, "{checks:#?}");
    let seen = after.unwrap();
    // A larger one, where the policy lets it pass.
    let larger = fork(&world, "larger", 3);
    let (_, lenient) = judge(&world.seal, &world.trust, &Seen::default(), &[]);
    let (checks, after) = judge(&larger, &world.trust, lenient.as_ref().unwrap(), &[]);
    assert_eq!(freshness(&checks).status, CheckStatus::Skipped, "{checks:#?}");
    let lenient = after.unwrap();
    // Another history of that size: which one is true nobody can say yet, but the log signed two.
    let another = other_fork(&world, "another", 3);
    let (checks, _) = judge(&another, &world.trust, &lenient, &[]);
    assert_eq!(failures(&checks), [id::LOG_FRESHNESS]);
    assert!(freshness(&checks).detail.contains("two histories"), "{checks:#?}");
    // The honest log at the sizes of both.
    let small = world.log.consistency(1, 3).unwrap();
    world.log.append(b"one more").unwrap();
    let grown = world.log.consistency(3, 4).unwrap();
    let (checks, after) = judge(&at_head(&world), &strict, &seen, &[small, grown]);
    assert_eq!(failures(&checks), [""; 0], "{checks:#?}");
    let after = after.unwrap();
    assert_ne!(after, seen);
    // It is remembered now: the fork of its size is a second history.
    let (checks, _) = judge(&larger, &strict, &after, &[]);
    assert_eq!(failures(&checks), [id::LOG_FRESHNESS]);
}

#[test]
fn two_histories_in_the_seals_of_one_bundle_are_refused_whichever_of_them_would_hold() {
    let world = World::new(2);
    let honest = world.seal.clone();
    let forked = fork(&world, "beside", 2);
    let (_, seen) = judge(&honest, &world.trust, &Seen::default(), &[]);
    for seals in [[honest.clone(), forked.clone()], [forked, honest.clone()]] {
        for seen in [None, Some(&Seen::default()), seen.as_ref()] {
            let expectation = Expectation { seen, ..Expectation::default() };
            let found = examine_seals(&seals, &SUBJECTS, &world.trust, &expectation, NOW);
            assert_eq!(failures(&found.checks), [id::LOG_FRESHNESS], "{:#?}", found.checks);
            assert!(freshness(&found.checks).detail.contains("two histories"), "{:#?}", found.checks);
        }
    }
    // What was seen is enough, where the bundle has one of them and other seals beside it.
    let larger = fork(&world, "larger", 7);
    let expectation = Expectation { seen: seen.as_ref(), ..Expectation::default() };
    let seals = [b"no seal".to_vec(), honest.clone(), larger];
    let found = examine_seals(&seals, &SUBJECTS, &world.trust, &expectation, NOW);
    assert_eq!(failures(&found.checks), [""; 0], "another size is no second history");
    let checks = examine_seals(&[honest.clone(), honest], &SUBJECTS, &world.trust, &expectation, NOW).checks;
    assert_eq!(failures(&checks), [""; 0]);
}

#[test]
fn what_one_verification_shows_is_remembered_as_far_as_proofs_connect_it() {
    let mut world = World::new(1);
    let mut shown = Vec::new();
    let mut show = |world: &World| {
        let signed = symseal_seal::SignedCheckpoint::parse(world.log.checkpoint()).unwrap();
        shown.push((world.log.identity().clone(), signed.checkpoint));
    };
    show(&world);
    for n in 0..2 {
        world.log.append(format!("later {n}").as_bytes()).unwrap();
        show(&world);
    }
    let mut seen = Seen::default();
    let left_out = seen.record(&world.trust, &shown, &[]);
    assert_eq!(left_out.len(), 2, "{left_out:?}");
    assert!(left_out[0].ends_with("at 3 entries: no proof connects it with 2 seen before"), "{left_out:?}");
    // The proof of the second leads over the third.
    let proofs = [world.log.consistency(3, 4).unwrap(), world.log.consistency(2, 4).unwrap()];
    assert_eq!(seen.record(&world.trust, &shown, &proofs), [""; 0]);
    assert_eq!(seen.record(&world.trust, &shown, &[]), [""; 0]);
}

#[test]
fn a_state_never_grows_beyond_what_is_read_back() {
    let world = World::new(0);
    let log = world.log.identity().clone();
    let mut seen = Seen::default();
    // A log that signs a size that no log has.
    for size in [1 << 53, u64::MAX] {
        let huge = symseal_seal::Checkpoint { origin: log.origin.to_string(), size, root: [7; 32], extensions: vec![] };
        let left_out = seen.record(&world.trust, &[(log.clone(), huge)], &[]);
        assert!(left_out[0].contains("no log has so many entries"), "{left_out:?}");
    }
    let found = examine_seal(&world.seal, &SUBJECTS, &world.trust, &Expectation::default(), NOW).checkpoints;
    assert_eq!(seen.record(&world.trust, &found, &[]), [""; 0]);
    // More logs and more trust directories than are read.
    for n in 0..1100 {
        let origin = format!("log-{n}.example").parse().unwrap();
        let other = (symseal_seal::LogIdentity { origin, key: log.key.clone() }, found[0].1.clone());
        let left_out = seen.record(&world.trust, &[other], &[]);
        assert_eq!(left_out.is_empty(), n < 1023, "{n}: {left_out:?}");
    }
    assert_eq!(Seen::parse(&seen.to_json()), Ok(seen.clone()));
    let mut value: serde_json::Value = serde_json::from_slice(&seen.to_json()).unwrap();
    let trusts = value["trusts"].as_object_mut().unwrap();
    let mut one = trusts.values().next().unwrap().clone();
    one["logs"] = serde_json::json!({});
    for n in 0..1023 {
        trusts.insert(format!("{n:064x}"), one.clone());
    }
    let full = Seen::parse(&serde_json::to_vec(&value).unwrap()).unwrap();
    let stranger = World::new(0);
    let mut after = full.clone();
    let left_out = after.record(&stranger.trust, &[], &[]);
    assert!(left_out[0].contains("room for no more"), "{left_out:?}");
    assert_eq!(after, full);
    // What no program of ours wrote is refused, not cut.
    let checkpoints: Vec<_> =
        (0..257).map(|n| serde_json::json!({"size": n, "root": symseal_seal::encoding::to_base64(&[1; 32])})).collect();
    value["trusts"].as_object_mut().unwrap().values_mut().next().unwrap()["logs"] =
        serde_json::json!({ "log": checkpoints });
    assert!(Seen::parse(&serde_json::to_vec(&value).unwrap()).is_err());
}

#[test]
fn an_older_policy_and_a_second_one_of_the_same_version_are_refused() {
    let world = World::new(0);
    let identity = std::slice::from_ref(world.log.identity());
    let version = |version, operator: &str| {
        let change = |policy: &mut symseal_seal::trust::PolicyDocument| {
            policy.version = version;
            policy.logs[0].operator = operator.into();
        };
        with_policy(&world, change, identity).unwrap()
    };
    let (_, seen) = judge(&world.seal, &version(2, "a"), &Seen::default(), &[]);
    let seen = seen.unwrap();
    let policy = |trust: &Trust| failures(&judge(&world.seal, trust, &seen, &[]).0);
    assert_eq!(policy(&version(2, "a")), [""; 0]);
    assert_eq!(policy(&version(3, "b")), [""; 0]);
    assert_eq!(policy(&version(1, "a")), [id::TRUST_POLICY_VERSION]);
    assert_eq!(policy(&version(2, "b")), [id::TRUST_POLICY_VERSION]);
    // Another trust directory has a memory of its own.
    let other = World::new(0);
    assert_eq!(failures(&judge(&other.seal, &other.trust, &seen, &[]).0), [""; 0]);
}

#[test]
fn a_state_directory_is_made_read_back_and_never_taken_for_empty() {
    let world = World::new(1);
    let state = StateDir::new(&world.path("deep/state"));
    assert_eq!(state.load().unwrap(), Seen::default());
    let found = examine_seal(&world.seal, &SUBJECTS, &world.trust, &Expectation::default(), NOW);
    state.record(|seen| seen.record(&world.trust, &found.checkpoints, &[])).unwrap();
    let seen = state.load().unwrap();
    assert_ne!(seen, Seen::default());
    let (checks, _) = judge(&world.seal, &world.trust, &seen, &[]);
    assert!(freshness(&checks).found.contains("as seen before"));
    let file = world.path("deep/state/seen.json");
    let bytes = std::fs::read(&file).unwrap();
    for length in 0..bytes.len() {
        std::fs::write(&file, &bytes[..length]).unwrap();
        assert!(state.load().is_err(), "{length}");
        assert!(state.record(|_| {}).is_err(), "{length}");
    }
}

#[test]
fn a_tile_fragment_stands_for_the_audit_path() {
    let mut world = World::new(270);
    for n in 0..40 {
        world.log.append(format!("later {n}").as_bytes()).unwrap();
    }
    let fragment = world.log.fragment(270).unwrap();
    let names: Vec<String> = fragment.tiles.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["tile/0/001.p/55", "tile/1/000.p/1"]);
    let json = fragment.to_json();
    let judge = |fragment: &[u8]| {
        let fragments = [fragment.to_vec()];
        let expectation = Expectation { fragments: &fragments, ..Expectation::default() };
        examine_seal(&world.seal, &SUBJECTS, &world.trust, &expectation, NOW)
    };
    let found = judge(&json);
    assert!(found.holds(), "{:#?}", found.checks);
    assert_eq!(found.facts.tree_size, Some(311));
    // The fragment's checkpoint is judged like any other.
    let mut signed = fragment.clone();
    // The whole line: an origin is minted at random and may hold these digits too.
    signed.checkpoint = signed.checkpoint.replacen("\n311\n", "\n310\n", 1);
    assert_eq!(failures(&judge(&signed.to_json()).checks), [id::LOG_CHECKPOINT]);
    let refused = |change: &dyn Fn(&mut TileFragment)| {
        let mut changed = fragment.clone();
        change(&mut changed);
        assert_eq!(failures(&judge(&changed.to_json()).checks), [id::LOG_INCLUSION]);
    };
    refused(&|fragment| fragment.index = 269);
    refused(&|fragment| drop(fragment.tiles.pop_first()));
    refused(&|fragment| fragment.tiles.values_mut().next().unwrap()[14][0] ^= 1);
    assert_eq!(failures(&judge(b"{}").checks), [id::LOG_INCLUSION]);
    // Another entry's fragment does not prove this one.
    assert_eq!(failures(&judge(&world.log.fragment(5).unwrap().to_json()).checks), [id::LOG_INCLUSION]);
}

#[test]
fn a_fragment_with_a_forged_leaf_proves_nothing() {
    // The trap: a reader that checks the tiles against the root without the entry's own hash accepts a fragment
    // in which that hash was replaced.
    let world = World::new(300);
    let leaf = symseal_seal::tlog::leaf_hash(b"entry 5");
    let forged = symseal_seal::tlog::leaf_hash(b"forged");
    let fragment = world.log.fragment(5).unwrap();
    let (size, root) = (world.log.size(), world.log.root());
    assert_eq!(fragment.verify(&leaf, size, &root), Ok(()));
    // The forged entry under the true tiles, under tiles with its hash, and the true entry under those.
    assert!(fragment.verify(&forged, size, &root).is_err());
    let mut replaced = fragment.clone();
    let path = "tile/0/000".parse().unwrap();
    replaced.tiles.get_mut(&path).unwrap()[5] = forged;
    assert!(replaced.verify(&forged, size, &root).is_err());
    assert!(replaced.verify(&leaf, size, &root).is_err());
    // With the way up corrected, the root is another.
    let above = symseal_seal::tiles::node_in_tile(&replaced.tiles[&path], 8, 0).unwrap();
    if let Some(tile) = replaced.tiles.get_mut(&"tile/1/000.p/1".parse().unwrap()) {
        tile[0] = above;
    }
    assert!(replaced.verify(&forged, size, &root).is_err());
}

#[test]
fn damaged_fragments_proofs_and_states_are_refused_or_mean_the_same() {
    let world = World::new(4);
    let fragment = world.log.fragment(2).unwrap().to_json();
    let proofs = ConsistencyProof::to_file(&[world.log.consistency(2, 5).unwrap()]);
    let mut seen = Seen::default();
    seen.record(
        &world.trust,
        &examine_seal(&world.seal, &SUBJECTS, &world.trust, &Expectation::default(), NOW).checkpoints,
        &[],
    );
    for input in [fragment, proofs, seen.to_json()] {
        for place in 0..input.len() {
            let _ = TileFragment::parse(&input[..place])
                .map(|read| assert_eq!(TileFragment::parse(&read.to_json()), Ok(read)));
            for bit in [0, 3, 7] {
                let mut changed = input.clone();
                changed[place] ^= 1 << bit;
                if let Ok(read) = TileFragment::parse(&changed) {
                    assert_eq!(TileFragment::parse(&read.to_json()), Ok(read));
                }
                if let Ok(read) = Seen::parse(&changed) {
                    assert_eq!(Seen::parse(&read.to_json()), Ok(read));
                }
                if let Ok(read) = ConsistencyProof::parse_file(&changed) {
                    assert_eq!(ConsistencyProof::parse_file(&ConsistencyProof::to_file(&read)), Ok(read));
                }
            }
        }
    }
    let twice = br#"{"checkpoint":"","index":0,"tiles":{"tile/0/000.p/1":"","tile/0/000.p/1":""}}"#;
    assert!(TileFragment::parse(twice).unwrap_err().to_string().contains("each tile once"));
}
