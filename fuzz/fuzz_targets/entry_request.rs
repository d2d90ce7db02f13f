//! What a client posts to the server's log.
#![no_main]

use libfuzzer_sys::fuzz_target;
use symseal_seal::entry::{ENTRY_LIMIT, HashedRekordRequest};

fuzz_target!(|data: &[u8]| {
    if let Ok(request) = HashedRekordRequest::parse(data) {
        let _ = request.signature_holds();
        assert!(request.body().len() <= ENTRY_LIMIT);
    }
});
