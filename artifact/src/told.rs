//! What a file tells of its build beside functions and lines: with which options, by whom, out of which text.

use std::collections::{BTreeMap, BTreeSet};

use crate::escaped;

/// The longest text that is kept, in bytes; of a longer one its beginning is.
const LONGEST: usize = 4096;
/// All texts of a file are kept within a few times its bytes, as records may name one text as often as they like.
const TIMES: u64 = 4;
const LEAST_BYTES: u64 = 1 << 20;
const MOST_BYTES: u64 = 64 << 20;

/// What stands in a file about its build, each text once and escaped as paths in symbol tables are. Texts of more than 4,096 bytes end in `…`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuildTexts {
    /// Compilers, by their own words (`DW_AT_producer`), with the options that some add.
    pub producers: BTreeSet<String>,
    /// Options of compilers: producers that have some, `DW_AT_APPLE_flags`, `.GCC.command.line`.
    pub command_lines: BTreeSet<String>,
    /// Macros with what they stand for (`.debug_macro`, `.debug_macinfo`).
    pub macros: BTreeSet<String>,
    /// Files and directories that line tables and units name, whether or not code comes of them, and source files of program databases. Each is
    /// joined to the directory that it is relative to.
    pub debug_paths: BTreeSet<String>,
    /// Where the loader looks for libraries (`DT_RPATH`, `DT_RUNPATH`, `LC_RPATH`), as the file has it; of several at once, each.
    pub run_paths: BTreeSet<String>,
    /// Source files whose whole text is in the file, and its bytes: of DWARF 5 (`DW_LNCT_LLVM_source`) and of program databases.
    pub embedded_sources: BTreeMap<String, u64>,
    /// Lines of the record that Go's linker leaves: modules and build settings.
    pub build_settings: BTreeSet<String>,
    /// Named streams of program databases, and their bytes.
    pub streams: BTreeMap<String, u64>,
    /// Where sources are fetched from (Source Link), as it stands.
    pub source_links: BTreeSet<String>,
    /// What else of these kinds is there and was not read.
    pub not_read: BTreeSet<String>,
}

/// Texts as they are gathered, within a bound.
pub(crate) struct Gathering {
    pub(crate) texts: BuildTexts,
    left: u64,
}

impl Gathering {
    /// Of a file of so many bytes, decompressed.
    pub(crate) fn of(bytes: u64) -> Self {
        let left = bytes.saturating_mul(TIMES).clamp(LEAST_BYTES, MOST_BYTES);
        Self { texts: BuildTexts::default(), left }
    }

    /// The text as it is kept; none where there is no room for it, which is told.
    pub(crate) fn text(&mut self, text: &[u8]) -> Option<String> {
        let kept = text.get(..LONGEST).unwrap_or(text);
        let Some(left) = self.left.checked_sub(kept.len() as u64) else {
            self.not_read("more texts than are kept of one file (four times its bytes, 64 MiB at most)");
            return None;
        };
        self.left = left;
        let mut told = escaped(kept).into_owned();
        if kept.len() < text.len() {
            told.push('…');
        }
        Some(told)
    }

    pub(crate) fn producer(&mut self, text: &[u8]) {
        let Some(text) = self.text(text).filter(|text| !text.is_empty()) else { return };
        if text.contains(" -") {
            self.texts.command_lines.insert(text.clone());
        }
        self.texts.producers.insert(text);
    }

    pub(crate) fn command_line(&mut self, text: &[u8]) {
        let text = self.text(text).filter(|text| !text.is_empty());
        self.texts.command_lines.extend(text);
    }

    pub(crate) fn macro_text(&mut self, text: &[u8]) {
        let text = self.text(text);
        self.texts.macros.extend(text);
    }

    /// Tables name the same few thousand paths a million times: only new ones take room.
    pub(crate) fn debug_path(&mut self, path: &[u8]) {
        let is_known = path.len() <= LONGEST && self.texts.debug_paths.contains(escaped(path).as_ref());
        if !is_known && let Some(path) = self.text(path).filter(|path| !path.is_empty()) {
            self.texts.debug_paths.insert(path);
        }
    }

    pub(crate) fn run_path(&mut self, path: &[u8]) {
        let path = self.text(path).filter(|path| !path.is_empty());
        self.texts.run_paths.extend(path);
    }

    pub(crate) fn embedded_source(&mut self, path: &[u8], bytes: u64) {
        if let Some(path) = self.text(path) {
            let known = self.texts.embedded_sources.entry(path).or_default();
            *known = bytes.max(*known);
        }
    }

    pub(crate) fn not_read(&mut self, what: &str) {
        if !self.texts.not_read.contains(what) {
            self.texts.not_read.insert(what.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_kept_within_a_bound_and_what_is_left_out_is_told() {
        let mut gathering = Gathering::of(0);
        let text = |number: u64| format!("{number} {}", "x".repeat(5000));
        (0..10_000).for_each(|number| gathering.macro_text(text(number).as_bytes()));
        assert!(gathering.texts.macros.len() < 300 && gathering.texts.macros.iter().all(|text| text.ends_with('…')));
        assert_eq!(gathering.texts.not_read.len(), 1);
    }
}
