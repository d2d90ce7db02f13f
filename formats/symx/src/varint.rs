//! Numbers in few bytes: LEB128, least significant seven bits first.

use alloc::vec::Vec;

/// Bytes, read from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// The next number; `None` where the bytes end within it or it exceeds 64 bits.
    #[inline(always)]
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        if first < 0x80 { Some(u64::from(first)) } else { self.continued(u64::from(first & 0x7f)) }
    }

    /// The rest of a number of more than one byte.
    #[inline(always)]
    fn continued(&mut self, low: u64) -> Option<u64> {
        let (&second, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        let value = low | u64::from(second & 0x7f) << 7;
        if second < 0x80 { Some(value) } else { self.long(value) }
    }

    /// The rest of a number of more than two bytes.
    fn long(&mut self, mut value: u64) -> Option<u64> {
        for shift in (14..64).step_by(7) {
            let (&byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            let bits = u64::from(byte & 0x7f);
            value |= bits << shift;
            if byte < 0x80 {
                return (bits << shift >> shift == bits).then_some(value);
            }
        }
        None
    }

    /// The next `len` bytes.
    #[inline]
    pub(crate) fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(usize::try_from(len).ok()?)?;
        self.bytes = rest;
        Some(taken)
    }
}

/// Appends `value` in as few bytes as it takes.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_read_as_written() {
        for bits in 0..64 {
            for value in [1u64 << bits, (1u64 << bits) - 1, u64::MAX >> bits] {
                let mut bytes = Vec::new();
                put(&mut bytes, value);
                let mut cursor = Cursor::new(&bytes);
                assert_eq!((cursor.varint(), cursor.is_empty()), (Some(value), true), "{value}");
                assert_eq!(Cursor::new(&bytes[..bytes.len() - 1]).varint(), None, "{value} cut short");
            }
        }
    }

    #[test]
    fn numbers_beyond_64_bits_are_refused() {
        let mut cursor = Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]);
        assert_eq!(cursor.varint(), None);
        assert_eq!(Cursor::new(&[0x80; 11]).varint(), None);
    }
}
