//! Strings by number, each kept once.

use alloc::string::String;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use hashbrown::{DefaultHashBuilder, HashTable};

/// The number of a string in a [`Strings`]. `StrId(0)` is the empty string and means "absent".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StrId(pub u32);

impl StrId {
    /// The empty string: "absent".
    pub const EMPTY: Self = Self(0);

    /// Whether this is the empty string.
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }
}

/// Interned strings: equal texts get equal numbers, in the order in which they were first seen.
#[derive(Debug, Clone)]
pub struct Strings {
    text: String,
    /// Where each string ends in `text`; it starts where its predecessor ends. Entry 0 is the empty string.
    ends: Vec<usize>,
    /// The number of each string, and its hash: strings are hashed once, and compared where their hashes are equal.
    numbers: HashTable<(u32, u32)>,
    hasher: DefaultHashBuilder,
    overflowed: bool,
}

impl Default for Strings {
    fn default() -> Self {
        Self::new()
    }
}

impl Strings {
    /// Just the empty string.
    pub fn new() -> Self {
        Self {
            text: String::new(),
            ends: alloc::vec![0],
            numbers: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            overflowed: false,
        }
    }

    /// The number of `text`, given on first sight.
    ///
    /// Past 2^32−1 different strings the answer is the empty string, and [`write`](crate::write) refuses the input.
    pub fn intern(&mut self, text: &str) -> StrId {
        if text.is_empty() {
            return StrId::EMPTY;
        }
        let Self { text: all, ends, numbers, hasher, overflowed } = self;
        let hash = hasher.hash_one(text);
        let hash = (hash ^ hash >> 32) as u32;
        let is_text = |(number, other): &(u32, u32)| *other == hash && slice(all, ends, *number) == text;
        if let Some((number, _)) = numbers.find(spread(hash), is_text) {
            return StrId(*number);
        }
        let Ok(number) = u32::try_from(ends.len()) else {
            *overflowed = true;
            return StrId::EMPTY;
        };
        all.push_str(text);
        ends.push(all.len());
        numbers.insert_unique(spread(hash), (number, hash), |(_, hash)| spread(*hash));
        StrId(number)
    }

    /// The text of `id`; empty where `id` was never given.
    pub fn get(&self, id: StrId) -> &str {
        slice(&self.text, &self.ends, id.0)
    }

    /// How many different strings there are, the empty one included.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all strings.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Whether nothing but the empty string was interned.
    pub fn is_empty(&self) -> bool {
        self.ends.len() == 1
    }

    /// Whether a string found no number any more.
    pub(crate) fn overflowed(&self) -> bool {
        self.overflowed
    }
}

/// A table looks at both ends of a hash.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

fn slice<'s>(text: &'s str, ends: &[usize], number: u32) -> &'s str {
    let Some(before) = (number as usize).checked_sub(1) else { return "" };
    let (Some(start), Some(end)) = (ends.get(before), ends.get(number as usize)) else { return "" };
    text.get(*start..*end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_get_equal_numbers_and_the_empty_text_is_zero() {
        let mut strings = Strings::new();
        let a = strings.intern("a");
        let b = strings.intern("bc");
        assert_eq!((strings.intern("a"), strings.intern("bc"), strings.intern("")), (a, b, StrId(0)));
        assert_eq!(
            (strings.get(a), strings.get(b), strings.get(StrId(0)), strings.get(StrId(99))),
            ("a", "bc", "", "")
        );
    }
}
