//! What a table is made from: functions, their line rows and their inlined calls.

use crate::{StrId, Strings};
use alloc::vec::Vec;
use symseal_module::{DebugId, Rva, Svma};

/// "Not inlined": the function itself, as [`Row::inline`] and [`InlineSite::parent`] say it.
pub const NO_INLINE: u32 = u32::MAX;

/// Where the name of a function was read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum SymbolSource {
    /// DWARF debugging information.
    Dwarf = 1,
    /// A program database.
    Pdb = 2,
    /// The full symbol table of an ELF, COFF or Mach-O file.
    Symtab = 3,
    /// The dynamic symbol table of an ELF file.
    Dynsym = 4,
    /// The symbol table in `.gnu_debugdata`.
    MiniDebugInfo = 5,
    /// Go's function table.
    Pclntab = 6,
    /// Exports of a PE or Mach-O file.
    Exports = 7,
    /// Function starts, and code with lines, that have no names.
    FunctionStarts = 8,
    /// A symbol file of Breakpad, which says nothing of where its names come from.
    Breakpad = 9,
}

impl SymbolSource {
    /// Every source, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Dwarf,
        Self::Pdb,
        Self::Symtab,
        Self::Dynsym,
        Self::MiniDebugInfo,
        Self::Pclntab,
        Self::Exports,
        Self::FunctionStarts,
        Self::Breakpad,
    ];

    /// The stable name of this source in JSON and other output.
    pub fn code(self) -> &'static str {
        match self {
            Self::Dwarf => "dwarf",
            Self::Pdb => "pdb",
            Self::Symtab => "symtab",
            Self::Dynsym => "dynsym",
            Self::MiniDebugInfo => "mini-debug-info",
            Self::Pclntab => "pclntab",
            Self::Exports => "exports",
            Self::FunctionStarts => "function-starts",
            Self::Breakpad => "breakpad",
        }
    }

    /// The number of this source in a table.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The source with this number, if there is one.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.number() == number)
    }
}

/// What is special about a function's range or name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FunctionFlags {
    /// The size is unknown and reaches to the next symbol or the section's end.
    pub approximate: bool,
    /// Several functions share this code; the name is one of theirs.
    pub folded: bool,
    /// A range without the function's entry point, such as `.cold`.
    pub part: bool,
}

/// One contiguous range of code with a name. A function in several ranges gives several records; those without its
/// entry are flagged [`part`](FunctionFlags::part).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionRecord {
    /// First byte.
    pub start: Rva,
    /// Bytes. A function of size 0 is listed but never found by an address.
    pub size: u64,
    /// The name as the source language says it, qualified where known; otherwise the same as `symbol`.
    pub name: StrId,
    /// The linkage name, raw (mangled).
    pub symbol: StrId,
    /// Other linkage names of the same code.
    pub aliases: Vec<StrId>,
    /// Where the names were read.
    pub source: SymbolSource,
    /// What is special about the range.
    pub flags: FunctionFlags,
    /// The file of the declaration.
    pub file: StrId,
    /// The line of the declaration; 0 = unknown.
    pub line: u32,
    /// Line rows, sorted by start. Of rows with the same start the last holds.
    pub rows: Vec<Row>,
    /// Inlined calls, parents before their children.
    pub inlines: Vec<InlineSite>,
}

/// A row of the line table, valid up to the next row or the function's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// First address, within the function.
    pub start: Rva,
    /// File of the innermost frame.
    pub file: StrId,
    /// Line of the innermost frame; 0 = none (made by the compiler).
    pub line: u32,
    /// Column of the innermost frame; 0 = none.
    pub column: u32,
    /// Index in [`FunctionRecord::inlines`] of the innermost inlined call, or [`NO_INLINE`].
    pub inline: u32,
}

/// An inlined call: `name` was called at `call_file:call_line` in `parent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineSite {
    /// Index of the enclosing inlined call, less than this one's own; [`NO_INLINE`] = the function itself.
    pub parent: u32,
    /// Name of the inlined function as the source language says it.
    pub name: StrId,
    /// Its linkage name, raw.
    pub symbol: StrId,
    /// File of the call, in the parent.
    pub call_file: StrId,
    /// Line of the call, in the parent; 0 = none.
    pub call_line: u32,
    /// Column of the call, in the parent; 0 = none.
    pub call_column: u32,
}

/// Everything that one table is made from.
#[derive(Clone, Copy, Debug)]
pub struct TableInput<'a> {
    /// The module that the table describes.
    pub debug_id: &'a DebugId,
    /// What was subtracted from stated addresses.
    pub image_base: Svma,
    /// SHA-256 of the file that the functions were read from.
    pub source_sha256: [u8; 32],
    /// Name and version of the program that makes the table, at most 255 bytes: `symseal 0.1.0`.
    pub producer: &'a str,
    /// The strings that the records refer to.
    pub strings: &'a Strings,
    /// Sorted by start, not overlapping.
    pub functions: &'a [FunctionRecord],
}
