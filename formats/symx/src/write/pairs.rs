//! How a tight table says names and symbols of functions and of places.

use crate::bits::width_of;
use alloc::vec::Vec;
use hashbrown::HashMap;

/// Bits of a pair's record.
const PAIR_BITS: u64 = 64;

/// Names with symbols that differ, where they are kept apart: worth it where most symbols are the names.
#[derive(Default)]
pub(super) struct Pairs {
    list: Vec<[u32; 2]>,
    numbers: HashMap<[u32; 2], u32>,
}

impl Pairs {
    /// Of all names and symbols that the table's records have, each as often as it is there.
    pub(super) fn new(names: impl Iterator<Item = [u32; 2]>) -> Self {
        let mut pairs = Self::default();
        let (mut records, mut last_name, mut last_symbol) = (0, 0, 0);
        for pair @ [name, symbol] in names {
            records += 1;
            last_name = name.max(last_name);
            if name != symbol {
                last_symbol = symbol.max(last_symbol);
                let next = pairs.list.len() as u32;
                if *pairs.numbers.entry(pair).or_insert(next) == next {
                    pairs.list.push(pair);
                }
            }
        }
        let count = pairs.list.len() as u32;
        let widened = last_name.checked_add(count).map(|last| width_of(last) - width_of(last_name));
        let beside = records * u64::from(width_of(last_symbol.saturating_add(1)));
        let apart = widened.map(|bits| u64::from(count) * PAIR_BITS + records * u64::from(bits));
        if apart.is_some_and(|apart| apart < beside) { pairs } else { Self::default() }
    }

    /// The codes of a name and of its symbol.
    pub(super) fn codes(&self, name: u32, symbol: u32) -> [u32; 2] {
        match self.numbers.get(&[name, symbol]) {
            Some(pair) => [*pair, 0],
            // Without pairs. Offsets of strings end before the last number: a string takes more than a byte.
            None if name != symbol => [name, symbol.saturating_add(1)],
            None => [name + self.list.len() as u32, 0],
        }
    }

    /// The section, and how many pairs there are.
    pub(super) fn section(&self) -> (Vec<u8>, u64) {
        let bytes = self.list.iter().flatten().flat_map(|offset| offset.to_le_bytes()).collect();
        (bytes, self.list.len() as u64)
    }
}
