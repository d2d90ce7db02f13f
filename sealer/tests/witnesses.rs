//! Having a log's checkpoint cosigned: by witnesses that do as the specification says, and by servers that do not.
#![cfg(feature = "online")]
use std::io::Write as _;
use std::time::{Duration, Instant};

use symseal_seal::trust::PolicyLog;
use symseal_seal::trust::policy::WitnessDocument;
use symseal_seal::{Expectation, SealVerification, SigstoreBundle, Trust, UtcSeconds, Witness, examine_seal};
use symseal_sealer::{
    AnchorError, ArtifactKey, NoWitnesses, RekorLog, RekorVersion, SealError, TransparencyLog, WitnessUrl,
    WitnessedLog, Witnesses, seal,
};

use crate::support::rekor::{cosign_accepts, reply, serve, serve_bodies};
use crate::support::witness::{TestWitness, keyed, line, now};
use crate::support::{SUBJECTS, World, failures, statement, with_policy};

const LIMIT: Duration = Duration::from_secs(10);

/// The world's policy with these witnesses of its log.
fn policy(world: &World, witnesses: &[&Witness], quorum: u64) -> Trust {
    let document = |one: &&Witness| WitnessDocument { key: one.to_string(), operator: "somebody else".into() };
    let change = |policy: &mut symseal_seal::trust::PolicyDocument| {
        policy.logs[0].witnesses = witnesses.iter().map(document).collect();
        policy.logs[0].witness_quorum = quorum;
    };
    with_policy(world, change, std::slice::from_ref(world.log.identity())).unwrap()
}

fn asked(trust: &Trust, urls: &[&WitnessUrl]) -> Witnesses {
    let urls: Vec<WitnessUrl> = urls.iter().copied().cloned().collect();
    Witnesses::new(&urls, &trust.policy.logs, LIMIT).unwrap()
}

/// Seals release `version`; the seal, and the witnesses that gave nothing.
fn sealed(
    version: &str,
    key: &ArtifactKey,
    log: &mut dyn TransparencyLog,
    witnesses: &Witnesses,
) -> Result<(Vec<u8>, Vec<String>), AnchorError> {
    let mut log = WitnessedLog::new(log, witnesses);
    match seal(&statement("tool", version), key, &mut log) {
        Ok(seal) => Ok((seal, log.failed().iter().map(|(url, error)| format!("{url}: {error}")).collect())),
        Err(SealError::Anchor(error)) => Err(error),
        Err(error) => panic!("{error}"),
    }
}

fn examined(trust: &Trust, seal: &[u8]) -> SealVerification {
    examine_seal(seal, &SUBJECTS, trust, &Expectation::default(), UtcSeconds(i64::try_from(now()).unwrap()))
}

#[test]
fn two_witnesses_cosign_what_a_log_gives_and_one_is_not_enough_for_two() {
    let mut world = World::new(0);
    let identity = world.log.identity().clone();
    // The names in the other order than the URLs: the lines are sorted by name.
    let (b, a) = (TestWitness::start("b.example", identity.clone()), TestWitness::start("a.example", identity));
    let (one, two) = (policy(&world, &[&b.witness], 1), policy(&world, &[&a.witness, &b.witness], 2));
    let (plain, bundle) = (world.seal.clone(), SigstoreBundle::parse(&world.seal).unwrap());
    let (by_both, failed) = sealed("1.0", &world.artifact, &mut world.log, &asked(&two, &[&b.url, &a.url])).unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    // The same seal but for the lines of the checkpoint.
    let cosigned = SigstoreBundle::parse(&by_both).unwrap();
    let lines = cosigned.entry.checkpoint.strip_prefix(&bundle.entry.checkpoint).unwrap();
    let names: Vec<&str> = lines.lines().map(|line| line.split(' ').nth(1).unwrap()).collect();
    assert_eq!(names, ["a.example", "b.example"]);
    let mut without = cosigned;
    without.entry.checkpoint = bundle.entry.checkpoint;
    assert_eq!(without.to_json(), plain);
    let found = examined(&two, &by_both);
    assert!(!failures(&found.checks).contains(&"log.witnesses"), "{:?}", found.checks);
    assert!(failures(&examined(&two, &plain).checks).contains(&"log.witnesses"));
    // Another verifier passes over the lines.
    assert_ne!(cosign_accepts(&world, world.log.identity(), &by_both), Some(false));
    let (by_one, _) = sealed("1.0", &world.artifact, &mut world.log, &asked(&one, &[&b.url])).unwrap();
    assert!(failures(&examined(&two, &by_one).checks).contains(&"log.witnesses"));

    // Releases later the witnesses get proofs, over the edge of a tile too.
    for n in 0..300 {
        world.log.append(format!("entry {n}").as_bytes()).unwrap();
        if n % 50 == 7 {
            let version = format!("2.{n}");
            let urls = if n < 100 { vec![&a.url] } else { vec![&a.url, &b.url] };
            let trust = policy(&world, &[&a.witness, &b.witness], urls.len() as u64);
            let (_, failed) = sealed(&version, &world.artifact, &mut world.log, &asked(&trust, &urls)).unwrap();
            assert!(failed.is_empty(), "{failed:?}");
        }
    }
    assert_eq!(a.seen.lock().unwrap().0, b.seen.lock().unwrap().0);
}

#[test]
fn a_witness_that_is_missing_is_warned_of_or_keeps_the_bundle_unsealed() {
    let mut world = World::new(0);
    let identity = world.log.identity().clone();
    let good = TestWitness::start("good.example", identity.clone());
    let other = TestWitness::start("other.example", identity);
    let strange = TestWitness::start("good.example", world.log.identity().clone());
    let unknowing = TestWitness::start("w.example", other_log());
    let down: WitnessUrl = "http://127.0.0.1:9".parse().unwrap();
    let one = policy(&world, &[&good.witness, &other.witness], 1);
    let two = policy(&world, &[&good.witness, &other.witness], 2);
    for (url, reasons) in [
        (&down, &["127.0.0.1:9"][..]),
        // The right name and another key.
        (&strange.url, &["expected a cosignature by good.example+", "found good.example+", "does not name"]),
        (&unknowing.url, &["404", "no log of this origin"]),
    ] {
        let (_, failed) = sealed("1.0", &world.artifact, &mut world.log, &asked(&one, &[&good.url, url])).unwrap();
        assert_eq!(failed.len(), 1, "{failed:?}");
        let error = sealed("1.0", &world.artifact, &mut world.log, &asked(&two, &[&good.url, url])).unwrap_err();
        assert!(matches!(error, AnchorError::Witnesses { quorum: 2, .. }), "{error}");
        for part in reasons.iter().copied().chain([&*url.to_string(), "found 1 (good.example)", "nothing was sealed"]) {
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
    }
    // One witness at two places is one.
    let again: WitnessUrl = format!("{}/", good.url).parse().unwrap();
    assert_eq!(again, good.url);
    assert!(sealed("1.0", &world.artifact, &mut world.log, &asked(&two, &[&good.url, &again])).is_err());
    // A later try completes it, under the same entry.
    let size = world.log.size();
    sealed("1.0", &world.artifact, &mut world.log, &asked(&two, &[&good.url, &other.url])).unwrap();
    assert_eq!(world.log.size(), size);
    // Nobody to ask is said before anything is signed.
    let logs: Vec<PolicyLog> = world.trust.policy.logs.clone();
    let none = Witnesses::new(std::slice::from_ref(&good.url), &logs, LIMIT).unwrap_err();
    assert!(matches!(&none, NoWitnesses::Unnamed { log } if log.contains("log-")), "{none}");
}

/// A log that is not the world's.
fn other_log() -> symseal_seal::LogIdentity {
    symseal_sealer::LogKey::generate().unwrap().identity(&"other.example".parse().unwrap()).unwrap()
}

#[test]
fn a_log_that_a_witness_has_seen_more_of_or_otherwise_seals_nothing() {
    let mut world = World::new(3);
    let witness = TestWitness::start("w.example", world.log.identity().clone());
    let fine = TestWitness::start("fine.example", world.log.identity().clone());
    let trust = policy(&world, &[&witness.witness, &fine.witness], 1);
    let witnesses = asked(&trust, &[&witness.url, &fine.url]);
    let (size, root) = (world.log.size(), world.log.root());
    for (seen, reason) in [
        ((size + 5, root), format!("at most {size} entries, found one that has seen {}", size + 5)),
        ((size, [7; 32]), format!("found one that has seen {size} others")),
        ((size - 1, [7; 32]), format!("found one that has seen {} others", size - 1)),
    ] {
        *witness.seen.lock().unwrap() = seen;
        // Also where enough others cosign: this is evidence, and no witness that is missing.
        let error = sealed("1.0", &world.artifact, &mut world.log, &witnesses).unwrap_err();
        assert!(matches!(error, AnchorError::SecondHistory { .. }), "{error}");
        for part in [&*reason, "put back from a backup", "nothing was sealed", &witness.url.to_string()] {
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
    }
}

#[test]
fn a_log_that_grew_meanwhile_gives_a_newer_checkpoint_to_cosign() {
    let mut world = World::new(2);
    let early = SigstoreBundle::parse(&world.seal).unwrap();
    for n in 0..300 {
        world.log.append(format!("meanwhile {n}").as_bytes()).unwrap();
    }
    // A Rekor v2 that answers with the entry as it was, and publishes what it has become.
    let json: serde_json::Value = serde_json::from_slice(&world.seal).unwrap();
    let entry = json["verificationMaterial"]["tlogEntries"][0].to_string();
    let directory = world.path("log");
    let url = serve(move |method, path, stream| match (method, path.strip_prefix("/api/v2/")) {
        ("POST", Some("log/entries")) => reply(stream, 201, "", entry.as_bytes()),
        ("GET", Some(file)) => match std::fs::read(directory.join(file)) {
            Ok(bytes) => reply(stream, 200, "", &bytes),
            Err(_) => reply(stream, 404, "", b""),
        },
        _ => reply(stream, 404, "", b""),
    });
    let identity = world.log.identity().clone();
    let (ahead, fresh) =
        (TestWitness::start("ahead.example", identity.clone()), TestWitness::start("fresh.example", identity.clone()));
    let newest = (world.log.size(), world.log.root());
    let trust = policy(&world, &[&ahead.witness, &fresh.witness], 2);
    let witnesses = asked(&trust, &[&ahead.url, &fresh.url]);
    let mut rekor = RekorLog::new(&url, Some(RekorVersion::V2), vec![identity.clone()]).unwrap();
    // Nobody has seen more: the checkpoint of the answer is cosigned.
    let (first, _) = sealed("1.0", &world.artifact, &mut rekor, &witnesses).unwrap();
    assert_eq!(SigstoreBundle::parse(&first).unwrap().entry.proof_size, early.entry.proof_size);
    // One has: both cosign the newest one, the other after a proof from the tiles.
    *ahead.seen.lock().unwrap() = newest;
    let (second, failed) = sealed("1.0", &world.artifact, &mut rekor, &witnesses).unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    let second_entry = SigstoreBundle::parse(&second).unwrap().entry;
    assert_eq!((second_entry.proof_size, second_entry.log_index), (newest.0, early.entry.log_index));
    assert_eq!(failures(&examined(&trust, &second).checks), failures(&examined(&trust, &first).checks));
    assert!(!failures(&examined(&trust, &second).checks).contains(&"log.inclusion"));
    assert_eq!(fresh.seen.lock().unwrap().0, newest.0);
    // One that says it has seen more than there is: the others do not wait for it.
    *ahead.seen.lock().unwrap() = (newest.0 + 1, newest.1);
    let error = sealed("1.0", &world.artifact, &mut rekor, &witnesses).unwrap_err();
    assert!(matches!(error, AnchorError::Witnesses { .. }), "{error}");
    let trust = policy(&world, &[&ahead.witness, &fresh.witness], 1);
    let (_, failed) = sealed("1.0", &world.artifact, &mut rekor, &asked(&trust, &[&ahead.url, &fresh.url])).unwrap();
    assert!(failed.len() == 1 && failed[0].contains(&format!("has seen {}", newest.0 + 1)), "{failed:?}");
    // A Rekor v1 has no tiles.
    let v1 = RekorLog::new(&url, Some(RekorVersion::V1), vec![identity]).unwrap();
    let error = v1.consistency(1, 2).unwrap_err();
    assert!(matches!(error, AnchorError::Unproved { .. }) && error.to_string().contains("no tiles"), "{error}");
}

#[test]
fn answers_of_another_kind_are_bounded_and_told() {
    let mut world = World::new(1);
    let (known, key) = keyed("known.example");
    let trust = policy(&world, &[&known], 1);
    let text = symseal_seal::note::SignedNote::parse(world.log.checkpoint()).unwrap().text;
    let stub = |status: u16, headers: &'static str, body: Vec<u8>| {
        serve(move |_, _, stream| reply(stream, status, headers, &body))
    };
    let size = "Content-Type: text/x.tlog.size\r\n";
    let endless = serve(|_, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        while stream.write_all(&[b'a'; 4096]).is_ok() {}
    });
    let trickle = serve(|_, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        while stream.write_all(b"a").is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let sizes = std::sync::atomic::AtomicU64::new(0);
    let turns = serve(move |_, _, stream| {
        let turn = sizes.fetch_add(1, std::sync::atomic::Ordering::SeqCst) % 2 + 1;
        reply(stream, 409, "Content-Type: text/x.tlog.size\r\n", format!("{turn}\n").as_bytes());
    });
    let elsewhere = serve_bodies(|_, _, _, _| panic!("a redirection was followed"));
    let redirect = serve(move |_, _, stream| reply(stream, 307, &format!("Location: {elsewhere}\r\n"), b""));
    let changed = line(&known, &key, now(), &text.replace("\n2\n", "\n3\n"));
    let late = line(&known, &key, now() + 7 * 86_400, &text);
    for (url, part) in [
        (endless, "at most 65536 bytes, found more"),
        (trickle, "no answer within 2 seconds"),
        (turns, "within 4 requests, found status 409 each time"),
        (redirect, "307: redirections are not followed"),
        (stub(200, "", b"<html>hello</html>\n".to_vec()), "expected signature lines"),
        (stub(200, "", Vec::new()), "expected signature lines"),
        (stub(200, "", changed.into_bytes()), "which does not verify"),
        (stub(200, "", late.into_bytes()), "no time to have seen it"),
        (stub(200, "", line(&known, &key, 0, &text).into_bytes()), "no time to have seen it"),
        (stub(409, "", b"1\n".to_vec()), "no media type"),
        (stub(409, size, b"one\n".to_vec()), "found \"one\""),
        (stub(409, size, b"0\n".to_vec()), "within 4 requests"),
        (stub(403, "", Vec::new()), "403: it knows another key"),
        (stub(422, "", Vec::new()), "422"),
        (stub(500, "", b"out of order".to_vec()), "found 500: \"out of order\""),
    ] {
        let witnesses = Witnesses::new(&[url.parse().unwrap()], &trust.policy.logs, Duration::from_secs(2)).unwrap();
        let started = Instant::now();
        let error = sealed("1.0", &world.artifact, &mut world.log, &witnesses).unwrap_err();
        assert!(matches!(error, AnchorError::Witnesses { .. }) && error.to_string().contains(part), "{part}: {error}");
        assert!(started.elapsed() < Duration::from_secs(8), "{part}");
    }
    // A line by a stranger beside a good one is dropped, and so is a bad one.
    let (stranger, other_key) = keyed("stranger.example");
    let good = line(&known, &key, now(), &text);
    let body = format!("{}{good}{}", line(&stranger, &other_key, now(), &text), line(&known, &other_key, now(), &text));
    let url = stub(200, "", body.into_bytes());
    let witnesses = Witnesses::new(&[url.parse().unwrap()], &trust.policy.logs, LIMIT).unwrap();
    let (seal, failed) = sealed("1.0", &world.artifact, &mut world.log, &witnesses).unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    let checkpoint = SigstoreBundle::parse(&seal).unwrap().entry.checkpoint;
    assert_eq!(checkpoint.strip_prefix(world.log.checkpoint()), Some(&*good));
}
