//! The files that one module's DWARF stands in, and their entries as one space.
//!
//! An entry is known by one number in all files: its offset in its file's `.debug_info`, plus the lengths of those of
//! the files before. Behind a file's `.debug_info` its `.debug_types` is counted.

use super::sections::DwarfSections;
use super::sized_functions::SizedFunctions;
use super::split_fit::misfits;
use super::tables;
use super::unit::{AbbreviationTables, Unit};
use super::unit_header::{UnitHeader, unit_headers};
use crate::code_ranges::Text;
use crate::headers::ObjectHeaders;
use crate::work::Work;
use hashbrown::HashMap;
use std::num::NonZeroUsize;

/// The sections of all files.
pub(crate) struct DwarfFiles<'d> {
    /// The main file, then the supplementary one, empty where there is none, then split ones.
    files: Vec<DwarfSections<'d>>,
    /// The code of the main file.
    text: Text,
    /// Its functions as its symbols have them, where there are split files to compare with them.
    sized: SizedFunctions,
}

impl<'d> DwarfFiles<'d> {
    /// The file that units of the module's own stand in.
    pub(crate) const MAIN: u32 = 0;
    const SUPPLEMENTARY: u32 = 1;

    pub(crate) fn load(
        main: &dyn ObjectHeaders<'d>,
        supplementary: Option<&dyn ObjectHeaders<'d>>,
        split: &[&dyn ObjectHeaders<'d>],
        threads: NonZeroUsize,
        work: &mut Work,
    ) -> Self {
        let mut files = vec![DwarfSections::load(main, threads, &mut work.skipped)];
        files.push(match supplementary {
            Some(headers) => DwarfSections::load(headers, threads, &mut work.skipped),
            None => DwarfSections::empty(main.is_little_endian()),
        });
        files.extend(split.iter().map(|headers| DwarfSections::load_split(*headers, threads, &mut work.skipped)));
        let mut base = 0;
        for file in &mut files {
            file.base = base;
            base = file.end();
        }
        let is_split = files.iter().any(|file| file.is_split && !file.info.is_empty());
        let sized = if is_split { SizedFunctions::of(main) } else { SizedFunctions::default() };
        Self { files, text: Text::new(main.text_sections()), sized }
    }

    /// No file at all.
    pub(crate) fn none() -> Self {
        Self { files: Vec::new(), text: Text::new(Vec::new()), sized: SizedFunctions::default() }
    }

    pub(crate) fn file(&self, number: u32) -> Option<&DwarfSections<'d>> {
        self.files.get(number as usize)
    }

    pub(crate) fn supplementary(&self) -> Option<&DwarfSections<'d>> {
        self.file(Self::SUPPLEMENTARY).filter(|file| !file.info.is_empty() || !file.str.is_empty())
    }

    /// The files of split DWARF by their numbers.
    pub(crate) fn split(&self) -> impl Iterator<Item = (u32, &DwarfSections<'d>)> {
        (0_u32..).zip(&self.files).filter(|(_, file)| file.is_split)
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.files.iter().map(DwarfSections::total_bytes).fold(0, u64::saturating_add)
    }

    /// The units of all files by their place in the space of entries; skeletons and split units know each other.
    pub(crate) fn units(&self, work: &mut Work) -> Vec<UnitHeader> {
        let mut headers = self.unpaired_units(work);
        if self.files.iter().any(|file| file.is_split) {
            self.pair(&mut headers, work);
        }
        headers
    }

    /// The same, before they do.
    pub(crate) fn unpaired_units(&self, work: &mut Work) -> Vec<UnitHeader> {
        let mut headers = Vec::new();
        for (number, file) in (0_u32..).zip(&self.files) {
            headers.extend(unit_headers(file, number, &mut work.skipped));
        }
        headers
    }

    /// Counts the files whose range lists are damaged between lists, where no entry shows it: a list of zeros is an empty one.
    pub(crate) fn look_at_range_lists(&self, headers: &[UnitHeader], work: &mut Work) {
        for (number, file) in (0_u32..).zip(&self.files) {
            if !tables::are_whole(&file.rnglists, file.is_little_endian) && !self.leaves_room(number, headers, work) {
                work.skip("damaged table of range lists");
            }
        }
    }

    /// Whether a file's sections have room for what the next compilation adds, as its first unit tells.
    fn leaves_room(&self, file: u32, headers: &[UnitHeader], work: &mut Work) -> bool {
        let first = headers.iter().find(|header| header.file == file);
        let mut tables = AbbreviationTables::default();
        let unit = first.and_then(|first| Unit::open(self, first, &mut tables, &mut work.budget).ok());
        unit.is_some_and(|unit| unit.leaves_room())
    }

    /// The code of the main file.
    pub(crate) fn text(&self) -> &Text {
        &self.text
    }

    /// The functions of the main file's symbols.
    pub(crate) fn sized(&self) -> &SizedFunctions {
        &self.sized
    }

    /// Ties skeletons to the split units of their id. Of several units with one id that one is taken which describes the skeleton's code, of several such the first.
    /// Whether one that is alone does is seen where it is read.
    fn pair(&self, headers: &mut [UnitHeader], work: &mut Work) {
        let mut tables = AbbreviationTables::default();
        let mut split: HashMap<u64, Vec<u32>> = HashMap::new();
        let ids: Vec<Option<u64>> = headers.iter().map(|header| self.dwo_id(header, &mut tables, work)).collect();
        let is_split = |header: &UnitHeader| self.file(header.file).is_some_and(|file| file.is_split);
        for ((number, header), id) in (0_u32..).zip(&*headers).zip(&ids) {
            if let Some(id) = id
                && is_split(header)
            {
                split.entry(*id).or_default().push(number);
            }
        }
        let mut skeletons: HashMap<u32, u32> = HashMap::new();
        let mut partners = Vec::new();
        for ((number, header), id) in (0_u32..).zip(&*headers).zip(&ids) {
            if let Some(id) = id
                && !is_split(header)
                && let Some(candidates) = split.get(id)
                && let Some(partner) = self.best(header, candidates, headers, &mut tables, work)
            {
                partners.push((number, partner));
                skeletons.entry(partner).or_insert(number);
            }
        }
        for (one, other) in partners.into_iter().chain(skeletons) {
            if let Some(header) = headers.get_mut(one as usize) {
                header.partner = Some(other);
            }
        }
    }

    /// The one of some split units that describes a skeleton's code.
    fn best(
        &self,
        skeleton: &UnitHeader,
        candidates: &[u32],
        headers: &[UnitHeader],
        tables: &mut AbbreviationTables,
        work: &mut Work,
    ) -> Option<u32> {
        if let [only] = candidates {
            return Some(*only);
        }
        let Ok(skeleton) = Unit::open(self, skeleton, tables, &mut work.budget) else {
            return candidates.first().copied();
        };
        // What those that are not taken lack is nobody's loss.
        let skipped = work.skipped.clone();
        let mut misfits = |number: &&u32| {
            let header = headers.get(**number as usize)?;
            misfits(self, header, &skeleton, tables, work).ok()
        };
        let best = candidates
            .iter()
            .min_by_key(|number| misfits(number).map_or((true, None), |misfits| (false, Some(misfits))))
            .copied();
        work.skipped = skipped;
        best
    }

    /// The id of a skeleton or split unit. Before DWARF 5 its first entry has it.
    fn dwo_id(&self, header: &UnitHeader, tables: &mut AbbreviationTables, work: &mut Work) -> Option<u64> {
        if header.type_unit.is_some() || header.encoding.version >= 5 {
            return header.dwo_id;
        }
        let unit = Unit::open(self, header, tables, &mut work.budget).ok()?;
        unit.root.dwo_id.filter(|_| unit.is_skeleton() || unit.sections().is_split)
    }
}
