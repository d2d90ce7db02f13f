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
    count: u32,
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

impl<'a> Contexts<'a> {
    pub(crate) fn new(section: &'a [u8], count: u64) -> Result<Self, OpenError> {
        let fault = |problem| OpenError::Section { id: SectionId::Contexts.number(), problem };
        let (widths, bytes) = section.split_first_chunk::<PREFIX_BYTES>().ok_or(fault("has no widths"))?;
        let inlined = u32_at(widths, 4);
        let [place, distance, value, zero, ..] = *widths;
        let widths = [place, distance, value];
        if widths.iter().any(|width| *width > MAX_BITS) || zero != 0 {
            return Err(fault("has impossible widths"));
        }
        let contexts = u32::try_from(count).ok().map(|count| Self { bytes, count, inlined, widths });
        let size =
            |contexts: &Self| (contexts.count as usize).checked_mul(contexts.stride()).map(|bits| bits.div_ceil(8));
        contexts
            // Contexts of no bits are all the same one: more than one would be a way to ask for much with few bytes.
            .filter(|contexts| contexts.count <= 1 || contexts.stride() > 0)
            .filter(|contexts| size(contexts).and_then(|size| size.checked_add(TAIL)) == Some(bytes.len()))
            .ok_or(fault("has another size than its records"))
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// How many contexts are inlined, as the section says.
    pub(crate) fn inlined(&self) -> u32 {
        self.inlined
    }

    #[inline(always)]
    fn stride(&self) -> usize {
        self.widths.iter().map(|width| usize::from(*width)).sum()
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<Context> {
        if index >= self.count {
            return None;
        }
        let [place_bits, distance_bits, value_bits] = self.widths;
        let at = index as usize * self.stride();
        let place = bits(self.bytes, at, place_bits)?;
        let at = at + usize::from(place_bits);
        let distance = bits(self.bytes, at, distance_bits)?;
        let value = bits(self.bytes, at + usize::from(distance_bits), value_bits)?;
        let origin = match distance {
            0 => Origin::Function(value),
            // Callers come before what they call, so that no chain returns to itself.
            distance => Origin::Inlined { caller: index.checked_sub(distance)?, line: value },
        };
        Some(Context { place, origin })
    }
}
