//! Systems whose live processes are not looked at.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use symseal_module::{Avma, DebugId};

use crate::{
    JitFileState, JitSnapshot, KernelSymbols, Mapping, OpenedFile, ProcessError, ProcessIdentity, ProcessModule,
};

/// Linux only.
pub fn proc_maps(_pid: u32) -> Result<Vec<Mapping>, ProcessError> {
    Err(ProcessError::Unsupported)
}

/// Linux only: the id as it was given.
pub fn living(pid: u32) -> u32 {
    pid
}

/// Linux only.
pub fn executable_of(_pid: u32) -> Result<Vec<u8>, ProcessError> {
    Err(ProcessError::Unsupported)
}

/// Linux only.
pub fn modules_of(_pid: u32) -> Result<Vec<ProcessModule>, ProcessError> {
    Err(ProcessError::Unsupported)
}

/// Linux only.
pub fn modules_in(_pid: u32, _mappings: &[Mapping]) -> Result<Vec<ProcessModule>, ProcessError> {
    Err(ProcessError::Unsupported)
}

/// Linux only.
pub fn modules_again(
    _pid: u32,
    _mappings: &[Mapping],
    _before: &[&ProcessModule],
) -> Result<Vec<ProcessModule>, ProcessError> {
    Err(ProcessError::Unsupported)
}

/// Linux only.
pub fn open_module(_pid: u32, _module: &ProcessModule) -> Result<OpenedFile, ProcessError> {
    Err(ProcessError::Unsupported)
}

/// Linux only.
pub fn read_memory(_pid: u32, _address: Avma, _out: &mut [u8]) -> Result<usize, ProcessError> {
    Err(ProcessError::Unsupported)
}

/// Linux only.
pub fn process_of(_id: u32) -> Result<u32, ProcessError> {
    Err(ProcessError::Unsupported)
}

/// Linux only.
pub fn tasks(_pid: u32) -> Result<Vec<u32>, ProcessError> {
    Err(ProcessError::Unsupported)
}

/// Linux only: no thread has a name elsewhere.
pub fn thread_name(_pid: u32, _task: u32) -> Vec<u8> {
    Vec::new()
}

/// Linux only.
pub fn vdso_bytes(_pid: u32) -> Result<Option<Vec<u8>>, ProcessError> {
    Err(ProcessError::Unsupported)
}

/// Linux only.
pub fn identity_of(_pid: u32) -> Result<ProcessIdentity, ProcessError> {
    Err(ProcessError::Unsupported)
}

/// Linux only.
pub fn open_in_root(_pid: u32, _path: &Path) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Linux only.
pub fn kernel_symbols() -> Result<KernelSymbols, ProcessError> {
    Err(ProcessError::Unsupported)
}

/// Linux only: no kernel has a build-id elsewhere.
pub fn kernel_build_id(_module: Option<&str>) -> Option<DebugId> {
    None
}

/// Linux only: runtimes tell nothing elsewhere.
#[derive(Debug)]
pub struct JitMaps {}

impl JitMaps {
    /// Of no process.
    pub fn new(_pid: u32) -> Self {
        Self {}
    }

    /// Reads nothing.
    pub fn refresh(&mut self, _mappings: &[Mapping]) {}

    /// Of no function.
    pub fn snapshot(&self) -> JitSnapshot {
        JitSnapshot {
            perf_map: Arc::default(),
            dump: Arc::default(),
            perf_map_state: JitFileState::Absent,
            dump_state: JitFileState::Absent,
        }
    }
}
