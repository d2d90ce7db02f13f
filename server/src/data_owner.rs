//! Whose a server's data directory is.

use std::fs::symlink_metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Made by whoever used the data directory first.
const LOCK: &str = "lock";

/// User and group that a server's data directory belongs to: its own, or, where root made it for a server that uses it through its group, those of the
/// file `lock` in it.
///
/// # Errors
/// The directory is not there, or cannot be looked at.
pub fn data_owner(data: &Path) -> io::Result<(u32, u32)> {
    let directory = std::fs::metadata(data)?;
    // Not where a link leads: whoever may write to the directory may lay one.
    let lock = symlink_metadata(data.join(LOCK)).ok().filter(|lock| lock.is_file() && directory.uid() == 0);
    let of = lock.unwrap_or(directory);
    Ok((of.uid(), of.gid()))
}
