//! What a verifier remembers: read and written alike.
#![no_main]

use libfuzzer_sys::fuzz_target;
use symseal_seal::Seen;

fuzz_target!(|data: &[u8]| {
    let Ok(seen) = Seen::parse(data) else { return };
    assert_eq!(Seen::parse(&seen.to_json()).as_ref(), Ok(&seen));
});
