//! Linux: supplementary files, and debug files of another build.
//!
//! The build-id is looked at before this: files with one build-id are one module.

use symseal_artifact::Format;
use symseal_module::DebugId;

use super::{Paired, Pairing, Part, is_named, orphans};
use crate::report::{Mismatch, NamedBy, PairedBy, Side};

/// Finds what dwz moved out of the modules' debug information, by the build-id that `.gnu_debugaltlink` holds.
pub(super) fn supplementary(pairing: &mut Pairing<'_>) {
    let mut found = Vec::new();
    for (id, module) in &pairing.modules {
        let Some(link) = module.described().and_then(|part| part.object()).and_then(|object| object.alt_link.as_ref())
        else {
            continue;
        };
        let target = pairing.modules.get(&link.id).filter(|target| target.binary.is_none() && link.id != *id);
        found.push((id.clone(), link, target.and_then(|target| target.debug)));
    }
    for (id, link, target) in found {
        if let Some(target) = target
            && let Some(other) = pairing.modules.get_mut(&link.id)
        {
            other.is_supplementary = true;
            if let Some(module) = pairing.modules.get_mut(&id) {
                module.supplementary =
                    Some((Paired { part: target.part, by: PairedBy::AltlinkBuildId }, link.id.clone()));
            }
            continue;
        }
        let base = link.path.rsplit('/').next().unwrap_or(&link.path);
        let named = orphans(pairing).filter(|(_, part)| is_named(part.file, base));
        let others: Vec<(DebugId, Part<'_>)> = named.map(|(id, part)| (id.clone(), part)).collect();
        let Some(module) = pairing.modules.get_mut(&id) else { continue };
        module.missing.push(format!("supplementary file {} of build-id {}", link.path, link.id));
        let Some(names) = module.described() else { continue };
        let side = Side { place: names.file.place.clone(), debug_id: Some(id.clone()) };
        pairing.mismatches.extend(others.into_iter().map(|(found, part)| {
            let debug_file = Side { place: part.file.place.clone(), debug_id: Some(found) };
            Mismatch::of_ids(NamedBy::Altlink, side.clone(), debug_file, link.id.to_string())
        }));
    }
}

/// Debug files that go by the name of a binary without a debug file, and are of another build.
pub(super) fn mismatches(pairing: &mut Pairing<'_>) {
    let mut found = Vec::new();
    for (id, module) in pairing.modules.iter().filter(|(_, module)| module.lacks_debug_file()) {
        let Some(binary) = module.binary else { continue };
        let Some(object) = binary.object().filter(|object| object.format != Format::Macho) else { continue };
        for (other, part) in orphans(pairing) {
            let Some(debug) = part.object().filter(|debug| debug.format == object.format) else { continue };
            let named_by = match &object.debug_link {
                Some(link) if is_named(part.file, &link.name) => NamedBy::Debuglink,
                _ if debug.arch == object.arch && (is_named_like(part, binary) || is_placed_for(part, id)) => {
                    NamedBy::FileName
                }
                _ => continue,
            };
            let side = Side { place: binary.file.place.clone(), debug_id: Some(id.clone()) };
            let debug_file = Side { place: part.file.place.clone(), debug_id: Some(other.clone()) };
            found.push(Mismatch::of_ids(named_by, side, debug_file, id.to_string()));
        }
    }
    pairing.mismatches.extend(found);
}

/// `app.debug` and `app.dbg` go with `app`; `lib.debug` also with `lib.so`.
fn is_named_like(debug: Part<'_>, binary: Part<'_>) -> bool {
    let name = &binary.file.name;
    let stem = name.strip_suffix(".so").or_else(|| name.strip_suffix(".exe")).or_else(|| name.strip_suffix(".dll"));
    let mut stems = std::iter::once(name.as_str()).chain(stem);
    stems.any(|stem| [".debug", ".dbg"].iter().any(|end| is_named(debug.file, &format!("{stem}{end}"))))
}

/// Whether the file lies where debuggers look for the debug file of that build-id, `.build-id/ab/cdef….debug`.
fn is_placed_for(debug: Part<'_>, id: &DebugId) -> bool {
    let hex = id.to_string();
    let way = hex.split_at_checked(2).map(|(first, rest)| format!(".build-id/{first}/{rest}.debug"));
    way.is_some_and(|way: String| debug.file.place.ends_with(&way))
}
