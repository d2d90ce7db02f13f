//! An ELF file, as far as modules need it.

use alloc::vec::Vec;

use symseal_dwunw_elf::Parts;
use symseal_module::DebugId;
use symseal_unwind::{Arch, Table};

use crate::elf_symbols::Symbols;
use crate::status::dwunw_status as S;

/// What was made of an ELF file.
pub(crate) struct ElfImage {
    /// The stated address of its first page.
    pub(crate) image_base: u64,
    /// The stated address after its last byte in memory.
    pub(crate) image_end: u64,
    pub(crate) arch: Arch,
    pub(crate) debug_id: Option<DebugId>,
    /// The stated address and the bytes of its executable segment.
    pub(crate) code: Option<(u64, &'static [u8])>,
    pub(crate) symbols: Symbols,
    /// `None` where it has no unwind rules, or none were asked for.
    pub(crate) table: Option<Table<'static>>,
    /// What `table` borrows from.
    _table: Vec<u8>,
}

impl ElfImage {
    /// Reads `bytes`, and with `compiled` makes a table of the unwind rules in it.
    #[allow(unsafe_code, reason = "a table beside its bytes")]
    pub(crate) fn read(bytes: &'static [u8], compiled: bool) -> Result<Self, S> {
        let parts = Parts::read(bytes).map_err(S::of_elf)?;
        let table_bytes = if compiled { parts.compile().map_err(S::of_elf)? } else { Vec::new() };
        // SAFETY: the vector's memory stays where it is while the image lives; views of the table are kept beside the image.
        let kept: &'static [u8] = unsafe { core::slice::from_raw_parts(table_bytes.as_ptr(), table_bytes.len()) };
        let table = if kept.is_empty() { None } else { Some(Table::open(kept).map_err(|_| S::BadElf)?) };
        Ok(Self {
            image_base: parts.image_base,
            image_end: parts.image_end,
            arch: parts.arch,
            debug_id: parts.debug_id,
            code: parts.segment,
            symbols: Symbols::new(parts.symbols),
            table,
            _table: table_bytes,
        })
    }
}
