//! The files in which a process's runtimes tell what they made, followed while they grow.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::followed::{Followed, state_of};
use super::open::open_mapped;
use super::read_proc;
use super::root::open_in_root;
use crate::{JitDump, JitFileState, JitSnapshot, Mapping, PerfMap};

const ROOT: u32 = 0;

/// What runtimes tell about the code that they made in one process.
#[derive(Debug)]
pub struct JitMaps {
    pid: u32,
    perf_map: Followed<PerfMap>,
    dump: Followed<JitDump>,
}

impl JitMaps {
    /// Those of process `pid`, of which nothing was read yet.
    pub fn new(pid: u32) -> Self {
        Self { pid, perf_map: Followed::new(PerfMap::new()), dump: Followed::new(JitDump::new()) }
    }

    /// Reads what was written since the last time. `mappings` are those of the process: a jitdump is found by the
    /// mapping with which its runtime marks it.
    ///
    /// The perf map is that of the process's id in its own namespace, in its own `/tmp`, and is believed only where it
    /// belongs to the process's user or to root: anybody may write to `/tmp`.
    pub fn refresh(&mut self, mappings: &[Mapping]) {
        let Some(status) = Status::of(self.pid) else { return };
        self.refresh_perf_map(&status);
        self.refresh_dump(&status, mappings);
    }

    /// What is known now; further reading does not change it.
    pub fn snapshot(&self) -> JitSnapshot {
        JitSnapshot {
            perf_map: self.perf_map.parser.snapshot(),
            dump: self.dump.parser.snapshot(),
            perf_map_state: self.perf_map.state.clone(),
            dump_state: self.dump.state.clone(),
        }
    }

    fn refresh_perf_map(&mut self, status: &Status) {
        let path = PathBuf::from(format!("/tmp/perf-{}.map", status.own_pid));
        let opened = open_in_root(self.pid, &path).and_then(|file| {
            let owner = file.metadata()?.uid();
            Ok((file, owner))
        });
        match opened {
            Err(error) => self.perf_map.forget(PerfMap::new(), state_of(&path, &error)),
            // Root could change the process's memory itself; agents of the JVM give their files to it, as perf asks for.
            Ok((_, owner)) if owner != ROOT && !status.users.contains(&owner) => {
                self.perf_map.forget(PerfMap::new(), JitFileState::ForeignOwner { path, owner });
            }
            Ok((file, _)) => self.perf_map.follow(&file, &path, PerfMap::new, |map, bytes| {
                let used = map.read(bytes);
                Ok((used, map.functions(), map.bad_lines()))
            }),
        }
    }

    fn refresh_dump(&mut self, status: &Status, mappings: &[Mapping]) {
        let name = format!("/jit-{}.dump", status.own_pid);
        let marks =
            |mapping: &&Mapping| mapping.executable && mapping.is_file() && mapping.path.ends_with(name.as_bytes());
        let Some(mark) = mappings.iter().find(marks) else {
            return self.dump.forget(JitDump::new(), JitFileState::Absent);
        };
        let path = PathBuf::from(String::from_utf8_lossy(&mark.path).into_owned());
        let file = match open_mapped(self.pid, mark) {
            Ok(file) => file,
            Err(error) => return self.dump.forget(JitDump::new(), state_of(&path, &error)),
        };
        let own_pid = status.own_pid;
        self.dump.follow(&file, &path, JitDump::new, |dump, bytes| {
            let used = dump.read(bytes).map_err(|error| error.to_string())?;
            // A child has its parent's dump mapped, and not its future.
            if let Some(pid) = dump.pid().filter(|pid| *pid != own_pid) {
                return Err(format!("expected the dump of process {own_pid}, found that of {pid}"));
            }
            Ok((used, dump.functions(), dump.bad_records()))
        });
    }
}

/// What is needed of `/proc/PID/status`.
struct Status {
    /// The process's id in its innermost namespace: what it takes itself for.
    own_pid: u32,
    /// Its real, effective, saved and file system user.
    users: Vec<u32>,
}

impl Status {
    fn of(pid: u32) -> Option<Self> {
        let status = read_proc(pid, "status", "look at").ok()?;
        let numbers = |key: &[u8]| -> Vec<u32> {
            let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(key));
            let text = line.and_then(|line| str::from_utf8(line).ok()).unwrap_or_default();
            text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
        };
        let own_pid = numbers(b"NSpid:").last().copied().unwrap_or(pid);
        Some(Self { own_pid, users: numbers(b"Uid:") })
    }
}
