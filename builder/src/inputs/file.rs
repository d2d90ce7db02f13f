//! What is known of a release file once it was read and identified.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use symseal_artifact::{Arch, Format, IdKind, ObjectKind, RelocationProblem};
use symseal_bundle::pages::Measured;
use symseal_bundle::{Digest, LayoutDir};
use symseal_module::DebugId;

use super::file_bytes::FileBytes;
use crate::error::{BuildError, io_error, place_of};

/// A release file, read once and identified. Its bytes are read again when its module's turn comes.
#[derive(Debug, Clone)]
pub(crate) struct InputFile {
    /// Where it was found, for people: a path, or `archive!/member`.
    pub(crate) place: String,
    pub(crate) bytes: Bytes,
    /// Base name, as text.
    pub(crate) name: String,
    /// Base names of equal files, and of links to it among the inputs.
    pub(crate) other_names: BTreeSet<String>,
    pub(crate) measured: Measured,
    pub(crate) content: Content,
    /// Where in a dSYM bundle it lies.
    pub(crate) dsym: Option<DsymPlace>,
    /// The places of equal files in other dSYM bundles.
    pub(crate) other_dsyms: Vec<DsymPlace>,
}

/// Where the bytes are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Bytes {
    /// In a file of the user's.
    Loose(PathBuf),
    /// Of an archive's member, in our spool.
    Spooled(PathBuf),
}

/// A place in a dSYM bundle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DsymPlace {
    /// `App.dSYM`.
    pub(crate) bundle: String,
    /// `Contents`, `Info.plist`.
    pub(crate) path: Vec<String>,
    /// The bundle's own place, with the directories or archives around it.
    pub(crate) root: String,
}

/// What a file is.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// An object file, or each slice of a universal one.
    Objects(Vec<ObjectFacts>),
    /// A program database.
    Pdb(PdbFacts),
    /// A file of a dSYM bundle that is no object file.
    DsymMember,
}

/// An object file, as far as pairing and report ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectFacts {
    pub(crate) format: Format,
    pub(crate) arch: Arch,
    pub(crate) kind: ObjectKind,
    pub(crate) id: Option<DebugId>,
    pub(crate) id_kind: IdKind,
    /// Holds code that is loaded; otherwise it is a debug file.
    pub(crate) is_binary: bool,
    /// Debuginfod clients may ask for it as debug information.
    pub(crate) is_debuginfo: bool,
    pub(crate) tells: Tells,
    /// It has debug information that is not read.
    pub(crate) relocation_problem: Option<RelocationProblem>,
    /// It has some in STABS.
    pub(crate) has_stabs: bool,
    /// dwz has packed its debug information.
    pub(crate) is_packed_by_dwz: bool,
    pub(crate) has_mini_debug_info: bool,
    /// The first of its sections of code, with their stated addresses: those of an ELF binary stand in its debug file too.
    pub(crate) code: Vec<(Vec<u8>, Range<u64>)>,
    pub(crate) debug_link: Option<NamedCrc>,
    pub(crate) alt_link: Option<NamedId>,
    pub(crate) pdb: Option<PdbName>,
    /// Its code is methods for the runtime of .NET.
    pub(crate) is_il_alone: bool,
    /// The portable PDB of a .NET assembly stands in the file itself.
    pub(crate) has_embedded_pdb: bool,
    pub(crate) code_id: Option<String>,
    pub(crate) go_build_id: Option<String>,
    /// Object files that its debug map names.
    pub(crate) object_map: u64,
    /// Bytes of its debug sections in memory.
    pub(crate) debug_bytes: u64,
    /// Of a debug file without an id: CRC-32 of the whole file.
    pub(crate) crc32: Option<u32>,
    /// It is split DWARF itself, with these units.
    pub(crate) split: Option<SplitFacts>,
    /// Units that its skeletons ask for.
    pub(crate) split_asked: Vec<SplitAsked>,
}

/// How much a file tells a debugger, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tells {
    /// Dynamic symbols and exports at most.
    Nothing,
    /// The compressed symbol table of a stripped binary (`.gnu_debugdata`).
    FewSymbols,
    /// A symbol table, or the public symbols of a program database.
    Symbols,
    /// Functions and lines.
    Lines,
    /// Types and variables too.
    Types,
}

/// A file name with the CRC-32 that the file has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedCrc {
    pub(crate) name: String,
    pub(crate) crc32: u32,
}

/// A path with the debug id that the file has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedId {
    pub(crate) path: String,
    pub(crate) id: DebugId,
}

/// What a PE file says of its program database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PdbName {
    /// Base name.
    pub(crate) name: String,
    pub(crate) guid: [u8; 16],
    pub(crate) age: u32,
}

/// A program database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PdbFacts {
    pub(crate) id: DebugId,
    pub(crate) is_portable: bool,
    /// The age of the PDB stream, which tools raise.
    pub(crate) stream_age: Option<u32>,
    pub(crate) arch: Option<Arch>,
    pub(crate) tells: Tells,
}

/// A unit of split DWARF that is elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SplitAsked {
    pub(crate) id: u64,
    /// Path of the `.dwo` file, as the compiler wrote it.
    pub(crate) name: String,
    /// Where the compiler was run.
    pub(crate) comp_dir: String,
}

impl SplitAsked {
    /// The whole path of the `.dwo` file.
    pub(crate) fn path(&self) -> String {
        if self.name.starts_with('/') { self.name.clone() } else { format!("{}/{}", self.comp_dir, self.name) }
    }
}

/// Split DWARF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SplitFacts {
    pub(crate) is_package: bool,
    pub(crate) units: Vec<u64>,
}

impl InputFile {
    /// Whether it goes by that name.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name == name || self.other_names.contains(name)
    }

    pub(crate) fn new(
        place: String,
        bytes: Bytes,
        name: String,
        measured: Measured,
        content: Content,
        dsym: Option<DsymPlace>,
    ) -> Self {
        Self { place, bytes, name, other_names: BTreeSet::new(), measured, content, dsym, other_dsyms: Vec::new() }
    }

    /// Its slices: none for what is no object file.
    pub(crate) fn objects(&self) -> &[ObjectFacts] {
        match &self.content {
            Content::Objects(objects) => objects,
            _ => &[],
        }
    }

    pub(crate) fn digest(&self) -> Digest {
        self.measured.digest
    }

    /// Bytes in memory when it is read and its debug sections are decompressed, or the streams of a program database are put
    /// together from its pages.
    pub(crate) fn weight(&self) -> u64 {
        let debug = match &self.content {
            Content::Objects(objects) => objects.iter().map(|object| object.debug_bytes).fold(0, u64::saturating_add),
            Content::Pdb(_) => self.measured.size,
            Content::DsymMember => 0,
        };
        self.measured.size.saturating_add(debug)
    }

    /// All its bytes, which must be those that it was identified by.
    pub(crate) fn read(&self, layout: Option<&LayoutDir>) -> Result<FileBytes, BuildError> {
        let bytes = match &self.bytes {
            Bytes::Loose(path) => FileBytes::Held(read_file(path)?),
            Bytes::Spooled(path) => match FileBytes::of_own(path) {
                // It has become a blob meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && layout.is_some() => {
                    let path = layout.map_or_else(PathBuf::new, |layout| layout.blob_path(&self.digest()));
                    FileBytes::of_own(&path).map_err(io_error("read", &path))?
                }
                read => read.map_err(io_error("read", path))?,
            },
        };
        // Everything that was decided about the file was decided about other bytes.
        if Digest::of(&bytes) != self.digest() {
            return Err(BuildError::Changed { place: self.place.clone() });
        }
        Ok(bytes)
    }
}

/// The whole file. It is read and not mapped: a map of a file that another process truncates kills us.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, BuildError> {
    let mut file = File::open(path).map_err(io_error("open", path))?;
    let state = |file: &File| file.metadata().map(|metadata| (metadata.len(), metadata.modified().ok()));
    let before = state(&file).map_err(io_error("look at", path))?;
    let mut bytes = Vec::new();
    // What cannot be allocated is an error like any other.
    let size = usize::try_from(before.0).unwrap_or(usize::MAX);
    bytes.try_reserve_exact(size).map_err(|_| io_error("read", path)(std::io::ErrorKind::OutOfMemory.into()))?;
    file.read_to_end(&mut bytes).map_err(io_error("read", path))?;
    let after = state(&file).map_err(io_error("look at", path))?;
    if before != after || bytes.len() as u64 != before.0 {
        return Err(BuildError::Changed { place: place_of(path) });
    }
    Ok(bytes)
}

/// The last part of a path or of a member's name. Bytes that are not UTF-8 are escaped as everywhere.
pub(crate) fn base_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    symseal_artifact::escaped(name.as_encoded_bytes()).into()
}

/// What a file of this name goes by: archives may have members whose names are none.
pub(crate) fn usable_name(name: &str) -> String {
    match name {
        "" => "unnamed".to_owned(),
        "." | ".." => name.replace('.', "\\x2e"),
        _ => name.to_owned(),
    }
}

/// The last part of a path that another machine wrote: after the last slash or backslash.
pub(crate) fn foreign_base_name(path: &[u8]) -> String {
    let name = path.rsplit(|byte| matches!(byte, b'/' | b'\\')).next().unwrap_or(path);
    let name = symseal_artifact::escaped(name);
    // Without a name it says which file it means all the same.
    if name.is_empty() { String::new() } else { usable_name(&name) }
}

/// The place in a dSYM bundle of a file at `place`, if it lies in one.
pub(crate) fn dsym_place(place: &str) -> Option<DsymPlace> {
    let place = symseal_artifact::dsym_place(place)?;
    Some(DsymPlace {
        bundle: place.name.to_owned(),
        path: place.path.split('/').map(str::to_owned).collect(),
        root: place.root.to_owned(),
    })
}
