//! DWARF 2 to 5 to pieces of functions with rows.
//!
//! [`read`] goes over the units one after another ([`walk`]); what is kept of a unit are its functions' contiguous
//! pieces with finished line rows, and the places of the entries that name them. Names come last ([`names`]), as they
//! may stand in units further on or in other files. Nothing is shared between the passes over two units but the
//! numbering of texts.
//!
//! The entries may stand in several files ([`dwarf_files`]): a skeleton unit of the main file leads to a split unit in a
//! `.dwo` or `.dwp` file, which has entries but neither addresses nor lines; entries of the main file refer to those of
//! a supplementary file, which has neither code nor lines that count.

mod abbrev;
mod address_expression;
mod at_zero;
mod compile_directories;
mod dwarf_files;
mod files;
mod line_files;
mod line_program;
mod lines;
mod lost_addresses;
mod names;
mod orphans;
mod own_lines;
mod ranges;
mod read;
mod rows;
mod scope_name;
mod scopes;
mod sections;
mod selected;
mod sized_functions;
mod split;
mod split_contents;
mod split_fit;
mod survey;
mod tables;
mod told;
mod unit;
mod unit_header;
mod value;
mod walk;

pub(crate) use at_zero::AtZero;
pub(crate) use compile_directories::compile_directories;
pub(crate) use dwarf_files::DwarfFiles;
pub(crate) use line_files::{Named, each as each_line_file};
pub(crate) use read::{Code, read};
pub(crate) use selected::{Selected, read_selected};
pub(crate) use split::{split_ids, split_kind, split_units};
pub(crate) use split_contents::split_contents;
pub use split_fit::SplitMisfits;
pub(crate) use split_fit::split_misfits;
pub(crate) use survey::{describes_types, has_partial_units};
pub(crate) use told::build_texts;
