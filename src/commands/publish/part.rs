//! A part that a platform job published, fetched as far as joining needs it: indexes, the manifests of its sources, its seals.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use symseal_bundle::join;
use symseal_bundle::oci::{self, Manifest};
use symseal_bundle::verify::{Expectation, Trust};
use symseal_bundle::{Digest, SymbolIndex, sources};
use symseal_registry::{BundleIndexes, Elsewhere, Options, Reference, Repository};
use symseal_seal::examine_seals;

use crate::bundle_ref::block_on;
use crate::commands::bundle::verify::now;
use crate::exit::NotFound;
use crate::registry_client;

/// A place in a registry, and how it is spoken to.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) reference: Reference,
    pub(super) options: Options,
}

/// A part.
pub(super) struct Part {
    pub(super) place: Place,
    pub(super) name: String,
    pub(super) indexes: BundleIndexes,
    pub(super) index: SymbolIndex,
    /// Its sources, where it names some and they were found.
    pub(super) sources: Option<PartSources>,
    /// What became of its seals; none where nobody asked.
    pub(super) seal: Option<SealOfPart>,
}

/// The sources of a part, without their packs.
pub(super) struct PartSources {
    place: Place,
    /// What the part's index names, then, where that is an image index, the manifests in it.
    manifests: Vec<Vec<u8>>,
}

/// What became of a part's seals.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SealOfPart {
    /// One holds.
    Holds,
    /// It has none.
    None,
}

impl Place {
    pub(super) fn of(reference: Reference) -> Result<Self> {
        let options = registry_client::options(&reference)?;
        Ok(Self { reference, options })
    }

    fn repository(&self) -> Result<Repository> {
        Ok(Repository::open(&self.reference, &self.options)?)
    }
}

impl Part {
    /// Reads a part's image index, root manifest and symbol index, and finds its sources: in its own repository, or at
    /// `sources_at`.
    pub(super) fn fetch(reference: Reference, sources_at: Option<&Place>) -> Result<Self> {
        let name = reference.to_string();
        let of_part = || format!("--join {name}");
        let place = Place::of(reference)?;
        let indexes =
            block_on(place.repository()?.bundle_indexes())?.map_err(registry_client::told).with_context(of_part)?;
        let index = SymbolIndex::parse(&indexes.symbol_index).with_context(of_part)?;
        let mut found = None;
        if let Some(digest) = &index.sources {
            for place in std::iter::once(&place).chain(sources_at) {
                found = PartSources::fetch(place, digest).with_context(of_part)?;
                if found.is_some() {
                    break;
                }
            }
        }
        Ok(Self { place, name, indexes, index, sources: found, seal: None })
    }

    /// Verifies the part's seals; what does not hold where there are some but none holds, for people. No file of the part is
    /// looked at: a seal is about the digest, and whoever uses the joined bundle checks the files.
    pub(super) fn check_seal(&mut self, trust: &Trust) -> Result<Option<String>> {
        let of_part = || format!("--join {}", self.name);
        let digest = self.indexes.digest;
        let seals =
            block_on(self.place.repository()?.seals(&digest))?.map_err(registry_client::told).with_context(of_part)?;
        if seals.is_empty() {
            self.seal = Some(SealOfPart::None);
            return Ok(None);
        }
        let expectation =
            Expectation { name: Some(&self.index.name), version: Some(&self.index.version), ..Expectation::default() };
        let examined = examine_seals(&seals, &self.indexes.subjects(), trust, &expectation, now());
        let failed: Vec<String> = examined
            .checks
            .iter()
            .filter(|check| check.is_failed())
            .map(|check| format!("{}: expected {}, found {} {}", check.id, check.expected, check.found, check.detail))
            .collect();
        if failed.is_empty() {
            self.seal = Some(SealOfPart::Holds);
            return Ok(None);
        }
        let text = failed.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("; ");
        Ok(Some(format!("--join {}: its seal does not hold: {text}", self.name)))
    }

    pub(super) fn to_join(&self) -> join::Part<'_> {
        join::Part {
            name: &self.name,
            digest: self.indexes.digest,
            image_index: &self.indexes.image_index,
            index: &self.index,
            sources: self.sources.as_ref().and_then(|sources| sources.manifests.first()).map(Vec::as_slice),
        }
    }

    /// A blob of the part's repository.
    pub(super) fn blob(&self, digest: &Digest, size: u64) -> Result<Vec<u8>> {
        block_on(self.place.repository()?.blob(digest, size))?.map_err(registry_client::told)
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "reference": self.name, "digest": self.indexes.digest, "name": self.index.name,
            "version": self.index.version, "modules": self.index.statistics.modules, "bytes": self.index.statistics.bytes,
            "sources": self.index.sources, "seal": self.seal.map(SealOfPart::code),
        })
    }
}

impl PartSources {
    /// The manifests of the sources `digest`; none where the repository lacks them.
    fn fetch(place: &Place, digest: &Digest) -> Result<Option<Self>> {
        let repository = place.repository()?;
        let fetch = |digest: &Digest| -> Result<Option<Vec<u8>>> {
            block_on(repository.manifest(digest))?.map_err(registry_client::told)
        };
        let Some(root) = fetch(digest)? else { return Ok(None) };
        let named = sources::manifests(digest, &root)?;
        let mut manifests = vec![root];
        for manifest in named.iter().filter(|manifest| manifest.digest != *digest) {
            let missing = || NotFound(format!("{}: it has no manifest {}", place.reference, manifest.digest));
            manifests.push(fetch(&manifest.digest)?.ok_or_else(missing)?);
        }
        Ok(Some(Self { place: place.clone(), manifests }))
    }

    pub(super) fn manifests(&self) -> &[Vec<u8>] {
        &self.manifests
    }

    /// Says where their blobs are.
    pub(super) fn tell(&self, elsewhere: &mut Elsewhere) {
        for bytes in &self.manifests {
            if let Ok(manifest) = Manifest::parse(bytes) {
                let blobs = manifest.layers.iter().map(|layer| layer.digest);
                let blobs = blobs.filter(|digest| *digest != oci::empty_config().digest);
                elsewhere.add(&self.place.reference, &self.place.options, blobs);
            }
        }
    }
}

impl SealOfPart {
    /// The stable text.
    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::None => "none",
        }
    }
}
