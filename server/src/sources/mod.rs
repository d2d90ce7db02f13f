//! Source files: out of the sources artifacts that repositories here have, and from directories that the operator names.

mod path;
mod roots;
mod tables;

pub(crate) use path::canonical;
pub(crate) use roots::SourceRoot;
pub(crate) use tables::{FoundSource, SourceTables, Table};
