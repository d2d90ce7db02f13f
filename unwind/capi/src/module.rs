//! One module: where it lies, and what its files say.
#![allow(unsafe_code, reason = "views of files that the module keeps")]

use alloc::sync::Arc;
use alloc::vec::Vec;

use symseal_module::{Avma, DebugId, Svma};
use symseal_unwind::{Arch, CodeBytes, Table};

use crate::elf::ElfImage;
use crate::files::{Content, File};
use crate::status::dwunw_status as S;

/// The smallest page of the processors that there are: a file is mapped by pages, so what lies in one keeps its place there.
const PAGE: u64 = 4096;

/// A module of a context.
pub(crate) struct Module {
    pub(crate) number: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Actual minus stated address, wrapping.
    pub(crate) bias: u64,
    pub(crate) image_base: u64,
    files: Vec<Arc<File>>,
}

impl Module {
    /// A module of `files`, whose image base lies at `start`, without a number yet. `end` is 0 where the files are to say it. They must have the id
    /// `expected`, if that is given.
    pub(crate) fn new(start: u64, end: u64, files: Vec<Arc<File>>, expected: Option<DebugId>) -> Result<Self, S> {
        let mut module = Self { number: 0, start, end, bias: start, image_base: 0, files };
        module.agree(expected)?;
        // The size, where a file says it, and what the file is if that is more than there can be.
        let (base, size, damaged) = match (module.elf(), module.table()) {
            (Some(elf), _) => (elf.image_base, Some(elf.image_end.wrapping_sub(elf.image_base)), S::BadElf),
            (None, Some(table)) => (table.image_base().0, Some(table.text_end().0), S::BadTable),
            (None, None) => (module.symbol_table().map_or(0, |table| table.image_base().0), None, S::BadArgument),
        };
        module.image_base = base;
        module.bias = start.wrapping_sub(base);
        // Rules and names that are a few bytes off are worse than none. A range without files may begin anywhere.
        if !module.files.is_empty() && !module.bias.is_multiple_of(PAGE) {
            return Err(S::BadArgument);
        }
        if end == 0 {
            let size = size.ok_or(S::BadArgument)?;
            // Mappings end at a page.
            let page_end = |from: u64| from.checked_add(size)?.checked_next_multiple_of(PAGE);
            // Beyond the last address: of half of all addresses, or where it is linked, by the file's fault.
            let is_damaged = size >> 63 != 0 || page_end(base).is_none();
            module.end = page_end(start).ok_or(if is_damaged { damaged } else { S::BadArgument })?;
        }
        if module.end <= module.start { Err(S::BadArgument) } else { Ok(module) }
    }

    /// Whether the files that have an id have the same one; with an id that is expected, all of them have to.
    fn agree(&self, expected: Option<DebugId>) -> Result<(), S> {
        let ids = self.files.iter().map(|file| match &file.content {
            Content::Elf(elf) => elf.debug_id.clone(),
            Content::Unwind(table) => Some(table.debug_id()),
            Content::Symbols(table) => Some(table.debug_id()),
        });
        let all_have_one = expected.is_some();
        let mut first = expected;
        for id in ids {
            match (&first, id) {
                (_, None) if all_have_one => return Err(S::IdMismatch),
                (_, None) => {}
                (Some(first), Some(id)) if *first != id => return Err(S::IdMismatch),
                (_, id) => first = id,
            }
        }
        Ok(())
    }

    pub(crate) fn elf(&self) -> Option<&ElfImage> {
        self.files.iter().find_map(|file| match &file.content {
            Content::Elf(elf) => Some(elf),
            _ => None,
        })
    }

    /// The unwind rules: a table of a bundle, else what was compiled of the ELF file.
    pub(crate) fn table(&self) -> Option<Table<'static>> {
        let given = self.files.iter().find_map(|file| match &file.content {
            Content::Unwind(table) => Some(table),
            _ => None,
        });
        given.or_else(|| self.elf()?.table.as_ref()).cloned()
    }

    /// The processor that its ELF file or its table is for.
    pub(crate) fn arch(&self) -> Option<Arch> {
        self.elf().map(|elf| elf.arch).or_else(|| self.table().map(|table| table.arch()))
    }

    pub(crate) fn symbol_table(&self) -> Option<&symseal_symx::Table<'static>> {
        self.files.iter().find_map(|file| match &file.content {
            Content::Symbols(table) => Some(&**table),
            _ => None,
        })
    }

    /// What unwinding can rest on.
    pub(crate) fn unwind_status(&self) -> S {
        if self.table().is_some() { S::Ok } else { S::NoUnwindData }
    }

    /// What names can come from.
    pub(crate) fn symbol_status(&self) -> S {
        let has_symbols = self.symbol_table().is_some() || self.elf().is_some_and(|elf| !elf.symbols.is_empty());
        if has_symbols { S::Ok } else { S::NoSymbols }
    }

    /// As the engine takes it. The view lives no longer than the module, which a snapshot keeps beside it.
    pub(crate) fn view(&self) -> symseal_unwind::Module<'static> {
        let code = self.elf().and_then(|elf| elf.code);
        symseal_unwind::Module {
            start: Avma(self.start),
            end: Avma(self.end),
            bias: self.bias,
            image_base: Svma(self.image_base),
            table: self.table(),
            code: code.map(|(svma, bytes)| CodeBytes { start: Avma(svma.wrapping_add(self.bias)), bytes }),
        }
    }
}
