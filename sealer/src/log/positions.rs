//! Where a leaf hash stands in the log, so that an entry is logged once.
//!
//! It is made from the leaf hashes when a log is opened: 16 bytes an entry, sorted. There is no file of it
//! that could be lost, or be older than the log.

use std::collections::HashMap;

use symseal_seal::Hash;

/// Leaf hashes to positions.
#[derive(Debug, Default)]
pub(super) struct Positions {
    /// The first 8 bytes of each hash with its position, in order. Two hashes may share them.
    opened: Vec<(u64, u64)>,
    /// What was appended since.
    appended: HashMap<Hash, u64>,
}

fn prefix(leaf: &Hash) -> u64 {
    leaf.first_chunk().copied().map_or(0, u64::from_be_bytes)
}

impl Positions {
    /// Of a log's leaf hashes, in order.
    pub(super) fn of(leaves: &[Hash]) -> Self {
        let mut opened: Vec<(u64, u64)> = leaves.iter().map(prefix).zip(0_u64..).collect();
        opened.sort_unstable();
        Self { opened, appended: HashMap::new() }
    }

    /// Adds what was appended.
    pub(super) fn extend(&mut self, new: HashMap<Hash, u64>) {
        self.appended.extend(new);
    }

    /// Where the leaf may stand; mostly nowhere, or one place. The caller compares the whole hash.
    pub(super) fn candidates(&self, leaf: &Hash) -> impl Iterator<Item = u64> {
        let wanted = prefix(leaf);
        let from = self.opened.partition_point(|(known, _)| *known < wanted);
        let same = self.opened.iter().skip(from).take_while(move |(known, _)| *known == wanted);
        same.map(|(_, position)| *position).chain(self.appended.get(leaf).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_that_begin_alike_are_both_candidates() {
        let (mut one, mut other) = ([7; 32], [7; 32]);
        (one[31], other[31]) = (1, 2);
        let mut positions = Positions::of(&[[1; 32], one, [9; 32], other]);
        assert_eq!(positions.candidates(&one).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(positions.candidates(&[9; 32]).collect::<Vec<_>>(), [2]);
        assert_eq!(positions.candidates(&[8; 32]).count(), 0);
        positions.extend([([8; 32], 4)].into());
        assert_eq!(positions.candidates(&[8; 32]).collect::<Vec<_>>(), [4]);
    }
}
