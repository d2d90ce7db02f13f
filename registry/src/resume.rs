//! What an earlier pull left unfinished is checked by pages before it is continued.
//!
//! The digest of a blob tells only at its end whether the bytes before were right. A bundle has the hashes of every file's pages, so that
//! a wrong page is found first, and what comes before it is kept.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use symseal_bundle::index::{FileEntry, MAX_INDEX_BYTES, SymbolIndex};
use symseal_bundle::oci::Descriptor;
use symseal_bundle::page_hashes::PageHashes;
use symseal_bundle::pages::{self, Hash};
use symseal_bundle::{Digest, LayoutDir, title};

use crate::RegistryError;
use crate::session::Session;
use crate::transfer::{partial_path, pull_blob};

/// The largest file of page hashes that is read, in bytes: those of some 8 TB.
const MAX_PAGE_HASHES: u64 = 4 << 30;

/// Cuts each unfinished file back to its last page that is right. Does nothing for blobs that are no bundle's, and where
/// nothing is unfinished.
pub(crate) async fn keep_right_pages(
    session: &Session,
    layout: &LayoutDir,
    blobs: &[Descriptor],
) -> Result<(), RegistryError> {
    let unfinished: Vec<(Digest, PathBuf)> = blobs
        .iter()
        .map(|blob| (blob.digest, partial_path(layout, &blob.digest)))
        .filter(|(_, path)| path.exists())
        .collect();
    let Some(index) = blobs.iter().find(|blob| blob.title() == Some(title::SYMBOL_INDEX)) else { return Ok(()) };
    if unfinished.is_empty() {
        return Ok(());
    }
    // Both are needed anyway; they come first here.
    pull_blob(session, layout, index).await?;
    let Ok(index) = SymbolIndex::parse(&layout.read_blob(&index.digest, MAX_INDEX_BYTES)?) else { return Ok(()) };
    let files: Vec<(&FileEntry, &Path)> = unfinished
        .iter()
        .filter_map(|(digest, path)| Some((index.files().find(|file| file.sha256 == *digest)?, path.as_path())))
        .collect();
    for shard in &index.shards {
        let hashes = &shard.page_hashes;
        let is_own = files.iter().any(|(file, _)| file.sha256 == hashes.sha256);
        let Some(blob) = blobs.iter().find(|blob| blob.digest == hashes.sha256).filter(|_| !is_own) else { continue };
        pull_blob(session, layout, blob).await?;
        let bytes = layout.read_blob(&hashes.sha256, MAX_PAGE_HASHES.min(hashes.size))?;
        let Ok(hashes) = PageHashes::parse(&bytes) else { continue };
        for (file, path) in &files {
            let Some(pages) = hashes.find(&file.sha256, file.page_size) else { continue };
            let leaves = pages.leaves();
            if pages::root(&leaves) == file.page_root {
                cut(path, file.page_size, &leaves)
                    .map_err(|source| RegistryError::File { path: path.to_path_buf(), source })?;
            }
        }
    }
    Ok(())
}

/// Cuts a file behind its last whole page that is right.
fn cut(path: &Path, page_size: u32, leaves: &[Hash]) -> io::Result<()> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut page = vec![0; page_size as usize];
    let mut right = 0_u64;
    for leaf in leaves {
        match file.read_exact(&mut page) {
            Ok(()) if pages::leaf_hash(&page) == *leaf => right = right.saturating_add(u64::from(page_size)),
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
    }
    // The last page may be shorter than the others: a file that is whole is left to its digest.
    let is_whole = right.saturating_add(u64::from(page_size)) > length
        && right / u64::from(page_size.max(1)) + 1 >= leaves.len() as u64;
    if right < length && !is_whole {
        OpenOptions::new().write(true).open(path)?.set_len(right)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_cut_behind_its_last_right_page() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file.partial");
        let bytes: Vec<u8> = (0..1050_u32).map(|at| at as u8).collect();
        let leaves = pages::leaves(&bytes, 100);
        let left = |mut bytes: Vec<u8>, wrong: Option<usize>| {
            if let Some(at) = wrong {
                bytes[at] ^= 1;
            }
            std::fs::write(&path, bytes).unwrap();
            cut(&path, 100, &leaves).unwrap();
            std::fs::metadata(&path).unwrap().len()
        };
        assert_eq!(left(bytes[..750].to_vec(), None), 700);
        assert_eq!(left(bytes[..750].to_vec(), Some(310)), 300);
        assert_eq!(left(bytes[..750].to_vec(), Some(0)), 0);
        assert_eq!(left(bytes[..700].to_vec(), None), 700);
        assert_eq!(left(Vec::new(), None), 0);
        assert_eq!(left(bytes.clone(), None), 1050, "whole");
        assert_eq!(left(bytes.clone(), Some(500)), 500);
    }
}
