//! aarch64: `swapcontext` puts an address of its own into the link register, to be gone on at by the other context, and its entry takes that for its
//! caller's. From there on its return address is in the context alone, until it is moved back.

use alloc::vec::Vec;

use super::{Part, Truth};

const WORD: usize = 4;
/// `adr x30, …`, the distance left out.
const ADR_X30: u32 = 0x1000_001e;
/// `stp xzr, x30, [x0, #184]`, which keeps the return address just before.
const KEEPS: u32 = 0xa90b_f81f;
/// `mov x30, x1`, which brings it back behind the address that was put there, …
const RETURNS: u32 = 0xaa01_03fe;
/// …in so many instructions.
const MOST_BEFORE: usize = 4;

pub(super) fn parts(bytes: &[u8]) -> Vec<Part> {
    let (words, _) = bytes.as_chunks::<WORD>();
    let word = |at: usize| words.get(at).map(|word| u32::from_le_bytes(*word));
    let is_kept = |at: &usize| word(*at) == Some(KEEPS);
    let parts = (0..words.len()).filter(is_kept).filter_map(|kept| {
        let goes_on = kept + 1 + ahead(word(kept + 1)?)?;
        let returns = (goes_on..goes_on + MOST_BEFORE).find(|at| word(*at) == Some(RETURNS))?;
        Some(((kept + 2) * WORD..(returns + 1) * WORD, Truth::Nothing))
    });
    parts.collect()
}

/// How many instructions ahead `adr x30, …` points.
fn ahead(word: u32) -> Option<usize> {
    let (low, high) = (word >> 29 & 3, word >> 5 & 0x7_ffff);
    let is_ahead = high < 1 << 18;
    (word & 0x9f00_001f == ADR_X30 && low == 0 && is_ahead).then_some(high as usize)
}

#[cfg(test)]
mod tests {
    use super::super::tests::told;
    use super::*;
    use crate::arch::Arch;
    use crate::rule::ReturnAddress;

    const NOP: u32 = 0xd503_201f;
    const RET: u32 = 0xd65f_03c0;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn nothing_is_true_while_the_link_register_has_an_address_of_the_function_s_own() {
        let held = Some(ReturnAddress::InRegister(30));
        // adr x30, five instructions ahead.
        let adr = ADR_X30 | 5 << 5;
        let code = bytes(&[NOP, KEEPS, adr, NOP, NOP, NOP, RET, NOP, RETURNS, RET]);
        assert_eq!(told(Arch::Aarch64, &code), (Vec::from([(0, held), (12, None), (36, held)]), 1));
        let back = bytes(&[NOP, KEEPS, ADR_X30 | 0x7_ffff << 5, RETURNS, RET]);
        assert_eq!(told(Arch::Aarch64, &back), (Vec::from([(0, held)]), 0));
        let without = bytes(&[NOP, KEEPS, adr, NOP, NOP, NOP, RET, NOP, NOP, NOP, NOP, RETURNS]);
        assert_eq!(told(Arch::Aarch64, &without), (Vec::from([(0, held)]), 0));
    }
}
