//! Blocks of gzip that say their size in a field of their own (SAM/BAM specification, 4.1, "The BGZF compression format").

use super::{Part, Restart};

/// Bytes of a header up to the size; what stands behind the packed bytes: a checksum, and the unpacked size.
const HEADER: usize = 18;
const SIZE_BEFORE_END: u64 = 4;

/// Blocks that are gone over at most.
const MOST: u32 = 1 << 22;

/// The last place at or before `before` unpacked bytes.
pub(super) fn restart(payload: &mut Part<'_>, before: u64) -> Restart {
    let mut restart = Restart::default();
    for _ in 0..MOST {
        let Some(next) = behind(payload, restart).filter(|next| next.unpacked <= before) else { break };
        restart = next;
    }
    restart
}

/// What follows a block.
fn behind(payload: &mut Part<'_>, at: Restart) -> Option<Restart> {
    let header: [u8; HEADER] = payload.bytes(at.packed)?;
    let has_size = header.starts_with(&[0x1f, 0x8b, 8, 4]) && header.get(10..16)? == [6, 0, b'B', b'C', 2, 0];
    let size = header.get(16..)?.first_chunk().filter(|_| has_size)?;
    let end = at.packed.checked_add(u64::from(u16::from_le_bytes(*size)))?.checked_add(1)?;
    let unpacked = u32::from_le_bytes(payload.bytes(end.checked_sub(SIZE_BEFORE_END)?)?);
    (end < payload.length).then_some(Restart { packed: end, unpacked: at.unpacked.checked_add(unpacked.into())? })
}
