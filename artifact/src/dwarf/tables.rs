//! Tables of DWARF 5 that consist of parts with a header each: range lists, addresses. (DWARF 5, 7.27 and 7.28)

use crate::cursor::{Cursor, Damaged, Result};

/// Zeros between two parts: what aligns one, and less than an interrupted copy leaves.
const MOST_PADDING: usize = 15;

/// Zeros in a row within a list: two addresses that the linker put to 0, and the ends of some lists, are fewer.
const HOLE: usize = 64;

/// Whether a section consists of such parts to its end, without a hole.
pub(super) fn are_whole(section: &[u8], is_little_endian: bool) -> bool {
    if section.split(|byte| *byte != 0).any(|zeros| zeros.len() >= HOLE) {
        return false;
    }
    let mut rest = section;
    while !rest.is_empty() {
        let Ok(behind) = part(rest, is_little_endian) else {
            let zeros = rest.iter().take(MOST_PADDING + 1).take_while(|byte| **byte == 0).count();
            if zeros == 0 || zeros > MOST_PADDING {
                return false;
            }
            rest = rest.get(zeros..).unwrap_or_default();
            continue;
        };
        rest = behind;
    }
    true
}

/// Whether the header of a part stands in front of the addresses that start at `base`, or in front of all: Go's linker writes one for all its units.
pub(super) fn has_address_header(section: &[u8], base: u64, offset_size: u8, is_little_endian: bool) -> bool {
    // The length, in the 64-bit format behind a mark, the version, and two sizes.
    let header = if offset_size == 8 { 16 } else { 8 };
    let start = base.checked_sub(header).and_then(|start| usize::try_from(start).ok());
    let own = start.and_then(|start| section.get(start..)).unwrap_or_default();
    [own, section].into_iter().any(|rest| part(rest, is_little_endian).is_ok())
}

/// What is behind the part at the beginning.
fn part(section: &[u8], is_little_endian: bool) -> Result<&[u8]> {
    let mut cursor = Cursor::new(section, is_little_endian);
    let length = match cursor.unsigned(4)? {
        0xffff_ffff => cursor.unsigned(8)?,
        length => length,
    };
    let mut header = Cursor::new(cursor.bytes(usize::try_from(length).map_err(|_| Damaged)?)?, is_little_endian);
    let is_known = header.unsigned(2)? == 5 && matches!(header.u8()?, 2 | 4 | 8);
    let behind = cursor.remaining();
    section.get(section.len() - behind..).filter(|_| is_known).ok_or(Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part with so many bytes behind its header.
    fn made(bytes: &[u8]) -> Vec<u8> {
        let length = u32::try_from(bytes.len() + 4).unwrap_or_default();
        [&length.to_le_bytes()[..], &[5, 0, 8, 0], bytes].concat()
    }

    #[test]
    fn parts_stand_one_behind_the_other_and_are_aligned_at_most() {
        let (one, other) = (made(&[7; 9]), made(&[1]));
        assert!(are_whole(&[], true) && are_whole(&one, true));
        assert!(are_whole(&[&one[..], &[0; 3], &other].concat(), true));
        assert!(are_whole(&[&one[..], &[0; 15]].concat(), true));
        for behind in [&[0; 16][..], &[0xff; 3], &other[..8]] {
            assert!(!are_whole(&[&one[..], behind].concat(), true), "{behind:?}");
        }
        assert!(!are_whole(&[0; 40], true));
        assert!(are_whole(&made(&[0; 50]), true) && !are_whole(&made(&[0; 64]), true), "a hole");
    }

    #[test]
    fn addresses_have_a_header_of_their_own_or_one_for_all() {
        let tables = [made(&[1; 16]), made(&[2; 8])].concat();
        assert!(has_address_header(&tables, 8, 4, true) && has_address_header(&tables, 32, 4, true));
        assert!(has_address_header(&tables, 16, 4, true), "one for all");
        let damaged = [vec![0xff; 24], made(&[2; 8])].concat();
        assert!(!has_address_header(&damaged, 8, 4, true) && has_address_header(&damaged, 32, 4, true));
    }
}
