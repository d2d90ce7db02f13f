//! Breakpad's symbol files (`.sym`), as Mozilla's and other crash tools read them: made from a module's `.symx` and `.uwt`.
//!
//! (Breakpad, `docs/symbol_files.md`.) `STACK WIN` is there where the bundle has the PDB of a module of 32-bit x86, `STACK CFI` where the module has a
//! `.uwt`.

mod cfi;
mod functions;
mod win;

use std::io::{self, Write};

use symseal_artifact::FrameTable;
use symseal_symx::Table;

/// What the head of the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// Platform, as the symbol index names it: `linux`, `macos`, `windows`.
    pub(crate) platform: String,
    /// Processor, as the symbol index names it.
    pub(crate) arch: String,
    /// GUID and age in hex, upper case.
    pub(crate) id: String,
    /// Name of the debug file.
    pub(crate) name: String,
    /// The platform's own id: a build-id, or a PE file's time stamp and size.
    pub(crate) code_id: Option<String>,
    /// Name of the binary, where it is another one.
    pub(crate) code_file: Option<String>,
}

/// Writes a module's symbol file. The same tables give the same bytes.
pub(crate) fn write(
    head: &Head,
    symbols: &Table<'_>,
    unwind: Option<&symseal_unwind::Table<'_>>,
    frames: &FrameTable,
    out: &mut impl Write,
) -> io::Result<()> {
    let os = match head.platform.as_str() {
        "linux" => "Linux",
        "macos" => "mac",
        other => other,
    };
    let arch = match head.arch.as_str() {
        "aarch64" => "arm64",
        other => other,
    };
    writeln!(out, "MODULE {os} {arch} {} {}", head.id, plain(&head.name))?;
    if let Some(code_id) = &head.code_id {
        let file = head.code_file.as_deref().map(|file| format!(" {}", plain(file))).unwrap_or_default();
        writeln!(out, "INFO CODE_ID {}{file}", code_id.to_uppercase())?;
    }
    functions::write(symbols, out)?;
    win::write(frames, out)?;
    match unwind {
        Some(unwind) => cfi::write(unwind, out),
        None => Ok(()),
    }
}

/// The name of a debug file's symbol file: `.sym` in the place of `.pdb`, else behind the name.
pub(crate) fn file_name(debug_file: &str) -> String {
    let stem = debug_file.len().checked_sub(4).and_then(|at| debug_file.split_at_checked(at));
    match stem {
        Some((stem, extension)) if extension.eq_ignore_ascii_case(".pdb") => format!("{stem}.sym"),
        _ => format!("{debug_file}.sym"),
    }
}

/// A name on one line: control characters would end it.
fn plain(name: &str) -> String {
    name.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_file_is_called_after_the_debug_file() {
        for (debug_file, expected) in [
            ("app.pdb", "app.sym"),
            ("App.PDB", "App.sym"),
            ("libc.so.6", "libc.so.6.sym"),
            ("é.b", "é.b.sym"),
            ("a", "a.sym"),
        ] {
            assert_eq!(file_name(debug_file), expected);
        }
    }
}
