//! Linkage tables of 32-bit MIPS: `.plt` of programs at fixed addresses, and `.MIPS.stubs`, through which position-independent
//! code binds functions at their first call. Both keep the stack as it is; on the way to the loader the return address waits
//! in $t7, because the call to the loader takes its register.
//!
//! CFA = sp; RA = $ra, and RA = $t7 between the move there and the end of the jump.

use alloc::vec::Vec;
use core::ops::Range;

use super::{Plt, push, words};
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved};

const LINK: u8 = 31;
/// $t7.
const KEPT_IN: u8 = 15;

/// The rules of `plt` by rising address; `None` where it holds an instruction that linkers do not put there.
pub(super) fn rules(plt: &Plt<'_>, big_endian: bool) -> Option<Vec<(Range<u64>, Rule)>> {
    let words = words(plt)?;
    let rule = |register| {
        let ra = ReturnAddress::InRegister(register);
        Rule::new(Kind::Sp, RuleSource::Plt, 0, 0, ra, Saved::Same)
    };
    let (in_link, kept) = (rule(LINK)?, rule(KEPT_IN)?);
    let mut rules = Vec::new();
    let (mut is_kept, mut ends) = (false, false);
    for (start, word) in (plt.range.start..).step_by(4).zip(words) {
        let word = if big_endian { u32::from_be_bytes(*word) } else { u32::from_le_bytes(*word) };
        push(&mut rules, start..start.checked_add(4)?, if is_kept { kept } else { in_link });
        if ends {
            // This was the delay slot.
            (is_kept, ends) = (false, false);
            continue;
        }
        match word {
            // move $t7, $ra, as addu or as or
            0x03e0_7821 | 0x03e0_7825 => is_kept = true,
            // jalr $t9; jr $t9
            0x0320_f809 | 0x0320_0008 => ends = true,
            _ if is_computation(word) => {}
            _ => return None,
        }
    }
    Some(rules)
}

/// `lui`, `lw`, `addiu`, `ori`, `addu`, `subu`, `srl` of registers that calls do not keep.
fn is_computation(word: u32) -> bool {
    let is_temporary = |register: u32| matches!(register & 31, 0..=15 | 24 | 25 | 28);
    match word >> 26 {
        0x09 | 0x0d | 0x0f | 0x23 => is_temporary(word >> 16),
        0 => matches!(word & 63, 0 | 2 | 0x21 | 0x23 | 0x25) && is_temporary(word >> 11),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;
    use alloc::string::ToString;

    #[test]
    fn a_stub_keeps_the_return_address_in_another_register_once_it_has_called_the_loader() {
        // lw $t9, -32752($gp); move $t7, $ra; jalr $t9; li $t8, 7; and a .plt entry
        let words: [u32; 8] =
            [0x8f99_8010, 0x03e0_7825, 0x0320_f809, 0x2418_0007, 0x3c0f_0041, 0x8df9_0c10, 0x0320_0008, 0x25f8_0c10];
        for big_endian in [true, false] {
            let order = |word: &u32| if big_endian { word.to_be_bytes() } else { word.to_le_bytes() };
            let bytes: Vec<u8> = words.iter().flat_map(order).collect();
            let plt = Plt { range: 0x1000..0x1020, entry_size: 0, bytes: &bytes };
            let found: Vec<_> = rules(&plt, big_endian)
                .expect("a known form")
                .into_iter()
                .map(|(range, rule)| (range, rule.display(Arch::Mips32).to_string()))
                .collect();
            let (in_link, kept) = ("CFA = sp+0; RA = ra", "CFA = sp+0; RA = t7");
            let expected = [(0x1000..0x1008, in_link), (0x1008..0x1010, kept), (0x1010..0x1020, in_link)];
            assert!(found.iter().map(|(range, rule)| (range.clone(), rule.as_str())).eq(expected), "{found:?}");
        }
        let bytes = 0x27bd_ffe0_u32.to_be_bytes(); // addiu $sp, $sp, -32
        assert_eq!(rules(&Plt { range: 0..4, entry_size: 0, bytes: &bytes }, true), None);
    }
}
