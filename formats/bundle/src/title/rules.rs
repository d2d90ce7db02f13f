//! What a title must be, on every platform. The rules stand in `docs/formats/bundle.md`, "Titles".

use unicode_normalization::UnicodeNormalization as _;

/// The longest title that is accepted, in bytes.
pub const MAX_TITLE_BYTES: usize = 1024;

/// The longest part of a title between two slashes, in bytes: what file systems share.
pub const MAX_PART_BYTES: usize = 255;

/// Device names of Windows, which are no files in any directory and with any extension ("Naming Files, Paths, and
/// Namespaces"). `COM` and `LPT` with one digit or a superscript 1, 2 or 3 belong to them.
const RESERVED: [&str; 6] = ["con", "prn", "aux", "nul", "conin$", "conout$"];

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
/// platform, that it reads as what it is, and that it names nothing that a debugger would run.
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
    if let Some(problem) = title.chars().find_map(character_problem) {
        return Some(problem);
    }
    if let Some(problem) = title.split('/').find_map(part_problem) {
        return Some(problem);
    }
    (is_debugger_script_path(title) || script_ending(title).is_some())
        .then_some("a debugger would run a file of this name")
}

fn character_problem(character: char) -> Option<&'static str> {
    match character {
        '\\' | ':' => Some("it holds a backslash or a colon, which lead elsewhere on Windows"),
        '<' | '>' | '"' | '|' | '?' | '*' => Some("it holds a character that file names on Windows cannot hold"),
        _ if character.is_control() => Some("it holds a control character"),
        _ if symseal_seal::is_invisible(character) => {
            Some("it holds a character that is not seen, or turns the text around it")
        }
        _ => None,
    }
}

fn part_problem(part: &str) -> Option<&'static str> {
    if part.is_empty() || part == "." || part == ".." {
        return Some("it has an empty part, `.` or `..`");
    }
    if part.len() > MAX_PART_BYTES {
        return Some("it has a part of more than 255 bytes");
    }
    if part.ends_with(['.', ' ']) {
        return Some("it has a part that ends with a dot or a blank, which Windows drops");
    }
    if is_reserved(part) {
        return Some("it has a part that is a device on Windows");
    }
    is_short_name(part).then_some("it has a part that may be the short name of another file on Windows")
}

/// Whether a character may stand in a title as it is.
pub(super) fn is_plain(character: char) -> bool {
    character != '/' && character_problem(character).is_none()
}

/// Whether Windows takes a name for a device: up to the first dot, blanks at its end apart.
pub(super) fn is_reserved(part: &str) -> bool {
    let stem = part.split('.').next().unwrap_or_default().trim_end_matches(' ').to_ascii_lowercase();
    let port = stem.strip_prefix("com").or_else(|| stem.strip_prefix("lpt"));
    RESERVED.contains(&stem.as_str())
        || port.is_some_and(|port| {
            let mut digits = port.chars();
            matches!((digits.next(), digits.next()), (Some('0'..='9' | '¹' | '²' | '³'), None))
        })
}

/// Whether a name has the form that Windows gives to the second, short name of a file: `SYMBOL~1.JSO`.
pub(super) fn is_short_name(part: &str) -> bool {
    let (stem, extension) = part.split_once('.').unwrap_or((part, ""));
    let Some((head, number)) = stem.rsplit_once('~') else { return false };
    stem.chars().count() <= 8
        && extension.chars().count() <= 3
        && !head.is_empty()
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether gdb or lldb would run a file of this name that it finds beside an object file (`NAME-gdb.py`, `NAME-gdb.gdb`,
/// `NAME-gdb.scm`: GDB manual, "The objfile-gdbdotext file") or in the current directory (`.gdbinit`, `.lldbinit`).
pub fn is_debugger_script(file_name: &str) -> bool {
    let name = file_name.to_ascii_lowercase();
    name.rsplit_once('.').is_some_and(|(stem, _)| stem.ends_with("-gdb")) || is_debugger_start_up(&name)
}

/// Whether gdb or lldb would run the file at this path although its bytes are those of a program, a debug file or an archive. Debuggers go by names alone:
/// of `NAME-gdb.*` they run what ends as a script does, so that a program may be called `arm-none-eabi-gdb.exe`. Its title is escaped all the same, as
/// [`check_title`] makes no difference.
pub fn is_debugger_script_whatever_it_holds(path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let script = script_ending(name);
    let in_dsym = folder.split('/').any(|part| part.to_ascii_lowercase().ends_with(".dsym"));
    is_debugger_start_up(name)
        || script.is_some() && (in_dsym || is_debugger_script(name))
        || leads_into_python_of_a_dsym(path)
}

/// Whether gdb or lldb would run a file of this name in the current or the user's directory when it starts.
pub(super) fn is_debugger_start_up(file_name: &str) -> bool {
    let name = file_name.to_ascii_lowercase();
    matches!(name.as_str(), ".gdbinit" | ".gdbearlyinit") || name.starts_with(".lldbinit")
}

/// How scripts of gdb end. An object file may name one for gdb to run (GDB manual, "The .debug_gdb_scripts section").
const SCRIPTS: [&str; 3] = [".py", ".scm", ".gdb"];

/// Where a name ends as a script of gdb does: the place of the dot.
pub(super) fn script_ending(name: &str) -> Option<usize> {
    let dot = name.rfind('.')?;
    let ending = name.get(dot..)?;
    SCRIPTS.iter().any(|script| ending.eq_ignore_ascii_case(script)).then_some(dot)
}

/// Whether a part of a path is a [`is_debugger_script`], or the path leads into the directory of a dSYM whose scripts
/// lldb loads with it (`App.dSYM/Contents/Resources/Python`: LLDB manual, "target.load-script-from-symbol-file"), or to any script
/// in a dSYM.
pub fn is_debugger_script_path(path: &str) -> bool {
    let is_dsym = |part: &&str| part.to_ascii_lowercase().ends_with(".dsym");
    let parts: Vec<&str> = path.split('/').collect();
    let in_dsym = parts.split_last().filter(|(_, folders)| folders.iter().any(is_dsym));
    in_dsym.is_some_and(|(name, _)| script_ending(name).is_some())
        || parts.iter().any(|part| is_debugger_script(part))
        || leads_into_python_of_a_dsym(path)
}

fn leads_into_python_of_a_dsym(path: &str) -> bool {
    let is = |part: Option<&&str>, name: &str| part.is_some_and(|part| part.eq_ignore_ascii_case(name));
    let parts: Vec<&str> = path.split('/').collect();
    parts.windows(4).any(|four| {
        four.first().is_some_and(|first| first.to_ascii_lowercase().ends_with(".dsym"))
            && is(four.get(1), "Contents")
            && is(four.get(2), "Resources")
            && is(four.get(3), "Python")
    })
}

/// What two titles have in common where they name one file on a file system that ignores case and the ways to write one
/// character (NTFS, APFS): Unicode's canonical decomposition, in upper and then in lower case.
pub fn fold(title: &str) -> String {
    if title.is_ascii() {
        return title.to_ascii_lowercase();
    }
    let upper = title.nfd().flat_map(char::to_uppercase);
    // The two cases of one letter may decompose differently.
    upper.flat_map(char::to_lowercase).collect::<String>().nfd().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn taken(titles: &[&str]) {
        for title in titles {
            assert_eq!(check_title(title), Ok(()), "{title:?}");
        }
    }

    #[track_caller]
    fn refused(titles: &[&str]) {
        for title in titles {
            assert!(check_title(title).is_err(), "{title:?}");
        }
    }

    #[test]
    fn a_title_stays_below_its_directory() {
        taken(&["symbol_index.json", ".build-id/ab/cdef.debug", "a/b-gdb", "..a/b..c", "dSYM/x/Größe", "a b/c"]);
        refused(&["", "/etc/passwd", "..", "a/../b", "./a", "a//b", "a/", "a\\b", "C:/x", "C:x", "..\\a", "a:stream"]);
        let long = "abcdefghi/".repeat(103);
        refused(&[&long[..1025], &"a".repeat(256)]);
        taken(&[&long[..1023], &"a".repeat(255)]);
    }

    #[test]
    fn what_windows_takes_for_something_else_is_refused() {
        refused(&["CON", "con", "a/Prn", "aux/b", "NUL.txt", "nul.tar.gz", "COM1", "com9.pdb", "LPT3.x", "COM\u{b9}"]);
        refused(&[
            "CON .txt", "conin$", "CONOUT$", "LPT0", "a./b", "b.", "b ", "a /b", "a\"b", "a?", "a*", "<a>", "a|b",
        ]);
        refused(&["SYMBOL~1.JSO", "a~1", "d/ab~12.x"]);
        taken(&["console", "com", "com10", "lpt", "nulled.txt", "x.con", "1.0~rc1-gdb", "longer-than-8~1", "~1"]);
    }

    #[test]
    fn what_is_not_seen_or_seen_otherwise_is_refused() {
        refused(&["a\0b", "a\nb", "a\u{7f}", "a\u{85}", "app\u{202e}gpj.exe", "a\u{2066}b", "a\u{200d}b", "\u{feff}a"]);
        refused(&["a\u{200f}b", "a\u{2028}b", "a\u{e0041}b", ".g\u{200c}it"]);
    }

    #[test]
    fn a_file_that_a_debugger_would_run_is_refused() {
        refused(&["x-gdb.py", "lib/libfoo.so.1-gdb.gdb", "X-GDB.PY", "a-gdb.scm/b", "d/.gdbinit", ".lldbinit-app"]);
        refused(&["dSYM/ID/App.dSYM/Contents/Resources/Python/app.py", "a.DSYM/contents/resources/python/x/y"]);
        refused(&["dSYM/ID/App.dSYM/Contents/Resources/a.py", "a.dSYM/b.SCM", "a.dSYM/Contents/x.gdb"]);
        refused(&["a.py/5F3A1B2C1f000/a.py", "x.SCM", "debug_file/ID/a.gdb"]);
        taken(&["a.py/x", "dSYM/ID/a.py.dSYM/Contents/Info.plist", "a.pyd", "a.py.debug"]);
        taken(&["dSYM/ID/App.dSYM/Contents/Resources/DWARF/App", "Contents/Resources/Python/app.pyc"]);
    }

    #[test]
    fn a_program_whose_name_ends_in_gdb_is_no_script_and_one_that_ends_as_a_script_is() {
        for path in ["arm-none-eabi-gdb.exe", "x-gdb.zip", "arm-gdb.dSYM/Contents/Info.plist", "A.dSYM/x/arm-gdb.dylib"]
        {
            assert!(is_debugger_script_path(path) && !is_debugger_script_whatever_it_holds(path), "{path}");
        }
        let python = "App.dSYM/Contents/Resources/Python/app.so";
        for path in ["app.exe-gdb.py", "X-GDB.Scm", "a-gdb.gdb", ".gdbinit", "d/.lldbinit-app", "A.dSYM/x/a.py", python]
        {
            assert!(is_debugger_script_path(path) && is_debugger_script_whatever_it_holds(path), "{path}");
        }
        assert!(!is_debugger_script_whatever_it_holds("extension.py"));
    }

    #[test]
    fn titles_that_one_file_system_takes_for_one_fold_to_one() {
        for (a, b) in
            [("A/b", "a/B"), ("Größe", "GRO\u{308}SSE"), ("\u{212a}", "k"), ("\u{e9}", "E\u{301}"), ("ſ", "S")]
        {
            assert_eq!(fold(a), fold(b), "{a:?} {b:?}");
        }
        assert_ne!(fold("a"), fold("b"));
        assert_eq!(fold(&fold("GRÖSSE")), fold("größe"));
    }
}
