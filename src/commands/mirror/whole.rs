//! Whether what a tag leads to at the destination is whole: the tag alone says nothing of the blobs that it needs.

use std::collections::HashSet;

use anyhow::{Context as _, Result, bail};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use indicatif::ProgressBar;
use serde::Deserialize;
use symseal_bundle::oci::{self, Descriptor};
use symseal_bundle::{Digest, Hasher, LayoutDir, LayoutError, Scratch};
use symseal_registry::{RegistryError, Repository};

use super::place::Place;
use crate::progress::bytes_bar;
use crate::registry_client;

/// Files of a layout, or blobs of a registry, that are hashed at once.
const AT_ONCE: usize = 4;
/// Openings of a stream that breaks off before it has brought anything.
const TRIES: u32 = 3;
/// Blobs with other bytes that are named.
const NAMED: usize = 5;

/// What is compared, and what was.
pub(super) struct Checks {
    /// Whether the bytes of blobs are, and not only whether they are there.
    bytes: bool,
    /// Blobs that have the bytes of their digests: tags have many in common.
    sound: HashSet<Digest>,
}

/// What is missing, or is something else.
pub(super) struct Lack {
    /// In words.
    pub(super) what: String,
    /// Whether everything else is whole: a referrer that is broken where it comes from, too, is no lack.
    pub(super) only_referrers: bool,
}

/// What a manifest of any kind names.
#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    manifests: Vec<Descriptor>,
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

impl Checks {
    pub(super) fn new(bytes: bool) -> Self {
        Self { bytes, sound: HashSet::new() }
    }

    /// Whether bytes are compared.
    pub(super) fn has_bytes(&self) -> bool {
        self.bytes
    }

    /// What is not whole at a place, of a manifest and of those of its referrers that are there.
    ///
    /// # Errors
    /// Where a registry has a blob with other bytes: it takes no other one in its place.
    pub(super) async fn lack(
        &mut self,
        place: &Place,
        digest: &Digest,
        referrers: &[Descriptor],
    ) -> Result<Option<Lack>> {
        match place {
            Place::Layout(layout) => {
                if let Some(what) = self.lack_in_layout(layout, &[*digest]).await? {
                    return Ok(Some(Lack { what, only_referrers: false }));
                }
                let roots: Vec<Digest> = referrers.iter().map(|referrer| referrer.digest).collect();
                let what = self.lack_in_layout(layout, &roots).await?;
                Ok(what.map(|what| Lack { what, only_referrers: true }))
            }
            Place::Registry { reference, repository, options, .. } => {
                // Its manifests are read there; the blobs that they name are asked for by HEAD, a few at once.
                let staging = Scratch::temporary().context("a directory for manifests")?;
                let layout = LayoutDir::create(staging.path().join("layout"))?;
                let staged = match symseal_registry::stage(repository, digest, referrers, &layout).await {
                    Err(RegistryError::NotFound { reference, what }) => {
                        let what = format!("{what} {reference} was not there");
                        return Ok(Some(Lack { what, only_referrers: false }));
                    }
                    Err(error) if error.is_of_one_object() => {
                        return Ok(Some(Lack { what: error.to_string(), only_referrers: false }));
                    }
                    staged => staged.map_err(registry_client::told)?,
                };
                let plan = symseal_registry::plan(&layout, digest, &reference.with_digest(*digest), options).await;
                let plan = plan.map_err(registry_client::told)?;
                if plan.blobs_missing > 0 {
                    let (blobs, bytes) = (plan.blobs_missing, plan.bytes_missing);
                    let what = format!("blobs were not there: {blobs}, of {bytes} bytes");
                    return Ok(Some(Lack { what, only_referrers: false }));
                }
                if self.bytes {
                    let roots: Vec<Digest> = std::iter::once(*digest).chain(staged.referrers).collect();
                    self.damaged_at(repository, blobs_below(&layout, &roots).map_err(anyhow::Error::msg)?).await?;
                }
                let referrer = staged.passed_over.into_iter().next();
                Ok(referrer
                    .map(|(referrer, why)| Lack { what: format!("referrer {referrer}: {why}"), only_referrers: true }))
            }
        }
    }

    async fn lack_in_layout(&mut self, layout: &LayoutDir, roots: &[Digest]) -> Result<Option<String>> {
        let blobs = match blobs_below(layout, roots) {
            Ok(blobs) => blobs,
            Err(what) => return Ok(Some(what)),
        };
        for blob in &blobs {
            match layout.blob_size(&blob.digest) {
                Some(size) if size == blob.size => {}
                Some(size) => {
                    return Ok(Some(format!("blob {}: {} bytes expected, {size} found", blob.digest, blob.size)));
                }
                None => return Ok(Some(format!("blob {} was not there", blob.digest))),
            }
        }
        if !self.bytes {
            return Ok(None);
        }
        let (blobs, bar) = self.unchecked(blobs);
        let looks: Vec<_> = blobs.iter().map(|blob| look(layout, blob, &bar)).collect();
        let looked: Vec<(Digest, bool)> = stream::iter(looks).buffer_unordered(AT_ONCE).try_collect().await?;
        bar.finish_and_clear();
        self.sound.extend(looked.iter().filter(|(_, is_sound)| *is_sound).map(|(digest, _)| *digest));
        let damaged = looked.iter().find(|(_, is_sound)| !is_sound);
        Ok(damaged.map(|(digest, _)| format!("blob {digest} had other bytes")))
    }

    /// Hashes the blobs of a registry.
    async fn damaged_at(&mut self, repository: &Repository, blobs: Vec<Descriptor>) -> Result<()> {
        let (blobs, bar) = self.unchecked(blobs);
        let looks: Vec<_> = blobs.iter().map(|blob| look_at(repository, blob, &bar)).collect();
        let looked: Vec<(Digest, Option<String>)> = stream::iter(looks).buffer_unordered(AT_ONCE).try_collect().await?;
        bar.finish_and_clear();
        self.sound.extend(looked.iter().filter(|(_, damage)| damage.is_none()).map(|(digest, _)| *digest));
        let damaged: Vec<String> =
            looked.into_iter().filter_map(|(digest, damage)| Some(format!("{digest} ({})", damage?))).collect();
        if damaged.is_empty() {
            return Ok(());
        }
        let more = damaged.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        bail!(
            "DST has {} damaged blobs, which no registry lets others replace: {}{more}: have them removed there (symseal store scrub does that where symseal serves), and mirror again",
            damaged.len(),
            damaged.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ")
        )
    }

    /// Those of the blobs that were not compared yet, and a bar for their bytes.
    fn unchecked(&self, mut blobs: Vec<Descriptor>) -> (Vec<Descriptor>, ProgressBar) {
        blobs.retain(|blob| !self.sound.contains(&blob.digest));
        let bar = bytes_bar("checking");
        bar.inc_length(blobs.iter().fold(0, |sum: u64, blob| sum.saturating_add(blob.size)));
        (blobs, bar)
    }
}

/// The blobs that manifests of a layout name, each once; or which manifest is not there, or is none.
fn blobs_below(layout: &LayoutDir, roots: &[Digest]) -> Result<Vec<Descriptor>, String> {
    let (mut blobs, mut ahead) = (Vec::new(), roots.to_vec());
    let mut seen: HashSet<Digest> = roots.iter().copied().collect();
    while let Some(digest) = ahead.pop() {
        let bytes = layout.read_blob(&digest, oci::MAX_MANIFEST_BYTES).map_err(|error| match error {
            LayoutError::Missing { .. } => format!("manifest {digest} was not there"),
            LayoutError::Digest { .. } => format!("manifest {digest} had other bytes"),
            error => format!("manifest {digest}: {error}"),
        })?;
        let named: Named =
            serde_json::from_slice(&bytes).map_err(|error| format!("manifest {digest} is none: {error}"))?;
        blobs.extend(named.config.into_iter().chain(named.layers).filter(|blob| seen.insert(blob.digest)));
        ahead.extend(named.manifests.into_iter().map(|child| child.digest).filter(|child| seen.insert(*child)));
    }
    Ok(blobs)
}

/// Hashes a blob of a layout, on a thread that serves nobody else.
async fn look(layout: &LayoutDir, blob: &Descriptor, bar: &ProgressBar) -> Result<(Digest, bool)> {
    let (layout, digest) = (layout.clone(), blob.digest);
    let is_sound = tokio::task::spawn_blocking(move || layout.is_sound(&digest)).await?;
    bar.inc(blob.size);
    Ok((digest, is_sound))
}

/// Hashes a blob of a registry as it comes; what is wrong with it.
async fn look_at(repository: &Repository, blob: &Descriptor, bar: &ProgressBar) -> Result<(Digest, Option<String>)> {
    let digest = blob.digest;
    match digest_at(repository, blob, bar).await {
        Ok((found, size)) if found == digest && size == blob.size => Ok((digest, None)),
        Ok((_, size)) if size == blob.size => Ok((digest, Some("other bytes".to_owned()))),
        Ok((_, size)) => Ok((digest, Some(format!("{} bytes expected, {size} found", blob.size)))),
        // It was there by HEAD a moment ago: the registry stumbles over this one.
        Err(error @ RegistryError::Refused { .. }) => Ok((digest, Some(error.to_string()))),
        Err(error) => Err(registry_client::told(error)),
    }
}

/// Digest and size of what a registry has under a blob's digest; of what is longer than the blob only the beginning is read.
async fn digest_at(
    repository: &Repository,
    blob: &Descriptor,
    bar: &ProgressBar,
) -> Result<(Digest, u64), RegistryError> {
    let (mut hasher, mut at, mut tried) = (Hasher::default(), 0_u64, 0);
    'open: loop {
        let mut stream = repository.stream(&blob.digest, at).await?;
        loop {
            match stream.next().await {
                Ok(Some(bytes)) => {
                    hasher.update(&bytes);
                    at = at.saturating_add(bytes.len() as u64);
                    bar.inc(bytes.len() as u64);
                    tried = 0;
                    if at > blob.size {
                        return Ok(hasher.finish());
                    }
                }
                Ok(None) => return Ok(hasher.finish()),
                // All of it came before the connection broke.
                Err(_) if at == blob.size => return Ok(hasher.finish()),
                Err(_) if tried < TRIES => {
                    tried += 1;
                    continue 'open;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
