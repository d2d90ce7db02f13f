//! What published bundles record beside their files: read when it is first asked for, then remembered.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use symseal_bundle::{Digest, FileRole, SymbolIndex};
use symseal_module::DebugId;

use crate::blobs::{BlobDigest, BlobDirectory};
use crate::ingest::{RefusedBundle, read_index};
use crate::repositories::MANIFEST_LIMIT;

/// Bundles remembered; beyond that the memory starts anew.
const REMEMBERED: usize = 50_000;

/// What a bundle records.
#[derive(Debug)]
pub(crate) struct Release {
    /// The artifact of its sources.
    pub(crate) sources: Option<Digest>,
    /// Its ELF modules.
    pub(crate) modules: Vec<ReleaseModule>,
}

/// An ELF module of a bundle.
#[derive(Debug)]
pub(crate) struct ReleaseModule {
    /// Its build-id.
    pub(crate) id: DebugId,
    /// Its file name.
    pub(crate) name: Box<str>,
    /// Where in the bundle its file with debug information is, where there is one; the file's name, where that is the program itself.
    pub(crate) debuginfo: Option<Box<str>>,
    /// Whether the bundle has the file with code.
    pub(crate) executable: bool,
}

/// The bundles that were asked about.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    known: Mutex<HashMap<BlobDigest, Arc<Release>>>,
}

impl Releases {
    /// What a published bundle records. Blocks.
    pub(crate) fn get(&self, blobs: &BlobDirectory, bundle: &BlobDigest) -> io::Result<Arc<Release>> {
        if let Some(known) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(bundle) {
            return Ok(Arc::clone(known));
        }
        let index = read_symbol_index(blobs, bundle)?;
        let modules = index.linux.iter().filter_map(|(id, module)| {
            let (debuginfo, executable) = (module.file(FileRole::Debuginfo), module.file(FileRole::Executable));
            let is_program = |digest: &Digest| executable.is_some_and(|file| file.sha256 == *digest);
            Some(ReleaseModule {
                id: id.parse().ok()?,
                name: module.name.as_str().into(),
                debuginfo: debuginfo.map(|file| match is_program(&file.sha256) {
                    true => module.name.as_str().into(),
                    false => file.path.as_str().into(),
                }),
                executable: executable.is_some(),
            })
        });
        let release = Arc::new(Release { sources: index.sources, modules: modules.collect() });
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(bundle.clone(), Arc::clone(&release));
        Ok(release)
    }
}

/// The symbol index of a published bundle. Blocks.
pub(crate) fn read_symbol_index(blobs: &BlobDirectory, bundle: &BlobDigest) -> io::Result<SymbolIndex> {
    let bytes = blobs.read(bundle, MANIFEST_LIMIT as u64)?;
    match read_index(&bytes, blobs) {
        Ok((index, _)) => Ok(index),
        Err(RefusedBundle::Io(error)) => Err(error),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("{bundle}: {error}"))),
    }
}
