//! PKCS#11 URIs and the other forms of `--key` and `--log`: what is read is written and read again as the same.

use symseal_sealer::signer::TokenUri;
use symseal_sealer::{KeySource, LogLocation};

pub(super) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = text.parse::<KeySource>();
    if let Ok(location) = text.parse::<LogLocation>() {
        assert!(!location.to_string().is_empty());
    }
    if let Ok(uri) = text.parse::<TokenUri>() {
        // The query is not shown: a module is needed to read it back.
        let again: TokenUri = format!("{uri}?module-path=/m").parse().expect("what was written is read");
        assert_eq!(again.to_string(), uri.to_string());
    }
}
