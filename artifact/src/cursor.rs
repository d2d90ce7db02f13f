//! Reading entries: a position in bytes that never runs past their end.

/// The bytes ended, or a number in them cannot be what it should be. The unit is left out from here on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Damaged;

pub(crate) type Result<T> = std::result::Result<T, Damaged>;

#[derive(Clone, Copy)]
pub(crate) struct Cursor<'d> {
    rest: &'d [u8],
    is_little_endian: bool,
}

impl<'d> Cursor<'d> {
    pub(crate) fn new(rest: &'d [u8], is_little_endian: bool) -> Self {
        Self { rest, is_little_endian }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'d [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(Damaged)?;
        self.rest = rest;
        Ok(bytes)
    }

    #[inline]
    pub(crate) fn skip(&mut self, count: usize) -> Result<()> {
        self.rest = self.rest.get(count..).ok_or(Damaged)?;
        Ok(())
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8> {
        let (byte, rest) = self.rest.split_first().ok_or(Damaged)?;
        self.rest = rest;
        Ok(*byte)
    }

    /// An unsigned number of 1 to 8 bytes.
    #[inline]
    pub(crate) fn unsigned(&mut self, size: u8) -> Result<u64> {
        // Most are of these sizes, which need no buffer.
        match size {
            1 => self.u8().map(u64::from),
            2 => self.fixed().map(|bytes| self.ordered(u16::from_le_bytes(bytes), u16::swap_bytes).into()),
            4 => self.fixed().map(|bytes| self.ordered(u32::from_le_bytes(bytes), u32::swap_bytes).into()),
            8 => self.fixed().map(|bytes| self.ordered(u64::from_le_bytes(bytes), u64::swap_bytes)),
            _ => self.unusual(size),
        }
    }

    #[inline]
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Damaged)?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// A number that was read as a little-endian one.
    #[inline]
    fn ordered<T>(&self, number: T, swap: fn(T) -> T) -> T {
        if self.is_little_endian { number } else { swap(number) }
    }

    #[cold]
    fn unusual(&mut self, size: u8) -> Result<u64> {
        let mut wide = [0; 8];
        let bytes = self.bytes(usize::from(size))?;
        if self.is_little_endian {
            wide.get_mut(..bytes.len()).ok_or(Damaged)?.copy_from_slice(bytes);
            Ok(u64::from_le_bytes(wide))
        } else {
            let start = wide.len().checked_sub(bytes.len()).ok_or(Damaged)?;
            wide.get_mut(start..).ok_or(Damaged)?.copy_from_slice(bytes);
            Ok(u64::from_be_bytes(wide))
        }
    }

    /// Most are below 128, which takes no call.
    #[inline(always)]
    pub(crate) fn uleb(&mut self) -> Result<u64> {
        let first = self.u8()?;
        if first < 0x80 { Ok(u64::from(first)) } else { self.long_uleb(first) }
    }

    /// The rest of a number of two bytes and more.
    fn long_uleb(&mut self, first: u8) -> Result<u64> {
        let mut value = u64::from(first & 0x7f);
        let mut shift = 7;
        loop {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift >= 64 || (shift == 63 && bits > 1) {
                return Err(Damaged);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
            shift += 7;
        }
    }

    /// Two numbers, which are mostly short.
    #[inline]
    pub(crate) fn two_ulebs(&mut self) -> Result<(u64, u64)> {
        match self.rest {
            [first @ 0..0x80, second @ 0..0x80, rest @ ..] => {
                self.rest = rest;
                Ok((u64::from(*first), u64::from(*second)))
            }
            _ => Ok((self.uleb()?, self.uleb()?)),
        }
    }

    pub(crate) fn sleb(&mut self) -> Result<i64> {
        let mut value = 0_i64;
        let mut shift = 0_u32;
        loop {
            let byte = self.u8()?;
            if shift >= 64 {
                return Err(Damaged);
            }
            value |= i64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                let is_negative = byte & 0x40 != 0;
                return Ok(if is_negative && shift < 64 { value | -1 << shift } else { value });
            }
        }
    }

    #[inline]
    pub(crate) fn skip_leb(&mut self) -> Result<()> {
        let length = self.rest.iter().position(|byte| *byte < 0x80).ok_or(Damaged)?;
        self.skip(length + 1)
    }

    /// Passes over an unsigned number, which must be one of 64 bits.
    #[inline]
    pub(crate) fn skip_uleb(&mut self) -> Result<()> {
        self.uleb().map(|_| ())
    }

    /// The bytes before the next NUL, which is passed.
    pub(crate) fn text(&mut self) -> Result<&'d [u8]> {
        let length = memchr::memchr(0, self.rest).ok_or(Damaged)?;
        let text = self.bytes(length)?;
        self.skip(1)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_variable_length_are_read_to_their_end() {
        let mut cursor = Cursor::new(&[0x02, 0x80, 0x01, 0x7f, 0xff, 0x7e, 0x80, 0x80], true);
        assert_eq!((cursor.uleb(), cursor.uleb()), (Ok(2), Ok(128)));
        assert_eq!((cursor.sleb(), cursor.sleb()), (Ok(-1), Ok(-129)));
        assert_eq!(cursor.uleb(), Err(Damaged));
        let mut overlong = Cursor::new(&[0xff; 11], true);
        assert_eq!(overlong.uleb(), Err(Damaged));
    }

    #[test]
    fn fixed_numbers_follow_the_byte_order() {
        assert_eq!(Cursor::new(&[1, 2, 3], true).unsigned(3), Ok(0x030201));
        assert_eq!(Cursor::new(&[1, 2, 3], false).unsigned(3), Ok(0x010203));
        assert_eq!(Cursor::new(&[1, 2, 3], true).unsigned(4), Err(Damaged));
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        for (size, little, big) in [
            (1, 1, 1),
            (2, 0x0201, 0x0102),
            (4, 0x0403_0201, 0x0102_0304),
            (5, 0x05_0403_0201, 0x01_0203_0405),
            (8, 0x0807_0605_0403_0201, 0x0102_0304_0506_0708),
        ] {
            assert_eq!(Cursor::new(&bytes, true).unsigned(size), Ok(little));
            assert_eq!(Cursor::new(&bytes, false).unsigned(size), Ok(big));
        }
        assert_eq!(Cursor::new(&bytes, true).unsigned(9), Err(Damaged));
    }
}
