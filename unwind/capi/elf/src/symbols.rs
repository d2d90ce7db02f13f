//! The symbols of an ELF file, sorted by address.

use alloc::vec::Vec;

use symseal_unwind::Arch;

use crate::{ElfError, is_mips};

/// The two layouts of a symbol, in either byte order. (gABI, chapter 4)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Form {
    /// Elf64_Sym, not Elf32_Sym.
    is_64: bool,
    is_big_endian: bool,
    /// Bit 0 of an address stands for MIPS16 or microMIPS, or for Thumb. (MIPS ABI supplement; ELF for the Arm Architecture)
    marks_short_code: bool,
    /// Short instructions are followed like others.
    follows_short_code: bool,
}

impl Form {
    pub(crate) fn of(arch: Arch) -> Self {
        let is_64 = arch.word_bytes() == 8;
        let is_arm = arch == Arch::Arm;
        Self {
            is_64,
            is_big_endian: arch.is_big_endian(),
            marks_short_code: is_mips(arch) || is_arm,
            follows_short_code: is_arm,
        }
    }

    /// Bytes of a symbol.
    fn size(self) -> usize {
        if self.is_64 { 24 } else { 16 }
    }

    fn number(self, bytes: &[u8]) -> u64 {
        let shift = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        if self.is_big_endian { bytes.iter().fold(0, shift) } else { bytes.iter().rev().fold(0, shift) }
    }
}
/// Longer names are cut: what bounds the search for their end.
const LONGEST_NAME: usize = 1 << 14;
/// How many functions further down one is looked for that the address still lies in.
const NESTED: usize = 8;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
const STB_GLOBAL: u8 = 1;

/// A symbol table as it lies in the file.
#[derive(Debug, Clone, Copy, Default)]
pub struct SymbolBytes<'a> {
    pub(crate) symbols: &'a [u8],
    pub(crate) strings: &'a [u8],
    pub(crate) form: Form,
    /// `.symtab`, not `.dynsym`.
    pub(crate) is_full: bool,
}

impl<'a> SymbolBytes<'a> {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        // The first symbol is none.
        self.symbols.len() <= self.form.size()
    }

    fn functions(&self) -> impl Iterator<Item = Function> + '_ {
        self.symbols.chunks_exact(self.form.size()).filter_map(|symbol| read(symbol, self.form))
    }

    /// Where its functions begin, those of short instructions aside; on ARM those too, with bit 0 set.
    pub(crate) fn starts(&self) -> Result<Vec<u64>, ElfError> {
        let mut starts = Vec::new();
        starts.try_reserve_exact(self.functions().count()).map_err(|_| ElfError::OutOfMemory)?;
        let followed = self.functions().filter(|function| !function.is_short || self.form.follows_short_code);
        starts.extend(followed.map(|function| function.start | u64::from(function.is_short)));
        Ok(starts)
    }

    /// The text at `at`, without its end; empty where there is none.
    fn text(&self, at: u32) -> &'a [u8] {
        let rest = usize::try_from(at).ok().and_then(|at| self.strings.get(at..)).unwrap_or_default();
        let rest = rest.get(..LONGEST_NAME).unwrap_or(rest);
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        rest.get(..end).unwrap_or_default()
    }
}

/// One function.
#[derive(Debug, Clone, Copy)]
struct Function {
    start: u64,
    /// 0 where the file does not say.
    size: u64,
    name: u32,
    rank: u8,
    /// Of MIPS16, microMIPS or Thumb.
    is_short: bool,
}

/// What is known of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SymbolHit<'a> {
    /// The raw name.
    pub name: &'a [u8],
    /// Stated address of the function.
    pub start: u64,
    /// The file does not say where the function ends.
    pub approximate: bool,
    /// Of `.symtab`, not `.dynsym`.
    pub is_full: bool,
}

/// The functions of a file, by address.
#[derive(Debug)]
pub struct Functions<'a> {
    bytes: SymbolBytes<'a>,
    sorted: Vec<Function>,
}

impl<'a> Functions<'a> {
    /// Sorts the functions of `bytes`.
    pub fn new(bytes: SymbolBytes<'a>) -> Result<Self, ElfError> {
        let mut sorted = Vec::new();
        sorted.try_reserve_exact(bytes.functions().count()).map_err(|_| ElfError::OutOfMemory)?;
        sorted.extend(bytes.functions());
        sorted.sort_unstable_by_key(|function: &Function| (function.start, function.rank, function.name));
        Ok(Self { bytes, sorted })
    }

    /// The function at the stated address: the last one that begins at or before it and holds it. One without a size holds
    /// what follows up to the next.
    pub fn find(&self, address: u64) -> Option<SymbolHit<'a>> {
        let end = self.sorted.partition_point(|function| function.start <= address);
        let before = self.sorted.get(..end)?;
        let last = before.last()?;
        // Of several that begin there the best comes last; a function may also lie in a larger one that begins earlier.
        let holds = |function: &&Function| address.wrapping_sub(function.start) < function.size;
        let found =
            before.iter().rev().take(NESTED).find(holds).or_else(|| Some(last).filter(|last| last.size == 0))?;
        Some(SymbolHit {
            name: self.bytes.text(found.name),
            start: found.start,
            approximate: found.size == 0,
            is_full: self.bytes.is_full,
        })
    }
}

/// A symbol that is a function of this file.
fn read(symbol: &[u8], form: Form) -> Option<Function> {
    // Name, value, size, kind and section: where each begins.
    let (name, value, size, info, section) = if form.is_64 { (0, 8, 16, 4, 6) } else { (0, 4, 8, 12, 14) };
    let word = if form.is_64 { 8 } else { 4 };
    let number = |at: usize, bytes: usize| symbol.get(at..at + bytes).map(|bytes| form.number(bytes));
    let (value, size, info) = (number(value, word)?, number(size, word)?, *symbol.get(info)?);
    let name = u32::try_from(number(name, 4)?).ok()?;
    let is_defined = number(section, 2)? != 0;
    if !is_defined || name == 0 || !matches!(info & 15, STT_FUNC | STT_GNU_IFUNC) {
        return None;
    }
    let is_short = form.marks_short_code && value & 1 == 1;
    // Of several names for one place a global one is the best known, and a size says where it ends.
    let rank = u8::from(size > 0) << 1 | u8::from(info >> 4 == STB_GLOBAL);
    Some(Function { start: value & !u64::from(is_short), size, name, rank, is_short })
}
