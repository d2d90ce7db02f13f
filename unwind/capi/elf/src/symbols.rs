//! The symbols of an ELF file, sorted by address.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

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
/// More executable sections than a linker writes; each label is looked for in all of them.
const MOST_SECTIONS: usize = 64;
const STT_NOTYPE: u8 = 0;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
const STB_GLOBAL: u8 = 1;
/// From here on numbers of sections stand for something else (gABI, chapter 4); the last means that the number is elsewhere.
const SHN_LORESERVE: u64 = 0xff00;
const SHN_XINDEX: u64 = 0xffff;

/// A symbol table as it lies in the file.
#[derive(Debug, Clone, Default)]
pub struct SymbolBytes<'a> {
    pub(crate) symbols: &'a [u8],
    pub(crate) strings: &'a [u8],
    pub(crate) form: Form,
    /// `.symtab`, not `.dynsym`.
    pub(crate) is_full: bool,
    /// Executable sections.
    pub(crate) text: Arc<[Range<u64>]>,
}

impl<'a> SymbolBytes<'a> {
    /// These are the executable sections of the file.
    pub(crate) fn set_sections(&mut self, text: &[Range<u64>]) {
        self.text = text.get(..MOST_SECTIONS).unwrap_or(text).into();
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        // The first symbol is none.
        self.symbols.len() <= self.form.size()
    }

    fn functions(&self) -> impl Iterator<Item = Function> + '_ {
        self.of_kinds(FUNCTIONS)
    }

    /// The symbols of some kinds. Labels are places in code that have a name and no type, as assemblers write them unless they are told that it is
    /// a function.
    fn of_kinds(&self, kinds: Kinds) -> impl Iterator<Item = Function> + '_ {
        let symbols =
            self.symbols.chunks_exact(self.form.size()).filter_map(move |symbol| read(symbol, self.form, kinds));
        symbols.filter(move |symbol| kinds == FUNCTIONS || self.is_label(symbol))
    }

    fn is_label(&self, symbol: &Function) -> bool {
        self.section_of(symbol.start).is_some() && !is_of_the_tools(self.text(symbol.name))
    }

    /// The executable section that holds the address.
    fn section_of(&self, address: u64) -> Option<&Range<u64>> {
        self.text.iter().find(|range| range.contains(&address))
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

/// Kinds of symbols.
type Kinds = &'static [u8];
const FUNCTIONS: Kinds = &[STT_FUNC, STT_GNU_IFUNC];
const LABELS: Kinds = &[STT_NOTYPE];

/// Whether compilers, assemblers and their plugins gave the name, to tell code from data and for themselves: `$x`, `$d.1`, `$xrv64i`
/// (ELF for the Arm Architecture and the others' supplements), `.L12`, `.annobin_main`.
fn is_of_the_tools(name: &[u8]) -> bool {
    match name {
        [b'$', b'a' | b'd' | b't' | b'x', rest @ ..] => {
            rest.is_empty() || rest.starts_with(b".") || rest.starts_with(b"rv")
        }
        [first, ..] => *first == b'.',
        [] => true,
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
    /// Places without a type: the end of a function without a size, and a name where there is no better one.
    labels: Vec<Function>,
}

impl<'a> Functions<'a> {
    /// Sorts the functions of `bytes`.
    pub fn new(bytes: SymbolBytes<'a>) -> Result<Self, ElfError> {
        let sorted = sort(&bytes, FUNCTIONS)?;
        let labels = sort(&bytes, LABELS)?;
        Ok(Self { bytes, sorted, labels })
    }

    /// The function at the stated address: the last one that begins at or before it and holds it. One without a size holds
    /// what follows up to the next, or to the end of the section; so does a place without a type, where no function with a size holds it.
    pub fn find(&self, address: u64) -> Option<SymbolHit<'a>> {
        let before = up_to(&self.sorted, address);
        // Of several that begin there the best comes last; a function may also lie in a larger one that begins earlier.
        let found = holding(before, address).or_else(|| self.without_size(before, address))?;
        Some(SymbolHit {
            name: self.bytes.text(found.name),
            start: found.start,
            approximate: found.size == 0,
            is_full: self.bytes.is_full,
        })
    }

    /// The last that begins in `before` or among the labels, if nobody says where it ends.
    fn without_size<'s>(&'s self, before: &'s [Function], address: u64) -> Option<&'s Function> {
        let function = before.last();
        let label = up_to(&self.labels, address).last();
        // One within a function ends with it.
        let label = label.filter(|label| {
            function.is_none_or(|function| function.start < label.start) && holding(before, label.start).is_none()
        });
        let holds = |last: &&Function| last.size == 0 || address.wrapping_sub(last.start) < last.size;
        let last = label.or(function).filter(holds)?;
        match self.bytes.section_of(last.start) {
            Some(section) => section.contains(&address).then_some(last),
            None => Some(last),
        }
    }
}

/// The symbols by address; of those at one place the best last.
#[inline(never)]
fn sort(bytes: &SymbolBytes<'_>, kinds: Kinds) -> Result<Vec<Function>, ElfError> {
    let mut sorted = Vec::new();
    sorted.try_reserve_exact(bytes.of_kinds(kinds).count()).map_err(|_| ElfError::OutOfMemory)?;
    sorted.extend(bytes.of_kinds(kinds));
    sorted.sort_unstable_by_key(|function: &Function| (function.start, function.rank, function.name));
    Ok(sorted)
}

/// Those that begin at or before the address.
fn up_to(sorted: &[Function], address: u64) -> &[Function] {
    sorted.get(..sorted.partition_point(|function| function.start <= address)).unwrap_or_default()
}

/// The last whose size says that it holds the address.
fn holding(before: &[Function], address: u64) -> Option<&Function> {
    before.iter().rev().take(NESTED).find(|function| address.wrapping_sub(function.start) < function.size)
}

/// A symbol of one of these kinds that this file defines.
fn read(symbol: &[u8], form: Form, kinds: Kinds) -> Option<Function> {
    // Name, value, size, kind and section: where each begins.
    let (name, value, size, info, section) = if form.is_64 { (0, 8, 16, 4, 6) } else { (0, 4, 8, 12, 14) };
    let word = if form.is_64 { 8 } else { 4 };
    let number = |at: usize, bytes: usize| symbol.get(at..at + bytes).map(|bytes| form.number(bytes));
    let (value, size, info) = (number(value, word)?, number(size, word)?, *symbol.get(info)?);
    let name = u32::try_from(number(name, 4)?).ok()?;
    let section = number(section, 2)?;
    // A number that a linker was given is no place, but for a function.
    let is_number = kinds == LABELS && (SHN_LORESERVE..SHN_XINDEX).contains(&section);
    if section == 0 || is_number || name == 0 || !kinds.contains(&(info & 15)) {
        return None;
    }
    let is_short = form.marks_short_code && value & 1 == 1;
    // Of several names for one place a global one is the best known, and a size says where it ends.
    let rank = u8::from(size > 0) << 1 | u8::from(info >> 4 == STB_GLOBAL);
    Some(Function { start: value & !u64::from(is_short), size, name, rank, is_short })
}
