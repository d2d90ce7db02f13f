//! Titles at which the tools of each platform look.

use symseal_module::DebugId;

use super::{build_id_executable, component, file_stem};

/// The titles of a package of split DWARF, at which each debugger looks for it beside what it has read (`docs/formats/bundle.md`,
/// "Split DWARF"): `.build-id/ab/cdef….debug.dwp` (llvm-symbolizer), `.build-id/ab/NAME.dwp` (gdb and lldb that were given the program
/// NAME) and `.build-id/ab/cdef….dwp` (gdb that was given the executable in the tree). Empty where the executable has no place below
/// `.build-id` either.
pub fn split_package(id: &DebugId, program: &str) -> Vec<String> {
    let Some(executable) = build_id_executable(id) else { return Vec::new() };
    let Some((folder, _)) = executable.rsplit_once('/') else { return Vec::new() };
    let named = format!("{folder}/{}.dwp", component(program));
    vec![format!("{executable}.debug.dwp"), named, format!("{executable}.dwp")]
}

/// `.build-id/ab/obj/name.dwo`: gdb looks for a unit of split DWARF by the name that its skeleton has for it, beside the debug file. `None`
/// for a name from the root or out of the directory, for one that does not end in `.dwo`, and for one whose directories may be other files' titles.
pub fn split_unit_by_name(id: &DebugId, name: &str) -> Option<String> {
    let executable = build_id_executable(id)?;
    let (folder, _) = executable.rsplit_once('/')?;
    let parts: Vec<&str> = name.split('/').filter(|part| *part != ".").collect();
    let (file, folders) = parts.split_last()?;
    // What a title has another form of is not found under it.
    let is_title = parts.iter().all(|part| component(part) == **part) && file.ends_with(".dwo");
    let first = folders.first().copied().unwrap_or("-");
    let is_others = first.starts_with('.') || first.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_file = |part: &&str| [".dwo", ".dwp", ".debug"].iter().any(|end| part.to_ascii_lowercase().ends_with(end));
    (is_title && !is_others && !folders.iter().any(is_file)).then(|| format!("{folder}/{}", parts.join("/")))
}

/// `app/.debug/NAME`: where gdb and llvm-symbolizer look for the debug file that a program names by its `.gnu_debuglink`, from the
/// program's title. It is beside the program, but no other file of a bundle is.
pub fn linked_debug_file(executable: &str, name: &str) -> Option<String> {
    let (folder, _) = executable.rsplit_once('/')?;
    Some(format!("{folder}/.debug/{}", component(name)))
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
            (
                dsym_member(&uuid, "a.py.dSYM", ["Contents", "Resources", "DWARF", "a.py"]),
                "dSYM/D6FEA1B2C3D4E5F60718293A4B5C6D7E/a.py.dSYM/Contents/Resources/DWARF/a%2Epy",
            ),
            (split_package(&build_id, "app").remove(0), ".build-id/ab/cdef01.debug.dwp"),
            (split_package(&build_id, "app").remove(1), ".build-id/ab/app.dwp"),
            (split_package(&build_id, "app").remove(2), ".build-id/ab/cdef01.dwp"),
            (split_unit_by_name(&build_id, "./obj/app.dir/a.dwo").unwrap(), ".build-id/ab/obj/app.dir/a.dwo"),
            (linked_debug_file(".build-id/ab/cdef01", "app.dbg").unwrap(), ".build-id/ab/.debug/app.dbg"),
            (split_unit(&build_id, 0x1f, "a.dwo"), "split_dwarf/abcdef01/000000000000001f/a.dwo"),
        ] {
            assert_eq!(title, expected);
            assert_eq!(check_title(&title), Ok(()));
        }
    }

    #[test]
    fn the_name_of_a_unit_leads_to_no_other_files_place() {
        let id: DebugId = "abcdef01".parse().unwrap();
        let names =
            ["/b/a.dwo", "../a.dwo", "o/../a.dwo", "cdef/a.dwo", ".debug/a.dwo", "x.dwp/a.dwo", "a.o", "a:b.dwo", ""];
        for name in names {
            assert_eq!(split_unit_by_name(&id, name), None, "{name}");
        }
    }
}
