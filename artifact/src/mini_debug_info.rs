//! MiniDebugInfo: an ELF file with a symbol table, packed with xz into the section `.gnu_debugdata` of a stripped one.
//! (GDB manual, "Debugging information in a special section")

use crate::elf::Elf;
use crate::work::Work;
use lzma_rust2::XzReader;
use std::io::Read;

/// Symbol tables shrink to a tenth or so; what grows more than this is no symbol table.
const MOST_RATIO: u64 = 256;

/// Bytes after decompression, whatever the ratio.
const MOST_BYTES: u64 = 1 << 29;

/// The window of `xz -9` is 64 MiB, and the reader needs little beside it.
const MOST_MEMORY_KIB: u32 = (64 << 10) + 1024;

/// The packed file's bytes; none where they cannot be had within the bounds.
pub(crate) fn unpacked(packed: &[u8], work: &mut Work) -> Option<Vec<u8>> {
    let most = (packed.len() as u64).saturating_mul(MOST_RATIO).min(MOST_BYTES);
    let mut bytes = Vec::new();
    let read =
        XzReader::new_mem_limit(packed, true, MOST_MEMORY_KIB).take(most.saturating_add(1)).read_to_end(&mut bytes);
    if read.is_err() {
        work.skip("MiniDebugInfo that cannot be decompressed");
        return None;
    }
    if bytes.len() as u64 > most {
        work.skip("MiniDebugInfo of a size that no symbol table has");
        return None;
    }
    Some(bytes)
}

/// The file in the section.
pub(crate) fn parsed<'d>(bytes: &'d [u8], work: &mut Work) -> Option<Elf<'d>> {
    let elf = Elf::parse(bytes).ok();
    if elf.is_none() {
        work.skip("MiniDebugInfo that is no ELF file");
    }
    elf
}
