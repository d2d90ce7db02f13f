//! From a PDB's own addresses, section and offset, to those of the image.
//!
//! A tool that moves code about after linking leaves the PDB's addresses as they were and adds two maps (OMAP) and the
//! sections as they were before. Relative addresses before such a move are called *original* here; without one, both
//! are the same.

use super::header::{DbiHeader, u32_at};
use super::identity::DBI_STREAM;
use super::pages::Pages;
use crate::code_ranges::disjoint;
use crate::work::Work;
use pdb2::{PDB, PdbInternalSectionOffset, StreamIndex};
use std::ops::Range;

/// Places in the DBI stream's optional debug header. (LLVM, "The PDB DBI Stream", "Optional Debug Header Stream")
mod place {
    pub(super) const OMAP_FROM_SOURCE: usize = 4;
    pub(super) const SECTION_HEADERS: usize = 5;
    pub(super) const ORIGINAL_SECTION_HEADERS: usize = 10;
}

const SECTION_HEADER: usize = 40;
/// `IMAGE_SCN_MEM_EXECUTE`.
const EXECUTABLE: u32 = 0x2000_0000;

/// A section by its header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PdbSection {
    pub(crate) rva: u32,
    pub(crate) size: u32,
    pub(crate) is_executable: bool,
}

impl PdbSection {
    fn holds(&self, rva: u64) -> bool {
        rva.checked_sub(self.rva.into()).is_some_and(|offset| offset < self.size.into())
    }
}

/// A part of a range that stays together in the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapped {
    /// Original relative addresses.
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Relative address in the image.
    pub(crate) image: u32,
}

/// Where everything lies.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// By section number less 1.
    original: Vec<PdbSection>,
    /// As they are now, where the PDB has them.
    image: Option<Vec<PdbSection>>,
    /// Original address → address in the image, 0 where it is not there; by original address, each up to the next.
    from_original: Option<Vec<(u32, u32)>>,
}

impl Addresses {
    /// Reads section headers and map. Without section headers nothing has an address.
    pub(crate) fn read<'d>(pdb: &mut PDB<'d, Pages<'d>>, work: &mut Work) -> Self {
        let mut extra = |place: usize| {
            let dbi = pdb.raw_stream(DBI_STREAM).ok()??;
            let number = DbiHeader::parse(&dbi)?.extra_stream(&dbi, place)?;
            pdb.raw_stream(StreamIndex(number)).ok()?
        };
        let image = extra(place::SECTION_HEADERS).map(|stream| headers(&stream)).unwrap_or_default();
        let map = extra(place::OMAP_FROM_SOURCE).map(|stream| records(&stream));
        let original = extra(place::ORIGINAL_SECTION_HEADERS).map(|stream| headers(&stream));
        if image.is_empty() {
            work.skip("PDB without section headers");
        }
        match (original, map.filter(|map| !map.is_empty())) {
            (original, Some(map)) => {
                // Tools that only stretch a section leave the headers as they were.
                let (original, image) = match original {
                    Some(original) => (original, Some(image)),
                    None => (image, None),
                };
                Self { original, image, from_original: Some(map) }
            }
            (Some(_), None) => {
                work.skip("PDB of moved code without its address map");
                Self { original: Vec::new(), image: Some(image), from_original: None }
            }
            (None, None) => Self { original: image.clone(), image: Some(image), from_original: None },
        }
    }

    /// The original relative address; none outside of every section, as of what the linker dropped.
    pub(crate) fn original(&self, at: PdbInternalSectionOffset) -> Option<u32> {
        let section = self.original.get(usize::from(at.section).checked_sub(1)?)?;
        section.rva.checked_add(at.offset).filter(|_| at.offset < section.size)
    }

    /// Whether each of these relative addresses of the image lies in a section. Where nothing is said of the sections, nothing is wrong.
    pub(crate) fn hold(&self, mut rvas: impl Iterator<Item = u64>) -> bool {
        let Some(image) = self.image.as_ref().filter(|image| !image.is_empty()) else { return true };
        rvas.all(|rva| image.iter().any(|section| section.holds(rva)))
    }

    /// The parts of an original range that are in the image, by original address.
    pub(crate) fn mapped(&self, range: Range<u32>) -> Vec<Mapped> {
        let Some(map) = &self.from_original else {
            return vec![Mapped { start: range.start, end: range.end, image: range.start }];
        };
        let first = map.partition_point(|(start, _)| *start <= range.start).saturating_sub(1);
        let records = map.get(first..).unwrap_or_default();
        let ends = records.iter().skip(1).map(|(start, _)| *start).chain([u32::MAX]);
        let mut parts: Vec<Mapped> = Vec::new();
        for ((from, to), until) in records.iter().zip(ends).take_while(|((from, _), _)| *from < range.end) {
            let (start, end) = (range.start.max(*from), range.end.min(until));
            let image = start.checked_sub(*from).and_then(|offset| to.checked_add(offset));
            let Some(image) = image.filter(|_| start < end && *to != 0) else { continue };
            match parts.last_mut() {
                Some(last) if last.end == start && last.image.checked_add(last.end - last.start) == Some(image) => {
                    last.end = end;
                }
                _ => parts.push(Mapped { start, end, image }),
            }
        }
        parts
    }

    /// Records of the map that [`mapped`](Self::mapped) goes over for a range.
    pub(crate) fn records_in(&self, range: &Range<u32>) -> u64 {
        let before = |address: u32| {
            self.from_original.as_ref().map_or(0, |map| map.partition_point(|(start, _)| *start < address))
        };
        (before(range.end) as u64).saturating_sub(before(range.start) as u64)
    }

    /// The address in the image of one original address.
    pub(crate) fn image(&self, original: u32) -> Option<u32> {
        self.mapped(original..original.checked_add(1)?).first().map(|part| part.image)
    }

    /// Code of the image by relative address, sorted, not overlapping.
    pub(crate) fn text(&self) -> Vec<Range<u64>> {
        let code = |sections: &[PdbSection]| -> Vec<Range<u32>> {
            let code = sections.iter().filter(|section| section.is_executable);
            code.map(|section| section.rva..section.rva.saturating_add(section.size)).collect()
        };
        let ranges: Vec<Range<u32>> = match &self.image {
            Some(image) => code(image),
            None => {
                let parts = code(&self.original).into_iter().flat_map(|range| self.mapped(range));
                parts.map(|part| part.image..part.image.saturating_add(part.end - part.start)).collect()
            }
        };
        disjoint(ranges.iter().map(|range| range.start.into()..range.end.into()).collect())
    }
}

fn headers(stream: &[u8]) -> Vec<PdbSection> {
    let header = |bytes: &[u8]| {
        Some(PdbSection {
            rva: u32_at(bytes, 12)?,
            // Old linkers left the size in memory at 0.
            size: u32_at(bytes, 8).filter(|size| *size != 0).or(u32_at(bytes, 16))?,
            is_executable: u32_at(bytes, 36)? & EXECUTABLE != 0,
        })
    };
    stream.chunks_exact(SECTION_HEADER).filter_map(header).collect()
}

/// Pairs of addresses by the first one.
fn records(stream: &[u8]) -> Vec<(u32, u32)> {
    let mut records: Vec<(u32, u32)> =
        stream.chunks_exact(8).filter_map(|bytes| Some((u32_at(bytes, 0)?, u32_at(bytes, 4)?))).collect();
    if !records.is_sorted_by_key(|record| record.0) {
        records.sort_by_key(|record| record.0);
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(map: &[(u32, u32)]) -> Addresses {
        Addresses { from_original: Some(map.to_vec()), ..Addresses::default() }
    }

    #[track_caller]
    fn check(map: &[(u32, u32)], range: Range<u32>, expected: &[(u32, u32, u32)]) {
        let parts = moved(map).mapped(range);
        let found: Vec<(u32, u32, u32)> = parts.iter().map(|part| (part.start, part.end, part.image)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_range_that_was_torn_apart_comes_in_parts() {
        let map = [(0x1000, 0x5000), (0x1010, 0x3000), (0x1020, 0), (0x1030, 0x3010)];
        check(&map, 0x1004..0x1008, &[(0x1004, 0x1008, 0x5004)]);
        check(&map, 0x1008..0x1018, &[(0x1008, 0x1010, 0x5008), (0x1010, 0x1018, 0x3000)]);
        check(&map, 0x1018..0x1034, &[(0x1018, 0x1020, 0x3008), (0x1030, 0x1034, 0x3010)]);
        check(&map, 0x0ff0..0x1000, &[]);
        check(&[(0x1000, 0x2000), (0x1010, 0x2010)], 0x1000..0x1020, &[(0x1000, 0x1020, 0x2000)]);
    }

    #[test]
    fn without_a_map_addresses_stay() {
        assert_eq!(Addresses::default().mapped(5..9), [Mapped { start: 5, end: 9, image: 5 }]);
        assert_eq!(Addresses::default().image(5), Some(5));
    }
}
