//! Where switches lead: by a table of distances that is read, or to places that nothing else leads to.

use super::super::state::State;
use super::Follower;

impl Follower<'_> {
    /// Follows the cases of a jump table: nothing else leads to them. Nobody may say where the function ends, and another one without a
    /// name may stand behind it. That one shows itself by what it does to the frame: it lowers the stack pointer by a
    /// constant, or returns without having given back the frame of this one. Then nothing is known of it and of what
    /// stands behind it.
    pub(super) fn cases(&mut self) {
        let mut at = 0;
        while let Some(instruction) = self.instruction(at).filter(|_| !self.is_exhausted()) {
            // Cases stand behind their switch.
            let before = self.switches.range(..=at).next_back().or_else(|| self.switches.first_key_value());
            let Some(state) = before.map(|(_, state)| *state) else { return };
            self.turns += 1;
            let is_padding = self.code.get(at..at + instruction.bytes).is_some_and(self.machine.is_padding);
            let is_known = self.states.get(at / self.unit).is_some();
            if !is_known && !is_padding {
                let mark = self.mark();
                (self.is_in_cases, self.is_astray) = (true, false);
                self.called_at = state.depth();
                // What is in the link register by then is no sign: another function may return by it.
                self.lead(at, state.without_own_link());
                self.run();
                if self.is_foreign {
                    return self.take_back(mark);
                }
                // Constants, or what stands before the first instruction that shows the next function.
                if self.is_astray {
                    self.take_back(mark);
                }
                self.log.clear();
            }
            at += instruction.bytes;
        }
    }

    /// Follows a table of distances behind the instruction at `at`, which ends where the nearest place begins that it leads to, or with the last entry that the
    /// code lets through: constants, and code that a branch leads to, may come before that place.
    pub(super) fn table(&mut self, (at, start): (usize, usize), size: usize, state: State) {
        let entries = self.code.get(..start).and_then(|before| entries_of_table(before, start.checked_sub(at)?));
        let mut end = entries.map_or(usize::MAX, |entries| start + entries * size).min(self.code.len());
        let mut at = start;
        while at < end {
            let entry = match (size, self.code.get(at..)) {
                (1, Some([byte, ..])) => usize::from(*byte),
                (2, Some([low, high, ..])) => usize::from(u16::from_le_bytes([*low, *high])),
                _ => return,
            };
            let target = start + 2 * entry;
            end = end.min(target);
            // Code that is no table reads as one that leads everywhere.
            self.turns += 1;
            if self.is_exhausted() {
                return;
            }
            self.lead(target, state);
            at += size;
        }
    }
}

/// How many entries the table has that the last `size` bytes of `code` branch by, if what lets no other index through stands right before them, as
/// GCC writes it: `cmp rN, #last; bhi; tbb [pc, rN]`.
fn entries_of_table(code: &[u8], size: usize) -> Option<usize> {
    let half = |code: &[u8]| Some(u16::from_le_bytes(*code.last_chunk::<2>()?));
    let (before, branch) = code.split_at_checked(code.len().checked_sub(size)?)?;
    let index = half(branch)? & 15;
    // bhi, short and long.
    let short =
        before.strip_suffix(before.last_chunk::<2>()?).filter(|_| half(before).is_some_and(|it| it >> 8 == 0xd8));
    let long = || {
        let (before, branch) = before.split_last_chunk::<4>()?;
        let [first, second] = [half(branch.first_chunk::<2>()?)?, half(branch)?];
        (first & 0xfbc0 == 0xf200 && second & 0xd000 == 0x8000).then_some(before)
    };
    let before = short.or_else(long)?;
    let compare = half(before)?;
    // cmp, short and long.
    if compare >> 8 == 0x28 | index && index < 8 {
        return Some(usize::from(compare & 0xff) + 1);
    }
    let first = half(before.split_last_chunk::<2>()?.0)?;
    (first == 0xf1b0 | index && compare >> 8 == 0x0f).then(|| usize::from(compare & 0xff) + 1)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_table_of_branches_has_no_more_entries_than_the_code_lets_through() {
        // cmp r2, #1; bhi 1f; tbb [pc, r2]; (5, 5); push {r4, lr} of what a branch leads to …
        let halves = |compare: &[u16], branch: &[u16]| {
            let halves: Vec<u16> = compare.iter().chain(branch).chain(&[0xe8df, 0xf002]).copied().collect();
            halves.iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<u8>>()
        };
        let check = |compare: &[u16], branch: &[u16], entries: Option<usize>| {
            assert_eq!(entries_of_table(&halves(compare, branch), 4), entries, "{compare:x?} {branch:x?}");
        };
        check(&[0x2a2e], &[0xd810], Some(47)); // cmp r2, #46; bhi
        check(&[0x2a2e], &[0xf200, 0x8110], Some(47)); // bhi.w
        check(&[0xf1b2, 0x0f05], &[0xd810], Some(6)); // cmp.w r2, #5
        check(&[0x2b2e], &[0xd810], None); // cmp r3
        check(&[0x2a2e], &[0xd910], None); // bls
        check(&[0x2a2e], &[0xf240, 0x8110], None); // bls.w
        check(&[], &[0xd810], None);
        check(&[], &[], None);
    }
}
