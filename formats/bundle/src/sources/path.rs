//! Paths as line tables name them: text of another machine, with slashes or backslashes, and no path of this one.

use crate::title;

/// Whether a path is one of Windows: `C:\…`, `C:/…`, `\\server\…`, or with backslashes alone.
pub fn is_windows(path: &str) -> bool {
    has_drive(path) || path.starts_with("\\\\") || path.contains('\\') && !path.contains('/')
}

/// Whether a path begins with a drive letter, a colon and a separator.
fn has_drive(path: &str) -> bool {
    matches!(path.as_bytes(), [letter, b':', b'/' | b'\\', ..] if letter.is_ascii_alphabetic())
}

/// Whether a path says where it begins: `/…`, `C:\…`, `\…`.
pub fn is_absolute(path: &str) -> bool {
    path.starts_with('/') || has_drive(path) || is_windows(path) && path.starts_with('\\')
}

/// The parts of a path between its separators, without empty ones and `.`; a drive is a part.
pub fn parts(path: &str) -> impl DoubleEndedIterator<Item = &str> + use<'_> {
    let windows = is_windows(path);
    path.split(move |character| character == '/' || windows && character == '\\')
        .filter(|part| !part.is_empty() && *part != ".")
}

/// The path below which an unzip puts the file: its parts, each by the rule for names from inputs, with a slash between
/// them.
pub(super) fn member_name(path: &str) -> String {
    let parts: Vec<String> = parts(path).map(title::component).collect();
    if parts.is_empty() { title::component("") } else { parts.join("/") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_both_worlds_come_apart() {
        #[track_caller]
        fn check(path: &str, absolute: bool, expected: &[&str]) {
            assert_eq!(parts(path).collect::<Vec<_>>(), expected, "{path}");
            assert_eq!(is_absolute(path), absolute, "{path}");
        }
        check("/usr//src/./a.c", true, &["usr", "src", "a.c"]);
        check("src/a.c", false, &["src", "a.c"]);
        check("./../a.c", false, &["..", "a.c"]);
        check("C:\\src\\a.c", true, &["C:", "src", "a.c"]);
        check("d:/src\\b/a.c", true, &["d:", "src", "b", "a.c"]);
        check("\\\\server\\share\\a.c", true, &["server", "share", "a.c"]);
        check("src\\a.c", false, &["src", "a.c"]);
        check("/odd/a\\b.c", true, &["odd", "a\\b.c"]);
        check("<built-in>", false, &["<built-in>"]);
    }

    #[test]
    fn members_stay_below_the_directory_of_the_unzip() {
        assert_eq!(member_name("/usr/src/a.c"), "usr/src/a.c");
        assert_eq!(member_name("../../etc/passwd"), ".%2E/.%2E/etc/passwd");
        assert_eq!(member_name("C:\\src\\nul.c"), "C%3A/src/%6Eul.c");
        assert_eq!(member_name("/"), "%~");
        assert_eq!(member_name("/x/lib-gdb.py"), "x/lib%2Dgdb%2Epy");
    }
}
