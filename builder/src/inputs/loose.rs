//! Files as they lie in directories.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use symseal_artifact::{
    ArchiveBehind, ArtifactError, DISK_TRAILER_BYTES, FileKind, IMAGE_START_BYTES, ReleaseFile, SNIFF_BYTES, Unread,
    archive_behind, sniff, unread_archive, unread_image, unread_program,
};
use symseal_bundle::pages::{DEBUG_FILE_PAGE, measure};
use symseal_bundle::title;

use super::file::{self, Bytes, Content, DsymPlace, InputFile, base_name};
use super::identify::{self, Identified, reason};
use super::walk::Candidate;
use super::{Found, Reading, archive};
use crate::error::{BuildError, io_error, place_of};

/// A file of a dSYM bundle beside its debug information (lists, relocation maps) is not larger than this, in bytes.
pub(super) const MAX_DSYM_MEMBER_BYTES: u64 = 256 << 20;

/// What a bundle holds, for errors.
const EXPECTED: &str = "an executable, a library or a debug file (ELF, PE, PDB, Mach-O) of a program that is loaded, or an archive or package of such files";

/// Looks at one file.
pub(super) fn look(candidate: &Candidate, reading: &Reading<'_>) -> Result<Found, BuildError> {
    let path = &candidate.path;
    let place = place_of(path);
    if candidate.is_layout {
        return archive::look_at_layout(path, &place, reading);
    }
    let name = base_name(path);
    let dsym = file::dsym_place(&place);
    let mut found = Found { seen: 1, ..Found::default() };
    let head = head(path)?;
    let is_candidate = identify::is_candidate(&head);
    let is_archive = matches!(sniff(&head), FileKind::Archive(_));
    if is_script(&name, dsym.as_ref(), is_candidate || is_archive) {
        if candidate.named {
            return Err(BuildError::DebuggerScript { place, problem: SCRIPT });
        }
        found.refuse(place, SCRIPT);
        found.skip(reason::SCRIPT, 1);
        return Ok(found);
    }
    if is_archive {
        return archive::look(path, &place, reading);
    }
    if let Some(unread) = unread_program(&head).filter(|_| dsym.is_none()) {
        let (Unread::Program(what) | Unread::LinkerInput(what) | Unread::Portable(what)) = unread;
        if candidate.named {
            let found = format!("{what}, of a format that is not read");
            return Err(BuildError::Unsuitable { place, expected: EXPECTED, found });
        }
        match unread {
            Unread::LinkerInput(_) => found.skip_one(reason::OBJECT, place),
            Unread::Portable(_) => found.skip_one(reason::PORTABLE, place),
            Unread::Program(_) => {
                found.skip(reason::UNREAD_PROGRAM, 1);
                found.archives.push(archive::left_unread(place, archive::unread_format(what)));
            }
        }
        return Ok(found);
    }
    let what = match unread_archive(&head) {
        None if !is_candidate => image(path, candidate.size)?,
        known => known,
    };
    if let Some(what) = what
        && dsym.is_none()
    {
        if candidate.named {
            let found = format!("{what}, which is not read: unpack it");
            return Err(BuildError::Unsuitable { place, expected: EXPECTED, found });
        }
        found.skip(reason::PASSED_OVER, 1);
        found.archives.push(archive::left_unread(place, archive::unread(what)));
        return Ok(found);
    }
    let is_member = dsym.is_some() && candidate.size <= MAX_DSYM_MEMBER_BYTES;
    if !is_candidate && !is_member && !candidate.named {
        found.skip(reason::NO_RELEASE_FILE, 1);
        return Ok(found);
    }
    let permit = reading.budget.acquire(candidate.size);
    let bytes = file::read_file(path)?;
    let behind = archive_behind(&bytes).filter(|_| is_candidate);
    let content = match judge(&bytes, is_member && !is_candidate, &place)? {
        Judged::Taken(content) => Some(content),
        Judged::Refused(source) if candidate.named => return Err(BuildError::Artifact { place, source }),
        Judged::Other(_, found) if candidate.named => {
            return Err(BuildError::Unsuitable { place, expected: EXPECTED, found });
        }
        Judged::Refused(error) => {
            found.refuse(place.clone(), &error.to_string());
            found.skip(reason::REFUSED, 1);
            None
        }
        Judged::Other(reason, _) => {
            found.skip_one(reason, place.clone());
            None
        }
    };
    if let Some(content) = content {
        let measured = measure(&bytes, DEBUG_FILE_PAGE);
        found.files.push(InputFile::new(place.clone(), Bytes::Loose(path.clone()), name, measured, content, dsym));
    }
    // What is in the archive takes memory of its own.
    drop((bytes, permit));
    match behind {
        None => {}
        Some(ArchiveBehind::Zip) => found.absorb(archive::look_behind(path, &place, reading)?),
        Some(ArchiveBehind::Unread(what)) => found.absorb(archive::unread_behind(&place, what)),
    }
    Ok(found)
}

pub(super) const SCRIPT: &str = "a debugger that finds a file of this name runs it";
const INLINE_SCRIPT: &str = "its .debug_gdb_scripts holds the text of a script that gdb would run, or names one that may be any file; remove that section";

/// Whether a debugger would run the file because of its name or place; `is_known`: it begins like a program, a debug file or an archive. A list or map
/// of a dSYM counts by its own name too, whatever the bundle is called.
pub(super) fn is_script(name: &str, dsym: Option<&DsymPlace>, is_known: bool) -> bool {
    let in_dsym = dsym.map(|dsym| format!("{}/{}", dsym.bundle, dsym.path.join("/")));
    title::is_debugger_script_whatever_it_holds(in_dsym.as_deref().unwrap_or(name))
        || !is_known && title::is_debugger_script(name)
}

/// What became of a file that starts like a release file.
pub(super) enum Judged {
    Taken(Content),
    /// Passed over: the reason that is counted, and what it is.
    Other(&'static str, String),
    /// It is one, and cannot be used.
    Refused(ArtifactError),
}

/// What a file is. An ELF or Mach-O file that is damaged is an error wherever it lies: something went wrong with the release.
/// Much that begins like a PE file is none that Windows would load, and a PDB may be of a kind that tells nothing: those
/// are reported.
pub(super) fn judge(bytes: &[u8], is_member: bool, place: &str) -> Result<Judged, BuildError> {
    if is_member {
        // gdb may be given it as well as any other file.
        if ReleaseFile::parse(bytes).is_ok_and(|file| file.has_inline_debugger_scripts()) {
            return Err(BuildError::DebuggerScript { place: place.to_owned(), problem: INLINE_SCRIPT });
        }
        return Ok(Judged::Taken(Content::DsymMember));
    }
    match identify::identify(bytes) {
        Err(source) if matches!(sniff(bytes), FileKind::Pe | FileKind::Pdb | FileKind::PortablePdb) => {
            Ok(Judged::Refused(source))
        }
        Err(source) => Err(BuildError::Artifact { place: place.to_owned(), source }),
        Ok(Identified::Script) => Err(BuildError::DebuggerScript { place: place.to_owned(), problem: INLINE_SCRIPT }),
        Ok(Identified::Release(content)) => Ok(Judged::Taken(content)),
        Ok(Identified::Other(reason, found)) => Ok(Judged::Other(reason, found)),
    }
}

/// What an image or a self-extracting script is that is known by bytes further behind; two reads, and most files are no larger than the first.
fn image(path: &Path, size: u64) -> Result<Option<&'static str>, BuildError> {
    let Some(end) = size.checked_sub(DISK_TRAILER_BYTES as u64) else { return Ok(None) };
    let mut file = File::open(path).map_err(io_error("open", path))?;
    let mut bytes_at = |at: u64, most: usize| {
        let mut bytes = Vec::with_capacity(most);
        file.seek(SeekFrom::Start(at))?;
        Read::take(&mut file, most as u64).read_to_end(&mut bytes).map(|_| bytes)
    };
    let start = bytes_at(0, IMAGE_START_BYTES).map_err(io_error("read", path))?;
    let end = bytes_at(end, DISK_TRAILER_BYTES).map_err(io_error("read", path))?;
    Ok(unread_image(&start, &end))
}

/// The first bytes, without taking the rest into memory: a release directory may hold disk images.
fn head(path: &Path) -> Result<Vec<u8>, BuildError> {
    let mut head = Vec::with_capacity(SNIFF_BYTES);
    let file = File::open(path).map_err(io_error("open", path))?;
    file.take(SNIFF_BYTES as u64).read_to_end(&mut head).map_err(io_error("read", path))?;
    Ok(head)
}
