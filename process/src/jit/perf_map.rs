//! The text of `/tmp/perf-PID.map` (Linux, `tools/perf/Documentation/jit-interface.txt`).
//!
//! ```text
//! 7f49ec005b80 254 JS:*hot /tmp/a.js:1:13
//! ```
//!
//! First address and size in hexadecimal, the name until the end of the line.

use std::sync::Arc;

use symseal_module::Avma;

use super::functions::{JitFunction, JitFunctions, JitHit};
use super::name_text;

/// The functions of a perf map, as far as it was read.
#[derive(Debug, Default)]
pub struct PerfMap {
    functions: Arc<JitFunctions>,
    bad_lines: u64,
}

impl PerfMap {
    /// A map of which nothing was read.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads on with the next part of the text. Gives the bytes that were used: the last line counts once it is
    /// ended, so that what was not used has to come again with the rest of it.
    pub fn read(&mut self, text: &[u8]) -> usize {
        let mut used = 0usize;
        // Copied first where a snapshot shows them.
        let functions = Arc::make_mut(&mut self.functions);
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let Some(line) = line.strip_suffix(b"\n") else { break };
            used = used.saturating_add(line.len()).saturating_add(1);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            if !function_of(line).is_some_and(|function| functions.add(function)) {
                self.bad_lines = self.bad_lines.saturating_add(1);
            }
        }
        used
    }

    /// The function that holds `address`.
    pub fn find(&self, address: Avma) -> Option<JitHit<'_>> {
        self.functions.find(address)
    }

    /// Functions held.
    pub fn functions(&self) -> usize {
        self.functions.len()
    }

    /// The functions as they are now; what is read later does not change these.
    pub fn snapshot(&self) -> Arc<JitFunctions> {
        Arc::clone(&self.functions)
    }

    /// Lines that were passed over: not of this form, or of a function without bytes.
    pub fn bad_lines(&self) -> u64 {
        self.bad_lines
    }

    /// Functions that were left out, beyond [`super::MAX_FUNCTIONS`].
    pub fn left_out(&self) -> u64 {
        self.functions.left_out()
    }
}

fn function_of(line: &[u8]) -> Option<JitFunction> {
    let mut fields = line.splitn(3, |byte| *byte == b' ');
    let (start, size) = (hexadecimal(fields.next()?)?, hexadecimal(fields.next()?)?);
    let name = fields.next()?.trim_ascii();
    if name.is_empty() {
        return None;
    }
    Some(JitFunction {
        start: Avma(start),
        size,
        name: name_text(name),
        lines: Vec::new(),
        eh_frame: None,
        written_at: None,
    })
}

/// Some runtimes write `0x` before the digits.
fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"\
9e740328076 9b JS:~load node:internal/a:432:46\n\
not a line\n\
0x1000 0x20 Lfoo;::bar(int, int)\r\n\
2000 0 empty\n\
2000 10\n\
1010 10 reused \xff\n";

    fn name(map: &PerfMap, address: u64) -> Option<&str> {
        map.find(Avma(address)).map(|hit| hit.function.name.as_str())
    }

    #[test]
    fn names_reach_to_the_end_of_the_line_and_bad_lines_are_counted() {
        let mut map = PerfMap::new();
        assert_eq!(map.read(TEXT), TEXT.len());
        assert_eq!(name(&map, 0x9e740328080), Some("JS:~load node:internal/a:432:46"));
        assert_eq!(name(&map, 0x1000), Some("Lfoo;::bar(int, int)"));
        assert_eq!(name(&map, 0x1010), Some("reused \\xff"), "the last one holds");
        assert_eq!((name(&map, 0x2000), map.bad_lines(), map.functions()), (None, 3, 3));
    }

    #[test]
    fn a_snapshot_stays_as_it_was() {
        let mut map = PerfMap::new();
        map.read(b"1000 20 before\n");
        let snapshot = map.snapshot();
        map.read(b"1000 20 after\n");
        let found = snapshot.find(Avma(0x1000)).map(|hit| hit.function.name.as_str());
        assert_eq!((found, name(&map, 0x1000)), (Some("before"), Some("after")));
    }

    #[test]
    fn a_half_written_line_waits_for_its_end() {
        let mut map = PerfMap::new();
        let text = b"1000 20 whole\n2000 20 hal";
        let used = map.read(text);
        assert_eq!((used, map.functions(), map.bad_lines()), (14, 1, 0));
        let rest = [&text[used..], b"f\n"].concat();
        assert_eq!(map.read(&rest), rest.len());
        assert_eq!(name(&map, 0x2000), Some("half"));
    }

    proptest! {
        #[test]
        fn a_text_read_in_parts_says_the_same(
            edits in prop::collection::vec((0..TEXT.len(), any::<u8>()), 0..6), part in 1..50usize
        ) {
            let mut text = TEXT.to_vec();
            for (at, byte) in edits {
                text[at] = byte;
            }
            let (mut whole, mut parts) = (PerfMap::new(), PerfMap::new());
            let used = whole.read(&text);
            let (mut from, mut to) = (0, 0);
            while to < text.len() {
                to = (to + part).min(text.len());
                from += parts.read(&text[from..to]);
            }
            prop_assert_eq!((from, parts.bad_lines()), (used, whole.bad_lines()));
            for address in [0x1000, 0x1010, 0x2000, 0x9e740328076] {
                prop_assert_eq!(name(&whole, address), name(&parts, address));
            }
        }
    }
}
