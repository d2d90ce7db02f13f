//! A table, read in place.

use crate::{Function, Hit, OpenError, VerifyError};
use core::marker::PhantomData;
use symseal_module::{DebugId, Rva, Svma};

/// How much of everything a table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// Function ranges.
    pub functions: u64,
    /// Line rows (columns apart), with the rows that say "no function here".
    pub rows: u64,
    /// Places at which something was inlined.
    pub inlines: u64,
    /// Different source files.
    pub files: u64,
    /// Bytes of names and paths.
    pub string_bytes: u64,
    /// Bytes of the table without its columns.
    pub core_bytes: u64,
    /// Bytes of the column sections.
    pub column_bytes: u64,
}

/// A symbol table over the bytes of its file, read in place.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    _bytes: PhantomData<&'a [u8]>,
}

impl<'a> Table<'a> {
    /// Checks the header and the section directory; nothing else is read.
    pub fn open(_bytes: &'a [u8]) -> Result<Self, OpenError> {
        Err(OpenError::Magic)
    }

    /// Checks every section against its checksum, and that everything in it holds together.
    pub fn verify(&self) -> Result<(), VerifyError> {
        Ok(())
    }

    /// The module that the table describes.
    pub fn debug_id(&self) -> DebugId {
        DebugId::MachoUuid([0; 16])
    }

    /// What to add to a relative address to get the stated one.
    pub fn image_base(&self) -> Svma {
        Svma(0)
    }

    /// SHA-256 of the file that the table was made from.
    pub fn source_sha256(&self) -> [u8; 32] {
        [0; 32]
    }

    /// Name and version of the program that made the table.
    pub fn producer(&self) -> &'a str {
        ""
    }

    /// How much of everything there is.
    pub fn counts(&self) -> Counts {
        Counts::default()
    }

    /// What is known about `address`; `None` between functions and outside of them. Allocates nothing.
    pub fn lookup(&self, _address: Rva) -> Option<Hit<'a>> {
        None
    }

    /// All functions, by address.
    pub fn functions(&self) -> impl Iterator<Item = Function<'a>> + use<'a> {
        core::iter::empty()
    }

    /// The whole stream: every range of addresses that has one answer, by address.
    pub fn rows(&self) -> impl Iterator<Item = Hit<'a>> + use<'a> {
        core::iter::empty()
    }
}
