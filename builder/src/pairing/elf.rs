//! Linux: debug files by name and checksum, supplementary files, and debug files of another build.
//!
//! The build-id is looked at before this: files with one build-id are one module. (MinGW's PE files with DWARF have the
//! same links as ELF files.)

use symseal_artifact::{Format, IdKind};
use symseal_module::DebugId;

use super::{Paired, Pairing, Part, is_named, orphans};
use crate::inputs::ObjectFacts;
use crate::report::{Mismatch, NamedBy, PairedBy, Side};

/// Pairs binaries without an id of a linker with the debug file that `.gnu_debuglink` names, if its CRC-32 is right. (GDB
/// manual, "Separate Debug Files")
pub(super) fn by_debug_link<'f>(pairing: &mut Pairing<'f>, unidentified: Vec<Part<'f>>) {
    let mut used = vec![false; unidentified.len()];
    for (id, module) in &mut pairing.modules {
        if !module.lacks_debug_file() {
            continue;
        }
        let Some(binary) = module.binary else { continue };
        let Some(object) = binary.object().filter(|object| may_be_linked(object)) else { continue };
        let Some(link) = &object.debug_link else { continue };
        let named = unidentified.iter().zip(&mut used).filter(|(part, _)| {
            is_named(part.file, &link.name) && part.object().is_some_and(|debug| debug.arch == object.arch)
        });
        let mut others = Vec::new();
        for (part, used) in named {
            let crc32 = part.object().and_then(|debug| debug.crc32);
            if crc32 == Some(link.crc32) {
                // Two files of one name and one CRC-32 are equal for everybody who goes by those; the first is taken.
                module.debug.get_or_insert(Paired { part: *part, by: PairedBy::DebuglinkCrc });
                *used = true;
            } else {
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

fn why_unused(pairing: &Pairing<'_>, part: Part<'_>) -> &'static str {
    if pairing.mismatches.iter().any(|mismatch| mismatch.debug_file.place == part.file.place) {
        "a debug file without an id, whose CRC-32 is not the one that a binary names: see the mismatches"
    } else {
        "a debug file without an id, which no binary names that has no better one"
    }
}

/// Without an id that a linker wrote there is nothing but the link.
fn may_be_linked(object: &ObjectFacts) -> bool {
    matches!(object.id_kind, IdKind::TextHash | IdKind::GoBuildId)
}

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
                _ if debug.arch == object.arch && is_named_like(part, binary) => NamedBy::FileName,
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
