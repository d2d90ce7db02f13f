//! Where debuggers look for the debug files of a module, in their order. Paths only: nothing is opened here.

use std::path::{Component, Path, PathBuf};

use symseal_module::escape;

/// Debug directories as gdb and elfutils are built with them on Linux.
pub(crate) const DEBUG_DIRECTORIES: &[&str] = &["/usr/lib/debug"];

/// Extensions under which programs ship separate debug files beside the binary.
const BESIDE: [&str; 2] = ["debug", "dbg"];

/// `DIR/.build-id/ab/cdef….debug`. (GDB manual, "Separate Debug Files")
pub(super) fn by_build_id(directories: &[PathBuf], id: &[u8]) -> Vec<PathBuf> {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let Some((first, rest)) = hex.split_at_checked(2).filter(|(_, rest)| !rest.is_empty()) else { return Vec::new() };
    directories.iter().map(|directory| directory.join(".build-id").join(first).join(format!("{rest}.debug"))).collect()
}

/// What `.gnu_debuglink` in `binary` leads to: beside it, in `.debug`, and below the debug directories. (The same page)
pub(super) fn by_debug_link(directories: &[PathBuf], binary: &Path, name: &[u8]) -> Vec<PathBuf> {
    // A name only; one with a directory in it is none.
    let Some(name) = file_name(name).filter(|found| found.len() == name.len()) else { return Vec::new() };
    let Some(beside) = binary.parent() else { return Vec::new() };
    let mut places = vec![beside.join(&name), beside.join(".debug").join(&name)];
    places.extend(directories.iter().map(|directory| below(directory, beside).join(&name)));
    places.retain(|place| place != binary);
    places
}

/// `app.debug` and `app.dbg` beside `app`.
pub(super) fn beside(binary: &Path) -> Vec<PathBuf> {
    let Some(name) = binary.file_name() else { return Vec::new() };
    let with = |extension: &str| {
        let mut name = name.to_owned();
        name.push(".");
        name.push(extension);
        binary.with_file_name(name)
    };
    BESIDE.into_iter().map(with).collect()
}

/// The program database of a PE file: beside it under the name that it has in the file, or as the file's own name has it; then where the linker wrote it,
/// if that is a path of this system.
pub(super) fn program_database(binary: &Path, written: Option<&[u8]>) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Some(name) =
        written.and_then(|path| path.rsplit(|byte| matches!(byte, b'/' | b'\\')).next()).and_then(file_name)
    {
        places.push(binary.with_file_name(name));
    }
    places.push(binary.with_extension("pdb"));
    places.extend(
        written
            .filter(|path| !is_elsewhere(path))
            .and_then(|path| std::str::from_utf8(path).ok())
            .map(PathBuf::from)
            .filter(|path| path.is_absolute()),
    );
    without_repetition(places)
}

/// The DWARF file in the dSYM bundle beside a Mach-O file, or beside the application or framework around it. (lldb, "Symbols on macOS")
pub(super) fn dsym(binary: &Path) -> Vec<PathBuf> {
    let Some(name) = binary.file_name() else { return Vec::new() };
    let bundles =
        std::iter::once(binary).chain(binary.ancestors().skip(1).filter(|folder| folder.extension().is_some()));
    bundles
        .filter_map(|bundle| {
            let mut dsym = bundle.file_name()?.to_owned();
            dsym.push(".dSYM");
            Some(bundle.with_file_name(dsym).join("Contents/Resources/DWARF").join(name))
        })
        .collect()
}

/// What dwz moved common parts to, as `debug_file` names it, or by its build-id.
pub(super) fn supplementary(directories: &[PathBuf], debug_file: &Path, written: &[u8], id: &[u8]) -> Vec<PathBuf> {
    let written = path_of_bytes(written);
    let mut places = Vec::new();
    if written.is_absolute() {
        places.push(written);
    } else if let Some(folder) = debug_file.parent() {
        places.push(folder.join(&written));
        // Relative to where the file was before it was found by its build-id.
        places.extend(
            directories.iter().map(|directory| directory.join(".dwz").join(written.file_name().unwrap_or_default())),
        );
    }
    places.extend(by_build_id(directories, id));
    without_repetition(places)
}

/// `app.dwp` beside `app`.
pub(super) fn package(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".dwp");
    file.with_file_name(name)
}

/// A `.dwo` file: as its skeleton names it, relative to where the compiler ran; else beside the file that has the skeleton.
pub(super) fn split_unit(file: &Path, name: &[u8], compile_directory: &[u8]) -> Vec<PathBuf> {
    let name = path_of_bytes(name);
    let mut places = Vec::new();
    if !is_elsewhere(compile_directory) && !is_elsewhere(name.as_os_str().as_encoded_bytes()) {
        places.push(path_of_bytes(compile_directory).join(&name));
    }
    if let Some(own) = name.file_name() {
        places.push(file.with_file_name(own));
    }
    places.retain(|place| place.is_absolute());
    without_repetition(places)
}

/// Whether a path that a file names leads to another machine, or to a device, where one of Windows reads it: a file must not have us log in somewhere.
fn is_elsewhere(path: &[u8]) -> bool {
    matches!(path, [b'\\' | b'/', b'\\' | b'/', ..])
}

/// The path that bytes mean.
pub(crate) fn path_of_bytes(bytes: &[u8]) -> PathBuf {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt as _;
        PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
    }
    #[cfg(not(unix))]
    PathBuf::from(escape::escape(bytes))
}

/// A path as texts have it.
pub(super) fn shown(path: &Path) -> String {
    escape::escape(path.as_os_str().as_encoded_bytes())
}

fn file_name(name: &[u8]) -> Option<std::ffi::OsString> {
    path_of_bytes(name).file_name().map(std::ffi::OsStr::to_owned)
}

/// An absolute path put below a directory.
fn below(directory: &Path, path: &Path) -> PathBuf {
    let names = path.components().filter(|part| matches!(part, Component::Normal(_)));
    names.fold(directory.to_owned(), |joined, name| joined.join(name))
}

fn without_repetition(places: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut kept: Vec<PathBuf> = Vec::with_capacity(places.len());
    for place in places {
        if !kept.contains(&place) {
            kept.push(place);
        }
    }
    kept
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn texts(places: &[PathBuf]) -> Vec<&str> {
        places.iter().map(|place| place.to_str().unwrap()).collect()
    }

    fn directories() -> Vec<PathBuf> {
        vec!["/usr/lib/debug".into(), "/opt/debug".into()]
    }

    #[test]
    fn a_build_id_has_a_place_in_each_directory() {
        assert_eq!(
            texts(&by_build_id(&directories(), &[0xab, 0xcd, 0xef])),
            ["/usr/lib/debug/.build-id/ab/cdef.debug", "/opt/debug/.build-id/ab/cdef.debug"]
        );
        assert!(by_build_id(&directories(), &[0xab]).is_empty());
    }

    #[test]
    fn a_debug_link_is_a_name_and_never_the_binary_itself() {
        let binary = Path::new("/usr/bin/app");
        assert_eq!(
            texts(&by_debug_link(&directories(), binary, b"app.debug")),
            [
                "/usr/bin/app.debug",
                "/usr/bin/.debug/app.debug",
                "/usr/lib/debug/usr/bin/app.debug",
                "/opt/debug/usr/bin/app.debug"
            ]
        );
        assert!(!texts(&by_debug_link(&directories(), binary, b"app")).contains(&"/usr/bin/app"));
        for hostile in [b"../../etc/shadow".as_slice(), b"/etc/shadow", b"..", b"", b"a/b"] {
            assert!(by_debug_link(&directories(), binary, hostile).is_empty(), "{hostile:?}");
        }
    }

    #[test]
    fn a_program_database_is_beside_its_program_first() {
        let places = program_database(Path::new("/srv/app.exe"), Some(br"D:\build\out\core.pdb"));
        assert_eq!(texts(&places), ["/srv/core.pdb", "/srv/app.pdb"]);
        let places = program_database(Path::new("/srv/app.exe"), Some(b"/build/app.pdb"));
        assert_eq!(texts(&places), ["/srv/app.pdb", "/build/app.pdb"]);
    }

    #[test]
    fn a_dsym_is_beside_the_file_or_the_application_around_it() {
        let places = dsym(Path::new("/Applications/Some.app/Contents/MacOS/Some"));
        assert_eq!(
            texts(&places),
            [
                "/Applications/Some.app/Contents/MacOS/Some.dSYM/Contents/Resources/DWARF/Some",
                "/Applications/Some.app.dSYM/Contents/Resources/DWARF/Some"
            ]
        );
    }

    #[test]
    fn a_supplementary_file_is_where_it_is_named_or_by_its_build_id() {
        let debug = Path::new("/usr/lib/debug/.build-id/aa/bb.debug");
        let places =
            supplementary(&[PathBuf::from("/usr/lib/debug")], debug, b"../../.dwz/x86_64-linux-gnu/a.debug", &[1, 2]);
        assert_eq!(
            texts(&places),
            [
                "/usr/lib/debug/.build-id/aa/../../.dwz/x86_64-linux-gnu/a.debug",
                "/usr/lib/debug/.dwz/a.debug",
                "/usr/lib/debug/.build-id/01/02.debug"
            ]
        );
    }

    #[test]
    fn a_split_unit_is_where_the_compiler_left_it_or_beside_its_program() {
        let file = Path::new("/srv/app");
        assert_eq!(texts(&split_unit(file, b"obj/a.dwo", b"/build")), ["/build/obj/a.dwo", "/srv/a.dwo"]);
        assert_eq!(texts(&split_unit(file, b"obj/a.dwo", b".")), ["/srv/a.dwo"]);
        assert_eq!(texts(&[package(file)]), ["/srv/app.dwp"]);
    }
}
