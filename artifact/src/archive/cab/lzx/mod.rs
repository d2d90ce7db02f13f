//! LZX, as cabinets have it (Microsoft, "LZX Data Compression Format", of the Cabinet SDK; MS-PATCH, 2, has its successor).
//!
//! A folder is one stream of *blocks* of any length, each with its codes, or stored; it is cut into *frames* of 32 KiB, one in each of the cabinet's own blocks, and
//! no match goes over the end of a frame. A match may lie a window before. What looks like a call of x86 may have been made absolute, frame by frame.

mod bits;
mod calls;
mod tree;

use std::io;
use std::ops::RangeInclusive;

use bits::Bits;
use calls::Calls;
use tree::Tree;

use super::invalid;

/// The windows that there are, as powers of two of bytes.
pub(super) const WINDOWS: RangeInclusive<u8> = 15..=21;

/// Symbols of the tree that tells lengths, and how many bits each of their own lengths has.
const PRE_SYMBOLS: usize = 20;
const PRE_BITS: u32 = 4;
/// Symbols of the tree that tells the lowest bits of distances, and how many bits each of their lengths has.
const ALIGNED_SYMBOLS: usize = 8;
const ALIGNED_BITS: u32 = 3;
/// Symbols for the lengths of longer matches.
const LENGTH_SYMBOLS: usize = 249;
/// Of the main tree: bytes come first, then eight symbols for each slot of distances.
const BYTES: usize = 256;
const SLOT_SYMBOLS: usize = 8;
/// The shortest match, and the last one whose length the main tree tells.
const SHORTEST: usize = 2;
const LAST_SHORT: usize = SLOT_SYMBOLS - 1;
/// Distances that are told as those of the last matches; the others have so much added.
const RECENT: usize = 3;
const DISTANCE_BIAS: usize = 2;
/// The most bits of a distance beside its slot.
const MOST_BITS: usize = 17;
/// A byte of code that calls.
const CALL: usize = 0xe8;

/// What is left of a block.
#[derive(Debug)]
enum Block {
    Coded {
        main: Tree,
        lengths: Tree,
        /// In a block of the other kind distances have all of their bits as they are.
        aligned: Option<Tree>,
    },
    Stored {
        /// A byte behind it makes its length even.
        is_odd: bool,
    },
}

/// A folder that is being unpacked.
#[derive(Debug)]
pub(super) struct Lzx {
    /// The last bytes, in a ring; how many came, in all.
    window: Vec<u8>,
    written: u64,
    /// Distances of the last matches.
    recent: [usize; RECENT],
    main_lengths: Vec<u8>,
    length_lengths: [u8; LENGTH_SYMBOLS],
    block: Option<Block>,
    /// Bytes of the block that are not unpacked yet.
    left: usize,
    /// Known from the first frame on.
    calls: Option<Calls>,
}

impl Lzx {
    /// One with a window of 2 to the power of `bits` bytes.
    pub(super) fn new(bits: u8) -> Self {
        let window = 1_usize << bits.clamp(*WINDOWS.start(), *WINDOWS.end());
        let slots = (0..).take_while(|slot| base(*slot) < window).count();
        Self {
            window: vec![0; window],
            written: 0,
            recent: [1; RECENT],
            main_lengths: vec![0; BYTES + SLOT_SYMBOLS * slots],
            length_lengths: [0; LENGTH_SYMBOLS],
            block: None,
            left: 0,
            calls: None,
        }
    }

    /// Unpacks the next frame: `unpacked` bytes in the place of what is in `out`.
    pub(super) fn frame(&mut self, packed: &[u8], unpacked: usize, out: &mut Vec<u8>) -> io::Result<()> {
        let mut bits = Bits::new(packed);
        if self.calls.is_none() {
            let size = if bits.number(1)? == 1 { bits.number(32)? } else { 0 };
            self.calls = Some(Calls::new(size));
        }
        out.clear();
        out.reserve(unpacked);
        while out.len() < unpacked {
            if self.left == 0 {
                self.end_block(&mut bits)?;
                self.begin_block(&mut bits)?;
            }
            let wanted = self.left.min(unpacked.saturating_sub(out.len()));
            self.fill(&mut bits, wanted, out)?;
            self.left = self.left.saturating_sub(wanted);
        }
        // That byte may end this frame or begin the next one.
        if self.left == 0
            && let Some(Block::Stored { is_odd }) = &mut self.block
            && *is_odd
        {
            *is_odd = bits.bytes(1).is_err();
        }
        if let Some(calls) = &mut self.calls {
            calls.make_relative(out);
        }
        Ok(())
    }

    /// The byte that makes the length of a stored block even: behind it, wherever the frame ended.
    fn end_block(&mut self, bits: &mut Bits<'_>) -> io::Result<()> {
        if let Some(Block::Stored { is_odd: true }) = self.block.take() {
            bits.bytes(1)?;
        }
        Ok(())
    }

    fn begin_block(&mut self, bits: &mut Bits<'_>) -> io::Result<()> {
        let kind = bits.number(3)?;
        self.left = bits.number(24)? as usize;
        if self.left == 0 {
            return Err(invalid("a block of LZX without bytes"));
        }
        self.block = Some(match kind {
            1 => self.coded(bits, false)?,
            2 => self.coded(bits, true)?,
            3 => {
                bits.leave_word()?;
                let numbers = bits.bytes(4 * RECENT)?;
                for (recent, number) in self.recent.iter_mut().zip(numbers.as_chunks::<4>().0) {
                    *recent = usize::try_from(u32::from_le_bytes(*number)).unwrap_or(usize::MAX);
                }
                self.expect_calls();
                Block::Stored { is_odd: self.left % 2 == 1 }
            }
            other => return Err(invalid(&format!("a block of LZX of kind {other}"))),
        });
        Ok(())
    }

    fn expect_calls(&mut self) {
        if let Some(calls) = &mut self.calls {
            calls.expect();
        }
    }

    fn coded(&mut self, bits: &mut Bits<'_>, is_aligned: bool) -> io::Result<Block> {
        let aligned = if is_aligned {
            let mut lengths = [0; ALIGNED_SYMBOLS];
            for length in &mut lengths {
                *length = bits.number(ALIGNED_BITS)? as u8;
            }
            Some(Tree::new(&lengths)?)
        } else {
            None
        };
        let (bytes, matches) = self.main_lengths.split_at_mut(BYTES);
        read_lengths(bits, bytes)?;
        read_lengths(bits, matches)?;
        read_lengths(bits, &mut self.length_lengths)?;
        if self.main_lengths.get(CALL).is_some_and(|length| *length > 0) {
            self.expect_calls();
        }
        Ok(Block::Coded { main: Tree::new(&self.main_lengths)?, lengths: Tree::new(&self.length_lengths)?, aligned })
    }

    /// So many bytes of the block.
    fn fill(&mut self, bits: &mut Bits<'_>, wanted: usize, out: &mut Vec<u8>) -> io::Result<()> {
        let end = out.len().saturating_add(wanted);
        let Some(block) = self.block.take() else { return Err(invalid("a frame of LZX without a block")) };
        match &block {
            Block::Stored { .. } => bits.bytes(wanted)?.into_iter().for_each(|byte| self.push(byte, out)),
            Block::Coded { main, lengths, aligned } => {
                while out.len() < end {
                    let symbol = main.symbol(bits)?;
                    if let Ok(byte) = u8::try_from(symbol) {
                        self.push(byte, out);
                        continue;
                    }
                    let symbol = symbol.saturating_sub(BYTES);
                    let mut length = symbol % SLOT_SYMBOLS;
                    if length == LAST_SHORT {
                        length = length.saturating_add(lengths.symbol(bits)?);
                    }
                    let length = length.saturating_add(SHORTEST);
                    let distance = self.distance(bits, symbol / SLOT_SYMBOLS, aligned.as_ref())?;
                    if length > end.saturating_sub(out.len()) {
                        return Err(invalid("a match of LZX over the end of a frame or block"));
                    }
                    self.repeat(distance, length, out)?;
                }
            }
        }
        self.block = Some(block);
        Ok(())
    }

    /// The distance of a match by its slot.
    fn distance(&mut self, bits: &mut Bits<'_>, slot: usize, aligned: Option<&Tree>) -> io::Result<usize> {
        if slot < RECENT {
            self.recent.swap(0, slot);
            return Ok(self.recent.first().copied().unwrap_or_default());
        }
        let count = extra_bits(slot);
        let low = match aligned {
            Some(tree) if count >= ALIGNED_BITS => {
                let high = bits.number(count.saturating_sub(ALIGNED_BITS))? as usize;
                (high << ALIGNED_BITS).saturating_add(tree.symbol(bits)?)
            }
            _ => bits.number(count)? as usize,
        };
        let distance = base(slot).saturating_add(low).saturating_sub(DISTANCE_BIAS);
        self.recent.rotate_right(1);
        if let Some(first) = self.recent.first_mut() {
            *first = distance;
        }
        Ok(distance)
    }

    /// Repeats what lies so far back.
    fn repeat(&mut self, distance: usize, length: usize, out: &mut Vec<u8>) -> io::Result<()> {
        if distance == 0 || distance > self.window.len() || distance as u64 > self.written {
            return Err(invalid(&format!("a match of LZX {distance} bytes back, behind {} bytes", self.written)));
        }
        for _ in 0..length {
            let from = self.written.saturating_sub(distance as u64);
            let byte = self.window.get(self.place(from)).copied().unwrap_or_default();
            self.push(byte, out);
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, byte: u8, out: &mut Vec<u8>) {
        let place = self.place(self.written);
        if let Some(slot) = self.window.get_mut(place) {
            *slot = byte;
        }
        self.written = self.written.saturating_add(1);
        out.push(byte);
    }

    /// Where a byte is in the ring, whose length is a power of two.
    #[inline]
    fn place(&self, at: u64) -> usize {
        at as usize & self.window.len().saturating_sub(1)
    }
}

/// Bits of a distance that stand beside its slot: none for the first four, then one more for every second.
fn extra_bits(slot: usize) -> u32 {
    (slot / 2).saturating_sub(1).min(MOST_BITS) as u32
}

/// The least distance of a slot, with [`DISTANCE_BIAS`]: the sum of what those before it have.
fn base(slot: usize) -> usize {
    let highest = 2 * (MOST_BITS + 1);
    match slot {
        0..4 => slot,
        _ if slot <= highest => (2 | (slot % 2)) << (slot / 2 - 1),
        _ => (slot - highest).saturating_add(2) << MOST_BITS,
    }
}

/// Reads the lengths of a tree's symbols, as differences from those of the tree before.
fn read_lengths(bits: &mut Bits<'_>, lengths: &mut [u8]) -> io::Result<()> {
    let mut of_tree = [0; PRE_SYMBOLS];
    for length in &mut of_tree {
        *length = bits.number(PRE_BITS)? as u8;
    }
    let tree = Tree::new(&of_tree)?;
    let mut at = 0;
    while at < lengths.len() {
        let (symbol, count) = match tree.symbol(bits)? {
            17 => (None, 4 + bits.number(4)?),
            18 => (None, 20 + bits.number(5)?),
            19 => {
                let count = 4 + bits.number(1)?;
                (Some(tree.symbol(bits)?), count)
            }
            symbol => (Some(symbol), 1),
        };
        let slots = lengths.get_mut(at..).unwrap_or_default();
        let length = match symbol {
            None => 0,
            // 17 lengths, in a ring.
            Some(less @ 0..17) => {
                let before = slots.first().copied().unwrap_or_default();
                ((usize::from(before) + 17 - less) % 17) as u8
            }
            Some(_) => return Err(invalid("a run of lengths of LZX within another")),
        };
        // Some programs let the last run go over the end.
        slots.iter_mut().take(count as usize).for_each(|slot| *slot = length);
        at = at.saturating_add(count as usize);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_distances_follow_each_other_without_a_gap() {
        for slot in 0..60 {
            assert_eq!(base(slot + 1), base(slot) + (1 << extra_bits(slot)), "{slot}");
        }
        // The number of slots of each window, from the format's table.
        let slots = WINDOWS.map(|bits| (Lzx::new(bits).main_lengths.len() - BYTES) / SLOT_SYMBOLS);
        assert_eq!(slots.collect::<Vec<_>>(), [30, 32, 34, 36, 38, 42, 50]);
    }
}
