//! What the lines of a module tell of: its own code, or that of libraries and start-up code alone which were linked in.

use std::collections::{BTreeMap, BTreeSet};

use symseal_artifact::FunctionStream;
use symseal_module::Rva;
use symseal_symx::{FunctionRecord, NO_INLINE, StrId};

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

/// What of a C library and a compiler comes before that, and is assembled or compiled with lines on some systems.
const BEFORE_BEGINNINGS: [&str; 5] = ["_start", "__start", "_start_c", "__libc_csu_init", "__libc_csu_fini"];

/// Names that stand one behind the other in the paths of what is linked into every program of its kind, in lower case; the last may go on behind a hyphen, with a version. Several of them
/// have a beginning of their own for programs that have another one or none: a `DllMain` that does nothing, a `main` that calls `WinMain`.
const START_UP_CODE: [&[&str]; 10] = [
    // MinGW-w64 (crt/dllmain.c, crt/crt0_c.c), and what it came from.
    &["mingw-w64-crt"],
    &["mingwrt"],
    &["winsup", "mingw"],
    // Cygwin (dll_main.cc, libcmain.c), whose own library lies beside this.
    &["winsup", "cygwin", "lib"],
    // Wine (dll_main.c, exe_main.c).
    &["dlls", "winecrt0"],
    // Microsoft's (vcstartup/src/startup/dll_dllmain_stub.cpp), of today and of before 2015.
    &["vctools", "crt"],
    &["vctools", "crt_bld"],
    &["minkernel", "crts"],
    // MFC (appmodul.cpp, dllmodul.cpp).
    &["atlmfc", "src", "mfc"],
    // GCC.
    &["crtstuff.c"],
];

/// The code that has lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines {
    /// Bytes of code for which a line is known.
    pub(crate) bytes: u64,
    pub(crate) of: LinesOf,
}

impl Lines {
    /// `exported`: where begins what a PE or Mach-O file offers to others.
    pub(crate) fn of(stream: &FunctionStream, exported: &BTreeSet<Rva>) -> Self {
        let bytes = lined_in(&mut stream.functions.iter());
        Self { bytes, of: of(stream, exported, bytes) }
    }
}

/// Whose code the `bytes` are that have lines.
fn of(stream: &FunctionStream, exported: &BTreeSet<Rva>, bytes: u64) -> LinesOf {
    if bytes == 0 {
        return LinesOf::None;
    }
    // A program that begins in `_start` itself has no other beginning.
    let has_beginning = stream.functions.iter().any(|function| is_called(stream, function, &BEGINNINGS));
    // There are far fewer files than functions.
    let mut homes: BTreeMap<StrId, bool> = BTreeMap::new();
    let mut is_start_up = |function: &FunctionRecord| {
        let home = home(function);
        let is_of_start_up = homes.entry(home).or_insert_with(|| is_of_start_up_code(stream.strings.get(home)));
        *is_of_start_up || has_beginning && is_called(stream, function, &BEFORE_BEGINNINGS)
    };
    let lined = stream.functions.iter().filter(|function| lined_bytes(function) > 0);
    let own: Vec<&FunctionRecord> = lined.filter(|function| !is_start_up(function)).collect();
    let own_bytes = lined_in(&mut own.iter().copied());
    let others = stream.statistics.text_bytes.saturating_sub(bytes.saturating_sub(own_bytes));
    let is_small = own_bytes < others.saturating_sub(START_UP) / ONE_OF;
    let mut begins = || {
        let has_lines = |function: &&FunctionRecord| lined_bytes(function) > 0;
        let beginnings = stream.functions.iter().filter(|function| is_called(stream, function, &BEGINNINGS));
        let beginnings: Vec<_> = beginnings.filter(|function| !is_start_up(function)).collect();
        // A library without one begins with what it offers.
        if !beginnings.is_empty() {
            return beginnings.iter().any(has_lines);
        }
        let offered = stream.functions.iter().filter(|function| exported.contains(&function.start));
        let of_toolchain = |function: &FunctionRecord| is_of_toolchain(stream.strings.get(function.symbol));
        let offered = offered.filter(|function| !is_start_up(function) && !of_toolchain(function));
        let (lined, others): (Vec<_>, Vec<_>) = offered.partition(has_lines);
        !lined.is_empty() && lined.len() >= others.len()
    };
    // The most of a program that is linked statically may be libraries without lines. A C library that is a module is start-up code throughout, and has no beginning.
    if own_bytes == 0 && has_beginning || is_small && !begins() {
        return LinesOf::Parts;
    }
    let sources = own.iter().copied().flat_map(files).map(|file| stream.strings.get(file));
    let mut sources = sources.filter(|path| !path.is_empty()).peekable();
    match sources.peek().is_some() && sources.all(is_of_rusts_library) {
        true => LinesOf::RustLibrary,
        false => LinesOf::Module,
    }
}

/// Bytes of functions whose rows have a line.
fn lined_in(functions: &mut dyn Iterator<Item = &FunctionRecord>) -> u64 {
    functions.map(lined_bytes).fold(0, u64::saturating_add)
}

/// Whether a function has one of these names.
fn is_called(stream: &FunctionStream, function: &FunctionRecord, names: &[&str]) -> bool {
    let is_one = |name: &StrId| names.contains(&stream.strings.get(*name));
    is_one(&function.symbol) || is_one(&function.name) || function.aliases.iter().any(is_one)
}

/// Whether a linkage name is one that compilers and their libraries keep for themselves (C23, 7.1.3), and not one that they made of a program's name in C++ (`_Z`) or Rust (`_R`).
fn is_of_toolchain(symbol: &str) -> bool {
    match symbol.as_bytes() {
        [b'_', b'Z', ..] => ["_ZNSt", "_ZNKSt", "_ZSt"].iter().any(|start| symbol.starts_with(start)),
        [b'_', b'_' | b'A'..=b'Q' | b'S'..=b'Y', ..] => true,
        _ => false,
    }
}

/// The source file in which a function was written: that of its first line which is of no inlined call.
fn home(function: &FunctionRecord) -> StrId {
    let lined = || function.rows.iter().filter(|row| row.line != 0);
    let first = lined().find(|row| row.inline == NO_INLINE).or_else(|| lined().next());
    first.map_or(function.file, |row| row.file)
}

/// All source files that a function names.
fn files(function: &FunctionRecord) -> impl Iterator<Item = StrId> {
    let rows = function.rows.iter().map(|row| row.file);
    let calls = function.inlines.iter().map(|call| call.call_file);
    std::iter::once(function.file).chain(rows).chain(calls)
}

/// Whether a path is one of start-up code, as those who build toolchains have it.
fn is_of_start_up_code(path: &str) -> bool {
    let names: Vec<&str> = path.split(['/', '\\']).filter(|name| !name.is_empty()).collect();
    let is_last = |name: &str, last: &str| match name.get(..last.len()) {
        Some(start) => start.eq_ignore_ascii_case(last) && matches!(name.as_bytes().get(last.len()), None | Some(b'-')),
        None => false,
    };
    START_UP_CODE.iter().any(|code| {
        let Some((last, before)) = code.split_last() else { return false };
        names.windows(code.len()).any(|names| match names.split_last() {
            Some((name, rest)) => {
                rest.iter().zip(before).all(|(name, expected)| name.eq_ignore_ascii_case(expected))
                    && is_last(name, last)
            }
            None => false,
        })
    })
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
    use super::{is_of_rusts_library, is_of_start_up_code, is_of_toolchain};

    #[test]
    fn names_that_compilers_keep_are_told_from_those_of_programs() {
        for symbol in ["_Unwind_Resume", "__emutls_get_address", "_ZNKSt5ctypeIcE8do_widenEc", "_ZSt9terminatev"] {
            assert!(is_of_toolchain(symbol), "{symbol}");
        }
        for symbol in ["run", "_run", "Java_org_example_run", "_ZN3app3runEv", "_RNvCs_3app3run", "_", ""] {
            assert!(!is_of_toolchain(symbol), "{symbol}");
        }
    }

    #[test]
    fn start_up_code_is_told_by_the_names_above_it_wherever_its_builders_had_it() {
        for path in [
            "C:/M/B/src/mingw-w64/mingw-w64-crt/crt/dllmain.c",
            "/build/./mingw-w64-crt/crt/crt0_c.c",
            "/builds/mingw-w64-crt-git/src/crt/crt0_w.c",
            "/usr/src/debug/cygwin-3.5.3-1/winsup/cygwin/lib/dll_main.cc",
            r"D:\a\_work\1\s\src\vctools\crt\vcstartup\src\startup\dll_dllmain_stub.cpp",
            r"f:\dd\vctools\crt_bld\self_x86\crt\src\dllmain.c",
            r"minkernel\crts\ucrt\src\appcrt\startup\argv_parsing.cpp",
            r"d:\src\vctools\VC7Libs\Ship\ATLMFC\Src\MFC\appmodul.cpp",
            "../../../src/libgcc/crtstuff.c",
        ] {
            assert!(is_of_start_up_code(path), "{path}");
        }
        for path in [
            "/home/me/mingw-w64-crt.c",
            "/home/me/my-mingw-w64-crt/main.c",
            "/usr/src/debug/cygwin-3.5.3-1/winsup/cygwin/fork.cc",
            "/home/me/vctools/src/crt/main.c",
            r"C:\Program Files\MSVC\atlmfc\include\atlbase.h",
            "/home/me/crt/dllmain.c",
            "main.c",
            "",
        ] {
            assert!(!is_of_start_up_code(path), "{path}");
        }
    }

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
