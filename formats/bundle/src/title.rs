//! Titles: where a file of a bundle lies once it is pulled into a directory.
//!
//! A title comes from outside, and `oras pull` and our own tools write files at it, so its rules are strict.

mod component;
mod places;
mod platforms;
mod rules;
mod together;

use symseal_module::DebugId;

pub use component::component;
pub use places::{is_kept_apart, keep_apart, take_back};
pub use platforms::{
    dsym_member, linked_debug_file, macho_image, pdb, pe_image, split_package, split_unit, split_unit_by_name,
};
pub use rules::{
    MAX_PART_BYTES, MAX_TITLE_BYTES, TitleError, check_title, fold, is_debugger_script, is_debugger_script_path,
    is_debugger_script_whatever_it_holds,
};
pub(crate) use together::Titles;

/// `symbol_index.json`, the bundle's root.
pub const SYMBOL_INDEX: &str = "symbol_index.json";

/// The title of a seal's Sigstore bundle.
pub const SEAL: &str = "symbol_index.sigstore.json";

/// `.build-id/ab/cdef….debug`, where gdb and elfutils look for a debug file. `None` unless `id` is a build-id of two bytes or more.
pub fn build_id_debug_file(id: &DebugId) -> Option<String> {
    build_id_executable(id).map(|path| path + ".debug")
}

/// `.build-id/ab/cdef…`, where elfutils looks for the executable. `None` unless `id` is a build-id of two bytes or more.
pub fn build_id_executable(id: &DebugId) -> Option<String> {
    id.build_id().filter(|bytes| bytes.len() > 1)?;
    below_build_id(&id.to_string())
}

/// The build-id that gdb takes a GUID for, in hex digits: of a PE file with DWARF (MinGW) it looks for the debug file by that. `None`
/// for ids of other kinds.
pub fn guid_as_build_id(id: &DebugId) -> Option<String> {
    let DebugId::Pdb { guid, .. } = id else { return None };
    Some(guid.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// `.build-id/ab/cdef….debug`, where gdb looks for the debug file of a PE file with DWARF, by its GUID. `None` for ids of other kinds.
pub fn guid_debug_file(id: &DebugId) -> Option<String> {
    Some(below_build_id(&guid_as_build_id(id)?)? + ".debug")
}

fn below_build_id(hex: &str) -> Option<String> {
    let (directory, file) = hex.split_at_checked(2)?;
    Some(format!(".build-id/{directory}/{file}"))
}

/// `symbol_index/<debug id>.json`, the per-module index.
pub fn module_index(id: &DebugId) -> String {
    format!("symbol_index/{}.json", file_stem(id))
}

/// `symbol_table/<debug id>.symx`.
pub fn symbol_table(id: &DebugId) -> String {
    format!("symbol_table/{}.symx", file_stem(id))
}

/// `unwind_table/<debug id>.uwt`.
pub fn unwind_table(id: &DebugId) -> String {
    format!("unwind_table/{}.uwt", file_stem(id))
}

/// `page_hashes/<platform>-<arch>-<first debug id>.pages`, the page hashes of one manifest's files.
pub fn page_hashes(platform: &str, arch: &str, first: &DebugId) -> String {
    format!("page_hashes/{platform}-{arch}-{}.pages", file_stem(first))
}

/// The id's text with its colon, which file names on Windows cannot hold, as a dash.
fn file_stem(id: &DebugId) -> String {
    id.to_string().replace(':', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids_give_the_paths_that_gdb_looks_at() {
        let id: DebugId = "abcdef01".parse().unwrap();
        assert_eq!(build_id_debug_file(&id).as_deref(), Some(".build-id/ab/cdef01.debug"));
        assert_eq!(build_id_executable(&id).as_deref(), Some(".build-id/ab/cdef01"));
        assert_eq!(build_id_debug_file(&"ab".parse().unwrap()), None);
        let uuid: DebugId = "uuid:D6FEA1B2C3D4E5F60718293A4B5C6D7E".parse().unwrap();
        assert_eq!(check_title(&module_index(&uuid)), Ok(()));
        let guid: DebugId = "D6FEA1B2C3D4E5F60718293A4B5C6D7E-1".parse().unwrap();
        let expected = ".build-id/d6/fea1b2c3d4e5f60718293a4b5c6d7e.debug";
        assert_eq!(guid_debug_file(&guid).as_deref(), Some(expected));
    }
}
