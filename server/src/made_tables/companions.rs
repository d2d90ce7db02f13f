//! What a debug file refers to and is in other files: what dwz moved out of it, by its build-id, and split DWARF: the package beside a file of a tree, and
//! what trees have of it elsewhere, by the ids of its units.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::sync::Arc;

use symseal_artifact::{FunctionStream, ObjectFile, SplitUnit};
use symseal_module::DebugId;
use tempfile::NamedTempFile;

use crate::app::App;
use crate::blobs::{BlobDirectory, map_own};
use crate::debug_files::{FileKind, Key, Scope};
use crate::file_cache::{CacheKey, CachedFile, Note};
use crate::ingest::breakpad_ids;
use crate::trees::{AskedUnit, NotAsTheyWere, Place, SplitFiles, digest_of_all, pieces};
use crate::unbundled::{FileBytes, MappedFile, Unbundled};
use crate::upstream::Sought;

/// Counts the forms of the notes on what files refer to: those of an older one are made again.
const FORM: u32 = 2;

/// What a note calls the build-id of the supplementary file.
const SUPPLEMENTARY: &str = "supplementary";

/// What a note has where units are split DWARF. Which they are is the content: a line each, the id and where the compiler put it.
const SPLIT: &str = "split";

/// Units of one file that are looked for.
const UNITS: usize = 1 << 16;

/// The longest path of a unit that decides between files of one id, in bytes.
const PATH: usize = 4096;

/// Files of split DWARF that a table's origin lists one by one.
const LISTED: usize = 64;

/// Bytes of split DWARF that a table is made with beside a package. Where the cache is smaller than four times that, a quarter of the cache.
const SPLIT_BYTES: u64 = 1 << 30;

/// The files that a file refers to, as far as they are to be had.
#[derive(Default)]
pub(super) struct Companions {
    supplementary: Option<Unbundled>,
    package: Option<CachedFile>,
    split: SplitFiles,
    /// The copy of `split`, once it was made.
    gathered: Option<CachedFile>,
}

/// What such files are known by: SHA-256, in hex.
#[derive(Debug)]
pub(super) struct Digests {
    pub(super) supplementary: Option<String>,
    pub(super) package: Option<String>,
    pub(super) split: Vec<String>,
    /// Other files would be more than a table is made with.
    beyond: usize,
}

/// Such files.
#[derive(Debug)]
pub(super) struct Beside<F> {
    pub(super) supplementary: Option<F>,
    pub(super) package: Option<F>,
    gathered: Option<F>,
    /// Files in `gathered`.
    count: usize,
    beyond: usize,
}

impl<F> Default for Beside<F> {
    fn default() -> Self {
        Self { supplementary: None, package: None, gathered: None, count: 0, beyond: 0 }
    }
}

impl Companions {
    /// Those that this server has and the caller may read, and what dwz moved out also from other servers.
    ///
    /// # Errors
    /// The file itself cannot be read now.
    pub(super) async fn find(app: &App, scope: &Scope, origin: &Unbundled, sought: &Sought<'_>) -> io::Result<Self> {
        let asked = asked(app, origin).await?;
        let said = |wanted: &str| asked.note.headers.iter().find(|(name, _)| name == wanted).map(|(_, said)| said);
        let id = said(SUPPLEMENTARY).and_then(|id| id.parse::<DebugId>().ok());
        let supplementary = match &id {
            Some(id) => supplementary(app, scope, id, sought).await,
            None => None,
        };
        let is_split = said(SPLIT).is_some();
        let package = match (is_split, origin, app.trees.get()) {
            (true, Unbundled::Tree(place), Some(trees)) => trees.package((&app.pool, &app.making), place).await,
            _ => None,
        };
        let split = match is_split && scope.is_everything() {
            true => split(app, origin, asked, package.as_ref()).await?,
            false => SplitFiles::default(),
        };
        Ok(Self { supplementary, package, split, gathered: None })
    }

    pub(super) fn digests(&self) -> Digests {
        Digests {
            supplementary: self.supplementary.as_ref().map(Unbundled::sha256),
            package: self.package.as_ref().map(|package| package.note.sha256.clone()),
            split: self.split.places.iter().map(Place::sha256).collect(),
            beyond: self.split.beyond,
        }
    }

    /// Copies the split DWARF of trees; files that are not there any more, or are others than when they were read, count no longer.
    pub(super) async fn gather(&mut self, app: &App) -> io::Result<()> {
        let Some(trees) = app.trees.get() else { return Ok(()) };
        while !self.split.places.is_empty() {
            match trees.gathered((&app.pool, &app.making), &self.split.places).await {
                Ok(gathered) => {
                    self.gathered = Some(gathered);
                    break;
                }
                Err(error) => {
                    let NotAsTheyWere(gone) = error.downcast()?;
                    let before = self.split.places.len();
                    self.split.places.retain(|place| !gone.iter().any(|gone| place.is_sha256(gone)));
                    tracing::info!(
                        files = before - self.split.places.len(),
                        "split DWARF of a tree has changed since it was read"
                    );
                }
            }
        }
        Ok(())
    }

    pub(super) async fn bytes(self, app: &App) -> io::Result<Beside<FileBytes>> {
        let supplementary = match self.supplementary {
            Some(file) => Some(file.bytes(app).await?),
            None => None,
        };
        let [package, gathered] = [self.package, self.gathered].map(|file| file.map(FileBytes::Copy));
        Ok(Beside { supplementary, package, gathered, count: self.split.places.len(), beyond: self.split.beyond })
    }
}

impl Digests {
    /// What tells tables that are made with different files apart.
    pub(super) fn text(&self) -> String {
        let Self { supplementary, package, split, beyond } = self;
        format!("{supplementary:?} {package:?} {split:?} {beyond}")
    }

    /// What a table was made with; `has_package`: the package had units of it.
    pub(super) fn made_with(self, has_package: bool) -> Vec<String> {
        let split = match self.split.len() > LISTED {
            true => vec![digest_of_all(self.split.iter().map(String::as_str))],
            false => self.split,
        };
        self.supplementary.into_iter().chain(self.package.filter(|_| has_package)).chain(split).collect()
    }
}

impl Beside<FileBytes> {
    /// Maps them. Blocks.
    pub(super) fn map(self, blobs: &BlobDirectory) -> io::Result<Beside<MappedFile>> {
        let map = |file: Option<FileBytes>| file.map(|file| file.map(blobs)).transpose();
        let Self { supplementary, package, gathered, count, beyond } = self;
        Ok(Beside {
            supplementary: map(supplementary)?,
            package: map(package)?,
            gathered: map(gathered)?,
            count,
            beyond,
        })
    }
}

impl Beside<MappedFile> {
    /// The files of split DWARF: a package goes first.
    pub(super) fn split(&self) -> Vec<ObjectFile<'_>> {
        let gathered = self.gathered.as_deref().map(|gathered| pieces(gathered, self.count)).unwrap_or_default();
        let files = self.package.as_deref().into_iter().chain(gathered);
        files.filter_map(|bytes| ObjectFile::parse(bytes).ok()).collect()
    }

    /// Whether a unit of `object` is in the package: what has the name of one may be anything.
    pub(super) fn has_units(&self, object: &ObjectFile<'_>) -> bool {
        let package = self.package.as_deref().and_then(|bytes| ObjectFile::parse(bytes).ok());
        package.is_some_and(|package| {
            let ids: HashSet<u64> = package.split_ids().into_iter().collect();
            object.split_units().iter().any(|unit| ids.contains(&unit.id))
        })
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
        if self.beyond > 0 {
            lacks.push(format!(
                "that of {} units is in files that are too many, or too large, for one table: let dwp make a package of them",
                self.beyond
            ));
        }
        lacks.join("; ")
    }
}

/// What a file refers to, read once.
async fn asked(app: &App, origin: &Unbundled) -> io::Result<CachedFile> {
    let key = CacheKey::of(&format!("refers to {FORM} {}", origin.sha256()));
    let bytes = match app.cache.has(&key) {
        true => None,
        false => Some(origin.bytes(app).await?),
    };
    let blobs = Arc::clone(&app.blobs);
    let read = move |to: &mut NamedTempFile| -> io::Result<Note> {
        let bytes = bytes.ok_or_else(|| io::Error::other("the cache let what is known of a file go"))?.map(&blobs)?;
        let mut headers = Vec::new();
        // Of what is none there is nothing to look for; why no table is made of it is told where that is tried.
        if let Ok(object) = ObjectFile::parse(&bytes) {
            let supplementary = object.debug_alt_link().and_then(|link| DebugId::from_build_id(link.build_id).ok());
            headers.extend(supplementary.map(|id| (SUPPLEMENTARY.to_owned(), id.to_string())));
            let units = object.split_units();
            if !units.is_empty() {
                headers.push((SPLIT.to_owned(), String::new()));
                // A file may hold its own.
                let own: HashSet<u64> = object.split_ids().into_iter().collect();
                let units = units.iter().filter(|unit| !own.contains(&unit.id)).take(UNITS);
                let lines: String = units.map(|unit| format!("{:016x} {}\n", unit.id, path(unit))).collect();
                to.write_all(lines.as_bytes())?;
            }
        }
        Ok(Note { sha256: String::new(), headers })
    };
    app.cache.make((&app.pool, &app.making), key, read).await
}

/// Where the compiler put a unit's file, which tells files of one id apart. Empty where nobody can say it in a line.
fn path(unit: &SplitUnit) -> String {
    let name = std::str::from_utf8(&unit.name).unwrap_or_default();
    let folder = std::str::from_utf8(&unit.comp_dir).unwrap_or_default();
    let path = if name.starts_with('/') { name.to_owned() } else { format!("{folder}/{name}") };
    if path.len() > PATH || path.contains('\n') { String::new() } else { path }
}

/// The split DWARF that trees have of a file, without what the package beside it has.
async fn split(
    app: &App,
    origin: &Unbundled,
    asked: CachedFile,
    package: Option<&CachedFile>,
) -> io::Result<SplitFiles> {
    let Some(trees) = app.trees.get().cloned() else { return Ok(SplitFiles::default()) };
    let had = match package {
        Some(package) => Some(units_of(app, package).await?),
        None => None,
    };
    let program = match origin {
        Unbundled::Tree(place) => Some(place.clone()),
        _ => None,
    };
    let (blobs, bytes) = (Arc::clone(&app.blobs), SPLIT_BYTES.min(app.cache.capacity() / 4));
    let find = move || -> io::Result<SplitFiles> {
        let had: HashSet<u64> = match had {
            Some(had) => units(&FileBytes::Copy(had).map(&blobs)?).map(|unit| unit.id).collect(),
            None => HashSet::new(),
        };
        let asked = FileBytes::Copy(asked).map(&blobs)?;
        let asked: Vec<AskedUnit> = units(&asked).filter(|unit| !had.contains(&unit.id)).collect();
        Ok(trees.split_files(&asked, program.as_ref(), bytes))
    };
    app.pool.run(find).await.map_err(io::Error::other)?
}

/// The units of a package, read once: a line each, as those that are asked for.
async fn units_of(app: &App, package: &CachedFile) -> io::Result<CachedFile> {
    let key = CacheKey::of(&format!("units {FORM} {}", package.note.sha256));
    let file = package.blob.file.try_clone()?;
    let size = usize::try_from(package.size).map_err(io::Error::other)?;
    let read = move |to: &mut NamedTempFile| -> io::Result<Note> {
        let map = map_own(&file)?;
        let object = ObjectFile::parse(map.get(..size).unwrap_or_default());
        let ids = object.map(|object| object.split_ids()).unwrap_or_default();
        let lines: String = ids.iter().map(|id| format!("{id:016x} \n")).collect();
        to.write_all(lines.as_bytes())?;
        Ok(Note { sha256: String::new(), headers: Vec::new() })
    };
    app.cache.make((&app.pool, &app.making), key, read).await
}

/// The units of such lines.
fn units(lines: &[u8]) -> impl Iterator<Item = AskedUnit> {
    let unit = |line: &str| {
        let (id, path) = line.split_once(' ')?;
        Some(AskedUnit { id: u64::from_str_radix(id, 16).ok()?, path: path.to_owned() })
    };
    std::str::from_utf8(lines).unwrap_or_default().lines().filter_map(unit)
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
