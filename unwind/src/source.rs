//! The source map: which record of the binary a rule was made of. Looked at to explain a frame, not to unwind.

use symseal_module::Rva;

use crate::format::SOURCE_BLOCK;
use crate::table::Table;

/// What kind of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum SourceKind {
    /// An FDE of `.eh_frame`; the offset is that of its length field in the section.
    EhFrame = 1,
    /// An FDE of `.debug_frame`; likewise.
    DebugFrame = 2,
    /// A section of linkage table entries; the offset is the section's stated address.
    Plt = 3,
    /// The instructions of a signal trampoline; the offset is their stated address.
    Trampoline = 4,
    /// A record of `.pdr`; the offset is its own in the section.
    Pdr = 5,
    /// The instructions of a function without any record; the offset is the stated address of the first.
    Instructions = 6,
    /// An entry of the exception directory; the offset is its own in it.
    Pdata = 7,
    /// Code that the exception directory does not speak of, by which it is a leaf; the offset is its stated address.
    PdataLeaf = 8,
    /// A function of `__unwind_info`; the offset is its stated address.
    CompactUnwind = 9,
    /// An entry of `.ARM.exidx`; the offset is its own in the section.
    Exidx = 10,
    /// A function's record in `.gopclntab`; the offset is its own in the section.
    GoPclntab = 11,
    /// Kept for entries of `.sframe`, which no writer of this version makes.
    Sframe = 12,
    /// An entry of a kernel's `.orc_unwind`; the offset is its own in the section.
    Orc = 13,
}

impl SourceKind {
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        Some(match bits {
            1 => Self::EhFrame,
            2 => Self::DebugFrame,
            3 => Self::Plt,
            4 => Self::Trampoline,
            5 => Self::Pdr,
            6 => Self::Instructions,
            7 => Self::Pdata,
            8 => Self::PdataLeaf,
            9 => Self::CompactUnwind,
            10 => Self::Exidx,
            11 => Self::GoPclntab,
            12 => Self::Sframe,
            13 => Self::Orc,
            _ => return None,
        })
    }

    /// The stable text.
    pub fn code(self) -> &'static str {
        match self {
            Self::EhFrame => "eh-frame",
            Self::DebugFrame => "debug-frame",
            Self::Plt => "plt",
            Self::Trampoline => "trampoline",
            Self::Pdr => "pdr",
            Self::Instructions => "instructions",
            Self::Pdata => "pdata",
            Self::PdataLeaf => "pdata-leaf",
            Self::CompactUnwind => "compact-unwind",
            Self::Exidx => "exidx",
            Self::GoPclntab => "go-pclntab",
            Self::Sframe => "sframe",
            Self::Orc => "orc",
        }
    }
}

/// The record that covers an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// First address that the record was used for. It may end before the next one starts: there the table has a gap.
    pub start: Rva,
    /// What it is.
    pub kind: SourceKind,
    /// Where it is; see [`SourceKind`].
    pub offset: u64,
}

/// Reads an unsigned LEB128 number of at most 64 bits from the front of `bytes`.
fn read_uleb(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for at in 0..10 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        let shifted = bits << (7 * at);
        if shifted >> (7 * at) != bits {
            return None;
        }
        value |= shifted;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(any(feature = "compile-elf", test))]
fn write_uleb(mut value: u64, out: &mut alloc::vec::Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads the entry at the front of `bytes`, which follows `previous` in its block.
fn read_entry(bytes: &mut &[u8], previous: (u64, u64)) -> Option<Source> {
    let start = previous.0.checked_add(read_uleb(bytes)?)?;
    let packed = read_uleb(bytes)?;
    let zigzag = packed >> 4;
    let delta = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
    Some(Source {
        start: Rva(start),
        kind: SourceKind::from_bits(packed & 15)?,
        offset: previous.1.wrapping_add_signed(delta),
    })
}

/// Writes index and map of `sources`, which are sorted by start. The offsets must be within 2^58 of 0, above or, as addresses of a kernel are, below it.
#[cfg(any(feature = "compile-elf", test))]
pub(crate) fn write(sources: &[Source]) -> (alloc::vec::Vec<u8>, alloc::vec::Vec<u8>) {
    let (mut index, mut map) = (alloc::vec::Vec::new(), alloc::vec::Vec::new());
    for block in sources.chunks(SOURCE_BLOCK) {
        let Some(first) = block.first() else { continue };
        index.extend(first.start.0.to_le_bytes());
        index.extend((map.len() as u64).to_le_bytes());
        let mut previous = (first.start.0, 0);
        for source in block {
            write_uleb(source.start.0.wrapping_sub(previous.0), &mut map);
            let delta = source.offset.wrapping_sub(previous.1) as i64;
            let zigzag = ((delta << 1) ^ (delta >> 63)) as u64;
            write_uleb(zigzag << 4 | source.kind as u64, &mut map);
            previous = (source.start.0, source.offset);
        }
    }
    (index, map)
}

impl<'a> Table<'a> {
    /// The record that the rule at `rva` was made of; `None` where the table has a gap there.
    pub fn source(&self, rva: Rva) -> Option<Source> {
        let rule = self.rule(rva)?;
        if rule == crate::rule::Rule::GAP {
            return None;
        }
        let block = self.source_index.partition_point(|entry| block_start(entry) <= rva.0).checked_sub(1)?;
        self.block(block)?.take_while(|source| source.start <= rva).last()
    }

    /// The addresses from where the record at `rva` was first used to where the next one is. Behind its own end there may be a gap.
    pub(crate) fn source_range(&self, rva: Rva) -> Option<core::ops::Range<Rva>> {
        let start = self.source(rva)?.start;
        let block = self.source_index.partition_point(|entry| block_start(entry) <= rva.0).checked_sub(1)?;
        let next = self.block(block)?.find(|source| source.start > rva).map(|source| source.start);
        let end = next.or_else(|| self.source_index.get(block + 1).map(|entry| Rva(block_start(entry))));
        Some(start..end.unwrap_or(self.text_end()))
    }

    /// Every record of the source map, by rising address. Ends early where the map is damaged.
    pub fn sources(&self) -> impl Iterator<Item = Source> + use<'a> {
        let table = self.clone();
        (0..self.source_index.len()).map_while(move |at| table.block(at)).flatten()
    }

    /// The bytes of a block.
    fn block_bytes(&self, at: usize) -> Option<&'a [u8]> {
        let start = block_data(self.source_index.get(at)?)?;
        let end = match self.source_index.get(at.checked_add(1)?) {
            Some(next) => block_data(next)?,
            None => self.source_map.len(),
        };
        self.source_map.get(start..end)
    }

    fn block(&self, at: usize) -> Option<impl Iterator<Item = Source> + use<'a>> {
        let mut bytes = self.block_bytes(at)?;
        let mut previous = (block_start(self.source_index.get(at)?), 0);
        Some(core::iter::from_fn(move || {
            if bytes.is_empty() {
                return None;
            }
            let Some(source) = read_entry(&mut bytes, previous) else {
                bytes = &[];
                return None;
            };
            previous = (source.start.0, source.offset);
            Some(source)
        }))
    }

    /// Whether every block of the map can be read to its end and addresses only rise.
    pub(crate) fn source_map_is_sound(&self) -> bool {
        let mut last = None;
        (0..self.source_index.len()).all(|at| {
            let (Some(entry), Some(mut bytes)) = (self.source_index.get(at), self.block_bytes(at)) else {
                return false;
            };
            let mut previous = (block_start(entry), 0);
            let mut count = 0;
            while !bytes.is_empty() {
                let Some(source) = read_entry(&mut bytes, previous) else { return false };
                previous = (source.start.0, source.offset);
                if last.is_some_and(|last| source.start.0 <= last) {
                    return false;
                }
                last = Some(source.start.0);
                count += 1;
            }
            let is_last = at + 1 == self.source_index.len();
            count == SOURCE_BLOCK || (is_last && (1..SOURCE_BLOCK).contains(&count))
        })
    }
}

fn block_start(entry: &[u8; 16]) -> u64 {
    entry.first_chunk::<8>().map_or(0, |start| u64::from_le_bytes(*start))
}

fn block_data(entry: &[u8; 16]) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(*entry.last_chunk::<8>()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            write_uleb(value, &mut bytes);
            let mut rest = bytes.as_slice();
            assert_eq!((read_uleb(&mut rest), rest.len()), (Some(value), 0));
        }
        assert_eq!(read_uleb(&mut &[0x80u8; 11][..]), None);
        assert_eq!(read_uleb(&mut &[0xffu8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f][..]), None);
    }

    #[test]
    fn offsets_at_both_ends_of_the_addresses_are_read_as_they_were_written() {
        let offsets = [12, 0xffff_ffff_81e0_1740, 6, 0xfc00_0000_0000_0000, 0x03ff_ffff_ffff_ffff];
        let sources = offsets.iter().zip(1..).map(|(offset, at)| Source {
            start: Rva(at),
            kind: SourceKind::Instructions,
            offset: *offset,
        });
        let sources: Vec<Source> = sources.collect();
        for pair in sources.windows(2) {
            let (_, map) = write(pair);
            let (mut rest, mut previous) = (map.as_slice(), (pair[0].start.0, 0));
            for source in pair {
                assert_eq!(read_entry(&mut rest, previous), Some(*source));
                previous = (source.start.0, source.offset);
            }
            assert!(rest.is_empty());
        }
    }
}
