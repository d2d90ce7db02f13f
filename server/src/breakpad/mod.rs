//! Breakpad's symbol files (`.sym`), as Mozilla's and other crash tools read them: made from a module's `.symx` and `.uwt`.
//!
//! (Breakpad, `docs/symbol_files.md`.) `STACK WIN` is there where the bundle has the PDB of a module of 32-bit x86, `STACK CFI` where the module has a
//! `.uwt`. Of a module that came without a bundle ([`loose`]) both are made, the second where its program is here.

mod cfi;
mod functions;
mod loose;
mod named;
mod win;

pub(crate) use loose::loose_symbol_file;
pub(crate) use named::{SymbolFiles, is_title_of, symbol_files};

use std::fs::File;
use std::io::{self, BufWriter, Write};

use symseal_artifact::FrameTable;
use symseal_symx::Table;
use tempfile::NamedTempFile;

use crate::blobs::{Algorithm, Hasher};
use crate::file_cache::Note;

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
        // Its names leave the byte order out.
        "mipsel" => "mips",
        "mips64el" => "mips64",
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

/// [`write`] into a file of the cache, of at most `limit` bytes.
pub(crate) fn write_file(
    head: &Head,
    symbols: &Table<'_>,
    unwind: Option<&symseal_unwind::Table<'_>>,
    frames: &FrameTable,
    (file, limit): (&mut NamedTempFile, u64),
) -> io::Result<Note> {
    let counted = Counted { file: file.as_file_mut(), hasher: Hasher::new(Algorithm::Sha256), left: limit };
    let mut out = BufWriter::with_capacity(1 << 20, counted);
    write(head, symbols, unwind, frames, &mut out)?;
    out.flush()?;
    let counted = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok(Note { sha256: counted.hasher.finish().hex().to_owned(), headers: Vec::new() })
}

struct Counted<'f> {
    file: &'f mut File,
    hasher: Hasher,
    left: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(bytes.get(..written).unwrap_or_default());
        let left = self.left.checked_sub(written as u64);
        self.left = left.ok_or_else(|| io::Error::other("it fills more than half of the cache"))?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
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

/// The last part of a path of any system.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
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
