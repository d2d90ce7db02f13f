//! A seal read and verified against a fixed trust directory: no input panics, and none holds that says
//! something else than the golden seal.

use std::sync::LazyLock;

use symseal_seal::{Expectation, SigstoreBundle, Statement, SubjectDigests, Trust, UtcSeconds, examine_seal};

const ROOT: &[u8] = include_bytes!("../../../formats/seal/tests/golden/root.json");
const POLICY: &[u8] = include_bytes!("../../../formats/seal/tests/golden/policy.dsse.json");
const TRUSTED_ROOT: &[u8] = include_bytes!("../../../formats/seal/tests/golden/trusted_root.json");
const GOLDEN: &[u8] = include_bytes!("../../../formats/seal/tests/golden/seal.sigstore.json");

static TRUST: LazyLock<Trust> =
    LazyLock::new(|| Trust::load_parts(ROOT, POLICY, TRUSTED_ROOT).expect("the golden trust directory"));

pub(super) fn run(data: &[u8]) {
    let subjects =
        SubjectDigests { bundle: Some([0x11; 32]), symbol_index: Some([0x22; 32]), modules_root: None, modules: None };
    let found = examine_seal(data, &subjects, &TRUST, &Expectation::default(), UtcSeconds(1_795_176_000));
    if found.holds() {
        let parts = |json| SigstoreBundle::parse(json).map(|seal| (seal.envelope.pae(), seal.entry.canonicalized_body));
        assert_eq!(parts(data), parts(GOLDEN));
    }
    if let Ok(seal) = SigstoreBundle::parse(data) {
        assert_eq!(SigstoreBundle::parse(&seal.to_json()).as_ref(), Ok(&seal));
    }
    let _ = Statement::parse(data);
}
