//! The sections that one file's DWARF stands in, decompressed.

use crate::headers::ObjectHeaders;
use crate::in_order::in_order;
use crate::work::{Skipped, note};
use gimli::{EndianSlice, RunTimeEndian};
use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::ops::{ControlFlow, Range};

pub(crate) type Slice<'d> = EndianSlice<'d, RunTimeEndian>;

/// Sections' suffixes, each with why it is left out if it is.
macro_rules! named {
    ($($suffix:literal),* $(,)?) => {
        [$(($suffix, concat!("section .debug_", $suffix, " that cannot be decompressed"))),*]
    };
}

/// Owned or borrowed bytes of the sections; empty where there is none.
pub(crate) struct DwarfSections<'d> {
    pub(crate) is_little_endian: bool,
    /// See [`ObjectHeaders::has_marked_addresses`].
    pub(crate) has_marked_addresses: bool,
    /// The sections named `….dwo`.
    pub(crate) is_split: bool,
    /// Where the file's entries start in the space of all entries; see [`DwarfFiles`](super::dwarf_files::DwarfFiles).
    pub(crate) base: u64,
    pub(crate) info: Cow<'d, [u8]>,
    /// Type units of DWARF 4. Their entries come behind those of `info` in the space of all entries.
    pub(crate) types: Cow<'d, [u8]>,
    pub(crate) abbrev: Cow<'d, [u8]>,
    pub(crate) str: Cow<'d, [u8]>,
    pub(crate) line: Cow<'d, [u8]>,
    pub(crate) line_str: Cow<'d, [u8]>,
    /// Tables without rows, of the files that split type units name.
    pub(crate) line_dwo: Cow<'d, [u8]>,
    pub(crate) str_offsets: Cow<'d, [u8]>,
    pub(crate) addr: Cow<'d, [u8]>,
    pub(crate) ranges: Cow<'d, [u8]>,
    pub(crate) rnglists: Cow<'d, [u8]>,
    /// Which parts of the sections belong to which unit, in a DWARF package (`.dwp`).
    pub(crate) cu_index: Cow<'d, [u8]>,
    /// The same of type units.
    pub(crate) tu_index: Cow<'d, [u8]>,
}

impl<'d> DwarfSections<'d> {
    /// A section that cannot be decompressed is empty, and counted as skipped.
    pub(crate) fn load(headers: &dyn ObjectHeaders<'d>, threads: NonZeroUsize, skipped: &mut Skipped) -> Self {
        // The longest first.
        let suffixes =
            named!["info", "types", "line", "str", "abbrev", "rnglists", "ranges", "line_str", "addr", "str_offsets"];
        let [info, types, line, str, abbrev, rnglists, ranges, line_str, addr, str_offsets] =
            loaded(headers, suffixes, threads, skipped);
        let none = Self::empty(headers.is_little_endian());
        let has_marked_addresses = headers.has_marked_addresses();
        Self {
            has_marked_addresses,
            info,
            types,
            abbrev,
            str,
            line,
            line_str,
            str_offsets,
            addr,
            ranges,
            rnglists,
            ..none
        }
    }

    /// The sections of split DWARF. (DWARF 5, 7.3.2 and 7.3.5; before, <https://gcc.gnu.org/wiki/DebugFission>)
    pub(crate) fn load_split(headers: &dyn ObjectHeaders<'d>, threads: NonZeroUsize, skipped: &mut Skipped) -> Self {
        // The lines of split units, and all addresses, are in the file that has their skeletons.
        let suffixes = named![
            "info.dwo",
            "types.dwo",
            "str.dwo",
            "abbrev.dwo",
            "str_offsets.dwo",
            "rnglists.dwo",
            "line.dwo",
            "cu_index",
            "tu_index"
        ];
        let [info, types, str, abbrev, str_offsets, rnglists, line_dwo, cu_index, tu_index] =
            loaded(headers, suffixes, threads, skipped);
        let none = Self::empty(headers.is_little_endian());
        Self { is_split: true, info, types, abbrev, str, str_offsets, rnglists, line_dwo, cu_index, tu_index, ..none }
    }

    /// Of a file that is not there.
    pub(crate) fn empty(is_little_endian: bool) -> Self {
        Self {
            is_little_endian,
            has_marked_addresses: false,
            is_split: false,
            base: 0,
            info: Cow::default(),
            types: Cow::default(),
            abbrev: Cow::default(),
            str: Cow::default(),
            line: Cow::default(),
            line_str: Cow::default(),
            line_dwo: Cow::default(),
            str_offsets: Cow::default(),
            addr: Cow::default(),
            ranges: Cow::default(),
            rnglists: Cow::default(),
            cu_index: Cow::default(),
            tu_index: Cow::default(),
        }
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        [
            &self.info,
            &self.types,
            &self.abbrev,
            &self.str,
            &self.line,
            &self.line_str,
            &self.line_dwo,
            &self.str_offsets,
            &self.addr,
            &self.ranges,
            &self.rnglists,
        ]
        .iter()
        .map(|section| section.len() as u64)
        .sum()
    }

    /// Where the entries of `types` start in the space of all entries.
    pub(crate) fn types_base(&self) -> u64 {
        // Sections are shorter than 2^63 bytes, and so are all files together.
        self.base + self.info.len() as u64
    }

    /// Behind the file's entries in the space of all entries.
    pub(crate) fn end(&self) -> u64 {
        self.types_base() + self.types.len() as u64
    }

    /// The bytes of entries between two places in the space of all entries; none where one section does not hold both.
    pub(crate) fn entries(&self, places: Range<u64>) -> Option<&[u8]> {
        let (section, base) = match places.start.checked_sub(self.types_base()) {
            Some(_) => (&self.types, self.types_base()),
            None => (&self.info, self.base),
        };
        let local = |place: u64| place.checked_sub(base).and_then(|place| usize::try_from(place).ok());
        section.get(local(places.start)?..local(places.end)?)
    }

    /// The bits of an address of code that are the address.
    pub(crate) fn address_bits(&self) -> u64 {
        !u64::from(self.has_marked_addresses)
    }

    pub(crate) fn slice<'s>(&self, bytes: &'s [u8]) -> Slice<'s> {
        let endian = if self.is_little_endian { RunTimeEndian::Little } else { RunTimeEndian::Big };
        EndianSlice::new(bytes, endian)
    }

    /// The text at an offset of a string section; none in a hole of it.
    pub(crate) fn text(section: &[u8], offset: u64) -> Option<&[u8]> {
        let at = usize::try_from(offset).ok()?;
        let rest = section.get(at..)?;
        let text = rest.get(..memchr::memchr(0, rest)?)?;
        (!text.is_empty() || !is_hole(section, at)).then_some(text)
    }
}

/// So many zeros in a row are no texts: each text stands once, the empty one too, and an interrupted copy leaves whole blocks of them.
const HOLE: usize = 16;

/// Whether the zero at a place of a string section is one of many in a row.
fn is_hole(section: &[u8], at: usize) -> bool {
    let is_zero = |byte: &&u8| **byte == 0;
    let behind = section.iter().skip(at).take(HOLE).take_while(is_zero).count();
    let before = section.get(..at).unwrap_or_default().iter().rev().take(HOLE).take_while(is_zero).count();
    before + behind >= HOLE
}

/// The sections with these suffixes, decompressed on so many threads.
fn loaded<'d, const N: usize>(
    headers: &dyn ObjectHeaders<'d>,
    suffixes: [(&str, &'static str); N],
    threads: NonZeroUsize,
    skipped: &mut Skipped,
) -> [Cow<'d, [u8]>; N] {
    let mut sections = std::array::from_fn(|_| Cow::default());
    let mut places = sections.iter_mut();
    let load = |(): &mut (), at: usize| suffixes.get(at).and_then(|(suffix, _)| headers.debug_section(suffix));
    let mut reasons = suffixes.iter().map(|(_, reason)| *reason);
    let _: ControlFlow<()> = in_order(N, threads, load, |section| {
        match (places.next(), reasons.next(), section) {
            (Some(place), _, Some(Ok(bytes))) => *place = bytes,
            (_, Some(reason), Some(Err(_))) => note(skipped, reason),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    sections
}
