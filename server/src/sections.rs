//! Where a section's bytes are in a blob: parsed once, then remembered.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};

use symseal_artifact::ObjectFile;

use crate::blobs::{BlobDigest, BlobDirectory, check_size, map_own};
use crate::http::ByteRange;

/// Answers remembered; beyond that the memory starts anew.
const REMEMBERED: usize = 10_000;

/// The places of sections, by blob and name. A section that is not there is remembered too.
#[derive(Debug, Default)]
pub(crate) struct Sections {
    places: Mutex<HashMap<(BlobDigest, String), Option<ByteRange>>>,
}

impl Sections {
    /// Where a section's stored bytes are in a blob of so many bytes; `None` when the file has no such section, or no bytes of it. Blocks.
    pub(crate) fn find(
        &self,
        blobs: &BlobDirectory,
        (digest, size): (&BlobDigest, u64),
        name: &str,
    ) -> io::Result<Option<ByteRange>> {
        let key = (digest.clone(), name.to_owned());
        if let Some(place) = self.lock().get(&key) {
            return Ok(*place);
        }
        let blob = blobs.open_blob(digest)?;
        // What is cut off proves the absence of nothing.
        check_size(digest, blob.size, size)?;
        let place = locate(&blob.file, name)?;
        let mut places = self.lock();
        if places.len() >= REMEMBERED {
            places.clear();
        }
        places.insert(key, place);
        Ok(place)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(BlobDigest, String), Option<ByteRange>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a section's stored bytes are in a file of our own store or cache. Blocks.
pub(crate) fn locate(file: &File, name: &str) -> io::Result<Option<ByteRange>> {
    let bytes = map_own(file)?;
    let Ok(object) = ObjectFile::parse(&bytes) else { return Ok(None) };
    let Some((_, section)) = object.section(name).filter(|(_, section)| !section.is_empty()) else { return Ok(None) };
    // The section is a part of the map, so its place in the file is the distance of the two starts.
    let start = (section.as_ptr() as usize).checked_sub(bytes.as_ptr() as usize).map(|start| start as u64);
    Ok(start.map(|start| ByteRange { start, length: section.len() as u64 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sections_place_holds_its_bytes() {
        let path = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let file = File::open(&path).unwrap();
        let place = locate(&file, ".shstrtab").unwrap().unwrap();
        let section = &bytes[place.start as usize..][..place.length as usize];
        assert!(section.windows(6).any(|window| window == b".text\0"));
        assert_eq!(locate(&file, ".no-such-section").unwrap(), None);
        assert_eq!(locate(&file, ".bss").unwrap(), None);
    }

    #[test]
    fn what_is_no_object_file_has_no_sections() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        io::Write::write_all(&mut file, b"\x7fELF and no more").unwrap();
        assert_eq!(locate(file.as_file(), ".text").unwrap(), None);
    }
}
