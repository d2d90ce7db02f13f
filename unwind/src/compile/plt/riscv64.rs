//! Linkage tables of 64-bit RISC-V. An entry jumps with its own address in t1; the common one keeps the return address in its register on the way to the
//! loader. (RISC-V ELF psABI, "Procedure Linkage Table")
//!
//! CFA = sp; RA = ra.

use alloc::vec::Vec;
use core::ops::Range;

use super::{Plt, push, words};
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved};

const LINK: u8 = 1;
/// Instructions of tables write t0–t3 alone.
const SCRATCH: [u32; 4] = [5, 6, 7, 28];

/// The rules of `plt` by rising address; `None` where it holds an instruction that linkers do not put there.
pub(super) fn rules(plt: &Plt<'_>) -> Option<Vec<(Range<u64>, Rule)>> {
    let words = words(plt)?;
    let ra = ReturnAddress::InRegister(LINK);
    let rule = Rule::new(Kind::Sp, RuleSource::Plt, 0, 0, ra, Saved::Same)?;
    let mut rules = Vec::new();
    for (start, word) in (plt.range.start..).step_by(4).zip(words) {
        if !leaves_frames_alone(u32::from_le_bytes(*word)) {
            return None;
        }
        push(&mut rules, start..start.checked_add(4)?, rule);
    }
    Some(rules)
}

/// `auipc`, `ld`, `addi`, `srli`, `sub` to temporaries; `jalr` that links to one or to none; `nop`.
fn leaves_frames_alone(word: u32) -> bool {
    let to_scratch = SCRATCH.contains(&(word >> 7 & 31));
    match word & 0x7f {
        0x17 | 0x03 | 0x33 => to_scratch,
        0x13 => to_scratch || word == 0x13,
        0x67 => to_scratch || word >> 7 & 31 == 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;
    use alloc::string::ToString;

    #[test]
    fn a_linkage_table_keeps_the_return_address_in_its_register() {
        let words: [u32; 12] = [
            0x0000_2397, // auipc t2, 2
            0x41c3_0333, // sub t1, t1, t3
            0x9e03_be03, // ld t3, -1568(t2)
            0xfd43_0313, // addi t1, t1, -44
            0x9e03_8293, // addi t0, t2, -1568
            0x0013_5313, // srli t1, t1, 1
            0x0082_b283, // ld t0, 8(t0)
            0x000e_0067, // jr t3
            0x0000_2e17, // auipc t3, 2
            0x9d0e_3e03, // ld t3, -1584(t3)
            0x000e_0367, // jalr t1, t3
            0x0000_0013, // nop
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let plt = Plt { range: 0x1000..0x1030, entry_size: 16, bytes: &bytes };
        let found: Vec<_> = rules(&plt)
            .expect("a known form")
            .into_iter()
            .map(|(range, rule)| (range, rule.display(Arch::Riscv64).to_string()))
            .collect();
        assert_eq!(found, [(0x1000..0x1030, "CFA = sp+0; RA = ra".to_string())]);
        let bytes = 0xfe01_0113_u32.to_le_bytes(); // addi sp, sp, -32
        assert_eq!(rules(&Plt { range: 0..4, entry_size: 16, bytes: &bytes }), None);
    }
}
