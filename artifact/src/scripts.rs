//! Scripts that gdb would run on loading the file.
//!
//! gdb reads the section `.debug_gdb_scripts` (auto-load.c, `AUTO_SECTION_NAME`, a name of that very spelling) through BFD,
//! whatever the object format: in a PE file by its long name, and in a Mach-O file, where names have 16 bytes at most,
//! as `__debug_gdb_scri` (BFD's mach-o.c). It runs none out of MiniDebugInfo and split DWARF, which it opens otherwise.

use crate::ArtifactError;
use std::borrow::Cow;

/// Entry kinds that name a file. (GDB manual, "The .debug_gdb_scripts section")
const PYTHON_FILE: u8 = 1;
const SCHEME_FILE: u8 = 3;

/// More bytes than the names of all scripts of a program have.
const MOST_BYTES: u64 = 16 << 20;

/// Whether the section is one that gdb takes scripts from. BFD gives compressed ones the other's name.
pub(crate) fn is_script_section(name: &[u8]) -> bool {
    matches!(name, b".debug_gdb_scripts" | b".zdebug_gdb_scripts")
}

/// Whether the sections hold an entry whose script is the entry itself (kinds 4 and 6), or that names a file as no script is named, or of
/// a kind that we do not know, or cannot be read, or are larger than any list of names: what cannot be judged is not let through.
///
/// gdb looks for a named file below the current directory and those that it was told of, whatever the path (Go's programs have that of
/// `runtime-gdb.py` in the toolchain). What came with the object file is not found so: no title of a bundle ends as a script does.
///
/// Each section comes as its bytes in memory and what gives them.
pub(crate) fn hold_inline_text<'d, F>(sections: impl Iterator<Item = (u64, F)>) -> bool
where
    F: FnOnce() -> Result<Cow<'d, [u8]>, ArtifactError>,
{
    let mut left = MOST_BYTES;
    for (size, contents) in sections {
        left = match left.checked_sub(size.max(1)) {
            Some(left) => left,
            None => return true,
        };
        if contents().map_or(true, |bytes| holds_inline_text(&bytes)) {
            return true;
        }
    }
    false
}

/// Entries end with a NUL and start with their kind; NULs between them are padding.
fn holds_inline_text(bytes: &[u8]) -> bool {
    let mut entries = bytes.split(|byte| *byte == 0).filter_map(|entry| entry.split_first());
    entries.any(|(kind, name)| match *kind {
        PYTHON_FILE => !name.ends_with(b".py"),
        SCHEME_FILE => !name.ends_with(b".scm"),
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_name_files_are_no_scripts() {
        assert!(!holds_inline_text(b""));
        assert!(!holds_inline_text(b"\x01gdb_load_rust_pretty_printers.py\0"));
        assert!(!holds_inline_text(b"\x01a.py\0\x03b.scm\0\0\0"));
    }

    #[test]
    fn sections_over_each_other_are_no_endless_work() {
        let names = b"\x01a.py\0".repeat(1 << 18);
        let section = |_| (names.len() as u64, || Ok(Cow::Borrowed(&names[..])));
        assert!(!hold_inline_text((0..8).map(section)));
        assert!(hold_inline_text((0..1 << 20).map(section)));
    }

    #[test]
    fn entries_that_name_a_file_as_no_script_is_named_are_scripts() {
        for entry in
            ["\x01Info.plist", "\x01dSYM/ID/a.dSYM/Contents/a.txt", "\x03a.py", "\x01a.scm", "\x01a.PY", "\x01"]
        {
            assert!(holds_inline_text(entry.as_bytes()), "{entry:?}");
        }
        assert!(!holds_inline_text(b"\x01/usr/local/go/src/runtime/runtime-gdb.py\0"));
    }

    #[test]
    fn entries_with_text_or_of_an_unknown_kind_are_scripts() {
        assert!(holds_inline_text(b"\x01a.py\0\x04name\nimport os\n\0"));
        assert!(holds_inline_text(b"\x06name\n(display 1)\n\0"));
        assert!(holds_inline_text(b"import os\0"));
    }
}
