//! A packer of LZX, and a cabinet around it: no free program makes one. What it writes is held against cabextract, which reads it by libmspack's code.

use std::collections::{BinaryHeap, HashMap};

const FRAME: usize = 32 << 10;
const BYTES: usize = 256;
const LENGTH_SYMBOLS: usize = 249;
const LONGEST_MATCH: usize = 257;

/// The kinds of blocks, in the order in which they come again and again.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Verbatim,
    Aligned,
    Stored,
}

/// How a folder is packed.
pub(crate) struct Packer<'p> {
    /// The window, as a power of two of bytes.
    pub(crate) window: u8,
    /// Kinds and lengths of blocks in bytes.
    pub(crate) blocks: &'p [(Kind, usize)],
    /// What calls are counted within; 0 where they stay as they are.
    pub(crate) calls: u32,
}

/// One step of a block: a byte, or a match.
#[derive(Clone, Copy)]
enum Step {
    Byte(u8),
    Match { slot: usize, extra: usize, length: usize },
}

/// Bits, in words of 16.
#[derive(Default)]
struct Writer {
    frames: Vec<Vec<u8>>,
    packed: Vec<u8>,
    word: u32,
    count: u32,
}

impl Writer {
    fn bits(&mut self, value: usize, count: u32) {
        for at in (0..count).rev() {
            self.word = self.word << 1 | (value >> at & 1) as u32;
            self.count += 1;
            if self.count == 16 {
                self.packed.extend((self.word as u16).to_le_bytes());
                (self.word, self.count) = (0, 0);
            }
        }
    }

    fn end_word(&mut self) {
        if self.count > 0 {
            self.bits(0, 16 - self.count);
        }
    }

    fn end_frame(&mut self) {
        self.end_word();
        self.frames.push(std::mem::take(&mut self.packed));
    }
}

/// Lengths of codes, and the codes.
struct Code {
    lengths: Vec<u8>,
    codes: Vec<usize>,
}

impl Code {
    /// Huffman's, flattened until no code is longer than `longest`; all lengths are 0 where nothing occurs.
    fn of(counts: &[usize], longest: u8) -> Self {
        let mut weights: Vec<usize> = counts.to_vec();
        let used = weights.iter().filter(|weight| **weight > 0).count();
        if used == 1 {
            let other = usize::from(weights[0] > 0);
            weights[other] = 1;
        }
        let mut lengths = huffman(&weights);
        while lengths.iter().any(|length| *length > longest) {
            weights.iter_mut().filter(|weight| **weight > 0).for_each(|weight| *weight = *weight / 2 + 1);
            lengths = huffman(&weights);
        }
        let (mut codes, mut code) = (vec![0; lengths.len()], 0);
        for length in 1..=longest {
            for symbol in (0..lengths.len()).filter(|symbol| lengths[*symbol] == length) {
                codes[symbol] = code;
                code += 1;
            }
            code <<= 1;
        }
        Self { lengths, codes }
    }

    fn write(&self, symbol: usize, to: &mut Writer) {
        assert!(self.lengths[symbol] > 0, "a symbol without a code");
        to.bits(self.codes[symbol], self.lengths[symbol].into());
    }
}

fn huffman(weights: &[usize]) -> Vec<u8> {
    use std::cmp::Reverse;
    let mut lengths = vec![0; weights.len()];
    let used = weights.iter().enumerate().filter(|(_, weight)| **weight > 0);
    let mut heap: BinaryHeap<Reverse<(usize, Vec<usize>)>> =
        used.map(|(symbol, weight)| Reverse((*weight, vec![symbol]))).collect();
    while heap.len() > 1 {
        let (Some(Reverse((one, mut symbols))), Some(Reverse((other, more)))) = (heap.pop(), heap.pop()) else { break };
        symbols.extend(more);
        symbols.iter().for_each(|symbol| lengths[*symbol] += 1);
        heap.push(Reverse((one + other, symbols)));
    }
    lengths
}

/// A symbol of the tree of lengths, and what stands behind it: value and bits, then a symbol again.
type LengthStep = (usize, Option<(usize, u32)>, Option<usize>);

/// Writes the lengths of a tree as differences from those before, with every kind of run.
fn write_lengths(before: &[u8], lengths: &[u8], to: &mut Writer) {
    let difference = |at: usize| (17 + usize::from(before[at]) - usize::from(lengths[at])) % 17;
    let mut steps: Vec<LengthStep> = Vec::new();
    let mut at = 0;
    while at < lengths.len() {
        let alike = lengths[at..].iter().take_while(|length| **length == lengths[at]).count();
        let step = match (lengths[at], alike) {
            (0, 20..) => (18, Some((alike.min(51) - 20, 5)), None),
            (0, 4..) => (17, Some((alike.min(19) - 4, 4)), None),
            (_, 4..) => (19, Some((alike.min(5) - 4, 1)), Some(difference(at))),
            _ => (difference(at), None, None),
        };
        at += match step {
            (18, ..) => alike.min(51),
            (17, ..) => alike.min(19),
            (19, ..) => alike.min(5),
            _ => 1,
        };
        steps.push(step);
    }
    let mut counts = [0; 20];
    for (symbol, _, behind) in &steps {
        counts[*symbol] += 1;
        behind.iter().for_each(|symbol| counts[*symbol] += 1);
    }
    let code = Code::of(&counts, 15);
    code.lengths.iter().for_each(|length| to.bits((*length).into(), 4));
    for (symbol, value, behind) in steps {
        code.write(symbol, to);
        value.iter().for_each(|(value, bits)| to.bits(*value, *bits));
        behind.iter().for_each(|symbol| code.write(*symbol, to));
    }
}

/// Least distance and bits of each slot, as the format's table has them.
fn slots(window: u8) -> Vec<(usize, u32)> {
    let mut slots = vec![(0, 0), (1, 0), (2, 0), (3, 0)];
    let mut base = 4;
    while base < 1 << window {
        let bits = ((slots.len() / 2 - 1) as u32).min(17);
        slots.push((base, bits));
        base += 1 << bits;
    }
    slots
}

impl Packer<'_> {
    /// The packed frames of a folder.
    pub(crate) fn frames(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let bytes = self.with_places(bytes);
        let slots = slots(self.window);
        let mut out = Writer::default();
        if self.calls > 0 {
            out.bits(1, 1);
            out.bits(self.calls as usize, 32);
        } else {
            out.bits(0, 1);
        }
        let mut recent = [1, 1, 1];
        let mut known: HashMap<[u8; 3], usize> = HashMap::new();
        let mut main_before = vec![0; BYTES + 8 * slots.len()];
        let mut length_before = vec![0; LENGTH_SYMBOLS];
        let mut at = 0;
        for (kind, length) in self.blocks.iter().cycle() {
            if at == bytes.len() {
                break;
            }
            let end = bytes.len().min(at + length);
            out.bits([1, 2, 3][*kind as usize], 3);
            out.bits(end - at, 24);
            if *kind == Kind::Stored {
                if out.count == 0 {
                    out.bits(0, 16);
                }
                out.end_word();
                recent.iter().for_each(|recent| out.packed.extend((*recent as u32).to_le_bytes()));
                for (place, byte) in bytes[at..end].iter().enumerate() {
                    out.packed.push(*byte);
                    let is_last = at + place + 1 == end;
                    if is_last && (end - at) % 2 == 1 {
                        out.packed.push(0);
                    }
                    if (at + place + 1) % FRAME == 0 {
                        out.end_frame();
                    }
                }
                at = end;
                continue;
            }
            let steps = self.steps(&bytes, at..end, &slots, &mut recent, &mut known);
            let (mut main_counts, mut length_counts) = (vec![0; main_before.len()], vec![0; LENGTH_SYMBOLS]);
            let mut aligned_counts = [0; 8];
            for step in &steps {
                main_counts[main_symbol(step)] += 1;
                if let Step::Match { slot, extra, length } = step {
                    if *length >= 9 {
                        length_counts[length - 9] += 1;
                    }
                    if slots[*slot].1 >= 3 {
                        aligned_counts[extra & 7] += 1;
                    }
                }
            }
            // A tree that must not be empty.
            aligned_counts[0] += 1;
            let aligned = Code::of(&aligned_counts, 7);
            let (main, lengths) = (Code::of(&main_counts, 16), Code::of(&length_counts, 16));
            if *kind == Kind::Aligned {
                aligned.lengths.iter().for_each(|length| out.bits((*length).into(), 3));
            }
            write_lengths(&main_before[..BYTES], &main.lengths[..BYTES], &mut out);
            write_lengths(&main_before[BYTES..], &main.lengths[BYTES..], &mut out);
            write_lengths(&length_before, &lengths.lengths, &mut out);
            for step in steps {
                main.write(main_symbol(&step), &mut out);
                at += 1;
                if let Step::Match { slot, extra, length } = step {
                    at += length - 1;
                    if length >= 9 {
                        lengths.write(length - 9, &mut out);
                    }
                    let bits = slots[slot].1;
                    if *kind == Kind::Aligned && bits >= 3 {
                        out.bits(extra >> 3, bits - 3);
                        aligned.write(extra & 7, &mut out);
                    } else {
                        out.bits(extra, bits);
                    }
                }
                if at % FRAME == 0 {
                    out.end_frame();
                }
            }
            (main_before, length_before) = (main.lengths, lengths.lengths);
        }
        if at % FRAME > 0 {
            out.end_frame();
        }
        out.frames
    }

    /// The matches of a block, none over the end of a frame.
    fn steps(
        &self,
        bytes: &[u8],
        range: std::ops::Range<usize>,
        slots: &[(usize, u32)],
        recent: &mut [usize; 3],
        known: &mut HashMap<[u8; 3], usize>,
    ) -> Vec<Step> {
        let (mut at, mut steps) = (range.start, Vec::new());
        while at < range.end {
            let most = LONGEST_MATCH.min(range.end - at).min(FRAME - at % FRAME);
            let alike = |distance: usize| {
                let is_there = distance > 0 && distance <= at && distance <= (1 << self.window) - 3;
                if is_there {
                    (0..most).take_while(|next| bytes[at + next] == bytes[at + next - distance]).count()
                } else {
                    0
                }
            };
            let key = bytes.get(at..at + 3).map(|key| [key[0], key[1], key[2]]);
            let last = key.and_then(|key| known.insert(key, at)).map_or(0, |place| at - place);
            let again = (0..3).max_by_key(|slot| alike(recent[*slot])).unwrap_or_default();
            let (old, new) = (alike(recent[again]), alike(last));
            let length = if old >= 2 && old + 1 >= new {
                recent.swap(0, again);
                steps.push(Step::Match { slot: again, extra: 0, length: old });
                old
            } else if new >= 3 {
                let biased = last + 2;
                let slot = slots.iter().rposition(|(base, _)| *base <= biased).unwrap_or_default();
                recent.rotate_right(1);
                recent[0] = last;
                steps.push(Step::Match { slot, extra: biased - slots[slot].0, length: new });
                new
            } else {
                steps.push(Step::Byte(bytes[at]));
                1
            };
            at += length;
        }
        steps
    }

    /// With calls that say where they lead.
    fn with_places(&self, bytes: &[u8]) -> Vec<u8> {
        let (mut changed, size) = (bytes.to_vec(), i64::from(self.calls));
        for (frame, start) in changed.chunks_mut(FRAME).zip((0_i64..).step_by(FRAME)).filter(|_| size > 0) {
            let mut at = 0;
            while at + 10 < frame.len() {
                if frame[at] != 0xe8 {
                    at += 1;
                    continue;
                }
                let place = start + at as i64;
                let behind = &mut frame[at + 1..at + 5];
                let far = i64::from(i32::from_le_bytes([behind[0], behind[1], behind[2], behind[3]]));
                let changed = match far {
                    _ if (-place..size - place).contains(&far) => far + place,
                    _ if (size - place..size).contains(&far) => far - size,
                    _ => far,
                };
                behind.copy_from_slice(&(changed as i32).to_le_bytes());
                at += 5;
            }
        }
        changed
    }

    /// A cabinet of one file.
    pub(crate) fn cabinet(&self, name: &str, bytes: &[u8]) -> Vec<u8> {
        let frames = self.frames(bytes);
        let size = u32::try_from(bytes.len()).expect("a small file").to_le_bytes();
        let file = [&size[..], &[0; 12], name.as_bytes(), &[0]].concat();
        let blocks_at = (36 + 8 + file.len()) as u32;
        let mut blocks = Vec::new();
        for (packed, unpacked) in frames.iter().zip(bytes.chunks(FRAME)) {
            blocks.extend([0; 4]);
            blocks.extend((packed.len() as u16).to_le_bytes());
            blocks.extend((unpacked.len() as u16).to_le_bytes());
            blocks.extend(packed);
        }
        let total = blocks_at + blocks.len() as u32;
        let header = [0, total, 0, 36 + 8, 0].map(u32::to_le_bytes).concat();
        let counts = [3, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        let folder = [&blocks_at.to_le_bytes()[..], &(frames.len() as u16).to_le_bytes(), &[3, self.window]].concat();
        [b"MSCF", &header[..], &counts, &folder, &file, &blocks].concat()
    }
}

fn main_symbol(step: &Step) -> usize {
    match step {
        Step::Byte(byte) => (*byte).into(),
        Step::Match { slot, length, .. } => BYTES + 8 * slot + (length - 2).min(7),
    }
}
