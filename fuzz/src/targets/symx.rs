//! Any bytes as a symbol table: what opens answers within bounds, and what verifies answers consistently.
//!
//! Each input is tried as it is and with its checksums made right, for nobody finds those by chance.

use symseal_module::Rva;
use symseal_symx::{SparseTable, Table};

pub(super) fn run(bytes: &[u8]) {
    exercise(bytes);
    let mut resealed = bytes.to_vec();
    if reseal(&mut resealed).is_some() {
        exercise(&resealed);
    }
}

fn exercise(bytes: &[u8]) {
    let sparse = SparseTable::open(bytes.len() as u64, &mut &*bytes);
    let Ok(table) = Table::open(bytes) else {
        assert!(sparse.is_err(), "both readers refuse the same tables");
        return;
    };
    let sparse = sparse.expect("both readers open the same tables");
    for address in [0, 0x10, 0x1000, 0x1007, 0x1_0000_0000, u64::MAX] {
        let found = sparse.lookup(&mut &*bytes, Rva(address)).expect("it lies in the file");
        let whole = table.lookup(Rva(address));
        assert_eq!(
            found.map(|hit| (hit.range, hit.frames.len())),
            whole.map(|hit| (hit.range(), hit.frames().count()))
        );
    }
    let verified = table.verify().is_ok();
    let _ = (table.counts(), table.debug_id(), table.producer());
    for function in table.functions() {
        let _ = (function.name.text(), function.aliases().map(|alias| alias.text().len()).sum::<usize>());
        let _ = table.lookup(function.start).map(|hit| hit.frames().count());
    }
    let mut last = 0;
    for hit in table.rows() {
        let range = hit.range();
        let frames = hit.frames().count();
        if verified {
            assert!(range.start.0 >= last && range.end > range.start && (1..=1024).contains(&frames));
            let function = hit.function();
            assert!(function.start <= range.start && range.end.0 - function.start.0 <= function.size);
            let found = table.lookup(Rva(range.end.0 - 1)).map(|hit| hit.range());
            assert_eq!(found, Some(range.clone()));
        }
        last = range.end.0;
    }
}

/// Size, number of sections and checksums as they should be; `None` where there is no room for a header.
fn reseal(bytes: &mut [u8]) -> Option<()> {
    let size = bytes.len() as u64;
    bytes.get_mut(8..16)?.copy_from_slice(&size.to_le_bytes());
    let directory = 136 + 32 * usize::from(*bytes.get(58)?);
    for at in (136..directory).step_by(32) {
        let number = |from: usize| Some(u64::from_le_bytes(bytes.get(from..from + 8)?.try_into().ok()?) as usize);
        let (start, size) = (number(at + 8)?, number(at + 16)?);
        let crc = crc32c(bytes.get(start..start.checked_add(size)?)?);
        bytes.get_mut(at + 4..at + 8)?.copy_from_slice(&crc.to_le_bytes());
    }
    bytes.get_mut(128..132)?.fill(0);
    let crc = crc32c(bytes.get(..directory)?);
    bytes.get_mut(128..132)?.copy_from_slice(&crc.to_le_bytes());
    Some(())
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ 0x82f6_3b78 & (crc & 1).wrapping_neg())
    })
}
