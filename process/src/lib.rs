//! Live processes: what is mapped where, under which identity, and the bytes of their memory.
//!
//! * [`maps::parse`]: the text of `/proc/PID/maps`, on any system.
//! * [`modules_of`]: the modules of a process with load bias and build-id. The build-id in the
//!   process's *memory* is what counts; what the file says now is reported beside it.
//! * [`read_memory`], [`tasks`], [`vdso_bytes`]: what a capture needs besides.
//!
//! Only Linux has live processes here; elsewhere those functions give [`ProcessError::Unsupported`], so
//! that rooms that merely may use them build everywhere.
#![deny(unsafe_code)]

mod elf;
mod error;
pub mod maps;
mod module;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod unsupported;

pub use elf::{ElfError, ElfImage, Segment};
pub use error::ProcessError;
pub use maps::{Device, Mapping, MapsError};
pub use module::{IdentifiedBy, OpenedBy, OpenedFile, ProcessModule};

#[cfg(target_os = "linux")]
pub use linux::{
    executable_of, memory::read_memory, modules::modules_in, modules::modules_of, open::open_module, proc_maps,
    tasks::tasks, tasks::thread_name, vdso::vdso_bytes,
};
#[cfg(not(target_os = "linux"))]
pub use unsupported::{
    executable_of, modules_in, modules_of, open_module, proc_maps, read_memory, tasks, thread_name, vdso_bytes,
};
