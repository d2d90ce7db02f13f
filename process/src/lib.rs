//! Live processes: what is mapped where, under which identity, and the bytes of their memory.
//!
//! * [`maps::parse`]: the text of `/proc/PID/maps`, on any system.
//! * [`modules_of`]: the modules of a process with load bias and build-id. The build-id in the
//!   process's *memory* is what counts; what the file says now is reported beside it.
//! * [`read_memory`], [`tasks`], [`living`], [`vdso_bytes`]: what a capture needs besides.
//! * [`JitMaps`], with the parsers [`PerfMap`] and [`JitDump`]: what runtimes say of the code that they made.
//! * [`kernel_symbols`], with the parser [`KernelSymbols`]: the functions of the running kernel.
//! * [`identity_of`]: whether a process is still the same one, with the same program.
//!
//! Only Linux has live processes here; elsewhere those functions give [`ProcessError::Unsupported`], so
//! that rooms that merely may use them build everywhere.
#![deny(unsafe_code)]

mod elf;
mod error;
#[cfg(target_os = "linux")]
mod image;
pub mod jit;
mod kallsyms;
pub mod maps;
mod module;
mod pe;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod unsupported;

pub use elf::{ElfError, ElfImage, Segment};
pub use error::ProcessError;
pub use jit::{JitDump, JitDumpError, JitFunction, JitFunctions, JitHit, JitLine, JitSnapshot, PerfMap};
pub use kallsyms::{KallsymsError, KernelHit, KernelSymbols, is_kernel_address};
pub use maps::{Device, Mapping, MapsError};
pub use module::{IdentifiedBy, JitFileState, JitSource, OpenedBy, OpenedFile, ProcessIdentity, ProcessModule};
pub use pe::PeImage;

#[cfg(target_os = "linux")]
pub use linux::{
    executable_of, identity::identity_of, jit::JitMaps, kernel::kernel_build_id, kernel::kernel_symbols, living,
    memory::read_memory, modules::modules_again, modules::modules_in, modules::modules_of, open::open_module,
    proc_maps, process_of, root::open_in_root, tasks::tasks, tasks::thread_name, vdso::vdso_bytes,
};
#[cfg(not(target_os = "linux"))]
pub use unsupported::{
    JitMaps, executable_of, identity_of, kernel_build_id, kernel_symbols, living, modules_again, modules_in,
    modules_of, open_in_root, open_module, proc_maps, process_of, read_memory, tasks, thread_name, vdso_bytes,
};
