//! Linux, and Windows' programs of MinGW: debug files by name and checksum.
//!
//! Ids of a linker are looked at before this, and decide alone where both have one.

use symseal_artifact::IdKind;
use symseal_bundle::LayoutDir;

use super::{Paired, Pairing, Part, is_named, orphans};
use crate::error::BuildError;
use crate::inputs::ObjectFacts;
use crate::report::{Mismatch, NamedBy, PairedBy, Side};

/// Pairs binaries with the debug file without an id that `.gnu_debuglink` names, if its CRC-32 is right. (GDB manual, "Separate Debug Files") One whose binary has
/// an id of a linker has lost its own (`objcopy -R .note.gnu.build-id`); without that CRC-32 it is nobody's mismatch, as the binary asks for that id.
pub(super) fn pair<'f>(pairing: &mut Pairing<'f>, unidentified: Vec<Part<'f>>) {
    let mut used = vec![false; unidentified.len()];
    for (id, module) in &mut pairing.modules {
        if !module.lacks_debug_file() {
            continue;
        }
        let Some(binary) = module.binary else { continue };
        let Some(object) = binary.object() else { continue };
        let Some(link) = &object.debug_link else { continue };
        let named = unidentified.iter().zip(&mut used).filter(|(part, _)| {
            is_named(part.file, &link.name) && part.object().is_some_and(|debug| are_alike(debug, object))
        });
        let mut others = Vec::new();
        for (part, used) in named {
            let crc32 = part.object().and_then(|debug| debug.crc32);
            if crc32 == Some(link.crc32) {
                // Two files of one name and one CRC-32 are equal for everybody who goes by those; the first is taken.
                module.debug.get_or_insert(Paired { part: *part, by: PairedBy::DebuglinkCrc });
                *used = true;
            } else if may_be_linked(object) {
                others.push(Mismatch {
                    named_by: NamedBy::Debuglink,
                    binary: Side { place: binary.file.place.clone(), debug_id: Some(id.clone()) },
                    debug_file: Side { place: part.file.place.clone(), debug_id: None },
                    expected: format!("CRC-32 {:#010x}", link.crc32),
                    found: crc32.map_or_else(|| "none".to_owned(), |crc32| format!("CRC-32 {crc32:#010x}")),
                });
            }
        }
        if module.debug.is_none() {
            pairing.mismatches.extend(others);
        }
    }
    let unused = unidentified.into_iter().zip(used).filter(|(_, used)| !used);
    let loose: Vec<_> = unused.map(|(part, _)| (part.file, why_unused(pairing, part))).collect();
    pairing.loose.extend(loose);
}

/// Pairs binaries that lost the id which a linker gave them (`objcopy -R .note.gnu.build-id`) with the debug file that still has it, by the link. Those
/// files are read once more for their CRC-32; there are few.
pub(super) fn pair_without_note(pairing: &mut Pairing<'_>, layout: Option<&LayoutDir>) -> Result<(), BuildError> {
    let mut found = Vec::new();
    for (id, module) in pairing.modules.iter().filter(|(_, module)| module.lacks_debug_file()) {
        let Some(object) = module.binary.and_then(|part| part.object()).filter(|object| may_be_linked(object)) else {
            continue;
        };
        let Some(link) = &object.debug_link else { continue };
        for (other, part) in orphans(pairing).filter(|(_, part)| is_named(part.file, &link.name)) {
            let is_alike = part.object().is_some_and(|debug| are_alike(debug, object));
            if is_alike && crc32fast::hash(&part.file.read(layout)?) == link.crc32 {
                found.push((id.clone(), other.clone(), part));
                break;
            }
        }
    }
    for (id, other, part) in found {
        // One binary has it: of a second one it would be gone already.
        if pairing.modules.remove(&other).is_some()
            && let Some(module) = pairing.modules.get_mut(&id)
        {
            module.debug = Some(Paired { part, by: PairedBy::DebuglinkCrc });
        }
    }
    Ok(())
}

fn why_unused(pairing: &Pairing<'_>, part: Part<'_>) -> &'static str {
    if pairing.mismatches.iter().any(|mismatch| mismatch.debug_file.place == part.file.place) {
        "a debug file without an id, whose CRC-32 is not the one that a binary names: see the mismatches"
    } else {
        "a debug file without an id, which no binary names that has no better one"
    }
}

fn are_alike(one: &ObjectFacts, other: &ObjectFacts) -> bool {
    (one.format, one.arch) == (other.format, other.arch)
}

/// Without an id that a linker wrote there is nothing but the link.
fn may_be_linked(object: &ObjectFacts) -> bool {
    matches!(object.id_kind, IdKind::TextHash | IdKind::GoBuildId)
}
