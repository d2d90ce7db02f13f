//! Modules of which only one half is among the inputs, and what to do about it.

use std::path::{Path, PathBuf};

use symseal_artifact::{Format, RelocationProblem, escaped};
use symseal_bundle::DebugInfo;
use symseal_module::DebugId;

use crate::error::{BuildError, place_of};
use crate::inputs::{InputFile, reason};
use crate::pairing::{Module, Pairing};
use crate::report::{BuildReport, InputReport, LinesOf, ModuleReport, Unpaired};

/// More hints of one kind would hide the others.
const MOST_HINTS: usize = 3;

/// Why links in directories are not followed, and what to do.
const LINKS: &str = "skipped: what links in a directory lead to may lie outside of it, where nothing was asked for; name the files that they lead to, or the directory of those";

/// The binary of a module whose functions have no lines, because the debug file that would tell them is not there.
///
/// Go's function table tells functions and lines of a stripped binary too; such a module lacks nothing that can be had.
pub(crate) fn binary(module: &ModuleReport, of: &Module<'_>) -> Option<Unpaired> {
    let binary = of.binary?;
    let object = binary.object()?;
    let has_debug_info = matches!(module.debug_info, DebugInfo::Full | DebugInfo::LineTables);
    let is_of_parts = match module.lines_of {
        LinesOf::Parts => true,
        LinesOf::RustLibrary => !is_rusts_library(&module.name),
        LinesOf::Module | LinesOf::None => false,
    };
    let has_lines = has_debug_info && !is_of_parts;
    let is_go = module.functions.contains_key("pclntab");
    // Data has no lines, and without an id or a name nothing could be tied to it.
    let is_data = module.statistics.text_bytes == 0 && module.statistics.functions == 0;
    let is_data = is_data && !object.is_il_alone && object.id_kind.code() == "text-hash" && object.debug_link.is_none();
    // dsymutil makes a dSYM whether it found the object files or not.
    let is_empty_dsym = object.object_map > 0 && of.debug.is_some() && !has_debug_info;
    let is_paired = of.debug.is_some() && !is_empty_dsym || has_lines || is_go || is_data || object.has_embedded_pdb;
    if is_paired && of.missing.is_empty() {
        return None;
    }
    let advice = if !of.missing.is_empty() && !is_paired && object.alt_link.is_some() {
        // Stripped of all but the name of what dwz made: both are needed.
        format!("add its debug file of id {}, and what that refers to: {}", module.debug_id, of.missing.join(", "))
    } else if !of.missing.is_empty() {
        format!("its debug information refers to what is not among the inputs: {}", of.missing.join(", "))
    } else if let Some(problem) = object.relocation_problem {
        let what_to_do = match problem {
            RelocationProblem::Processor => {
                "its functions have the names of its symbols and no lines, and no other file would change that"
            }
            RelocationProblem::Compact => "assemble it without -Wa,--crel",
        };
        format!("its debug information is not read ({}): {what_to_do}", problem.reason())
    } else if object.object_map > 0 {
        let (dsym, again) = match is_empty_dsym {
            true => ("its dSYM holds no debug information, which", "again while they are there"),
            false => ("its debug information", "there"),
        };
        format!(
            "{dsym} is in {} object {} on the machine that linked it: run dsymutil {again}, and add the dSYM",
            object.object_map,
            if object.object_map == 1 { "file" } else { "files" }
        )
    } else if let Some(pdb) = object.pdb.as_ref().filter(|pdb| !pdb.name.is_empty()) {
        format!("add its program database {} of id {}", pdb.name, module.debug_id)
    } else if let (Some(link), "text-hash") = (&object.debug_link, object.id_kind.code()) {
        format!("add its debug file {} of CRC-32 {:#010x}", link.name, link.crc32)
    } else if let Some(link) = &object.debug_link {
        format!("add its debug file {} of id {}", link.name, module.debug_id)
    } else if has_debug_info && module.damaged_units() == 0 {
        let (of, what) = match module.lines_of {
            LinesOf::RustLibrary => (", all of Rust's library", "its own sources"),
            _ => ("", "the rest of it"),
        };
        format!(
            "its debug information has lines of {} of its {} bytes of code alone{of}: compile {what} with -g, or add its debug file",
            module.lined_bytes, module.statistics.text_bytes
        )
    } else if object.has_stabs && !has_debug_info {
        "its debug information is STABS, which is not read: compile it with -gdwarf-5, or add a debug file with DWARF"
            .to_owned()
    } else if object.id_kind.code() == "text-hash" {
        let what_to_do = match object.format {
            Format::Pe if object.is_il_alone => "compile with -debug:portable (DebugType)",
            Format::Elf => "link with --build-id",
            Format::Pe => "link with /DEBUG (MinGW: --build-id, or name its debug file by objcopy --add-gnu-debuglink)",
            Format::Macho => "link without -no_uuid",
        };
        format!("it has no id of a linker and names no debug file, so none can be tied to it: {what_to_do}")
    } else if module.damaged_units() > 0 {
        format!("its debug information is damaged: build it anew, or add its debug file of id {}", module.debug_id)
    } else {
        let file = if object.format == Format::Macho { "dSYM of UUID" } else { "debug file of id" };
        let or_else = if module.stripped { "do not strip it" } else { "compile it with -g" };
        format!("add its {file} {}, or {or_else}", module.debug_id)
    };
    Some(Unpaired {
        debug_id: Some(module.debug_id.clone()),
        name: module.name.clone(),
        place: binary.file.place.clone(),
        advice,
    })
}

/// Whether a module is Rust's library itself, whose sources are no other program's.
fn is_rusts_library(name: &str) -> bool {
    name.strip_prefix("lib").unwrap_or(name).starts_with("std-")
}

/// The debug file of a module whose binary is not there.
pub(crate) fn debug_file(module: &ModuleReport, of: &Module<'_>) -> Option<Unpaired> {
    let debug = of.debug.filter(|_| of.binary.is_none())?;
    let advice = if of.is_supplementary {
        return None;
    } else {
        match &module.debug_id {
            DebugId::BuildId(_) => {
                format!("add the binary of id {}: its unwind rules are nowhere else", module.debug_id)
            }
            // MinGW's, with DWARF.
            DebugId::Pdb { .. } if debug.part.pdb().is_none() => {
                format!(
                    "add the PE file (.exe, .dll) of GUID and age {}: its code is not in a debug file",
                    module.debug_id
                )
            }
            DebugId::Pdb { .. } => format!(
                "add the PE file (.exe, .dll) of GUID and age {}: its code and its code id are not in a program database",
                module.debug_id
            ),
            DebugId::MachoUuid(_) => {
                format!("add the executable or library of UUID {}: its code is not in a dSYM", module.debug_id)
            }
        }
    };
    Some(Unpaired {
        debug_id: Some(module.debug_id.clone()),
        name: module.name.clone(),
        place: debug.part.file.place.clone(),
        advice,
    })
}

/// A debug file that belongs to no module.
pub(crate) fn loose(file: &InputFile, reason: &str) -> String {
    let is_split = file.objects().iter().any(|object| object.split.is_some());
    let advice = if is_split {
        "add the binary, or its debug file, that was compiled along with it"
    } else {
        "add that binary, if it is not there"
    };
    format!("{reason}; {advice}")
}

/// Of inputs without a module: what was found instead, and what to do about it.
pub(crate) fn instead_of_modules(paths: &[PathBuf], inputs: &InputReport, pairing: &Pairing<'_>) -> Vec<String> {
    let mut hints: Vec<String> = Vec::new();
    for path in paths.iter().filter(|path| is_bundle(path)).take(MOST_HINTS) {
        hints.push(format!(
            "{} is a bundle already: `symseal bundle inspect` shows it, `symseal bundle push` sends it, and parts that were pushed are put together by `symseal publish --join`",
            place_of(path)
        ));
    }
    let loose = pairing.loose.iter().take(MOST_HINTS);
    hints.extend(loose.map(|(file, reason)| format!("{}: {}", file.place, self::loose(file, reason))));
    let refused = inputs.refused.iter().take(MOST_HINTS);
    hints.extend(refused.map(|one| format!("{} is refused: {}", one.place, one.problem)));
    let left_out = inputs.excluded.iter().filter(|(_, count)| **count > 0).take(MOST_HINTS);
    hints.extend(left_out.map(|(glob, count)| {
        format!("the pattern {} left out {count} of the files and directories", escaped(glob.as_bytes()))
    }));
    if hints.is_empty() {
        let passed = inputs.archives.iter().flat_map(|archive| &archive.passed_over).take(MOST_HINTS);
        hints.extend(passed.map(|one| format!("{} was not looked into: {}", one.place, one.reason)));
    }
    match inputs.skipped.get(reason::LINK) {
        None => {}
        Some(1) => hints.push(format!("1 symbolic link {LINKS}")),
        Some(links) => hints.push(format!("{links} symbolic links {LINKS}")),
    }
    hints
}

/// The error for inputs without a module.
pub(crate) fn no_modules(paths: &[PathBuf], hints: Vec<String>, report: BuildReport) -> BuildError {
    let paths: Vec<String> = paths.iter().map(|path| place_of(path)).collect();
    let paths = if paths.is_empty() { "no paths".to_owned() } else { paths.join(", ") };
    BuildError::NoModules { paths, files: report.inputs.files, hints, report: Some(Box::new(report)) }
}

/// Whether a directory is an OCI layout with a bundle in it.
fn is_bundle(path: &Path) -> bool {
    let Ok(layout) = symseal_bundle::LayoutDir::open(path) else { return false };
    use symseal_bundle::{Bundle, BundleError};
    matches!(Bundle::open(layout, None), Ok(_) | Err(BundleError::Ambiguous { .. }))
}
