//! How much an archive may ask for, and the account that is kept of it.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use super::error::{ArchiveError, Halt, LimitKind};

/// How much of its past a compressed stream may refer to, and so the memory that its decompression takes: 128 MiB, what
/// `zstd` accepts unasked (2^27) and twice what `xz -9` uses. One xz and one zstd stream may be open within another.
pub const MAX_WINDOW_BYTES: u64 = 1 << 27;

/// The unpacked bytes that one stream, or all holes of sparse files together, may give before their ratio counts: a small file of zeros is
/// no bomb.
pub const RATIO_FLOOR_BYTES: u64 = 64 << 20;

/// How much reading one archive, with all that is inside it, may ask for. What goes beyond ends the reading with
/// [`ArchiveError::Limit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Entries of all archives together: files, links, folders and extension headers. 1,000,000 by default.
    pub members: u64,
    /// How many archives may lie around a member, the outermost not counted. 1 by default: a deb within a zip is looked
    /// into, a zip within that deb is reported as not looked into. A package's own payload, an image's layers and the
    /// compression of a single file do not count.
    pub depth: u32,
    /// Unpacked bytes for each packed byte of one stream, once it gave more than [`RATIO_FLOOR_BYTES`]. 1000 by default;
    /// deflate cannot give more than 1032, so that all four compressions are ended when they hold zeros alone. So many bytes of
    /// holes in sparse files there may be for each byte that was read of the outermost file, however it is compressed.
    pub ratio: u64,
    /// How many members that go beyond [`Self::ratio`] by themselves are passed over, and told in the report, before such a one ends the reading: a member of a
    /// zip, and a file or an archive that is compressed by itself. What lies behind a bomb in one compressed stream with it cannot be reached without
    /// unpacking it. None by default: in a release one is not expected.
    pub bombs: u32,
    /// Bytes that decompression and the holes of sparse files give altogether. 64 GiB by default.
    pub total_bytes: u64,
    /// Bytes of one member. 16 GiB by default.
    pub member_bytes: u64,
    /// Bytes of one path. 4096 by default, Linux' `PATH_MAX`.
    pub path_bytes: u64,
    /// Memory for what must be seen as a whole: a package's header, the names in an image's layers. 256 MiB by default.
    pub header_bytes: u64,
    /// The largest zip that is held in memory because the archive around it is a stream; a larger one is reported as not
    /// looked into. 512 MiB by default.
    pub buffer_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            members: 1_000_000,
            depth: 1,
            ratio: 1000,
            bombs: 0,
            total_bytes: 64 << 30,
            member_bytes: 16 << 30,
            path_bytes: 4096,
            header_bytes: 256 << 20,
            buffer_bytes: 512 << 20,
        }
    }
}

impl Limits {
    /// Which of these limits an error tells of, by its name in `docs/formats/inputs.md`; none where the bound is a fixed one, or the error
    /// another.
    pub fn exceeded(&self, error: &ArchiveError) -> Option<&'static str> {
        let ArchiveError::Limit { limit, allowed, .. } = error else { return None };
        let (name, own) = match limit {
            LimitKind::Members => ("members", self.members),
            LimitKind::MemberBytes => ("member-bytes", self.member_bytes),
            LimitKind::TotalBytes => ("total-bytes", self.total_bytes),
            LimitKind::Ratio => ("ratio", self.ratio),
            LimitKind::PathBytes => ("path-bytes", self.path_bytes),
            LimitKind::HeaderBytes => ("header-bytes", self.header_bytes),
            LimitKind::WindowBytes => return None,
        };
        (own == *allowed).then_some(name)
    }
}

/// The account of one reading, shared by all readers that are stacked on one another.
pub(super) struct Account<'l> {
    pub(super) limits: &'l Limits,
    members: Cell<u64>,
    total: Cell<u64>,
    /// Bytes that were read of the outermost file.
    read: Rc<Cell<u64>>,
    /// Bytes of holes.
    holes: Cell<u64>,
    /// The member that is read now, for errors.
    member: RefCell<String>,
    /// The first thing that went wrong below the reader that the visitor holds.
    failure: RefCell<Option<ArchiveError>>,
}

/// What an [`Account`] has counted at some point.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    members: u64,
    total: u64,
    holes: u64,
    read: u64,
}

impl<'l> Account<'l> {
    pub(super) fn new(limits: &'l Limits) -> Self {
        Self {
            limits,
            members: Cell::new(0),
            total: Cell::new(0),
            read: Rc::default(),
            holes: Cell::new(0),
            member: RefCell::new(String::new()),
            failure: RefCell::new(None),
        }
    }

    /// What is read from now on is the outermost file.
    pub(super) fn outermost(&self, name: &str) {
        name.clone_into(&mut self.member.borrow_mut());
    }

    /// One more entry, which is read from now on. Its path's length in bytes is checked.
    pub(super) fn member(&self, archive: &str, path: &str, path_bytes: usize) -> Result<(), ArchiveError> {
        path.clone_into(&mut self.member.borrow_mut());
        let members = self.members.get().saturating_add(1);
        self.members.set(members);
        self.within(archive, LimitKind::Members, self.limits.members, members)?;
        self.path_length(archive, path_bytes as u64)
    }

    pub(super) fn path_length(&self, archive: &str, bytes: u64) -> Result<(), ArchiveError> {
        self.within(archive, LimitKind::PathBytes, self.limits.path_bytes, bytes)
    }

    pub(super) fn within(&self, archive: &str, limit: LimitKind, allowed: u64, found: u64) -> Result<(), ArchiveError> {
        if found <= allowed {
            return Ok(());
        }
        Err(ArchiveError::Limit { archive: archive.to_owned(), member: self.current(), limit, allowed, found })
    }

    /// The member that is read now, for an error: `-` before the first, and no more than the beginning of a long path.
    fn current(&self) -> String {
        const LONGEST: usize = 256;
        let member = self.member.borrow();
        if member.is_empty() { "-".to_owned() } else { member.chars().take(LONGEST).collect() }
    }

    /// More unpacked bytes.
    pub(super) fn unpacked(&self, archive: &str, bytes: u64) -> Result<(), ArchiveError> {
        let total = self.total.get().saturating_add(bytes);
        self.total.set(total);
        self.within(archive, LimitKind::TotalBytes, self.limits.total_bytes, total)
    }

    /// More bytes of a hole. They cost the archive nothing, not even a compressed byte: what they are compared with is all that was read.
    pub(super) fn hole(&self, archive: &str, bytes: u64) -> Result<(), ArchiveError> {
        self.unpacked(archive, bytes)?;
        let holes = self.holes.get().saturating_add(bytes);
        self.holes.set(holes);
        if holes <= RATIO_FLOOR_BYTES {
            return Ok(());
        }
        let ratio = holes.checked_div(self.read.get()).unwrap_or(u64::MAX);
        self.within(archive, LimitKind::Ratio, self.limits.ratio, ratio)
    }

    /// Bytes that were read of the outermost file, which whoever reads it counts.
    pub(super) fn read(&self) -> &Rc<Cell<u64>> {
        &self.read
    }

    /// What was counted so far.
    pub(super) fn mark(&self) -> Mark {
        Mark { members: self.members.get(), total: self.total.get(), holes: self.holes.get(), read: self.read.get() }
    }

    /// Takes back what was counted since: it was a first pass over the same bytes.
    pub(super) fn back_to(&self, mark: Mark) {
        self.members.set(mark.members);
        self.total.set(mark.total);
        self.holes.set(mark.holes);
        self.read.set(mark.read);
    }

    pub(super) fn total(&self) -> u64 {
        self.total.get()
    }

    pub(super) fn damaged(&self, archive: &str, expected: &str, found: impl Into<String>) -> ArchiveError {
        ArchiveError::Damaged {
            archive: archive.to_owned(),
            member: self.current(),
            expected: expected.to_owned(),
            found: found.into(),
        }
    }

    /// Remembers what went wrong and makes an error of it that passes through readers of other crates, which would
    /// otherwise make their own text of it. The first failure is the cause of those that follow.
    pub(super) fn fail(&self, error: ArchiveError) -> io::Error {
        self.failure.borrow_mut().get_or_insert(error.clone());
        io::Error::other(error)
    }

    pub(super) fn failure(&self) -> Option<ArchiveError> {
        self.failure.borrow().clone()
    }

    /// Forgets a failure that was reported.
    pub(super) fn forgive(&self) {
        self.failure.borrow_mut().take();
    }

    /// What an error of a reader means: the failure below it, or damage of this archive.
    pub(super) fn halt(&self, archive: &str, expected: &str, error: &io::Error) -> Halt {
        let found = if error.kind() == io::ErrorKind::UnexpectedEof { "the end".to_owned() } else { error.to_string() };
        Halt::Archive(self.failure().unwrap_or_else(|| self.damaged(archive, expected, found)))
    }
}
