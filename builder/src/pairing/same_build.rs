//! Whether two files with one debug id come out of one build: the same code in binaries, the same debug information in debug
//! files.

use symseal_artifact::{ObjectFile, ReleaseFile};
use symseal_bundle::LayoutDir;
use symseal_module::Svma;

use super::Part;
use crate::error::BuildError;

/// Where the code of most files is. (Kernel modules may have none but `.init.text`.)
const CODE: &[&str] = &[".text", "__text", ".init.text"];
/// What debug files of one build share, as it is stored.
const DEBUG: &[&str] = &[".debug_info", ".zdebug_info", "__debug_info"];
/// What these refer to: the same as well, or missing in both.
const REFERRED: [&str; 4] = ["debug_line", "debug_str", "debug_line_str", "debug_abbrev"];

/// Reads both files and compares them.
pub(crate) fn is_same_build(one: Part<'_>, other: Part<'_>, layout: Option<&LayoutDir>) -> Result<bool, BuildError> {
    let names = match (one.is_binary(), other.is_binary()) {
        (true, true) => CODE,
        (false, false) => DEBUG,
        _ => return Ok(false),
    };
    let (one_bytes, other_bytes) = (one.file.read(layout)?, other.file.read(layout)?);
    let (Some(first), Some(second)) = (slice(one, &one_bytes)?, slice(other, &other_bytes)?) else {
        return Ok(false);
    };
    Ok(match (section(&first, names), section(&second, names)) {
        (Some(one_section), Some(other_section)) if one.is_binary() => {
            one_section == other_section && first.code_sections() == second.code_sections()
        }
        (Some(one_section), Some(other_section)) => one_section == other_section && refer_alike(&first, &second),
        (None, None) => one.is_binary() && has_same_segments(&first, &second),
        // One was stripped of its section headers: what it loads at the section's place is compared with the section.
        (Some(code), None) => one.is_binary() && is_loaded(&second, code),
        (None, Some(code)) => one.is_binary() && is_loaded(&first, code),
    })
}

fn slice<'d>(part: Part<'_>, bytes: &'d [u8]) -> Result<Option<ObjectFile<'d>>, BuildError> {
    let parsed =
        ReleaseFile::parse(bytes).map_err(|source| BuildError::Artifact { place: part.file.place.clone(), source })?;
    Ok(match parsed {
        ReleaseFile::Object(object) => Some(object),
        ReleaseFile::Fat(slices) => slices.into_iter().nth(part.slice),
        ReleaseFile::Pdb(_) | ReleaseFile::PortablePdb(_) => None,
    })
}

fn section<'d>(object: &ObjectFile<'d>, names: &[&str]) -> Option<(Svma, &'d [u8])> {
    names.iter().find_map(|name| object.section(name)).filter(|(_, bytes)| !bytes.is_empty())
}

fn refer_alike(one: &ObjectFile<'_>, other: &ObjectFile<'_>) -> bool {
    REFERRED.iter().all(|name| stored(one, name) == stored(other, name))
}

fn stored<'d>(object: &ObjectFile<'d>, name: &str) -> Option<&'d [u8]> {
    let names = [format!(".{name}"), format!(".z{name}"), format!("__{name}")];
    names.iter().find_map(|name| object.section(name)).map(|(_, bytes)| bytes)
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
