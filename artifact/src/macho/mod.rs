//! Mach-O files: headers, universal files, symbols, exports, and what the unwinder needs.
//!
//! Headers are read field by field instead of through `object`'s structures, which a slice at an odd address of memory
//! does not suit.

mod dsym;
mod exports;
mod fat;
mod fixups;
mod headers;
pub(crate) mod loader;
mod object;
mod processor;
mod segments;
mod symbols;

pub use dsym::{DsymPlace, DsymRole, dsym_bundles, dsym_place};
pub use fat::is_universal_library;
pub(crate) use fat::slices;
pub(crate) use headers::Macho;
