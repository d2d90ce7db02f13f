//! Linkage tables of 64-bit ARM. An entry only jumps; the common one pushes the return address beside the entry's slot. (ELF for
//! the Arm 64-bit Architecture, "PLT Sequences and Usage Models")

use alloc::vec::Vec;
use core::ops::Range;

use super::{Plt, push, words};
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved};

const LINK: u8 = 30;
/// `stp x16, x30, [sp, #-16]!`
const PUSH: u32 = 0xa9bf_7bf0;
/// `bti c`
const BTI: u32 = 0xd503_245f;
const NOP: u32 = 0xd503_201f;

/// The rules of `plt` by rising address; `None` where it holds an instruction that linkers do not put there.
pub(super) fn rules(plt: &Plt<'_>) -> Option<Vec<(Range<u64>, Rule)>> {
    let words = words(plt)?;
    let rule = |words, ra| Rule::new(Kind::Sp, RuleSource::Plt, 0, words, ra, Saved::Same);
    let (jumps, pushed) = (rule(0, ReturnAddress::InRegister(LINK))?, rule(2, ReturnAddress::AtCfa(-1))?);
    let mut rules = Vec::new();
    let mut is_pushed = false;
    for (start, word) in (plt.range.start..).step_by(4).zip(words) {
        let word = u32::from_le_bytes(*word);
        push(&mut rules, start..start.checked_add(4)?, if is_pushed { pushed } else { jumps });
        match word {
            PUSH if !is_pushed => is_pushed = true,
            // The jump ends the entry.
            _ if word & 0xffff_fc1f == 0xd61f_0000 || word & 0xffff_f800 == 0xd71f_0800 => is_pushed = false,
            BTI | NOP => {}
            _ if is_address_computation(word) => {}
            // lld's `b` from an entry, or the authentication of the target.
            _ if word & 0xffff_fbff == 0xdac1_1a30 || word == 0xd503_219f => {}
            _ => return None,
        }
    }
    Some(rules)
}

/// `adrp`, `ldr` and `add` with the two registers that belong to linkage tables, x16 and x17.
fn is_address_computation(word: u32) -> bool {
    let to_scratch = matches!(word & 31, 16 | 17);
    let is_adrp = word & 0x9f00_0000 == 0x9000_0000;
    let is_ldr = word & 0xffc0_0000 == 0xf940_0000;
    let is_add = word & 0xff80_0000 == 0x9100_0000;
    to_scratch && (is_adrp || is_ldr || is_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;
    use alloc::string::ToString;

    #[test]
    fn the_common_entry_pushes_the_return_address_and_the_others_do_not() {
        let words: [u32; 12] = [
            0xa9bf_7bf0,
            0x9000_0090,
            0xf947_fe11,
            0x913f_e210,
            0xd61f_0220,
            NOP,
            NOP,
            NOP, // the common entry
            0x9000_0090,
            0xf940_0211,
            0x9100_0210,
            0xd61f_0220,
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let plt = Plt { range: 0x1000..0x1030, entry_size: 0, bytes: &bytes };
        let found: Vec<_> = rules(&plt)
            .expect("a known form")
            .into_iter()
            .map(|(range, rule)| (range, rule.display(Arch::Aarch64).to_string()))
            .collect();
        let (jumps, pushed) = ("CFA = sp+0; RA = x30", "CFA = sp+16; RA = [CFA-8]");
        let expected = [(0x1000..0x1004, jumps), (0x1004..0x1014, pushed), (0x1014..0x1030, jumps)];
        assert!(found.iter().map(|(range, rule)| (range.clone(), rule.as_str())).eq(expected), "{found:?}");
    }

    #[test]
    fn a_linkage_table_of_an_unknown_form_is_left_alone() {
        let bytes = 0xd100_83ff_u32.to_le_bytes(); // sub sp, sp, #32
        assert_eq!(rules(&Plt { range: 0..4, entry_size: 0, bytes: &bytes }), None);
        assert_eq!(rules(&Plt { range: 0..8, entry_size: 0, bytes: &bytes }), None);
    }
}
