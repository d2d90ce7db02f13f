//! Archives, packages and images as streams of members.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use symseal_artifact::{
    ArchiveBehind, ArchiveError, ArchiveReport as Walked, DISK_TRAILER_BYTES, IMAGE_START_BYTES, Member, SNIFF_BYTES,
    Source, Unread, archive_behind, read_archive_without, read_image_layout_without, unread_archive, unread_image,
    unread_program,
};
use symseal_bundle::pages::{DEBUG_FILE_PAGE, Measured, measure};

use super::file::{self, Bytes, InputFile};
use super::file_bytes::HELD_BYTES;
use super::identify::{self, reason};
use super::loose::{self, Judged, MAX_DSYM_MEMBER_BYTES};
use super::spool::Written;
use super::{Found, Reading, names};
use crate::error::{BuildError, io_error};
use crate::report::{ArchiveReport, PassedOver};

/// A member whose size the archive does not say is read so far before it has the memory to itself.
const UNSIZED_BYTES: u64 = 1 << 20;

/// What stops the reading of an archive.
enum Stop {
    Archive(ArchiveError),
    Build(BuildError),
}

impl From<ArchiveError> for Stop {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

/// Reads the archive at `path`, which people call `place`, and keeps the release files in it.
pub(super) fn look(path: &Path, place: &str, reading: &Reading<'_>) -> Result<Found, BuildError> {
    look_at(path, place, reading, |file| Source::Seekable(file))
}

/// Reads the zip behind the program at `path`. One that is damaged is told as not looked into: the program is sound.
pub(super) fn look_behind(path: &Path, place: &str, reading: &Reading<'_>) -> Result<Found, BuildError> {
    match look_at(path, place, reading, |file| Source::Behind(file)) {
        Err(BuildError::Archive { source: ArchiveError::Damaged { expected, found, .. }, .. }) => {
            Ok(unread_behind(place, &format!("a damaged zip archive: expected {expected}, found {found}")))
        }
        looked => looked,
    }
}

fn look_at(
    path: &Path,
    place: &str,
    reading: &Reading<'_>,
    source: impl for<'f> FnOnce(&'f mut File) -> Source<'f>,
) -> Result<Found, BuildError> {
    let mut file = File::open(path).map_err(io_error("open", path))?;
    let state = |file: &File| file.metadata().map(|metadata| (metadata.len(), metadata.modified().ok()));
    let before = state(&file).map_err(io_error("look at", path))?;
    let mut found = Found::default();
    let mut taken = 0;
    let (mut excluded, source) = (Vec::new(), source(&mut file));
    let mut is_left_out = |place: &str| is_excluded(place, reading, &mut excluded);
    let walked =
        read_archive_without::<Stop>(place, source, reading.limits, &mut is_left_out, &mut |member, content| {
            taken += u64::from(visit(member, content, reading, &mut found).map_err(Stop::Build)?);
            Ok(())
        });
    found.excluded.extend(excluded);
    let after = state(&file).map_err(io_error("look at", path))?;
    if before != after {
        return Err(BuildError::Changed { place: place.to_owned() });
    }
    finish(place, walked, taken, found, reading)
}

/// Reads the container images of an OCI layout in the directory `root`.
pub(super) fn look_at_layout(root: &Path, place: &str, reading: &Reading<'_>) -> Result<Found, BuildError> {
    let mut found = Found::default();
    let mut taken = 0;
    let real_root = fs::canonicalize(root).map_err(io_error("look at", root))?;
    // Paths come out of the layout's index: neither they nor a link lead out of the layout.
    let mut open = |path: &str| -> io::Result<Box<dyn Read>> {
        let real = fs::canonicalize(root.join(path))?;
        if !real.starts_with(&real_root) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it leads out of the layout"));
        }
        Ok(Box::new(File::open(real)?))
    };
    let mut excluded = Vec::new();
    let mut is_left_out = |place: &str| is_excluded(place, reading, &mut excluded);
    let walked = read_image_layout_without::<Stop>(
        place,
        &mut open,
        reading.limits,
        &mut is_left_out,
        &mut |member, content| {
            taken += u64::from(visit(member, content, reading, &mut found).map_err(Stop::Build)?);
            Ok(())
        },
    );
    found.excluded.extend(excluded);
    finish(place, walked, taken, found, reading)
}

/// What was found, with what the archive says about itself.
fn finish(
    place: &str,
    walked: Result<Walked, Stop>,
    taken: u64,
    mut found: Found,
    reading: &Reading<'_>,
) -> Result<Found, BuildError> {
    let walked = walked.map_err(|stop| match stop {
        Stop::Archive(source) => BuildError::Archive { limit: reading.limits.exceeded(&source), source },
        Stop::Build(error) => error,
    })?;
    let replaced = names::replace(&mut found);
    let taken = taken.saturating_sub(replaced) + names::link(&walked, reading, &mut found);
    names::give(&mut found.files, names::symbolic(&walked));
    found.skip(reason::LINK, walked.symbolic_links);
    found.skip(reason::HARD_LINK, walked.hard_links.saturating_sub(found.linked));
    found.skip(reason::SPECIAL, walked.special_files);
    found.skip(reason::APPLE_DOUBLE, walked.apple_double);
    found.skip(reason::PASSED_OVER, walked.passed_over.len() as u64 + walked.passed_over_more);
    let (unread, unread_more) = (std::mem::take(&mut found.unread), found.unread_more);
    found.skip(reason::PASSED_OVER, (unread.len() as u64 + unread_more).saturating_sub(found.unread_programs));
    found.skip(reason::UNREAD_PROGRAM, found.unread_programs);
    // A compressed file that is no release file is no archive either.
    if walked.archives > 0
        || taken > 0
        || !walked.passed_over.is_empty()
        || !unread.is_empty()
        || !walked.images.is_empty()
    {
        let mut report = report(place, taken, walked);
        report.passed_over.extend(unread);
        report.passed_over_more += unread_more;
        found.archives.push(report);
    }
    Ok(found)
}

/// Whether a member is left out, be it an archive; then notes by which pattern.
pub(super) fn is_excluded(place: &str, reading: &Reading<'_>, excluded: &mut Vec<String>) -> bool {
    let glob = reading.exclude.matching(place);
    excluded.extend(glob.map(str::to_owned));
    glob.is_some()
}

/// One member; whether it was kept.
fn visit(
    member: &Member<'_>,
    mut content: &mut dyn Read,
    reading: &Reading<'_>,
    found: &mut Found,
) -> Result<bool, BuildError> {
    let Reading { spool, budget, .. } = reading;
    let place = member.full_path();
    // One that is compressed by itself is no member of anything, and was not asked for.
    if is_excluded(&place, reading, &mut found.excluded) {
        return Ok(false);
    }
    found.seen += 1;
    let name = file::usable_name(member.file_name());
    let dsym = file::dsym_place(&place);
    // An error of this reader is the archive's: the caller gets that one, whatever we make of it.
    let read_error = |error: std::io::Error| io_error("read", Path::new(&place))(error);
    let mut head = Vec::with_capacity(SNIFF_BYTES);
    Read::take(&mut content, SNIFF_BYTES as u64).read_to_end(&mut head).map_err(read_error)?;
    let is_candidate = identify::is_candidate(&head);
    if loose::is_script(&name, dsym.as_ref(), is_candidate) {
        found.refuse(place, loose::SCRIPT);
        found.skip(reason::SCRIPT, 1);
        return Ok(false);
    }
    let is_member = dsym.is_some() && member.size_hint.is_some_and(|size| size <= MAX_DSYM_MEMBER_BYTES);
    if !is_candidate && !is_member {
        match unread_program(&head) {
            None => {}
            Some(Unread::LinkerInput(_)) => {
                found.skip_one(reason::OBJECT, place);
                return Ok(false);
            }
            Some(Unread::Portable(_)) => {
                found.skip_one(reason::PORTABLE, place);
                return Ok(false);
            }
            Some(Unread::Program(what)) => {
                found.leave_unread(place, unread_format(what));
                found.unread_programs += 1;
                return Ok(false);
            }
        }
        let what = match unread_archive(&head) {
            None if may_be_disk_image(&name) => disk_image(&head, content).map_err(read_error)?,
            known => known,
        };
        match what {
            Some(what) => found.leave_unread(place, unread(what)),
            None => found.skip(reason::NO_RELEASE_FILE, 1),
        }
        return Ok(false);
    }
    let mut permit = member.size_hint.map(|size| budget.acquire(size.min(HELD_BYTES)));
    let mut bytes = head;
    if permit.is_none() {
        Read::take(&mut content, UNSIZED_BYTES).read_to_end(&mut bytes).map_err(read_error)?;
        if bytes.len() as u64 >= UNSIZED_BYTES {
            permit = Some(budget.acquire_all());
        }
    } else if let Some(size) = member.size_hint.and_then(|size| usize::try_from(size.min(HELD_BYTES)).ok()) {
        let out_of_memory = |_| read_error(std::io::ErrorKind::OutOfMemory.into());
        bytes.try_reserve_exact(size.saturating_sub(bytes.len())).map_err(out_of_memory)?;
    }
    let room = HELD_BYTES.saturating_sub(bytes.len() as u64);
    Read::take(&mut content, room).read_to_end(&mut bytes).map_err(read_error)?;
    let held = if bytes.len() as u64 >= HELD_BYTES {
        let written = spool.write(&mut bytes.as_slice().chain(content), &place)?;
        drop(bytes);
        Held::OnDisk(written)
    } else {
        Held::InMemory(bytes)
    };
    // A zip behind a member would be an archive that has to be held in memory beside it.
    match archive_behind(held.bytes()).filter(|_| is_candidate) {
        None => {}
        Some(ArchiveBehind::Zip) => found.leave_unread(place.clone(), not_read_behind("a zip archive")),
        Some(ArchiveBehind::Unread(what)) => found.leave_unread(place.clone(), not_read_behind(what)),
    }
    let content = match loose::judge(held.bytes(), is_member && !is_candidate, &place)? {
        Judged::Taken(content) => content,
        Judged::Refused(error) => {
            found.refuse(place, &error.to_string());
            found.skip(reason::REFUSED, 1);
            return Ok(false);
        }
        Judged::Other(reason, _) => {
            found.skip_one(reason, place);
            return Ok(false);
        }
    };
    let (path, measured) = held.keep(reading)?;
    drop(permit);
    found.files.push(InputFile::new(place, Bytes::Spooled(path), name, measured, content, dsym));
    Ok(true)
}

/// A member that was read to its end.
enum Held {
    InMemory(Vec<u8>),
    OnDisk(Written),
}

impl Held {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::InMemory(bytes) => bytes,
            Self::OnDisk(written) => &written.bytes,
        }
    }

    /// Keeps it until the bundle is built.
    fn keep(self, reading: &Reading<'_>) -> Result<(PathBuf, Measured), BuildError> {
        match self {
            Self::InMemory(bytes) => {
                let measured = measure(&bytes, DEBUG_FILE_PAGE);
                Ok((reading.spool.keep(&bytes, &measured.digest)?, measured))
            }
            Self::OnDisk(written) => written.keep(),
        }
    }
}

/// Whether a member is read to its end to see whether it is a disk image. Others are skipped without being unpacked, where the archive
/// allows that, so that here the name counts as well.
fn may_be_disk_image(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [".dmg", ".iso", ".img", ".ext4", ".erofs", ".run", ".sh"].iter().any(|suffix| name.ends_with(suffix))
}

/// What a disk image is that begins with `head` and goes on with `rest`.
fn disk_image(head: &[u8], rest: &mut dyn Read) -> io::Result<Option<&'static str>> {
    const BLOCK: usize = 64 << 10;
    let mut input = head.chain(rest);
    let (mut start, mut last) = (Vec::new(), Vec::new());
    let mut block = Vec::with_capacity(BLOCK);
    let mut is_first = true;
    loop {
        block.clear();
        Read::take(&mut input, BLOCK as u64).read_to_end(&mut block)?;
        if is_first {
            start.extend(block.iter().take(IMAGE_START_BYTES));
            is_first = false;
        }
        last.extend_from_slice(&block);
        last.drain(..last.len().saturating_sub(DISK_TRAILER_BYTES));
        if block.len() < BLOCK {
            return Ok(unread_image(&start, &last));
        }
    }
}

/// A program with an archive behind it that is not read.
pub(super) fn unread_behind(place: &str, what: &str) -> Found {
    let passed_over = vec![PassedOver { place: place.to_owned(), reason: not_read_behind(what) }];
    let mut found = Found::default();
    found.skip(reason::PASSED_OVER, 1);
    found.archives.push(ArchiveReport { place: place.to_owned(), passed_over, ..ArchiveReport::default() });
    found
}

fn not_read_behind(what: &str) -> String {
    format!("has an archive behind it that was not looked into ({what}): unpack it, and name what was in it")
}

/// A package or program among the inputs that is not read, for this reason.
pub(super) fn left_unread(place: String, reason: String) -> ArchiveReport {
    let passed_over = vec![PassedOver { place: place.clone(), reason }];
    ArchiveReport { place, passed_over, ..ArchiveReport::default() }
}

pub(super) fn unread(what: &str) -> String {
    format!("{what}, which is not read: unpack it, and name what was in it")
}

pub(super) fn unread_format(what: &str) -> String {
    format!("{what}, of a format that is not read: its debug information is not in the bundle")
}

fn report(place: &str, taken: u64, walked: Walked) -> ArchiveReport {
    let passed_over = walked.passed_over.into_iter();
    let passed_over = passed_over.map(|one| PassedOver { place: one.path, reason: one.reason.to_string() });
    ArchiveReport {
        place: place.to_owned(),
        files: walked.files,
        archives: walked.archives,
        unpacked_bytes: walked.unpacked_bytes,
        taken,
        images: walked.images.into_iter().map(|image| image.platform).collect(),
        passed_over: passed_over.collect(),
        passed_over_more: walked.passed_over_more,
        static_libraries: walked.static_libraries,
    }
}
