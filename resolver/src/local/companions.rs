//! What debug information refers to and is in other files: what dwz moved out, and split DWARF.

use std::path::Path;

use symseal_artifact::{DebugFiles, FunctionStream, ObjectFile, functions};
use symseal_bundle::Digest;
use symseal_module::MissReason;

use super::places::{self, shown};
use super::{Local, NoTable};

/// Units of split DWARF whose files are looked for, one by one. A program of more has a package, or none of them here.
const SPLIT_UNITS: usize = 10_000;

/// Bytes of split DWARF that are in memory for one module.
const SPLIT_BYTES: u64 = 8 << 30;

/// The functions of an object and of what it refers to.
pub(super) struct Described {
    pub(super) stream: FunctionStream,
    /// The files beside the object, in the order in which they were found.
    pub(super) companions: Vec<Digest>,
    /// What is missing, for people; empty where nothing is.
    pub(super) note: String,
}

impl Local {
    /// Reads the functions of `object`, which is at `path`, with what it refers to; `program` is the module's own file, beside which a package may be.
    pub(super) fn describe(
        &self,
        object: &ObjectFile<'_>,
        path: &Path,
        program: Option<&Path>,
    ) -> Result<Described, NoTable> {
        let mut notes = Vec::new();
        let supplementary = self.supplementary(object, path, &mut notes);
        let split = self.split(object, path, program);
        let files = supplementary.iter().chain(&split);
        let companions = files.map(|bytes| Digest::of(bytes)).collect();
        let parsed_supplementary = supplementary.as_deref().and_then(|bytes| ObjectFile::parse(bytes).ok());
        let parsed_split: Vec<ObjectFile<'_>> =
            split.iter().filter_map(|bytes| ObjectFile::parse(bytes).ok()).collect();
        let with =
            DebugFiles { supplementary: parsed_supplementary.as_ref(), split: &parsed_split, ..DebugFiles::default() };
        let stream =
            functions(object, &with).map_err(|error| (MissReason::Malformed, format!("{}: {error}", shown(path))))?;
        let missing = stream.statistics.missing_split.len();
        if missing > 0 {
            // The line tables are in the program itself, the functions are not.
            notes.push(format!("skeleton-only: the split DWARF of {missing} units is not there"));
        }
        Ok(Described { stream, companions, note: notes.join("; ") })
    }

    fn supplementary(&self, object: &ObjectFile<'_>, path: &Path, notes: &mut Vec<String>) -> Option<Vec<u8>> {
        let link = object.debug_alt_link()?;
        for place in places::supplementary(&self.directories, path, link.path, link.build_id) {
            let Ok(Some(bytes)) = self.read_path(&place) else { continue };
            let alone = ObjectFile::parse(&bytes);
            // Its own id is what was meant, whatever the file is called; `.debug_sup` (DWARF 5) names a checksum, which the reader compares.
            let is_it = alone.is_ok_and(|found| {
                found.debug_id().and_then(|id| id.build_id()).is_none_or(|id| id == link.build_id)
                    || object.section(".debug_sup").is_some()
            });
            if is_it {
                return Some(bytes);
            }
        }
        let name = symseal_artifact::escaped(link.path);
        notes.push(format!("the supplementary file {name} is not there: names that dwz moved to it are missing"));
        None
    }

    /// The package beside the file or the program, else the single files that its skeletons name.
    fn split(&self, object: &ObjectFile<'_>, path: &Path, program: Option<&Path>) -> Vec<Vec<u8>> {
        let asked = object.split_units();
        if asked.is_empty() {
            return Vec::new();
        }
        let packages = [Some(path), program].into_iter().flatten().map(places::package);
        for package in packages {
            if let Ok(Some(bytes)) = self.read_path(&package)
                && ObjectFile::parse(&bytes).is_ok_and(|found| found.split_kind().is_some())
            {
                return vec![bytes];
            }
        }
        let (mut found, mut room) = (Vec::new(), SPLIT_BYTES);
        for unit in asked.iter().take(SPLIT_UNITS) {
            for place in places::split_unit(program.unwrap_or(path), &unit.name, &unit.comp_dir) {
                let Ok(Some(bytes)) = self.read_path(&place) else { continue };
                // One that was compiled again has other ids.
                if !ObjectFile::parse(&bytes).is_ok_and(|file| file.split_ids().contains(&unit.id)) {
                    continue;
                }
                let Some(left) = room.checked_sub(bytes.len() as u64) else { return found };
                room = left;
                found.push(bytes);
                break;
            }
        }
        found
    }
}
