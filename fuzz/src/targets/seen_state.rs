//! What a verifier remembers: read and written alike.

use symseal_seal::Seen;

pub(super) fn run(data: &[u8]) {
    let Ok(seen) = Seen::parse(data) else { return };
    assert_eq!(Seen::parse(&seen.to_json()).as_ref(), Ok(&seen));
}
