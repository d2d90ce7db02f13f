//! What an ELF core file says of a process: the registers of its first thread, what was mapped from which file, and the bytes in memory.
//! (gABI, chapter 5; `struct elf_prstatus` and the note NT_FILE of Linux)

use std::path::Path;

use symseal_module::Avma;
use symseal_unwind::{Arch, Memory, Registers};

const PT_LOAD: u64 = 1;
const PT_NOTE: u64 = 4;
const NT_PRSTATUS: u64 = 1;
const NT_FILE: u64 = 0x4649_4c45;

/// A core file that was read.
pub(crate) struct Core {
    arch: Arch,
    bytes: Vec<u8>,
    /// Address, offset in the file and length.
    loads: Vec<(u64, usize, usize)>,
    pub(crate) registers: Registers,
    /// Address, end, offset in the file and path of each mapping.
    pub(crate) files: Vec<(u64, u64, u64, String)>,
}

impl Core {
    pub(crate) fn read(path: &Path, arch: Arch) -> Self {
        let bytes = std::fs::read(path).expect("the core file");
        let registers = Registers::default();
        let mut core = Self { arch, bytes, loads: Vec::new(), registers, files: Vec::new() };
        let wide = arch.word_bytes() == 8;
        // Program headers: where they are, how large one is, how many.
        let (table, size, count) = if wide { (32, 54, 56) } else { (28, 42, 44) };
        let (table, size, count) = (core.word(table), core.number(size, 2), core.number(count, 2));
        for at in 0..count {
            let header = (table + at * size) as usize;
            let field = |in_wide: usize, in_narrow: usize| core.word(header + if wide { in_wide } else { in_narrow });
            let (offset, address, length) = (field(8, 4) as usize, field(16, 8), field(32, 16) as usize);
            match core.number(header, 4) {
                PT_LOAD => core.loads.push((address, offset, length)),
                PT_NOTE => core.notes(offset, offset + length),
                _ => {}
            }
        }
        core
    }

    /// The unsigned number of `size` bytes at `at`.
    fn number(&self, at: usize, size: usize) -> u64 {
        let bytes = self.bytes.get(at..at + size).expect("within the file").iter();
        let shift = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        if self.arch.is_big_endian() { bytes.fold(0, shift) } else { bytes.rev().fold(0, shift) }
    }

    fn word(&self, at: usize) -> u64 {
        self.number(at, self.arch.word_bytes().into())
    }

    fn notes(&mut self, mut at: usize, end: usize) {
        while at + 12 <= end {
            let (name, length) = (self.number(at, 4) as usize, self.number(at + 4, 4) as usize);
            let content = at + 12 + name.next_multiple_of(4);
            match self.number(at + 8, 4) {
                NT_PRSTATUS if self.registers.sp == 0 => self.status(content),
                NT_FILE => self.mapped(content),
                _ => {}
            }
            at = content + length.next_multiple_of(4);
        }
    }

    fn status(&mut self, at: usize) {
        // Where `pr_reg` begins, and the place in it of each general register by DWARF number and of the program counter.
        let (from, general, pc): (usize, Vec<usize>, usize) = match self.arch {
            Arch::X86_64 => (112, vec![10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0], 16),
            Arch::Aarch64 => (112, (0..32).collect(), 32),
            Arch::I686 => (72, vec![6, 1, 2, 0, 15, 5, 3, 4], 12),
            Arch::Arm => (72, (0..16).collect(), 15),
            _ => (72, (6..38).collect(), 40),
        };
        let saved = |place: usize| self.word(at + from + place * usize::from(self.arch.word_bytes()));
        let of = |number: u8| general.get(usize::from(number)).map_or(0, |place| saved(*place));
        self.registers = Registers {
            pc: saved(pc),
            sp: of(self.arch.stack_pointer()),
            fp: of(self.arch.frame_pointer()),
            general: std::array::from_fn(|number| general.get(number).map(|place| saved(*place))),
        };
    }

    fn mapped(&mut self, at: usize) {
        let word = usize::from(self.arch.word_bytes());
        let (count, page) = (self.word(at) as usize, self.word(at + word));
        let mut name = at + (2 + 3 * count) * word;
        for entry in 0..count {
            let field = |number: usize| self.word(at + (2 + 3 * entry + number) * word);
            let (start, end, offset) = (field(0), field(1), field(2) * page);
            let rest = self.bytes.get(name..).expect("within the file");
            let text = rest.split(|byte| *byte == 0).next().unwrap_or_default();
            let path = String::from_utf8_lossy(text).into_owned();
            name += text.len() + 1;
            self.files.push((start, end, offset, path));
        }
    }

    /// The bits above those of every mapped address.
    pub(crate) fn signature_mask(&self) -> u64 {
        let highest = self.loads.iter().map(|(start, _, length)| start + *length as u64).max().unwrap_or(u64::MAX);
        !(u64::MAX >> highest.leading_zeros())
    }

    /// The bytes from `address` on, in one segment.
    pub(crate) fn at(&self, address: u64) -> Option<&[u8]> {
        self.loads.iter().find_map(|(start, offset, length)| {
            let from = usize::try_from(address.checked_sub(*start)?).ok().filter(|from| from < length)?;
            self.bytes.get(offset + from..offset + length)
        })
    }
}

impl Memory for Core {
    fn read_u64(&self, address: Avma) -> Option<u64> {
        self.at(address.0)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn read_u32(&self, address: Avma) -> Option<u32> {
        self.at(address.0)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn same_stack(&self, a: Avma, b: Avma) -> bool {
        // One on the program's data is an alternate stack.
        let segment = |address: Avma| {
            let holds = |(start, _, length): &&(u64, usize, usize)| address.0.wrapping_sub(*start) < *length as u64;
            self.loads.iter().find(holds).map(|(start, ..)| *start)
        };
        segment(a).is_some() && segment(a) == segment(b)
    }
}
