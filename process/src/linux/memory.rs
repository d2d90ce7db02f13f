//! The memory of another process.

use std::io;

use symseal_module::Avma;

use super::{living, not_permitted};
use crate::ProcessError;

/// Reads memory from `address` upwards. Gives the number of bytes read, which is less than asked for (and may be 0)
/// where unreadable memory begins; the rest of `out` is left as it was.
pub fn read_memory(pid: u32, address: Avma, out: &mut [u8]) -> Result<usize, ProcessError> {
    let mut done = 0;
    while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let Some(from) = address.checked_add(done as u64) else { break };
        let read = match read_once(pid, from, rest) {
            // Of a first thread that ended the kernel reads nothing, while others run on.
            Err(ProcessError::NoSuchProcess { .. }) if living(pid) != pid => read_once(living(pid), from, rest),
            read => read,
        };
        match read? {
            0 => break,
            read => done = done.saturating_add(read),
        }
    }
    Ok(done)
}

#[allow(unsafe_code)]
fn read_once(pid: u32, address: Avma, out: &mut [u8]) -> Result<usize, ProcessError> {
    let (Ok(native_pid), Ok(from)) = (libc::pid_t::try_from(pid), usize::try_from(address.0)) else {
        return Err(ProcessError::NoSuchProcess { pid });
    };
    let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    let remote = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: out.len() };
    // SAFETY: `local` is one valid iovec over `out`, which is ours to write for the whole call; the kernel writes at
    // most `iov_len` bytes there. `remote` is an address in the other process and is never dereferenced in ours.
    let read = unsafe { libc::process_vm_readv(native_pid, &local, 1, &remote, 1, 0) };
    if let Ok(read) = usize::try_from(read) {
        return Ok(read.min(out.len()));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EFAULT) => Ok(0),
        Some(libc::ESRCH) => Err(ProcessError::NoSuchProcess { pid }),
        Some(libc::EPERM) => Err(not_permitted(pid, "read the memory of")),
        _ => Err(ProcessError::Call { pid, action: "read the memory of", error }),
    }
}
