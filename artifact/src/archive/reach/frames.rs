//! Zstandard frames in a row (RFC 8878, section 3.1), with a seek table at their end or without one (the `contrib/seekable_format` of libzstd).

use super::{Part, Restart};

const FRAME: u32 = 0xfd2f_b528;
/// Sixteen numbers from here on begin frames that are skipped; one of them is the seek table's.
const SKIPPABLE: u32 = 0x184d_2a50;
const SEEK_TABLE: u32 = 0x184d_2a5e;
/// The last bytes of a seek table, and how many it ends with: number of frames, flags, this.
const SEEKABLE: u32 = 0x8f92_eab1;
const FOOTER: u64 = 9;
const HAS_CHECKSUMS: u8 = 0x80;

/// Headers of frames and blocks, or entries of a table, that are gone over at most.
const MOST: u32 = 1 << 22;

/// A block's kind whose content is one byte, however long it is unpacked.
const REPEATED: u32 = 1;

/// The last place at or before `before` unpacked bytes.
pub(super) fn restart(payload: &mut Part<'_>, before: u64) -> Restart {
    by_table(payload, before).unwrap_or_else(|| by_headers(payload, before))
}

fn by_table(payload: &mut Part<'_>, before: u64) -> Option<Restart> {
    let footer: [u8; FOOTER as usize] = payload.bytes(payload.length.checked_sub(FOOTER)?)?;
    let (count, rest) = footer.split_first_chunk()?;
    let (flags, magic) = rest.split_first()?;
    let count = u32::from_le_bytes(*count);
    if *magic.first_chunk::<4>()? != SEEKABLE.to_le_bytes() || count > MOST {
        return None;
    }
    let entry = if flags & HAS_CHECKSUMS == 0 { 8 } else { 12 };
    let size = u64::from(count).checked_mul(entry)?.checked_add(FOOTER)?;
    let at = payload.length.checked_sub(size)?;
    let head: [u8; 8] = payload.bytes(at.checked_sub(8)?)?;
    let (magic, stated) = (head.first_chunk::<4>()?, head.last_chunk::<4>()?);
    if *magic != SEEK_TABLE.to_le_bytes() || u64::from(u32::from_le_bytes(*stated)) != size {
        return None;
    }
    let mut table = vec![0; usize::try_from(size).ok()?];
    payload.go_to(at).ok()?;
    std::io::Read::read_exact(payload, &mut table).ok()?;
    let mut restart = Restart::default();
    for entry in table.chunks_exact(usize::try_from(entry).ok()?).take(count as usize) {
        let [packed, unpacked] = [0, 4].map(|at| entry.get(at..).and_then(<[u8]>::first_chunk).copied());
        let next = Restart {
            packed: restart.packed.checked_add(u32::from_le_bytes(packed?).into())?,
            unpacked: restart.unpacked.checked_add(u32::from_le_bytes(unpacked?).into())?,
        };
        if next.unpacked > before || next.packed >= at {
            break;
        }
        restart = next;
    }
    Some(restart)
}

/// Goes from frame to frame over the headers of their blocks, as long as frames say how large they are unpacked.
fn by_headers(payload: &mut Part<'_>, before: u64) -> Restart {
    let (mut restart, mut left) = (Restart::default(), MOST);
    while let Some(next) = behind(payload, restart, &mut left).filter(|next| next.unpacked <= before) {
        restart = next;
    }
    restart
}

/// What follows a frame.
fn behind(payload: &mut Part<'_>, at: Restart, left: &mut u32) -> Option<Restart> {
    *left = left.checked_sub(1)?;
    let head: [u8; 5] = payload.bytes(at.packed)?;
    let magic = u32::from_le_bytes(*head.first_chunk()?);
    if magic & !0xf == SKIPPABLE {
        let size: [u8; 4] = payload.bytes(at.packed.checked_add(4)?)?;
        let packed = at.packed.checked_add(8)?.checked_add(u32::from_le_bytes(size).into())?;
        return (packed < payload.length).then_some(Restart { packed, ..at });
    }
    if magic != FRAME {
        return None;
    }
    let flags = *head.last()?;
    let is_single = flags >> 5 & 1 == 1;
    let window = u64::from(!is_single);
    let dictionary = [0, 1, 2, 4].get(usize::from(flags & 3)).copied()?;
    let size_at = at.packed.checked_add(5)?.checked_add(window)?.checked_add(dictionary)?;
    let (size_bytes, unpacked) = match (flags >> 6, is_single) {
        (0, true) => (1, u64::from(u8::from_le_bytes(payload.bytes(size_at)?))),
        // Such frames do not say it.
        (0, false) => return None,
        (1, _) => (2, u64::from(u16::from_le_bytes(payload.bytes(size_at)?)).checked_add(256)?),
        (2, _) => (4, u64::from(u32::from_le_bytes(payload.bytes(size_at)?))),
        _ => (8, u64::from_le_bytes(payload.bytes(size_at)?)),
    };
    let mut block_at = size_at.checked_add(size_bytes)?;
    loop {
        *left = left.checked_sub(1)?;
        let [a, b, c] = payload.bytes(block_at)?;
        let header = u32::from_le_bytes([a, b, c, 0]);
        let size = if header >> 1 & 3 == REPEATED { 1 } else { header >> 3 };
        block_at = block_at.checked_add(3)?.checked_add(size.into())?;
        if header & 1 == 1 {
            break;
        }
    }
    let checksum = if flags >> 2 & 1 == 1 { 4 } else { 0 };
    let packed = block_at.checked_add(checksum)?;
    (packed < payload.length).then_some(Restart { packed, unpacked: at.unpacked.checked_add(unpacked)? })
}
