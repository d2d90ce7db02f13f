//! macOS: the files of dSYM bundles, and dSYM bundles of another build. A slice and its slice of a dSYM have one UUID, and
//! are one module before this is asked.

use symseal_artifact::Format;

use super::{Pairing, is_named, lacking, orphans};
use crate::inputs::InputFile;
use crate::report::{Mismatch, NamedBy, Side};

/// Gives each module the other files of the dSYM bundle that its debug information is in.
pub(super) fn members<'f>(pairing: &mut Pairing<'f>, members: &[&'f InputFile]) {
    let mut used = vec![false; members.len()];
    for module in pairing.modules.values_mut() {
        let Some(dsym) = module.debug.and_then(|debug| debug.part.file.dsym.as_ref()) else { continue };
        for (member, used) in members.iter().zip(&mut used) {
            if member.dsym.as_ref().is_some_and(|place| place.root == dsym.root) {
                module.dsym_members.push(member);
                *used = true;
            }
        }
        module.dsym_members.sort_by_key(|member| (&member.dsym, member.digest()));
    }
    let unused = members.iter().zip(used).filter(|(_, used)| !used);
    pairing.loose.extend(unused.map(|(member, _)| (*member, "a file of a dSYM bundle without debug information")));
}

/// dSYM bundles that go by the name of a binary without one, or hold a file of its name.
pub(super) fn mismatches(pairing: &mut Pairing<'_>) {
    let mut found = Vec::new();
    for (id, binary, object) in lacking(pairing, Format::Macho) {
        let bundle = format!("{}.dSYM", binary.file.name);
        for (other, part) in orphans(pairing) {
            let Some(debug) = part.object() else { continue };
            let is_of_name = is_named(part.file, &binary.file.name)
                || part.file.dsym.as_ref().is_some_and(|dsym| dsym.bundle == bundle);
            if debug.format == Format::Macho && debug.arch == object.arch && is_of_name {
                let side = Side { place: binary.file.place.clone(), debug_id: Some(id.clone()) };
                let debug_file = Side { place: part.file.place.clone(), debug_id: Some(other.clone()) };
                found.push(Mismatch::of_ids(NamedBy::DsymName, side, debug_file, id.to_string()));
            }
        }
    }
    pairing.mismatches.extend(found);
}
