//! Registers, stack bytes and tables to frames, for x86_64, aarch64, 32-bit MIPS (o32, either byte order), IA-32, 64-bit RISC-V and 32-bit ARM on
//! any host.
//!
//! The caller brings a snapshot: the registers of one thread, the bytes of its stack, which modules
//! are mapped where, and a `.uwt` table for those modules that have one. [`unwind`] gives the frames, and
//! says of each one how it was found and of the walk why it ended. It allocates nothing, takes no lock and
//! reads nothing but what it was given.
//!
//! Three parts:
//!
//! * the reader: [`Table`] reads a `.uwt` file in place (`docs/formats/uwt.md`);
//! * the engine: [`unwind`] with [`Modules`], [`Memory`], [`Registers`] and a [`Cache`];
//! * the compiler: [`compile`] makes a `.uwt` table of `.eh_frame`, `.debug_frame` and `.pdr`, of the exception directory of Windows modules,
//!   of compact unwind information of Mach-O modules, of `.ARM.exidx`, of Go's `.gopclntab`, and of instructions alone (feature `compile`; with
//!   `compile-elf` alone, without the formats of Windows and macOS).
//!
//! The chain of the engine: a switch from a goroutine's stack, in programs of Go → the rule of the table → where none covers the address: a signal
//! trampoline, a call through a null pointer, a function whose instructions say where its return address is, and a leaf, where that provably lies on
//! top of the stack or in the link register → the frame pointer, where it stays on the stack ([`Memory::same_stack`]) → with [`Options::scan`], the one word on the stack that calls account for → a stop with its reason. A
//! rule that the engine cannot evaluate ends the walk; it is never replaced by a guess.
//!
//! Reader and engine are `no_std`; the compiler allocates, and needs no `std` either.
//!
//! What this crate is not for: it neither finds modules nor opens files, and it names no functions.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod arch;
mod cache;
mod calls;
#[cfg(feature = "compile-elf")]
pub mod compile;
mod continuation;
mod coroutines;
mod cx;
pub mod format;
mod frame;
mod goroutine;
mod memory;
mod modules;
mod numbers;
mod realigned;
mod reasons;
mod rule;
mod scan;
mod source;
mod step;
mod table;
mod tasks;
mod verify;
mod walk;
mod without_rule;

pub use arch::{Arch, MipsFlags};
pub use cache::{Cache, Entry as CacheEntry};
pub use continuation::frame_pointer_of;
pub use cx::Operation;
pub use frame::{Continuation, Frame, Registers, Walk};
pub use goroutine::{GoRuntime, GoroutineFields};
pub use memory::{Memory, StackBytes, StackRegions};
pub use modules::{CodeBytes, Module, Modules};
pub use reasons::Reason;
pub use rule::{Kind, ReturnAddress, Rule, RuleSource, Saved, Slots};
pub use source::{Source, SourceKind};
pub use table::{Counts, OpenError, Table};
pub use verify::VerifyError;
pub use walk::{Options, unwind, unwind_with};
