//! What a file's entries are like, by its abbreviation tables alone: without decompressing anything else. (DWARF 5, 7.5.3)

use crate::cursor::{Cursor, Result};
use crate::headers::ObjectHeaders;
use gimli::{DwAt, DwTag};

/// The abbreviation tables of a file: how many there are of each kind.
#[derive(Clone, Copy, Default, Debug)]
struct Survey {
    /// With entries that are a base type or a structure, or that have a type.
    with_types: u64,
    /// Without any.
    without_types: u64,
    /// With units whose entries are in another file.
    of_skeletons: u64,
    /// With units that others import.
    of_partial_units: u64,
}

/// So many abbreviation tables without types may be those of a language's own library: that of Rust, which has lines alone, brings nine to
/// every program.
const TABLES_OF_A_LIBRARY: u64 = 16;

/// Whether at least half of the abbreviation tables, apart from as many as a [library](TABLES_OF_A_LIBRARY) may bring, describe types, which
/// line-table builds leave out but for libraries in C. Where dwz moved the types into another file, the entries that have one refer to it.
pub(crate) fn describes_types(headers: &dyn ObjectHeaders<'_>) -> bool {
    let Survey { with_types, without_types, .. } = survey(headers);
    with_types > 0 && with_types >= without_types.saturating_sub(TABLES_OF_A_LIBRARY)
}

/// Whether a unit of the file may be the skeleton of one in a split DWARF file.
pub(crate) fn has_skeletons(headers: &dyn ObjectHeaders<'_>) -> bool {
    survey(headers).of_skeletons > 0
}

/// Whether dwz has packed the file: no compiler makes partial units.
pub(crate) fn has_partial_units(headers: &dyn ObjectHeaders<'_>) -> bool {
    survey(headers).of_partial_units > 0
}

fn survey(headers: &dyn ObjectHeaders<'_>) -> Survey {
    let mut survey = Survey::default();
    if let Some(Ok(bytes)) = headers.debug_section("abbrev") {
        let mut cursor = Cursor::new(&bytes, headers.is_little_endian());
        // The tables stand one behind the other. Damage ends the survey: where the next one starts is unknown.
        while cursor.remaining() > 0 && survey.table(&mut cursor).is_ok() {}
    }
    survey
}

impl Survey {
    fn table(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        let (mut entries, mut has_types, mut has_skeletons, mut has_partial_units) = (0_u64, false, false, false);
        while cursor.uleb()? != 0 {
            let tag = DwTag(u16::try_from(cursor.uleb()?).unwrap_or(0));
            cursor.skip(1)?;
            entries += 1;
            has_types |= tag == gimli::DW_TAG_base_type || tag == gimli::DW_TAG_structure_type;
            has_skeletons |= tag == gimli::DW_TAG_skeleton_unit;
            has_partial_units |= tag == gimli::DW_TAG_partial_unit;
            loop {
                let (name, form) = cursor.two_ulebs()?;
                if name == 0 && form == 0 {
                    break;
                }
                let name = DwAt(u16::try_from(name).unwrap_or(0));
                has_types |= name == gimli::DW_AT_type;
                has_skeletons |= matches!(name, gimli::DW_AT_dwo_name | gimli::DW_AT_GNU_dwo_name);
                if form == u64::from(gimli::DW_FORM_implicit_const.0) {
                    cursor.skip_leb()?;
                }
            }
        }
        // Tables without entries are padding.
        if entries > 0 {
            *(if has_types { &mut self.with_types } else { &mut self.without_types }) += 1;
            self.of_skeletons += u64::from(has_skeletons);
            self.of_partial_units += u64::from(has_partial_units);
        }
        Ok(())
    }
}
