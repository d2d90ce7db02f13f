//! Paths and checksums of source files.

use super::annotations::NO_FILE;
use super::header::{named_stream, u32_at};
use super::identity::INFO_STREAM;
use super::lines::ModuleLines;
use super::pages::Pages;
use crate::Checksum;
use crate::work::Work;
use pdb2::{PDB, StreamIndex};
use std::collections::HashMap;
use symseal_symx::StrId;

/// Kinds of checksums. (`CV_SourceChksum_t` in `cvinfo.h` of microsoft-pdb)
mod kind {
    pub(super) const MD5: u8 = 1;
    pub(super) const SHA1: u8 = 2;
    pub(super) const SHA256: u8 = 3;
}

/// What the stream of texts starts with.
const STRING_TABLE: u32 = 0xeffe_effe;

/// The longest path that is taken, in bytes: what Windows takes, 32767 characters of up to three bytes.
pub(crate) const PATH: usize = 3 * 32767;

/// Why a file has no path that line information names: the module's list of files does not have it, or its name lies outside of the texts.
const FILE_OUTSIDE: &str = "source file outside of a PDB's lists of files and names";

/// Reads paths; those of one module are remembered.
pub(crate) struct Files {
    /// The texts of the stream `/names`.
    names: Vec<u8>,
    known: HashMap<u32, StrId>,
}

impl Files {
    pub(crate) fn read<'d>(pdb: &mut PDB<'d, Pages<'d>>) -> Self {
        let mut names = || {
            let info = pdb.raw_stream(INFO_STREAM).ok()??;
            let stream = pdb.raw_stream(StreamIndex(named_stream(&info, b"/names")?)).ok()??;
            // Magic number, version of the hash, bytes of texts.
            let size = usize::try_from(u32_at(&stream, 8)?).ok()?;
            let texts = stream.get(12..).filter(|_| u32_at(&stream, 0) == Some(STRING_TABLE))?;
            Some(texts.get(..size.min(texts.len()))?.to_vec())
        };
        Self { names: names().unwrap_or_default(), known: HashMap::new() }
    }

    /// Forgets the files of the module before.
    pub(crate) fn start_module(&mut self) {
        self.known.clear();
    }

    /// Bytes of all texts.
    pub(crate) fn size(&self) -> usize {
        self.names.len()
    }

    /// The text at an offset of the string table; none where no end of it comes within `limit` bytes: a long text without one would be looked through
    /// again for each offset in it.
    pub(crate) fn text(&self, at: u32, limit: usize) -> Option<&[u8]> {
        let rest = self.names.get(usize::try_from(at).ok()?..)?;
        let rest = rest.get(..limit.saturating_add(1).min(rest.len()))?;
        rest.get(..memchr::memchr(0, rest)?)
    }

    /// The path of the file whose checksum stands at this offset; empty where there is none.
    pub(crate) fn path(&mut self, lines: &ModuleLines, file: u32, work: &mut Work) -> StrId {
        if let Some(known) = self.known.get(&file) {
            return *known;
        }
        let found =
            lines.file(file).and_then(|(name, kind, bytes)| Some((self.text(name, PATH)?, checksum(kind, bytes))));
        let path = match found {
            Some((path, checksum)) if !path.is_empty() => {
                let path = work.text(path);
                work.source(path, checksum);
                path
            }
            // An inlined function without a record has no file, which is no damage.
            _ if file == NO_FILE => StrId::EMPTY,
            _ => {
                work.skip(FILE_OUTSIDE);
                StrId::EMPTY
            }
        };
        self.known.insert(file, path);
        path
    }
}

pub(super) fn checksum(kind: u8, bytes: &[u8]) -> Option<Checksum> {
    match kind {
        kind::MD5 => bytes.try_into().ok().map(Checksum::Md5),
        kind::SHA1 => bytes.try_into().ok().map(Checksum::Sha1),
        kind::SHA256 => bytes.try_into().ok().map(Checksum::Sha256),
        _ => None,
    }
}
