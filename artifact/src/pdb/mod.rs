//! Program databases: which module one belongs to, and what it says about the module's functions.
//!
//! The container (MSF), lists of modules, symbols and annotations are read by `pdb2`. What it asks for is bounded in
//! [`pages`]. Line tables, checksums, named streams, address maps and names in type records are read here, as `pdb2`
//! trusts length fields in them.
//!
//! [`read`] goes over the modules one after another. Of each, [`lines`] and [`procedures`] are read and laid over each
//! other ([`rows`]); names come last ([`names`]).

mod addresses;
mod annotations;
mod build_records;
mod cross;
mod files;
mod frames;
mod header;
mod identity;
mod lines;
mod names;
mod pages;
mod procedures;
mod publics;
mod read;
mod records;
mod rows;
mod streams;

pub use build_records::BuildRecords;
pub use frames::{FrameData, FrameKind, FrameRule, FrameTable, ProgramId};
pub use identity::PdbFile;
pub(crate) use read::PdbReader;
