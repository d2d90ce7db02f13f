//! A file that a runtime writes, read on while it grows and again from the beginning where it was written anew.
//!
//! Some runtimes append to their file, others write it anew in its place with all that is true now (`jcmd PID
//! Compiler.perfmap` of the JVM truncates it first). The second kind may have grown by the time it is looked at, so that neither
//! inode nor length tells the two apart: what was read before is compared with what stands there now.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::JitFileState;

/// What is read of one file, in bytes; what a runtime writes beyond it is not believed to be one.
const MAX_FILE_BYTES: u64 = 1 << 30;
const STEP_BYTES: usize = 1 << 20;
/// More than the longest record of a jitdump; a line or record that is not complete then never will be.
const MAX_WAITING_BYTES: usize = 80 << 20;
/// The time stamps of files move in steps of the kernel's clock, of 10 ms at most (`CONFIG_HZ=100`): two changes within a
/// step look like one.
const CLOCK_STEP: Duration = Duration::from_millis(20);
/// A comparison that took no longer is made at each change.
const QUICK: Duration = Duration::from_millis(5);
/// After one that took longer, so many times as long passes until the next one.
const PAUSE: u32 = 20;

/// A file and how far it was read.
#[derive(Debug)]
pub(super) struct Followed<P> {
    pub(super) parser: P,
    pub(super) state: JitFileState,
    /// Device and inode.
    file: Option<(u64, u64)>,
    /// The bytes that `parser` used, and their CRC-32.
    read_bytes: u64,
    checksum: crc32fast::Hasher,
    /// How the file was when it was last read to its end.
    look: Option<Look>,
    compared: Option<Compared>,
}

/// How a file was at one moment.
#[derive(Debug, Clone, Copy)]
struct Look {
    bytes: u64,
    /// The time of its last change in seconds and nanoseconds; unlike that of the last modification nobody can set it.
    changed: (i64, i64),
    /// Whether that was long enough ago for any further change to have another time.
    settled: bool,
}

/// The last comparison of what was read with what stands there.
#[derive(Debug, Clone, Copy)]
struct Compared {
    ended: Instant,
    took: Duration,
}

impl<P> Followed<P> {
    pub(super) fn new(parser: P) -> Self {
        Self {
            parser,
            state: JitFileState::Absent,
            file: None,
            read_bytes: 0,
            checksum: crc32fast::Hasher::new(),
            look: None,
            compared: None,
        }
    }

    pub(super) fn forget(&mut self, parser: P, state: JitFileState) {
        *self = Self { state, ..Self::new(parser) };
    }

    /// Reads on where the last time ended; from the beginning where it is another file, or one that was written anew. `read`
    /// gives the bytes that it used, the functions held and the entries passed over.
    pub(super) fn follow(
        &mut self,
        file: &File,
        path: &Path,
        new: impl Fn() -> P,
        read: impl FnMut(&mut P, &[u8]) -> Result<(usize, usize, u64), String>,
    ) {
        let metadata = match file.metadata() {
            Ok(metadata) => metadata,
            Err(error) => return self.forget(new(), state_of(path, &error)),
        };
        let identity = Some((metadata.dev(), metadata.ino()));
        let look = Look::of(&metadata);
        if self.file == identity && self.look.is_some_and(|before| before.still_holds(&look)) {
            return;
        }
        let seen_bytes = self.look.map_or(self.read_bytes, |before| before.bytes);
        if self.file == identity && look.bytes >= seen_bytes {
            if self.is_pausing() {
                return;
            }
            match self.stands_there_still(file) {
                Ok(true) => {}
                Ok(false) => self.forget(new(), JitFileState::Absent),
                Err(error) => return self.forget(new(), state_of(path, &error)),
            }
        } else {
            self.forget(new(), JitFileState::Absent);
        }
        self.file = identity;
        if matches!(self.state, JitFileState::Damaged { .. }) || self.read_on(file, path, look.bytes, read) {
            self.look = Some(look);
        }
    }

    /// Reads up to `bytes` of the file, as far as there are any; false where reading failed.
    fn read_on(
        &mut self,
        file: &File,
        path: &Path,
        bytes: u64,
        mut read: impl FnMut(&mut P, &[u8]) -> Result<(usize, usize, u64), String>,
    ) -> bool {
        let (mut waiting, mut at) = (Vec::new(), self.read_bytes);
        let end = bytes.min(MAX_FILE_BYTES);
        if end == 0 {
            // It is there, and says nothing yet.
            self.state = JitFileState::Read { path: path.to_owned(), functions: 0, passed_over: 0 };
        }
        while at < end {
            if waiting.len() >= MAX_WAITING_BYTES {
                let problem =
                    format!("byte {} begins an entry of more than {MAX_WAITING_BYTES} bytes", self.read_bytes);
                self.state = JitFileState::Damaged { path: path.to_owned(), problem };
                break;
            }
            match read_step(file, at, end, &mut waiting) {
                Ok(0) => break,
                Ok(got) => at = at.saturating_add(got as u64),
                Err(error) => {
                    self.state = state_of(path, &error);
                    return false;
                }
            }
            match read(&mut self.parser, &waiting) {
                Ok((used, functions, passed_over)) => {
                    let used = used.min(waiting.len());
                    self.checksum.update(waiting.get(..used).unwrap_or_default());
                    waiting.drain(..used);
                    self.read_bytes = self.read_bytes.saturating_add(used as u64);
                    self.state = JitFileState::Read { path: path.to_owned(), functions, passed_over };
                }
                Err(problem) => {
                    self.state = JitFileState::Damaged { path: path.to_owned(), problem };
                    break;
                }
            }
        }
        true
    }

    /// Whether the last comparison took so long that the next one has to wait.
    fn is_pausing(&self) -> bool {
        self.compared.is_some_and(|compared| {
            compared.took > QUICK && compared.ended.elapsed() < compared.took.saturating_mul(PAUSE)
        })
    }

    /// Whether the file begins with what was read of it.
    fn stands_there_still(&mut self, file: &File) -> io::Result<bool> {
        let began = Instant::now();
        let (mut checksum, mut bytes, mut at) = (crc32fast::Hasher::new(), Vec::new(), 0);
        while at < self.read_bytes {
            bytes.clear();
            match read_step(file, at, self.read_bytes, &mut bytes)? {
                0 => return Ok(false),
                got => at = at.saturating_add(got as u64),
            }
            checksum.update(&bytes);
        }
        self.compared = Some(Compared { ended: Instant::now(), took: began.elapsed() });
        Ok(checksum.finalize() == self.checksum.clone().finalize())
    }
}

impl Look {
    fn of(metadata: &Metadata) -> Self {
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        let since = |(seconds, nanoseconds): (i64, i64)| {
            let time = Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanoseconds).ok()?);
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH.checked_add(time)?).ok()
        };
        Self { bytes: metadata.len(), changed, settled: since(changed).is_some_and(|since| since > CLOCK_STEP) }
    }

    /// Whether the file did not change until it was as `now` tells.
    fn still_holds(&self, now: &Self) -> bool {
        self.settled && (self.bytes, self.changed) == (now.bytes, now.changed)
    }
}

/// Puts the next bytes behind `bytes`, of those from `at` up to `end`; gives how many.
fn read_step(file: &File, at: u64, end: u64, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let wanted = usize::try_from(end.saturating_sub(at)).unwrap_or(STEP_BYTES).min(STEP_BYTES);
    let filled = bytes.len();
    bytes.resize(filled.saturating_add(wanted), 0);
    let got = file.read_at(bytes.get_mut(filled..).unwrap_or_default(), at);
    bytes.truncate(filled.saturating_add(*got.as_ref().unwrap_or(&0)));
    got
}

/// What it means that a file cannot be opened or read.
pub(super) fn state_of(path: &Path, error: &io::Error) -> JitFileState {
    match error.kind() {
        io::ErrorKind::NotFound => JitFileState::Absent,
        _ => JitFileState::Unreadable { path: path.to_owned(), problem: error.to_string() },
    }
}
