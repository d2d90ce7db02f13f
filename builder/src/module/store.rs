//! The files of a module as they are stored and listed.

use std::fs;

use symseal_bundle::compose::{self, FileFormat};
use symseal_bundle::page_hashes::FilePages;
use symseal_bundle::pages::{self, DEBUG_FILE_PAGE, Hash, Measured};
use symseal_bundle::{Digest, FileEntry, FileRole, LayoutDir, LayoutError, pieces, title};

use crate::error::BuildError;
use crate::inputs::InputFile;
use crate::inputs::file::Bytes;

/// The files of one module. Without a layout they are listed and not stored.
pub(super) struct Stored<'l> {
    layout: Option<&'l LayoutDir>,
    pub(super) entries: Vec<FileEntry>,
    pub(super) pages: Vec<FilePages>,
}

impl<'l> Stored<'l> {
    pub(super) fn new(layout: Option<&'l LayoutDir>) -> Self {
        Self { layout, entries: Vec::new(), pages: Vec::new() }
    }

    /// Whether a file may have this title: no other one has it, or is a directory of it, where case does not count.
    pub(super) fn is_free(&self, title: &str) -> bool {
        let wanted = title::fold(title);
        let is_below = |path: &str, folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        !self.entries.iter().any(|entry| {
            let taken = title::fold(&entry.path);
            taken == wanted || is_below(&wanted, &taken) || is_below(&taken, &wanted)
        })
    }

    /// A file that is taken as it is, and its bytes.
    pub(super) fn put_input(
        &mut self,
        role: FileRole,
        format: FileFormat,
        path: String,
        file: &InputFile,
        bytes: &[u8],
    ) -> Result<(), BuildError> {
        // An unstripped binary has two roles and one blob.
        if let Some(layout) = self.layout.filter(|_| !self.entries.iter().any(|entry| entry.sha256 == file.digest())) {
            match &file.bytes {
                Bytes::Loose(_) => drop(layout.write_blob(bytes)?),
                Bytes::Spooled(path) => match layout.adopt(path, &file.digest()) {
                    // Another module that shares the file was faster.
                    Err(LayoutError::Io { .. }) if !fs::exists(path).unwrap_or(true) && layout.has(&file.digest()) => {}
                    adopted => adopted?,
                },
            }
        }
        let measured = if pages::page_size_of(role) == DEBUG_FILE_PAGE {
            file.measured.clone()
        } else {
            pages::measure(bytes, pages::page_size_of(role))
        };
        self.list(role, format, path, measured, None, Vec::new());
        Ok(())
    }

    /// A file that was made.
    pub(super) fn put(
        &mut self,
        role: FileRole,
        path: String,
        bytes: &[u8],
        derived_from: Vec<Digest>,
    ) -> Result<Digest, BuildError> {
        let digest = match self.layout {
            Some(layout) => layout.write_blob(bytes)?,
            None => Digest::of(bytes),
        };
        let measured = pages::measure(bytes, pages::page_size_of(role));
        let piece_root = (role == FileRole::SymbolTable).then(|| pieces::root(bytes));
        self.list(role, FileFormat::Elf, path, measured, piece_root, derived_from);
        Ok(digest)
    }

    fn list(
        &mut self,
        role: FileRole,
        format: FileFormat,
        path: String,
        measured: Measured,
        piece_root: Option<Hash>,
        derived_from: Vec<Digest>,
    ) {
        let page_size = pages::page_size_of(role);
        self.entries.push(FileEntry {
            role,
            path,
            size: measured.size,
            sha256: measured.digest,
            media_type: compose::media_type(role, format).to_owned(),
            page_size,
            page_root: measured.root,
            piece_root,
            derived_from,
        });
        self.pages.push(FilePages { sha256: measured.digest, page_size, size: measured.size, leaves: measured.leaves });
    }
}
