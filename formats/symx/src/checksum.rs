//! CRC-32C (Castagnoli; reflected polynomial 0x82f63b78), eight bytes a step.

const TABLES: [[u32; 256]; 8] = tables();

#[allow(clippy::indexing_slicing)]
const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = value >> 1 ^ 0x82f6_3b78 & (value & 1).wrapping_neg();
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The CRC-32C of `parts`, one after the other.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    let at = |table: usize, byte: u32| TABLES[table & 7][(byte & 0xff) as usize];
    let mut crc = u32::MAX;
    for part in parts {
        let (words, tail) = part.as_chunks::<8>();
        for word in words {
            let word = u64::from_le_bytes(*word);
            let (low, high) = (word as u32 ^ crc, (word >> 32) as u32);
            crc = at(7, low) ^ at(6, low >> 8) ^ at(5, low >> 16) ^ at(4, low >> 24);
            crc ^= at(3, high) ^ at(2, high >> 8) ^ at(1, high >> 16) ^ at(0, high >> 24);
        }
        for byte in tail {
            crc = crc >> 8 ^ at(0, crc ^ u32::from(*byte));
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn the_published_check_values_come_out() {
        assert_eq!(crc32c(&[b"123456789"]), 0xe306_9283);
        assert_eq!(crc32c(&[b"12345", b"6789"]), 0xe306_9283);
        // RFC 3720, B.4: 32 bytes of zeroes, and of ones.
        assert_eq!(crc32c(&[&[0; 32]]), 0x8a91_36aa);
        assert_eq!(crc32c(&[&[0xff; 32]]), 0x62a8_ab43);
    }
}
