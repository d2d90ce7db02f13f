//! Against a real Rekor v1, which `tests/certification/rekor_v1.py` starts.
#![cfg(feature = "online")]
use crate::support;
use std::path::Path;

use symseal_seal::trust::policy::PolicyLogDocument;
use symseal_seal::{EntryKind, Expectation, LogIdentity, LogPublicKey, SigstoreBundle, examine_seal};
use symseal_sealer::{AnchorError, RekorLog, RekorVersion, SealError, seal};

use crate::support::rekor::cosign_accepts;
use crate::support::{NOW, SUBJECTS, World, failures, with_policy};

/// URL and identity of the server, if there is one.
fn server() -> Option<(String, LogIdentity)> {
    let variable = |name: &str| std::env::var(format!("SYMSEAL_REKOR_V1_{name}")).ok();
    let Some(url) = variable("URL") else {
        println!("SKIP rekor-v1: tests/certification/rekor_v1.py starts the servers");
        return None;
    };
    let pem = std::fs::read_to_string(Path::new(&variable("KEY").unwrap())).unwrap();
    let key = LogPublicKey::from_pem(&pem).unwrap();
    Some((url, LogIdentity { origin: variable("ORIGIN").unwrap().parse().unwrap(), key }))
}

#[test]
fn a_seal_through_rekor_v1_verifies_offline_and_a_duplicate_is_found_again() {
    let Some((url, identity)) = server() else { return };
    let world = World::new(0);
    let document = PolicyLogDocument::new(&identity, "a Rekor v1", Some(NOW));
    let trust = with_policy(&world, |policy| policy.logs = vec![document], std::slice::from_ref(&identity)).unwrap();
    // The server's clock is the machine's, so the time of verification is, too.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let at = symseal_seal::UtcSeconds(i64::try_from(now).unwrap().max(NOW.0));
    let client = |version| RekorLog::new(&url, version, vec![identity.clone()]).unwrap();
    let mut seals = Vec::new();
    for (version, api) in
        [("1.0", Some(RekorVersion::V1)), ("1.1", None), ("1.0", Some(RekorVersion::V1)), ("1.1", None)]
    {
        let sealed = seal(&support::statement("tool", version), &world.artifact, &mut client(api)).unwrap();
        let failed = failures(&examine_seal(&sealed, &SUBJECTS, &trust, &Expectation::default(), at).checks);
        assert!(failed.is_empty(), "{version}: {failed:?}");
        assert_ne!(cosign_accepts(&world, &identity, &sealed), Some(false));
        seals.push(SigstoreBundle::parse(&sealed).unwrap());
    }
    // The third is the first again, the fourth the second: 409 and Location.
    for (first, again) in [(0, 2), (1, 3)] {
        assert_eq!(seals[first].entry.log_index, seals[again].entry.log_index);
        // Signed anew each time, and of the same time.
        let time = |n: usize| match &seals[n].entry.kind {
            EntryKind::Dsse(signed) => signed.integrated_time,
            other => panic!("{other:?}"),
        };
        assert_eq!(time(first), time(again));
    }
    assert_ne!(seals[0].entry.log_index, seals[1].entry.log_index);

    // Asked as v2 it does not know the path.
    let error = seal(&world.statement, &world.artifact, &mut client(Some(RekorVersion::V2))).unwrap_err();
    assert!(matches!(error, SealError::Anchor(AnchorError::Refused { status: 404, .. })), "{error}");
    // Another key is pinned.
    let other = symseal_sealer::ArtifactKey::generate().unwrap().public().clone();
    let other = LogIdentity { key: LogPublicKey::Ecdsa(other), ..identity.clone() };
    let mut unpinned = RekorLog::new(&url, Some(RekorVersion::V1), vec![other]).unwrap();
    let error = seal(&support::statement("tool", "2"), &world.artifact, &mut unpinned).unwrap_err();
    assert!(matches!(error, SealError::Anchor(AnchorError::UnknownLog { .. })), "{error}");
    // Another tree of the same key.
    let shard = LogIdentity { origin: "rekor.local - 1".parse().unwrap(), ..identity };
    let mut wrong_tree = RekorLog::new(&url, Some(RekorVersion::V1), vec![shard]).unwrap();
    let error = seal(&support::statement("tool", "3"), &world.artifact, &mut wrong_tree).unwrap_err();
    assert!(matches!(error, SealError::Anchor(AnchorError::Wrong { .. })), "{error}");
}
