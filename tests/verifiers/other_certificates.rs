//! Bundles with certificates of other keys than ECDSA P-256, in a Rekor v1. What keys of one's own sign is in `keys`, and what a
//! Rekor v2 takes in `rekor_v2_entries`.

use serde_json::{Value, json};
use symseal_seal::encoding::to_base64;

use crate::bundles::verdict;
use crate::certificates::{Minted, V01, V02, V03, changed};
use crate::peers::{Asked, ask_all};
use crate::rekor_v1;

impl Minted {
    /// Logs what was signed in the Rekor v1 as a `hashedrekord` with the digest that goes with the key.
    fn by_digest(&self, what: &str, digest: &[u8]) -> Value {
        let algorithm = self.minted[what]["hash"].as_str().unwrap();
        let body = rekor_v1::hashedrekord_by(algorithm, digest, &self.part(what, "signature"), &self.pem(what));
        self.v1.entry("hashedrekord", "0.0.1", &body, self.now())
    }
}

/// Asks us and cosign about the file: the others read P-256 alone, or take SHA-256 for every curve. About a digest alone we
/// say of these keys' messages that the file is wanted.
#[track_caller]
fn as_cosign_says(questions: &[(String, Asked, Option<&str>)]) {
    for (name, asked, expected) in questions {
        assert_eq!(verdict(asked, true).as_deref(), *expected, "{name}");
        if expected.is_none() {
            let without_file = Asked { artifact: None, ..asked.clone() };
            let expected = (!asked.is_dsse()).then_some("bundle.supported");
            assert_eq!(verdict(&without_file, false).as_deref(), expected, "{name}, by its digest");
        }
    }
    let asked: Vec<Asked> = questions.iter().map(|(_, asked, _)| asked.clone()).collect();
    let cosign = ask_all(&asked).into_iter().find(|peer| peer.name == "cosign").unwrap();
    for ((name, _, expected), answer) in questions.iter().zip(cosign.answers.unwrap_or_default()) {
        assert_eq!(answer.is_none(), expected.is_none(), "cosign of {name}: {answer:?}");
    }
}

#[test]
fn certificates_on_p384_and_of_rsa_are_judged_as_cosign_judges_them() {
    for kind in ["P-384", "P-384 with SHA-256", "RSA 2048"] {
        let Some(minted) = Minted::with(kind) else { return };
        let mut questions = Vec::new();
        for media_type in [V01, V02, V03] {
            let digest = minted.part("message", "digest");
            let message = minted.bundle("message", media_type, minted.by_digest("message", &digest), false);
            if media_type == V01 {
                let promised = changed(&message, |bundle| drop(entry(bundle).remove("inclusionProof")));
                questions.push((format!("{kind}, promised"), promised, None));
            }
            questions.push((format!("{kind}, {media_type}"), message, None));
            let envelope = minted.bundle("envelope", media_type, minted.in_v1("envelope", minted.now()), false);
            questions.push((format!("{kind}, envelope, {media_type}"), envelope, None));
        }
        as_cosign_says(&questions);
    }
}

fn entry(bundle: &mut Value) -> &mut serde_json::Map<String, Value> {
    bundle["verificationMaterial"]["tlogEntries"][0].as_object_mut().unwrap()
}

/// What sigstore-rust is given in the place of such an entry must not be what counts.
#[test]
fn an_entry_with_a_long_digest_is_held_to_the_log_and_to_the_bundle_as_it_was_logged() {
    let Some(minted) = Minted::with("P-384") else { return };
    let digest = minted.part("message", "digest");
    let logged = minted.by_digest("message", &digest);
    let good = minted.bundle("message", V03, logged.clone(), false);
    let other = minted.by_digest("message", &minted.part("envelope", "digest"));
    // The form that is read: with the artifact's SHA-256 in the digest's place.
    let signature = minted.part("message", "signature");
    let read = rekor_v1::hashedrekord(&minted.digest("message"), &signature, &minted.pem("message"));
    let read = minted.v1.entry("hashedrekord", "0.0.1", &read, minted.now());
    let with = |field: &str, value: &Value| {
        changed(&good, |bundle| drop(entry(bundle).insert(field.to_owned(), value.clone())))
    };
    let tomorrow = minted.now() + 86_400;
    let body = rekor_v1::hashedrekord_by("sha384", &digest, &signature, &minted.pem("message"));
    let late = minted.v1.entry("hashedrekord", "0.0.1", &body, tomorrow);
    let questions = [
        ("as it is", good.clone(), None),
        ("an entry of another digest", minted.bundle("message", V03, other.clone(), false), Some("log.entry")),
        ("a promise of another entry", with("inclusionPromise", &other["inclusionPromise"]), Some("log.promise")),
        (
            "a promise of the form that is read",
            with("inclusionPromise", &read["inclusionPromise"]),
            Some("log.promise"),
        ),
        ("a proof of another entry", with("inclusionProof", &other["inclusionProof"]), Some("log.inclusion")),
        ("a proof of the form that is read", with("inclusionProof", &read["inclusionProof"]), Some("log.inclusion")),
        ("another time", with("integratedTime", &json!((minted.now() - 1).to_string())), Some("log.promise")),
        ("tomorrow", minted.bundle("message", V03, late, false), Some("log.time")),
        ("an unknown log", with("logId", &json!({"keyId": to_base64(&[0; 32])})), Some("log.id")),
        ("no proof", changed(&good, |bundle| drop(entry(bundle).remove("inclusionProof"))), Some("bundle.form")),
        (
            "no promise, and so no time",
            changed(&good, |bundle| drop(entry(bundle).remove("inclusionPromise"))),
            Some("signed-time"),
        ),
    ];
    let questions = questions.map(|(name, asked, expected)| (name.to_owned(), asked, expected));
    as_cosign_says(&questions);
}
