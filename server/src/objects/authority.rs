//! Who vouches for an object store that is reached by TLS: the system's certificates, and an authority of one's own.

use std::error::Error;
use std::path::Path;

use object_store::Certificate;

/// The certificates of a PEM file.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn certificates(file: &Path) -> Result<Vec<Certificate>, String> {
    let wrong = |problem: &dyn std::fmt::Display| {
        format!("s3.ca {}: {problem}: expected a PEM file with the certificate of a CA", file.display())
    };
    let pem = std::fs::read(file).map_err(|error| wrong(&error))?;
    let found = Certificate::from_pem_bundle(&pem).map_err(|error| wrong(&causes(&error)))?;
    if found.is_empty() { Err(wrong(&"no certificate is in it")) } else { Ok(found) }
}

/// An error of the object store with its causes, and what to do where its certificate is not believed.
pub(super) fn told(error: &object_store::Error) -> String {
    let text = causes(error);
    if !text.contains("certificate") {
        return text;
    }
    format!(
        "{text}: name the PEM file of the CA that signed the object store's certificate in s3.ca (or AWS_CA_BUNDLE)"
    )
}

/// An error with what is behind it, each once.
fn causes(error: &dyn Error) -> String {
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
