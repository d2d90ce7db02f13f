//! Finding the frame description entries of a section, whatever state the section is in.

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

use gimli::{
    BaseAddresses, CommonInformationEntry, DebugFrame, EhFrame, EhFrameHdr, EndianSlice, FrameDescriptionEntry,
    RunTimeEndian, UnwindSection, Vendor,
};
use hashbrown::HashMap;

use super::Report;
use crate::arch::Arch;

pub(super) type Reader<'a> = EndianSlice<'a, RunTimeEndian>;
pub(super) type Fde<'a> = FrameDescriptionEntry<Reader<'a>>;

/// The offsets of the entries of a section.
struct Entries {
    fdes: Vec<usize>,
    /// The section could be read to its end.
    whole: bool,
}

/// Steps over the lengths of a section. gimli's own iterator ends at a terminator, which linkers also leave in the middle.
fn entries(bytes: &[u8], is_eh_frame: bool, arch: Arch, report: &mut Report) -> Entries {
    let big_endian = arch.is_big_endian();
    let u32_of = |bytes: &[u8; 4]| if big_endian { u32::from_be_bytes(*bytes) } else { u32::from_le_bytes(*bytes) };
    let u64_of = |bytes: &[u8; 8]| if big_endian { u64::from_be_bytes(*bytes) } else { u64::from_le_bytes(*bytes) };
    let mut found = Entries { fdes: Vec::new(), whole: true };
    let mut at = 0usize;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(length) = rest.first_chunk::<4>().map(u32_of) else {
            found.whole = false;
            break;
        };
        let is_64_bit = length == u32::MAX;
        let (prefix, length) = if is_64_bit {
            let length = rest.get(4..).and_then(|rest| rest.first_chunk::<8>());
            (12, length.and_then(|length| usize::try_from(u64_of(length)).ok()))
        } else {
            (4, usize::try_from(length).ok())
        };
        if length == Some(0) {
            report.terminators_in_the_middle += usize::from(rest.len() > prefix);
            at += prefix;
            continue;
        }
        let body = length.and_then(|length| rest.get(prefix..prefix.checked_add(length)?));
        let Some(body) = body else {
            found.whole = false;
            break;
        };
        // The identifier is 4 bytes in .eh_frame and in 32-bit .debug_frame.
        let is_cie = if is_64_bit && !is_eh_frame {
            body.first_chunk::<8>().map(|id| *id == [0xff; 8])
        } else {
            body.first_chunk::<4>().map(|id| *id == if is_eh_frame { [0; 4] } else { [0xff; 4] })
        };
        match is_cie {
            Some(true) => {}
            Some(false) => found.fdes.push(at),
            None => report.damaged_entries += 1,
        }
        at += prefix + body.len();
    }
    if !found.whole {
        report.damaged_entries += 1;
    }
    found
}

/// What differs between the two sections for gimli.
pub(super) trait CfiSection<'a>: UnwindSection<Reader<'a>> {
    fn at(offset: usize) -> Self::Offset;
    fn offset(offset: Self::Offset) -> usize;
}

impl<'a> CfiSection<'a> for EhFrame<Reader<'a>> {
    fn at(offset: usize) -> Self::Offset {
        gimli::EhFrameOffset(offset)
    }

    fn offset(offset: Self::Offset) -> usize {
        offset.0
    }
}

impl<'a> CfiSection<'a> for DebugFrame<Reader<'a>> {
    fn at(offset: usize) -> Self::Offset {
        gimli::DebugFrameOffset(offset)
    }

    fn offset(offset: Self::Offset) -> usize {
        offset.0
    }
}

/// `.eh_frame` at `address`, with the settings of `arch`.
pub(super) fn eh_frame<'a>(bytes: &'a [u8], arch: Arch) -> EhFrame<Reader<'a>> {
    let mut section = EhFrame::new(bytes, endian(arch));
    section.set_address_size(arch.word_bytes());
    section.set_vendor(vendor(arch));
    section
}

/// `.debug_frame`, with the settings of `arch`.
pub(super) fn debug_frame<'a>(bytes: &'a [u8], arch: Arch) -> DebugFrame<Reader<'a>> {
    let mut section = DebugFrame::new(bytes, endian(arch));
    section.set_address_size(arch.word_bytes());
    section.set_vendor(vendor(arch));
    section
}

fn vendor(arch: Arch) -> Vendor {
    match arch {
        Arch::Aarch64 => Vendor::AArch64,
        _ => Vendor::Default,
    }
}

fn endian(arch: Arch) -> RunTimeEndian {
    if arch.is_big_endian() { RunTimeEndian::Big } else { RunTimeEndian::Little }
}

/// The entries of `.eh_frame` at `address`; `header` finds those behind a damaged place.
pub(super) fn eh_frame_fdes<'s, 'a>(
    section: &'s EhFrame<Reader<'a>>,
    (address, bytes): (u64, &'a [u8]),
    header: Option<&'a [u8]>,
    bases: &'s BaseAddresses,
    arch: Arch,
    report: &mut Report,
) -> (Vec<FdePlace>, FdeReader<'s, 'a, EhFrame<Reader<'a>>>) {
    let mut found = entries(bytes, true, arch, report);
    if !found.whole
        && let Some(header) = header
    {
        let parsed = EhFrameHdr::new(header, endian(arch)).parse(bases, arch.word_bytes());
        if let Ok(parsed) = &parsed
            && let Some(table) = parsed.table()
        {
            let mut rows = table.iter(bases);
            while let Ok(Some((_, fde))) = rows.next() {
                // Not gimli's own subtraction: it overflows for an entry that claims to lie before the section.
                let offset = fde.direct().ok().and_then(|fde| usize::try_from(fde.checked_sub(address)?).ok());
                found.fdes.extend(offset.filter(|offset| *offset < bytes.len()));
            }
        }
        found.fdes.sort_unstable();
        found.fdes.dedup();
    }
    let mut reader = FdeReader::new(section, bases);
    (reader.places(&found.fdes, report), reader)
}

/// The entries of `.debug_frame`.
pub(super) fn debug_frame_fdes<'s, 'a>(
    section: &'s DebugFrame<Reader<'a>>,
    bytes: &'a [u8],
    bases: &'s BaseAddresses,
    arch: Arch,
    report: &mut Report,
) -> (Vec<FdePlace>, FdeReader<'s, 'a, DebugFrame<Reader<'a>>>) {
    let found = entries(bytes, false, arch, report);
    let mut reader = FdeReader::new(section, bases);
    (reader.places(&found.fdes, report), reader)
}

/// Where an entry stands, and the code that it speaks for.
pub(super) struct FdePlace {
    pub(super) range: Range<u64>,
    pub(super) offset: usize,
}

/// Sorts by rising address, of those that begin at one address the longest first. Not part of what is compiled for each kind of section.
pub(super) fn sort(places: &mut [FdePlace]) {
    places.sort_by_key(|place| (place.range.start, Reverse(place.range.end), place.offset));
}

/// Reads entries by their offsets; the common parts that they share are read once. An entry as gimli has it takes 176 bytes, its place 24,
/// and a large library has a hundred thousand of them.
pub(super) struct FdeReader<'s, 'a, S> {
    section: &'s S,
    bases: &'s BaseAddresses,
    cies: HashMap<usize, gimli::Result<CommonInformationEntry<Reader<'a>>>>,
}

impl<'s, 'a, S: CfiSection<'a>> FdeReader<'s, 'a, S> {
    fn new(section: &'s S, bases: &'s BaseAddresses) -> Self {
        Self { section, bases, cies: HashMap::new() }
    }

    pub(super) fn read(&mut self, offset: usize) -> gimli::Result<Fde<'a>> {
        let cies = &mut self.cies;
        self.section.fde_from_offset(self.bases, S::at(offset), |section, bases, at| {
            cies.entry(S::offset(at)).or_insert_with(|| section.cie_from_offset(bases, at)).clone()
        })
    }

    fn places(&mut self, offsets: &[usize], report: &mut Report) -> Vec<FdePlace> {
        let mut places = Vec::with_capacity(offsets.len());
        for offset in offsets {
            match self.read(*offset) {
                Ok(fde) => places.push(FdePlace { range: fde.initial_address()..fde.end_address(), offset: *offset }),
                Err(_) => report.damaged_entries += 1,
            }
        }
        places
    }
}
