//! Files that a symbol store has packed, each alone in a cabinet (`app.pd_`).

use std::fs::File;
use std::io::{self, Read, Write as _};

use symseal_artifact::{ArchiveError, ArchiveKind, FileKind, Limits, Member, Source, read_archive, sniff};
use tempfile::NamedTempFile;

use crate::blobs::{Algorithm, Hasher};
use crate::file_cache::FileCache;

/// Bytes that are unpacked at once.
const BLOCK: usize = 64 << 10;

/// Whether these are the first bytes of a cabinet.
pub(super) fn is_cabinet(start: &[u8]) -> bool {
    sniff(start) == FileKind::Archive(ArchiveKind::Cab)
}

/// A file out of its cabinet.
pub(super) struct Unpacked {
    pub(super) file: NamedTempFile,
    pub(super) hasher: Hasher,
    pub(super) bytes: u64,
}

/// Why it is not unpacked.
enum Stopped {
    Disk(io::Error),
    Content(String),
}

impl From<ArchiveError> for Stopped {
    fn from(error: ArchiveError) -> Self {
        Self::Content(error.to_string())
    }
}

/// The one file in a cabinet, of at most `limit` bytes; else what is wrong with the cabinet. Blocks.
pub(super) fn unpack(cabinet: &mut File, cache: &FileCache, limit: u64) -> io::Result<Result<Unpacked, String>> {
    let mut found = None;
    let visit = &mut |_: &Member<'_>, content: &mut dyn Read| -> Result<(), Stopped> {
        if found.is_some() {
            return Err(Stopped::Content("expected one file in the cabinet, found several".to_owned()));
        }
        found = Some(write_out(content, cache)?);
        Ok(())
    };
    let limits = Limits { members: 2, depth: 0, member_bytes: limit, total_bytes: limit, ..Limits::default() };
    let report = match read_archive::<Stopped>("cabinet", Source::Seekable(cabinet), &limits, visit) {
        Ok(report) => report,
        Err(Stopped::Disk(error)) => return Err(error),
        Err(Stopped::Content(why)) => return Ok(Err(why)),
    };
    let why = || report.passed_over.first().map_or_else(|| "no file".to_owned(), |passed| passed.reason.to_string());
    Ok(found.ok_or_else(|| format!("expected one file in the cabinet, found {}", why())))
}

fn write_out(content: &mut dyn Read, cache: &FileCache) -> Result<Unpacked, Stopped> {
    let file = cache.begin().map_err(Stopped::Disk)?;
    let mut unpacked = Unpacked { file, hasher: Hasher::new(Algorithm::Sha256), bytes: 0 };
    let mut block = vec![0; BLOCK];
    loop {
        let read = content.read(&mut block).map_err(|error| Stopped::Content(error.to_string()))?;
        let Some(piece) = block.get(..read).filter(|piece| !piece.is_empty()) else { return Ok(unpacked) };
        unpacked.file.write_all(piece).map_err(Stopped::Disk)?;
        unpacked.hasher.update(piece);
        unpacked.bytes = unpacked.bytes.saturating_add(read as u64);
    }
}
