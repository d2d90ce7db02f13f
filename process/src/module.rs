//! A module of a live process.

use std::fs::File;
use std::path::PathBuf;

use symseal_module::{Avma, DebugId, MappedModule};

use crate::Device;

/// One module, and how it was identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessModule {
    /// Where it lies and what it is called. The path is escaped (`symseal_module::escape`).
    pub module: MappedModule,
    /// The path's own bytes.
    pub path: Vec<u8>,
    /// The file's device, as maps has it.
    pub device: Device,
    /// The file's inode; 0 for the vDSO.
    pub inode: u64,
    /// Whether the file was unlinked.
    pub deleted: bool,
    /// The executable mapping that the module was found by.
    pub mapping_start: Avma,
    /// Its end.
    pub mapping_end: Avma,
    /// Where `module.debug_id` was read.
    pub identified_by: IdentifiedBy,
    /// How the file was opened, where that could be done.
    pub opened_by: Option<OpenedBy>,
    /// What the opened file says that it is.
    pub file_debug_id: Option<DebugId>,
}

impl ProcessModule {
    /// Whether this is the kernel's vDSO, which no file holds.
    pub fn is_vdso(&self) -> bool {
        self.path == b"[vdso]"
    }
}

/// Where a debug id was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentifiedBy {
    /// The note in the process's memory: nothing speaks louder.
    Memory,
    /// The note in the file, because memory had none that could be read.
    File,
    /// There is none.
    None,
}

/// How a module's file was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenedBy {
    /// `/proc/PID/map_files`: the very file, even when it was unlinked. Needs CAP_CHECKPOINT_RESTORE or root.
    MapFiles,
    /// `/proc/PID/exe`: the program that the process runs, even when it was unlinked.
    Executable,
    /// `/proc/PID/root/PATH`, with the device and inode that are mapped.
    Path,
    /// `/proc/PID/root/PATH` on a file system whose device numbers maps does not show; the build-id is the one in memory.
    PathByBuildId,
}

/// A module's file.
#[derive(Debug)]
pub struct OpenedFile {
    /// Open for reading.
    pub file: File,
    /// How it was reached.
    pub by: OpenedBy,
}

/// Who a process is, so that it can be told from another one that got its id, and from itself with another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    /// When it was started, in clock ticks since the machine's start: another process of the same id has another one.
    pub started: u64,
    /// Device and inode of the program that it runs, as stat(2) has them.
    pub executable: (u64, u64),
    /// Where its stack begins; exec puts it elsewhere, also for the same program. 0 where addresses are not randomised
    /// or not shown.
    pub stack: u64,
}

impl ProcessIdentity {
    /// Whether this is the same process as `other`, whatever program each ran.
    pub fn is_same_process(&self, other: &Self) -> bool {
        self.started == other.started
    }
}

/// Which file of a runtime told the name of code that it made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JitSource {
    /// `/tmp/perf-PID.map`: names.
    PerfMap,
    /// `jit-PID.dump`: names and lines.
    JitDump,
}

/// How reading a file of a runtime went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JitFileState {
    /// There is none.
    Absent,
    /// It was read as far as it is written.
    Read {
        /// Where, as the process sees it.
        path: PathBuf,
        /// Functions held.
        functions: usize,
        /// Lines or records that were not understood.
        passed_over: u64,
    },
    /// It belongs to another user than the process, and is not believed.
    ForeignOwner {
        /// Where, as the process sees it.
        path: PathBuf,
        /// The user that it belongs to.
        owner: u32,
    },
    /// It cannot be opened or read.
    Unreadable {
        /// Where, as the process sees it.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// It is no such file, or cannot be read on; what was read before holds.
    Damaged {
        /// Where, as the process sees it.
        path: PathBuf,
        /// Why.
        problem: String,
    },
}
