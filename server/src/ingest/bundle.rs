//! A bundle is whole and says the truth about its files before any of it is visible.

use std::collections::{BTreeMap, HashSet};
use std::io;

use symseal_artifact::{IdKind, ReleaseFile};
use symseal_bundle::index::MAX_INDEX_BYTES;
use symseal_bundle::oci::{self, ImageIndex};
use symseal_bundle::verify::subject_digests;
use symseal_bundle::{Digest, FileEntry, FileRole, ModuleEntry, SymbolIndex, title};
use symseal_module::DebugId;

use crate::blobs::{BlobDigest, BlobDirectory};
use crate::debug_files::{Candidate, FileKind, Key, NewBundle};
use crate::ids::BundleEntry;
use crate::ingest::breakpad_ids;
use crate::repositories::{Manifest, Reference, Repository};
use crate::store::BundleRow;

/// A bundle whose every part is here and consistent.
#[derive(Debug)]
pub(crate) struct CheckedBundle {
    /// What the database records.
    pub(crate) row: BundleRow,
    /// What debuggers find: ids with their files.
    pub(crate) new: NewBundle,
}

/// Why a bundle is refused. Nothing of it becomes visible.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RefusedBundle {
    /// The image index or the root manifest has another form than a bundle's.
    #[error("the bundle's {what}: {problem}")]
    Form {
        /// Which part.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A file that the symbol index lists is missing, or of another size.
    #[error("the symbol index lists {path} ({digest}, {expected} bytes), found {found}: push it before the bundle")]
    File {
        /// The file's title.
        path: String,
        /// Its digest.
        digest: Digest,
        /// Bytes that the index says.
        expected: u64,
        /// What is here.
        found: String,
    },
    /// A file is not the module that the index says.
    #[error("{path} is listed for {expected}, found {found}: build the bundle again")]
    Identity {
        /// The file's title.
        path: String,
        /// The debug id that it is listed for.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A file carries text that a debugger would run.
    #[error(
        "{path} has a section .debug_gdb_scripts with a script in it, which a debugger would run: remove the section (objcopy --remove-section=.debug_gdb_scripts) and build the bundle again"
    )]
    DebuggerScript {
        /// The file's title.
        path: String,
    },
    /// The disk said no.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Whether a manifest is a bundle's image index.
pub(crate) fn is_bundle(manifest: &Manifest) -> bool {
    manifest.is_bundle()
}

/// Checks a bundle whose image index is about to be published. Blocks.
pub(crate) fn check_bundle(
    digest: &BlobDigest,
    bytes: &[u8],
    repository: &Repository,
    blobs: &BlobDirectory,
) -> Result<CheckedBundle, RefusedBundle> {
    check_children(bytes, repository)?;
    let (index, index_json) = read_index(bytes, blobs)?;
    let layers = layers(bytes, blobs)?;
    let digests: Vec<BlobDigest> = index.files().map(|file| BlobDigest::from(file.sha256)).collect();
    let linked: Vec<&BlobDigest> = digests.iter().filter(|digest| repository.has_blob(digest)).collect();
    // Its manifests may have come before, when all of them were there.
    let sizes = blobs.stored_sizes(&linked)?;
    let sizes: BTreeMap<&BlobDigest, u64> =
        linked.into_iter().zip(sizes).filter_map(|(digest, size)| Some((digest, size?))).collect();
    for (file, wanted) in index.files().zip(&digests) {
        // What no manifest names the collector would take.
        if !layers.contains(&file.sha256) {
            let problem = format!("expected a layer {} in one of its manifests for {}", file.sha256, file.path);
            return Err(RefusedBundle::Form { what: "image index", problem });
        }
        let found = sizes.get(wanted).copied();
        if found != Some(file.size) {
            let found = found.map_or_else(|| "nothing".to_owned(), |bytes| format!("{bytes} bytes"));
            let (path, digest, expected) = (file.path.clone(), file.sha256, file.size);
            return Err(RefusedBundle::File { path, digest, expected, found });
        }
    }
    for (_, id, module) in index.modules() {
        for file in &module.files {
            match file.role {
                FileRole::Debuginfo | FileRole::Executable => check_file(id, module, file, blobs)?,
                FileRole::SymbolTable => check_table(id, file, blobs)?,
                FileRole::SplitDwarf | FileRole::DsymMember => check_member(file, blobs)?,
                _ => {}
            }
        }
    }
    Ok(checked(digest, bytes, &index, index_json))
}

/// What a bundle's image index names came into the repository as manifests, when it was seen that the repository has what they name: bytes that are no more than
/// a blob there could name any blob of the store.
fn check_children(bytes: &[u8], repository: &Repository) -> Result<(), RefusedBundle> {
    let form = |problem: String| RefusedBundle::Form { what: "image index", problem };
    let image_index = ImageIndex::parse(bytes).map_err(|error| form(error.to_string()))?;
    for child in &image_index.manifests {
        if repository.manifest(&Reference::Digest(child.digest.into())).is_none() {
            return Err(form(format!("{} is no manifest of the repository: push it as one first", child.digest)));
        }
    }
    Ok(())
}

/// Reads a bundle that was checked when it was published. Blocks.
pub(crate) fn open_published(
    digest: &BlobDigest,
    bytes: &[u8],
    blobs: &BlobDirectory,
) -> Result<CheckedBundle, RefusedBundle> {
    let (index, index_json) = read_index(bytes, blobs)?;
    Ok(checked(digest, bytes, &index, index_json))
}

/// The symbol index of a bundle by its image index, and its text. Blocks.
pub(crate) fn read_index(bytes: &[u8], blobs: &BlobDirectory) -> Result<(SymbolIndex, String), RefusedBundle> {
    let form = |what, problem: String| RefusedBundle::Form { what, problem };
    let image_index = ImageIndex::parse(bytes).map_err(|error| form("image index", error.to_string()))?;
    let root = image_index.manifests.first().ok_or_else(|| form("image index", "it has no manifests".to_owned()))?;
    let root = read(blobs, &root.digest, oci::MAX_MANIFEST_BYTES, "root manifest")?;
    let root = oci::Manifest::parse(&root).map_err(|error| form("root manifest", error.to_string()))?;
    let layer = root
        .layers
        .iter()
        .find(|layer| layer.media_type == oci::SYMBOL_INDEX)
        .ok_or_else(|| form("root manifest", format!("expected a layer of type {}", oci::SYMBOL_INDEX)))?;
    let index_bytes = read(blobs, &layer.digest, MAX_INDEX_BYTES, "symbol_index.json")?;
    let index = SymbolIndex::parse(&index_bytes).map_err(|error| form("symbol_index.json", error.to_string()))?;
    let text = String::from_utf8(index_bytes).map_err(|error| form("symbol_index.json", error.to_string()))?;
    Ok((index, text))
}

/// The layers of every manifest that a bundle's image index names.
fn layers(bytes: &[u8], blobs: &BlobDirectory) -> Result<HashSet<Digest>, RefusedBundle> {
    let form = |what, problem: String| RefusedBundle::Form { what, problem };
    let image_index = ImageIndex::parse(bytes).map_err(|error| form("image index", error.to_string()))?;
    let mut layers = HashSet::new();
    for child in &image_index.manifests {
        let manifest = read(blobs, &child.digest, oci::MAX_MANIFEST_BYTES, "manifest")?;
        let manifest = oci::Manifest::parse(&manifest).map_err(|error| form("manifest", error.to_string()))?;
        layers.extend(manifest.layers.iter().map(|layer| layer.digest));
    }
    Ok(layers)
}

fn read(blobs: &BlobDirectory, digest: &Digest, limit: u64, what: &'static str) -> Result<Vec<u8>, RefusedBundle> {
    match blobs.read(&(*digest).into(), limit) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::FileTooLarge) => {
            Err(RefusedBundle::Form { what, problem: format!("{digest}: {error}") })
        }
        read => Ok(read?),
    }
}

/// A file answers for its debug id from its first request on: it must be that module, and carry no script. A debug file
/// of a binary without an id has none.
fn check_file(id: &str, module: &ModuleEntry, file: &FileEntry, blobs: &BlobDirectory) -> Result<(), RefusedBundle> {
    let identity = |found: String| RefusedBundle::Identity { path: file.path.clone(), expected: id.to_owned(), found };
    let bytes = blobs.map(&file.sha256.into())?;
    let parsed = ReleaseFile::parse(&bytes).map_err(|error| identity(error.to_string()))?;
    let found: Vec<String> = parsed.debug_ids().iter().map(DebugId::to_string).collect();
    let may_have_none = module.id_kind == IdKind::TextHash.code() && file.role == FileRole::Debuginfo;
    if found.is_empty() && !may_have_none {
        return Err(identity("a file without a debug id".to_owned()));
    }
    if !found.is_empty() && !found.iter().any(|found| found == id) {
        return Err(identity(found.join(", ")));
    }
    if parsed.has_inline_debugger_scripts() {
        return Err(RefusedBundle::DebuggerScript { path: file.path.clone() });
    }
    Ok(())
}

/// A file that answers for nothing lies beside the others after a pull: it must carry no script either.
fn check_member(file: &FileEntry, blobs: &BlobDirectory) -> Result<(), RefusedBundle> {
    // An empty file cannot be mapped.
    if file.size == 0 {
        return Ok(());
    }
    match ReleaseFile::parse(&blobs.map(&file.sha256.into())?) {
        Ok(parsed) if parsed.has_inline_debugger_scripts() => {
            Err(RefusedBundle::DebuggerScript { path: file.path.clone() })
        }
        _ => Ok(()),
    }
}

/// A symbol table names in its header the module that it is of.
fn check_table(id: &str, file: &FileEntry, blobs: &BlobDirectory) -> Result<(), RefusedBundle> {
    let identity = |found: String| RefusedBundle::Identity { path: file.path.clone(), expected: id.to_owned(), found };
    // An empty file cannot be mapped.
    if file.size == 0 {
        return Err(identity("an empty file".to_owned()));
    }
    let bytes = blobs.map(&file.sha256.into())?;
    let table = symseal_symx::Table::open(&bytes).map_err(|error| identity(error.to_string()))?;
    let found = table.debug_id().to_string();
    if found == id { Ok(()) } else { Err(identity(found)) }
}

fn checked(digest: &BlobDigest, bytes: &[u8], index: &SymbolIndex, index_json: String) -> CheckedBundle {
    let platforms = index.platforms();
    let os: Vec<&str> = platforms.iter().filter(|(_, modules)| !modules.is_empty()).map(|(os, _)| *os).collect();
    let files = index.modules().flat_map(|(_, id, module)| candidates(digest, id, module)).collect();
    let subjects = subject_digests(None, index_json.as_bytes());
    let entry = BundleEntry {
        digest: digest.to_string(),
        name: index.name.clone(),
        version: index.version.clone(),
        symbol_index: subjects.symbol_index.unwrap_or_default(),
        modules_root: subjects.modules_root,
        is_loose: false,
    };
    let row = BundleRow {
        sha256: digest.to_string(),
        os: os.join(","),
        name: index.name.clone(),
        version: index.version.clone(),
        bundle_blob: bytes.to_vec(),
        index_json,
        seal: None,
    };
    CheckedBundle { row, new: NewBundle { entry, digest: digest.clone(), files } }
}

/// The files of a module by what they are asked for.
pub(crate) fn candidates(bundle: &BlobDigest, id: &str, module: &ModuleEntry) -> Vec<(Key, Candidate)> {
    let Ok(id) = id.parse::<DebugId>() else { return Vec::new() };
    let image = module.code_id.as_deref().map(|code_id| {
        let title = title::pe_image(&module.name, code_id);
        (title, Key::image(&module.name, code_id))
    });
    // Other ids are asked for by themselves.
    let is_named = matches!(id, DebugId::Pdb { .. });
    let mut candidates = Vec::new();
    for file in &module.files {
        let Some(kind) = kind_of(file) else { continue };
        let candidate = Candidate {
            kind,
            debug_info: module.debug_info,
            lacks_sections: false,
            size: file.size,
            digest: file.sha256.into(),
            name: module.name.clone(),
            file: if is_named { file.path.rsplit('/').next().unwrap_or_default().to_owned() } else { String::new() },
            bundle: bundle.clone(),
        };
        match kind {
            FileKind::SymbolTable => {
                let keys = breakpad_ids(&id, &module.arch);
                candidates.extend(keys.map(|(guid, age)| (Key::Breakpad { guid, age }, candidate.clone())));
            }
            // No role leads to it.
            FileKind::SymbolFile => {}
            FileKind::Debuginfo | FileKind::Executable => {
                // A file with code and debug information in one has one title, and answers for its image too.
                if let Some((_, key)) = image.as_ref().filter(|(title, _)| *title == file.path) {
                    candidates.push((key.clone(), Candidate { kind: FileKind::Executable, ..candidate.clone() }));
                }
                candidates.push((Key::Id(id.clone()), candidate));
            }
        }
    }
    candidates
}

fn kind_of(file: &FileEntry) -> Option<FileKind> {
    match file.role {
        FileRole::Debuginfo => Some(FileKind::Debuginfo),
        FileRole::Executable => Some(FileKind::Executable),
        FileRole::SymbolTable => Some(FileKind::SymbolTable),
        _ => None,
    }
}
