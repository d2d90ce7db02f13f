//! The sections that DWARF stands in, decompressed.

use super::abbrev::Abbreviations;
use super::unit::{UnitHeader, unit_headers};
use crate::budget::Budget;
use crate::headers::ObjectHeaders;
use crate::work::{Skipped, note};
use gimli::{EndianSlice, RunTimeEndian};
use std::borrow::Cow;

pub(crate) type Slice<'d> = EndianSlice<'d, RunTimeEndian>;

/// Owned or borrowed bytes of the sections; empty where there is none.
pub(crate) struct DwarfSections<'d> {
    pub(crate) is_little_endian: bool,
    pub(crate) info: Cow<'d, [u8]>,
    pub(crate) abbrev: Cow<'d, [u8]>,
    pub(crate) str: Cow<'d, [u8]>,
    pub(crate) line: Cow<'d, [u8]>,
    pub(crate) line_str: Cow<'d, [u8]>,
    pub(crate) str_offsets: Cow<'d, [u8]>,
    pub(crate) addr: Cow<'d, [u8]>,
    pub(crate) ranges: Cow<'d, [u8]>,
    pub(crate) rnglists: Cow<'d, [u8]>,
}

impl<'d> DwarfSections<'d> {
    /// A section that cannot be decompressed is empty, and counted as skipped.
    pub(crate) fn load(headers: &dyn ObjectHeaders<'d>, skipped: &mut Skipped) -> Self {
        let mut load = |suffix: &str| match headers.debug_section(suffix) {
            None => Cow::default(),
            Some(Ok(bytes)) => bytes,
            Some(Err(_)) => {
                note(skipped, "debug section that cannot be decompressed");
                Cow::default()
            }
        };
        Self {
            is_little_endian: headers.is_little_endian(),
            info: load("info"),
            abbrev: load("abbrev"),
            str: load("str"),
            line: load("line"),
            line_str: load("line_str"),
            str_offsets: load("str_offsets"),
            addr: load("addr"),
            ranges: load("ranges"),
            rnglists: load("rnglists"),
        }
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        [
            &self.info,
            &self.abbrev,
            &self.str,
            &self.line,
            &self.line_str,
            &self.str_offsets,
            &self.addr,
            &self.ranges,
            &self.rnglists,
        ]
        .iter()
        .map(|section| section.len() as u64)
        .sum()
    }

    pub(crate) fn slice<'s>(&self, bytes: &'s [u8]) -> Slice<'s> {
        let endian = if self.is_little_endian { RunTimeEndian::Little } else { RunTimeEndian::Big };
        EndianSlice::new(bytes, endian)
    }

    /// The text at an offset of a string section.
    pub(crate) fn text(section: &[u8], offset: u64) -> Option<&[u8]> {
        let rest = section.get(usize::try_from(offset).ok()?..)?;
        rest.get(..memchr::memchr(0, rest)?)
    }
}

/// Whether at least half of the abbreviation tables that units use describe base types or structures: what line-table
/// builds leave out.
pub(crate) fn describes_types(headers: &dyn ObjectHeaders<'_>) -> bool {
    let mut skipped = Skipped::new();
    let sections = DwarfSections::load(headers, &mut skipped);
    let mut budget = Budget::for_bytes(sections.abbrev.len() as u64);
    let (mut with, mut without) = (0_u64, 0_u64);
    let mut last: Option<(&UnitHeader, bool)> = None;
    for header in &unit_headers(&sections, &mut skipped) {
        let described = match last {
            Some((known, described)) if known.abbrev_offset == header.abbrev_offset => described,
            _ => {
                let bytes = usize::try_from(header.abbrev_offset).ok().and_then(|at| sections.abbrev.get(at..));
                let bytes = bytes.unwrap_or_default();
                let table = Abbreviations::parse(bytes, header.encoding, sections.is_little_endian, &mut budget);
                let Ok(table) = table else { continue };
                table.tags().any(|tag| tag == gimli::DW_TAG_base_type || tag == gimli::DW_TAG_structure_type)
            }
        };
        last = Some((header, described));
        *(if described { &mut with } else { &mut without }) += 1;
    }
    with > 0 && with >= without
}
