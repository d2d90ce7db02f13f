//! A side of a mirror: a repository of a registry, or a layout.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use symseal_bundle::oci::{self, Descriptor, ImageIndex, Manifest};
use symseal_bundle::{Digest, LayoutDir, LayoutError};
use symseal_registry::{Options, Reference, Repository, Target};

use crate::registry_client;

/// Manifests below one tag that are followed.
const MANIFESTS: usize = 100_000;

/// One of the two sides.
pub(super) enum Place {
    /// A repository; its reference as it was given.
    Registry {
        /// With the tag or digest, if one is meant.
        reference: Reference,
        /// The tag, if one was written.
        tag: Option<String>,
        /// Its client.
        repository: Box<Repository>,
        /// The options for its registry.
        options: Box<Options>,
    },
    /// A layout.
    Layout(LayoutDir),
}

impl Place {
    /// Opens a side; where it may be new, a layout is made.
    pub(super) fn open(text: &str, may_be_new: bool) -> Result<Self> {
        let path = Path::new(text);
        let is_path = path.exists() || text.starts_with(['/', '.']) || !text.contains('/');
        if is_path {
            let layout = if may_be_new { LayoutDir::create(path) } else { LayoutDir::open(path) };
            return Ok(Self::Layout(layout?));
        }
        let reference = Reference::parse(text)?;
        let options = registry_client::options(&reference)?;
        let repository = Box::new(Repository::open(&reference, &options)?);
        // A reference without a tag means all tags here, and not `latest`.
        let is_written = text.rsplit('/').next().is_some_and(|last| last.contains(':'));
        let tag = reference.tag().filter(|_| is_written).map(str::to_owned);
        Ok(Self::Registry { reference, tag, repository, options: Box::new(options) })
    }

    /// What is to be mirrored: each tag with what it names; without a tag only what was asked for by digest, and of a layout bundles.
    pub(super) async fn listed(&self) -> Result<Vec<(Option<String>, Descriptor)>> {
        match self {
            Self::Layout(layout) => {
                let listed = layout.manifests()?.into_iter().filter(|listed| {
                    listed.ref_name().is_some() || listed.artifact_type.as_deref() == Some(oci::BUNDLE)
                });
                Ok(listed.map(|listed| (listed.ref_name().map(str::to_owned), listed)).collect())
            }
            Self::Registry { reference, tag, repository, options } => {
                let named = |tag: Option<String>, found: Option<Descriptor>| found.map(|found| (tag, found));
                if let Target::Digest(_) = reference.target() {
                    let found = repository.resolve().await.map_err(registry_client::told)?;
                    return Ok(vec![named(None, found).with_context(|| format!("{reference}: nothing is there"))?]);
                }
                let tags = match tag {
                    Some(tag) => vec![tag.clone()],
                    None => repository.tags().await.map_err(registry_client::told)?,
                };
                let mut listed = Vec::new();
                // Tags for referrers are made where they are needed.
                for tag in tags.into_iter().filter(|tag| !tag.starts_with("sha256-")) {
                    let tagged = Reference::parse(&format!("{}:{tag}", repository_of(reference)))?;
                    let resolved =
                        Repository::open(&tagged, options)?.resolve().await.map_err(registry_client::told)?;
                    listed.extend(named(Some(tag), resolved));
                }
                if listed.is_empty() {
                    return Err(crate::exit::NotFound(format!("{reference}: nothing is there")).into());
                }
                Ok(listed)
            }
        }
    }

    /// Whether one tag was written.
    pub(super) fn names_a_tag(&self) -> bool {
        matches!(self, Self::Registry { tag: Some(_), .. })
    }

    /// The bytes of a manifest.
    pub(super) async fn manifest(&self, digest: &Digest) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Registry { repository, .. } => repository.manifest(digest).await.map_err(registry_client::told),
            Self::Layout(layout) => match layout.read_blob(digest, oci::MAX_MANIFEST_BYTES) {
                Err(LayoutError::Missing { .. }) => Ok(None),
                read => Ok(Some(read?)),
            },
        }
    }

    /// Whether this is a bundle.
    pub(super) async fn is_bundle(&self, descriptor: &Descriptor) -> Result<bool> {
        if descriptor.media_type != oci::IMAGE_INDEX {
            return Ok(false);
        }
        let bytes = self.manifest(&descriptor.digest).await?.unwrap_or_default();
        Ok(ImageIndex::parse(&bytes).is_ok_and(|index| index.artifact_type.as_deref() == Some(oci::BUNDLE)))
    }

    /// What refers to a manifest.
    pub(super) async fn referrers(&self, digest: &Digest) -> Result<Vec<Descriptor>> {
        match self {
            Self::Registry { repository, .. } => repository.referrers(digest).await.map_err(registry_client::told),
            Self::Layout(layout) => Ok(layout.referrers(digest)?),
        }
    }

    /// Where one tag, or what has no tag, is in a repository.
    pub(super) fn at(&self, name: Option<&str>, digest: &Digest) -> Result<Reference> {
        let Self::Registry { reference, tag, .. } = self else { bail!("a layout has no references") };
        // One tag that was written for the destination is its name there.
        match tag.as_deref().or(name) {
            Some(tag) => Ok(Reference::parse(&format!("{}:{tag}", repository_of(reference)))?),
            None => Ok(reference.with_digest(*digest)),
        }
    }

    /// Whether the tag names this manifest here; without a tag, whether it is here.
    pub(super) async fn has(&self, tag: Option<&str>, digest: &Digest) -> Result<bool> {
        match self {
            Self::Layout(layout) => {
                let is_it =
                    |listed: &Descriptor| listed.digest == *digest && (tag.is_none() || listed.ref_name() == tag);
                Ok(layout.manifests()?.iter().any(is_it) && layout.has(digest))
            }
            Self::Registry { options, .. } => {
                let found = Repository::open(&self.at(tag, digest)?, options)?
                    .resolve()
                    .await
                    .map_err(registry_client::told)?;
                Ok(found.is_some_and(|found| found.digest == *digest))
            }
        }
    }
}

fn repository_of(reference: &Reference) -> String {
    format!("{}/{}", reference.registry(), reference.repository())
}

/// Brings the manifests of a tree into a layout; its root's descriptor, and the blobs that they name.
pub(super) async fn read_tree(
    repository: &Repository,
    layout: &LayoutDir,
    root: Digest,
) -> Result<(Descriptor, Vec<Digest>)> {
    let (mut blobs, mut waiting, mut seen, mut top) = (Vec::new(), vec![root], 0, None);
    while let Some(digest) = waiting.pop() {
        seen += 1;
        if seen > MANIFESTS {
            bail!("{root}: more than {MANIFESTS} manifests below it");
        }
        let bytes = repository.manifest(&digest).await.map_err(registry_client::told)?;
        let bytes = bytes.with_context(|| format!("{digest}: it is named, and not there"))?;
        let media_type = match ImageIndex::parse(&bytes) {
            Ok(index) => {
                waiting.extend(index.manifests.iter().map(|child| child.digest));
                oci::IMAGE_INDEX
            }
            Err(_) => {
                let manifest = Manifest::parse(&bytes).with_context(|| format!("manifest {digest}"))?;
                blobs.extend(std::iter::once(&manifest.config).chain(&manifest.layers).map(|blob| blob.digest));
                oci::MANIFEST
            }
        };
        layout.write_blob(&bytes)?;
        top.get_or_insert_with(|| Descriptor::new(media_type, digest, bytes.len() as u64));
    }
    Ok((top.with_context(|| format!("{root}: nothing is there"))?, blobs))
}
