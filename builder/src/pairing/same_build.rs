//! Whether two files with one debug id come out of one build: the same code in binaries, the same debug information in debug
//! files. Where the id is a hash of the code, that binaries share it says nothing: then their data is compared as well.

use std::collections::BTreeSet;

use symseal_artifact::{IdKind, ObjectFile, ObjectKind, ReleaseFile};
use symseal_bundle::LayoutDir;
use symseal_module::Svma;

use super::Part;
use crate::error::BuildError;

/// Where the code of a linked file is.
const CODE: &[&str] = &[".text", "__text", ".init.text"];
/// What debug files of one build share, however it is stored, and what that refers to: the same as well, or missing in both.
const DEBUG: &str = "info";
const REFERRED: [&str; 4] = ["line", "str", "line_str", "abbrev"];

/// Reads both files and compares them.
pub(crate) fn is_same_build(one: Part<'_>, other: Part<'_>, layout: Option<&LayoutDir>) -> Result<bool, BuildError> {
    if one.is_binary() != other.is_binary() {
        return Ok(false);
    }
    let (one_bytes, other_bytes) = (one.file.read(layout)?, other.file.read(layout)?);
    let (Some(first), Some(second)) = (slice(one, &one_bytes)?, slice(other, &other_bytes)?) else {
        return Ok(false);
    };
    Ok(if one.is_binary() { is_same_code(&first, &second) } else { is_same_description(&first, &second) })
}

fn is_same_code(first: &ObjectFile<'_>, second: &ObjectFile<'_>) -> bool {
    let is_hash_of_code = first.id_kind() == IdKind::TextHash && second.id_kind() == IdKind::TextHash;
    if is_hash_of_code && !has_same_data(first, second) {
        return false;
    }
    // Of kernel modules any section may hold the code, each function one of its own.
    if first.kind() == ObjectKind::Relocatable {
        return second.kind() == ObjectKind::Relocatable && has_same_sections(first, second);
    }
    match (code(first), code(second)) {
        (Some(code), Some(other)) => code == other && first.code_sections() == second.code_sections(),
        (None, None) if first.is_data_alone() => has_same_data(first, second),
        (None, None) => has_same_segments(first, second),
        // One was stripped of its section headers: what it loads at the section's place is compared with the section.
        (Some(code), None) => is_loaded(second, code),
        (None, Some(code)) => is_loaded(first, code),
    }
}

/// Whether both have debug information, and the same. One may have been compressed, or in another way.
fn is_same_description(first: &ObjectFile<'_>, second: &ObjectFile<'_>) -> bool {
    let is_same = |name: &str| match (stored(first, name), stored(second, name)) {
        (None, None) => name != DEBUG,
        (stored, other) if stored == other => true,
        // What cannot be unpacked is not the same as anything.
        _ => first.debug_section(name).is_some_and(|bytes| Some(bytes) == second.debug_section(name)),
    };
    [DEBUG].into_iter().chain(REFERRED).all(is_same)
}

pub(super) fn slice<'d>(part: Part<'_>, bytes: &'d [u8]) -> Result<Option<ObjectFile<'d>>, BuildError> {
    let parsed =
        ReleaseFile::parse(bytes).map_err(|source| BuildError::Artifact { place: part.file.place.clone(), source })?;
    Ok(match parsed {
        ReleaseFile::Object(object) => Some(object),
        ReleaseFile::Fat(slices) => slices.into_iter().nth(part.slice),
        ReleaseFile::Pdb(_) | ReleaseFile::PortablePdb(_) => None,
    })
}

/// Whether both have the same sections of code, and the same bytes in each; of those without any the data.
fn has_same_sections(first: &ObjectFile<'_>, second: &ObjectFile<'_>) -> bool {
    if first.is_data_alone() {
        return has_same_data(first, second);
    }
    first.code_sections() == second.code_sections() && stored_code(first) == stored_code(second)
}

/// The sections of code that have bytes, by address.
fn stored_code<'d>(object: &ObjectFile<'d>) -> Vec<(u64, &'d [u8])> {
    let starts: BTreeSet<u64> = object.code_sections().into_iter().map(|(_, range)| range.start).collect();
    let mut code = object.unwind_inputs().loaded;
    code.retain(|(start, bytes)| !bytes.is_empty() && starts.contains(start));
    code.sort_unstable();
    code
}

pub(super) fn code<'d>(object: &ObjectFile<'d>) -> Option<(Svma, &'d [u8])> {
    CODE.iter().find_map(|name| object.section(name)).filter(|(_, bytes)| !bytes.is_empty())
}

/// A section of debug information as it lies there: where that is the same, nothing has to be unpacked.
fn stored<'d>(object: &ObjectFile<'d>, name: &str) -> Option<&'d [u8]> {
    let names = [format!(".debug_{name}"), format!(".zdebug_{name}"), format!("__debug_{name}")];
    names.iter().find_map(|name| object.section(name)).map(|(_, bytes)| bytes)
}

/// Whether one of the two loads everything that the other does. (A debugger's sections are loaded in PE files, and `strip`
/// takes them away.)
fn has_same_data(one: &ObjectFile<'_>, other: &ObjectFile<'_>) -> bool {
    let (mut one, mut other) = (one.unwind_inputs().loaded, other.unwind_inputs().loaded);
    one.sort_unstable();
    other.sort_unstable();
    holds(&one, &other) || holds(&other, &one)
}

/// Whether all `parts`, by rising address, are in `whole`. Sections over each other need not be found.
fn holds(whole: &[(u64, &[u8])], parts: &[(u64, &[u8])]) -> bool {
    let mut reached = 0;
    parts.iter().filter(|(_, bytes)| !bytes.is_empty()).all(|(start, bytes)| {
        // Each byte of a file is compared once.
        let is_behind = *start >= reached;
        reached = start.saturating_add(bytes.len() as u64);
        let before = whole.partition_point(|(other, _)| other <= start).checked_sub(1);
        let found = before.and_then(|at| whole.get(at)).and_then(|(other, held)| {
            let from = usize::try_from(start.checked_sub(*other)?).ok()?;
            held.get(from..from.checked_add(bytes.len())?)
        });
        is_behind && found == Some(bytes)
    })
}

fn is_loaded(object: &ObjectFile<'_>, (svma, code): (Svma, &[u8])) -> bool {
    object.loaded_bytes(svma, code.len() as u64) == Some(code)
}

/// Both were stripped of their section headers: their executable segments.
fn has_same_segments(first: &ObjectFile<'_>, second: &ObjectFile<'_>) -> bool {
    let (ranges, others) = (first.unwind_inputs().text, second.unwind_inputs().text);
    !ranges.is_empty()
        && ranges == others
        && ranges.iter().all(|range| {
            let code = |object: &ObjectFile<'_>| {
                object.loaded_bytes(Svma(range.start), range.end.saturating_sub(range.start)).map(<[u8]>::to_vec)
            };
            code(first).is_some_and(|first| Some(first) == code(second))
        })
}
