//! The cases of sigstore-conformance, the suite that Sigstore's clients are held to: real bundles of Sigstore's own instances.
//!
//! `tests/peers sigstore-conformance` brings them; they are no part of this tree.

use std::path::PathBuf;

use sha2::{Digest as _, Sha256};

use crate::bundles::verdict;
use crate::peers::{Asked, Signer, cache};
use crate::program::required;

const IDENTITY: &str = "https://github.com/sigstore-conformance/extremely-dangerous-public-oidc-beacon/.github/workflows/extremely-dangerous-oidc-beacon.yml@refs/heads/main";
const ISSUER: &str = "https://token.actions.githubusercontent.com";

fn cases() -> Option<PathBuf> {
    let folder = cache()?.join("sigstore-conformance/test/assets/bundle-verify");
    if !folder.is_dir() {
        assert!(!required("sigstore-conformance"), "sigstore-conformance is required and was not found");
        println!("SKIP sigstore-conformance: not found; `tests/peers sigstore-conformance` brings it");
        return None;
    }
    Some(folder)
}

#[test]
fn every_case_of_the_conformance_suite_ends_as_its_name_says() {
    let Some(folder) = cases() else { return };
    let mut seen = 0;
    let mut wrong = Vec::new();
    let mut names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for case in names.iter().filter(|path| path.is_dir()) {
        let read = |name: &str| std::fs::read(case.join(name)).ok();
        let text = |name: &str| read(name).map(|bytes| String::from_utf8(bytes).unwrap());
        let artifact = read("artifact").unwrap_or_else(|| std::fs::read(folder.join("a.txt")).unwrap());
        let signer = match text("key.pub") {
            Some(pem) => Signer::Key(pem),
            None => Signer::Certificate {
                identity: text("identity").unwrap_or_else(|| IDENTITY.into()).trim().to_owned(),
                issuer: text("issuer").unwrap_or_else(|| ISSUER.into()).trim().to_owned(),
            },
        };
        let asked = Asked {
            bundle: String::from_utf8_lossy(&read("bundle.sigstore.json").unwrap()).into_owned(),
            // None: the built-in root.
            trusted_root: text("trusted_root.json").unwrap_or_default(),
            signer,
            sha256: Sha256::digest(&artifact).into(),
            artifact: Some(artifact),
        };
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let answer = verdict(&asked, false);
        println!("{name}: {}", answer.as_deref().unwrap_or("verified"));
        seen += 1;
        if answer.is_none() == name.ends_with("_fail") {
            wrong.push(format!("{name}: {answer:?}"));
        }
    }
    assert!(seen > 60, "{seen} cases");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
