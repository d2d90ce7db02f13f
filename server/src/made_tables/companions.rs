//! What a debug file refers to and is in other files: what dwz moved out of it, by its build-id, and split DWARF, in the package beside a file of a tree.

use std::io;
use std::sync::Arc;

use symseal_artifact::{FunctionStream, ObjectFile};
use symseal_module::DebugId;

use crate::app::App;
use crate::blobs::BlobDirectory;
use crate::debug_files::{FileKind, Key, Scope};
use crate::file_cache::{CacheKey, CachedFile, Note};
use crate::ingest::breakpad_ids;
use crate::unbundled::{FileBytes, MappedFile, Unbundled};
use crate::upstream::Sought;

/// Counts the forms of the notes on what files refer to: those of an older one are made again.
const FORM: u32 = 1;

/// What a note calls the build-id of the supplementary file.
const SUPPLEMENTARY: &str = "supplementary";

/// What a note has where units are split DWARF.
const SPLIT: &str = "split";

/// The files that a file refers to, as far as they are to be had.
#[derive(Default)]
pub(super) struct Companions {
    supplementary: Option<Unbundled>,
    package: Option<CachedFile>,
}

/// Such files, or what is known of them.
#[derive(Debug)]
pub(super) struct Beside<F> {
    pub(super) supplementary: Option<F>,
    pub(super) package: Option<F>,
}

impl<F> Default for Beside<F> {
    fn default() -> Self {
        Self { supplementary: None, package: None }
    }
}

impl Companions {
    /// Those that this server has and the caller may read, and what dwz moved out also from other servers.
    ///
    /// # Errors
    /// The file itself cannot be read now.
    pub(super) async fn find(app: &App, scope: &Scope, origin: &Unbundled, sought: &Sought<'_>) -> io::Result<Self> {
        let Note { headers, .. } = asked(app, origin).await?;
        let said = |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, said)| said);
        let id = said(SUPPLEMENTARY).and_then(|id| id.parse::<DebugId>().ok());
        let supplementary = match &id {
            Some(id) => supplementary(app, scope, id, sought).await,
            None => None,
        };
        let package = match (said(SPLIT), origin, app.trees.get()) {
            (Some(_), Unbundled::Tree(place), Some(trees)) => trees.package((&app.pool, &app.making), place).await,
            _ => None,
        };
        Ok(Self { supplementary, package })
    }

    /// SHA-256 of each, in hex.
    pub(super) fn sha256(&self) -> Beside<String> {
        Beside {
            supplementary: self.supplementary.as_ref().map(Unbundled::sha256),
            package: self.package.as_ref().map(|package| package.note.sha256.clone()),
        }
    }

    pub(super) async fn bytes(self, app: &App) -> io::Result<Beside<FileBytes>> {
        let supplementary = match self.supplementary {
            Some(file) => Some(file.bytes(app).await?),
            None => None,
        };
        Ok(Beside { supplementary, package: self.package.map(FileBytes::Copy) })
    }
}

impl Beside<FileBytes> {
    /// Maps them. Blocks.
    pub(super) fn map(self, blobs: &BlobDirectory) -> io::Result<Beside<MappedFile>> {
        let map = |file: Option<FileBytes>| file.map(|file| file.map(blobs)).transpose();
        Ok(Beside { supplementary: map(self.supplementary)?, package: map(self.package)? })
    }
}

impl Beside<MappedFile> {
    /// Whether a unit of `object` is in the package: what has the name of one may be anything.
    pub(super) fn has_units(&self, object: &ObjectFile<'_>, stream: &FunctionStream) -> bool {
        self.package.is_some() && stream.statistics.missing_split.len() < object.split_units().len()
    }

    /// What `object` refers to and was not there when its functions were read, for people; empty where nothing is missing.
    pub(super) fn lacks(&self, object: &ObjectFile<'_>, stream: &FunctionStream) -> String {
        let mut lacks = Vec::new();
        if let Some(link) = object.debug_alt_link().filter(|_| self.supplementary.is_none()) {
            let name = symseal_artifact::escaped(link.path);
            let id = DebugId::from_build_id(link.build_id).map(|id| format!(" ({id})")).unwrap_or_default();
            lacks.push(format!(
                "the supplementary file {name}{id} is not there: names that dwz moved to it are missing"
            ));
        }
        let missing = stream.statistics.missing_split.len();
        if missing > 0 {
            lacks.push(format!("skeleton-only: the split DWARF of {missing} units is not there"));
        }
        lacks.join("; ")
    }
}

/// What a file refers to, read once.
async fn asked(app: &App, origin: &Unbundled) -> io::Result<Note> {
    let key = CacheKey::of(&format!("refers to {FORM} {}", origin.sha256()));
    let bytes = match app.cache.has(&key) {
        true => None,
        false => Some(origin.bytes(app).await?),
    };
    let blobs = Arc::clone(&app.blobs);
    let read = move |_: &mut _| -> io::Result<Note> {
        let bytes = bytes.ok_or_else(|| io::Error::other("the cache let what is known of a file go"))?.map(&blobs)?;
        let mut headers = Vec::new();
        // Of what is none there is nothing to look for; why no table is made of it is told where that is tried.
        if let Ok(object) = ObjectFile::parse(&bytes) {
            let supplementary = object.debug_alt_link().and_then(|link| DebugId::from_build_id(link.build_id).ok());
            headers.extend(supplementary.map(|id| (SUPPLEMENTARY.to_owned(), id.to_string())));
            headers.extend((!object.split_units().is_empty()).then(|| (SPLIT.to_owned(), String::new())));
        }
        Ok(Note { sha256: String::new(), headers })
    };
    Ok(app.cache.make((&app.pool, &app.making), key, read).await?.note)
}

async fn supplementary(app: &App, scope: &Scope, id: &DebugId, sought: &Sought<'_>) -> Option<Unbundled> {
    if let Some(found) = Unbundled::find(app, scope, &Key::Id(id.clone()), FileKind::Debuginfo) {
        return Some(found);
    }
    let form = breakpad_ids(id, "").next()?;
    let sought = Sought { id: Some(id), name: None, ..*sought };
    // One that cannot be told of now is missing in this answer, and sought again for the next one.
    sought.bring(app, scope, form).await.into_iter().find_map(Result::ok)
}
