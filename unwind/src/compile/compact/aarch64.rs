//! What an encoding says of the body of a function of arm64. (`compact_unwind_encoding.h`)
//!
//! * Without a frame record, of `size` times 16 bytes: CFA = sp + 16 · size; RA = lr.
//! * With one: CFA = x29 + 16; RA = [CFA − 8]; x29 = [CFA − 16].
//! * Pairs of registers below that, or below the CFA where there is no record, the n-th of those that are saved, from 0 on: [CFA − 16 · n − 8] and
//!   [CFA − 16 · n − 16], with n from 1 on behind a record.

use super::super::layout::{Layout, Place};
use super::Described;
use crate::arch::Arch;

const WORD: i64 = 8;
const FP: u8 = 29;
/// Pairs of general registers by their bits in encodings. Those of d8–d15, which have no slots, lie below.
const PAIRS: [u8; 5] = [19, 21, 23, 25, 27];

/// What `encoding` says.
pub(super) fn describe(encoding: u32) -> Result<Described, &'static str> {
    let mut layout = Layout::entry(Arch::Aarch64.machine());
    let (has_frame_pointer, mut below) = match encoding >> 24 & 15 {
        // The stack pointer alone moves; the return address stays in its register.
        2 => {
            layout.cfa = 16 * i64::from(encoding >> 12 & 0xfff);
            (false, 0)
        }
        4 => {
            layout.base = FP;
            layout.cfa = 2 * WORD;
            layout.return_address = Place::AtCfa(-WORD);
            layout.save(FP, -2 * WORD);
            (true, -2 * WORD)
        }
        3 => return Err("compact unwind information: a function without the DWARF entry that it is said to have"),
        _ => return Err("compact unwind information: an encoding without a meaning"),
    };
    for (at, first) in PAIRS.iter().enumerate() {
        if encoding >> at & 1 != 0 {
            layout.save(*first, below - WORD);
            layout.save(first + 1, below - 2 * WORD);
            below -= 2 * WORD;
        }
    }
    Ok(Described { layout, has_frame_pointer })
}
