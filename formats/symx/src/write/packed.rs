//! Records in as few bits as their fields take.

use crate::bits::{BitWriter, TAIL, width_of};
use alloc::vec::Vec;

/// A section, and how much it holds.
#[derive(Default)]
pub(super) struct Counted {
    pub(super) bytes: Vec<u8>,
    pub(super) count: u64,
}

/// How many bits the largest value of each field takes.
pub(super) fn widths<const N: usize>(records: impl Iterator<Item = [u32; N]>) -> [u8; N] {
    let mut all = [0; N];
    for record in records {
        // The bits of all values together are as many as those of the largest.
        all.iter_mut().zip(record).for_each(|(all, field)| *all |= field);
    }
    all.map(width_of)
}

/// Packs records behind what `out` has, which are whole bytes.
pub(super) fn pack<const N: usize>(
    mut out: BitWriter,
    records: impl ExactSizeIterator<Item = [u32; N]>,
    widths: [u8; N],
) -> Counted {
    let count = records.len();
    out.bytes.reserve_exact(packed_bytes(count, widths));
    for record in records {
        record.into_iter().zip(widths).for_each(|(field, width)| out.put(field, width));
    }
    out.align();
    out.bytes.extend([0; TAIL]);
    Counted { bytes: out.bytes, count: count as u64 }
}

/// The bytes that [`pack`] appends.
pub(super) fn packed_bytes<const N: usize>(count: usize, widths: [u8; N]) -> usize {
    let bits: usize = widths.into_iter().map(usize::from).sum();
    (count * bits).div_ceil(8) + TAIL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_has_as_many_bytes_as_was_said() {
        for count in 0..40u32 {
            for most in [0, 1, 6, 300, u32::MAX] {
                let records = || (0..count as usize).map(|at| [at as u32, most, most / 7]);
                let widths = widths(records());
                let mut head = BitWriter::default();
                head.bytes.extend([1, 2, 3]);
                let packed = pack(head, records(), widths);
                assert_eq!(
                    packed.bytes.len(),
                    3 + packed_bytes(count as usize, widths),
                    "{count} records of {widths:?}"
                );
                assert_eq!(packed.count, u64::from(count));
            }
        }
    }
}
