//! Titles at which the tools of each platform look.

use symseal_module::DebugId;

use super::{build_id_executable, component, file_stem};

/// `.build-id/ab/cdef….dwp`: debuggers look for the package of split DWARF beside the executable. `None` where the
/// executable has no place below `.build-id` either.
pub fn split_package(id: &DebugId) -> Option<String> {
    build_id_executable(id).map(|path| path + ".dwp")
}

/// `split_dwarf/<debug id>/<unit id>/<name>`: one `.dwo` file. Several units of a module may come from files of one name.
pub fn split_unit(id: &DebugId, unit: u64, name: &str) -> String {
    format!("split_dwarf/{}/{unit:016x}/{}", file_stem(id), component(name))
}

/// `app.exe/<code id>/app.exe`: the two-tier layout of symbol stores, which is a symbol path as it is.
pub fn pe_image(name: &str, code_id: &str) -> String {
    let name = component(name);
    format!("{name}/{code_id}/{name}")
}

/// `app.pdb/<GUID><age>/app.pdb`: GUID in upper-case hex digits, age in lower-case ones without padding.
pub fn pdb(name: &str, guid: [u8; 16], age: u32) -> String {
    let name = component(name);
    let id = DebugId::Pdb { guid, age }.to_string().replace('-', "");
    format!("{name}/{id}/{name}")
}

/// `macho/<UUID>/App`.
pub fn macho_image(id: &DebugId, name: &str) -> String {
    format!("macho/{}/{}", uuid(id), component(name))
}

/// `dSYM/<UUID>/App.dSYM/Contents/…`: one file of a dSYM bundle, by its path in the bundle.
pub fn dsym_member<'p>(id: &DebugId, bundle: &str, path: impl IntoIterator<Item = &'p str>) -> String {
    let mut title = format!("dSYM/{}/{}", uuid(id), component(bundle));
    for part in path {
        title.push('/');
        title.push_str(&component(part));
    }
    title
}

/// The UUID alone, without the mark of its kind.
fn uuid(id: &DebugId) -> String {
    id.to_string().trim_start_matches("uuid:").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::title::check_title;

    #[test]
    fn files_lie_where_the_tools_of_their_platform_look() {
        let guid = [0xd6, 0xfe, 0xa1, 0xb2, 0xc3, 0xd4, 0xe5, 0xf6, 7, 0x18, 0x29, 0x3a, 0x4b, 0x5c, 0x6d, 0x7e];
        let uuid = DebugId::MachoUuid(guid);
        let build_id: DebugId = "abcdef01".parse().unwrap();
        for (title, expected) in [
            (pe_image("app.exe", "5F3A1B2C1f000"), "app.exe/5F3A1B2C1f000/app.exe"),
            (pdb("app.pdb", guid, 26), "app.pdb/D6FEA1B2C3D4E5F60718293A4B5C6D7E1a/app.pdb"),
            (macho_image(&uuid, "App"), "macho/D6FEA1B2C3D4E5F60718293A4B5C6D7E/App"),
            (
                dsym_member(&uuid, "App.dSYM", ["Contents", "Resources", "DWARF", "App"]),
                "dSYM/D6FEA1B2C3D4E5F60718293A4B5C6D7E/App.dSYM/Contents/Resources/DWARF/App",
            ),
            (split_package(&build_id).unwrap(), ".build-id/ab/cdef01.dwp"),
            (split_unit(&build_id, 0x1f, "a.dwo"), "split_dwarf/abcdef01/000000000000001f/a.dwo"),
        ] {
            assert_eq!(title, expected);
            assert_eq!(check_title(&title), Ok(()));
        }
    }
}
