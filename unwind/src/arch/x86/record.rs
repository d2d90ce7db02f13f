//! Whether code lets the frame pointer point to something else than a frame record: compilers that need it for nothing else keep the address of a local
//! there, and a local that was not written yet may hold the record of a call that is over.

use super::ahead::keeps_stack;
use super::length::Mode;

/// `push rbp`.
const PUSH: u8 = 0x55;
/// The prefix that makes it `push r13`.
const REX_B: u8 = 0x41;
/// The prefix of operands of 64 bits.
const REX_W: u8 = 0x48;
/// `mov rbp, rsp`, in both encodings.
const MOVES: [[u8; 3]; 2] = [[0x48, 0x89, 0xe5], [0x48, 0x8b, 0xec]];
/// `lea rbp, [rsp + …]` with a displacement of 8 and of 32 bits.
const SHORT_ADDRESS: [u8; 4] = [0x48, 0x8d, 0x6c, 0x24];
const LONG_ADDRESS: [u8; 4] = [0x48, 0x8d, 0xac, 0x24];
/// What compilers put between the two instructions of a prologue, in bytes.
const LONGEST_BETWEEN: usize = 24;

/// Whether the last instruction in `code` that sets the frame pointer by the stack pointer lets it point to no record. AMD64 alone.
pub(crate) fn points_elsewhere(code: &[u8]) -> bool {
    for at in (0..code.len()).rev() {
        // All of them begin so, and little else does.
        if code.get(at) != Some(&REX_W) {
            continue;
        }
        let (before, here) = code.split_at_checked(at).unwrap_or_default();
        if MOVES.iter().any(|moves| here.starts_with(moves)) {
            return !has_pushed(before);
        }
        if let Some([displacement, ..]) = here.strip_prefix(&SHORT_ADDRESS) {
            return !has_made_room(before, &[*displacement]);
        }
        if let Some(displacement) = here.strip_prefix(&LONG_ADDRESS).and_then(|rest| rest.first_chunk::<4>()) {
            return !has_made_room(before, displacement);
        }
    }
    false
}

/// Whether the frame pointer was pushed in `code`, and what follows leaves it on top of the stack.
fn has_pushed(code: &[u8]) -> bool {
    let from = code.len().saturating_sub(LONGEST_BETWEEN);
    (from..code.len()).rev().any(|at| {
        let is_push = code.get(at) == Some(&PUSH) && (at == 0 || code.get(at - 1) != Some(&REX_B));
        is_push && code.get(at + 1..).is_some_and(|between| keeps_stack(between, Mode::Bits64))
    })
}

/// Whether `code` ends by putting the frame pointer to where the address with this displacement is (Go before 1.21), or by making as much room below it
/// (LLVM for Windows).
fn has_made_room(code: &[u8], displacement: &[u8]) -> bool {
    let ends = |instruction: &[u8]| code.strip_suffix(displacement).is_some_and(|code| code.ends_with(instruction));
    match displacement.len() {
        1 => ends(&[0x48, 0x89, 0x6c, 0x24]) || ends(&[0x48, 0x83, 0xec]),
        _ => ends(&[0x48, 0x89, 0xac, 0x24]) || ends(&[0x48, 0x81, 0xec]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_told_from_the_address_of_a_local() {
        let check = |code: &[u8], expected| assert_eq!(points_elsewhere(code), expected, "{code:x?}");
        // push rbp; mov rbp, rsp; sub rsp, 16
        check(&[0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10], false);
        check(&[0x55, 0x48, 0x8b, 0xec], false);
        // push rbp; xor eax, eax; mov rbp, rsp, as GCC orders them.
        check(&[0x55, 0x31, 0xc0, 0x48, 0x89, 0xe5], false);
        // push rbp; push rbx; sub rsp, 40; mov ebx, edi; mov rbp, rsp
        check(&[0x55, 0x53, 0x48, 0x83, 0xec, 0x28, 0x89, 0xfb, 0x48, 0x89, 0xe5], true);
        // push r13; mov rbp, rsp
        check(&[0x41, 0x55, 0x48, 0x89, 0xe5], true);
        // push rbp; sub rsp, 32; lea rbp, [rsp + 16]; and with 32, where the register was pushed.
        check(&[0x55, 0x48, 0x83, 0xec, 0x20, 0x48, 0x8d, 0x6c, 0x24, 0x10], true);
        check(&[0x55, 0x48, 0x83, 0xec, 0x20, 0x48, 0x8d, 0x6c, 0x24, 0x20], false);
        // mov [rsp + 24], rbp; lea rbp, [rsp + 24]
        check(&[0x48, 0x89, 0x6c, 0x24, 0x18, 0x48, 0x8d, 0x6c, 0x24, 0x18], false);
        check(&[0x48, 0x89, 0xac, 0x24, 0, 1, 0, 0, 0x48, 0x8d, 0xac, 0x24, 0, 1, 0, 0], false);
        // The last one counts, if it is whole.
        check(&[0x55, 0x48, 0x89, 0xe5, 0xc9, 0xc3, 0x48, 0x8d, 0x6c, 0x24, 0x10], true);
        check(&[0x55, 0x48, 0x89, 0xe5, 0xc9, 0xc3, 0x48, 0x8d, 0x6c, 0x24], false);
        check(&[], false);
    }
}
