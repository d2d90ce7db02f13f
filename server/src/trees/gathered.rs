//! Several files of trees as one of the cache: one to open, to map and to let go, however many there are.
//!
//! The files, each from a multiple of 16 bytes on, then for each its place and its size (8 bytes each, little-endian), in the order in which they were
//! asked for.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};

use symseal_artifact::{Member, Source, read_archive};
use tempfile::NamedTempFile;

use super::read::{ARCHIVE, Halt, copy, limits};
use super::{Place, Trees, WITHIN};
use crate::blobs::BlobDigest;
use crate::file_cache::{CacheKey, CachedFile, Note};
use crate::pool::Pool;

/// What sections are aligned to at most.
const ALIGNMENT: u64 = 16;

/// Bytes of the entry of a file.
const ENTRY: usize = 16;

/// Some of the files are not there as they were when they were read: these, by their SHA-256.
#[derive(Debug, thiserror::Error)]
#[error("{} of the files are not what they were when they were read", .0.len())]
pub(crate) struct NotAsTheyWere(pub(crate) Vec<[u8; 32]>);

impl Trees {
    /// A copy of files, made once for all who ask.
    ///
    /// # Errors
    /// One that is a [`NotAsTheyWere`]: the others can be had.
    pub(crate) async fn gathered(&self, pools: (&Pool, &Pool), places: &[Place]) -> io::Result<CachedFile> {
        let digests: Vec<String> = places.iter().map(Place::sha256).collect();
        let key = CacheKey::of(&format!("tree files:{}", digest_of_all(digests.iter().map(String::as_str))));
        let places = places.to_vec();
        self.cache.make(pools, key, move |file| write(&places, file)).await
    }
}

/// What files are known by together: the SHA-256 of theirs in hex, a line each, in this order.
pub(crate) fn digest_of_all<'h>(sha256: impl Iterator<Item = &'h str>) -> String {
    let lines: String = sha256.flat_map(|sha256| [sha256, "\n"]).collect();
    BlobDigest::of(lines.as_bytes()).hex().to_owned()
}

/// The files in what was gathered. What is not of that form has none.
pub(crate) fn pieces(gathered: &[u8], count: usize) -> Vec<&[u8]> {
    let entries = count.checked_mul(ENTRY).and_then(|length| gathered.len().checked_sub(length));
    let Some((files, entries)) = entries.and_then(|at| gathered.split_at_checked(at)) else { return Vec::new() };
    let piece = |entry: &[u8; ENTRY]| {
        let (at, size) = entry.split_first_chunk::<8>()?;
        let at = usize::try_from(u64::from_le_bytes(*at)).ok()?;
        let size = usize::try_from(u64::from_le_bytes(*size.as_array()?)).ok()?;
        files.get(at..at.checked_add(size)?)
    };
    entries.as_chunks::<ENTRY>().0.iter().filter_map(piece).collect()
}

fn write(places: &[Place], to: &mut NamedTempFile) -> io::Result<Note> {
    // Nothing is copied where something is known to be missing: else every request would do that in vain.
    check(places.iter().filter(|place| !place.may_be_as_it_was()))?;
    let mut entries = vec![None; places.len()];
    let mut archives: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (at, place) in places.iter().enumerate() {
        if place.is_plain() || place.reach.is_some() {
            let entry = entry(to.as_file_mut(), |to| match place.write(to) {
                // That it is another one now is noted with it.
                Err(error) if is_ours(&error) => Err(error),
                other => Ok(other.ok().map(|_| (place.sha256, place.size))),
            })?;
            if let Some(slot) = entries.get_mut(at) {
                *slot = entry;
            }
        } else {
            archives.entry((place.root.place(), &place.path)).or_default().push(at);
        }
    }
    // What is packed as one is read once for all that is wanted of it.
    for members in archives.into_values() {
        let wanted = members.iter().filter_map(|at| Some((places.get(*at)?.member.as_str(), *at))).collect();
        let Some(place) = members.first().and_then(|at| places.get(*at)) else { continue };
        take_out(place, &wanted, places, &mut entries, to.as_file_mut())?;
    }
    check(places.iter().zip(&entries).filter(|(_, entry)| entry.is_none()).map(|(place, _)| place))?;
    to.seek(SeekFrom::End(0))?;
    for (at, size) in entries.into_iter().flatten() {
        to.write_all(&at.to_le_bytes())?;
        to.write_all(&size.to_le_bytes())?;
    }
    Ok(Note { sha256: String::new(), headers: Vec::new() })
}

/// Where a file lies in what is gathered, and its bytes.
type Entry = (u64, u64);

/// Members of one archive that are not reached otherwise. What cannot be read of it is not there.
fn take_out(
    place: &Place,
    wanted: &BTreeMap<&str, usize>,
    places: &[Place],
    entries: &mut [Option<Entry>],
    to: &mut File,
) -> io::Result<()> {
    let Ok((mut archive, stamp)) = place.root.open_file(&place.path) else { return Ok(()) };
    let mut missing = wanted.len();
    let visit = &mut |member: &Member<'_>, content: &mut dyn Read| -> Result<(), Halt> {
        let Some((at, place)) = wanted.get(member.full_path().as_str()).and_then(|at| Some((*at, places.get(*at)?)))
        else {
            return Ok(());
        };
        let copied = entry(to, |to| copy(content, to).map(|copied| place.is_of(copied).then_some(copied)));
        if let Some(slot) = entries.get_mut(at) {
            *slot = copied.map_err(Halt::Io)?;
        }
        missing = missing.saturating_sub(1);
        if missing == 0 { Err(Halt::Found) } else { Ok(()) }
    };
    match read_archive::<Halt>(ARCHIVE, Source::Seekable(&mut archive), &limits(), visit) {
        Err(Halt::Io(error)) if is_ours(&error) => return Err(error),
        _ => {}
    }
    for (member, at) in wanted {
        if entries.get(*at).is_some_and(Option::is_none) {
            let name = format!("{}{WITHIN}{member}", place.path);
            places.get(*at).iter().for_each(|gone| place.root.note(&name, stamp, &gone.sha256, false));
        }
    }
    Ok(())
}

/// Appends a file; what `copy` does not vouch for is taken away again.
fn entry(
    to: &mut File,
    copy: impl FnOnce(&mut File) -> io::Result<Option<([u8; 32], u64)>>,
) -> io::Result<Option<Entry>> {
    let at = to.seek(SeekFrom::End(0))?.next_multiple_of(ALIGNMENT);
    to.set_len(at)?;
    to.seek(SeekFrom::Start(at))?;
    let copied = copy(to)?;
    if copied.is_none() {
        to.set_len(at)?;
    }
    Ok(copied.map(|(_, size)| (at, size)))
}

fn check<'p>(missing: impl Iterator<Item = &'p Place>) -> io::Result<()> {
    let missing: Vec<[u8; 32]> = missing.map(|place| place.sha256).collect();
    if missing.is_empty() { Ok(()) } else { Err(io::Error::other(NotAsTheyWere(missing))) }
}

/// The disk that is written to is to blame, not the file.
fn is_ours(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gathered_has_its_files_and_what_is_cut_has_none_beyond_it() {
        let mut file = tempfile::tempfile().unwrap();
        let mut bytes = Vec::new();
        for content in [&b"one"[..], b"", b"three"] {
            let copy = |to: &mut File| {
                to.write_all(content)?;
                Ok(Some(([0; 32], content.len() as u64)))
            };
            let (at, size) = entry(&mut file, copy).unwrap().unwrap();
            assert_eq!(at % ALIGNMENT, 0);
            bytes.extend_from_slice(&at.to_le_bytes());
            bytes.extend_from_slice(&size.to_le_bytes());
        }
        // Half of a file that is not what was wanted leaves nothing.
        let half = |to: &mut File| to.write_all(b"half of it").map(|()| None);
        assert_eq!(entry(&mut file, half).unwrap(), None);
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(&bytes).unwrap();
        let mut whole = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut whole).unwrap();
        assert_eq!(pieces(&whole, 3), [&b"one"[..], b"", b"three"]);
        assert_eq!(pieces(&whole, usize::MAX), Vec::<&[u8]>::new());
        for end in 0..whole.len() {
            assert!(pieces(&whole[..end], 3).len() <= 3);
        }
    }
}
