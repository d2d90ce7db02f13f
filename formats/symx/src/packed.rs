//! Records of packed fields: a section of them, each read in place.

use crate::OpenError;
use crate::bits::{LOADED_BITS, MAX_BITS, TAIL, bits, load};
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

impl<const N: usize> Shape<N> {
    /// Of `count` records in `size` bytes of section `id`.
    pub(crate) fn new(widths: [u8; N], id: SectionId, size: u64, count: u64) -> Result<Self, OpenError> {
        let fault = |problem| OpenError::Section { id: id.number(), problem };
        if widths.iter().any(|width| *width > MAX_BITS) {
            return Err(fault("has impossible widths"));
        }
        let shape = u32::try_from(count).ok().map(|count| Self { count, widths });
        shape
            // Records of no bits are all the same one: more than one would be a way to ask for much with few bytes.
            .filter(|shape| shape.count <= 1 || shape.stride() > 0)
            .filter(|shape| shape.size().checked_add(TAIL as u64) == Some(size))
            .ok_or(fault("has another size than its records"))
    }

    /// Bits of one record.
    #[inline(always)]
    pub(crate) fn stride(&self) -> u64 {
        self.widths.iter().map(|width| u64::from(*width)).sum()
    }

    /// Bytes of all records. 2^32 of them, of 96 bits: no overflow.
    pub(crate) fn size(&self) -> u64 {
        (u64::from(self.count) * self.stride()).div_ceil(8)
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
        if self.stride() <= LOADED_BITS {
            let mut word = load(bytes, at)?;
            for (field, width) in fields.iter_mut().zip(self.widths) {
                *field = (word & ((1 << width) - 1)) as u32;
                word >>= width;
            }
        } else {
            for (field, width) in fields.iter_mut().zip(self.widths) {
                *field = bits(bytes, at, width)?;
                at += usize::from(width);
            }
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
        let (size, bits) = (self.shape.size() as usize, u64::from(self.shape.count) * self.shape.stride());
        let filled = match (bits % 8, size.checked_sub(1).and_then(|last| self.bytes.get(last))) {
            (0, _) | (_, None) => true,
            (used, Some(last)) => last >> used == 0,
        };
        filled && self.bytes.get(size..) == Some(&[0; TAIL])
    }
}
