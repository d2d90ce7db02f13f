//! The bytes of a file of a tree.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::sync::Arc;

use tempfile::NamedTempFile;

use super::read::{copy, extract};
use super::{Place, Trees, WITHIN, path_within};
use crate::blobs::{Algorithm, BlobDigest, OpenBlob, hash_file};
use crate::file_cache::{CacheKey, CachedFile, Note};
use crate::file_stamp::FileStamp;
use crate::pool::Pool;

/// What the debug file of a program is called behind the program's name.
const PROGRAMS_DEBUG_FILE: [&str; 2] = [".debug", ".dbg"];

/// Why a file of a tree is not had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TreeError {
    /// It was removed.
    #[error("{0} is not there any more")]
    Gone(String),
    /// It cannot be read at this moment, or is another one than the last scan has seen: the next one will say what it answers for.
    #[error("{name}: {error}")]
    Unreadable {
        /// The file.
        name: String,
        /// Why.
        error: io::Error,
    },
}

impl Place {
    /// SHA-256 of the file, in hex.
    pub(crate) fn sha256(&self) -> String {
        BlobDigest::from_sha256(self.sha256).hex().to_owned()
    }

    /// Whether it is the file with that SHA-256.
    pub(crate) fn is_sha256(&self, sha256: &[u8; 32]) -> bool {
        self.sha256 == *sha256
    }

    /// Whether it lies there by itself.
    pub(crate) fn is_plain(&self) -> bool {
        self.member.is_empty()
    }

    /// What debuggers are told that it is called: its path, or that in its archive.
    pub(crate) fn shown(&self) -> String {
        if self.is_plain() { self.name() } else { path_within(&self.name(), &self.member, &self.file) }
    }

    /// The path of the archive that it lies in.
    pub(crate) fn archive(&self) -> Option<String> {
        (!self.is_plain()).then(|| self.name())
    }

    pub(super) fn name(&self) -> String {
        self.root.name_of(&self.path)
    }

    fn unreadable(&self, error: io::Error) -> TreeError {
        TreeError::Unreadable { name: self.name(), error }
    }

    fn is_another(&self) -> TreeError {
        self.unreadable(io::Error::other("it is not what it was when it was read"))
    }

    /// Opens what it lies in, or is, with what is known of it now. Blocks.
    fn container(&self) -> Result<(File, FileStamp), TreeError> {
        self.root.open_file(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => TreeError::Gone(self.name()),
            _ => self.unreadable(error),
        })
    }

    /// Opens a file that lies there by itself, and says in which state it was found. One that was touched is read, as its bytes may be the same. Blocks.
    fn open(&self) -> Result<(OpenBlob, FileStamp), TreeError> {
        let (mut file, stamp) = self.container()?;
        let modified = file.metadata().ok().and_then(|metadata| metadata.modified().ok());
        if stamp != self.stamp {
            let is_same = match self.root.is_same(&self.path, stamp, &self.sha256) {
                Some(known) => known,
                None if stamp.size != self.size => false,
                None => {
                    let read = hash_file(&mut file, Algorithm::Sha256);
                    let (hasher, _) = read.map_err(|error| self.unreadable(error))?;
                    file.rewind().map_err(|error| self.unreadable(error))?;
                    let is_same = hasher.finish() == BlobDigest::from_sha256(self.sha256);
                    self.root.note(&self.path, stamp, &self.sha256, is_same);
                    is_same
                }
            };
            if !is_same {
                return Err(self.is_another());
            }
        }
        // The state from before it was read: what was written to it since is seen when it is sent.
        Ok((OpenBlob { file, size: self.size, modified }, stamp))
    }

    /// Whether it, or what it lies in, is there, and not known to be another one now. Blocks.
    pub(super) fn may_be_as_it_was(&self) -> bool {
        let Ok((_, stamp)) = self.container() else { return false };
        let is_large_enough = !self.is_plain() || stamp.size == self.size;
        is_large_enough && self.root.is_same(&self.way(), stamp, &self.sha256) != Some(false)
    }

    /// What is noted of it is noted under this.
    fn way(&self) -> String {
        if self.is_plain() { self.path.clone() } else { format!("{}{WITHIN}{}", self.path, self.member) }
    }

    /// Copies it to where `to` stands, at its end. Blocks.
    pub(super) fn write(&self, to: &mut File) -> io::Result<Note> {
        // Whatever it is now, it holds the file or does not.
        let (mut container, stamp) = self.container().map_err(io::Error::other)?;
        let name = self.way();
        if self.root.is_same(&name, stamp, &self.sha256) == Some(false) {
            return Err(io::Error::other(self.is_another()));
        }
        let copied = if self.is_plain() { Some(copy(&mut container, to)?) } else { self.take_out(&mut container, to)? };
        let same = copied.is_some_and(|copied| self.is_of(copied));
        if !same {
            self.root.note(&name, stamp, &self.sha256, false);
            return Err(io::Error::other(self.is_another()));
        }
        Ok(Note { sha256: self.sha256(), headers: Vec::new() })
    }

    /// Copies a member of an archive: from its place, where that is known and right, else by reading the archive. Blocks.
    fn take_out(&self, archive: &mut File, to: &mut File) -> io::Result<Option<([u8; 32], u64)>> {
        if let Some(reach) = self.reach {
            let start = to.stream_position()?;
            match reach.read(archive, |content| copy(content, to)) {
                Ok(copied) if self.is_of(copied) => return Ok(Some(copied)),
                Ok(_) => {
                    tracing::info!(archive = self.name(), member = self.member, "not at its place: the archive is read")
                }
                Err(error) => {
                    tracing::info!(archive = self.name(), member = self.member, %error, "not at its place: the archive is read")
                }
            }
            to.set_len(start)?;
            to.seek(SeekFrom::Start(start))?;
        }
        extract(archive, &self.member, to)
    }

    pub(super) fn is_of(&self, (sha256, size): ([u8; 32], u64)) -> bool {
        sha256 == self.sha256 && size == self.size
    }
}

impl Trees {
    /// A file that lies there by itself, opened, and the state that it was found in.
    pub(crate) async fn opened(&self, pool: &Pool, place: &Place) -> Result<(Arc<OpenBlob>, FileStamp), TreeError> {
        let name = place.name();
        if let Some(kept) = self.kept_open.get(&name, &place.sha256) {
            return Ok(kept);
        }
        let wanted = place.clone();
        let lost = |error| TreeError::Unreadable { name: place.file.clone(), error: io::Error::other(error) };
        let (blob, stamp) = pool.run(move || wanted.open()).await.map_err(lost)??;
        let blob = Arc::new(blob);
        self.kept_open.keep(name, place.sha256, (&blob, stamp));
        Ok((blob, stamp))
    }

    /// A copy in the cache, made once for all who ask at the same time: what comes out of an archive, and what is to be mapped.
    pub(crate) async fn cached(&self, pools: (&Pool, &Pool), place: &Place) -> Result<CachedFile, TreeError> {
        let (name, wanted) = (place.name(), place.clone());
        // By its content: packages of two releases often hold the same file.
        let key = CacheKey::of(&format!("tree:{}", place.sha256()));
        let made = self.cache.make(pools, key, move |file| wanted.write(file.as_file_mut())).await;
        // Not when the copy was made: that is another time after it has been evicted, and on another server.
        let as_old = |mut file: CachedFile| {
            file.blob.modified = place.stamp.modified();
            file
        };
        made.map(as_old).map_err(|error| match error.downcast::<TreeError>() {
            Ok(error) => error,
            Err(error) => TreeError::Unreadable { name, error },
        })
    }

    /// The package of split DWARF beside a file (`app.dwp` beside `app` and `app.debug`), be it in a folder or in an archive, as a copy in the cache. None
    /// where there is none, or none that can be read now.
    pub(crate) async fn package(&self, pools: (&Pool, &Pool), place: &Place) -> Option<CachedFile> {
        let way = if place.is_plain() { &place.path } else { &place.member };
        let stems = std::iter::once(way.as_str())
            .chain(PROGRAMS_DEBUG_FILE.iter().filter_map(|ending| way.strip_suffix(ending)));
        for beside in stems.map(|stem| format!("{stem}.dwp")) {
            let (path, member) = if place.is_plain() { (beside, None) } else { (place.path.clone(), Some(beside)) };
            let (root, wanted) = (Arc::clone(&place.root), path.clone());
            let Ok(Ok((_, stamp))) = pools.0.run(move || root.open_file(&wanted)).await else { continue };
            let (root, name) = (Arc::clone(&place.root), place.root.name_of(&path));
            let name = member.as_ref().map_or_else(|| name.clone(), |member| format!("{name}{WITHIN}{member}"));
            let key = CacheKey::of(&format!("tree package:{name}:{stamp}"));
            let write = move |to: &mut NamedTempFile| {
                let (mut file, _) = root.open_file(&path)?;
                let copied = match &member {
                    None => Some(copy(&mut file, to.as_file_mut())?),
                    Some(member) => match extract(&mut file, member, to.as_file_mut()) {
                        // A damaged archive has none until it is another one.
                        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                            to.as_file().set_len(0)?;
                            None
                        }
                        other => other?,
                    },
                };
                // Half of it may have been another file's.
                if root.open_file(&path)?.1 != stamp {
                    return Err(io::Error::other("it is written to"));
                }
                // That an archive has none is remembered: it was read for that.
                let hex = |(sha256, _)| BlobDigest::from_sha256(sha256).hex().to_owned();
                Ok(Note { sha256: copied.map(hex).unwrap_or_default(), headers: Vec::new() })
            };
            match self.cache.make(pools, key, write).await {
                Ok(file) if file.note.sha256.is_empty() || self.is_taken_down(&file.note.sha256) => {}
                Ok(file) => return Some(file),
                Err(error) => tracing::info!(file = name, %error, "a package of split DWARF is not read"),
            }
        }
        None
    }

    fn is_taken_down(&self, sha256: &str) -> bool {
        format!("sha256:{sha256}").parse().is_ok_and(|digest| self.taken_down.has(&digest))
    }
}
