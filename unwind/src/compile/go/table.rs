//! The parts of Go's table of functions that tell distances of the stack pointer. Numbers have the byte order of the processor.

use core::ops::Range;

use crate::arch::Arch;

/// Go 1.16 and 1.17; 1.18 and 1.19; 1.20 and later. (`internal/abi`, `PCLnTabMagic`)
pub(super) const MAGIC_116: u32 = 0xffff_fffa;
const MAGIC_118: u32 = 0xffff_fff0;
pub(super) const MAGIC_120: u32 = 0xffff_fff1;
/// The names that are looked for are shorter.
pub(super) const LONGEST_NAME: usize = 64;
/// Offsets in a function's record, counted from where its entry ends.
mod at {
    /// `pcsp`, behind `nameOff`, `args`, `deferreturn`.
    pub(super) const PCSP: usize = 12;
    /// `cuOffset`, behind `pcfile`, `pcln`, `npcdata`.
    pub(super) const UNIT: usize = 28;
}

/// A table whose header is sound.
pub(in super::super) struct Table<'t> {
    bytes: &'t [u8],
    order: Order,
    magic: u32,
    /// Bytes of the smallest instruction, which distances of addresses are counted in.
    quantum: u64,
    /// Bytes of an address.
    word: usize,
    functions: usize,
    /// What entries are counted from.
    text: u64,
    /// The table itself says so.
    is_placed: bool,
    /// Where the parts begin: names, tables of distances, and the index with the records behind it.
    names: usize,
    pc_tables: usize,
    index: usize,
}

/// One function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Function {
    /// Stated address.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Of its record, in the section.
    pub(super) offset: u64,
    /// `abi.FuncFlag`
    pub(super) flags: u8,
    pcsp: u32,
    /// Where its name is, from the beginning of names.
    name: u32,
}

impl Function {
    /// Whether the table tells how far the stack pointer has moved in it.
    pub(super) fn has_distances(&self) -> bool {
        self.pcsp != 0
    }
}

/// The byte order of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn of(arch: Arch) -> Self {
        if arch.is_big_endian() { Self::Big } else { Self::Little }
    }

    fn u32_at(self, bytes: &[u8], at: usize) -> Option<u32> {
        let number = *bytes.get(at..)?.first_chunk::<4>()?;
        Some(if self == Self::Big { u32::from_be_bytes(number) } else { u32::from_le_bytes(number) })
    }

    /// The number of 4 or 8 bytes. No processor of eight is read in the other order.
    fn word_at(self, bytes: &[u8], at: usize, size: usize) -> Option<u64> {
        match size {
            8 => Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk::<8>()?)),
            _ => self.u32_at(bytes, at).map(u64::from),
        }
    }
}

/// Bytes of the smallest instruction, and of an address. Programs for RISC-V count in fours or, with compressed instructions, in twos.
fn units(arch: Arch) -> (&'static [u8], usize) {
    match arch {
        Arch::I686 => (&[1], 4),
        Arch::X86_64 => (&[1], 8),
        Arch::Riscv64 => (&[4, 2], 8),
        Arch::Arm | Arch::Mips32 | Arch::Mips32Little => (&[4], 4),
        Arch::Aarch64 => (&[4], 8),
    }
}

impl<'t> Table<'t> {
    /// Reads the header. `text` is where code may begin, for tables that leave it to the loader to say so, or have no place of code (`is_code`): in
    /// files for macOS the word may be a fixup of the loader's.
    pub(super) fn open(bytes: &'t [u8], arch: Arch, text: Option<u64>, is_code: impl Fn(u64) -> bool) -> Option<Self> {
        let order = Order::of(arch);
        let magic = order.u32_at(bytes, 0)?;
        let (quantum, word) = (*bytes.get(6)?, usize::from(*bytes.get(7)?));
        let (quanta, address) = units(arch);
        if !matches!(magic, MAGIC_116 | MAGIC_118 | MAGIC_120) || !quanta.contains(&quantum) || word != address {
            return None;
        }
        let field = |number: usize| order.word_at(bytes, 8 + number * word, word);
        let offset = |number: usize| usize::try_from(field(number)?).ok().filter(|at| *at < bytes.len());
        // Behind the numbers of functions and files: where code begins, then names, units, files, tables of distances, index.
        let counts_from_text = magic != MAGIC_116;
        let first = if counts_from_text { 3 } else { 2 };
        let stated = Some(field(2)?).filter(|stated| counts_from_text && is_code(*stated));
        let is_placed = stated.is_some() || !counts_from_text;
        let text = if is_placed { stated.unwrap_or(0) } else { text? };
        Some(Self {
            bytes,
            order,
            magic,
            quantum: u64::from(quantum),
            word,
            functions: usize::try_from(field(0)?).ok()?,
            text,
            is_placed,
            names: offset(first)?,
            pc_tables: offset(first + 3)?,
            index: offset(first + 4)?,
        })
    }

    /// Whether the table itself says where code begins.
    pub(super) fn is_placed(&self) -> bool {
        self.is_placed
    }

    /// Whether code for amd64 keeps the goroutine in a register. Go 1.17 began with that, and with flags of functions, of which every program
    /// has some; the table of 1.16, of the same form, has padding there.
    pub(super) fn has_goroutine_register(&self) -> bool {
        self.magic != MAGIC_116 || self.functions().any(|function| function.flags != 0)
    }

    /// Moves all functions by so many bytes.
    pub(super) fn moved(self, by: u64) -> Option<Self> {
        Some(Self { text: self.text.checked_add(by)?, ..self })
    }

    /// Bytes of a number in the index, and of the entry in a record.
    fn entry_bytes(&self) -> usize {
        if self.magic == MAGIC_116 { self.word } else { 4 }
    }

    fn number(&self, at: usize) -> Option<u64> {
        self.order.word_at(self.bytes, at, self.entry_bytes())
    }

    /// A place in the index: the address of a function, and behind it where its record is, or for the last one where code ends.
    fn indexed(&self, number: usize) -> Option<usize> {
        self.index.checked_add(number.checked_mul(2 * self.entry_bytes())?)
    }

    /// The functions in the order of the index. Ends early where it is damaged.
    pub(super) fn functions(&self) -> impl Iterator<Item = Function> + '_ {
        (0..self.functions).map_while(|number| self.function(number))
    }

    /// Once, as it is asked for in many places and the archive for C programs is to be small.
    #[inline(never)]
    fn function(&self, number: usize) -> Option<Function> {
        let at = self.indexed(number)?;
        let start = self.number(at)?;
        let record = self.number(at.checked_add(self.entry_bytes())?)?;
        let end = self.number(self.indexed(number.checked_add(1)?)?)?;
        let record = self.index.checked_add(usize::try_from(record).ok()?)?;
        let fields = record.checked_add(self.entry_bytes())?;
        // From 1.20 on the line of the function comes before them.
        let flags = at::UNIT + 4 + if self.magic == MAGIC_120 { 4 } else { 0 } + 1;
        Some(Function {
            start: self.text.checked_add(start)?,
            end: self.text.checked_add(end)?,
            offset: record as u64,
            flags: *self.bytes.get(fields.checked_add(flags)?)?,
            pcsp: self.order.u32_at(self.bytes, fields.checked_add(at::PCSP)?)?,
            name: self.order.u32_at(self.bytes, fields)?,
        })
    }

    /// The name of a function, with its package.
    pub(super) fn name(&self, function: &Function) -> Option<&'t [u8]> {
        let start = self.names.checked_add(usize::try_from(function.name).ok()?)?;
        let rest = self.bytes.get(start..)?;
        let rest = rest.get(..LONGEST_NAME).unwrap_or(rest);
        rest.get(..rest.iter().position(|byte| *byte == 0)?)
    }

    /// Which addresses, and how far the stack pointer has moved there, in bytes; `None` once, at the end, where that cannot be read. Behind the
    /// last of them lies padding, up to the next function.
    pub(super) fn distances(&self, function: &Function) -> impl Iterator<Item = Option<(Range<u64>, i64)>> + '_ {
        let at = usize::try_from(function.pcsp).ok().and_then(|pcsp| self.pc_tables.checked_add(pcsp));
        // A function of which nothing is told has none.
        let mut rest = at.filter(|_| function.pcsp != 0).and_then(|at| self.bytes.get(at..));
        let (mut address, end, quantum) = (function.start, function.end, self.quantum);
        let mut value = -1i64;
        let mut is_first = true;
        core::iter::from_fn(move || {
            if address >= end {
                return None;
            }
            let mut bytes = rest.unwrap_or_default();
            let change = varint(&mut bytes);
            if change == Some(0) && !is_first {
                address = end;
                return None;
            }
            let length = varint(&mut bytes).and_then(|length| u64::from(length).checked_mul(quantum));
            let (Some(change), Some(length)) = (change, length.filter(|length| *length > 0)) else {
                address = end;
                return Some(None);
            };
            (rest, is_first) = (Some(bytes), false);
            value += i64::from((change >> 1) as i32 ^ -((change & 1) as i32));
            let start = address;
            address = address.saturating_add(length).min(end);
            Some(Some((start..address, value)))
        })
    }
}

/// Reads a number of at most 32 bits, seven to a byte, the lowest first.
fn varint(bytes: &mut &[u8]) -> Option<u32> {
    let mut value = 0u32;
    for at in 0..5 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u32::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// A flag that is read.
    const TOP: u8 = 1;

    /// A table of two functions of this name at 0x1000 and 0x1010, which end at 0x1020.
    pub(in super::super) fn named(magic: u32, name: &str, flags: u8, arch: Arch) -> Vec<u8> {
        let counts_from_text = magic != MAGIC_116;
        let mut bytes = Vec::from(magic.to_le_bytes());
        let (quanta, word) = units(arch);
        let quantum = quanta[0];
        bytes.extend([0, 0, quantum, word as u8]);
        let header = 8 + word * if counts_from_text { 8 } else { 7 };
        // Tables of distances: one byte that stands for none, then 0 for 4 bytes, 24 for 8, 0 for 4, end.
        let distances = [0, 2, 4 / quantum, 48, 8 / quantum, 47, 4 / quantum, 0];
        let index = header + distances.len() + name.len() + 1;
        let mut fields = Vec::from([2u64, 0]);
        if counts_from_text {
            fields.push(0x1000);
        }
        fields.extend([(header + distances.len()) as u64, 0, 0, header as u64, index as u64]);
        bytes.extend(fields.iter().flat_map(|field| field.to_le_bytes().into_iter().take(word)));
        bytes.extend(distances);
        bytes.extend(name.bytes().chain([0]));
        let base = if counts_from_text { 0 } else { 0x1000 };
        let size = if counts_from_text { 4 } else { word };
        let entry = |value: u64| value.to_le_bytes().into_iter().take(size);
        let records = 5 * size as u64;
        for value in [base, records, base + 0x10, records, base + 0x20] {
            bytes.extend(entry(value));
        }
        bytes.extend(entry(base));
        // name, args, deferreturn, pcsp, pcfile, pcln, npcdata, unit
        bytes.extend([0u32, 0, 0, 1, 0, 0, 0, 0].iter().flat_map(|field| field.to_le_bytes()));
        if magic == MAGIC_120 {
            bytes.extend([9, 9, 0, 0]);
        }
        // The function's id and flags.
        bytes.extend([7, flags, 0, 0]);
        bytes
    }

    #[test]
    fn all_layouts_are_read() {
        let magics = [MAGIC_116, MAGIC_118, MAGIC_120];
        for (magic, arch) in magics.into_iter().flat_map(|magic| [(magic, Arch::X86_64), (magic, Arch::I686)]) {
            let bytes = named(magic, "main.main", TOP, arch);
            let table = Table::open(&bytes, arch, None, |svma| svma != 0).expect("a header");
            let functions: Vec<Function> = table.functions().collect();
            let found: Vec<_> =
                functions.iter().map(|function| (function.start, function.end, function.flags)).collect();
            assert_eq!(found, [(0x1000, 0x1010, TOP), (0x1010, 0x1020, TOP)], "{magic:x}");
            assert_eq!(table.name(&functions[1]), Some(&b"main.main"[..]));
            let distances: Vec<_> = table.distances(&functions[0]).collect();
            assert_eq!(
                distances,
                [Some((0x1000..0x1004, 0)), Some((0x1004..0x100c, 24)), Some((0x100c..0x1010, 0))],
                "{magic:x}"
            );
            for cut in 0..bytes.len() {
                let Some(table) = Table::open(&bytes[..cut], arch, None, |svma| svma != 0) else { continue };
                assert!(
                    table.functions().flat_map(|function| table.distances(&function).collect::<Vec<_>>()).count() < 8
                );
            }
        }
        let opens = |bytes: &[u8], arch| Table::open(bytes, arch, None, |svma| svma != 0).is_some();
        assert!(!opens(&named(0xffff_fffb, "", TOP, Arch::X86_64), Arch::X86_64));
        assert!(!opens(&named(MAGIC_120, "", TOP, Arch::X86_64), Arch::Aarch64));
        assert!(!opens(&named(MAGIC_120, "", TOP, Arch::X86_64), Arch::I686));
    }

    #[test]
    fn a_word_that_is_no_place_of_code_leaves_it_to_the_program_where_code_begins() {
        let bytes = named(MAGIC_120, "main.main", TOP, Arch::Aarch64);
        let starts = |text, is_code: fn(u64) -> bool| {
            let table = Table::open(&bytes, Arch::Aarch64, text, is_code)?;
            Some((table.is_placed(), table.functions().next()?.start))
        };
        assert_eq!(starts(Some(0x4000), |_| true), Some((true, 0x1000)));
        assert_eq!(starts(Some(0x4000), |_| false), Some((false, 0x4000)));
        assert_eq!(starts(None, |_| false), None);
    }
}
