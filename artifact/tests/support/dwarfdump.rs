//! Entries of debug information as llvm-dwarfdump lists them.

use super::{any_of, run};
use std::ops::Range;
use std::path::Path;

/// An entry of one kind.
pub(crate) struct Entry {
    /// In the tree of entries.
    pub(crate) depth: usize,
    pub(crate) ranges: Vec<Range<u64>>,
    /// Of an inlined call.
    pub(crate) call_file: String,
    pub(crate) call_line: u64,
}

/// Where the functions lie that the debug information of a slice describes.
pub(crate) fn subprograms(file: &Path, arch: &str) -> Vec<Range<u64>> {
    let arch = format!("--arch={arch}");
    entries(file, &[&arch], "DW_TAG_subprogram").into_iter().flat_map(|entry| entry.ranges).collect()
}

/// The entries of one kind. In the list the attributes of each follow it.
pub(crate) fn entries(file: &Path, arguments: &[&str], kind: &str) -> Vec<Entry> {
    let tool = any_of(&["llvm-dwarfdump-19", "llvm-dwarfdump"]).expect("llvm-dwarfdump");
    let file = file.display().to_string();
    let arguments = [&["--debug-info"], arguments, &[&file]].concat();
    let text = run(tool, &arguments, Path::new(".")).expect("llvm-dwarfdump");
    let mut found: Vec<Entry> = Vec::new();
    let (mut is_wanted, mut low) = (false, 0);
    for line in text.lines() {
        if let Some((_, entry)) = line.split_once(": ").filter(|(offset, _)| offset.starts_with("0x")) {
            is_wanted = entry.trim_start() == kind;
            if is_wanted {
                let depth = entry.len() - entry.trim_start().len();
                found.push(Entry { depth, ranges: Vec::new(), call_file: String::new(), call_line: 0 });
            }
            continue;
        }
        let Some(entry) = found.last_mut().filter(|_| is_wanted) else { continue };
        let line = line.trim();
        let value = line.split_once("\t(").map(|(_, value)| value.trim_end_matches(')')).unwrap_or_default();
        let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("an address");
        match line.split_once('\t').map_or(line, |(name, _)| name) {
            "DW_AT_low_pc" => low = hex(value),
            "DW_AT_high_pc" => entry.ranges.push(low..hex(value)),
            "DW_AT_call_file" => value.trim_matches('"').clone_into(&mut entry.call_file),
            "DW_AT_call_line" => entry.call_line = value.parse().expect("a line"),
            range if range.starts_with('[') => {
                let (start, end) = range.trim_start_matches('[').split_once(", ").expect("two addresses");
                entry.ranges.push(hex(start)..hex(end.trim_end_matches(')')));
            }
            _ => {}
        }
    }
    found
}
