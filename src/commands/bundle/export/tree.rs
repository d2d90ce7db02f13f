//! Which file of a bundle lies where in each kind of tree.

use std::collections::BTreeSet;
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
/// The folder in which gdb and elfutils look.
const BUILD_ID: &str = ".build-id/";
/// What the media type of a program database has in it (`docs/formats/bundle.md`).
const PROGRAM_DATABASE: &str = ".symbols.pdb.";
/// The kind of an id that no linker wrote.
const TEXT_HASH: &str = "text-hash";

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
    /// It gives way to another file with this path.
    pub(super) is_optional: bool,
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
        Self { path, content: Content::File(file.clone()), digest: file.sha256, bytes: file.size, is_optional: false }
    }

    /// A file that may be looked for by its name: then another one of that name has as good a right to the place.
    fn named(path: String, file: &FileEntry, id: &DebugId) -> Self {
        let by_id = title::build_id_executable(id).or_else(|| title::guid_debug_file(id));
        let is_optional = !by_id.is_some_and(|by_id| path.starts_with(&by_id));
        Self { is_optional, ..Self::of(path, file) }
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
        places.sort_by(|a, b| (&a.path, a.is_optional, a.digest).cmp(&(&b.path, b.is_optional, b.digest)));
        places.dedup_by(|a, b| a.path == b.path && (a.digest == b.digest || a.is_optional));
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

/// The build-id by which gdb and debuginfod clients ask for a module: of a PE file with DWARF its GUID.
fn asked_by(id: &DebugId, module: &ModuleEntry) -> Option<String> {
    if id.build_id().is_some() {
        return Some(id.to_string());
    }
    let has_dwarf = debug_file(module).is_some_and(|file| !file.media_type.contains(PROGRAM_DATABASE));
    title::guid_as_build_id(id).filter(|_| has_dwarf && module.id_kind != TEXT_HASH)
}

fn debuginfod(id: &DebugId, module: &ModuleEntry, places: &mut Vec<Place>) {
    let Some(id) = asked_by(id, module) else { return };
    for (name, file) in [("debuginfo", debug_file(module)), ("executable", executable(module))] {
        places.extend(file.map(|file| Place::of(format!("buildid/{id}/{name}"), file)));
    }
}

fn section(bundle: &Bundle, id: &DebugId, module: &ModuleEntry) -> Result<Option<Place>> {
    let asked = asked_by(id, module);
    let Some((file, id)) = debug_file(module).zip(asked) else { return Ok(None) };
    let path = bundle.file_path(file);
    let read = || -> io::Result<Option<Place>> {
        let from = File::open(&path)?;
        let Some((start, length)) = locate(&from) else { return Ok(None) };
        (&from).seek(io::SeekFrom::Start(start))?;
        let (digest, bytes) = Digest::of_reader((&from).take(length))?;
        let (path, content) = (format!("buildid/{id}/section/{SECTION}"), Content::Section(file.clone(), start));
        Ok((bytes == length).then_some(Place { path, content, digest, bytes, is_optional: false }))
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
    let of_guid = || asked_by(id, module).and(title::guid_debug_file(id));
    let debug = title::build_id_debug_file(id).or_else(of_guid).zip(debug_file(module));
    let code = title::build_id_executable(id).zip(executable(module));
    places.extend(debug.into_iter().chain(code).map(|(path, file)| Place::of(path, file)));
    // What is looked for by a name lies where the bundle has it.
    let named = module.files.iter().filter(|file| file.path.starts_with(BUILD_ID));
    places.extend(named.map(|file| Place::named(file.path.clone(), file, id)));
    for file in module.files.iter().filter(|file| file.role == FileRole::SplitDwarf) {
        // Bundles of before had one title for a package, at which few looked, and of units none that was looked at.
        if file.path.starts_with(BUILD_ID) && file.path.ends_with(".dwp") {
            let titles = title::split_package(id, &module.name);
            places.extend(titles.into_iter().map(|path| Place::named(path, file, id)));
        } else if let Some(path) = unplaced_unit(file).and_then(|name| title::split_unit_by_name(id, name)) {
            places.push(Place::named(path, file, id));
        }
    }
}

/// The name of a `.dwo` file that lies where no debugger looks.
fn unplaced_unit(file: &FileEntry) -> Option<&str> {
    file.path.starts_with("split_dwarf/").then(|| file.path.rsplit('/').next())?
}

/// Files of split DWARF for which such a tree has no place at all.
pub(super) fn left_out(bundle: &Bundle, places: &[Place]) -> u64 {
    let placed: BTreeSet<Digest> = places.iter().map(|place| place.digest).collect();
    let files = bundle.index().modules().flat_map(|(_, _, module)| &module.files);
    let left: BTreeSet<Digest> = files
        .filter(|file| file.role == FileRole::SplitDwarf && !placed.contains(&file.sha256))
        .map(|file| file.sha256)
        .collect();
    left.len() as u64
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
            let hex = bytes.ssqp_digits();
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
