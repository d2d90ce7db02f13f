//! The blocks of xz streams, by the index at the end of each ("The .xz File Format", version 1.2.1).

use std::io::Read as _;

use super::{Part, Restart};

/// Bytes of a stream's header, and of its footer.
const ENDS: u64 = 12;
/// What a footer ends with.
const FOOTER_MAGIC: &[u8] = b"YZ";
/// Blocks, and indexes, are padded to so many bytes; so is what lies between streams.
const ALIGNMENT: u64 = 4;
/// The largest index that is read, in bytes, and streams that are gone over at most.
const LARGEST_INDEX: u64 = 64 << 20;
const MOST_STREAMS: usize = 1 << 12;
/// Bytes of the longest number.
const LONGEST_NUMBER: u32 = 9;

/// A stream of the payload.
struct Stream {
    start: u64,
    /// What each block takes in the file without its padding, and unpacked.
    blocks: Vec<(u64, u64)>,
}

/// The last block that begins at or before the member, and the header of its stream, which a decoder has to see before it; the beginning of that stream, where the member
/// goes on in the next one: at its end a decoder compares what it saw with the index. `None` where there is no index to be read.
pub(super) fn restart(payload: &mut Part<'_>, before: u64, size: u64) -> Option<(Restart, Vec<u8>)> {
    let mut streams = Vec::new();
    let mut end = payload.length;
    let mut left = LARGEST_INDEX;
    while end > 0 {
        let stream = stream(payload, end, &mut left)?;
        end = stream.start;
        streams.push(stream);
        if streams.len() > MOST_STREAMS {
            return None;
        }
    }
    let mut unpacked = 0_u64;
    for stream in streams.iter().rev() {
        let begin = Restart { packed: stream.start, unpacked };
        let mut at = Restart { packed: stream.start.checked_add(ENDS)?, unpacked };
        let mut found = None;
        for (size, unpacked_size) in &stream.blocks {
            if at.unpacked <= before {
                found = Some(at);
            }
            at.packed = at.packed.checked_add(size.checked_next_multiple_of(ALIGNMENT)?)?;
            at.unpacked = at.unpacked.checked_add(*unpacked_size)?;
        }
        unpacked = at.unpacked;
        if unpacked <= before {
            continue;
        }
        if before.checked_add(size)? > unpacked {
            return Some((begin, Vec::new()));
        }
        let header: [u8; ENDS as usize] = payload.bytes(stream.start)?;
        return Some((found?, header.to_vec()));
    }
    None
}

/// The stream that ends at a place, with padding behind it.
fn stream(payload: &mut Part<'_>, mut end: u64, left: &mut u64) -> Option<Stream> {
    let footer = loop {
        let footer: [u8; ENDS as usize] = payload.bytes(end.checked_sub(ENDS)?)?;
        if footer.ends_with(FOOTER_MAGIC) {
            break footer;
        }
        *left = left.checked_sub(ALIGNMENT)?;
        end = end.checked_sub(ALIGNMENT).filter(|_| footer.ends_with(&[0; ALIGNMENT as usize]))?;
    };
    let words = u32::from_le_bytes(*footer.get(4..)?.first_chunk()?);
    let size = u64::from(words).checked_add(1)?.checked_mul(ALIGNMENT)?;
    *left = left.checked_sub(size)?;
    let index_at = end.checked_sub(ENDS)?.checked_sub(size)?;
    let mut index = vec![0; usize::try_from(size).ok()?];
    payload.go_to(index_at).ok()?;
    payload.read_exact(&mut index).ok()?;
    let mut rest = index.strip_prefix(&[0])?;
    let count = number(&mut rest)?;
    let mut blocks = Vec::new();
    let mut packed = 0_u64;
    for _ in 0..count {
        let (size, unpacked) = (number(&mut rest)?, number(&mut rest)?);
        packed = packed.checked_add(size.checked_next_multiple_of(ALIGNMENT)?)?;
        blocks.push((size, unpacked));
    }
    let start = index_at.checked_sub(packed)?.checked_sub(ENDS)?;
    Some(Stream { start, blocks })
}

/// Seven bits a byte, the lowest first; all but the last have the highest bit set.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for at in 0..LONGEST_NUMBER {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
