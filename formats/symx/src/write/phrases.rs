//! Which phrases a table's names are put together from, and names as their numbers.
//!
//! A sample of the names is read again and again; each time the pairs of neighbours that occur most often become phrases
//! of their own. What few names use is dropped again, and the numbers are given by use.

use crate::phrases::{MAX_NAME_BYTES, MAX_PHRASE, MAX_PHRASES, PHRASE_BYTES, put_code};
use crate::{FunctionRecord, StrId, Strings};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Names of fewer bytes stay whole: there is little to gain, and reading them whole is faster.
const MIN_NAME_BYTES: usize = 256 << 10;
/// Bytes of names that phrases are learned from: more make names little shorter.
const SAMPLE_BYTES: usize = 1 << 20;
/// Where there are fewer, one of so many names is enough, as long as those come to [`LEAST_SAMPLE_BYTES`]: what all of them would teach makes tables
/// little smaller or, with its own bytes, larger, and to learn it took most of the time that a small table takes.
const MAX_STEP_OF_SMALL: usize = 16;
/// Bytes of names that phrases are learned from, where there are as many.
const LEAST_SAMPLE_BYTES: usize = 64 << 10;
/// How many pairs become phrases in the first round.
const FIRST_PAIRS: usize = 64;
/// A pair that occurs less often in the sample becomes no phrase.
const MIN_PAIRS: u32 = 4;
/// Ends a name among the numbers of phrases.
const END: u16 = u16::MAX;
/// No phrase.
const NONE: u16 = u16::MAX;

/// The phrases of a table, and how to find them in a name.
pub(super) struct Coder {
    phrases: Vec<Vec<u8>>,
    trie: Trie,
}

impl Coder {
    /// The phrases for the names of `functions`, whose bytes alone decide; `None` where they are few.
    pub(super) fn for_large(functions: &[FunctionRecord], strings: &Strings) -> Option<Self> {
        // All strings together are a bound, which spares small tables the rest.
        if strings.bytes() < MIN_NAME_BYTES {
            return None;
        }
        let names = names_of(functions, strings);
        let bytes: usize = names.iter().map(|name| name.len()).sum();
        // A name that is too long for readers of phrases can be read where names are whole.
        let fit = names.iter().all(|name| name.len() <= MAX_NAME_BYTES);
        (fit && bytes >= MIN_NAME_BYTES).then(|| Self::learn(&names, bytes))
    }

    /// The phrases for the names of `functions`, however few.
    pub(super) fn for_any(functions: &[FunctionRecord], strings: &Strings) -> Self {
        let names = names_of(functions, strings);
        let bytes = names.iter().map(|name| name.len()).sum();
        Self::learn(&names, bytes)
    }

    fn learn(names: &[&[u8]], bytes: usize) -> Self {
        let step = bytes.div_ceil(SAMPLE_BYTES).max((bytes / LEAST_SAMPLE_BYTES).clamp(1, MAX_STEP_OF_SMALL));
        // Names and linkage names take turns, so that each second, say, would be of one kind: multiples of the golden ratio are in step with nothing.
        let is_taken = |at: u32| u64::from(at.wrapping_mul(0x9e37_79b1)) * (step as u64) < 1 << 32;
        let numbered = (0u32..).zip(names);
        let sample: Vec<&[u8]> = numbered.filter(|(at, _)| is_taken(*at)).map(|(_, name)| *name).collect();
        let mut singles = [false; 256];
        for byte in names.iter().copied().flatten() {
            if let Some(seen) = singles.get_mut(usize::from(*byte)) {
                *seen = true;
            }
        }
        let singles = (0..=u8::MAX).zip(singles).filter(|(_, seen)| *seen).map(|(byte, _)| vec![byte]);
        let mut phrases = learn_pairs(&sample, singles.collect());
        // A phrase takes a record, and spares about a code of two bytes each time: where it is used less, it is not worth it.
        let worth = PHRASE_BYTES.div_ceil(2 * step) as u64;
        let uses = Trie::new(&phrases).uses(&sample, phrases.len());
        let mut kept = phrases.iter().zip(uses).map(|(phrase, uses)| phrase.len() == 1 || uses >= worth);
        phrases = phrases.iter().filter(|_| kept.next().unwrap_or(false)).cloned().collect();
        let mut trie = Trie::new(&phrases);
        let uses = trie.uses(&sample, phrases.len());
        let mut by_use: Vec<(Reverse<u64>, Vec<u8>, u16)> = uses
            .into_iter()
            .zip(phrases)
            .zip(0..)
            .map(|((uses, phrase), number)| (Reverse(uses), phrase, number))
            .collect();
        by_use.sort_unstable();
        let mut numbers = vec![NONE; by_use.len()];
        for (new, (.., old)) in (0..).zip(&by_use) {
            if let Some(number) = numbers.get_mut(usize::from(*old)) {
                *number = new;
            }
        }
        trie.renumber(&numbers);
        Self { trie, phrases: by_use.into_iter().map(|(_, phrase, _)| phrase).collect() }
    }

    /// Appends the codes of `name`, a name of the functions that the phrases were made for.
    pub(super) fn code(&self, name: &[u8], out: &mut Vec<u8>) {
        self.trie.parse(name, |number| put_code(out, number));
    }

    /// The section of phrases, and how many there are.
    pub(super) fn section(&self) -> (Vec<u8>, u64) {
        let mut bytes = Vec::with_capacity(self.phrases.len() * PHRASE_BYTES);
        for phrase in &self.phrases {
            let end = bytes.len() + PHRASE_BYTES;
            bytes.push(phrase.len() as u8);
            bytes.extend(phrase);
            bytes.resize(end, 0);
        }
        (bytes, self.phrases.len() as u64)
    }
}

/// The names that a table has, each once, in an order that does not depend on their numbers.
fn names_of<'s>(functions: &[FunctionRecord], strings: &'s Strings) -> Vec<&'s [u8]> {
    let mut seen = vec![false; strings.len()];
    let mut names = Vec::new();
    let mut see = |id: StrId| {
        if let Some(seen) = seen.get_mut(id.0 as usize)
            && !core::mem::replace(seen, true)
            && !id.is_empty()
        {
            names.push(strings.get(id).as_bytes());
        }
    };
    for function in functions {
        see(function.name);
        see(function.symbol);
        function.aliases.iter().copied().for_each(&mut see);
        for inline in &function.inlines {
            see(inline.name);
            see(inline.symbol);
        }
    }
    names
}

/// Bytes, and what comes of putting together frequent neighbours, round by round: more of them each time.
fn learn_pairs(sample: &[&[u8]], singles: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut number_of = [NONE; 256];
    for (number, byte) in (0u16..).zip(singles.iter().flatten()) {
        if let Some(slot) = number_of.get_mut(usize::from(*byte)) {
            *slot = number;
        }
    }
    let number = |byte: &u8| number_of.get(usize::from(*byte)).copied().unwrap_or(NONE);
    let mut text: Vec<u16> = sample.iter().flat_map(|name| name.iter().map(number).chain([END])).collect();
    let mut phrases = singles;
    let mut known: BTreeSet<Vec<u8>> = phrases.iter().cloned().collect();
    let mut pairs = FIRST_PAIRS;
    while phrases.len() < MAX_PHRASES {
        let frequent = frequent_pairs(&text, &phrases, pairs.min(MAX_PHRASES - phrases.len()));
        if frequent.is_empty() {
            break;
        }
        let mut joined = PairTable::with_room(frequent.len());
        let before = phrases.len();
        for (_, pair) in frequent {
            let text: Vec<u8> =
                parts_of(pair).into_iter().filter_map(|part| phrases.get(part)).flatten().copied().collect();
            // Two pairs may give the same text: the first has it, and the other stays a pair.
            if known.insert(text.clone()) {
                joined.add(pair, phrases.len() as u32);
                phrases.push(text);
            }
        }
        if phrases.len() == before {
            break;
        }
        text = join(&text, &joined);
        pairs += pairs / 2;
    }
    phrases
}

fn pair_of(first: u16, second: u16) -> u32 {
    u32::from(first) << 16 | u32::from(second)
}

fn parts_of(pair: u32) -> [usize; 2] {
    [(pair >> 16) as usize, (pair & 0xffff) as usize]
}

/// Of the pairs of neighbours that could be phrases, at most so many, the most frequent first.
fn frequent_pairs(text: &[u16], phrases: &[Vec<u8>], most: usize) -> Vec<(Reverse<u32>, u32)> {
    let mut counts = PairTable::with_room(phrases.len());
    for pair in text.windows(2) {
        if let [first, second] = *pair
            && first != END
            && second != END
        {
            counts.add(pair_of(first, second), 1);
        }
    }
    let length = |pair| parts_of(pair).into_iter().filter_map(|part| phrases.get(part)).map(Vec::len).sum::<usize>();
    let fits = |(pair, count): &(u32, u32)| *count >= MIN_PAIRS && length(*pair) <= MAX_PHRASE;
    let mut pairs: Vec<_> = counts.entries().filter(fits).map(|(pair, count)| (Reverse(count), pair)).collect();
    if most < pairs.len() {
        pairs.select_nth_unstable(most);
        pairs.truncate(most);
    }
    pairs.sort_unstable();
    pairs
}

/// Numbers by pairs. To count pairs is most of learning, for which a map that is made for any key is slow.
struct PairTable {
    /// A pair and its number, at the first free place from where its product with a constant leads; pair [`FREE`] elsewhere. A power of two of them.
    slots: Vec<(u32, u32)>,
    used: usize,
}

/// No pair: it would be of two ends of names.
const FREE: u32 = u32::MAX;

impl PairTable {
    fn with_room(pairs: usize) -> Self {
        Self { slots: vec![(FREE, 0); (2 * pairs + 2).next_power_of_two().max(1 << 10)], used: 0 }
    }

    /// Where a pair is, or would be.
    #[inline(always)]
    fn find(&self, pair: u32) -> usize {
        let mask = self.slots.len() - 1;
        // Multiples of the golden ratio are spread evenly by their upper bits.
        let spread = u64::from(pair).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut at = (spread >> 32) as usize & mask;
        while let Some((other, _)) = self.slots.get(at)
            && *other != pair
            && *other != FREE
        {
            at = (at + 1) & mask;
        }
        at
    }

    /// The number of a pair; 0 where it has none.
    #[inline(always)]
    fn get(&self, pair: u32) -> u32 {
        self.slots.get(self.find(pair)).map_or(0, |(_, number)| *number)
    }

    /// Adds to the number of a pair, which is 0 at first.
    #[inline(always)]
    fn add(&mut self, pair: u32, more: u32) {
        if self.used * 2 >= self.slots.len() {
            self.grow();
        }
        let at = self.find(pair);
        if let Some((slot, number)) = self.slots.get_mut(at) {
            self.used += usize::from(*slot == FREE);
            *slot = pair;
            *number += more;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Self { slots: vec![(FREE, 0); self.slots.len() * 2], used: self.used };
        for (pair, number) in self.entries() {
            let at = larger.find(pair);
            if let Some(slot) = larger.slots.get_mut(at) {
                *slot = (pair, number);
            }
        }
        *self = larger;
    }

    fn entries(&self) -> impl Iterator<Item = (u32, u32)> {
        self.slots.iter().copied().filter(|(pair, _)| *pair != FREE)
    }
}

/// The text with pairs put together; of two that overlap the more frequent one. Numbers of what is put together are not 0: bytes come first.
fn join(text: &[u16], joined: &PairTable) -> Vec<u16> {
    let phrase = |at: usize| match text.get(at..at + 2) {
        Some(&[first, second]) if first != END && second != END => joined.get(pair_of(first, second)),
        _ => 0,
    };
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    let mut here = phrase(at);
    while let Some(number) = text.get(at) {
        let next = phrase(at + 1);
        // Smaller numbers are of more frequent pairs.
        if here != 0 && (next == 0 || here <= next) {
            out.push(here as u16);
            at += 2;
            here = phrase(at);
        } else {
            out.push(*number);
            at += 1;
            here = next;
        }
    }
    out
}

/// Finds the longest phrase that a text begins with: a tree of bytes, in which the nodes behind one node lie side by side. Most names part
/// in their first bytes, so that the first two are looked up in one table.
struct Trie {
    /// The first one is the root.
    nodes: Vec<Node>,
    /// By node: the byte that leads there from the node before.
    labels: Vec<u8>,
    /// By the first two bytes of a text: the node behind them; 0 where no phrase begins so.
    pairs: Vec<u32>,
    /// By a byte: the phrase that it is.
    singles: [u16; 256],
}

#[derive(Clone, Copy)]
struct Node {
    /// The first of the nodes behind this one, and how many there are.
    first: u32,
    count: u16,
    /// The phrase that ends here.
    end: u16,
}

impl Node {
    const EMPTY: Self = Self { first: 0, count: 0, end: NONE };
}

impl Trie {
    fn new(phrases: &[Vec<u8>]) -> Self {
        let mut sorted: Vec<(&[u8], u16)> = phrases.iter().map(Vec::as_slice).zip(0..).collect();
        sorted.sort_unstable();
        let mut trie =
            Self { nodes: vec![Node::EMPTY], labels: vec![0], pairs: vec![0; 1 << 16], singles: [NONE; 256] };
        trie.grow(&sorted, 0, 0);
        trie.find_singles();
        for node in trie.behind(0) {
            for next in trie.behind(node) {
                if let (Some(first), Some(second)) = (trie.labels.get(node), trie.labels.get(next))
                    && let Some(slot) = trie.pairs.get_mut(pair_at(*first, *second))
                {
                    *slot = next as u32;
                }
            }
        }
        trie
    }

    /// The nodes behind a node.
    fn behind(&self, node: usize) -> core::ops::Range<usize> {
        let Node { first, count, .. } = self.nodes.get(node).copied().unwrap_or(Node::EMPTY);
        first as usize..first as usize + usize::from(count)
    }

    fn find_singles(&mut self) {
        for node in self.behind(0) {
            if let (Some(label), Some(Node { end, .. })) = (self.labels.get(node), self.nodes.get(node))
                && let Some(single) = self.singles.get_mut(usize::from(*label))
            {
                *single = *end;
            }
        }
    }

    /// Gives the phrases the numbers that stand at theirs.
    fn renumber(&mut self, numbers: &[u16]) {
        for node in &mut self.nodes {
            node.end = numbers.get(usize::from(node.end)).copied().unwrap_or(NONE);
        }
        self.find_singles();
    }

    /// Puts phrases behind a node, which stands for their first `depth` bytes. They are at most [`MAX_PHRASE`] bytes long, and so are the calls nested.
    fn grow(&mut self, sorted: &[(&[u8], u16)], depth: usize, node: usize) {
        let longer = sorted.partition_point(|(phrase, _)| phrase.len() <= depth);
        let (here, longer) = sorted.split_at(longer);
        let first = self.nodes.len();
        let groups = || longer.chunk_by(|(one, _), (other, _)| one.get(depth) == other.get(depth));
        for label in groups().filter_map(|group| group.first()?.0.get(depth)) {
            self.nodes.push(Node::EMPTY);
            self.labels.push(*label);
        }
        let count = (self.nodes.len() - first) as u16;
        if let Some(node) = self.nodes.get_mut(node) {
            *node = Node { first: first as u32, count, end: here.last().map_or(NONE, |(_, number)| *number) };
        }
        for (next, group) in (first..).zip(groups()) {
            self.grow(group, depth + 1, next);
        }
    }

    /// The node behind `byte` at `node`.
    #[inline(always)]
    fn next(&self, node: u32, byte: u8) -> Option<u32> {
        let Node { first, count, .. } = *self.nodes.get(node as usize)?;
        let labels = self.labels.get(first as usize..first as usize + usize::from(count))?;
        labels.iter().position(|label| *label == byte).map(|at| first + at as u32)
    }

    /// The phrases of `text`, each time the longest; `text` has bytes that are phrases themselves and no others.
    fn parse(&self, text: &[u8], mut found: impl FnMut(u16)) {
        let mut rest = text;
        while let Some((byte, behind)) = rest.split_first() {
            let pair = behind.first().and_then(|second| self.pairs.get(pair_at(*byte, *second)).copied());
            let (mut len, mut number) = (0, NONE);
            let mut bytes = behind.iter().skip(1);
            let mut node = pair.filter(|node| *node > 0);
            let mut depth = 2;
            while let Some(at) = node {
                if let Some(Node { end, .. }) = self.nodes.get(at as usize)
                    && *end != NONE
                {
                    (len, number) = (depth, *end);
                }
                node = bytes.next().and_then(|byte| self.next(at, *byte));
                depth += 1;
            }
            if len == 0 {
                (len, number) = (1, self.singles.get(usize::from(*byte)).copied().unwrap_or(NONE));
            }
            if number != NONE {
                found(number);
            }
            rest = rest.get(len..).unwrap_or_default();
        }
    }

    fn uses(&self, sample: &[&[u8]], phrases: usize) -> Vec<u64> {
        let mut uses = vec![0; phrases];
        for name in sample {
            self.parse(name, |number| {
                if let Some(uses) = uses.get_mut(usize::from(number)) {
                    *uses += 1;
                }
            });
        }
        uses
    }
}

fn pair_at(first: u8, second: u8) -> usize {
    usize::from(first) << 8 | usize::from(second)
}
