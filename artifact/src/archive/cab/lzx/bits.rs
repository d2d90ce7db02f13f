//! The bits of a frame: words of 16 bits, the least significant byte first, each from its most significant bit on.

use std::io;

use super::super::invalid;

/// Reads the packed bytes of one frame.
#[derive(Debug)]
pub(super) struct Bits<'p> {
    packed: &'p [u8],
    /// The bits that are read next, from the most significant one on; what lies behind them is 0.
    held: u64,
    count: u32,
}

impl<'p> Bits<'p> {
    pub(super) fn new(packed: &'p [u8]) -> Self {
        Self { packed, held: 0, count: 0 }
    }

    /// The next 16 bits, without taking them; zeros behind the end.
    pub(super) fn peek(&mut self) -> u16 {
        if self.count < 16
            && let Some((word, rest)) = self.packed.split_first_chunk()
        {
            self.held |= u64::from(u16::from_le_bytes(*word)) << (48 - self.count);
            (self.packed, self.count) = (rest, self.count + 16);
        }
        (self.held >> 48) as u16
    }

    /// Takes up to 16 of the bits that were peeked at.
    pub(super) fn take(&mut self, bits: u32) -> io::Result<()> {
        self.count = self.count.checked_sub(bits).ok_or_else(cut_short)?;
        self.held <<= bits;
        Ok(())
    }

    /// A number of up to 32 bits.
    pub(super) fn number(&mut self, bits: u32) -> io::Result<u32> {
        if bits > 16 {
            let high = self.number(bits.saturating_sub(16))?;
            return Ok(high << 16 | self.number(16)?);
        }
        let number = u32::from(self.peek()).checked_shr(16_u32.saturating_sub(bits)).unwrap_or_default();
        self.take(bits)?;
        Ok(number)
    }

    /// Leaves out what is left of a word that was read in part; one of which nothing was read as well. What follows is bytes.
    pub(super) fn leave_word(&mut self) -> io::Result<()> {
        self.peek();
        self.take(if self.count > 16 { self.count.saturating_sub(16) } else { self.count })
    }

    /// Bytes, behind whole words.
    pub(super) fn bytes(&mut self, wanted: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(wanted);
        // A word that was read ahead.
        if self.count > 0 && wanted >= 2 {
            bytes.extend_from_slice(&((self.held >> 48) as u16).to_le_bytes());
            self.take(16)?;
        }
        let more = wanted.saturating_sub(bytes.len());
        let (more, rest) = self.packed.split_at_checked(more).filter(|_| self.count == 0).ok_or_else(cut_short)?;
        bytes.extend_from_slice(more);
        self.packed = rest;
        Ok(bytes)
    }
}

fn cut_short() -> io::Error {
    invalid("the end of a packed block of LZX")
}
