//! MIPS, o32: the stack pointer is loaded two instructions before the return address.

use alloc::vec::Vec;

use memchr::memmem;

use super::{Part, Truth};

const WORD: usize = 4;
/// `lw $sp, 272($v0); lw $fp, 280($v0); lw $ra, 288($v0); lw $t9, 32($v0)`: where a `ucontext_t` has them, each in eight bytes.
const LOADS: [u32; 4] = [0x8c5d_0110, 0x8c5e_0118, 0x8c5f_0120, 0x8c59_0020];
/// `jr $t9`, which a delay slot follows.
const JUMPS: u32 = 0x0320_0008;

pub(super) fn big(bytes: &[u8]) -> Vec<Part> {
    // The lower word is the second one.
    parts(bytes, LOADS.map(|load| load + WORD as u32), u32::to_be_bytes)
}

pub(super) fn little(bytes: &[u8]) -> Vec<Part> {
    parts(bytes, LOADS, u32::to_le_bytes)
}

fn parts(bytes: &[u8], [sp, fp, ra, t9]: [u32; 4], in_order: fn(u32) -> [u8; WORD]) -> Vec<Part> {
    let switch = [sp, fp, ra, t9, JUMPS].map(in_order);
    let found = memmem::find_iter(bytes, switch.as_flattened());
    let parts = found.flat_map(|at| {
        let behind = |instructions: usize| at + instructions * WORD;
        [(behind(1)..behind(3), Truth::Nothing), (behind(3)..behind(switch.len() + 1), Truth::AsEntered)]
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::told;
    use super::*;
    use crate::arch::Arch;
    use crate::rule::ReturnAddress;

    #[test]
    fn nothing_is_true_before_the_return_address_is_loaded() {
        let held = Some(ReturnAddress::InRegister(31));
        // lw $sp, 276($v0) and so on; jr $t9; move $v0, $zero.
        let words: [u32; 6] = [0x8c5d_0114, 0x8c5e_011c, 0x8c5f_0124, 0x8c59_0024, 0x0320_0008, 0x0000_1025];
        let big = words.map(u32::to_be_bytes);
        let words: [u32; 6] = [0x8c5d_0110, 0x8c5e_0118, 0x8c5f_0120, 0x8c59_0020, 0x0320_0008, 0x0000_1025];
        let little = words.map(u32::to_le_bytes);
        for (arch, switch) in [(Arch::Mips32, big), (Arch::Mips32Little, little)] {
            let code = [&[0; WORD][..], switch.as_flattened(), &[0; WORD]].concat();
            assert_eq!(told(arch, &code), (Vec::from([(0, held), (8, None), (16, held), (28, held)]), 1));
        }
    }
}
