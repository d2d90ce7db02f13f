//! Titles: where a file of a bundle lies once it is pulled into a directory.
//!
//! A title comes from outside, and `oras pull` and our own tools write files at it, so its rules are strict.

use symseal_module::DebugId;

/// The longest title that is accepted, in bytes.
pub const MAX_TITLE_BYTES: usize = 1024;

/// Why a title is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the title {title:?} is refused: {reason}")]
pub struct TitleError {
    /// The title, cut where it is long.
    pub title: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// Checks that `title` is a relative path that stays below the directory it is joined to on every
/// platform, and names nothing that a debugger would run.
pub fn check_title(title: &str) -> Result<(), TitleError> {
    match title_problem(title) {
        None => Ok(()),
        Some(reason) => Err(TitleError { title: title.chars().take(120).collect(), reason }),
    }
}

fn title_problem(title: &str) -> Option<&'static str> {
    if title.is_empty() {
        return Some("it is empty");
    }
    if title.len() > MAX_TITLE_BYTES {
        return Some("it is longer than 1024 bytes");
    }
    if title.starts_with('/') {
        return Some("it is an absolute path");
    }
    if title.contains(['\\', ':']) {
        return Some("it holds a backslash or a colon, which lead elsewhere on Windows");
    }
    if title.chars().any(char::is_control) {
        return Some("it holds a control character");
    }
    if title.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return Some("it has an empty part, `.` or `..`");
    }
    if title.split('/').any(is_debugger_script) {
        return Some("a debugger would run a file of this name");
    }
    None
}

/// Whether gdb would run a file of this name that it finds beside an object file (`NAME-gdb.py`, `NAME-gdb.gdb`, `NAME-gdb.scm`).
pub fn is_debugger_script(file_name: &str) -> bool {
    file_name.to_ascii_lowercase().rsplit_once('.').is_some_and(|(stem, _)| stem.ends_with("-gdb"))
        || file_name.eq_ignore_ascii_case(".gdbinit")
        || file_name.eq_ignore_ascii_case(".lldbinit")
}

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
    let hex = id.to_string();
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
    fn a_title_stays_below_its_directory() {
        for title in ["symbol_index.json", ".build-id/ab/cdef.debug", "a/b-gdb", "..a/b..", "dSYM/x/Größe"] {
            assert_eq!(check_title(title), Ok(()), "{title:?}");
        }
        for title in ["", "/etc/passwd", "..", "a/../b", "./a", "a//b", "a/", "a\\b", "C:/x", "a\0b", "a\nb"] {
            assert!(check_title(title).is_err(), "{title:?}");
        }
        assert!(check_title(&"a".repeat(1025)).is_err());
    }

    #[test]
    fn a_file_that_a_debugger_would_run_is_refused() {
        for title in ["x-gdb.py", "lib/libfoo.so.1-gdb.gdb", "X-GDB.PY", "a-gdb.scm/b", "d/.gdbinit"] {
            assert!(check_title(title).is_err(), "{title:?}");
        }
    }

    #[test]
    fn build_ids_give_the_paths_that_gdb_looks_at() {
        let id: DebugId = "abcdef01".parse().unwrap();
        assert_eq!(build_id_debug_file(&id).as_deref(), Some(".build-id/ab/cdef01.debug"));
        assert_eq!(build_id_executable(&id).as_deref(), Some(".build-id/ab/cdef01"));
        assert_eq!(build_id_debug_file(&"ab".parse().unwrap()), None);
        let uuid: DebugId = "uuid:D6FEA1B2C3D4E5F60718293A4B5C6D7E".parse().unwrap();
        assert_eq!(check_title(&module_index(&uuid)), Ok(()));
    }
}
