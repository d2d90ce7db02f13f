//! From paths to identified files.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use symseal_artifact::{ArtifactError, ObjectFile, ObjectKind};
use symseal_bundle::pages::{DEBUG_FILE_PAGE, Measured, measure};
use symseal_bundle::title;
use symseal_module::DebugId;

use crate::error::BuildError;
use crate::report::InputReport;

/// A release file, read once and identified. Its bytes are read again when its module's turn comes.
#[derive(Debug, Clone)]
pub(crate) struct Identified {
    pub(crate) path: PathBuf,
    /// Base name, as text.
    pub(crate) name: String,
    pub(crate) id: DebugId,
    pub(crate) measured: Measured,
    /// Holds code; otherwise it is a debug file.
    pub(crate) is_executable: bool,
    /// Holds debug information, so that debuginfod clients may ask for it.
    pub(crate) is_debuginfo: bool,
}

/// A file to look at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    path: PathBuf,
    /// Named by the user, not found in a directory: then anything unsuitable is an error.
    named: bool,
}

enum Seen {
    Taken(Box<Identified>),
    NotElf,
    OtherElf,
    Unidentified,
}

/// Finds and identifies the files. `seen` is called after each file.
pub(crate) fn identify(
    paths: &[PathBuf],
    seen: &(dyn Fn(&Path) + Sync),
) -> Result<(Vec<Identified>, InputReport), BuildError> {
    let mut report = InputReport::default();
    let mut candidates = Vec::new();
    for path in paths {
        let metadata = fs::metadata(path).map_err(io_error("open", path))?;
        if metadata.is_dir() {
            walk(path, &mut candidates, &mut report)?;
        } else if metadata.is_file() {
            candidates.push(Candidate { path: path.clone(), named: true });
        } else {
            let found = "a device, pipe or socket".to_owned();
            return Err(BuildError::Unsuitable { path: path.clone(), expected: "a file or a directory", found });
        }
    }
    // One file may have been named and found. A set by path also makes the first error the same in each run.
    candidates.sort();
    candidates.reverse();
    candidates.dedup_by(|a, b| a.path == b.path);
    candidates.reverse();
    let outcomes: Vec<Result<Seen, BuildError>> = candidates
        .par_iter()
        .map(|candidate| {
            let outcome = look(candidate);
            seen(&candidate.path);
            outcome
        })
        .collect();
    let mut files = Vec::new();
    for outcome in outcomes {
        match outcome? {
            Seen::Taken(file) => files.push(*file),
            Seen::NotElf => report.not_elf += 1,
            Seen::OtherElf => report.other_elf += 1,
            Seen::Unidentified => report.unidentified += 1,
        }
    }
    Ok((files, report))
}

/// Every file below `root`. Links are passed over: what they lead to inside is found anyway, and what they lead to
/// outside was not given to us.
fn walk(root: &Path, candidates: &mut Vec<Candidate>, report: &mut InputReport) -> Result<(), BuildError> {
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).map_err(io_error("list", &directory))? {
            let entry = entry.map_err(io_error("list", &directory))?;
            let path = entry.path();
            // Of the entry itself, not of what a link leads to.
            let kind = entry.file_type().map_err(io_error("look at", &path))?;
            if kind.is_dir() {
                directories.push(path);
            } else if kind.is_file() {
                candidates.push(Candidate { path, named: false });
            } else {
                report.links += 1;
            }
        }
    }
    Ok(())
}

fn look(candidate: &Candidate) -> Result<Seen, BuildError> {
    let path = &candidate.path;
    let name = base_name(path);
    if title::is_debugger_script(&name) {
        if candidate.named {
            let problem = "a debugger that finds a file of this name runs it";
            return Err(BuildError::DebuggerScript { path: path.clone(), problem });
        }
        return Ok(Seen::NotElf);
    }
    if !starts_like_elf(path)? && !candidate.named {
        return Ok(Seen::NotElf);
    }
    let bytes = read(path)?;
    let object = match ObjectFile::parse(&bytes) {
        Ok(object) => object,
        Err(ArtifactError::UnknownFormat { .. }) if !candidate.named => return Ok(Seen::NotElf),
        Err(source) => return Err(BuildError::Artifact { path: path.clone(), source }),
    };
    let unsuitable = |other: Seen, expected: &'static str, found: String| {
        if candidate.named { Err(BuildError::Unsuitable { path: path.clone(), expected, found }) } else { Ok(other) }
    };
    if !matches!(object.kind(), ObjectKind::Executable | ObjectKind::Shared) {
        let found = format!("an ELF file of the kind {:?}", object.kind().code());
        return unsuitable(Seen::OtherElf, "an executable, a shared library or a debug file of one", found);
    }
    let is_executable = object.is_executable();
    let is_debuginfo = object.is_debuginfo() || object.has_debug_info();
    if !is_executable && !is_debuginfo && !object.has_symtab() {
        let found = "neither code nor debug information nor symbols".to_owned();
        return unsuitable(Seen::Unidentified, "an ELF file with code, debug information or symbols", found);
    }
    let Some(id) = object.debug_id().cloned() else {
        let found = "none; link with --build-id".to_owned();
        return unsuitable(Seen::Unidentified, "an ELF file with a build-id", found);
    };
    if object.has_inline_debugger_scripts() {
        let problem = "its .debug_gdb_scripts holds the text of a script that gdb would run; remove that section";
        return Err(BuildError::DebuggerScript { path: path.clone(), problem });
    }
    let measured = measure(&bytes, DEBUG_FILE_PAGE);
    Ok(Seen::Taken(Box::new(Identified { path: path.clone(), name, id, measured, is_executable, is_debuginfo })))
}

/// The whole file. It is read and not mapped: a map of a file that another process truncates kills us.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, BuildError> {
    fs::read(path).map_err(io_error("read", path))
}

/// Reads without taking what is no ELF file into memory: a release directory may hold disk images.
fn starts_like_elf(path: &Path) -> Result<bool, BuildError> {
    let mut magic = Vec::with_capacity(4);
    let file = File::open(path).map_err(io_error("open", path))?;
    file.take(4).read_to_end(&mut magic).map_err(io_error("read", path))?;
    Ok(magic == *b"\x7fELF")
}

/// The last part of the path. Bytes that are not UTF-8 are escaped as everywhere.
fn base_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    symseal_artifact::escaped(name.as_encoded_bytes()).into()
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> BuildError {
    let path = path.to_owned();
    move |source| BuildError::Io { action, path, source }
}
