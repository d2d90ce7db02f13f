//! Linkage tables of 32-bit ARM. An entry only jumps; the common one pushes lr on the way to the loader. Tables are ARM code, and an entry that
//! Thumb code jumps to begins with a change of the set. (ELF for the Arm Architecture, IHI 0044, "PLT Sequences and Usage Models")

use alloc::vec::Vec;
use core::ops::Range;

use super::{Plt, push, words};
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved};

const LINK: u8 = 14;
/// `push {lr}`, as `str lr, [sp, #-4]!`.
const PUSH: u32 = 0xe52d_e004;
/// `bx pc; nop` of Thumb, and `bx pc; b .-2`.
const CHANGES: [u32; 2] = [0x46c0_4778, 0xe7fd_4778];

/// The rules of `plt` by rising address; `None` where it holds an instruction that linkers do not put there.
pub(super) fn rules(plt: &Plt<'_>) -> Option<Vec<(Range<u64>, Rule)>> {
    let words = words(plt)?;
    let rule = |words, ra| Rule::new(Kind::Sp, RuleSource::Plt, 0, words, ra, Saved::Same);
    let (jumps, pushed) = (rule(0, ReturnAddress::InRegister(LINK))?, rule(1, ReturnAddress::AtCfa(-1))?);
    let mut rules = Vec::new();
    let mut is_pushed = false;
    let mut has_data = false;
    for (start, word) in (plt.range.start..).step_by(4).zip(words) {
        let word = u32::from_le_bytes(*word);
        push(&mut rules, start..start.checked_add(4)?, if is_pushed { pushed } else { jumps });
        match word {
            PUSH if !is_pushed => is_pushed = true,
            // ldr lr, [pc, #4]; add lr, pc, lr
            0xe59f_e004 | 0xe08f_e00e if is_pushed => {}
            // ldr pc, [lr, #8]!, and the distance of the table behind it
            0xe5be_f008 if is_pushed => (is_pushed, has_data) = (false, true),
            _ if CHANGES.contains(&word) && !is_pushed => {}
            _ if is_address_computation(word) => {}
            // ldr pc, [ip, #x]!
            _ if word & 0xffff_f000 == 0xe5bc_f000 => {}
            _ if has_data => has_data = false,
            _ => return None,
        }
    }
    Some(rules)
}

/// `add ip, pc, #x` and `add ip, ip, #x`.
fn is_address_computation(word: u32) -> bool {
    matches!(word & 0xffff_f000, 0xe28f_c000 | 0xe28c_c000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;
    use alloc::string::ToString;

    #[test]
    fn the_common_entry_pushes_the_return_address_and_the_others_do_not() {
        let words: [u32; 9] = [
            0xe52d_e004, // push {lr}
            0xe59f_e004, // ldr lr, [pc, #4]
            0xe08f_e00e, // add lr, pc, lr
            0xe5be_f008, // ldr pc, [lr, #8]!
            0x0001_0b34, // a distance
            0xe28f_c600, // add ip, pc, #0
            0xe28c_ca10, // add ip, ip, #16, 20
            0xe5bc_fb34, // ldr pc, [ip, #2868]!
            0xe7fd_4778,
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let plt = Plt { range: 0x1000..0x1024, entry_size: 4, bytes: &bytes };
        let found: Vec<_> = rules(&plt)
            .expect("a known form")
            .into_iter()
            .map(|(range, rule)| (range, rule.display(Arch::Arm).to_string()))
            .collect();
        let (jumps, pushed) = ("CFA = sp+0; RA = lr", "CFA = sp+4; RA = [CFA-4]");
        let expected = [(0x1000..0x1004, jumps), (0x1004..0x1010, pushed), (0x1010..0x1024, jumps)];
        assert!(found.iter().map(|(range, rule)| (range.clone(), rule.as_str())).eq(expected), "{found:?}");
        let bytes = 0xe24d_d010_u32.to_le_bytes(); // sub sp, sp, #16
        assert_eq!(rules(&Plt { range: 0..4, entry_size: 4, bytes: &bytes }), None);
    }
}
