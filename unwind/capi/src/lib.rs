//! libdwunw.a: unwinding and symbolising for C programs.
//!
//! The C face of `symseal-unwind` and `symseal-symx`. `include/dwunw.h` is made of this crate by cbindgen, and
//! `docs/libdwunw.md` is its guide. Nothing is decided here but what C needs: sizes of structures, who owns which memory, how
//! a set of modules is exchanged while others read it, and numbers for what went wrong.
//!
//! * `context`, `given`, `module`, `files`: modules come and go; what was read of their files is kept for the next time;
//! * `snapshot`: how readers go on without a lock meanwhile; `cancel`: no thread is cancelled within a call;
//! * `capture`, `registers`, `memory`, `target`, `scratch`: registers and stack bytes to frames;
//! * `resolve`, `elf_symbols`, `text`: frames to names;
//! * `elf`: what was made of an ELF file, whose parts the crate `symseal-dwunw-elf` finds.
//!
//! The crate takes no lock and allocates nothing while it unwinds, and calls nothing but the C library.
#![no_std]
// Its core library is built with the same permission: nobody ships one.
#![cfg_attr(target_arch = "mips", feature(asm_experimental_arch))]
#![allow(non_camel_case_types, reason = "the names are those of the C header")]

extern crate alloc;

mod cancel;
pub mod capture;
pub mod context;
mod elf;
mod elf_symbols;
mod files;
pub mod given;
pub mod memory;
mod module;
pub mod registers;
pub mod resolve;
mod runtime;
pub mod scratch;
mod sized;
mod snapshot;
pub mod status;
mod target;
mod text;
