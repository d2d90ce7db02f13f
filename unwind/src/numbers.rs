//! Columns of numbers that are narrow where none of them is large.

/// Little-endian numbers of one width: `NARROW` bytes each, or `WIDE` ones where a table is too large for that.
///
/// Most of a small table is two such columns, and half of their bytes would be zero.
#[derive(Clone, Copy)]
pub(crate) enum Numbers<'a, const NARROW: usize, const WIDE: usize> {
    Narrow(&'a [[u8; NARROW]]),
    Wide(&'a [[u8; WIDE]]),
}

impl<'a, const NARROW: usize, const WIDE: usize> Numbers<'a, NARROW, WIDE> {
    /// Over the bytes of a section, which must hold `count` of them and nothing else.
    pub(crate) fn over(bytes: &'a [u8], count: usize, narrow: bool) -> Option<Self> {
        let column = if narrow { Self::Narrow(exactly(bytes, count)?) } else { Self::Wide(exactly(bytes, count)?) };
        Some(column)
    }

    pub(crate) fn len(self) -> usize {
        match self {
            Self::Narrow(numbers) => numbers.len(),
            Self::Wide(numbers) => numbers.len(),
        }
    }

    #[inline(always)]
    pub(crate) fn get(self, place: usize) -> Option<usize> {
        match self {
            Self::Narrow(numbers) => numbers.get(place).map(value),
            Self::Wide(numbers) => numbers.get(place).map(value),
        }
    }

    /// The number at `place` and the one behind it.
    #[inline(always)]
    pub(crate) fn pair(self, place: usize) -> Option<[usize; 2]> {
        match self {
            Self::Narrow(numbers) => numbers.get(place..)?.first_chunk::<2>().map(|pair| pair.each_ref().map(value)),
            Self::Wide(numbers) => numbers.get(place..)?.first_chunk::<2>().map(|pair| pair.each_ref().map(value)),
        }
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> + use<'a, NARROW, WIDE> {
        (0..self.len()).map_while(move |place| self.get(place))
    }
}

#[inline(always)]
fn value<const N: usize>(bytes: &[u8; N]) -> usize {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte))
}

fn exactly<const N: usize>(bytes: &[u8], count: usize) -> Option<&[[u8; N]]> {
    let (numbers, rest) = bytes.as_chunks::<N>();
    (rest.is_empty() && numbers.len() == count).then_some(numbers)
}

/// The first `narrow` bytes of each number of `wide` bytes in `column`: those above are zero.
#[cfg(feature = "compile-elf")]
pub(crate) fn narrowed(column: &[u8], wide: usize, narrow: usize) -> alloc::vec::Vec<u8> {
    column.chunks_exact(wide).flat_map(|number| number.iter().take(narrow)).copied().collect()
}
