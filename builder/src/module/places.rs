//! Where the files of a module lie in a directory that the bundle is pulled into: where the tools of each platform look.

use symseal_bundle::compose::FileFormat;
use symseal_bundle::title;
use symseal_module::DebugId;

use crate::inputs::InputFile;
use crate::pairing::Part;

/// The title of the file that symbols are read from.
pub(super) fn debug_file(id: &DebugId, part: Part<'_>, pdb_name: Option<&str>) -> String {
    let name = part.file.name.as_str();
    match id {
        DebugId::BuildId(_) => {
            title::build_id_debug_file(id).unwrap_or_else(|| format!("debug_file/{id}/{}", title::component(name)))
        }
        // As the PE file names it: that is what debuggers ask for.
        DebugId::Pdb { guid, age } if part.pdb().is_some() => title::pdb(pdb_name.unwrap_or(name), *guid, *age),
        DebugId::MachoUuid(_) if part.object().is_some_and(|object| !object.is_binary) => match &part.file.dsym {
            Some(dsym) => title::dsym_member(id, &dsym.bundle, dsym.path.iter().map(String::as_str)),
            None => title::dsym_member(id, &format!("{name}.dSYM"), ["Contents", "Resources", "DWARF", name]),
        },
        DebugId::Pdb { .. } | DebugId::MachoUuid(_) => format!("debug_file/{}/{}", stem(id), title::component(name)),
    }
}

/// The title of the binary.
pub(super) fn executable(id: &DebugId, file: &InputFile, code_id: Option<&str>) -> String {
    match (id, code_id) {
        (DebugId::Pdb { .. }, Some(code_id)) => title::pe_image(&file.name, code_id),
        (DebugId::MachoUuid(_), _) => title::macho_image(id, &file.name),
        _ => title::build_id_executable(id)
            .unwrap_or_else(|| format!("executable/{}/{}", stem(id), title::component(&file.name))),
    }
}

/// The title of a split DWARF file. A package belongs beside the executable, but there is only one such place.
pub(super) fn split(id: &DebugId, part: Part<'_>, is_first_package: bool) -> String {
    let split = part.object().and_then(|object| object.split.as_ref());
    let unit = split.and_then(|split| split.units.first()).copied().unwrap_or_default();
    let package = title::split_package(id).filter(|_| is_first_package && split.is_some_and(|split| split.is_package));
    package.unwrap_or_else(|| title::split_unit(id, unit, &part.file.name))
}

/// The title of another file of a dSYM bundle.
pub(super) fn dsym_member(id: &DebugId, file: &InputFile) -> Option<String> {
    let dsym = file.dsym.as_ref()?;
    Some(title::dsym_member(id, &dsym.bundle, dsym.path.iter().map(String::as_str)))
}

/// The format of a file that is taken as it is.
pub(super) fn format(part: Part<'_>) -> FileFormat {
    use symseal_artifact::Format;
    match part.object().map(|object| object.format) {
        Some(Format::Elf) => FileFormat::Elf,
        Some(Format::Pe) => FileFormat::Pe,
        Some(Format::Macho) if part.file.dsym.is_some() => FileFormat::Dsym,
        Some(Format::Macho) => FileFormat::Macho,
        None if part.pdb().is_some() => FileFormat::Pdb,
        None => FileFormat::Dsym,
    }
}

/// The id's text with its colon, which file names on Windows cannot hold, as a dash.
fn stem(id: &DebugId) -> String {
    id.to_string().replace(':', "-")
}
