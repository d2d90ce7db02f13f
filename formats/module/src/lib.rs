//! The words that every room shares: what a module is called, where it lies, and why something
//! was not found.
//!
//! Nothing here reads a file or parses a format. The crate is `no_std` (with `alloc`) so that the
//! symbol table, the unwinder and the C face can use it.
//!
//! * [`DebugId`]: the platform's identity of a module (build-id, PDB GUID and age, Mach-O UUID).
//! * [`Avma`], [`Svma`], [`Rva`], [`FileOffset`]: the four kinds of address, never mixed by accident.
//! * [`ModuleMap`]: which module an actual address belongs to.
//! * [`codes`]: the closed sets of unwind methods, resolver steps, miss reasons and stop reasons.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod addr;
pub mod codes;
mod crc32;
mod debug_id;
pub mod escape;
mod map;
#[cfg(feature = "serde")]
mod serde_forms;

pub use addr::{Avma, FileOffset, ParseAddressError, Rva, Svma};
pub use codes::{FrameEdge, MissReason, Proof, Quality, ResolverStep, StopReason, UnwindMethod};
pub use crc32::crc32;
pub use debug_id::{BuildId, DebugId, MAX_BUILD_ID_BYTES, ParseDebugIdError};
pub use map::{LocatedAddress, MappedModule, ModuleMap};
