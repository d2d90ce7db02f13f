//! What debug information refers to and is in other files: what dwz moved out, and split DWARF.

use std::cell::RefCell;
use std::path::Path;

use symseal_artifact::{
    ArtifactError, DebugAltLink, DebugFiles, FunctionStream, ObjectFile, PdbFile, SplitUnit, functions, functions_at,
    is_damaged_unit, pdb_functions,
};
use symseal_bundle::Digest;
use symseal_module::{MissReason, Rva, Svma};

use super::places;
use super::{Local, NoTable};
use crate::FileBytes;

/// Units of split DWARF whose files are looked for, one by one. A program of more has a package, or none of them here.
const SPLIT_UNITS: usize = 10_000;

/// Bytes of split DWARF that are in memory for one module.
const SPLIT_BYTES: u64 = 8 << 30;

/// The functions of an object and of what it refers to.
pub(crate) struct Described {
    pub(crate) stream: FunctionStream,
    /// Whether these are all functions, and not those at some addresses.
    pub(crate) is_whole: bool,
    /// The files beside the object, in the order in which they were found.
    pub(crate) companions: Vec<Digest>,
    /// What is missing or damaged, for people; empty where nothing is.
    pub(crate) lacks: String,
}

/// Where debug information finds what it refers to.
pub(crate) trait Companions {
    /// What dwz moved out of `object`; else a note of what is missing.
    fn supplementary(&self, object: &ObjectFile<'_>, link: &DebugAltLink<'_>) -> Option<FileBytes>;

    /// The split DWARF that the units of `object` ask for, as far as it is there.
    fn split(&self, object: &ObjectFile<'_>, asked: &[SplitUnit]) -> Vec<FileBytes>;

    /// Why a file that was there was not the one that the last question meant, for people.
    fn refused(&self) -> Option<String> {
        None
    }
}

/// The files that describe one module.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FilesOf<'f, 'd> {
    /// The program itself, where it is at hand.
    pub(crate) program: Option<&'f ObjectFile<'d>>,
    pub(crate) debug: Option<&'f ObjectFile<'d>>,
    pub(crate) pdb: Option<&'f PdbFile<'d>>,
}

impl<'f, 'd> FilesOf<'f, 'd> {
    /// The one that counts as the binary: a debug file without its program stands for it.
    pub(crate) fn binary(&self) -> Option<&'f ObjectFile<'d>> {
        self.program.or(self.debug)
    }

    /// The one whose DWARF is read.
    fn with_dwarf(&self) -> Option<&'f ObjectFile<'d>> {
        self.debug.filter(|debug| debug.has_debug_info()).or(self.binary())
    }
}

/// Reads the functions of a module, whose debug information is called `name`, with what it refers to: of a program and its debug file as one, as the builder
/// reads them. Where addresses are `wanted`, only the functions at these are read if they can be told alone; else all.
pub(crate) fn describe(
    files: FilesOf<'_, '_>,
    name: &str,
    companions: &dyn Companions,
    wanted: &[Rva],
) -> Result<Described, NoTable> {
    let why_not = |error: ArtifactError| {
        let reason = match error {
            ArtifactError::Mismatch { .. } => MissReason::DebugIdMismatch,
            _ => MissReason::Malformed,
        };
        (reason, format!("{name}: {error}"))
    };
    let (Some(binary), Some(object)) = (files.binary(), files.with_dwarf()) else {
        let stream = files.pdb.map(pdb_functions).transpose().map_err(why_not)?;
        let stream = stream.ok_or_else(|| (MissReason::NoDebugInfo, name.to_owned()))?;
        let lacks = damaged(&stream).collect::<Vec<_>>().join("; ");
        return Ok(Described { stream, is_whole: true, companions: Vec::new(), lacks });
    };
    let mut lacks = Vec::new();
    let how = |refused: Option<String>| {
        refused.map_or_else(|| "is not there".to_owned(), |why| format!("cannot be used ({why})"))
    };
    let link = object.debug_alt_link();
    let supplementary = link.and_then(|link| companions.supplementary(object, &link));
    if let (Some(link), None) = (link, &supplementary) {
        let (name, how) = (symseal_artifact::escaped(link.path), how(companions.refused()));
        lacks.push(format!("the supplementary file {name} {how}: names that dwz moved to it are missing"));
    }
    let asked = object.split_units();
    let split = if asked.is_empty() { Vec::new() } else { companions.split(object, &asked) };
    let digests = supplementary.iter().chain(&split).map(FileBytes::digest).collect();
    let parsed_supplementary = supplementary.as_deref().and_then(|bytes| ObjectFile::parse(bytes).ok());
    let parsed_split: Vec<ObjectFile<'_>> = split.iter().filter_map(|bytes| ObjectFile::parse(bytes).ok()).collect();
    let with = DebugFiles {
        debug: files.debug.filter(|_| files.program.is_some()),
        pdb: files.pdb,
        supplementary: parsed_supplementary.as_ref(),
        split: &parsed_split,
    };
    let wanted: Vec<Svma> = wanted.iter().filter_map(|rva| rva.to_svma(binary.image_base())).collect();
    let part = if wanted.is_empty() { None } else { functions_at(binary, &with, &wanted).map_err(why_not)? };
    let part = part.filter(|part| !part.functions.is_empty());
    let is_whole = part.is_none();
    let stream = part.map_or_else(|| functions(binary, &with).map_err(why_not), Ok)?;
    let missing = stream.statistics.missing_split.len();
    if missing > 0 {
        // The line tables are in the program itself, the functions are not.
        lacks.push(format!("skeleton-only: the split DWARF of {missing} units {}", how(companions.refused())));
    }
    lacks.extend(damaged(&stream));
    Ok(Described { stream, is_whole, companions: digests, lacks: lacks.join("; ") })
}

/// What of a stream is missing because debug information is damaged. Where functions at some addresses were read alone, other units may be damaged as well.
fn damaged(stream: &FunctionStream) -> impl Iterator<Item = String> + '_ {
    let damaged = stream.statistics.skipped.iter().filter(|(reason, _)| is_damaged_unit(reason));
    damaged.map(|(reason, times)| format!("the debug information is damaged: {reason} ({times})"))
}

/// Whether bytes are the supplementary file that `link` in `object` means: by its own id, whatever it is called. `.debug_sup` (DWARF 5) names a checksum,
/// which the reader compares.
pub(crate) fn is_supplementary(object: &ObjectFile<'_>, link: &DebugAltLink<'_>, bytes: &[u8]) -> bool {
    ObjectFile::parse(bytes).is_ok_and(|found| {
        found.debug_id().and_then(|id| id.build_id()).is_none_or(|id| id == link.build_id)
            || object.section(".debug_sup").is_some()
    })
}

/// The files of this machine, around a file at `path`; `program` is the module's own file, beside which a package may be.
pub(super) struct Around<'l> {
    local: &'l Local,
    path: &'l Path,
    program: Option<&'l Path>,
    /// Why the first file that was there and is not the meant one is not.
    refused: RefCell<Option<String>>,
}

impl<'l> Around<'l> {
    pub(super) fn new(local: &'l Local, path: &'l Path, program: Option<&'l Path>) -> Self {
        Self { local, path, program, refused: RefCell::default() }
    }

    /// The file at a place that is the one that is meant: what is `expected`.
    fn meant(&self, place: &Path, expected: &str, is_meant: impl Fn(&FileBytes) -> bool) -> Option<FileBytes> {
        for read in self.local.read_path(place) {
            let why = match read {
                Ok(bytes) if is_meant(&bytes) => return Some(bytes),
                Ok(_) => format!("{}: expected {expected}, found another file", places::shown(place)),
                Err((_, why)) => why,
            };
            self.refused.borrow_mut().get_or_insert(why);
        }
        None
    }
}

impl Companions for Around<'_> {
    fn supplementary(&self, object: &ObjectFile<'_>, link: &DebugAltLink<'_>) -> Option<FileBytes> {
        let places = places::supplementary(&self.local.directories, self.path, link.path, link.build_id);
        let is_meant = |bytes: &FileBytes| is_supplementary(object, link, bytes);
        places.iter().find_map(|place| self.meant(place, "what dwz moved out of this one", is_meant))
    }

    fn refused(&self) -> Option<String> {
        self.refused.take()
    }

    /// The package beside the file or the program, else the single files that its skeletons name.
    fn split(&self, _: &ObjectFile<'_>, asked: &[SplitUnit]) -> Vec<FileBytes> {
        let packages = [Some(self.path), self.program].into_iter().flatten().map(places::package);
        for package in packages {
            let is_package =
                |bytes: &FileBytes| ObjectFile::parse(bytes).is_ok_and(|found| found.split_kind().is_some());
            if let Some(bytes) = self.meant(&package, "a package of split DWARF", is_package) {
                return vec![bytes];
            }
        }
        let (mut found, mut room) = (Vec::new(), SPLIT_BYTES);
        for unit in asked.iter().take(SPLIT_UNITS) {
            for place in places::split_unit(self.program.unwrap_or(self.path), &unit.name, &unit.comp_dir) {
                // One that was compiled again has other ids.
                let is_meant =
                    |bytes: &FileBytes| ObjectFile::parse(bytes).is_ok_and(|file| file.split_ids().contains(&unit.id));
                let Some(bytes) = self.meant(&place, "the split DWARF of this build", is_meant) else { continue };
                let Some(left) = room.checked_sub(bytes.len() as u64) else { return found };
                room = left;
                found.push(bytes);
                break;
            }
        }
        found
    }
}
