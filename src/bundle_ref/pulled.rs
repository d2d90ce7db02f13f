//! A bundle, or the sources of one, comes from a registry: looked at before anything of it is written.

use std::path::Path;

use anyhow::{Context, Result};
use symseal_bundle::oci::{Descriptor, Manifest};
use symseal_bundle::sources::{self, MAX_TABLE_BYTES, SourceTable};
use symseal_bundle::title::check_title;
use symseal_bundle::{Digest, LayoutDir, SymbolIndex};
use symseal_registry::{Reference, RegistryError, Repository};

use super::block_on;
use crate::registry_client;

/// Pulls the bundle that `reference` names, with its seals, into the OCI layout `into`; or the sources of one. What is neither, or has a
/// symbol index that no other command would take, is refused before the layout is made or changed.
pub fn pull(reference: &str, into: &Path) -> Result<Digest> {
    let parsed = Reference::parse(reference)?;
    let options = registry_client::options(&parsed)?;
    let digest = block_on(judged(&parsed, &Repository::open(&parsed, &options)?))??;
    let layout = LayoutDir::create(into).with_context(|| format!("the layout {}", into.display()))?;
    let (options, bar) = registry_client::shown(&options, format!("pulling {reference}"));
    // What was looked at: the tag may name something else by now.
    let pulled = block_on(symseal_registry::pull(&parsed.with_digest(digest), &layout, &options))?;
    bar.finish_and_clear();
    pulled.map_err(registry_client::told)?;
    if let Some(tag) = parsed.tag() {
        let listed = layout.manifests()?.into_iter().find(|listed| listed.digest == digest);
        layout.add_to_index(listed.with_context(|| format!("{digest} is not in index.json"))?, Some(tag))?;
    }
    Ok(digest)
}

/// The digest of what the reference names, which is what can be pulled.
async fn judged(reference: &Reference, repository: &Repository) -> Result<Digest> {
    let indexes = match repository.bundle_indexes().await {
        Ok(indexes) => indexes,
        Err(RegistryError::Manifest { digest, problem }) => {
            if let Some(sources) = sources_at(repository, &digest).await? {
                judge_sources(repository, &sources).await.with_context(|| format!("sources {reference}"))?;
                return Ok(digest);
            }
            return Err(RegistryError::Manifest { digest, problem }.into());
        }
        Err(error) => return Err(registry_client::told(error)),
    };
    SymbolIndex::parse(&indexes.symbol_index)
        .with_context(|| format!("bundle {reference}: bundle {}", indexes.digest))?;
    for child in &indexes.image_index.manifests {
        let manifest = manifest(repository, &child.digest).await?;
        for title in manifest.layers.iter().filter_map(Descriptor::title) {
            check_title(title).with_context(|| format!("bundle {reference}: manifest {}", child.digest))?;
        }
    }
    Ok(indexes.digest)
}

async fn manifest(repository: &Repository, digest: &Digest) -> Result<Manifest> {
    let bytes = repository.manifest(digest).await.map_err(registry_client::told)?;
    let bytes = bytes.with_context(|| format!("the registry has no manifest {digest}"))?;
    Manifest::parse(&bytes).with_context(|| digest.to_string())
}

/// The manifests of the sources with this digest; none where it names something else.
async fn sources_at(repository: &Repository, digest: &Digest) -> Result<Option<Vec<Descriptor>>> {
    let bytes = repository.manifest(digest).await.map_err(registry_client::told)?;
    Ok(bytes.and_then(|bytes| sources::manifests(digest, &bytes).ok()))
}

/// Each manifest must begin with a table of sources. Its packs are checked as they are read.
async fn judge_sources(repository: &Repository, manifests: &[Descriptor]) -> Result<()> {
    for child in manifests {
        let manifest = manifest(repository, &child.digest).await?;
        let table = manifest.layers.first().filter(|layer| layer.title() == Some(sources::TABLE));
        let table = table.with_context(|| format!("{} does not begin with {}", child.digest, sources::TABLE))?;
        let is_too_large = table.size > MAX_TABLE_BYTES;
        anyhow::ensure!(
            !is_too_large,
            "{}: a table of {} bytes, more than the {MAX_TABLE_BYTES} that are accepted",
            child.digest,
            table.size
        );
        let bytes = repository.blob(&table.digest, table.size).await.map_err(registry_client::told)?;
        SourceTable::parse(&bytes).with_context(|| child.digest.to_string())?;
    }
    Ok(())
}
