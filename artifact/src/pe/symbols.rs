//! The COFF symbol table and its string table: MinGW's linkers write them, Microsoft's do not.

use super::Pe;
use crate::fields::within_longest_name;
use crate::symbols::{Symbol, SymbolTable};
use object::LittleEndian as LE;
use object::pe;

/// The symbol table as far as it lies in the file.
///
/// Images need none, and tools that strip leave stale figures behind; so a table beyond the file is no table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CoffTable<'d> {
    entries: &'d [u8],
    /// From its length field on, which offsets count.
    strings: &'d [u8],
}

impl<'d> CoffTable<'d> {
    pub(crate) fn parse(data: &'d [u8], header: &pe::ImageFileHeader) -> Self {
        let read = || {
            let at = usize::try_from(header.pointer_to_symbol_table.get(LE)).ok().filter(|at| *at != 0)?;
            let count = usize::try_from(header.number_of_symbols.get(LE)).ok()?;
            let (entries, rest) = data.get(at..)?.split_at_checked(count.checked_mul(pe::IMAGE_SIZEOF_SYMBOL)?)?;
            let length = rest.first_chunk::<4>().map_or(0, |length| u32::from_le_bytes(*length));
            let strings = usize::try_from(length).ok().and_then(|length| rest.get(..length)).unwrap_or_default();
            Some(Self { entries, strings })
        };
        read().unwrap_or_default()
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.entries.len() as u64).saturating_add(self.strings.len() as u64)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The text at an offset of the string table.
    pub(crate) fn text(&self, offset: u32) -> Option<&'d [u8]> {
        let rest = self.strings.get(usize::try_from(offset).ok()?..).filter(|_| offset >= 4)?;
        let rest = within_longest_name(rest);
        // The last one's NUL may be missing; BFD adds one.
        rest.get(..memchr::memchr(0, rest).unwrap_or(rest.len()))
    }

    fn name(&self, entry: &'d pe::ImageSymbol) -> Option<&'d [u8]> {
        match entry.name {
            [0, 0, 0, 0, a, b, c, d] => self.text(u32::from_le_bytes([a, b, c, d])),
            _ => entry.name.split(|byte| *byte == 0).next(),
        }
    }
}

/// Every symbol that may name code.
pub(crate) fn symbols<'e, 'd>(pe: &'e Pe<'d>) -> impl Iterator<Item = Symbol<'d>> + use<'e, 'd> {
    let mut auxiliary = 0_u8;
    let entries = pe.symbols.entries.chunks_exact(pe::IMAGE_SIZEOF_SYMBOL);
    entries.filter_map(move |bytes| {
        if let Some(left) = auxiliary.checked_sub(1) {
            auxiliary = left;
            return None;
        }
        let (entry, _) = object::pod::from_bytes::<pe::ImageSymbol>(bytes).ok()?;
        auxiliary = entry.number_of_aux_symbols;
        symbol(pe, entry)
    })
}

fn symbol<'d>(pe: &Pe<'d>, entry: &'d pe::ImageSymbol) -> Option<Symbol<'d>> {
    // Section numbers start at 1; undefined, absolute and debugging symbols have 0 and below.
    let number = usize::from(entry.section_number.get(LE)).checked_sub(1)?;
    let section = pe.sections.get(number).filter(|section| section.is_executable)?;
    let is_function = entry.typ.get(LE).derived_type() == pe::IMAGE_SYM_DTYPE_FUNCTION;
    let binding_rank = match entry.storage_class {
        pe::IMAGE_SYM_CLASS_EXTERNAL | pe::IMAGE_SYM_CLASS_EXTERNAL_DEF => 0,
        pe::IMAGE_SYM_CLASS_WEAK_EXTERNAL => 1,
        pe::IMAGE_SYM_CLASS_STATIC | pe::IMAGE_SYM_CLASS_LABEL => 2,
        _ => return None,
    };
    let name = pe.symbols.name(entry).filter(|name| !name.is_empty())?;
    // Sections have symbols too, static and without a type: `.text`, `.text.unlikely`, `.text$main`.
    if binding_rank == 2 && !is_function && name.starts_with(b".") {
        return None;
    }
    let value = entry.value.get(LE);
    if value >= section.size {
        return None;
    }
    Some(Symbol {
        name,
        svma: pe.image_base.checked_add(u64::from(section.rva))?.checked_add(u64::from(value))?,
        size: 0,
        type_rank: if is_function { 0 } else { 2 },
        binding_rank,
        is_compressed: false,
        is_descriptor: false,
        table: SymbolTable::Symtab,
    })
}
