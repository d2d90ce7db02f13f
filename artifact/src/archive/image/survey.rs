//! Where in a tar images lie: their own files stand anywhere in it, so that all names are seen before it is read.

use std::collections::BTreeSet;
use std::io::{self, Read, SeekFrom};

use ::tar::{EntryType, Header};

use super::DIGEST_DIGITS;
use crate::archive::ReadSeek;
use crate::archive::kind::{archive_kind, is_tar_header};
use crate::archive::member::normalised;

/// A tar's header and the unit of its members.
const BLOCK: usize = 512;
/// So much of a compressed tar, unpacked, or of one within another archive is looked at before it is known to be worth a look at all of it.
pub(in crate::archive) const BEGINNING: usize = 1 << 20;
/// Members of so many bytes are read over, and larger ones stepped over.
const NEAR: u64 = 128 << 10;
/// Folders with images in one tar; what is in others is read as it lies, and told.
const MAX_FOLDERS: usize = 16;
/// Folders that are held while it is not known whether they have what an image has.
const MAX_HALVES: usize = 4096;

/// The files by which images are known, as they come up.
#[derive(Debug, Default)]
pub(in crate::archive) struct Signs {
    layouts: BTreeSet<Vec<u8>>,
    indexes: BTreeSet<Vec<u8>>,
    saved: BTreeSet<Vec<u8>>,
}

impl Signs {
    /// A file of the tar, by its path.
    pub(in crate::archive) fn see(&mut self, path: &[u8]) {
        let path = normalised(path);
        let at = path.iter().rposition(|byte| *byte == b'/');
        let (folder, name) = match at {
            Some(at) => (path.get(..at).unwrap_or_default(), path.get(at.saturating_add(1)..).unwrap_or_default()),
            None => (&b""[..], path.as_slice()),
        };
        let folders = match name {
            b"oci-layout" => &mut self.layouts,
            b"index.json" => &mut self.indexes,
            b"manifest.json" => &mut self.saved,
            _ => return,
        };
        if folders.len() < MAX_HALVES {
            folders.insert(folder.to_vec());
        }
    }

    /// The folders that may hold images, outermost first; none lies in another.
    pub(in crate::archive) fn folders(&self) -> Vec<Vec<u8>> {
        let layouts = self.layouts.intersection(&self.indexes).chain(&self.saved).collect::<BTreeSet<_>>();
        let mut folders: Vec<Vec<u8>> = Vec::new();
        for folder in layouts {
            if folders.len() < MAX_FOLDERS && !folders.iter().any(|outer| within(folder, outer).is_some()) {
                folders.push(folder.clone());
            }
        }
        folders
    }

    /// Whether images are there: a layout for certain, and what `docker save` writes where archives lie beside its list.
    pub(in crate::archive) fn are_images(&self, has_archives: bool) -> bool {
        self.layouts.intersection(&self.indexes).next().is_some() || has_archives && !self.saved.is_empty()
    }
}

/// The rest of a path below a folder; none where it is not below.
pub(super) fn within<'p>(path: &'p [u8], folder: &[u8]) -> Option<&'p [u8]> {
    if folder.is_empty() {
        return Some(path);
    }
    let rest = path.strip_prefix(folder)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b"/") }
}

/// The folders of a plain tar that may hold images. Members are stepped over, so that this costs a read for each.
///
/// Where the tar is damaged, what was seen before counts. None where it has what only its reader knows: sparse files of GNU, very long extension
/// records, hard links with a size.
pub(super) fn of_file(input: &mut dyn ReadSeek, members: u64) -> io::Result<Option<Vec<Vec<u8>>>> {
    let mut signs = Signs::default();
    input.seek(SeekFrom::Start(0))?;
    let mut size_of_next = None;
    for _ in 0..members {
        let Some(block) = block(input)? else { break };
        let header = Header::from_byte_slice(&block);
        let Ok(stored) = header.entry_size() else { break };
        let stored = match header.entry_type() {
            EntryType::XHeader => {
                let Some((records, skipped)) = records(input, stored)? else { return Ok(None) };
                size_of_next = size_in(&records);
                skipped
            }
            EntryType::XGlobalHeader | EntryType::GNULongName | EntryType::GNULongLink => padded(stored),
            EntryType::GNUSparse => return Ok(None),
            EntryType::Link if stored > 0 => return Ok(None),
            EntryType::Link | EntryType::Symlink | EntryType::Directory => {
                size_of_next = None;
                0
            }
            _ => {
                signs.see(&header.path_bytes());
                padded(size_of_next.take().unwrap_or(stored))
            }
        };
        // A reader with a buffer drops it when it is sent elsewhere: small members are read over.
        if stored <= NEAR {
            io::copy(&mut (&mut *input).take(stored), &mut io::sink())?;
        } else {
            let Ok(stored) = i64::try_from(stored) else { break };
            input.seek(SeekFrom::Current(stored))?;
        }
    }
    Ok(Some(signs.folders()))
}

/// Whether the beginning of a tar looks like one of images: then all of it is looked at. It has one of the names that docker, podman, skopeo,
/// BuildKit, kaniko, Bazel and Nix write, at any depth, or a tar of its own.
pub(in crate::archive) fn is_worth_a_look(beginning: &[u8]) -> bool {
    let mut at = 0_usize;
    while let Some(header) = beginning.get(at..).and_then(|rest| rest.first_chunk::<BLOCK>()) {
        if !is_tar_header(header) {
            return false;
        }
        let header = Header::from_byte_slice(header);
        let data = at.saturating_add(BLOCK);
        let content = beginning.get(data..).unwrap_or_default();
        let is_archive = content.first_chunk::<BLOCK>().is_some_and(|head| archive_kind(head).is_some());
        let path = normalised(&header.path_bytes());
        let is_file = matches!(header.entry_type(), EntryType::Regular | EntryType::Continuous);
        if is_file && (is_archive || is_of_image(&path)) {
            return true;
        }
        let size = header.entry_size().ok().map(padded).and_then(|size| usize::try_from(size).ok());
        at = data.saturating_add(size.unwrap_or(usize::MAX));
    }
    false
}

fn is_of_image(path: &[u8]) -> bool {
    let known: [&[u8]; 5] = [b"blobs", b"oci-layout", b"index.json", b"manifest.json", b"repositories"];
    let mut parts = path.split(|byte| *byte == b'/');
    parts.any(|part| known.contains(&part) || is_digest(part)) || path.ends_with(b".json") || path.ends_with(b".tar")
}

/// Whether a name begins with the hex digits of a SHA-256.
pub(super) fn is_digest(name: &[u8]) -> bool {
    let digest = name.strip_prefix(b"sha256:").unwrap_or(name);
    digest.get(..DIGEST_DIGITS).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

fn padded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(BLOCK as u64).unwrap_or(u64::MAX)
}

/// The next header; none at the end, or where there is none.
fn block(input: &mut dyn ReadSeek) -> io::Result<Option<[u8; BLOCK]>> {
    let mut block = Vec::with_capacity(BLOCK);
    input.take(BLOCK as u64).read_to_end(&mut block)?;
    Ok(block.first_chunk().copied().filter(is_tar_header))
}

/// Extension records, and what is left of their last block; none where they are longer than any that is known.
fn records(input: &mut dyn ReadSeek, bytes: u64) -> io::Result<Option<(Vec<u8>, u64)>> {
    const MAX_RECORDS: u64 = 64 << 10;
    if bytes > MAX_RECORDS {
        return Ok(None);
    }
    let mut records = Vec::new();
    input.take(bytes).read_to_end(&mut records)?;
    Ok(Some((records, padded(bytes).saturating_sub(bytes))))
}

/// The size that pax records give the next member, where its header has no room for it.
fn size_in(records: &[u8]) -> Option<u64> {
    let mut lines = records.split(|byte| *byte == b'\n');
    lines.find_map(|line| {
        let at = line.windows(6).position(|six| six == b" size=")?;
        std::str::from_utf8(line.get(at.saturating_add(6)..)?).ok()?.parse().ok()
    })
}
