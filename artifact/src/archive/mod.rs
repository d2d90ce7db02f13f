//! Archives, packages and container images, read as streams.
//!
//! [`read_archive`] takes a reader and calls a visitor with each regular file in it. Nothing is unpacked to a disk, and
//! nothing is opened: the caller brings the reader. Which inputs are read, what nesting means and where the limits are
//! stands in `docs/formats/inputs.md`.
//!
//! * Only regular files are members. Links and devices are counted, not followed. A hard link is a further name of a file
//!   that is visited under another; it is counted and not visited again ([`ArchiveReport::hard_link_names`]).
//! * A member that is an archive itself is looked into ([`Limits::depth`]); a file that is compressed by itself (`.ko.xz`)
//!   is visited unpacked. What is not looked into is in [`ArchiveReport::passed_over`].
//! * `._name` files (AppleDouble) and `__MACOSX/` are passed over, and counted.
//! * What is beyond the [`Limits`] ends the reading with an error that names the archive, the member, the limit and the
//!   figure, but that bombs may be passed over ([`Limits::bombs`]). So does damage to the outermost archive; a damaged
//!   archive within it is reported, and reading goes on.
//!
//! Memory stays bounded whatever the input: one window of [`MAX_WINDOW_BYTES`] for each compressed stream that is open,
//! [`Limits::header_bytes`] for what must be seen as a whole, and [`Limits::buffer_bytes`] for one zip in a stream.

mod behind;
mod cab;
mod deb;
mod decompress;
mod error;
mod image;
mod kind;
mod limits;
mod member;
mod reach;
mod report;
mod rpm;
mod tar;
mod walk;
mod zip;

use std::io::{self, Read, Seek, SeekFrom};

pub use behind::{ArchiveBehind, archive_behind};
pub use error::{ArchiveError, LimitKind};
pub use kind::{ArchiveKind, DISK_TRAILER_BYTES, IMAGE_START_BYTES, archive_kind, unread_archive, unread_image};
pub use limits::{Limits, MAX_WINDOW_BYTES, RATIO_FLOOR_BYTES};
pub use member::Member;
pub use reach::{ParseReachError, Reach};
pub use report::{ArchiveReport, HardLink, ImageReport, MAX_PASSED_OVER, PassedOver, PassedOverReason};

use error::Halt;
use limits::Account;
use walk::Walk;

/// A reader that can go to any offset.
pub trait ReadSeek: Read + Seek {}

impl<T: Read + Seek + ?Sized> ReadSeek for T {}

/// Where an archive's bytes come from.
pub enum Source<'s> {
    /// In order, once. A zip is then held in memory within [`Limits::buffer_bytes`], and a container image cannot be told
    /// from a tar of tars.
    Stream(&'s mut dyn Read),
    /// At any offset: a file. It is read from its beginning, wherever it stands.
    Seekable(&'s mut dyn ReadSeek),
    /// The same of a zip that stands behind an object file: [`archive_behind`].
    Behind(&'s mut dyn ReadSeek),
}

/// Reads an archive or a compressed file, and calls `visit` with each regular file and its bytes. The visitor may read as
/// much of them as it likes; what it leaves is skipped. An error of the visitor ends the reading and comes back as it is,
/// unless something beneath its reader had failed: then that comes back.
///
/// `name` is what errors and members call the archive, usually the file's path, as it is to be told: nothing in it is escaped here
/// ([`escaped`](crate::escaped) does that).
///
/// ```
/// use symseal_artifact::{ArchiveError, Limits, Source, read_archive};
///
/// # fn example(file: &mut std::fs::File) -> Result<(), ArchiveError> {
/// let mut names = Vec::new();
/// let report = read_archive::<ArchiveError>("release.zip", Source::Seekable(file), &Limits::default(), &mut |member, _| {
///     names.push(member.full_path());
///     Ok(())
/// })?;
/// println!("{} files, {} not looked into", report.files, report.passed_over.len());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`ArchiveError`] where a limit is reached, the archive is damaged, no archive at all, or its reader fails; whatever the
/// visitor returns.
pub fn read_archive<E: From<ArchiveError>>(
    name: &str,
    source: Source<'_>,
    limits: &Limits,
    visit: &mut dyn FnMut(&Member<'_>, &mut dyn Read) -> Result<(), E>,
) -> Result<ArchiveReport, E> {
    read_archive_without(name, source, limits, &mut |_| false, visit)
}

/// As [`read_archive`], but for members that `is_left_out` names when it is asked with the way to them, as
/// [`Member::full_path`] has it: they are not visited, and what is an archive is not looked into.
///
/// # Errors
///
/// As [`read_archive`].
pub fn read_archive_without<E: From<ArchiveError>>(
    name: &str,
    source: Source<'_>,
    limits: &Limits,
    is_left_out: &mut dyn FnMut(&str) -> bool,
    visit: &mut dyn FnMut(&Member<'_>, &mut dyn Read) -> Result<(), E>,
) -> Result<ArchiveReport, E> {
    visited(limits, is_left_out, visit, |walk| match source {
        Source::Stream(input) => walk.outermost_stream(name, &mut Named::buffered(name, input, walk.account)),
        Source::Seekable(input) => walk.outermost_file(name, &mut Named::buffered(name, input, walk.account)),
        Source::Behind(input) => walk.zip_behind(name, &mut Named::buffered(name, input, walk.account)),
    })
}

/// Runs one reading with the caller's visitor, whose errors stay as they are.
fn visited<E: From<ArchiveError>>(
    limits: &Limits,
    is_left_out: &mut dyn FnMut(&str) -> bool,
    visit: &mut dyn FnMut(&Member<'_>, &mut dyn Read) -> Result<(), E>,
    read: impl FnOnce(&mut Walk<'_>) -> Result<(), Halt>,
) -> Result<ArchiveReport, E> {
    let account = Account::new(limits);
    let mut stopped = None;
    let mut erased =
        |member: &Member<'_>, content: &mut dyn Read| visit(member, content).map_err(|error| stopped = Some(error));
    let mut walk = Walk::new(&account, is_left_out, &mut erased);
    let result = read(&mut walk);
    let mut report = std::mem::take(&mut walk.report);
    report.unpacked_bytes = account.total();
    match (result, stopped) {
        (Ok(()), _) => Ok(report),
        (Err(Halt::Visitor), Some(error)) => Err(error),
        (Err(Halt::Archive(error)), _) => Err(error.into()),
        // The visitor alone makes that Halt, and leaves its error.
        (Err(Halt::Visitor), None) => Ok(report),
    }
}

/// Reads the images of an OCI layout in a folder, and calls `visit` with each regular file that they have in the end.
/// `open` opens a file of the layout by its path from the layout's root, with `/` between the parts: `oci-layout`,
/// `index.json`, `blobs/sha256/…`; an error of kind [`io::ErrorKind::NotFound`] says that it is not there. Paths come out of
/// the layout's index: the closure must not follow them out of the folder.
///
/// A layout in a tar, and what `docker save` writes, is read by [`read_archive`].
///
/// # Errors
///
/// As [`read_archive`]; [`ArchiveError::Mismatch`] where a blob has another digest or size than its manifest says.
pub fn read_image_layout<E: From<ArchiveError>>(
    name: &str,
    open: &mut dyn FnMut(&str) -> io::Result<Box<dyn Read>>,
    limits: &Limits,
    visit: &mut dyn FnMut(&Member<'_>, &mut dyn Read) -> Result<(), E>,
) -> Result<ArchiveReport, E> {
    read_image_layout_without(name, open, limits, &mut |_| false, visit)
}

/// As [`read_image_layout`], but for members that `is_left_out` names, as in [`read_archive_without`].
///
/// # Errors
///
/// As [`read_image_layout`].
pub fn read_image_layout_without<E: From<ArchiveError>>(
    name: &str,
    open: &mut dyn FnMut(&str) -> io::Result<Box<dyn Read>>,
    limits: &Limits,
    is_left_out: &mut dyn FnMut(&str) -> bool,
    visit: &mut dyn FnMut(&Member<'_>, &mut dyn Read) -> Result<(), E>,
) -> Result<ArchiveReport, E> {
    visited(limits, is_left_out, visit, |walk| image::read_layout(walk, name, open))
}

/// The caller's reader, whose errors are told from those of the archive.
struct Named<'a, R> {
    name: &'a str,
    input: R,
    account: &'a Account<'a>,
}

/// Bytes that are read from the caller's reader at once.
const SOURCE_BUFFER: usize = 128 << 10;

impl<'a, R: Read> Named<'a, R> {
    fn buffered(name: &'a str, input: R, account: &'a Account<'a>) -> io::BufReader<Self> {
        io::BufReader::with_capacity(SOURCE_BUFFER, Self { name, input, account })
    }

    fn failed(&self, error: &io::Error) -> io::Error {
        let archive = self.name.to_owned();
        self.account.fail(ArchiveError::Unreadable { archive, reason: error.to_string() })
    }
}

impl<R: Read> Read for Named<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.input.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(&error)),
                Ok(read) => {
                    let so_far = self.account.read();
                    so_far.set(so_far.get().saturating_add(read as u64));
                    return Ok(read);
                }
            }
        }
    }
}

impl<R: Read + Seek> Seek for Named<'_, R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.input.seek(to).map_err(|error| self.failed(&error))
    }
}
