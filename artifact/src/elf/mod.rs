//! ELF files: headers, notes, links, symbols, and what the unwinder needs.

mod descriptors;
mod dynamic;
pub(crate) mod gabi;
mod headers;
mod layout;
mod links;
mod loaded;
mod notes;
mod object;
mod relocate;
mod section;
mod symbols;
mod unwind;

pub(crate) use headers::{Elf, Section};
pub use relocate::RelocationProblem;
