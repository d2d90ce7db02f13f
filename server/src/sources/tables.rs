//! Files of sources artifacts: by path, out of packs that lie in the store.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use symseal_bundle::Digest;
use symseal_bundle::oci::{self, Manifest};
use symseal_bundle::sources::{self, MAX_TABLE_BYTES, SourceTable, TABLE_MEDIA_TYPE};

use super::canonical;
use crate::blobs::{BlobDirectory, OpenBlob};
use crate::debug_files::Scope;
use crate::http::ByteRange;
use crate::repositories::{Reference, Repositories, Repository, RepositoryName};

/// Bytes of tables, as JSON, that are kept in memory; beyond that the memory starts anew.
const REMEMBERED: u64 = 64 << 20;

/// A source file in a pack.
#[derive(Debug)]
pub(crate) struct FoundSource {
    /// The pack, and where the file is in it.
    pub(crate) pack: OpenBlob,
    pub(crate) place: ByteRange,
    /// SHA-256 of the file.
    pub(crate) sha256: Digest,
}

/// The tables that were read.
#[derive(Debug, Default)]
pub(crate) struct SourceTables {
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    /// By their manifests.
    known: HashMap<Digest, Kept>,
    bytes: u64,
}

/// A table, and the blob that it is.
#[derive(Debug, Clone)]
struct Kept {
    digest: Digest,
    table: Arc<Table>,
}

/// The repositories that hold a sources artifact and that the caller may read. What a table names may be any blob of the store: nothing is given but what one of these gives by
/// its digest as well.
struct Holders(Vec<Arc<Repository>>);

impl Holders {
    fn of(repositories: &Repositories, asking: &Scope, artifact: &Digest) -> Self {
        let wanted = Reference::Digest((*artifact).into());
        let holds = |(name, repository): &(RepositoryName, Arc<Repository>)| {
            asking.may_read(name) && repository.manifest(&wanted).is_some()
        };
        Self(repositories.named().into_iter().filter(holds).map(|(_, repository)| repository).collect())
    }

    fn give_manifest(&self, digest: &Digest) -> bool {
        let wanted = Reference::Digest((*digest).into());
        self.0.iter().any(|repository| repository.manifest(&wanted).is_some())
    }

    fn give_blob(&self, digest: &Digest) -> bool {
        self.0.iter().any(|repository| repository.gives_blob(&(*digest).into()))
    }
}

/// A table, and what its own order does not find.
#[derive(Debug)]
pub(crate) struct Table {
    table: SourceTable,
    /// The places of files whose path is not in its canonical form, by that form.
    other_forms: HashMap<Box<str>, Vec<u32>>,
    /// Files whose bytes were compared with their digest.
    checked: Mutex<HashSet<u32>>,
}

impl SourceTables {
    /// The file that `path` names in the sources artifact with this digest, where a repository that the caller may read holds it. Two
    /// files of one path that differ are none: which one the module was made from is not recorded. Blocks.
    pub(crate) fn find(
        &self,
        repositories: &Repositories,
        blobs: &BlobDirectory,
        asking: &Scope,
        sources: &Digest,
        path: &str,
    ) -> io::Result<Option<FoundSource>> {
        let holders = Holders::of(repositories, asking, sources);
        if holders.0.is_empty() {
            return Ok(None);
        }
        let bytes = blobs.read(&(*sources).into(), oci::MAX_MANIFEST_BYTES)?;
        let mut found: Option<(Arc<Table>, u32)> = None;
        for manifest in sources::manifests(sources, &bytes).map_err(invalid)? {
            if !holders.give_manifest(&manifest.digest) {
                continue;
            }
            let Some(Kept { digest, table }) = self.open(blobs, &manifest.digest)? else { continue };
            if !holders.give_blob(&digest) {
                continue;
            }
            for at in table.places(path) {
                let sha256 = |table: &Table, at| table.entry(at).map(|file| file.sha256);
                match &found {
                    Some((other, there)) if sha256(other, *there) != sha256(&table, at) => return Ok(None),
                    Some(_) => {}
                    None => found = Some((Arc::clone(&table), at)),
                }
            }
        }
        let Some((table, at)) = found else { return Ok(None) };
        let is_given =
            table.entry(at).and_then(|file| table.pack(file)).is_some_and(|pack| holders.give_blob(&pack.sha256));
        if is_given { table.read(blobs, at).map(Some) } else { Ok(None) }
    }

    /// The table of one manifest; none when that is not here.
    fn open(&self, blobs: &BlobDirectory, manifest: &Digest) -> io::Result<Option<Kept>> {
        if let Some(known) = self.tables.lock().unwrap_or_else(PoisonError::into_inner).known.get(manifest) {
            return Ok(Some(known.clone()));
        }
        let bytes = blobs.read(&(*manifest).into(), oci::MAX_MANIFEST_BYTES)?;
        let parsed = Manifest::parse(&bytes).map_err(invalid)?;
        let Some(layer) = parsed.layers.first().filter(|layer| layer.media_type == TABLE_MEDIA_TYPE) else {
            return Ok(None);
        };
        let json = blobs.read(&layer.digest.into(), MAX_TABLE_BYTES)?;
        let table = Arc::new(Table::new(SourceTable::parse(&json).map_err(invalid)?));
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if tables.bytes > REMEMBERED {
            *tables = Tables::default();
        }
        tables.bytes = tables.bytes.saturating_add(json.len() as u64);
        let kept = Kept { digest: layer.digest, table };
        tables.known.insert(*manifest, kept.clone());
        Ok(Some(kept))
    }
}

impl Table {
    /// A table that was parsed.
    pub(crate) fn new(table: SourceTable) -> Self {
        let mut other_forms: HashMap<Box<str>, Vec<u32>> = HashMap::new();
        for (at, file) in (0..).zip(&table.files) {
            let form = canonical(&file.path);
            if form != file.path {
                other_forms.entry(form.into()).or_default().push(at);
            }
        }
        Self { table, other_forms, checked: Mutex::default() }
    }

    /// The file at a place.
    pub(crate) fn entry(&self, at: u32) -> Option<&sources::SourceEntry> {
        self.table.files.get(usize::try_from(at).ok()?)
    }

    /// The files that an absolute path names: written so, or in another form of it; else those that are named relative to a directory
    /// that the debug information tells and the table does not.
    pub(crate) fn places(&self, path: &str) -> Vec<u32> {
        let form = canonical(path);
        let relative = form.trim_start_matches('/');
        [path, form.as_str(), relative]
            .into_iter()
            .map(|name| {
                let mut places = self.of_name(name);
                places.extend(self.other_forms.get(name).into_iter().flatten());
                places
            })
            .find(|places| !places.is_empty())
            .unwrap_or_default()
    }

    /// The pack that holds a file.
    pub(crate) fn pack(&self, file: &sources::SourceEntry) -> Option<&sources::PackEntry> {
        self.table.packs.get(usize::try_from(file.pack).ok()?)
    }

    fn of_name(&self, name: &str) -> Vec<u32> {
        let start = self.table.files.partition_point(|file| file.path.as_str() < name);
        let found = self.table.find(name).len();
        let (Ok(start), Ok(found)) = (u32::try_from(start), u32::try_from(found)) else { return Vec::new() };
        (start..start.saturating_add(found)).collect()
    }

    /// Opens a file; its bytes are compared with its digest before they are first given away.
    fn read(&self, blobs: &BlobDirectory, at: u32) -> io::Result<FoundSource> {
        let missing =
            || io::Error::new(io::ErrorKind::InvalidData, "the table of sources names a pack that it has not");
        let file = self.entry(at).ok_or_else(missing)?;
        let pack = self.pack(file).ok_or_else(missing)?;
        let blob = blobs.open_blob(&pack.sha256.into())?;
        let place = ByteRange { start: file.offset, length: file.size };
        if !self.checked.lock().unwrap_or_else(PoisonError::into_inner).contains(&at) {
            let mut bytes = vec![0; usize::try_from(file.size).map_err(io::Error::other)?];
            blob.file.read_exact_at(&mut bytes, file.offset)?;
            let found = Digest::of(&bytes);
            if found != file.sha256 {
                let why = format!("{}: expected {}, found {found} in pack {}", file.path, file.sha256, pack.sha256);
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            self.checked.lock().unwrap_or_else(PoisonError::into_inner).insert(at);
        }
        Ok(FoundSource { pack: blob, place, sha256: file.sha256 })
    }
}

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
