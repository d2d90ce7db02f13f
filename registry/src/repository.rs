//! Looking into a repository without bringing a bundle home: what a name resolves to, a bundle's indexes, single small blobs.

use std::collections::HashSet;
use std::ops::Range;

use oci_client::RegistryOperation;
use symseal_bundle::Digest;
use symseal_bundle::index::MAX_INDEX_BYTES;
use symseal_bundle::oci::{self, Descriptor, ImageIndex, Manifest};
use symseal_bundle::seal::SubjectDigests;
use symseal_bundle::{MAX_SEAL_BYTES, title};

use crate::blob_stream::{self, BlobStream};
use crate::session::Session;
use crate::transfer::small;
use crate::{Options, Reference, RegistryError, Target, manifests, part, referrers, tags};

/// Referrers of one bundle that are looked at for seals: a registry must not keep us for ever.
const SEALS_LOOKED_AT: usize = 1024;
/// Seals of one bundle that are taken. More are not seals but a flood.
const SEALS_LIMIT: usize = 256;
/// Bytes of them all. A seal has some kilobytes.
const SEALS_BYTES_LIMIT: u64 = 16 << 20;

/// One repository, to be looked into.
pub struct Repository {
    pub(crate) session: Session,
}

/// Seals that were taken.
#[derive(Default)]
struct Taken {
    list: Vec<Vec<u8>>,
    bytes: u64,
    /// Several manifests may have one.
    blobs: HashSet<Digest>,
    /// Some had no room.
    is_cut: bool,
}

/// The seals of a bundle, as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSeals {
    /// Those that were looked at.
    pub list: Vec<Vec<u8>>,
    /// Whether there are more than that.
    pub is_cut: bool,
}

/// A bundle's indexes, each checked against its digest.
#[derive(Debug, Clone)]
pub struct BundleIndexes {
    /// The bundle's digest.
    pub digest: Digest,
    /// Its image index.
    pub image_index: ImageIndex,
    /// The bytes of `symbol_index.json`.
    pub symbol_index: Vec<u8>,
}

impl BundleIndexes {
    /// What a seal of the bundle must be about.
    pub fn subjects(&self) -> SubjectDigests {
        symseal_bundle::verify::subject_digests(Some(&self.digest), &self.symbol_index)
    }
}

impl Repository {
    /// The repository of a reference. Nothing is sent yet.
    ///
    /// # Errors
    /// [`RegistryError::Protocol`] where no client can be made.
    pub fn open(reference: &Reference, options: &Options) -> Result<Self, RegistryError> {
        Ok(Self { session: Session::new(reference, RegistryOperation::Pull, options)? })
    }

    /// What the reference resolves to, whatever it is: media type, digest and size; `None` where there is nothing. This is
    /// also the cheapest way to find out whether the registry answers, and takes the credentials.
    ///
    /// # Errors
    /// [`RegistryError`] where the registry does not answer, or not as one.
    pub async fn resolve(&self) -> Result<Option<Descriptor>, RegistryError> {
        self.resolved(self.session.reference().target()).await
    }

    /// The same for another tag of the repository.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub async fn resolve_tag(&self, tag: &str) -> Result<Option<Descriptor>, RegistryError> {
        self.resolved(&Target::Tag(tag.to_owned())).await
    }

    async fn resolved(&self, target: &Target) -> Result<Option<Descriptor>, RegistryError> {
        let found = manifests::get(&self.session, target).await?;
        Ok(found.map(|fetched| fetched.descriptor))
    }

    /// The indexes of the bundle that the reference names. Its other manifests and its files are not fetched.
    ///
    /// # Errors
    /// [`RegistryError::NotFound`] where there is nothing, [`RegistryError::Manifest`] where it is no bundle.
    pub async fn bundle_indexes(&self) -> Result<BundleIndexes, RegistryError> {
        self.indexes(self.session.reference().target()).await
    }

    /// The same of the bundle with this digest.
    ///
    /// # Errors
    /// As [`Self::bundle_indexes`].
    pub async fn bundle_indexes_of(&self, digest: &Digest) -> Result<BundleIndexes, RegistryError> {
        self.indexes(&Target::Digest(*digest)).await
    }

    async fn indexes(&self, target: &Target) -> Result<BundleIndexes, RegistryError> {
        let found = manifests::get(&self.session, target).await?;
        let found = found.ok_or_else(|| self.not_found(target))?;
        let digest = found.descriptor.digest;
        let problem = |digest, problem: String| RegistryError::Manifest { digest, problem };
        let no_bundle = |what: &str| {
            let reference = self.session.reference();
            problem(
                digest,
                format!("{reference} is no bundle: expected an image index of type {}, found {what}", oci::BUNDLE),
            )
        };
        if found.descriptor.media_type != oci::IMAGE_INDEX {
            return Err(no_bundle(&found.descriptor.media_type));
        }
        let image_index = ImageIndex::parse(&found.bytes).map_err(|error| problem(digest, error.to_string()))?;
        if image_index.artifact_type.as_deref() != Some(oci::BUNDLE) {
            return Err(no_bundle(image_index.artifact_type.as_deref().unwrap_or("one without a type")));
        }
        let root = image_index.manifests.first().ok_or_else(|| no_bundle("an empty one"))?.digest;
        let fetched = manifests::fetch(&self.session, &Target::Digest(root)).await?;
        let manifest = Manifest::parse(&fetched.bytes).map_err(|error| problem(root, error.to_string()))?;
        let layer = manifest.layers.first().filter(|layer| layer.title() == Some(title::SYMBOL_INDEX));
        let layer = layer.ok_or_else(|| problem(root, "expected symbol_index.json as its first layer".to_owned()))?;
        if layer.size > MAX_INDEX_BYTES {
            let (size, text) = (layer.size, "bytes in symbol_index.json, more than the");
            return Err(problem(root, format!("{size} {text} {MAX_INDEX_BYTES} that are accepted")));
        }
        let symbol_index = self.blob(&layer.digest, layer.size).await?;
        Ok(BundleIndexes { digest, image_index, symbol_index })
    }

    /// The bytes of the manifest or image index with this digest; `None` where the repository has none.
    ///
    /// # Errors
    /// [`RegistryError`] where the registry does not answer, or with other bytes.
    pub async fn manifest(&self, digest: &Digest) -> Result<Option<Vec<u8>>, RegistryError> {
        let found = manifests::get(&self.session, &Target::Digest(*digest)).await?;
        Ok(found.map(|fetched| fetched.bytes))
    }

    /// What refers to this manifest, as the registry lists it.
    ///
    /// # Errors
    /// [`RegistryError`] where the registry does not answer, or not as one.
    pub async fn referrers(&self, subject: &Digest) -> Result<Vec<Descriptor>, RegistryError> {
        referrers::list(&self.session, subject).await
    }

    /// The Sigstore bundles that refer to this manifest, as they are: nothing in them is checked here. A referrer that is none,
    /// or not whole, is passed over where there is another, and so is what goes beyond 256 seals or 16 MiB of them.
    ///
    /// # Errors
    /// [`RegistryError`] names what cannot be fetched.
    pub async fn seals(&self, subject: &Digest) -> Result<Vec<Vec<u8>>, RegistryError> {
        Ok(self.seals_looked_at(subject).await?.list)
    }

    /// [`Self::seals`], and whether there may be others, which were not looked at.
    ///
    /// # Errors
    /// As [`Self::seals`].
    pub async fn seals_looked_at(&self, subject: &Digest) -> Result<FoundSeals, RegistryError> {
        let (mut seals, mut junk) = (Taken::default(), None);
        let listed = referrers::list(&self.session, subject).await?;
        let is_seal = |one: &&Descriptor| one.artifact_type.as_deref() == Some(oci::SIGSTORE_BUNDLE);
        let listed: Vec<&Descriptor> = listed.iter().filter(is_seal).collect();
        let mut is_cut = listed.len() > SEALS_LOOKED_AT;
        for referrer in listed.into_iter().take(SEALS_LOOKED_AT) {
            if seals.list.len() >= SEALS_LIMIT {
                is_cut = true;
                break;
            }
            match self.take_seals_of(&referrer.digest, &mut seals).await {
                Ok(()) => {}
                Err(error) if referrers::is_junk(&error) => junk = Some(error),
                Err(error) => return Err(error),
            }
        }
        match junk {
            Some(error) if seals.list.is_empty() => Err(error),
            _ => Ok(FoundSeals { list: seals.list, is_cut: is_cut || seals.is_cut }),
        }
    }

    async fn take_seals_of(&self, referrer: &Digest, seals: &mut Taken) -> Result<(), RegistryError> {
        let fetched = manifests::fetch(&self.session, &Target::Digest(*referrer)).await?;
        let problem = |problem: String| RegistryError::Manifest { digest: *referrer, problem };
        let manifest = Manifest::parse(&fetched.bytes).map_err(|error| problem(error.to_string()))?;
        for layer in manifest.layers.iter().filter(|layer| layer.media_type == oci::SIGSTORE_BUNDLE) {
            if layer.size > MAX_SEAL_BYTES {
                let size = layer.size;
                return Err(problem(format!("a seal of {size} bytes, more than the {MAX_SEAL_BYTES} accepted")));
            }
            // What has no room leaves it to smaller ones.
            let bytes = seals.bytes.saturating_add(layer.size);
            if seals.blobs.contains(&layer.digest) {
                continue;
            }
            if seals.list.len() >= SEALS_LIMIT || bytes > SEALS_BYTES_LIMIT {
                seals.is_cut = true;
                continue;
            }
            // One manifest may lie about the size of what another one names rightly: only what was fetched counts as taken.
            seals.list.push(self.blob(&layer.digest, layer.size).await?);
            seals.blobs.insert(layer.digest);
            seals.bytes = bytes;
        }
        Ok(())
    }

    /// Bytes of a blob, unchecked: a part has no digest. A registry without ranges sends the blob from its start.
    ///
    /// # Errors
    /// [`RegistryError`], also where the registry sends another part than was asked for.
    pub async fn part(&self, digest: &Digest, range: Range<u64>) -> Result<Vec<u8>, RegistryError> {
        let url = self.session.url(&format!("blobs/{digest}"))?;
        part::fetch(&self.session, &url, range).await
    }

    /// A blob's bytes from `offset` on as they come, unchecked, for a reader who checks each page before it uses it. A stream that breaks off is
    /// taken up by another one from where it ended.
    ///
    /// # Errors
    /// [`RegistryError`], also where the registry sends another part than was asked for.
    pub async fn stream(&self, digest: &Digest, offset: u64) -> Result<BlobStream, RegistryError> {
        let url = self.session.url(&format!("blobs/{digest}"))?;
        blob_stream::open(&self.session, &url, offset).await
    }

    /// The repository's tags, in the registry's order; none where the registry does not know the repository.
    ///
    /// # Errors
    /// [`RegistryError`] where the registry does not answer, or has more tags than anybody reads.
    pub async fn tags(&self) -> Result<Vec<String>, RegistryError> {
        tags::list(&self.session).await
    }

    /// A blob's bytes, in memory: for indexes and page hashes, not for debug files. Size and digest are checked.
    ///
    /// # Errors
    /// [`RegistryError`] names the blob.
    pub async fn blob(&self, digest: &Digest, size: u64) -> Result<Vec<u8>, RegistryError> {
        let url = self.session.url(&format!("blobs/{digest}"))?;
        small(&self.session, &url, *digest, size).await
    }

    fn not_found(&self, target: &Target) -> RegistryError {
        let reference = match target {
            Target::Digest(digest) => self.session.reference().with_digest(*digest).to_string(),
            Target::Tag(_) => self.session.reference().to_string(),
        };
        RegistryError::NotFound { reference, what: "manifest" }
    }
}
