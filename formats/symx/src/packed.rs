//! Records of packed fields: a section of them, each read in place.

use crate::OpenError;
use crate::bits::{LOADED_BITS, MAX_BITS, TAIL, load};
use crate::layout::SectionId;

/// How many records of a section there are, and how many bits each of their `N` fields has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape<const N: usize> {
    pub(crate) count: u32,
    widths: [u8; N],
}

/// Packed records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a, const N: usize> {
    bytes: &'a [u8],
    shape: Shape<N>,
}

#[inline(always)]
fn stride_of(widths: &[u8]) -> u64 {
    widths.iter().map(|width| u64::from(*width)).sum()
}

/// Bytes of `count` records. 2^32 of them, of 128 bits: no overflow.
fn size_of(widths: &[u8], count: u32) -> u64 {
    (u64::from(count) * stride_of(widths)).div_ceil(8)
}

/// `count`, where as many records of these widths, and the zeroes behind them, have `size` bytes.
fn checked_count(widths: &[u8], id: SectionId, size: u64, count: u64) -> Result<u32, OpenError> {
    let fault = |problem| OpenError::Section { id: id.number(), problem };
    if widths.iter().any(|width| *width > MAX_BITS) {
        return Err(fault("has impossible widths"));
    }
    let count = u32::try_from(count).ok();
    count
        // Records of no bits are all the same one: more than one would be a way to ask for much with few bytes.
        .filter(|count| *count <= 1 || stride_of(widths) > 0)
        .filter(|count| size_of(widths, *count).checked_add(TAIL as u64) == Some(size))
        .ok_or(fault("has another size than its records"))
}

impl<const N: usize> Shape<N> {
    /// Of `count` records in `size` bytes of section `id`.
    pub(crate) fn new(widths: [u8; N], id: SectionId, size: u64, count: u64) -> Result<Self, OpenError> {
        Ok(Self { count: checked_count(&widths, id, size, count)?, widths })
    }

    /// Bits of one record.
    #[inline(always)]
    pub(crate) fn stride(&self) -> u64 {
        stride_of(&self.widths)
    }

    /// Where record `index` begins, in bits; `None` where there is none.
    #[inline(always)]
    pub(crate) fn bit(&self, index: u32) -> Option<u64> {
        (index < self.count).then(|| u64::from(index) * self.stride())
    }

    /// The record that begins at bit `at` of `bytes`.
    #[inline(always)]
    pub(crate) fn decode(&self, bytes: &[u8], mut at: usize) -> Option<[u32; N]> {
        let mut fields = [0; N];
        let mut word = load(bytes, at)?;
        let mut left = LOADED_BITS as u8;
        for (field, width) in fields.iter_mut().zip(self.widths) {
            // Seldom, and for all records of a shape at the same fields.
            if width > left {
                word = load(bytes, at)?;
                left = LOADED_BITS as u8;
            }
            *field = (word & ((1 << width) - 1)) as u32;
            word >>= width;
            left -= width;
            at += usize::from(width);
        }
        Some(fields)
    }
}

impl<'a, const N: usize> Packed<'a, N> {
    /// Over the section from its first record on, of the shape that it was found to have.
    pub(crate) fn new(shape: Shape<N>, bytes: &'a [u8]) -> Self {
        Self { bytes, shape }
    }

    pub(crate) fn count(&self) -> u32 {
        self.shape.count
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<[u32; N]> {
        let at = usize::try_from(self.shape.bit(index)?).ok()?;
        self.shape.decode(self.bytes, at)
    }

    /// Whether what is behind the last record is what has to be there: zeroes, so that eight bytes can be loaded at any field.
    pub(crate) fn ends_well(&self) -> bool {
        ends_well(self.bytes, u64::from(self.shape.count) * self.shape.stride())
    }
}

fn ends_well(bytes: &[u8], bits: u64) -> bool {
    let (whole, used) = ((bits / 8) as usize, bits % 8);
    match bytes.get(whole..) {
        // The last record ends within a byte.
        Some([last, tail @ ..]) if used > 0 => last >> used == 0 && *tail == [0; TAIL],
        Some(tail) => *tail == [0; TAIL],
        None => false,
    }
}
