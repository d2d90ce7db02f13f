//! Program databases: which module one belongs to, and what it says about the module's functions.
//!
//! The container (MSF), the streams' headers, symbols and types are read by `pdb2`, within bounds that are checked
//! before: see [`pages`]. Line tables, file checksums and address maps are read here ([`lines`], [`sections`]), as
//! `pdb2` trusts their length fields.

mod header;
mod identity;
mod pages;

pub use identity::PdbFile;
