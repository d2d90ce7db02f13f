//! The symbols of an ELF file, sorted by address.

use alloc::vec::Vec;

use crate::ElfError;

/// Bytes of an Elf64_Sym. (gABI, chapter 4)
const SYMBOL_BYTES: usize = 24;
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
    pub(crate) is_64: bool,
    /// `.symtab`, not `.dynsym`.
    pub(crate) is_full: bool,
}

impl<'a> SymbolBytes<'a> {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        // The first symbol is none.
        self.symbols.len() <= SYMBOL_BYTES || !self.is_64
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
        let (symbols, _) = bytes.symbols.as_chunks::<SYMBOL_BYTES>();
        let mut sorted = Vec::new();
        let count = symbols.iter().filter_map(read).count();
        sorted.try_reserve_exact(count).map_err(|_| ElfError::OutOfMemory)?;
        sorted.extend(symbols.iter().filter_map(read));
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
fn read(symbol: &[u8; SYMBOL_BYTES]) -> Option<Function> {
    let [n0, n1, n2, n3, info, _, s0, s1, rest @ ..] = symbol;
    let (start, size) = rest.split_at(8);
    let (start, size) = (u64::from_le_bytes(*start.first_chunk()?), u64::from_le_bytes(*size.first_chunk()?));
    let name = u32::from_le_bytes([*n0, *n1, *n2, *n3]);
    let is_defined = u16::from_le_bytes([*s0, *s1]) != 0;
    if !is_defined || name == 0 || !matches!(info & 15, STT_FUNC | STT_GNU_IFUNC) {
        return None;
    }
    // Of several names for one place a global one is the best known, and a size says where it ends.
    let rank = u8::from(size > 0) << 1 | u8::from(info >> 4 == STB_GLOBAL);
    Some(Function { start, size, name, rank })
}
