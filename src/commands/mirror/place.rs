//! A side of a mirror: a repository of a registry, or a layout.

use std::path::Path;

use anyhow::{Result, bail};
use symseal_bundle::oci::{self, Descriptor, ImageIndex};
use symseal_bundle::{Digest, LayoutDir, LayoutError};
use symseal_registry::{Options, Reference, RegistryError, Repository, Target};

use crate::registry_client;

/// What one tag names.
pub(super) struct Listed {
    /// The tag, if there is one.
    pub(super) tag: Option<String>,
    /// What it names; or why that cannot be told.
    pub(super) found: Result<Descriptor, String>,
}

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
    /// Whether a text means a directory, and no repository.
    pub(super) fn is_path(text: &str) -> bool {
        Path::new(text).exists() || text.starts_with(['/', '.']) || !text.contains('/')
    }

    /// Opens a side; where it may be new, a layout is made.
    pub(super) fn open(text: &str, may_be_new: bool) -> Result<Self> {
        if Self::is_path(text) {
            let path = Path::new(text);
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

    /// What is to be mirrored: each tag with what it names, or why that cannot be told; without a tag only what was asked for by digest, and of a
    /// layout bundles.
    pub(super) async fn listed(&self) -> Result<Vec<Listed>> {
        match self {
            Self::Layout(layout) => {
                // A bundle is an index. oras lists its children beside it, with its type: they come along with it.
                let is_bundle = |listed: &Descriptor| {
                    listed.media_type == oci::IMAGE_INDEX && listed.artifact_type.as_deref() == Some(oci::BUNDLE)
                };
                let listed = layout.manifests()?.into_iter();
                let listed = listed.filter(|listed| listed.ref_name().is_some() || is_bundle(listed));
                Ok(listed
                    .map(|listed| Listed { tag: listed.ref_name().map(str::to_owned), found: Ok(listed) })
                    .collect())
            }
            Self::Registry { reference, tag, repository, .. } => {
                let nothing = || match (reference.target(), tag) {
                    (Target::Tag(_), None) => {
                        let place = format!("{}/{}", reference.registry(), reference.repository());
                        crate::exit::NotFound(format!("{place}: it has no tags, or is not there"))
                    }
                    _ => crate::exit::NotFound(format!("{reference}: nothing is there")),
                };
                if let Target::Digest(_) = reference.target() {
                    let found = repository.resolve().await.map_err(registry_client::told)?;
                    return Ok(vec![Listed { tag: None, found: Ok(found.ok_or_else(nothing)?) }]);
                }
                let tags = match tag {
                    Some(tag) => vec![tag.clone()],
                    None => repository.tags().await.map_err(registry_client::told)?,
                };
                let mut listed = Vec::new();
                // Tags for referrers are made where they are needed.
                for tag in tags.into_iter().filter(|tag| !tag.starts_with("sha256-")) {
                    let found = match repository.resolve_tag(&tag).await {
                        Ok(Some(found)) => Ok(found),
                        Ok(None) => continue,
                        Err(error) if is_silence(&error) => return Err(registry_client::told(error)),
                        Err(error) => Err(error.to_string()),
                    };
                    listed.push(Listed { tag: Some(tag), found });
                }
                if listed.is_empty() {
                    return Err(nothing().into());
                }
                Ok(listed)
            }
        }
    }

    /// Finds out whether the place answers at all, by something that may or may not be there.
    pub(super) async fn answers(&self, digest: &Digest) -> Result<()> {
        if let Self::Registry { repository, .. } = self
            && let Err(error) = repository.manifest(digest).await
            && is_silence(&error)
        {
            return Err(registry_client::told(error));
        }
        Ok(())
    }

    /// Whether one tag was written.
    pub(super) fn names_a_tag(&self) -> bool {
        matches!(self, Self::Registry { tag: Some(_), .. })
    }

    /// The digest that was written, if one was.
    pub(super) fn names_a_digest(&self) -> Option<Digest> {
        let Self::Registry { reference, .. } = self else { return None };
        match reference.target() {
            Target::Digest(digest) => Some(*digest),
            Target::Tag(_) => None,
        }
    }

    /// The tag by which something is known here: the one that was written, else the one that it has elsewhere. With a digest there is none.
    pub(super) fn tag_for<'t>(&'t self, elsewhere: Option<&'t str>) -> Option<&'t str> {
        match self {
            Self::Registry { tag: Some(written), .. } => Some(written),
            Self::Registry { .. } if self.names_a_digest().is_some() => None,
            _ => elsewhere,
        }
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
        let Self::Registry { reference, .. } = self else { bail!("a layout has no references") };
        match self.tag_for(name) {
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
            Self::Registry { repository, .. } => match self.tag_for(tag) {
                Some(tag) => {
                    let found = repository.resolve_tag(tag).await.map_err(registry_client::told)?;
                    Ok(found.is_some_and(|found| found.digest == *digest))
                }
                None => Ok(self.manifest(digest).await?.is_some()),
            },
        }
    }
}

/// Whether an error says that a registry does not answer, or not to us.
pub(super) fn is_silence(error: &RegistryError) -> bool {
    matches!(
        error,
        RegistryError::Unreachable { .. } | RegistryError::Unauthorized { .. } | RegistryError::Forbidden { .. }
    )
}

fn repository_of(reference: &Reference) -> String {
    format!("{}/{}", reference.registry(), reference.repository())
}
