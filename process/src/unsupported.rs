//! Systems whose live processes are not looked at.

use symseal_module::Avma;

use crate::{Mapping, OpenedFile, ProcessError, ProcessModule};

/// Linux only.
pub fn proc_maps(_pid: u32) -> Result<Vec<Mapping>, ProcessError> {
    Err(ProcessError::Unsupported)
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
pub fn open_module(_pid: u32, _module: &ProcessModule) -> Result<OpenedFile, ProcessError> {
    Err(ProcessError::Unsupported)
}

/// Linux only.
pub fn read_memory(_pid: u32, _address: Avma, _out: &mut [u8]) -> Result<usize, ProcessError> {
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
