//! A Sigstore bundle of anybody's, and a trusted root of anybody's: no input panics, and under the golden log's root and the
//! golden seal's key none holds that signs something else than that seal.

use std::sync::LazyLock;

use symseal_seal::SigstoreBundle;
use symseal_sealer::foreign::{ForeignArtifact, ForeignKey, ForeignRoot, ForeignSigner, verify_foreign};

const TRUSTED_ROOT: &[u8] = include_bytes!("../../../formats/seal/tests/golden/trusted_root.json");
const GOLDEN: &[u8] = include_bytes!("../../../formats/seal/tests/golden/seal.sigstore.json");
const KEY: &str = include_str!("../../../sealer/tests/golden/artifact.pub.pem");

static ROOT: LazyLock<ForeignRoot> = LazyLock::new(|| ForeignRoot::parse(TRUSTED_ROOT).expect("the golden root"));
static SIGNERS: LazyLock<[ForeignSigner; 2]> = LazyLock::new(|| {
    [
        ForeignSigner::Key(ForeignKey::parse(KEY).expect("the golden key")),
        ForeignSigner::Certificate { identity: "dev@example.org".into(), issuer: "https://issuer.example.org".into() },
    ]
});

pub(super) fn run(data: &[u8]) {
    for signer in SIGNERS.iter() {
        if verify_foreign(data, ForeignArtifact::Sha256([0x11; 32]), signer, &ROOT).is_ok() {
            let (found, golden) =
                (SigstoreBundle::parse(data), SigstoreBundle::parse(GOLDEN).expect("the golden seal"));
            // A form that seals do not have may still be Sigstore's.
            if let Ok(found) = found {
                assert_eq!(found.envelope.pae(), golden.envelope.pae());
            }
        }
    }
    let _ = ForeignRoot::parse(data);
}
