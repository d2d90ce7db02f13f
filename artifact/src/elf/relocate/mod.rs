//! Relocations of a relocatable object's debug sections, applied as the linker would.

mod problem;
mod rules;

use super::gabi;
use super::headers::{Elf, Section};
use crate::proportion::in_proportion;
use rules::{Rule, rule};

pub use problem::RelocationProblem;
pub(super) use problem::problem;

/// The types of a relocation of 64-bit MIPS, the first one lowest. Several at once, which code has, are no type that a rule is known for.
const MIPS_TYPES: u32 = 0xff_ffff;

/// Whether anything is to be done to the section with that number.
pub(super) fn concerns(elf: &Elf<'_>, number: usize) -> bool {
    elf.kind == crate::ObjectKind::Relocatable && tables(elf, number).next().is_some()
}

/// The tables of a file by the section that each is for, where many sections are asked about.
pub(super) struct Tables<'e, 'd>(Vec<(usize, &'e Section<'d>)>);

impl<'e, 'd> Tables<'e, 'd> {
    pub(super) fn of(elf: &'e Elf<'d>) -> Self {
        let is_table = |section: &&Section<'d>| matches!(section.kind, gabi::SHT_REL | gabi::SHT_RELA);
        let stored = elf.sections.iter().filter(is_table).filter(|section| section.is_stored());
        let mut tables: Vec<_> = stored.map(|section| (section.info as usize, section)).collect();
        tables.sort_by_key(|(target, _)| *target);
        Self(tables)
    }

    /// Those of the section with that number, in the order of their headers.
    pub(super) fn for_section(&self, number: usize) -> &[(usize, &'e Section<'d>)] {
        let first = self.0.partition_point(|(target, _)| *target < number);
        let rest = self.0.get(first..).unwrap_or_default();
        rest.get(..rest.partition_point(|(target, _)| *target == number)).unwrap_or_default()
    }
}

fn tables<'e, 'd>(elf: &'e Elf<'d>, number: usize) -> impl Iterator<Item = &'e Section<'d>> {
    let is_table = |section: &&Section<'d>| matches!(section.kind, gabi::SHT_REL | gabi::SHT_RELA);
    let tables = elf.sections.iter().filter(is_table);
    let tables = tables.filter(move |section| section.info as usize == number && section.is_stored());
    in_proportion(elf.file_bytes(), tables, |table| table.bytes.len())
}

/// Applies the relocations of the section with that number to its bytes. Those that lie outside, or whose kind is not
/// known, leave the bytes as they are.
pub(super) fn apply(elf: &Elf<'_>, number: usize, bytes: &mut [u8]) {
    apply_tables(elf, number, tables(elf, number), bytes);
}

/// The same by these tables.
pub(super) fn apply_tables<'e, 'd: 'e>(
    elf: &Elf<'d>,
    number: usize,
    tables: impl Iterator<Item = &'e Section<'d>>,
    bytes: &mut [u8],
) {
    let own = elf.sections.get(number).map_or(0, |section| section.addr);
    let is_range_list = elf.sections.get(number).is_some_and(|section| section.name == b".debug_ranges");
    let mut zeros = Vec::new();
    for table in tables {
        let Some(symbols) = elf.sections.get(table.link as usize) else { continue };
        let extended = super::symbols::extended_indexes(elf, table.link);
        let has_addends = table.kind == gabi::SHT_RELA;
        let word = if elf.is_64 { 8 } else { 4 };
        for entry in table.bytes.chunks_exact(if has_addends { 3 * word } else { 2 * word }) {
            let fields = elf.fields(entry);
            let (Some(offset), Some(info)) = (fields.word(0, elf.is_64), fields.word(word, elf.is_64)) else {
                continue;
            };
            let (symbol, kind) = symbol_and_type(elf, info);
            let Some(rule) = rule(elf.machine, kind) else { continue };
            let addend = has_addends.then(|| fields.addend(2 * word, elf.is_64)).flatten();
            let address = address(elf, symbols, extended, symbol);
            let place = own.wrapping_add(offset);
            let Ok(at) = usize::try_from(offset) else { continue };
            let _ = bytes.get_mut(at..).and_then(|bytes| change(elf, bytes, rule, address, addend, place));
            let result = bytes.get(at..).and_then(|bytes| bytes.get(..word));
            if is_range_list && result.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0)) {
                zeros.push(at);
            }
        }
    }
    move_empty_ranges(elf, bytes, zeros);
}

/// The number of the symbol and the type of a relocation. (gABI chapter 4, "Relocation")
fn symbol_and_type(elf: &Elf<'_>, info: u64) -> (u64, u32) {
    // Each part fits its type after the shift and the mask.
    match elf.machine {
        _ if !elf.is_64 => (info >> 8, (info & 0xff) as u32),
        gabi::EM_MIPS if elf.is_little_endian => {
            // A word of 32 bits and four bytes, in this order in files of either byte order: the symbol, a special symbol, the third, second
            // and first type. (64-bit ELF Object File Specification of MIPS, 2.9)
            (info & 0xffff_ffff, ((info >> 32) as u32).swap_bytes() & MIPS_TYPES)
        }
        gabi::EM_MIPS => (info >> 32, info as u32 & MIPS_TYPES),
        // The upper 24 bits of the type are data. (SPARC Compliance Definition 2.4.1, chapter 4, R_SPARC_OLO10)
        gabi::EM_SPARCV9 => (info >> 32, (info & 0xff) as u32),
        _ => (info >> 32, (info & 0xffff_ffff) as u32),
    }
}

/// Before DWARF 5 two zeros end a list of ranges (DWARF 4, 2.17.3), and so would an empty range at the start of a section
/// that is placed at 0. As both of its words have relocations it is none; it becomes an empty range elsewhere.
fn move_empty_ranges(elf: &Elf<'_>, bytes: &mut [u8], mut zeros: Vec<usize>) {
    let word = if elf.is_64 { 8 } else { 4 };
    zeros.sort_unstable();
    let pairs: Vec<usize> = zeros
        .windows(2)
        .filter_map(|pair| match pair {
            [first, second] if first % (2 * word) == 0 && second - first == word => Some(*first),
            _ => None,
        })
        .collect();
    for at in pairs.into_iter().flat_map(|first| [first, first.saturating_add(word)]) {
        if let Some(bytes) = bytes.get_mut(at..).and_then(|bytes| bytes.get_mut(..word)) {
            write(bytes, 1, elf.is_little_endian);
        }
    }
}

/// The address of a symbol; none for one that is defined elsewhere.
fn address(elf: &Elf<'_>, symbols: &Section<'_>, extended: &[u8], number: u64) -> Option<u64> {
    if number == 0 {
        return Some(0);
    }
    let number = usize::try_from(number).ok()?;
    let size = if elf.is_64 { 24 } else { 16 };
    let start = number.checked_mul(size)?;
    let entry = elf.fields(symbols.bytes.get(start..start.checked_add(size)?)?);
    let value = if elf.is_64 { entry.u64(8)? } else { entry.u32(4)?.into() };
    let section = entry.u16(if elf.is_64 { 6 } else { 14 })?;
    super::symbols::section_address(elf, section, extended, number).map(|base| base.wrapping_add(value))
}

fn change(
    elf: &Elf<'_>,
    bytes: &mut [u8],
    rule: Rule,
    address: Option<u64>,
    addend: Option<i64>,
    place: u64,
) -> Option<()> {
    let width = match rule {
        Rule::Nothing => return Some(()),
        Rule::Absolute(width) | Rule::Relative(width) | Rule::Add(width) | Rule::Subtract(width) => width,
        Rule::Set6 | Rule::Add6 | Rule::Subtract6 => 1,
        Rule::SetLeb | Rule::AddLeb | Rule::SubtractLeb => {
            let length = bytes.iter().position(|byte| *byte < 0x80)?.checked_add(1)?;
            return change_leb(bytes.get_mut(..length)?, rule, address?.wrapping_add_signed(addend.unwrap_or(0)));
        }
        Rule::Relative31 => 4,
    };
    let bytes = bytes.get_mut(..usize::from(width))?;
    let there = number(bytes, elf.is_little_endian);
    let mask = u64::MAX >> (64 - 8 * u32::from(width));
    // Without a field of its own the addend stands where the result goes, in all its bits.
    let addend = addend
        .unwrap_or_else(|| sign_extended(there, if rule == Rule::Relative31 { 31 } else { 8 * u32::from(width) }));
    let Some(address) = address else {
        // Code that is elsewhere: what linkers write for code that they dropped.
        write(bytes, mask, elf.is_little_endian);
        return Some(());
    };
    let value = address.wrapping_add_signed(addend);
    let result = match rule {
        Rule::Relative(_) => value.wrapping_sub(place),
        Rule::Add(_) => there.wrapping_add(value),
        Rule::Subtract(_) => there.wrapping_sub(value),
        Rule::Set6 => (there & 0xc0) | (value & 0x3f),
        Rule::Add6 => (there & 0xc0) | (there.wrapping_add(value) & 0x3f),
        Rule::Subtract6 => (there & 0xc0) | ((there & 0x3f).wrapping_sub(value) & 0x3f),
        Rule::Relative31 => (there & 0x8000_0000) | (value.wrapping_sub(place) & 0x7fff_ffff),
        _ => value,
    };
    write(bytes, result & mask, elf.is_little_endian);
    Some(())
}

/// Keeps the number of bytes.
fn change_leb(bytes: &mut [u8], rule: Rule, value: u64) -> Option<()> {
    let there = bytes.iter().rev().fold(0_u64, |number, byte| (number << 7) | u64::from(byte & 0x7f));
    let mut rest = match rule {
        Rule::AddLeb => there.wrapping_add(value),
        Rule::SubtractLeb => there.wrapping_sub(value),
        _ => value,
    };
    for byte in bytes {
        *byte = (*byte & 0x80) | (rest & 0x7f) as u8;
        rest >>= 7;
    }
    Some(())
}

fn number(bytes: &[u8], is_little_endian: bool) -> u64 {
    let next = |number: u64, byte: &u8| (number << 8) | u64::from(*byte);
    if is_little_endian { bytes.iter().rev().fold(0, next) } else { bytes.iter().fold(0, next) }
}

fn write(bytes: &mut [u8], number: u64, is_little_endian: bool) {
    let shifts = (0..bytes.len() as u32).map(|at| 8 * at);
    let put = |(byte, shift): (&mut u8, u32)| *byte = (number >> shift) as u8;
    if is_little_endian {
        bytes.iter_mut().zip(shifts).for_each(put)
    } else {
        bytes.iter_mut().rev().zip(shifts).for_each(put)
    }
}

/// The lower `bits`, of which the highest is the sign.
fn sign_extended(number: u64, bits: u32) -> i64 {
    let unused = 64_u32.saturating_sub(bits);
    (number << unused).cast_signed() >> unused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_byte_order_and_length() {
        let mut bytes = [1, 2, 3, 4];
        assert_eq!((number(&bytes, true), number(&bytes, false)), (0x0403_0201, 0x0102_0304));
        write(&mut bytes, 0xaabb_ccdd, false);
        assert_eq!(bytes, [0xaa, 0xbb, 0xcc, 0xdd]);
        write(&mut bytes, 0xaabb_ccdd, true);
        assert_eq!(bytes, [0xdd, 0xcc, 0xbb, 0xaa]);
        assert_eq!(
            (sign_extended(0xfffe, 16), sign_extended(0x7ffe, 16), sign_extended(u64::MAX, 64)),
            (-2, 0x7ffe, -1)
        );
    }

    #[test]
    fn variable_length_numbers_keep_their_length() {
        let mut bytes = [0x80, 0x80, 0x00];
        change_leb(&mut bytes, Rule::SetLeb, 300);
        assert_eq!(bytes, [0xac, 0x82, 0x00]);
        change_leb(&mut bytes, Rule::SubtractLeb, 299);
        assert_eq!(bytes, [0x81, 0x80, 0x00]);
        change_leb(&mut bytes, Rule::AddLeb, 0x1_ffff);
        assert_eq!(bytes, [0x80, 0x80, 0x08]);
        // Beyond its length a number wraps around.
        change_leb(&mut bytes, Rule::AddLeb, 0x1f_ffff);
        assert_eq!(bytes, [0xff, 0xff, 0x07]);
    }
}
