//! From the outermost file down to its members.

use std::cell::Cell;
use std::io::{self, Read, SeekFrom};
use std::rc::Rc;

use super::decompress::{Counted, unpack};
use super::error::{ArchiveError, Halt, LimitKind};
use super::kind::{ArchiveKind, archive_kind, is_package};
use super::limits::Account;
use super::member::{Inside, Member, Place, is_apple_double, joined};
use super::reach::Payload;
use super::report::{ArchiveReport, PassedOverReason};
use super::{ReadSeek, cab, deb, image, rpm, tar, zip};

/// The bytes by which a file's kind is told.
const HEAD_BYTES: usize = 512;

/// How often one file may be compressed upon itself before it is taken as it is.
const MAX_LAYERS: usize = 2;

/// The position of a package that has none in the file.
pub(super) const NOWHERE: u64 = u64::MAX;

/// What the walk calls with each member; the caller's error stays with the caller.
pub(super) type Visit<'v> = dyn FnMut(&Member<'_>, &mut dyn Read) -> Result<(), ()> + 'v;

/// One reading of an archive.
pub(super) struct Walk<'w> {
    pub(super) account: &'w Account<'w>,
    pub(super) visit: &'w mut Visit<'w>,
    /// Whether the member that this is the way to is passed over.
    is_left_out: &'w mut dyn FnMut(&str) -> bool,
    pub(super) report: ArchiveReport,
    /// Bytes that were read of the outermost package, which is a row of parts of the file.
    pub(super) position: Rc<Cell<u64>>,
    /// What the members of the outermost archive lie in, while that is read.
    pub(super) payload: Option<Payload>,
}

impl<'w> Walk<'w> {
    pub(super) fn new(
        account: &'w Account<'w>,
        is_left_out: &'w mut dyn FnMut(&str) -> bool,
        visit: &'w mut Visit<'w>,
    ) -> Self {
        Self { account, visit, is_left_out, report: ArchiveReport::default(), position: Rc::default(), payload: None }
    }

    /// The outermost file.
    pub(super) fn outermost_stream(&mut self, name: &str, input: &mut dyn Read) -> Result<(), Halt> {
        let place = Place::outermost(name);
        self.account.outermost(&place.path);
        let head = self.head(&place, input)?;
        if archive_kind(&head).is_none() {
            return Err(no_archive(&place, &head).into());
        }
        self.file_with_head(&place, &head, input)
    }

    /// The outermost file, where it can be read at any offset.
    pub(super) fn outermost_file(&mut self, name: &str, input: &mut dyn ReadSeek) -> Result<(), Halt> {
        let place = Place::outermost(name);
        self.account.outermost(&place.path);
        let label = place.label();
        let at_start = |input: &mut dyn ReadSeek| input.seek(SeekFrom::Start(0)).map(|_| ());
        at_start(input).map_err(|error| self.account.halt(&label, "a file that can be read at any offset", &error))?;
        let head = self.head(&place, input)?;
        match archive_kind(&head) {
            None => Err(no_archive(&place, &head).into()),
            Some(ArchiveKind::Zip) => self.zip(&place, input),
            Some(kind) if kind == ArchiveKind::Tar || kind.is_compression() => {
                if image::read_saved(self, &place, input)? {
                    return Ok(());
                }
                self.account.outermost(&place.path);
                at_start(input).map_err(|error| self.account.halt(&label, "the file's beginning", &error))?;
                let head = self.head(&place, input)?;
                self.file_with_head(&place, &head, input)
            }
            Some(_) => self.file_with_head(&place, &head, input),
        }
    }

    /// A zip that stands behind something else: its directory, which is found from the end, says where it begins.
    pub(super) fn zip_behind(&mut self, name: &str, input: &mut dyn ReadSeek) -> Result<(), Halt> {
        let place = Place::outermost(name);
        self.account.outermost(&place.path);
        self.zip(&place, input)
    }

    /// A member of an archive: looked into where it is an archive itself, visited otherwise.
    pub(super) fn member(&mut self, place: &Place, input: &mut dyn Read) -> Result<(), Halt> {
        if is_apple_double(&place.raw_path) {
            self.report.apple_double = self.report.apple_double.saturating_add(1);
            return Ok(());
        }
        // Asked before a byte is unpacked: a member may be left out because of what that would give.
        if (self.is_left_out)(&place.label()) {
            return Ok(());
        }
        let head = self.head(place, input)?;
        if archive_kind(&head).is_none() {
            return self.file_with_head(place, &head, input);
        }
        match self.file_with_head(place, &head, input) {
            // What is damaged is this member alone: the archive around it can be read on. Test data of compression
            // libraries is like that.
            Err(Halt::Archive(ArchiveError::Damaged { archive, expected, found, .. }))
                if archive.starts_with(&place.label()) =>
            {
                self.account.forgive();
                let reason = format!("expected {expected}, found {found}");
                self.report.pass_over(archive, PassedOverReason::Damaged(reason));
                Ok(())
            }
            Err(Halt::Archive(ArchiveError::Mismatch { archive, blob, expected, found }))
                if archive.starts_with(&place.label()) =>
            {
                let reason = format!("{blob}: expected {expected}, found {found}");
                self.report.pass_over(archive, PassedOverReason::Damaged(reason));
                Ok(())
            }
            other => self.past_bomb(place, other, |archive| archive.starts_with(&place.label())).map(|_| ()),
        }
    }

    /// Takes it that a member is a bomb, where `is_its_own` says so of the archive that went beyond the ratio and the limits allow one more. Whether it
    /// is one.
    pub(super) fn past_bomb(
        &mut self,
        place: &Place,
        read: Result<(), Halt>,
        is_its_own: impl Fn(&str) -> bool,
    ) -> Result<bool, Halt> {
        match read {
            Err(Halt::Archive(ArchiveError::Limit { archive, limit: LimitKind::Ratio, allowed, found, .. }))
                if self.report.bombs < self.account.limits.bombs && is_its_own(&archive) =>
            {
                self.account.forgive();
                self.report.pass_over(place.label(), PassedOverReason::Bomb { allowed, found });
                Ok(true)
            }
            other => other.map(|()| false),
        }
    }

    /// Reports what is not looked into, unless the caller wants it left out.
    pub(super) fn pass_over(&mut self, path: String, reason: PassedOverReason) {
        if !(self.is_left_out)(&path) {
            self.report.pass_over(path, reason);
        }
    }

    fn head(&self, place: &Place, input: &mut dyn Read) -> Result<Vec<u8>, Halt> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        match input.take(HEAD_BYTES as u64).read_to_end(&mut head) {
            Ok(_) => Ok(head),
            Err(error) => {
                let archive = if !place.compressions.is_empty() { place.label() } else { joined(&place.outer, "") };
                Err(self.account.halt(&archive, "more of a member", &error))
            }
        }
    }

    fn file_with_head(&mut self, place: &Place, head: &[u8], rest: &mut dyn Read) -> Result<(), Halt> {
        let mut input = head.chain(rest);
        match archive_kind(head) {
            Some(kind) if kind.is_compression() && place.compressions.len() < MAX_LAYERS => {
                let mut stream = unpack(kind, &place.label(), &mut input, self.account);
                let inner = place.unpacked(kind);
                let head = self.head(&inner, &mut stream)?;
                self.file_with_head(&inner, &head, &mut stream)
            }
            Some(kind) if !kind.is_compression() && place.depth > self.account.limits.depth => {
                let is_library = kind == ArchiveKind::Ar && !is_package(head);
                let too_deep = PassedOverReason::TooDeep(kind);
                self.report
                    .pass_over(place.label(), if is_library { PassedOverReason::StaticLibrary } else { too_deep });
                Ok(())
            }
            Some(kind) if !kind.is_compression() => self.archive(kind, place, &mut input),
            Some(_) | None => self.hand_over(place, &mut input),
        }
    }

    fn archive(&mut self, kind: ArchiveKind, place: &Place, input: &mut dyn Read) -> Result<(), Halt> {
        if kind == ArchiveKind::Zip {
            return self.zip_in_stream(place, input);
        }
        if kind == ArchiveKind::Tar && !place.as_outer().is_outermost() {
            return self.tar_in_stream(place, input);
        }
        self.report.archives = self.report.archives.saturating_add(1);
        let inside = place.as_outer();
        if inside.is_outermost() {
            self.outermost_archive(kind, place, &inside, input)?;
        } else {
            self.members(kind, &inside, input)?;
        }
        // The rest holds the check values of the compressed stream.
        let rest = io::copy(input, &mut io::sink());
        rest.map(|_| ()).map_err(|error| self.account.halt(&inside.label, "a sound end of the stream", &error))
    }

    /// A tar of images is read twice: one within another archive is held in memory, within the limit. A larger one, and one that does not
    /// begin like images, is read as it comes.
    fn tar_in_stream(&mut self, place: &Place, input: &mut dyn Read) -> Result<(), Halt> {
        let label = place.label();
        let read_error = |walk: &Self, error: io::Error| walk.account.halt(&label, "more of a tar", &error);
        let mut held = Vec::new();
        (&mut *input).take(image::BEGINNING as u64).read_to_end(&mut held).map_err(|error| read_error(self, error))?;
        if image::is_worth_a_look(&held) {
            let left = self.account.limits.buffer_bytes.saturating_sub(held.len() as u64);
            let fits = place.size.is_none_or(|size| size <= self.account.limits.buffer_bytes);
            if fits {
                let read = (&mut *input).take(left.saturating_add(1)).read_to_end(&mut held);
                let read = read.map_err(|error| read_error(self, error))?;
                if read as u64 <= left && image::read_saved(self, place, &mut io::Cursor::new(held.as_slice()))? {
                    return Ok(());
                }
            }
        }
        self.report.archives = self.report.archives.saturating_add(1);
        let mut input = held.chain(input);
        self.members(ArchiveKind::Tar, &place.as_outer(), &mut input)?;
        // The rest holds the check values of the compressed stream.
        let rest = io::copy(&mut input, &mut io::sink());
        rest.map(|_| ()).map_err(|error| self.account.halt(&label, "a sound end of the stream", &error))
    }

    /// With a count of what is read, by which members are found again.
    fn outermost_archive(
        &mut self,
        kind: ArchiveKind,
        place: &Place,
        inside: &Inside,
        input: &mut dyn Read,
    ) -> Result<(), Halt> {
        let count = Rc::default();
        let mut input = Counted::new(input, &count);
        match (kind, place.compressions.as_slice()) {
            (ArchiveKind::Tar, []) => self.payload = Payload::new(ArchiveKind::Tar, 0, u64::MAX, count),
            (ArchiveKind::Tar, [packing]) => self.payload = Payload::new(*packing, 0, u64::MAX, count),
            // Its parts are found in the file where it was not unpacked.
            (_, []) => self.position = count,
            _ => self.position = Rc::new(Cell::new(NOWHERE)),
        }
        match (kind, place.compressions.as_slice()) {
            (ArchiveKind::Tar, []) => tar::read_alone(self, inside, &mut input)?,
            _ => self.members(kind, inside, &mut input)?,
        }
        self.payload = None;
        Ok(())
    }

    fn members(&mut self, kind: ArchiveKind, inside: &Inside, input: &mut dyn Read) -> Result<(), Halt> {
        match kind {
            ArchiveKind::Ar => deb::read(self, inside, input),
            ArchiveKind::Rpm => rpm::read(self, inside, input),
            ArchiveKind::Cab => cab::read(self, inside, input),
            _ => tar::read(self, inside, input),
        }
    }

    fn zip(&mut self, place: &Place, input: &mut dyn ReadSeek) -> Result<(), Halt> {
        self.report.archives = self.report.archives.saturating_add(1);
        zip::read(self, &place.as_outer(), input)
    }

    /// A zip's directory is at its end: a zip in a stream is held in memory, within the limit.
    fn zip_in_stream(&mut self, place: &Place, input: &mut dyn Read) -> Result<(), Halt> {
        let allowed = self.account.limits.buffer_bytes;
        let too_large = PassedOverReason::TooLargeToHold { allowed };
        if place.size.is_some_and(|size| size > allowed) {
            self.report.pass_over(place.label(), too_large);
            return Ok(());
        }
        let mut bytes = Vec::new();
        let read = input.take(allowed.saturating_add(1)).read_to_end(&mut bytes);
        let read = read.map_err(|error| self.account.halt(&place.label(), "more of a zip", &error))?;
        if read as u64 > allowed {
            self.report.pass_over(place.label(), too_large);
            return Ok(());
        }
        self.zip(place, &mut io::Cursor::new(bytes))
    }

    /// Gives a file to the visitor.
    fn hand_over(&mut self, place: &Place, input: &mut dyn Read) -> Result<(), Halt> {
        self.report.files = self.report.files.saturating_add(1);
        let member = Member {
            outer: &place.outer,
            path: &place.path,
            raw_path: &place.raw_path,
            size_hint: place.size,
            compressions: &place.compressions,
            depth: place.depth.saturating_sub(1),
            reach: place.reach,
            signature: place.signature.as_deref(),
        };
        let archive = if place.outer.is_empty() { place.label() } else { joined(&place.outer, "") };
        let mut content = Content { input, archive, account: self.account, read: 0 };
        let answer = (self.visit)(&member, &mut content);
        // What went wrong below the visitor's reader is the cause of what the visitor says.
        if let Some(failure) = self.account.failure() {
            return Err(failure.into());
        }
        answer.map_err(|()| Halt::Visitor)
    }

    /// A member begins: the account is kept, and the size that its header claims is checked.
    pub(super) fn begin(&self, inside: &Inside, raw_path: Vec<u8>, size: Option<u64>) -> Result<Place, Halt> {
        let length = raw_path.len();
        let mut place = inside.place(raw_path, size);
        if inside.is_outermost() {
            place.reach = self.payload.as_ref().zip(size).map(|(payload, size)| payload.reach(size));
        }
        self.account.member(&inside.label, &place.path, length)?;
        let claimed = size.unwrap_or(0);
        self.account.within(&inside.label, LimitKind::MemberBytes, self.account.limits.member_bytes, claimed)?;
        Ok(place)
    }
}

/// A member's bytes, for the visitor.
struct Content<'a> {
    input: &'a mut dyn Read,
    archive: String,
    account: &'a Account<'a>,
    read: u64,
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self.input.read(buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => {
                return Err(match self.account.halt(&self.archive, "more of a member", &error) {
                    Halt::Archive(failure) => self.account.fail(failure),
                    Halt::Visitor => error,
                });
            }
        };
        self.read = self.read.saturating_add(read as u64);
        let limits = self.account.limits;
        self.account
            .within(&self.archive, LimitKind::MemberBytes, limits.member_bytes, self.read)
            .map_err(|error| self.account.fail(error))?;
        Ok(read)
    }
}

fn no_archive(place: &Place, head: &[u8]) -> ArchiveError {
    let bytes: Vec<String> = head.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let found = if bytes.is_empty() { "an empty file".to_owned() } else { format!("bytes {}", bytes.join(" ")) };
    ArchiveError::NoArchive { archive: place.label(), found }
}
