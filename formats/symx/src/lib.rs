//! `.symx`, the compact symbol table of one module: address → function, file, line, inlined callers.
//!
//! [`write`] makes a table from functions; [`Table`] reads it in place, from a map or from memory. The format is
//! described in `docs/formats/symx.md`.
//!
//! The caller brings the bytes and keys its questions by [`Rva`](symseal_module::Rva). This crate reads no object
//! file, demangles nothing, and trusts nothing: any bytes may be opened, and a lookup in a damaged table answers
//! something or nothing, but neither panics nor leaves its bounds. Whether the bytes are the published ones is a
//! matter of digests, outside this crate; the checksums in the table find accidents.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bits;
mod checksum;
mod contexts;
mod data;
mod error;
mod hit;
mod layout;
mod name;
mod packed;
mod phrases;
mod record;
mod rows;
mod sparse;
mod stream;
mod strings;
mod table;
mod varint;
mod verify;
mod write;

pub use error::{OpenError, VerifyError, WriteError};
pub use hit::{Frame, Frames, Function, FunctionRange, Hit};
pub use name::{Name, Pieces};
pub use record::{FunctionFlags, FunctionRecord, InlineSite, NO_INLINE, Row, SymbolSource, TableInput};
pub use sparse::{ReadAt, SparseError, SparseFrame, SparseFunction, SparseHit, SparseTable};
pub use stream::Rows;
pub use strings::{StrId, Strings};
pub use table::{Counts, Table};
pub use write::{ContextForm, Form, NameForm, RecordForm, write, write_as};
