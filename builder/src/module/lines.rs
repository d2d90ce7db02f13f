//! What the lines of a module tell of: its own code, or that of libraries and start-up code alone which were linked in.

use symseal_artifact::FunctionStream;
use symseal_symx::FunctionRecord;

use crate::report::LinesOf;

/// Of so many bytes of code at least one must have a line, for the lines to be those of the module: libraries that are assembly for the most part have
/// lines of more.
const ONE_OF: u64 = 10;
/// Bytes of code that need none: what a C library adds to start a program, and a linkage table, are more than the whole of the smallest programs.
const START_UP: u64 = 4096;

/// What start-up code calls, by its linkage name: in C and what follows it, Fortran, D, Ada, Pascal, Haskell, and of Windows' programs. Rust's `main` is
/// made by its compiler, and has no lines.
const BEGINNINGS: [&str; 10] = [
    "main",
    "MAIN__",
    "_Dmain",
    "adainit",
    "PASCALMAIN",
    "ZCMain_main_info",
    "wmain",
    "WinMain",
    "wWinMain",
    "DllMain",
];

/// The code that has lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines {
    /// Bytes of code for which a line is known.
    pub(crate) bytes: u64,
    pub(crate) of: LinesOf,
}

impl Lines {
    pub(crate) fn of(stream: &FunctionStream) -> Self {
        let bytes = stream.functions.iter().map(lined_bytes).fold(0, u64::saturating_add);
        let is_small = bytes < stream.statistics.text_bytes.saturating_sub(START_UP) / ONE_OF;
        let mut sources = stream.sources.iter().map(|source| stream.strings.get(source.path));
        let of = match bytes {
            0 => LinesOf::None,
            // The most of a program that is linked statically may be libraries without lines.
            _ if is_small && !has_lines_of_its_own(stream) => LinesOf::Parts,
            _ if !stream.sources.is_empty() && sources.all(is_of_rusts_library) => LinesOf::RustLibrary,
            _ => LinesOf::Module,
        };
        Self { bytes, of }
    }
}

/// Whether the function has lines with which a program's own code begins.
fn has_lines_of_its_own(stream: &FunctionStream) -> bool {
    let is_beginning = |name: &symseal_symx::StrId| BEGINNINGS.contains(&stream.strings.get(*name));
    let begins = |function: &&FunctionRecord| {
        is_beginning(&function.symbol) || is_beginning(&function.name) || function.aliases.iter().any(is_beginning)
    };
    stream.functions.iter().filter(begins).any(|function| lined_bytes(function) > 0)
}

/// Bytes of a function whose rows have a line.
fn lined_bytes(function: &FunctionRecord) -> u64 {
    let end = function.start.0.saturating_add(function.size);
    let starts = function.rows.iter().map(|row| row.start.0);
    let ends = starts.skip(1).chain([end]);
    let rows = function.rows.iter().zip(ends).filter(|(row, _)| row.line != 0);
    rows.map(|(row, end)| end.saturating_sub(row.start.0)).sum()
}

/// Whether a path is one by which the Rust project's own builds name the sources of the standard library and of what it is
/// made with. Every program of Rust has that library, and its debug information, however it was compiled.
fn is_of_rusts_library(path: &str) -> bool {
    let of_library = |path: &str| {
        let (commit, rest) = path.split_once(['/', '\\'])?;
        let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        Some(is_commit && rest.strip_prefix("library").is_some_and(|rest| rest.starts_with(['/', '\\'])))
    };
    path.strip_prefix("/rustc/").and_then(of_library).unwrap_or(false)
        || path.starts_with("/rust/deps/")
        || path.starts_with("/cargo/registry/src/")
}

#[cfg(test)]
mod tests {
    use super::is_of_rusts_library;

    #[test]
    fn sources_of_rusts_library_are_told_from_those_of_its_compiler_and_of_programs() {
        let commit = "59807616e1fa2540724bfbac14d7976d7e4a3860";
        for path in [
            format!("/rustc/{commit}/library/std/src/rt.rs"),
            format!("/rustc/{commit}/library\\core\\src\\fmt\\mod.rs"),
            "/rust/deps/memchr-2.7.6/src/lib.rs".to_owned(),
        ] {
            assert!(is_of_rusts_library(&path), "{path}");
        }
        for path in [
            format!("/rustc/{commit}/compiler/rustc_middle/src/lib.rs"),
            format!("/rustc/{commit}/library.rs"),
            "/rustc/1.90.0/library/std/src/rt.rs".to_owned(),
            "/home/me/rustc/src/main.rs".to_owned(),
            String::new(),
        ] {
            assert!(!is_of_rusts_library(&path), "{path}");
        }
    }
}
