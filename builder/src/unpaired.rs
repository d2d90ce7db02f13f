//! Modules of which only one half is among the inputs, and what to do about it.

use symseal_bundle::DebugInfo;

use crate::pairing::Module;
use crate::report::{ModuleReport, Unpaired};

/// The binary of a module whose functions have no lines, because the debug file that would tell them is not there.
///
/// Go's function table tells functions and lines of a stripped binary too; such a module lacks nothing that can be had.
pub(crate) fn binary(module: &ModuleReport, of: &Module<'_>) -> Option<Unpaired> {
    let binary = of.binary?;
    let object = binary.object()?;
    let has_lines = matches!(module.debug_info, DebugInfo::Full | DebugInfo::LineTables);
    let is_go = module.functions.contains_key("pclntab");
    let is_paired = of.debug.is_some() || has_lines || is_go;
    if is_paired && of.missing.is_empty() {
        return None;
    }
    let advice = if !of.missing.is_empty() {
        format!("its debug information refers to what is not among the inputs: {}", of.missing.join(", "))
    } else if object.object_map > 0 {
        format!(
            "its debug information is in {} object files on the machine that linked it: run dsymutil there, and add the dSYM",
            object.object_map
        )
    } else if let Some(pdb) = &object.pdb {
        format!("add its program database {} of id {}", pdb.name, module.debug_id)
    } else if let (Some(link), "text-hash") = (&object.debug_link, object.id_kind.code()) {
        format!("add its debug file {} of CRC-32 {:#010x}", link.name, link.crc32)
    } else if let Some(link) = &object.debug_link {
        format!("add its debug file {} of id {}", link.name, module.debug_id)
    } else if object.id_kind.code() == "text-hash" {
        "it has no id of a linker, so no debug file can be tied to it: link with --build-id (or /DEBUG)".to_owned()
    } else {
        format!("add its debug file of id {}, or do not strip it", module.debug_id)
    };
    Some(Unpaired {
        debug_id: Some(module.debug_id.clone()),
        name: module.name.clone(),
        place: binary.file.place.clone(),
        advice,
    })
}

/// The debug file of a module whose binary is not there: no unwind table can be made.
pub(crate) fn debug_file(module: &ModuleReport, of: &Module<'_>) -> Option<Unpaired> {
    let debug = of.debug.filter(|_| of.binary.is_none())?;
    let advice = if of.is_supplementary {
        return None;
    } else {
        format!("add the binary of id {}: its unwind rules are nowhere else", module.debug_id)
    };
    Some(Unpaired {
        debug_id: Some(module.debug_id.clone()),
        name: module.name.clone(),
        place: debug.part.file.place.clone(),
        advice,
    })
}
