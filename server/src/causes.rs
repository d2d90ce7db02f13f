//! What is behind an error.

use std::error::Error;

/// An error with its causes, each once: the outermost says little of what went wrong. An address with a password in it is taken off before
/// ([`reqwest::Error::without_url`]).
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(&format!(": {more}"));
        }
        source = cause.source();
    }
    text
}
