//! ELF files: headers, notes, links, symbols, and what the unwinder needs.

pub(crate) mod gabi;
mod headers;
mod links;
mod notes;
mod scripts;
mod symbols;
mod unwind;

pub(crate) use headers::{Elf, Section};
pub(crate) use links::{debug_alt_link, debug_link};
pub(crate) use notes::{identity, text_hash};
pub(crate) use scripts::has_inline_scripts;
pub(crate) use symbols::{Symbol, SymbolTable, symbol_bytes, symbols};
pub(crate) use unwind::{text_sections, unwind_inputs};
