//! One opened symbol table, mapped or in memory, and lookups in it.

use std::fs::File;

use memmap2::Mmap;
use symseal_bundle::Digest;
use symseal_module::{DebugId, MissReason, Rva};
use symseal_symx::{SymbolSource, Table};

use crate::SourceFrame;

/// The bytes of a table.
#[derive(Debug)]
pub(crate) enum TableBytes {
    /// A map of a file in our own store, where nothing is rewritten after its rename.
    Mapped(Mmap),
    /// Read or made in this process.
    Owned(Vec<u8>),
}

impl TableBytes {
    /// Maps `file`, which must lie in our own store.
    pub(crate) fn map(file: &File) -> std::io::Result<Self> {
        // SAFETY: the caller says that the file is in a store of ours: its content is fixed before its
        // rename to the name it was opened by, and it is never truncated or rewritten afterwards.
        #[allow(unsafe_code)]
        let map = unsafe { Mmap::map(file) }?;
        Ok(Self::Mapped(map))
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// A symbol table whose header was checked and whose digest is known.
#[derive(Debug)]
pub(crate) struct LoadedTable {
    bytes: TableBytes,
    /// The digest of the table, where it is a file of a bundle.
    pub(crate) digest: Option<Digest>,
    /// What it was derived from.
    pub(crate) sources: Vec<Digest>,
}

/// What a table says about one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) frames: Vec<SourceFrame>,
    /// The first address of the function's range.
    pub(crate) start: Rva,
    pub(crate) source: SymbolSource,
    pub(crate) approximate: bool,
}

impl LoadedTable {
    /// Opens a table of the module `debug_id`; the reason and a word about it where it is none.
    pub(crate) fn open(
        bytes: TableBytes,
        debug_id: Option<&DebugId>,
        digest: Option<Digest>,
        sources: Vec<Digest>,
    ) -> Result<Self, (MissReason, String)> {
        let table = Table::open(bytes.as_slice()).map_err(|error| (MissReason::Malformed, error.to_string()))?;
        if let Some(expected) = debug_id {
            let found = table.debug_id();
            if found != *expected {
                return Err((MissReason::DebugIdMismatch, format!("the table is of {found}")));
            }
        }
        Ok(Self { bytes, digest, sources })
    }

    /// The functions at `address`, the innermost first; `None` where no function's range holds it.
    pub(crate) fn lookup(&self, address: Rva) -> Option<Named> {
        let table = Table::open(self.bytes.as_slice()).ok()?;
        let hit = table.lookup(address)?;
        let function = hit.function();
        let frames: Vec<SourceFrame> = hit
            .frames()
            .map(|frame| SourceFrame {
                function: some_text(frame.function).or_else(|| some_text(frame.symbol)),
                symbol: some_text(frame.symbol),
                file: some_text(frame.file),
                line: frame.line.filter(|line| *line != 0),
                column: frame.column.filter(|column| *column != 0),
                inlined: frame.inlined,
                symbol_offset: None,
                demangling: None,
            })
            .collect();
        // A function without any name names nothing.
        if frames.iter().all(|frame| frame.function.is_none()) {
            return None;
        }
        Some(Named { frames, start: function.start, source: function.source, approximate: function.flags.approximate })
    }
}

fn some_text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_string())
}
