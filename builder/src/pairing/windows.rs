//! Windows: program databases of another build. A PE file and its PDB have one id (GUID and DBI age), and are one module
//! before this is asked.

use symseal_artifact::Format;

use super::{Pairing, is_named, lacking, orphans};
use crate::report::{Mismatch, NamedBy, Side};

/// Program databases that go by the name that a PE file without one has for its own.
pub(super) fn mismatches(pairing: &mut Pairing<'_>) {
    let mut found = Vec::new();
    for (id, binary, object) in lacking(pairing, Format::Pe) {
        let Some(wanted) = &object.pdb else { continue };
        for (other, part) in orphans(pairing) {
            if part.pdb().is_some() && is_named(part.file, &wanted.name) {
                let side = Side { place: binary.file.place.clone(), debug_id: Some(id.clone()) };
                let debug_file = Side { place: part.file.place.clone(), debug_id: Some(other.clone()) };
                found.push(Mismatch::of_ids(NamedBy::CodeView, side, debug_file, id.to_string()));
            }
        }
    }
    pairing.mismatches.extend(found);
}
