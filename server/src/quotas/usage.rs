//! `symseal store usage`: what repositories hold, and what they may.

use std::collections::BTreeMap;

use crate::blobs::Uploads;
use crate::repositories::{Held, RepositoryName};
use crate::{Config, ServerError, opened};

/// What a store holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUse {
    /// By repository, in order of names.
    pub repositories: Vec<RepositoryUse>,
    /// By quota, in the order of the configuration.
    pub quotas: Vec<QuotaUse>,
}

/// What a repository refers to, its manifests and the blobs that they name, each once; and what has come of uploads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryUse {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// Bytes of blobs that no manifest names. A running server counts those that came to it since its start, and not what a deletion left: only its
    /// memory tells them apart.
    pub unnamed: u64,
    /// Bytes of uploads that are not finished. Behind an object store they are not counted.
    pub unfinished: u64,
    /// Bundles.
    pub bundles: u64,
}

/// What the repositories of a quota hold, and may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaUse {
    /// The repositories: this one and those below it, or `*`.
    pub prefix: String,
    /// Bytes that they refer to, summed over repositories.
    pub bytes: u64,
    /// Bytes of blobs that no manifest names: a running server counts those that came to it since its start.
    pub unnamed: u64,
    /// Bytes of uploads that are not finished, which count too.
    pub unfinished: u64,
    /// Bytes that they may; `None` for any number.
    pub bytes_limit: Option<u64>,
    /// Bundles that they have.
    pub bundles: u64,
    /// Bundles that they may.
    pub bundles_limit: Option<u64>,
}

/// What the repositories of a data directory or an object store hold, also beside running servers: nothing is changed. Blocks; call it in a
/// runtime's blocking thread.
///
/// # Errors
/// [`ServerError`]: something cannot be read.
pub fn usage(config: &Config) -> Result<StoreUse, ServerError> {
    let look = opened::look(config)?;
    let failed = |source| ServerError::Data { path: config.data.clone(), source };
    let mut repositories: BTreeMap<RepositoryName, RepositoryUse> = BTreeMap::new();
    for (name, repository) in look.repositories.named() {
        let unfinished = Uploads::unfinished(&repository.uploads_folder()).map_err(failed)?;
        let blobs = repository.unnamed_blobs();
        let sizes = look.blobs.stored_sizes(&blobs.iter().collect::<Vec<_>>()).map_err(failed)?;
        let unnamed = sizes.into_iter().flatten().fold(0_u64, u64::saturating_add);
        let Held { bytes, bundles } = repository.held();
        if unfinished > 0 || unnamed > 0 || repository.held() != Held::default() {
            repositories
                .insert(name.clone(), RepositoryUse { name: name.to_string(), bytes, unnamed, unfinished, bundles });
        }
    }
    let quotas = config.quotas.iter().map(|rule| {
        let Held { bytes, bundles } = look.repositories.held_below(&rule.prefix);
        let below = || repositories.iter().filter(|(name, _)| rule.prefix.holds(name)).map(|(_, found)| found);
        QuotaUse {
            prefix: rule.prefix.to_string(),
            bytes,
            unnamed: below().map(|found| found.unnamed).fold(0, u64::saturating_add),
            unfinished: below().map(|found| found.unfinished).fold(0, u64::saturating_add),
            bytes_limit: rule.bytes,
            bundles,
            bundles_limit: rule.bundles,
        }
    });
    let quotas = quotas.collect();
    Ok(StoreUse { repositories: repositories.into_values().collect(), quotas })
}
