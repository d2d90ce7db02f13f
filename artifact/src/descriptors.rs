//! Function descriptors: what symbols of functions name on 64-bit PowerPC before version 2 of its ELF ABI.

use crate::fields::Fields;
use crate::symbols::Symbol;
use std::borrow::Cow;

/// Descriptors by stated address, as their binary has them. The first word of each is where the function's code starts. (64-bit PowerPC
/// ELF ABI Supplement 1.9, 3.2.1 "Function Descriptors")
#[derive(Debug)]
pub(crate) struct Descriptors<'d> {
    /// Of the first.
    pub(crate) svma: u64,
    pub(crate) bytes: Cow<'d, [u8]>,
    pub(crate) is_little_endian: bool,
}

impl Descriptors<'_> {
    /// Where the code starts that the descriptor at this address leads to.
    fn entry(&self, svma: u64) -> Option<u64> {
        let at = usize::try_from(svma.checked_sub(self.svma)?).ok()?;
        Fields { bytes: &self.bytes, is_little_endian: self.is_little_endian }.u64(at)
    }
}

/// The symbol at the address of its code. None where it names a descriptor that is not at hand: debug files have their headers alone.
pub(crate) fn at_code<'s>(symbol: Symbol<'s>, descriptors: Option<&Descriptors<'_>>) -> Option<Symbol<'s>> {
    if !symbol.is_descriptor {
        return Some(symbol);
    }
    let svma = descriptors?.entry(symbol.svma)?;
    Some(Symbol { svma, is_descriptor: false, ..symbol })
}
