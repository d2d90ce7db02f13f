//! Where the engine reads stack words.

use symseal_module::Avma;

/// Words of the unwound process, little-endian on all targets so far.
pub trait Memory {
    /// The word at `address`, or `None` where it is not known. Must not block for long: it is called twice a frame.
    fn read_u64(&self, address: Avma) -> Option<u64>;
}

impl<M: Memory + ?Sized> Memory for &M {
    #[inline]
    fn read_u64(&self, address: Avma) -> Option<u64> {
        (**self).read_u64(address)
    }
}

/// A copy of one contiguous range of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackBytes<'a> {
    /// Address of the first byte.
    pub start: Avma,
    /// The bytes from there on.
    pub bytes: &'a [u8],
}

impl Memory for StackBytes<'_> {
    #[inline]
    fn read_u64(&self, address: Avma) -> Option<u64> {
        // Wrapping on purpose: an address below `start` becomes an offset past the end.
        let offset = usize::try_from(address.0.wrapping_sub(self.start.0)).ok()?;
        let word = self.bytes.get(offset..)?.first_chunk::<8>()?;
        Some(u64::from_le_bytes(*word))
    }
}

/// Copies of several ranges, such as a thread's stack and its alternate signal stack. The first range that
/// holds the whole word counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackRegions<'a>(pub &'a [StackBytes<'a>]);

impl Memory for StackRegions<'_> {
    #[inline]
    fn read_u64(&self, address: Avma) -> Option<u64> {
        self.0.iter().find_map(|region| region.read_u64(address))
    }
}
