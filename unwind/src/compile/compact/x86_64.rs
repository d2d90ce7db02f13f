//! What an encoding says of the body of a function of x86_64. (`compact_unwind_encoding.h`)
//!
//! * With a frame pointer: CFA = rbp + 16; RA = [CFA − 8]; rbp = [CFA − 16]; of up to five registers, the n-th = [CFA − 16 − 8 · offset + 8 · n].
//! * Without: CFA = rsp + 8 · size, or, of a large frame, rsp + the operand of the function's `sub` + 8 · adjust; RA = [CFA − 8]; of `count` registers that
//!   were pushed, the n-th = [CFA − 8 − 8 · count + 8 · n].

use alloc::vec::Vec;

use super::super::layout::Layout;
use super::Described;
use crate::arch::Arch;

const WORD: i64 = 8;
const FP: u8 = 6;
/// DWARF numbers of the registers by their numbers in encodings; 0 is none.
const REGISTERS: [u8; 7] = [0, 3, 12, 13, 14, 15, FP];

/// What `encoding` says; the function's code is asked for the size of a large frame.
pub(super) fn describe(encoding: u32, code: &[u8]) -> Result<Described, &'static str> {
    const INVALID: &str = "compact unwind information: an encoding without a meaning";
    let mut layout = Layout::entry(Arch::X86_64.machine());
    match encoding >> 24 & 15 {
        1 => {
            layout.base = FP;
            layout.cfa = 2 * WORD;
            layout.save(FP, -2 * WORD);
            let lowest = -2 * WORD - WORD * i64::from(encoding >> 16 & 0xff);
            for at in 0..5 {
                let number = (encoding >> (3 * at) & 7) as usize;
                let register = REGISTERS.get(number).ok_or(INVALID)?;
                if number != 0 {
                    layout.save(*register, lowest + WORD * i64::from(at));
                }
            }
            Ok(Described { layout, has_frame_pointer: true })
        }
        mode @ (2 | 3) => {
            let size = encoding >> 16 & 0xff;
            layout.cfa = if mode == 2 {
                WORD * i64::from(size)
            } else {
                // Where in the function the size stands: the operand of `sub`.
                let bytes = code.get(size as usize..).and_then(|code| code.first_chunk::<4>()).ok_or(INVALID)?;
                i64::from(u32::from_le_bytes(*bytes)) + WORD * i64::from(encoding >> 13 & 7)
            };
            let registers = permuted(encoding >> 10 & 7, encoding & 0x3ff).ok_or(INVALID)?;
            let lowest = -WORD - WORD * registers.len() as i64;
            for (at, register) in (0..).zip(registers) {
                layout.save(register, lowest + WORD * at);
            }
            Ok(Described { layout, has_frame_pointer: false })
        }
        4 => Err("compact unwind information: a function without the DWARF entry that it is said to have"),
        _ => Err(INVALID),
    }
}

/// The registers that were pushed, the last first: which and in what order stands in one number, whose digits count registers that are left.
fn permuted(count: u32, mut permutation: u32) -> Option<Vec<u8>> {
    let mut left: Vec<u8> = REGISTERS.iter().skip(1).copied().collect();
    if count as usize > left.len() {
        return None;
    }
    let mut found = Vec::new();
    for at in 0..count {
        // How many orders there are for those that follow.
        let orders: u32 = (at + 1..count).map(|later| 6 - later).product();
        let digit = permutation / orders;
        permutation %= orders;
        if digit as usize >= left.len() {
            return None;
        }
        found.push(left.remove(digit as usize));
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_pushes_is_read_from_its_number() {
        // As LLVM's MachO tests have them: rbx; rbx and r14; all six in order.
        assert_eq!(permuted(1, 0), Some(Vec::from([3])));
        assert_eq!(permuted(2, 3), Some(Vec::from([3, 15])));
        assert_eq!(permuted(6, 0), Some(Vec::from([3, 12, 13, 14, 15, 6])));
        assert_eq!(permuted(0, 0), Some(Vec::new()));
        assert_eq!((permuted(1, 6), permuted(7, 0)), (None, None));
    }
}
