//! `X-DEBUGINFOD-IMASIGNATURE`: the signature that some distributions have for each file of a package, in hex.
//!
//! It is the distribution's word to the client. The gateway rests nothing on it, and passes it on as it came with bytes that are those of the sealed file.

use axum::http::HeaderMap;

use crate::endpoints::debuginfod::IMASIGNATURE;

/// The longest that is passed on, in hex digits. One by a key of 4096 bits has about 1,100.
const LONGEST: usize = 4096;

/// That of an answer; none where it is no hex.
pub(super) fn of(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(IMASIGNATURE)?.to_str().ok()?;
    let is_sound = text.len() <= LONGEST && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_sound.then(|| text.to_owned())
}
