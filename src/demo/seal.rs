//! Step 2: sign the bundle with a fresh key, and log the signature.

use anyhow::Result;
use symseal_bundle::{Bundle, Digest, LayoutDir};
use symseal_seal::SigstoreBundle;
use symseal_sealer::ArtifactKey;

use super::build::BuiltBundle;
use super::narrator::Narrator;
use super::scene::{self, Scene};
use crate::commands::bundle::seal::seal;
use crate::commands::trust;
use crate::keyring::{self, ARTIFACT_KEY, LOG_KEY, ROOT_KEY};

/// What the seal is called.
pub(super) struct SealedBundle {
    /// `dsse:` and the digest of the envelope.
    pub(super) dsse_ref: Option<String>,
}

pub(super) fn run(scene: &Scene, story: &mut Narrator, built: &BuiltBundle) -> Result<SealedBundle> {
    story.step("Seal", "who says so, and where it is logged");
    let keys = scene.keys();
    let key = keyring::generate(&keys, None)?;
    story.say(format!("artifact key {} (ECDSA P-256, fresh), a root key and a log key beside it", key.key_id()));
    let trust = trust::make(
        &scene.trust(),
        key.public(),
        &[scene::NAME.to_owned()],
        &scene.log(),
        &ArtifactKey::load_pem(&keys.join(ROOT_KEY))?,
        &keys.join(LOG_KEY),
        "the demo itself, on this machine",
        None,
    )?;
    for log in &trust.policy.logs {
        story.say(format!("log {}, id {}", log.identity.origin, log.id));
    }
    let referrer =
        seal(&scene.bundle(), &keys.join(ARTIFACT_KEY), &scene.log(), &keys.join(LOG_KEY), &Default::default())?;
    story.say(format!("seal {referrer} refers to bundle {}", built.built.digest));
    story.proved("DSSE envelope signed over NAME@VERSION and symbol_index.json; its entry stands in the tile log");
    story.say("the log is run by the one who signs and has no witness: it shows tampering only to those who saw an earlier checkpoint");
    Ok(SealedBundle { dsse_ref: dsse_ref(scene, &built.built.digest)? })
}

fn dsse_ref(scene: &Scene, digest: &Digest) -> Result<Option<String>> {
    let bundle = Bundle::open(LayoutDir::open(scene.bundle())?, Some(digest))?;
    let seals = bundle.read_seals()?;
    Ok(seals.first().and_then(|seal| SigstoreBundle::parse(seal).ok()).map(|seal| seal.envelope.reference()))
}
