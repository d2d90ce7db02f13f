//! `symseal store scrub`: every blob is hashed again, and what is not what its name says is moved aside.
//!
//! In the directory and in the object store alike, and beside running servers: a blob is never rewritten, and moving one aside is
//! what a deletion would be to its readers. Damaged bytes are kept, below `damaged/`, for whoever wants to know what happened.

mod named;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::blobs::{Algorithm, BlobDigest, BlobDirectory, Hasher, blob_key, blob_of_key, hash_file, unless_lost};
use crate::config::BlobsConfig;
use crate::notes::Notes;
use crate::objects::Objects;
use crate::repositories::{FactKey, MANIFEST_LIMIT, RepositoryName, fact_files};
use crate::shared::Facts;
use crate::takedown::TOMBSTONES;
use crate::{ServerError, opened};

use named::{Names, follow};

/// The folder, and the beginning of keys, of what is not what its name says.
const DAMAGED: &str = "damaged";

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Blobs that were hashed, in the directory and in the object store.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What was moved aside.
    pub damaged: Vec<Damaged>,
    /// Digests of what the object store had lost, and got back from the cache.
    pub restored: Vec<String>,
    /// What repositories offer, or their manifests name, and nobody has.
    pub missing: Vec<Missing>,
    /// What manifests of a repository name and it does not offer.
    pub unlinked: Vec<Missing>,
}

impl Scrubbed {
    /// Whether every blob is what its name says, and was there, and what manifests name is offered.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let found = [&self.missing, &self.unlinked].into_iter().all(Vec::is_empty);
        found && self.damaged.is_empty() && self.restored.is_empty()
    }
}

/// A blob that is not what its name says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// Its name.
    pub digest: String,
    /// The digest of its bytes.
    pub found: String,
    /// How many there are.
    pub size: u64,
    /// Where they are now: a file, or an object's URL.
    pub moved_to: String,
}

/// A blob that a repository offers and that is not there, or no longer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Missing {
    /// The repository.
    pub repository: String,
    /// The blob's or the manifest's digest.
    pub digest: String,
}

/// Scrubs a data directory, and the object store that it is a cache of. Blocks; call it in a runtime's blocking thread.
///
/// # Errors
/// [`ServerError`]: something cannot be read or moved.
pub fn scrub(data: &Path, blobs: Option<&BlobsConfig>) -> Result<Scrubbed, ServerError> {
    let failed = |source| ServerError::Data { path: data.to_owned(), source };
    let mut scrubbed = Scrubbed::default();
    let directory = BlobDirectory::existing(data);
    directory_of(data, &directory, &mut scrubbed).map_err(failed)?;
    let (missing, unlinked) = match blobs {
        Some(config) => {
            let objects = opened::objects_of(config)?;
            let away =
                |error: io::Error| ServerError::Objects { place: config.url.to_string(), problem: error.to_string() };
            let present = objects_of(&objects, &directory, &mut scrubbed).map_err(away)?;
            let keys = objects.list("repositories").map_err(away)?;
            let facts = keys.iter().filter_map(|(key, _)| FactKey::parse(key)).collect();
            let mut restored = Vec::new();
            // What was pushed since the blobs were listed is looked for by itself.
            let has = |digest: &BlobDigest| {
                if present.contains(digest) || objects.size(&blob_key(digest))?.is_some() {
                    return Ok(true);
                }
                let is_restored = restore(&objects, &directory, digest)?;
                restored.extend(is_restored.then(|| digest.to_string()));
                Ok(is_restored)
            };
            let reader = Some(Arc::new(Facts::reader(Arc::clone(&objects))));
            let found = look_for(facts, &*objects, &Notes::new(TOMBSTONES, data, reader), has).map_err(away)?;
            scrubbed.restored.extend(restored);
            found
        }
        None => {
            let facts = fact_files(data).map_err(failed)?;
            let has = |digest: &BlobDigest| Ok(directory.size(digest)?.is_some());
            let files = Files { data, directory: &directory };
            look_for(facts, &files, &Notes::new(TOMBSTONES, data, None), has).map_err(failed)?
        }
    };
    (scrubbed.missing, scrubbed.unlinked) = (missing, unlinked);
    Ok(scrubbed)
}

/// A data directory.
struct Files<'a> {
    data: &'a Path,
    directory: &'a BlobDirectory,
}

impl Names for Files<'_> {
    fn manifest(&self, digest: &BlobDigest) -> io::Result<Option<Vec<u8>>> {
        unless_lost(self.directory.read(digest, MANIFEST_LIMIT as u64))
    }

    fn says(&self, name: &RepositoryName, fact: &FactKey) -> io::Result<bool> {
        self.data.join(fact.key(name)).try_exists()
    }
}

impl Names for Objects {
    fn manifest(&self, digest: &BlobDigest) -> io::Result<Option<Vec<u8>>> {
        Ok(unless_lost(self.get(&blob_key(digest), MANIFEST_LIMIT as u64))?.flatten())
    }

    fn says(&self, name: &RepositoryName, fact: &FactKey) -> io::Result<bool> {
        Ok(self.size(&fact.key(name))?.is_some())
    }
}

fn directory_of(data: &Path, directory: &BlobDirectory, scrubbed: &mut Scrubbed) -> io::Result<()> {
    for algorithm in Algorithm::ALL {
        for shard in 0..=u8::MAX {
            for stored in directory.shard(algorithm, shard)? {
                let path = directory.path(&stored.digest);
                let hashed = fs::File::open(&path).and_then(|mut file| hash_file(&mut file, algorithm));
                let (found, size) = match hashed {
                    // Collected, or evicted, meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    hashed => {
                        let (hasher, size) = hashed?;
                        (hasher.finish(), size)
                    }
                };
                scrubbed.blobs += 1;
                scrubbed.bytes += size;
                if found != stored.digest {
                    let aside = aside(data, &stored.digest)?;
                    fs::rename(&path, &aside)?;
                    let moved_to = aside.display().to_string();
                    scrubbed.damaged.push(damaged(&stored.digest, &found, size, moved_to));
                }
            }
        }
    }
    Ok(())
}

fn aside(data: &Path, digest: &BlobDigest) -> io::Result<PathBuf> {
    let folder = data.join(DAMAGED);
    fs::create_dir_all(&folder)?;
    Ok(folder.join(format!("{}-{}", digest.algorithm().name(), digest.hex())))
}

/// The blobs that are sound.
fn objects_of(
    objects: &Arc<Objects>,
    cache: &BlobDirectory,
    scrubbed: &mut Scrubbed,
) -> io::Result<BTreeSet<BlobDigest>> {
    let mut present = BTreeSet::new();
    for (key, _) in objects.list("blobs")? {
        let Some(digest) = blob_of_key(&key) else { continue };
        let (mut hasher, mut size) = (Hasher::new(digest.algorithm()), 0);
        let is_there = objects.read(&key, |chunk| {
            hasher.update(chunk);
            size += chunk.len() as u64;
            Ok(())
        })?;
        if !is_there {
            continue;
        }
        scrubbed.blobs += 1;
        scrubbed.bytes += size;
        let found = hasher.finish();
        if found == digest {
            present.insert(digest);
            continue;
        }
        let to = format!("{DAMAGED}/{}-{}", digest.algorithm().name(), digest.hex());
        objects.rename(&key, &to)?;
        scrubbed.damaged.push(damaged(&digest, &found, size, format!("{}/{to}", objects.url())));
        if restore(objects, cache, &digest)? {
            scrubbed.restored.push(digest.to_string());
            present.insert(digest);
        }
    }
    Ok(present)
}

/// Puts a blob into the object store again out of the cache, where that has it whole; whether it did.
fn restore(objects: &Objects, cache: &BlobDirectory, digest: &BlobDigest) -> io::Result<bool> {
    match cache.is_sound(digest) {
        Ok(false) => return Ok(false),
        // Never cached here, or evicted meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        sound => sound?,
    };
    match objects.put_file(&blob_key(digest), &cache.path(digest)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        put => put.map(|()| true),
    }
}

fn damaged(digest: &BlobDigest, found: &BlobDigest, size: u64, moved_to: String) -> Damaged {
    Damaged { digest: digest.to_string(), found: found.to_string(), size, moved_to }
}

/// What is missing, and what is not linked.
fn look_for(
    facts: Vec<(RepositoryName, FactKey)>,
    store: &impl Names,
    tombstones: &Notes,
    mut has: impl FnMut(&BlobDigest) -> io::Result<bool>,
) -> io::Result<(Vec<Missing>, Vec<Missing>)> {
    let mut missing = Vec::new();
    for (repository, fact) in &facts {
        let (FactKey::Blob(digest) | FactKey::Manifest(digest)) = fact else { continue };
        if !has(digest)? {
            missing.push(Missing { repository: repository.to_string(), digest: digest.to_string() });
        }
    }
    let taken_down = tombstones.stamps()?.into_keys().collect();
    let followed = follow(&facts, store, &taken_down, has)?;
    missing.extend(followed.missing);
    missing.sort();
    missing.dedup();
    Ok((missing, followed.unlinked))
}
