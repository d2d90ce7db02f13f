//! Who a row's code belongs to, and who called it.

use crate::OpenError;
use crate::bits::{MAX_BITS, TAIL, bits};
use crate::layout::{SectionId, u32_at};

/// Bytes before the packed contexts: their fields' widths, a zero, and how many of them are inlined.
pub(crate) const PREFIX_BYTES: usize = 8;

/// Packed contexts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contexts<'a> {
    bytes: &'a [u8],
    shape: Shape,
}

/// How many contexts there are, and of how many bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) count: u32,
    inlined: u32,
    widths: [u8; 3],
}

/// A context: what names and file its code has, and where it is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    /// Index of its names and file.
    pub(crate) place: u32,
    /// Whose code it is.
    pub(crate) origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Code of the function of this index itself.
    Function(u32),
    /// Code inlined at a line of another context.
    Inlined {
        /// Index of the caller's context, lower than this one's.
        caller: u32,
        /// Line of the call; 0 = none.
        line: u32,
    },
}

impl Shape {
    /// From the section's prefix, its size in bytes and its count.
    pub(crate) fn new(prefix: &[u8; PREFIX_BYTES], size: u64, count: u64) -> Result<Self, OpenError> {
        let [place, distance, value, zero, ..] = *prefix;
        let widths = [place, distance, value];
        if widths.iter().any(|width| *width > MAX_BITS) || zero != 0 {
            return Err(fault("has impossible widths"));
        }
        let shape = u32::try_from(count).ok().map(|count| Self { count, inlined: u32_at(prefix, 4), widths });
        // 2^32 contexts of 96 bits: no overflow.
        let expected = |shape: &Self| (u64::from(shape.count) * shape.stride() as u64).div_ceil(8) + TAIL as u64;
        shape
            // Contexts of no bits are all the same one: more than one would be a way to ask for much with few bytes.
            .filter(|shape| shape.count <= 1 || shape.stride() > 0)
            .filter(|shape| size.checked_sub(PREFIX_BYTES as u64) == Some(expected(shape)))
            .ok_or(fault("has another size than its records"))
    }

    /// Bits of one context.
    #[inline(always)]
    pub(crate) fn stride(&self) -> usize {
        self.widths.iter().map(|width| usize::from(*width)).sum()
    }

    /// The context of this index, which begins at bit `at` of `bytes`.
    #[inline(always)]
    pub(crate) fn decode(&self, bytes: &[u8], at: usize, index: u32) -> Option<Context> {
        let [place_bits, distance_bits, value_bits] = self.widths;
        let place = bits(bytes, at, place_bits)?;
        let at = at + usize::from(place_bits);
        let distance = bits(bytes, at, distance_bits)?;
        let value = bits(bytes, at + usize::from(distance_bits), value_bits)?;
        let origin = match distance {
            0 => Origin::Function(value),
            // Callers come before what they call, so that no chain returns to itself.
            distance => Origin::Inlined { caller: index.checked_sub(distance)?, line: value },
        };
        Some(Context { place, origin })
    }
}

fn fault(problem: &'static str) -> OpenError {
    OpenError::Section { id: SectionId::Contexts.number(), problem }
}

impl<'a> Contexts<'a> {
    pub(crate) fn new(section: &'a [u8], count: u64) -> Result<Self, OpenError> {
        let (prefix, bytes) = section.split_first_chunk::<PREFIX_BYTES>().ok_or(fault("has no widths"))?;
        Ok(Self { bytes, shape: Shape::new(prefix, section.len() as u64, count)? })
    }

    pub(crate) fn count(&self) -> u32 {
        self.shape.count
    }

    /// How many contexts are inlined, as the section says.
    pub(crate) fn inlined(&self) -> u32 {
        self.shape.inlined
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<Context> {
        if index >= self.shape.count {
            return None;
        }
        self.shape.decode(self.bytes, index as usize * self.shape.stride(), index)
    }
}
