//! Which file of a bundle lies where in each kind of tree.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::rc::Rc;

use anyhow::{Context as _, Result};
use object::{Object as _, ObjectSection as _, ReadCache};
use symseal_bundle::sources::{SourceEntry, Sources};
use symseal_bundle::{Bundle, Digest, FileEntry, FileRole, ModuleEntry, title};
use symseal_module::DebugId;

/// The section that gdb may ask a debuginfod server for before it asks for the whole file.
const SECTION: &str = ".gdb_index";
/// Bytes to which SSQP fills up a build-id with zeros (key conventions of dotnet/symstore).
const PADDED_BUILD_ID: usize = 20;

/// A kind of tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tree {
    /// As debuginfod clients ask.
    Debuginfod,
    /// As symbol server clients ask.
    SymbolStore,
    /// As gdb and elfutils look.
    BuildId,
    /// As lldb looks.
    Lldb,
}

/// A file in a tree.
pub(super) struct Place {
    /// Where, relative to the tree.
    pub(super) path: String,
    /// What it is.
    pub(super) content: Content,
    /// Its digest.
    pub(super) digest: Digest,
    /// Its size.
    pub(super) bytes: u64,
}

/// What a file of a tree is made from.
pub(super) enum Content {
    /// A file of the bundle.
    File(FileEntry),
    /// A part of a file of the bundle, by its first byte; its length and digest are the place's.
    Section(FileEntry, u64),
    /// A file of the sources that lie beside the bundle.
    Source(Rc<Sources>, SourceEntry),
}

impl Place {
    fn of(path: String, file: &FileEntry) -> Self {
        Self { path, content: Content::File(file.clone()), digest: file.sha256, bytes: file.size }
    }
}

impl Tree {
    /// The files of a bundle in such a tree, each path once.
    pub(super) fn places(self, bundle: &Bundle) -> Result<Vec<Place>> {
        let mut places = Vec::new();
        for (_, text, module) in bundle.index().modules() {
            let Ok(id) = text.parse::<DebugId>() else { continue };
            match self {
                Self::Debuginfod => {
                    debuginfod(&id, module, &mut places);
                    places.extend(section(bundle, &id, module)?);
                }
                Self::SymbolStore => symbol_store(&id, module, &mut places),
                Self::BuildId => build_id(&id, module, &mut places),
                Self::Lldb => {
                    build_id(&id, module, &mut places);
                    uuid_folders(&id, module, &mut places);
                }
            }
        }
        places.sort_by(|a, b| a.path.cmp(&b.path));
        places.dedup_by(|a, b| a.path == b.path && a.digest == b.digest);
        Ok(places)
    }
}

/// A module's file for debuggers; one with code and debug information in it is both.
fn debug_file(module: &ModuleEntry) -> Option<&FileEntry> {
    file(module, FileRole::Debuginfo)
}

fn executable(module: &ModuleEntry) -> Option<&FileEntry> {
    file(module, FileRole::Executable)
}

fn file(module: &ModuleEntry, role: FileRole) -> Option<&FileEntry> {
    module.files.iter().find(|file| file.role == role)
}

fn debuginfod(id: &DebugId, module: &ModuleEntry, places: &mut Vec<Place>) {
    if id.build_id().is_none() {
        return;
    }
    for (name, file) in [("debuginfo", debug_file(module)), ("executable", executable(module))] {
        places.extend(file.map(|file| Place::of(format!("buildid/{id}/{name}"), file)));
    }
}

fn section(bundle: &Bundle, id: &DebugId, module: &ModuleEntry) -> Result<Option<Place>> {
    let Some(file) = debug_file(module).filter(|_| id.build_id().is_some()) else { return Ok(None) };
    let path = bundle.file_path(file);
    let read = || -> io::Result<Option<Place>> {
        let from = File::open(&path)?;
        let Some((start, length)) = locate(&from) else { return Ok(None) };
        (&from).seek(io::SeekFrom::Start(start))?;
        let (digest, bytes) = Digest::of_reader((&from).take(length))?;
        let (path, content) = (format!("buildid/{id}/section/{SECTION}"), Content::Section(file.clone(), start));
        Ok((bytes == length).then_some(Place { path, content, digest, bytes }))
    };
    read().with_context(|| path.display().to_string())
}

/// Where the section's bytes are, by the file's section headers alone: debug files are large.
fn locate(file: &File) -> Option<(u64, u64)> {
    let cache = ReadCache::new(file);
    let object = object::File::parse(&cache).ok()?;
    let (start, length) = object.section_by_name(SECTION)?.file_range()?;
    (length > 0).then_some((start, length))
}

fn build_id(id: &DebugId, module: &ModuleEntry, places: &mut Vec<Place>) {
    let debug = title::build_id_debug_file(id).zip(debug_file(module));
    let code = title::build_id_executable(id).zip(executable(module));
    let package =
        module.files.iter().filter(|file| file.role == FileRole::SplitDwarf && file.path.starts_with(".build-id/"));
    places.extend(debug.into_iter().chain(code).map(|(path, file)| Place::of(path, file)));
    places.extend(package.map(|file| Place::of(file.path.clone(), file)));
}

/// `XXXX/XXXX/XXXX/XXXX/XXXX/XXXXXXXXXXXX` is the DWARF file of a UUID, with `.app` behind it the file with code; dSYM bundles lie
/// where they lie in a pulled directory.
fn uuid_folders(id: &DebugId, module: &ModuleEntry, places: &mut Vec<Place>) {
    let Some(hex) = uuid(id) else { return };
    let (folders, last) = hex.split_at(20.min(hex.len()));
    let parts: Vec<&str> = (0..5).filter_map(|at| folders.get(at * 4..at * 4 + 4)).collect();
    let path = format!("{}/{last}", parts.join("/"));
    places.extend(debug_file(module).map(|file| Place::of(path.clone(), file)));
    places.extend(executable(module).map(|file| Place::of(format!("{path}.app"), file)));
    let members = module.files.iter().filter(|file| file.path.starts_with("dSYM/"));
    places.extend(members.map(|file| Place::of(file.path.clone(), file)));
}

fn uuid(id: &DebugId) -> Option<String> {
    match id {
        DebugId::MachoUuid(_) => Some(id.to_string().trim_start_matches("uuid:").to_ascii_uppercase()),
        _ => None,
    }
}

/// Files by the keys of symbol servers, each in the case of its convention and in lower case: Microsoft's clients send names and GUIDs as
/// they are in the files, SSQP's in lower case, and a static web server takes both for what they are.
fn symbol_store(id: &DebugId, module: &ModuleEntry, places: &mut Vec<Place>) {
    let name = title::component(&module.name);
    let mut keyed = |path: String, file: &FileEntry| {
        let lower = path.to_lowercase();
        if lower != path {
            places.push(Place::of(lower, file));
        }
        places.push(Place::of(path, file));
    };
    match id {
        DebugId::BuildId(bytes) => {
            let mut hex = id.to_string();
            hex.extend(std::iter::repeat_n("00", PADDED_BUILD_ID.saturating_sub(bytes.as_bytes().len())));
            if let Some(file) = executable(module) {
                keyed(format!("{name}/elf-buildid-{hex}/{name}"), file);
            }
            if let Some(file) = debug_file(module) {
                keyed(format!("_.debug/elf-buildid-sym-{hex}/_.debug"), file);
            }
        }
        DebugId::Pdb { .. } => {
            // The titles are those of a symbol store (`docs/formats/bundle.md`, "Titles").
            let files =
                module.files.iter().filter(|file| matches!(file.role, FileRole::Debuginfo | FileRole::Executable));
            for file in files {
                let parts: Vec<&str> = file.path.split('/').collect();
                if matches!(parts.as_slice(), [first, _, last] if first == last) {
                    keyed(file.path.clone(), file);
                }
            }
        }
        DebugId::MachoUuid(_) => {
            let hex = uuid(id).unwrap_or_default().to_lowercase();
            if let Some(file) = executable(module) {
                keyed(format!("{name}/mach-uuid-{hex}/{name}"), file);
            }
            if let Some(file) = debug_file(module) {
                keyed(format!("_.dwarf/mach-uuid-sym-{hex}/_.dwarf"), file);
            }
        }
    }
}
