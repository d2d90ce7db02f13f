//! The vDSO: code of the kernel in every process, in no file.

use super::memory::read_memory;
use super::proc_maps;
use crate::{Mapping, ProcessError};

/// A vDSO is one or a few pages; more is none.
const MAX_VDSO_BYTES: u64 = 1 << 20;

/// The bytes of a process's vDSO; `None` where it has none.
pub fn vdso_bytes(pid: u32) -> Result<Option<Vec<u8>>, ProcessError> {
    let mappings = proc_maps(pid)?;
    match mappings.iter().find(|mapping| mapping.path == b"[vdso]") {
        Some(mapping) => read_mapping(pid, mapping),
        None => Ok(None),
    }
}

fn read_mapping(pid: u32, mapping: &Mapping) -> Result<Option<Vec<u8>>, ProcessError> {
    let bytes = mapping.end.0.saturating_sub(mapping.start.0);
    if bytes > MAX_VDSO_BYTES {
        return Ok(None);
    }
    let mut image = vec![0; bytes as usize];
    let read = read_memory(pid, mapping.start, &mut image)?;
    image.truncate(read);
    Ok(Some(image).filter(|image| !image.is_empty()))
}
