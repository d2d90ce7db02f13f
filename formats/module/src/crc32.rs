//! CRC-32 as zlib, gzip and PNG compute it (reflected polynomial 0xEDB88320), for short pieces of our own tables.
//!
//! Eight bytes at a time by tables ("slicing by 8", Kounavis and Berry 2005), and so without a look at what the processor can do: on a
//! virtual machine that look costs more than a table's first name.

/// How many bytes are taken at once.
const SLICES: usize = 8;

/// `TABLES[0]` is the checksum of one byte; `TABLES[n]` that of one byte and `n` zero bytes behind it.
static TABLES: [[u32; 256]; SLICES] = {
    let mut tables = [[0; 256]; SLICES];
    let mut at = 0;
    while at < 256 {
        let mut value = at as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { 0xEDB8_8320 ^ (value >> 1) } else { value >> 1 };
            bit += 1;
        }
        tables[0][at] = value;
        at += 1;
    }
    let mut slice = 1;
    while slice < SLICES {
        let mut at = 0;
        while at < 256 {
            let before = tables[slice - 1][at];
            tables[slice][at] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            at += 1;
        }
        slice += 1;
    }
    tables
};

/// What a byte does to the checksum that has `behind` bytes to go behind it.
fn step(behind: usize, byte: u8) -> u32 {
    TABLES.get(behind).and_then(|table| table.get(usize::from(byte))).copied().unwrap_or_default()
}

/// The checksum of `parts` one after the other.
pub fn crc32(parts: &[&[u8]]) -> u32 {
    let mut value = u32::MAX;
    for part in parts {
        let (chunks, rest) = part.as_chunks::<SLICES>();
        for chunk in chunks {
            let [a, b, c, d] = value.to_le_bytes();
            let [e, f, g, h, i, j, k, l] = *chunk;
            let first = step(7, a ^ e) ^ step(6, b ^ f) ^ step(5, c ^ g) ^ step(4, d ^ h);
            value = first ^ step(3, i) ^ step(2, j) ^ step(1, k) ^ step(0, l);
        }
        for byte in rest {
            value = step(0, value as u8 ^ byte) ^ (value >> 8);
        }
    }
    !value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_well_known_one() {
        assert_eq!(crc32(&[b"123456789"]), 0xCBF4_3926);
        assert_eq!(crc32(&[b"1234", b"", b"56789"]), 0xCBF4_3926);
        assert_eq!(crc32(&[]), 0);
    }

    /// The definition: division by the polynomial, a bit at a time.
    #[test]
    fn eight_bytes_at_a_time_are_as_many_bits() {
        let bytes: [u8; 61] = core::array::from_fn(|at| (at * 37 + 11) as u8);
        for end in 0..=bytes.len() {
            let mut expected = u32::MAX;
            for byte in &bytes[..end] {
                expected ^= u32::from(*byte);
                for _ in 0..8 {
                    expected = if expected & 1 == 1 { 0xEDB8_8320 ^ (expected >> 1) } else { expected >> 1 };
                }
            }
            for cut in [0, end / 3, end] {
                assert_eq!(crc32(&[&bytes[..cut], &bytes[cut..end]]), !expected, "{end} bytes, cut at {cut}");
            }
        }
    }
}
