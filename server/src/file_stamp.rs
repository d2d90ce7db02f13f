//! By what a file of somebody else's that has changed is known.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileStamp {
    /// Nanoseconds since 1970.
    modified: u128,
    /// Bytes.
    pub(crate) size: u64,
    /// Nanoseconds from 1970 to the last change of the file or of what is noted of it, which nobody can set back. A link more changes it too: the
    /// file is read again, and is the same. Its number says no more, and changes with each mount of some file systems.
    changed: u128,
}

impl FileStamp {
    /// `changed`: seconds and nanoseconds of `st_ctime`.
    pub(crate) fn new(modified: SystemTime, size: u64, (seconds, nanoseconds): (i64, i64)) -> Self {
        let modified = modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let changed = i128::from(seconds).saturating_mul(1_000_000_000).saturating_add(nanoseconds.into());
        Self { modified, size, changed: u128::try_from(changed).unwrap_or_default() }
    }

    pub(crate) fn of(metadata: &Metadata) -> io::Result<Self> {
        Ok(Self::new(metadata.modified()?, metadata.len(), (metadata.ctime(), metadata.ctime_nsec())))
    }

    /// When it was written to last; none where that is no time.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(Duration::from_nanos(u64::try_from(self.modified).ok()?))
    }

    /// Whether it was written less than `age` ago, so that it may be written to still. A time to come says nothing.
    pub(crate) fn is_younger_than(&self, age: Duration, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        now.checked_sub(self.modified).is_some_and(|since| since < age.as_nanos())
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (modified, rest) = text.split_once('-')?;
        // An index of before has no third number: what it tells of answers until it has been read again.
        let (size, changed) = rest.split_once('-').unwrap_or((rest, "0"));
        Some(Self { modified: modified.parse().ok()?, size: size.parse().ok()?, changed: changed.parse().ok()? })
    }
}

impl std::fmt::Display for FileStamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.modified, self.size, self.changed)
    }
}
