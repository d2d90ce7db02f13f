//! Which process has a lock or a port: Linux tells it (proc(5)); elsewhere nobody is named.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

/// A process that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) id: u32,
    name: Option<String>,
    /// Whose it is.
    pub(super) user: Option<u32>,
}

#[cfg(test)]
impl Process {
    /// One of this user.
    pub(super) fn new(id: u32, user: u32) -> Self {
        Self { id, name: None, user: Some(user) }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "process {} ({name})", self.id),
            None => write!(f, "process {}", self.id),
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashSet;
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::{Path, Process, SocketAddr};

    /// More than this is not read of a file of the kernel's that may be as long as it likes.
    const MOST_BYTES: u64 = 16 << 20;

    fn read(path: impl AsRef<Path>) -> Option<String> {
        use std::io::Read as _;
        let mut bytes = Vec::new();
        fs::File::open(path).ok()?.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn process(id: u32) -> Process {
        let folder = format!("/proc/{id}");
        let name = read(format!("{folder}/comm")).map(|name| name.trim_end().to_owned());
        Process { id, name, user: fs::metadata(folder).ok().map(|metadata| metadata.uid()) }
    }

    fn processes() -> impl Iterator<Item = u32> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
    }

    /// What the open files of a process are links to; nothing where this user may not know it.
    fn open_files(id: u32) -> impl Iterator<Item = std::path::PathBuf> {
        fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten().map(|entry| entry.path())
    }

    /// Who holds the lock of a file.
    pub(in super::super) fn of_lock(file: &Path) -> Option<Process> {
        let file = fs::metadata(file).ok()?;
        let has_open = |id: u32| {
            let same = |path: std::path::PathBuf| {
                fs::metadata(path).is_ok_and(|it| (it.dev(), it.ino()) == (file.dev(), file.ino()))
            };
            open_files(id).any(same)
        };
        let locks = read("/proc/locks")?;
        let holders = locks.lines().filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, "FLOCK", _, "WRITE", id, place, ..] = words.as_slice() else { return None };
            let mut place = place.split(':');
            let (major, minor) =
                (u32::from_str_radix(place.next()?, 16).ok()?, u32::from_str_radix(place.next()?, 16).ok()?);
            let inode: u64 = place.next()?.parse().ok()?;
            Some((id.parse().ok()?, (major, minor), inode))
        });
        let device = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
        // File systems of several devices tell another one here than of the file.
        let mut holders =
            holders.filter(|(id, place, inode)| *inode == file.ino() && (*place == device || has_open(*id)));
        holders.next().map(|(id, ..)| process(id))
    }

    /// Who listens on a port: at this address, or at all of them.
    pub(in super::super) fn of_port(address: SocketAddr) -> Option<Process> {
        let sockets: HashSet<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
            .into_iter()
            .filter_map(read)
            .flat_map(|table| table.lines().filter_map(|line| listening(line, address.port())).collect::<Vec<_>>())
            .map(|inode| format!("socket:[{inode}]"))
            .collect();
        let has_it = |path: std::path::PathBuf| {
            fs::read_link(path).is_ok_and(|to| to.to_str().is_some_and(|to| sockets.contains(to)))
        };
        processes().find(|id| open_files(*id).any(has_it)).map(process)
    }

    /// The inode of a socket that listens on this port, by its line in the kernel's table.
    fn listening(line: &str, port: u16) -> Option<u64> {
        const LISTEN: &str = "0A";
        let words: Vec<&str> = line.split_whitespace().collect();
        let (local, state) = (words.get(1)?, words.get(3)?);
        let is_it = *state == LISTEN && u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()? == port;
        is_it.then(|| words.get(9)?.parse().ok()).flatten()
    }

    /// How many files a process may have open: so far, and at most.
    pub(crate) fn open_file_limits(id: Option<u32>) -> Option<(u64, u64)> {
        let id = id.map_or_else(|| "self".to_owned(), |id| id.to_string());
        let limits = read(format!("/proc/{id}/limits"))?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        let mut words =
            line.split_whitespace().map(|word| if word == "unlimited" { Some(u64::MAX) } else { word.parse().ok() });
        Some((words.next()??, words.next()??))
    }

    /// How many files a process has open; `None` where this user may not know it.
    pub(crate) fn open_file_count(id: u32) -> Option<u64> {
        fs::read_dir(format!("/proc/{id}/fd")).ok().map(|entries| entries.count() as u64)
    }

    /// Whose this process is.
    pub(in super::super) fn user() -> Option<u32> {
        fs::metadata("/proc/self").ok().map(|metadata| metadata.uid())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn who_locks_and_who_listens_is_told() {
            let file = tempfile::NamedTempFile::new().unwrap();
            assert_eq!(of_lock(file.path()), None);
            file.as_file().lock().unwrap();
            let own = process(std::process::id());
            assert_eq!(of_lock(file.path()), Some(own.clone()));
            assert_eq!(own.user, user());
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            assert_eq!(of_port(listener.local_addr().unwrap()), Some(own.clone()));
            let (now, most) = open_file_limits(None).unwrap();
            assert!(now > 0 && now <= most);
            assert!(open_file_count(own.id).unwrap() >= 2);
        }

        #[test]
        fn lines_that_are_no_sockets_that_listen_are_passed_over() {
            let line = "0: 0100007F:2256 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1";
            assert_eq!(listening(line, 0x2256), Some(4711));
            assert_eq!(listening(line, 1), None);
            assert_eq!(listening(&line.replace(" 0A ", " 01 "), 0x2256), None);
            for odd in ["", "sl local_address", "0: x 0 0A", "0: 0:zz 0 0A 0 0 0 0 0 1"] {
                assert_eq!(listening(odd, 1), None);
            }
        }
    }
}

#[cfg(target_os = "linux")]
pub(super) use linux::{of_lock, of_port, user};
#[cfg(target_os = "linux")]
pub(crate) use linux::{open_file_count, open_file_limits};

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use super::{Path, Process, SocketAddr};

    pub(in super::super) fn of_lock(_: &Path) -> Option<Process> {
        None
    }

    pub(in super::super) fn of_port(_: SocketAddr) -> Option<Process> {
        None
    }

    pub(crate) fn open_file_limits(_: Option<u32>) -> Option<(u64, u64)> {
        None
    }

    pub(crate) fn open_file_count(_: u32) -> Option<u64> {
        None
    }

    pub(in super::super) fn user() -> Option<u32> {
        None
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::{of_lock, of_port, user};
#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{open_file_count, open_file_limits};
