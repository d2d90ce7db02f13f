//! Scripts that a debugger would run on loading the file.

use super::headers::Elf;
use super::section;

/// Entry kinds that name a file. (GDB manual, "The .debug_gdb_scripts section")
const PYTHON_FILE: u8 = 1;
const SCHEME_FILE: u8 = 3;

/// Whether `.debug_gdb_scripts` holds an entry whose script is the entry itself (kinds 4 and 6), or of a kind that we
/// do not know, or cannot be read: what cannot be judged is not let through.
pub(crate) fn has_inline_scripts(elf: &Elf<'_>) -> bool {
    let named = elf.sections.iter().filter(|section| {
        matches!(section.name, b".debug_gdb_scripts" | b".zdebug_gdb_scripts") && section.is_stored()
    });
    named.into_iter().any(|section| match section::contents(elf, section) {
        Ok(bytes) => holds_inline_text(&bytes),
        Err(_) => true,
    })
}

/// Entries end with a NUL and start with their kind; NULs between them are padding.
fn holds_inline_text(bytes: &[u8]) -> bool {
    let mut kinds = bytes.split(|byte| *byte == 0).filter_map(|entry| entry.first());
    kinds.any(|kind| !matches!(*kind, PYTHON_FILE | SCHEME_FILE))
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
    fn entries_with_text_or_of_an_unknown_kind_are_scripts() {
        assert!(holds_inline_text(b"\x01a.py\0\x04name\nimport os\n\0"));
        assert!(holds_inline_text(b"\x06name\n(display 1)\n\0"));
        assert!(holds_inline_text(b"import os\0"));
    }
}
