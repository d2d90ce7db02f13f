//! Who vouches for an object store that is reached by TLS: the system's certificates, and an authority of one's own.

use std::io::Read as _;
use std::path::Path;

use object_store::Certificate;
use symseal_bundle::open_plain_file;
use symseal_resolver::without_secrets;

use crate::causes::with_causes;

/// The certificates of a PEM file.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn certificates(file: &Path) -> Result<Vec<Certificate>, String> {
    let wrong = |problem: &dyn std::fmt::Display| {
        format!("s3.ca {}: {problem}: expected a PEM file with the certificate of a CA", file.display())
    };
    let pem = read(file).map_err(|error| wrong(&error))?;
    let found = Certificate::from_pem_bundle(&pem).map_err(|error| wrong(&with_causes(&error)))?;
    if found.is_empty() { Err(wrong(&"no certificate is in it")) } else { Ok(found) }
}

/// The bytes of such a file.
pub(crate) fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut pem = Vec::new();
    open_plain_file(file)?.read_to_end(&mut pem)?;
    Ok(pem)
}

/// An error of the object store with its causes, in one line, without the password of its address, and what to do where its certificate is not believed.
pub(super) fn told(error: &object_store::Error) -> String {
    let text = shown(&with_causes(error));
    if !text.contains("certificate") {
        return text;
    }
    format!(
        "{text}: name the PEM file of the CA that signed the object store's certificate in s3.ca (or AWS_CA_BUNDLE)"
    )
}

/// What the object store said may be a document of many lines.
pub(super) fn shown(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    without_secrets(&lines.join(" "))
}
