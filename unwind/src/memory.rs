//! Where the engine reads stack words.

use symseal_module::Avma;

/// Bytes of the unwound process. They are given as little-endian numbers, whatever the order of the process is.
pub trait Memory {
    /// The eight bytes at `address`, or `None` where one is not known. Must not block for long: it is called twice a frame.
    fn read_u64(&self, address: Avma) -> Option<u64>;

    /// The four bytes at `address`; asked for words of 32-bit processors.
    fn read_u32(&self, address: Avma) -> Option<u32> {
        // At the end of what is known there are no eight bytes from here on, but there may be eight up to here.
        let above = self.read_u64(address).map(|bytes| bytes as u32);
        above.or_else(|| Some((self.read_u64(address.checked_sub(4)?)? >> 32) as u32))
    }

    /// Touches the bytes at `address` where they are at hand, in memory of the reader's own: the walk will likely want bytes near them a few frames
    /// later, and the processor fetches their line in the meantime. Nobody looks at what is returned. Must not copy, ask or wait.
    #[inline(always)]
    fn prefetch(&self, address: Avma) -> u64 {
        let _ = address;
        0
    }

    /// Whether the bytes at `a` and `b` belong to one stack, as far as is known.
    ///
    /// Asked only before a frame pointer is followed without a rule: in a signal handler on an alternate stack it may
    /// still be that of the interrupted code, and following it would skip the frames between. A memory that knows one
    /// stack alone, or cannot tell, says yes.
    fn same_stack(&self, a: Avma, b: Avma) -> bool {
        let _ = (a, b);
        true
    }
}

impl<M: Memory + ?Sized> Memory for &M {
    #[inline]
    fn read_u64(&self, address: Avma) -> Option<u64> {
        (**self).read_u64(address)
    }

    #[inline]
    fn read_u32(&self, address: Avma) -> Option<u32> {
        (**self).read_u32(address)
    }

    #[inline(always)]
    fn prefetch(&self, address: Avma) -> u64 {
        (**self).prefetch(address)
    }

    #[inline]
    fn same_stack(&self, a: Avma, b: Avma) -> bool {
        (**self).same_stack(a, b)
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

impl StackBytes<'_> {
    fn holds(&self, address: Avma) -> bool {
        // A difference below zero wraps to one past the end.
        address.0.wrapping_sub(self.start.0) < self.bytes.len() as u64
    }
}

impl Memory for StackBytes<'_> {
    #[inline]
    fn read_u64(&self, address: Avma) -> Option<u64> {
        // Wrapping on purpose: an address below `start` becomes an offset past the end.
        let offset = usize::try_from(address.0.wrapping_sub(self.start.0)).ok()?;
        let word = self.bytes.get(offset..)?.first_chunk::<8>()?;
        Some(u64::from_le_bytes(*word))
    }

    #[inline]
    fn read_u32(&self, address: Avma) -> Option<u32> {
        let offset = usize::try_from(address.0.wrapping_sub(self.start.0)).ok()?;
        let word = self.bytes.get(offset..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*word))
    }

    #[inline(always)]
    fn prefetch(&self, address: Avma) -> u64 {
        self.read_u64(address).unwrap_or(0)
    }
}

/// Copies of several ranges, such as a thread's stack and its alternate signal stack. The first range that
/// holds the whole word counts.
///
/// Each region counts as a stack of its own: no frame pointer leads from one into another. A caller whose regions may be
/// pieces of one stack joins them, or implements [`Memory::same_stack`] by what they were copied from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackRegions<'a>(pub &'a [StackBytes<'a>]);

impl Memory for StackRegions<'_> {
    #[inline]
    fn read_u64(&self, address: Avma) -> Option<u64> {
        self.0.iter().find_map(|region| region.read_u64(address))
    }

    #[inline]
    fn read_u32(&self, address: Avma) -> Option<u32> {
        self.0.iter().find_map(|region| region.read_u32(address))
    }

    fn same_stack(&self, a: Avma, b: Avma) -> bool {
        self.0.iter().any(|region| region.holds(a) && region.holds(b))
    }
}
