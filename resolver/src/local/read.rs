//! Files in memory: found at a path, bounded, and of the module that was asked for.

use std::fs::File;
use std::io;
use std::path::Path;

use symseal_artifact::{FileKind, ObjectFile, PdbFile, ReleaseFile, sniff};
use symseal_module::{DebugId, MissReason};

use super::places::shown;
use super::{Local, NoTable};
use crate::bundles::io_reason;
use crate::{FileBytes, ModuleFiles};

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 30;

impl Local {
    /// The bytes of the files at a path, each read when it is asked for: the one that the module's process sees, then that of this machine where it is
    /// another one. Which of them is meant, their ids say.
    pub(super) fn read_path<'p>(&'p self, path: &'p Path) -> impl Iterator<Item = Result<FileBytes, NoTable>> + 'p {
        let ways = [<dyn ModuleFiles>::open_path, <dyn ModuleFiles>::open_elsewhere];
        ways.into_iter().filter_map(move |open| match open(&*self.files, path) {
            Ok(file) => Some(read_whole(file, &shown(path))),
            Err(error) if is_absence(&error) => None,
            Err(error) => Some(Err((io_reason(&error), format!("{}: {error}", shown(path))))),
        })
    }
}

/// A whole file that was opened; one that is nothing that has symbols is not read any further. `name` is for the message.
pub(crate) fn read_whole(file: File, name: &str) -> Result<FileBytes, NoTable> {
    let size = file.metadata().map_or(0, |found| found.len());
    let has_symbols = |first: &[u8]| match sniff(first) {
        FileKind::Other | FileKind::Archive(_) => Err(io::ErrorKind::InvalidData.into()),
        _ => Ok(()),
    };
    FileBytes::read_if(file, MAX_FILE_BYTES, has_symbols).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => {
            (MissReason::Malformed, format!("{name}: expected an object file or a program database, found neither"))
        }
        io::ErrorKind::FileTooLarge => {
            (MissReason::FileUnreadable, format!("{name}: {size} bytes, at most {MAX_FILE_BYTES} are read"))
        }
        io::ErrorKind::OutOfMemory => {
            (MissReason::FileUnreadable, format!("{name}: {size} bytes, more than there is memory for"))
        }
        _ => (io_reason(&error), format!("{name}: {error}")),
    })
}

/// The object of the module `id` in a file: of a universal Mach-O file the slice with its UUID.
pub(crate) fn object_of<'d>(bytes: &'d [u8], id: &DebugId, name: &str) -> Result<ObjectFile<'d>, NoTable> {
    let malformed = |error: symseal_artifact::ArtifactError| (MissReason::Malformed, format!("{name}: {error}"));
    let objects = match ReleaseFile::parse(bytes).map_err(malformed)? {
        ReleaseFile::Object(object) => vec![object],
        ReleaseFile::Fat(slices) => slices,
        ReleaseFile::Pdb(_) | ReleaseFile::PortablePdb(_) => {
            return Err((MissReason::Malformed, format!("{name}: expected an object file, found a program database")));
        }
    };
    let found: Vec<String> = objects.iter().filter_map(ObjectFile::debug_id).map(ToString::to_string).collect();
    objects.into_iter().find(|object| object.debug_id() == Some(id)).ok_or_else(|| match found.is_empty() {
        true => (MissReason::DebugIdMismatch, format!("{name}: the file has no debug id")),
        false => of_another(&found.join(", "), id, name),
    })
}

/// Whether bytes are an object or a program database of the module `id`.
pub(crate) fn check_id(bytes: &[u8], id: &DebugId, name: &str) -> Result<(), NoTable> {
    match sniff(bytes) {
        FileKind::Pdb => pdb_of(bytes, id, name).map(|_| ()),
        _ => object_of(bytes, id, name).map(|_| ()),
    }
}

/// The program database of the module `id` in a file.
pub(crate) fn pdb_of<'d>(bytes: &'d [u8], id: &DebugId, name: &str) -> Result<PdbFile<'d>, NoTable> {
    let pdb = PdbFile::parse(bytes).map_err(|error| (MissReason::Malformed, format!("{name}: {error}")))?;
    if pdb.debug_id() != *id {
        return Err(of_another(&pdb.debug_id().to_string(), id, name));
    }
    Ok(pdb)
}

fn of_another(found: &str, expected: &DebugId, name: &str) -> NoTable {
    (MissReason::DebugIdMismatch, format!("{name}: expected a file of {expected}, found one of {found}"))
}

/// Whether an error says no more than that nothing is at the path.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
