//! DWARF 2 to 5 to pieces of functions with rows.
//!
//! [`read`] goes over the units one after another ([`walk`]); what is kept of a unit are its functions' contiguous
//! pieces with finished line rows, and the offsets of the entries that name them. Names come last ([`names`]), as they
//! may stand in units further on. Nothing is shared between the passes over two units but the numbering of texts.

mod abbrev;
mod files;
mod lines;
mod names;
mod ranges;
mod rows;
mod scopes;
mod sections;
mod unit;
mod value;
mod walk;

pub(crate) use sections::{DwarfSections, describes_types};
pub(crate) use walk::read;
