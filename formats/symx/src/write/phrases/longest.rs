//! The longest phrase that a text begins with.
//!
//! Phrases lie in the order of their texts. The last one that is no greater than a text has all phrases that the text begins with among its own beginnings:
//! it is found by its first two bytes and by halves, and leads to them.

use super::NONE;
use super::phrase::{Key, Phrase};
use crate::phrases::PHRASE_BYTES;
use alloc::vec;
use alloc::vec::Vec;

/// No other phrase.
const NOTHING: u32 = u32::MAX;

pub(super) struct Longest {
    /// Phrases of two bytes and more, in the order of their texts.
    entries: Vec<Entry>,
    /// The first parts of their keys, by which most of them are told apart.
    firsts: Vec<u64>,
    /// By the first two bytes, as [`Self::pair_at`] numbers them: where in `entries` such phrases begin. One more, where the last ones end.
    starts: Vec<u32>,
    /// Which of the single bytes a byte is; their count where it is none.
    places: [u16; 256],
    singles: usize,
    /// By a byte: the phrase that it is.
    numbers: [u16; 256],
}

#[derive(Clone, Copy)]
struct Entry {
    key: Key,
    /// The longest other phrase that this one begins with, of two bytes and more; [`NOTHING`] where there is none.
    shorter: u32,
    number: u16,
}

impl Longest {
    /// Among these phrases, which are in the order of their texts and have their places there for numbers. Every byte of those of several bytes is a
    /// phrase too.
    pub(super) fn new(phrases: &[Phrase]) -> Self {
        let mut longest = Self {
            entries: Vec::with_capacity(phrases.len()),
            firsts: Vec::with_capacity(phrases.len()),
            starts: Vec::new(),
            places: [0; 256],
            singles: 0,
            numbers: [NONE; 256],
        };
        for (number, phrase) in (0..).zip(phrases) {
            if let [byte] = phrase.text() {
                let at = usize::from(*byte);
                if let (Some(slot), Some(place)) = (longest.numbers.get_mut(at), longest.places.get_mut(at)) {
                    (*slot, *place) = (number, longest.singles as u16);
                    longest.singles += 1;
                }
            } else {
                let key = phrase.key();
                longest.entries.push(Entry { key, shorter: NOTHING, number });
                longest.firsts.push(key.first());
            }
        }
        let unknown = longest.singles as u16;
        let all = longest.places.iter_mut().zip(&longest.numbers);
        all.filter(|(_, number)| **number == NONE).for_each(|(place, _)| *place = unknown);
        longest.link();
        longest.find_starts(phrases);
        longest
    }

    /// Leads each phrase to its shorter ones: they lie before it, and all between begin with them as well.
    fn link(&mut self) {
        // Each begins with the one before.
        let mut open: Vec<(u32, Key)> = Vec::new();
        for (at, entry) in (0u32..).zip(&mut self.entries) {
            while open.pop_if(|(_, key)| key.common(entry.key) < key.len()).is_some() {}
            entry.shorter = open.last().map_or(NOTHING, |(at, _)| *at);
            open.push((at, entry.key));
        }
    }

    fn find_starts(&mut self, phrases: &[Phrase]) {
        let mut starts = vec![0; (self.singles + 1) * (self.singles + 1) + 1];
        for phrase in phrases {
            if let [first, second, ..] = phrase.text()
                && let Some(behind) = starts.get_mut(self.pair_at(*first, *second) + 1)
            {
                *behind += 1;
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        self.starts = starts;
    }

    #[inline(always)]
    fn pair_at(&self, first: u8, second: u8) -> usize {
        let place = |byte: u8| self.places.get(usize::from(byte)).copied().map_or(0, usize::from);
        place(first) * (self.singles + 1) + place(second)
    }

    /// Gives the phrases the numbers that stand at theirs.
    pub(super) fn renumber(&mut self, numbers: &[u16]) {
        let of_entries = self.entries.iter_mut().map(|entry| &mut entry.number);
        for number in of_entries.chain(&mut self.numbers) {
            *number = numbers.get(usize::from(*number)).copied().unwrap_or(NONE);
        }
    }

    /// The phrases of `text`, each time the longest; `text` has bytes that are phrases themselves and no others.
    pub(super) fn parse(&self, text: &[u8], mut found: impl FnMut(u16)) {
        let mut rest = text;
        while let Some(start) = rest.first_chunk::<PHRASE_BYTES>() {
            let (len, number) = self.longest(start, PHRASE_BYTES);
            if number != NONE {
                found(number);
            }
            rest = rest.get(len..).unwrap_or_default();
        }
        // The end, with zeroes behind it.
        let mut end = [0; 2 * PHRASE_BYTES];
        if let Some(end) = end.get_mut(..rest.len()) {
            end.copy_from_slice(rest);
        }
        let mut at = 0;
        while at < rest.len()
            && let Some(start) = end.get(at..).and_then(|end| end.first_chunk::<PHRASE_BYTES>())
        {
            let (len, number) = self.longest(start, rest.len() - at);
            if number != NONE {
                found(number);
            }
            at += len;
        }
    }

    /// Length and number of the longest phrase that a text of `len` bytes begins with, which has at least one; a byte and [`NONE`] where there is none.
    #[inline(always)]
    fn longest(&self, start: &[u8; PHRASE_BYTES], len: usize) -> (usize, u16) {
        let [first, second, ..] = *start;
        let pair = self.pair_at(first, second);
        if len > 1
            && let (Some(from), Some(to)) = (self.starts.get(pair), self.starts.get(pair + 1))
            && from < to
            && let Some(firsts) = self.firsts.get(*from as usize..*to as usize)
        {
            let key = Key::new(start, len);
            let behind = firsts.partition_point(|first| *first <= key.first());
            let last = behind.checked_sub(1).map(|last| *from as usize + last);
            let mut entry = last.and_then(|last| self.entries.get(last));
            if entry.is_some_and(|entry| !entry.key.is_at_most(key)) {
                // Several begin like the text, and the last of them is greater.
                let entries = self.entries.get(*from as usize..*from as usize + behind).unwrap_or_default();
                let behind = entries.partition_point(|entry| entry.key.is_at_most(key));
                entry = behind.checked_sub(1).and_then(|last| entries.get(last));
            }
            let equal = entry.map_or(0, |entry| entry.key.common(key));
            while let Some(Entry { key, shorter, number }) = entry {
                if key.len() <= equal {
                    return (key.len(), *number);
                }
                entry = self.entries.get(*shorter as usize);
            }
        }
        (1, self.numbers.get(usize::from(first)).copied().unwrap_or(NONE))
    }

    /// How often each of so many phrases is used in the texts.
    pub(super) fn uses(&self, texts: &[&[u8]], phrases: usize) -> Vec<u64> {
        let mut uses = vec![0; phrases];
        for text in texts {
            self.parse(text, |number| {
                if let Some(uses) = uses.get_mut(usize::from(number)) {
                    *uses += 1;
                }
            });
        }
        uses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use core::fmt::Write;

    /// `expected`: what `text` is cut into, `?` for a byte that is no phrase.
    fn check(phrases: &[&str], text: &str, expected: &str) {
        let of = |text: &str| {
            let mut bytes = text.bytes().map(Phrase::single);
            let first = bytes.next().unwrap();
            bytes.fold(first, |joined, byte| joined.followed_by(&byte).unwrap())
        };
        let mut phrases = phrases.to_vec();
        phrases.sort_unstable();
        let all: Vec<Phrase> = phrases.iter().map(|text| of(text)).collect();
        let mut found = String::new();
        Longest::new(&all).parse(text.as_bytes(), |number| {
            write!(found, "{} ", phrases.get(usize::from(number)).unwrap_or(&"?")).unwrap();
        });
        assert_eq!(found.trim_end(), expected);
    }

    #[test]
    fn the_longest_phrase_is_found_behind_greater_beginnings() {
        let phrases = ["b", "a", "c", "ab", "abc", "abcab", "abcb", "ca"];
        check(&phrases, "abcab", "abcab");
        check(&phrases, "abcac", "abc a c");
        check(&phrases, "abcaabcb", "abc a abcb");
        check(&phrases, "aab", "a ab");
        check(&phrases, "", "");
        check(&phrases, "c", "c");
        check(&phrases, "cab", "ca b");
    }

    #[test]
    fn zeroes_behind_the_end_are_no_part_of_the_text() {
        check(&["a", "\0", "a\0", "a\0\0"], "a", "a");
        check(&["a", "\0", "a\0", "a\0\0"], "a\0a\0\0\0", "a\0 a\0\0 \0");
    }

    #[test]
    fn long_texts_are_cut_to_their_end() {
        let long = "x".repeat(31);
        check(&["x", "y", &long], &"x".repeat(64), &alloc::format!("{long} {long} x x"));
        check(&["x", "y", &long], &alloc::format!("y{long}y"), &alloc::format!("y {long} y"));
        check(&["x", "y"], "xzy", "x y");
    }
}
