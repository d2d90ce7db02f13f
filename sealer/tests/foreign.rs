//! Sigstore's rules for everybody's bundles, on our own seals: which check refuses, and that both sides are said.
#![cfg(feature = "foreign")]

use crate::support::{BUNDLE, World};
use symseal_sealer::foreign::{ForeignArtifact, ForeignKey, ForeignRoot, ForeignSigner, Refusal, id, verify_foreign};

fn judge(world: &World, root: &[u8]) -> Result<(), Refusal> {
    let signer = ForeignSigner::Key(ForeignKey::parse(&world.artifact.public().to_pem()).unwrap());
    let root = ForeignRoot::parse(root).unwrap();
    verify_foreign(&world.seal, ForeignArtifact::Sha256(BUNDLE), &signer, &root).map(|_| ())
}

#[test]
fn an_entry_of_a_log_that_the_root_does_not_know_is_refused_by_its_id() {
    let (world, other) = (World::new(2), World::new(0));
    assert_eq!(judge(&world, &world.trust_files[2]), Ok(()));
    let refusal = judge(&world, &other.trust_files[2]).unwrap_err();
    assert_eq!((refusal.check, refusal.found), (id::LOG_ID, world.log.id().to_string()));
    assert_eq!(refusal.expected, format!("the id of a log of the trusted root: {}", other.log.id()));
}

#[test]
fn a_refusal_says_what_was_expected() {
    let mut world = World::new(2);
    let mut seal = world.seal_json();
    *seal.pointer_mut("/dsseEnvelope/payloadType").unwrap() = "text/plain".into();
    world.seal = seal.to_string().into_bytes();
    let refusal = judge(&world, &world.trust_files[2]).unwrap_err();
    assert!(!refusal.expected.is_empty() && !refusal.found.is_empty(), "{refusal:?}");
    assert!(refusal.to_string().contains("expected: ") && refusal.to_string().contains("; found: "), "{refusal}");
}
