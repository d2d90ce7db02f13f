//! Against the real Rekor v2, and against servers that answer as no log should.
#![cfg(feature = "online")]
use crate::support;
use std::io::Write as _;
use std::time::{Duration, Instant};

use symseal_seal::{Check, Expectation, LogEntry, SigstoreBundle, examine_seal};
use symseal_sealer::{
    AnchorError, LogKey, RekorLog, RekorVersion, SealError, TileLog, TransparencyLog, anchor_verified, seal,
    sign_statement,
};

use crate::support::rekor::{Rekor, cosign_accepts, reply, serve, serve_files};
use crate::support::{NOW, SUBJECTS, World, failures};

/// Ids of the checks that fail offline, with the Rekor's key pinned by the policy.
fn offline(world: &World, rekor: &Rekor, seal: &[u8]) -> Vec<&'static str> {
    failures(&examine_seal(seal, &SUBJECTS, &rekor.trust(world), &Expectation::default(), NOW).checks)
}

fn anchor_error(result: Result<Vec<u8>, SealError>) -> AnchorError {
    match result {
        Err(SealError::Anchor(error)) => error,
        other => panic!("{other:?}"),
    }
}

const QUICK: [&str; 2] = ["--checkpoint-interval=200ms", "--batch-max-age=50ms"];

#[test]
fn a_seal_through_rekor_v2_verifies_offline() {
    let world = World::new(0);
    let Some(rekor) = Rekor::start(world.directory.path(), &QUICK) else { return };
    for version in ["1.0", "1.1", "1.2"] {
        // The subjects are those of the world; the version tells the statements apart.
        let seal = seal(&support::statement("tool", version), &world.artifact, &mut rekor.client()).unwrap();
        assert!(offline(&world, &rekor, &seal).is_empty(), "{version}");
    }
    // Without a version it is asked, and answers as v2.
    let mut unknown = RekorLog::new(&rekor.url, None, vec![rekor.identity.clone()]).unwrap();
    let sealed = seal(&support::statement("tool", "2.0"), &world.artifact, &mut unknown).unwrap();
    assert_eq!(SigstoreBundle::parse(&sealed).unwrap().entry.log_index, 3);
    // Another verifier says the same, and refuses it under another log's key.
    assert_ne!(cosign_accepts(&world, &rekor.identity, &sealed), Some(false));
    assert_ne!(cosign_accepts(&world, world.log.identity(), &sealed), Some(true));
    // Under the policy of the embedded log, this log is unknown.
    assert!(failures(&world.examine(&sealed).checks).contains(&"log.id"));

    let other = LogKey::generate().unwrap().identity(&rekor.identity.origin).unwrap();
    let mut unpinned = RekorLog::new(&rekor.url, Some(RekorVersion::V2), vec![other]).unwrap();
    let error = anchor_error(seal(&support::statement("tool", "3.0"), &world.artifact, &mut unpinned));
    assert!(matches!(error, AnchorError::UnknownLog { .. }), "{error}");
}

#[test]
fn a_duplicate_is_found_again_in_the_tiles() {
    let world = World::new(0);
    let options = ["--checkpoint-interval=200ms", "--batch-max-age=50ms", "--persistent-antispam"];
    let Some(rekor) = Rekor::start(world.directory.path(), &options) else { return };
    let first = seal(&world.statement, &world.artifact, &mut rekor.client()).unwrap();
    // Enough to fill a tile, so that the proof needs two levels.
    let fillers: Vec<_> = (0..16).map(|n| (n, rekor.client())).collect();
    std::thread::scope(|scope| {
        for (n, mut client) in fillers {
            let artifact = &world.artifact;
            scope.spawn(move || {
                for m in 0..17 {
                    seal(&support::statement("tool", &format!("9.{n}.{m}")), artifact, &mut client).unwrap();
                }
            });
        }
    });
    let files = serve_files(rekor.directory.clone());
    let again = seal(&world.statement, &world.artifact, &mut rekor.client().read_at(&files)).unwrap();
    assert!(offline(&world, &rekor, &again).is_empty());
    let (first, again) = (SigstoreBundle::parse(&first).unwrap(), SigstoreBundle::parse(&again).unwrap());
    assert_eq!(again.entry.log_index, first.entry.log_index);
    assert!(again.entry.proof_size > 256, "{}", again.entry.proof_size);

    // This server does not give its tiles itself, and the error says what to do.
    let error = anchor_error(seal(&world.statement, &world.artifact, &mut rekor.client()));
    assert!(matches!(error, AnchorError::Duplicate { .. }) && error.to_string().contains("--log-read"), "{error}");
    // Tiles and checkpoint of another log.
    let wrong = serve_files(world.path("log"));
    let error = anchor_error(seal(&world.statement, &world.artifact, &mut rekor.client().read_at(&wrong)));
    assert!(matches!(error, AnchorError::Answer { .. }), "{error}");
}

#[test]
fn a_rekor_that_is_killed_leaves_no_seal_and_a_retry_completes_it() {
    let world = World::new(0);
    // The answer waits for a checkpoint, which comes every ten seconds: time to kill it in the middle.
    let slow = ["--checkpoint-interval=10s", "--batch-max-age=50ms", "--persistent-antispam"];
    let Some(mut rekor) = Rekor::start(world.directory.path(), &slow) else { return };
    let mut client = rekor.client();
    let error = std::thread::scope(|scope| {
        // The first entry may be covered by the first checkpoint at once; one of three is not.
        let sealing = scope.spawn(|| {
            let seals = ["1.0", "1.1", "1.2"]
                .map(|version| seal(&support::statement("tool", version), &world.artifact, &mut client));
            seals.into_iter().find_map(Result::err)
        });
        std::thread::sleep(Duration::from_millis(1500));
        rekor.kill();
        sealing.join().unwrap().expect("an interrupted call")
    });
    let SealError::Anchor(error) = error else { panic!("{error}") };
    assert!(matches!(error, AnchorError::Unreachable { .. }) && error.to_string().contains("try again"), "{error}");
    // Down altogether.
    let started = Instant::now();
    let error = anchor_error(seal(&world.statement, &world.artifact, &mut rekor.client()));
    assert!(matches!(error, AnchorError::Unreachable { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(5));

    drop(rekor);
    let quick = ["--checkpoint-interval=200ms", "--batch-max-age=50ms", "--persistent-antispam"];
    let Some(rekor) = Rekor::start(world.directory.path(), &quick) else { return };
    let files = serve_files(rekor.directory.clone());
    for version in ["1.0", "1.1", "1.2"] {
        let mut client = rekor.client().read_at(&files);
        let seal = seal(&support::statement("tool", version), &world.artifact, &mut client).unwrap();
        assert!(offline(&world, &rekor, &seal).is_empty(), "{version}");
    }
}

/// What a Rekor v2 would answer for the world's statement: an entry of our own log, as JSON.
fn answer_of(world: &World, log: &mut TileLog) -> serde_json::Value {
    let sealed = seal(&world.statement, &world.artifact, log).unwrap();
    let sealed: serde_json::Value = serde_json::from_slice(&sealed).unwrap();
    sealed.pointer("/verificationMaterial/tlogEntries/0").unwrap().clone()
}

#[test]
fn what_a_log_answers_is_believed_only_if_it_verifies() {
    let mut world = World::new(3);
    let identity = world.log.identity().clone();
    let mut log = std::mem::replace(&mut world.log, {
        let key = LogKey::generate().unwrap();
        let origin = "log-9.symseal.internal".parse().unwrap();
        TileLog::create(&world.directory.path().join("log2"), origin, key, &world.directory.path().join("seen2"))
            .unwrap()
    });
    let good = answer_of(&world, &mut log);
    let mut other = world.statement.clone();
    other.predicate.release.version = "7".into();
    let envelope = sign_statement(&world.statement, &world.artifact).unwrap();
    let ask = |answer: serde_json::Value| {
        let url = serve(move |_, _, stream| reply(stream, 201, "", answer.to_string().as_bytes()));
        let mut client = RekorLog::new(&url, Some(RekorVersion::V2), vec![identity.clone()]).unwrap();
        anchor_verified(&mut client, &envelope, world.artifact.public())
    };
    let entry: LogEntry = ask(good.clone()).unwrap();
    assert_eq!(entry.log_index, 3);

    // Another envelope's entry, whole and true.
    let elsewhere = {
        let sealed = seal(&support::statement("tool", "7"), &world.artifact, &mut log).unwrap();
        let sealed: serde_json::Value = serde_json::from_slice(&sealed).unwrap();
        sealed.pointer("/verificationMaterial/tlogEntries/0").unwrap().clone()
    };
    let check = |answer: serde_json::Value| match ask(answer) {
        Err(AnchorError::Wrong { check: Check { id, .. }, .. }) => id,
        Err(AnchorError::UnknownLog { .. }) => "unknown log",
        Err(AnchorError::Answer { .. }) => "answer",
        other => panic!("{other:?}"),
    };
    assert_eq!(check(elsewhere.clone()), "log.entry");
    let mut body_of_another = good.clone();
    body_of_another["canonicalizedBody"] = elsewhere["canonicalizedBody"].clone();
    assert_eq!(check(body_of_another), "log.entry");
    let mut proof_of_another = elsewhere;
    proof_of_another["canonicalizedBody"] = good["canonicalizedBody"].clone();
    assert_eq!(check(proof_of_another), "log.inclusion");
    for (pointer, value, expected) in [
        ("/inclusionProof/checkpoint/envelope", serde_json::json!("nothing"), "log.checkpoint"),
        ("/inclusionProof/treeSize", serde_json::json!("5"), "log.inclusion"),
        ("/inclusionProof/hashes", serde_json::json!([]), "log.inclusion"),
        ("/logIndex", serde_json::json!("2"), "log.inclusion"),
        ("/logId/keyId", serde_json::json!("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="), "unknown log"),
        ("/logId/keyId", serde_json::json!("AAAA"), "answer"),
        ("/kindVersion/version", serde_json::json!("0.0.1"), "answer"),
        ("/inclusionProof", serde_json::Value::Null, "answer"),
    ] {
        let mut changed = good.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        assert_eq!(check(changed), expected, "{pointer}");
    }
}

#[test]
fn a_log_that_is_down_slow_or_talks_nonsense_is_an_error_that_says_so() {
    let world = World::new(0);
    let identities = || vec![world.log.identity().clone()];
    let ask = |url: &str, version| {
        let mut log = RekorLog::new(url, version, identities()).unwrap().within(Duration::from_secs(2));
        assert_eq!(log.name(), url);
        anchor_error(seal(&world.statement, &world.artifact, &mut log))
    };
    let v2 = Some(RekorVersion::V2);
    let stub = |status, headers: &'static str, body: &'static [u8]| {
        serve(move |_, _, stream| reply(stream, status, headers, body))
    };
    let free = format!("http://127.0.0.1:{}", support::rekor::free_port());
    let error = ask(&free, v2);
    assert!(matches!(error, AnchorError::Unreachable { .. }), "{error}");
    for version in [v2, Some(RekorVersion::V1), None] {
        for body in [b"".as_slice(), b"{", b"[]", b"{}", b"<html>", b"\xff\xfe", b"{\"a\":{}}"] {
            let error = ask(&stub(201, "", body), version);
            assert!(matches!(error, AnchorError::Answer { .. }), "{body:?}: {error}");
        }
    }
    let error = ask(&stub(500, "", br#"{"code":2,"message":"failed to \u001b[31mintegrate"}"#), v2).to_string();
    assert!(error.contains("500") && error.contains("integrate") && !error.contains('\u{1b}'), "{error}");
    assert!(ask(&stub(405, "", b""), v2).to_string().contains("frozen"));
    assert!(ask(&stub(302, "Location: http://127.0.0.1:1/\r\n", b""), v2).to_string().contains("redirections"));
    // Neither API: it is asked as v1 last.
    assert!(matches!(ask(&stub(404, "", b""), None), AnchorError::Refused { status: 404, .. }));
    // A busy log is asked again, and the limit on the time holds.
    let started = Instant::now();
    let error = ask(&stub(503, "Retry-After: 600\r\n", b""), v2);
    assert!(
        matches!(error, AnchorError::Unreachable { .. }) && error.to_string().contains("within 2 seconds"),
        "{error}"
    );
    let never = serve(|_, _, _| std::thread::sleep(Duration::from_secs(60)));
    assert!(ask(&never, v2).to_string().contains("within 2 seconds"));
    assert!(started.elapsed() < Duration::from_secs(20));
    // An answer that does not end.
    let endless = serve(|_, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 201 X\r\n\r\n");
        while stream.write_all(&[b' '; 65536]).is_ok() {}
    });
    let error = ask(&endless, v2);
    assert!(matches!(error, AnchorError::Answer { .. }) && error.to_string().contains("1 MiB"), "{error}");
    // Duplicates without an index, or with a Location that leads elsewhere.
    assert!(matches!(ask(&stub(409, "", b""), v2), AnchorError::Answer { .. }));
    assert!(matches!(ask(&stub(409, "x-log-index: -1\r\n", b""), v2), AnchorError::Answer { .. }));
    for location in
        ["Location: http://127.0.0.1:1/api/v1/log/entries/aa\r\n", "Location: /api/v1/log/entries/../x\r\n", ""]
    {
        let error = ask(&stub(409, location, b""), Some(RekorVersion::V1));
        assert!(matches!(error, AnchorError::Answer { .. }), "{location:?}: {error}");
    }
    // The embedded log takes what these did not.
    let mut world = world;
    let sealed = seal(&world.statement, &world.artifact, &mut world.log).unwrap();
    assert!(world.examine(&sealed).holds());
}

#[test]
fn a_token_goes_to_the_log_alone_and_not_in_the_clear() {
    let world = World::new(0);
    let identities = || vec![world.log.identity().clone()];
    let log = |url: &str| RekorLog::new(url, None, identities()).unwrap().with_token("secret".into());
    assert!(log("https://log.example").is_ok());
    assert!(log("http://127.0.0.1:3000").is_ok());
    for url in ["http://log.example", "http://10.0.0.1", "http://localhost.example"] {
        assert!(log(url).unwrap_err().to_string().contains("https"), "{url}");
    }
    assert!(RekorLog::new("https://log.example", None, Vec::new()).is_err());
}
