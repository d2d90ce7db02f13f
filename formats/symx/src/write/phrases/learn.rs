//! Pairs of neighbours that occur often become phrases, round by round.

use super::NONE;
use super::phrase::Phrase;
use crate::phrases::{MAX_PHRASE, MAX_PHRASES};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use hashbrown::{HashSet, HashTable};

/// How many pairs become phrases in the first round.
const FIRST_PAIRS: usize = 64;
/// A pair that occurs less often in the sample becomes no phrase.
const MIN_PAIRS: u32 = 4;
/// Ends a name among the numbers of phrases.
const END: u16 = u16::MAX;

/// Bytes, and what comes of putting together frequent neighbours, round by round: more of them each time.
pub(super) fn learn_pairs(sample: &[&[u8]], singles: Vec<Phrase>) -> Vec<Phrase> {
    let mut number_of = [NONE; 256];
    for (number, byte) in (0u16..).zip(singles.iter().flat_map(|single| single.text())) {
        if let Some(slot) = number_of.get_mut(usize::from(*byte)) {
            *slot = number;
        }
    }
    let number = |byte: &u8| number_of.get(usize::from(*byte)).copied().unwrap_or(NONE);
    let mut phrases = singles;
    let mut known: HashSet<Phrase> = phrases.iter().copied().collect();
    let mut neighbours = Neighbours::new(sample, number);
    let mut pairs = FIRST_PAIRS;
    while phrases.len() < MAX_PHRASES {
        neighbours.count();
        let before = phrases.len();
        for (_, pair, number) in neighbours.frequent(&phrases, pairs.min(MAX_PHRASES - phrases.len())) {
            // Two pairs may give the same text: the first has it, and the other stays a pair.
            if let Some(text) = text_of(pair, &phrases)
                && known.insert(text)
            {
                neighbours.will_be(number, phrases.len() as u16);
                phrases.push(text);
            }
        }
        if phrases.len() == before {
            break;
        }
        neighbours.join();
        pairs += pairs / 2;
    }
    phrases
}

fn pair_of(first: u16, second: u16) -> u32 {
    u32::from(first) << 16 | u32::from(second)
}

fn parts_of(pair: u32, phrases: &[Phrase]) -> Option<[&Phrase; 2]> {
    Some([phrases.get((pair >> 16) as usize)?, phrases.get((pair & 0xffff) as usize)?])
}

fn text_of(pair: u32, phrases: &[Phrase]) -> Option<Phrase> {
    let [first, second] = parts_of(pair, phrases)?;
    first.followed_by(second)
}

/// A text of phrases, and the pairs in it. To count these is most of learning: a pair keeps its number, so that just what comes of joining is looked up.
struct Neighbours {
    text: Vec<Place>,
    /// By number; the first one is no pair.
    known: Vec<Pair>,
    /// Pairs and their numbers.
    numbers: HashTable<(u32, u32)>,
}

#[derive(Clone, Copy)]
struct Place {
    phrase: u16,
    /// The number of the pair that begins here; 0 where a name ends here or behind, [`UNKNOWN`] where there is a new one.
    pair: u32,
}

struct Pair {
    pair: u32,
    count: u32,
    /// The phrase that it becomes; 0 where it stays, as bytes come before what is put together.
    joined: u16,
}

/// A number that is still to be looked up.
const UNKNOWN: u32 = u32::MAX;
/// Two ends of names.
const NO_PAIR: u32 = u32::MAX;

/// Multiples of the golden ratio are spread evenly by their upper bits; a table looks at both ends of a hash.
fn spread(pair: u32) -> u64 {
    u64::from(pair).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
}

impl Neighbours {
    fn new(sample: &[&[u8]], number: impl Fn(&u8) -> u16) -> Self {
        let mut text = Vec::with_capacity(sample.iter().map(|name| name.len() + 1).sum());
        let place = |phrase| Place { phrase, pair: UNKNOWN };
        for name in sample {
            text.extend(name.iter().map(&number).map(place));
            text.push(place(END));
        }
        let none = Pair { pair: NO_PAIR, count: 0, joined: 0 };
        Self { text, known: vec![none], numbers: HashTable::new() }
    }

    /// Counts all pairs.
    fn count(&mut self) {
        self.known.iter_mut().for_each(|pair| pair.count = 0);
        let mut text = core::mem::take(&mut self.text);
        // From the end on: then the one behind is known.
        let mut second = END;
        for Place { phrase, pair } in text.iter_mut().rev() {
            if *pair == UNKNOWN {
                let is_pair = *phrase != END && second != END;
                *pair = if is_pair { self.number(pair_of(*phrase, second)) } else { 0 };
            }
            if let Some(known) = self.known.get_mut(*pair as usize) {
                known.count += 1;
            }
            second = *phrase;
        }
        self.text = text;
    }

    /// The number of a pair, given on first sight.
    #[inline(always)]
    fn number(&mut self, pair: u32) -> u32 {
        if let Some((_, number)) = self.numbers.find(spread(pair), |(other, _)| *other == pair) {
            return *number;
        }
        let number = self.known.len() as u32;
        self.known.push(Pair { pair, count: 0, joined: 0 });
        self.numbers.insert_unique(spread(pair), (pair, number), |(pair, _)| spread(*pair));
        number
    }

    /// Of those that could be phrases at most so many, the most frequent first: count, pair and number.
    fn frequent(&self, phrases: &[Phrase], most: usize) -> Vec<(Reverse<u32>, u32, u32)> {
        let length = |pair| parts_of(pair, phrases).map(|[first, second]| first.len() + second.len());
        let fits = |(_, known): &(u32, &Pair)| {
            known.count >= MIN_PAIRS && length(known.pair).is_some_and(|length| length <= MAX_PHRASE)
        };
        let fitting = (0..).zip(&self.known).filter(fits);
        let mut pairs: Vec<_> = fitting.map(|(number, known)| (Reverse(known.count), known.pair, number)).collect();
        if most < pairs.len() {
            pairs.select_nth_unstable(most);
            pairs.truncate(most);
        }
        pairs.sort_unstable();
        pairs
    }

    /// What becomes of a pair when the text is joined.
    fn will_be(&mut self, number: u32, phrase: u16) {
        if let Some(known) = self.known.get_mut(number as usize) {
            known.joined = phrase;
        }
    }

    /// Puts pairs of the text together; of two that overlap the more frequent one.
    fn join(&mut self) {
        let Self { text, known, .. } = self;
        let joined = |pair: u32| known.get(pair as usize).map_or(0, |known| known.joined);
        // What was put together takes no more than before.
        let (mut at, mut written) = (0_usize, 0_usize);
        let mut place = text.first().copied();
        let mut phrase = place.map_or(0, |place| joined(place.pair));
        while let Some(mut here) = place {
            at += 1;
            let mut next = text.get(at).copied();
            let mut next_phrase = next.map_or(0, |next| joined(next.pair));
            // Smaller numbers are of more frequent pairs.
            if phrase != 0 && (next_phrase == 0 || phrase <= next_phrase) {
                here = Place { phrase, pair: UNKNOWN };
                if let Some(before) = written.checked_sub(1).and_then(|before| text.get_mut(before)) {
                    before.pair = UNKNOWN;
                }
                at += 1;
                next = text.get(at).copied();
                next_phrase = next.map_or(0, |next| joined(next.pair));
            }
            if let Some(slot) = text.get_mut(written) {
                *slot = here;
            }
            written += 1;
            (place, phrase) = (next, next_phrase);
        }
        text.truncate(written);
        // Those that are still there overlap with others, and may be chosen again.
        self.known.iter_mut().for_each(|known| known.joined = 0);
    }
}
