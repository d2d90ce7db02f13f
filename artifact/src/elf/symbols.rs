//! Symbols that name code, from `.symtab` and `.dynsym`.

use super::descriptors::is_of_descriptors;
use super::headers::{Elf, Section, name_at};
use super::{dynamic, gabi};
use crate::ObjectKind;
use crate::fields::Fields;
use crate::symbols::{Symbol, SymbolTable};

/// The rank of a symbol of data, which comes last. Compilers that put tables before their functions give both that type (GHC), others all that they
/// define (Zig): in a section of instructions it names code, if it says how much.
const OBJECT: u8 = 3;

/// Bytes of the symbol tables and of their names.
pub(crate) fn symbol_bytes(elf: &Elf<'_>) -> u64 {
    let (symbols, names) = dynamic::symbols(elf);
    let dynamic_bytes = (symbols.len() as u64).saturating_add(names.len() as u64);
    let tables = elf.sections.iter().filter(|section| matches!(section.kind, gabi::SHT_SYMTAB | gabi::SHT_DYNSYM));
    tables
        .map(|table| {
            let names = elf.sections.get(table.link as usize).map_or(0, |names| names.bytes.len());
            (table.bytes.len() as u64).saturating_add(names as u64)
        })
        .fold(dynamic_bytes, u64::saturating_add)
}

/// Every symbol of the table that may name code. Damaged tables give fewer.
pub(crate) fn symbols<'e, 'd>(elf: &'e Elf<'d>, table: SymbolTable) -> impl Iterator<Item = Symbol<'d>> + use<'e, 'd> {
    let kind = match table {
        SymbolTable::Symtab => Some(gabi::SHT_SYMTAB),
        SymbolTable::Dynsym => Some(gabi::SHT_DYNSYM),
        _ => None,
    };
    let section = elf.sections.iter().find(|section| Some(section.kind) == kind && section.is_stored());
    let names =
        section.and_then(|section| elf.sections.get(section.link as usize)).map_or(&[][..], |names| names.bytes);
    let bytes = section.map_or(&[][..], |section| section.bytes);
    let (bytes, names) = match table {
        SymbolTable::Dynsym if section.is_none() => dynamic::symbols(elf),
        _ => (bytes, names),
    };
    let entry = if elf.is_64 { 24 } else { 16 };
    let entries = bytes.chunks_exact(entry);
    let number = section.and_then(|section| elf.sections.iter().position(|other| std::ptr::eq(section, other)));
    let extended =
        number.and_then(|number| u32::try_from(number).ok()).map_or(&[][..], |number| extended_indexes(elf, number));
    let entries = entries.enumerate();
    entries.filter_map(move |(number, entry)| symbol(elf, entry, number, extended, names, table))
}

/// Section numbers beyond 16 bits of the symbols of the table that is that section.
pub(super) fn extended_indexes<'d>(elf: &Elf<'d>, table: u32) -> &'d [u8] {
    let mut sections = elf.sections.iter();
    let found = sections.find(|section| section.kind == gabi::SHT_SYMTAB_SHNDX && section.link == table);
    found.map_or(&[][..], |section| section.bytes)
}

/// What a symbol's value counts from in a relocatable object: its section's address, 0 for an absolute one. None for a
/// symbol that is defined elsewhere.
pub(super) fn section_address(elf: &Elf<'_>, section: u16, extended: &[u8], number: usize) -> Option<u64> {
    match section {
        gabi::SHN_UNDEF => None,
        gabi::SHN_ABS | gabi::SHN_COMMON => Some(0),
        section => section_of(elf, section, extended, number).map(|section| section.addr),
    }
}

/// The section that the symbol of that number lies in.
fn section_of<'e, 'd>(elf: &'e Elf<'d>, section: u16, extended: &[u8], number: usize) -> Option<&'e Section<'d>> {
    let section = match section {
        gabi::SHN_XINDEX => {
            let fields = Fields { bytes: extended, is_little_endian: elf.is_little_endian };
            fields.u32(number.checked_mul(4)?)?
        }
        section => section.into(),
    };
    elf.sections.get(section as usize)
}

fn symbol<'d>(
    elf: &Elf<'d>,
    entry: &'d [u8],
    number: usize,
    extended: &[u8],
    names: &'d [u8],
    table: SymbolTable,
) -> Option<Symbol<'d>> {
    let fields = elf.fields(entry);
    let (info_at, section_at) = if elf.is_64 { (4, 6) } else { (12, 14) };
    let (value, size) =
        if elf.is_64 { (fields.u64(8)?, fields.u64(16)?) } else { (fields.u32(4)?.into(), fields.u32(8)?.into()) };
    let info = *entry.get(info_at)?;
    let type_rank = match info & 0xf {
        gabi::STT_FUNC => 0,
        gabi::STT_GNU_IFUNC => 1,
        gabi::STT_NOTYPE => 2,
        gabi::STT_OBJECT if size > 0 => OBJECT,
        _ => return None,
    };
    let section = fields.u16(section_at)?;
    if section == gabi::SHN_UNDEF || section == gabi::SHN_ABS || section == gabi::SHN_COMMON {
        return None;
    }
    if type_rank == OBJECT && !section_of(elf, section, extended, number).is_some_and(Section::is_executable) {
        return None;
    }
    let name = name_at(names, fields.u32(0)?);
    let name = if info >> 4 == gabi::STB_LOCAL { name } else { unversioned(name) };
    if name.is_empty() || is_no_function(elf, name, type_rank) {
        return None;
    }
    let value = match elf.kind {
        ObjectKind::Relocatable => section_address(elf, section, extended, number)?.checked_add(value)?,
        _ => value,
    };
    let is_compressed = type_rank == 0 && value & 1 == 1 && tells_instruction_set(elf);
    let svma = value & !u64::from(is_compressed);
    let is_descriptor = elf.machine == gabi::EM_PPC64
        && section_of(elf, section, extended, number).is_some_and(|section| is_of_descriptors(elf, section));
    let binding_rank = match info >> 4 {
        gabi::STB_GLOBAL | gabi::STB_GNU_UNIQUE => 0,
        gabi::STB_WEAK => 1,
        _ => 2,
    };
    Some(Symbol { name, svma, size, type_rank, binding_rank, is_compressed, is_descriptor, table })
}

/// Whether bit 0 of addresses of code tells the instruction set: Thumb of ARM (ELF for the Arm Architecture, 5.5.3), microMIPS and MIPS16
/// where the header says that the file has some. Linkers take the mark of these two off the symbols themselves (`st_other`).
pub(super) fn tells_instruction_set(elf: &Elf<'_>) -> bool {
    match elf.machine {
        gabi::EM_ARM => true,
        gabi::EM_MIPS => elf.flags & (gabi::EF_MIPS_MICROMIPS | gabi::EF_MIPS_ARCH_ASE_M16) != 0,
        _ => false,
    }
}

/// `memcpy@@GLIBC_2.14` and `memcpy@GLIBC_2.2.5` are both `memcpy`. Only what others may link with has a version; Zig writes whole expressions behind the
/// character.
fn unversioned(name: &[u8]) -> &[u8] {
    let Some((bare, behind)) = memchr::memchr(b'@', name).and_then(|at| name.split_at_checked(at)) else { return name };
    let version = behind.strip_prefix(b"@@").or(behind.strip_prefix(b"@")).unwrap_or(behind);
    let is_version = !version.is_empty()
        && version.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'+' | b'~'));
    if bare.is_empty() || !is_version { name } else { bare }
}

/// Mapping symbols (`$x`, `$d.1`; ARM and RISC-V ELF ABIs) and assembler-local labels.
fn is_no_function(elf: &Elf<'_>, name: &[u8], type_rank: u8) -> bool {
    if type_rank != 2 {
        return false;
    }
    let has_mapping_symbols =
        matches!(elf.machine, gabi::EM_ARM | gabi::EM_AARCH64 | gabi::EM_RISCV | gabi::EM_CSKY | gabi::EM_LOONGARCH);
    let is_mapping = has_mapping_symbols
        && matches!(name, [b'$', kind, rest @ ..] if kind.is_ascii_lowercase() && (rest.is_empty() || rest.starts_with(b".") || *kind == b'x'));
    let is_local = name.starts_with(b".L") || elf.machine == gabi::EM_MIPS && name.starts_with(b"$L");
    is_mapping || is_local || is_link_time_marker(name)
}

/// `FILE.c.0123abcd`, which GCC's link-time optimiser leaves untyped at the start of what it compiled. No C or C++
/// function can have dots in its name.
fn is_link_time_marker(name: &[u8]) -> bool {
    let parts = || {
        let dot = memchr::memrchr(b'.', name)?;
        Some((name.get(..dot)?, name.get(dot + 1..)?))
    };
    parts().is_some_and(|(file, hash)| {
        hash.len() == 8 && hash.iter().all(u8::is_ascii_hexdigit) && memchr::memchr(b'.', file).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_be_a_version_is_cut_off() {
        for (name, expected) in [
            ("memcpy", "memcpy"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("memcpy@GLIBC_2.2.5", "memcpy"),
            ("f@V_1-rc+2~b", "f"),
            ("@start", "@start"),
            ("f@", "f@"),
            ("f@@", "f@@"),
            ("f@a@b", "f@a@b"),
            (
                "__zig_tag_name_@typeInfo(Io.Operation).@\"union\".tag_type.?",
                "__zig_tag_name_@typeInfo(Io.Operation).@\"union\".tag_type.?",
            ),
        ] {
            assert_eq!(unversioned(name.as_bytes()), expected.as_bytes());
        }
    }
}
