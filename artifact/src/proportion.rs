//! Parts of a file that may lie over each other, read in proportion to the file.
//!
//! A header of 40 bytes can name the whole file as a section, so that a file of a megabyte may state gigabytes of code.
//! Linkers put sections and segments beside each other; where all parts of a kind are gone through, it is up to
//! [`MOST_READINGS`] times the file's bytes.

/// How often a file's bytes are read at most by going through its parts: twice is met in tiny files made by hand, whose
/// segments all map the whole file.
const MOST_READINGS: u64 = 4;

/// The most bytes that all parts of a file of that size may have together.
pub(crate) fn most_bytes(file_bytes: u64) -> u64 {
    file_bytes.saturating_mul(MOST_READINGS)
}

/// Whether parts of these lengths are not too much for a file of that size.
pub(crate) fn is_in_proportion(file_bytes: u64, lengths: impl Iterator<Item = usize>) -> bool {
    lengths.fold(0_u64, |sum, length| sum.saturating_add(length as u64)) <= most_bytes(file_bytes)
}

/// The parts in their order, up to where they would be too much.
pub(crate) fn in_proportion<T>(
    file_bytes: u64,
    parts: impl Iterator<Item = T>,
    length: impl Fn(&T) -> usize,
) -> impl Iterator<Item = T> {
    let mut left = most_bytes(file_bytes);
    parts.map_while(move |part| {
        left = left.checked_sub(length(&part) as u64)?;
        Some(part)
    })
}
