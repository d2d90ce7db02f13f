//! The export table: names of what the file offers to others.

use super::Pe;
use crate::fields::{LONGEST_NAME, within_longest_name};
use crate::symbols::{Symbol, SymbolTable};
use object::read::pe::ExportTable;

/// Exported names that lie in the file; those that forward to another DLL, and those without a name, are left out.
pub(crate) fn symbols<'d>(pe: &Pe<'d>) -> impl Iterator<Item = Symbol<'d>> + use<'d> {
    let image_base = pe.image_base;
    let table = pe.exports.and_then(|directory| {
        // Names and tables may stand behind the directory's end, in its section.
        let in_section = pe.bytes_at(directory.rva)?;
        Some((directory, in_section, ExportTable::parse(in_section, directory.rva).ok()?))
    });
    table.into_iter().flat_map(move |(directory, in_section, table)| {
        let forwarders = directory.rva..directory.rva.saturating_add(directory.size);
        table.clone().name_iter().filter_map(move |(name, index)| {
            let rva = table.address_by_index(index).ok().filter(|rva| *rva != 0 && !forwarders.contains(rva))?;
            let name = name_at(in_section.get(usize::try_from(name.checked_sub(directory.rva)?).ok()?..)?)?;
            let svma = image_base.checked_add(u64::from(rva))?;
            Some(Symbol {
                name,
                svma,
                size: 0,
                type_rank: 0,
                binding_rank: 0,
                is_compressed: false,
                is_descriptor: false,
                table: SymbolTable::Exports,
            })
        })
    })
}

/// Bytes of the table and its names.
pub(crate) fn bytes(pe: &Pe<'_>) -> u64 {
    pe.exports.and_then(|directory| pe.directory_bytes(directory)).map_or(0, |bytes| bytes.len() as u64)
}

/// A name up to its NUL, or as far as a name may reach; none for an empty one, and for one that the file ends in.
fn name_at(bytes: &[u8]) -> Option<&[u8]> {
    let bytes = within_longest_name(bytes);
    let end = memchr::memchr(0, bytes).or((bytes.len() > LONGEST_NAME).then_some(bytes.len()))?;
    bytes.get(..end).filter(|name| !name.is_empty())
}
