//! What a lookup answers: the row, its function, its frames.

use crate::{FunctionFlags, SymbolSource};
use core::marker::PhantomData;
use core::ops::Range;
use symseal_module::Rva;

/// One function range of a table.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    /// First byte.
    pub start: Rva,
    /// Bytes.
    pub size: u64,
    /// The name as the source language says it.
    pub name: &'a str,
    /// The linkage name, raw.
    pub symbol: &'a str,
    /// Where the names were read.
    pub source: SymbolSource,
    /// What is special about the range.
    pub flags: FunctionFlags,
    /// File of the declaration; empty = unknown.
    pub file: &'a str,
    /// Line of the declaration.
    pub line: Option<u32>,
}

impl<'a> Function<'a> {
    /// Other linkage names of the same code.
    pub fn aliases(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        core::iter::empty()
    }
}

/// One frame of the chain at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The name as the source language says it.
    pub function: &'a str,
    /// The linkage name, raw.
    pub symbol: &'a str,
    /// Source path; empty = unknown.
    pub file: &'a str,
    /// Source line.
    pub line: Option<u32>,
    /// Source column.
    pub column: Option<u32>,
    /// Whether this function was inlined into the next frame.
    pub inlined: bool,
}

/// What a table knows about an address.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    _bytes: PhantomData<&'a [u8]>,
}

impl<'a> Hit<'a> {
    /// The function whose code this is.
    pub fn function(&self) -> Function<'a> {
        Function {
            start: Rva(0),
            size: 0,
            name: "",
            symbol: "",
            source: SymbolSource::Dwarf,
            flags: FunctionFlags::default(),
            file: "",
            line: None,
        }
    }

    /// The chain at this address, innermost (most deeply inlined) frame first; the last one is the function itself.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'a>> + use<'a> {
        core::iter::empty()
    }

    /// The addresses for which the same answer holds.
    pub fn range(&self) -> Range<Rva> {
        Rva(0)..Rva(0)
    }
}
