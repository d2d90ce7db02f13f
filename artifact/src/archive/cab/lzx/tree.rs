//! Huffman codes by the lengths of their symbols: the shorter code is the lesser one, and of two of the same length that of the lesser symbol.

use std::io;

use super::super::invalid;
use super::bits::Bits;

/// Bits of the longest code.
const LONGEST: u8 = 16;

/// What tells the symbol of the next bits.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Symbol and length by as many bits as the longest code has.
    symbols: Vec<(u16, u8)>,
    longest: u8,
}

impl Tree {
    /// A tree for lengths of up to 16 bits, 0 for a symbol that does not occur. Every code must mean something, unless no symbol occurs at all.
    pub(super) fn new(lengths: &[u8]) -> io::Result<Self> {
        let longest = lengths.iter().copied().max().unwrap_or_default();
        if longest > LONGEST {
            return Err(invalid("a code of LZX of more than 16 bits"));
        }
        if longest == 0 {
            return Ok(Self::default());
        }
        let mut symbols = Vec::with_capacity(1 << longest);
        for length in 1..=longest {
            for (symbol, _) in (0_u16..).zip(lengths).filter(|(_, found)| **found == length) {
                let end = symbols.len().saturating_add(1 << longest.saturating_sub(length));
                if end > 1 << longest {
                    return Err(invalid("codes of LZX of which one begins like another"));
                }
                symbols.resize(end, (symbol, length));
            }
        }
        if symbols.len() < 1 << longest {
            return Err(invalid("codes of LZX that mean nothing"));
        }
        Ok(Self { symbols, longest })
    }

    /// The next symbol.
    #[inline]
    pub(super) fn symbol(&self, bits: &mut Bits<'_>) -> io::Result<usize> {
        let code = u32::from(bits.peek()).checked_shr(u32::from(LONGEST.saturating_sub(self.longest)));
        let (symbol, length) = code
            .and_then(|code| self.symbols.get(code as usize))
            .ok_or_else(|| invalid("a symbol of LZX out of a tree without any"))?;
        bits.take((*length).into())?;
        Ok((*symbol).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_come_by_length_and_number() {
        let tree = Tree::new(&[2, 0, 1, 3, 3]).expect("a tree");
        // 2: 0, 0: 10, 3: 110, 4: 111
        #[allow(clippy::unusual_byte_groupings, reason = "grouped as the codes are")]
        let word = 0b0_10_110_111_0_0_10_0_0_0_u16;
        let bytes = word.to_le_bytes();
        let mut bits = Bits::new(&bytes);
        let found: Vec<usize> = (0..7).map(|_| tree.symbol(&mut bits).expect("a symbol")).collect();
        assert_eq!(found, [2, 0, 3, 4, 2, 2, 0]);
    }

    #[test]
    fn lengths_that_make_no_code_are_refused() {
        for lengths in [&[1, 1, 1][..], &[1], &[2, 2, 2], &[1, 2], &[17]] {
            assert!(Tree::new(lengths).is_err(), "{lengths:?}");
        }
        let none = Tree::new(&[0, 0]).expect("a tree without symbols");
        assert!(none.symbol(&mut Bits::new(&[0, 0])).is_err());
    }
}
