//! Where the files of a module lie in a directory that the bundle is pulled into: where the tools of each platform look.

use symseal_artifact::IdKind;
use symseal_bundle::compose::FileFormat;
use symseal_bundle::{ModuleEntry, title};
use symseal_module::DebugId;

use crate::inputs::InputFile;
use crate::pairing::{Module, Part};

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
        // With DWARF: MinGW's. Of an id that no linker wrote, gdb knows nothing.
        DebugId::Pdb { .. } if part.object().is_some_and(|object| object.id_kind == IdKind::PdbGuidAge) => {
            title::guid_debug_file(id).unwrap_or_else(|| loose(id, name))
        }
        DebugId::Pdb { .. } | DebugId::MachoUuid(_) => loose(id, name),
    }
}

/// Where no tool looks.
fn loose(id: &DebugId, name: &str) -> String {
    format!("debug_file/{}/{}", stem(id), title::component(name))
}

/// A further title of the debug file of a binary without an id of a linker: debuggers know it by its name alone.
pub(super) fn linked(id: &DebugId, module: &Module<'_>) -> Option<String> {
    let object = module.binary?.object().filter(|object| object.id_kind == IdKind::TextHash)?;
    let link = object.debug_link.as_ref().filter(|_| module.debug.is_some())?;
    title::linked_debug_file(&executable(id, module.binary?.file, object.code_id.as_deref()), &link.name)
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

/// Where a split DWARF file lies.
pub(super) struct SplitPlaces {
    /// Titles at which debuggers look, each of which is given where it is free.
    pub(super) looked_at: Vec<String>,
    /// The one that is always free.
    pub(super) otherwise: String,
}

/// The titles of a split DWARF file. A package belongs beside the debug file and the executable, where there is room for one.
pub(super) fn split(id: &DebugId, module: &Module<'_>, part: Part<'_>, is_first_package: bool) -> SplitPlaces {
    let split = part.object().and_then(|object| object.split.as_ref());
    let units = split.map(|split| split.units.as_slice()).unwrap_or_default();
    let otherwise = title::split_unit(id, units.first().copied().unwrap_or_default(), &part.file.name);
    let program = module.binary.or(module.debug.map(|paired| paired.part)).map_or("", |part| part.file.name.as_str());
    let looked_at = match split {
        Some(split) if split.is_package && is_first_package => title::split_package(id, program),
        Some(split) if !split.is_package => {
            let asked = module.described().and_then(|part| part.object()).map(|object| object.split_asked.as_slice());
            let named = asked.unwrap_or_default().iter().find(|asked| units.contains(&asked.id));
            named.and_then(|asked| title::split_unit_by_name(id, &asked.name)).into_iter().collect()
        }
        _ => Vec::new(),
    };
    SplitPlaces { looked_at, otherwise }
}

/// The title of another file of a dSYM bundle.
pub(super) fn dsym_member(id: &DebugId, file: &InputFile) -> Option<String> {
    let dsym = file.dsym.as_ref()?;
    Some(title::dsym_member(id, &dsym.bundle, dsym.path.iter().map(String::as_str)))
}

/// A place for a file of a dSYM whose title is another file's, or a directory of it.
pub(super) fn apart(id: &DebugId, title: &str) -> String {
    format!("debug_file/{}/{title}", stem(id))
}

/// Which files could not keep their names: in a title a `%` always stands for something that was written otherwise. (docs/formats/bundle.md,
/// "Names from inputs")
pub(super) fn renamed(entry: &ModuleEntry) -> Vec<String> {
    let renamed = entry.files.iter().filter(|file| file.path.contains('%'));
    renamed.map(|file| format!("stored as {}, as no file of a bundle may have its name", file.path)).collect()
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
