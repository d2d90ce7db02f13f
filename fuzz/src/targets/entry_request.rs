//! What a client posts to the server's log.

use symseal_seal::entry::{ENTRY_LIMIT, HashedRekordRequest};

pub(super) fn run(data: &[u8]) {
    if let Ok(request) = HashedRekordRequest::parse(data) {
        let _ = request.signature_holds();
        assert!(request.body().len() <= ENTRY_LIMIT);
    }
}
