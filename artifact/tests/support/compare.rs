//! Our frames beside llvm-symbolizer's, differences counted by kind.

use super::Expected;
use super::lookup::Found;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) compared: u64,
    pub(crate) depth_equal: u64,
    /// Of each frame; the depth is equal too.
    pub(crate) files_equal: u64,
    /// Of each frame; the depth is equal too.
    pub(crate) numbers_equal: u64,
    /// Depth, and file and line of each frame.
    pub(crate) lines_equal: u64,
    pub(crate) names_equal: u64,
    /// Addresses at which llvm-symbolizer has other frames or none, and a second reader has ours. They are not compared.
    pub(crate) judged: u64,
    /// Kind of difference → how often, and the first examples.
    pub(crate) kinds: BTreeMap<&'static str, (u64, Vec<String>)>,
}

const EXAMPLES: usize = 1;

/// Lines of a PDB that tell a debugger to step on, or into.
const HIDDEN_LINES: [u64; 2] = [0xfe_efee, 0xf0_0f00];

impl Comparison {
    pub(crate) fn add(&mut self, address: u64, expected: &[Expected], found: &[Found]) {
        if expected.is_empty() {
            if found.is_empty() {
                self.kind("(equal) neither knows the address", String::new);
            } else {
                self.compared += 1;
                self.kind("llvm-symbolizer does not know the address", || format!("{address:#x} {found:?}"));
            }
            return;
        }
        if expected.iter().all(|frame| frame.function.is_empty()) {
            // A line table may reach over the padding between functions.
            if found.is_empty() {
                self.kind("(rule) a line behind a function's end, which is no frame", String::new);
                return;
            }
        }
        if let [only] = expected
            && matches!(only.function.as_str(), "_init" | "_fini")
            && found.is_empty()
        {
            // LLVM lets the size-less symbol reach over the section's end into the procedure linkage table.
            self.kind("(rule) a symbol without a size ends with its section", String::new);
            return;
        }
        if let [only] = expected
            && only.function == "_PROCEDURE_LINKAGE_TABLE_"
            && found.is_empty()
        {
            self.kind("(rule) the procedure linkage table is no function", String::new);
            return;
        }
        if expected.iter().all(|frame| is_link_time_marker(&frame.function) && frame.line == 0) {
            self.kind("(rule) padding behind a marker of the link-time optimiser, which is no function", String::new);
            return;
        }
        self.compared += 1;
        if expected.len() != found.len() {
            let kind = if found.is_empty() { "we do not know the address" } else { "depth" };
            self.kind(kind, || format!("{address:#x}\n      llvm {expected:?}\n      ours {found:?}"));
            return;
        }
        self.depth_equal += 1;
        let mut kinds: Vec<&'static str> = Vec::new();
        let mut names = true;
        for (at, (expected, found)) in expected.iter().zip(found).enumerate() {
            if HIDDEN_LINES.contains(&expected.line) && found.line == 0 {
                kinds.push("(rule) line: one that tells a debugger not to stop is none");
            } else if expected.line != found.line && !is_made_by_go(expected, found) {
                kinds.push("line");
            }
            if let Some(kind) = file_kind(expected, found) {
                kinds.push(kind);
            }
            if expected.column != found.column && expected.column != super::NOT_ASKED {
                kinds.push("column");
            }
            if let Some((kind, is_equal)) = name_kind(expected, found, at) {
                kinds.push(kind);
                names &= is_equal;
            }
        }
        let (is_line_equal, is_file_equal) = (!kinds.contains(&"line"), !kinds.contains(&"file"));
        self.numbers_equal += u64::from(is_line_equal);
        self.files_equal += u64::from(is_file_equal);
        self.lines_equal += u64::from(is_line_equal && is_file_equal);
        self.names_equal += u64::from(names);
        for kind in kinds {
            self.kind(kind, || format!("{address:#x}\n      llvm {expected:?}\n      ours {found:?}"));
        }
    }

    /// Like [`Self::add`], with the frames of a second reader. Where llvm-symbolizer has other places than we, and each
    /// of ours is the second reader's or its own, that is counted by kind, and not as compared.
    pub(crate) fn add_judged(&mut self, address: u64, expected: &[Expected], found: &[Found], judge: &[Expected]) {
        let is_same_place = |expected: Option<&Expected>, found: &Found| {
            expected.is_some_and(|expected| {
                (expected.line == found.line || HIDDEN_LINES.contains(&expected.line) && found.line == 0)
                    && file_kind(expected, found).is_none_or(|kind| kind.starts_with('('))
            })
        };
        // Counted from the function itself, as inner frames may be missing.
        let frame =
            |frames: &'_ [Expected], at: usize| frames.len().checked_sub(at + 1).and_then(|at| frames.get(at).cloned());
        let ours = || found.iter().rev().enumerate();
        let is_equal = expected.len() == found.len()
            && ours().all(|(at, found)| is_same_place(frame(expected, at).as_ref(), found));
        if is_equal || expected.is_empty() || judge.is_empty() {
            return self.add(address, expected, found);
        }
        let is_judged = judge.len() == found.len()
            && ours().all(|(at, found)| {
                is_same_place(frame(judge, at).as_ref(), found) || is_same_place(frame(expected, at).as_ref(), found)
            });
        if is_judged {
            self.judged += 1;
            self.rule(match expected.len().cmp(&found.len()) {
                Ordering::Less => "(second reader agrees) llvm-symbolizer has fewer inlined frames",
                Ordering::Greater => "(second reader agrees) llvm-symbolizer has more inlined frames",
                Ordering::Equal => "(second reader agrees) llvm-symbolizer has another line",
            });
        } else if found.iter().any(|found| found.folded) {
            self.rule("(rule) folded code: lines of the function that gives the name");
        } else {
            println!("{address:#x}: second reader {judge:?}");
            self.add(address, expected, found);
        }
    }

    /// Counts an address that llvm-symbolizer has no answer for, as it crashed, by the second reader's frames.
    pub(crate) fn add_second(&mut self, address: u64, is_equal: bool) {
        if is_equal {
            self.judged += 1;
            self.rule("(second reader agrees) llvm-symbolizer crashed, or was asked no more");
        } else {
            self.compared += 1;
            self.kind("second reader alone", || format!("{address:#x}"));
        }
    }

    /// Counts an address at which the difference is a published rule.
    pub(crate) fn rule(&mut self, kind: &'static str) {
        self.kind(kind, String::new);
    }

    fn kind(&mut self, kind: &'static str, example: impl FnOnce() -> String) {
        let (count, examples) = self.kinds.entry(kind).or_default();
        *count += 1;
        if examples.len() < EXAMPLES && !kind.starts_with("(equal)") {
            examples.extend(Some(example()).filter(|example| !example.is_empty()));
        }
    }

    /// Adds what another comparison found.
    pub(crate) fn add_all(&mut self, other: Self) {
        self.compared += other.compared;
        self.depth_equal += other.depth_equal;
        self.files_equal += other.files_equal;
        self.numbers_equal += other.numbers_equal;
        self.lines_equal += other.lines_equal;
        self.names_equal += other.names_equal;
        self.judged += other.judged;
        for (kind, (count, examples)) in other.kinds {
            let known = self.kinds.entry(kind).or_default();
            known.0 += count;
            known.1.extend(examples);
            known.1.truncate(EXAMPLES);
        }
    }

    pub(crate) fn ratio(&self, part: u64) -> f64 {
        part as f64 / self.compared.max(1) as f64
    }

    /// At least 999 of 1000 must agree in depth, in file and line, and in names under the published rule.
    #[track_caller]
    pub(crate) fn check(&self, least_compared: u64) {
        assert!(self.compared >= least_compared, "{self}");
        assert!(self.ratio(self.depth_equal) >= 0.999, "{self}");
        assert!(self.ratio(self.lines_equal) >= 0.999, "{self}");
        assert!(self.ratio(self.names_equal) >= 0.999, "{self}");
    }
}

/// How the files differ, if they do.
fn file_kind(expected: &Expected, found: &Found) -> Option<&'static str> {
    let (theirs, ours) = (normal(&expected.file), normal(&found.file));
    if theirs == ours {
        return None;
    }
    // DWARF 5's directory 0 is the compilation directory itself; LLVM puts it behind itself when it is relative.
    let doubled = theirs.strip_suffix(&ours).and_then(|rest| rest.strip_suffix('/'));
    if doubled.is_some_and(|directory| ours.starts_with(directory)) {
        return Some("(rule) file: relative compilation directory not doubled");
    }
    // Where there is no line, LLVM gives the file symbol of the object, which is no path.
    if expected.line == 0 && found.file.is_empty() {
        return Some("(rule) file: no line, so no file symbol either");
    }
    if is_made_by_go(expected, found) {
        return Some("(rule) file: Go's function table says where the compiler made the code itself");
    }
    Some("file")
}

/// Wrappers and comparisons that no source has: `<autogenerated>:1` in Go's tables, nothing in the DWARF of Go 1.25.
fn is_made_by_go(expected: &Expected, found: &Found) -> bool {
    expected.line == 0 && found.file == "<autogenerated>" && found.line == 1
}

/// How the names agree, unless they are simply equal; and whether that is within the published rule.
fn name_kind(expected: &Expected, found: &Found, _at: usize) -> Option<(&'static str, bool)> {
    let name = expected.function.as_str();
    if name == found.symbol {
        None
    } else if unversioned(name) == found.symbol {
        Some(("(rule) name: without its version", true))
    } else if found.aliases.iter().any(|alias| alias == unversioned(name)) {
        Some(("(rule) name: an alias of the same address", true))
    } else if name == found.name || found.name.ends_with(&format!("::{name}")) {
        Some(("(rule) name: the bare name for a missing linkage name", true))
    } else if base(name) == base(&found.symbol) {
        Some(("(rule) name: a part of the same function (.cold, .part)", true))
    } else if is_link_time_marker(name) {
        Some(("(rule) name: a marker of the link-time optimiser is no function", true))
    } else if without_type_arguments(name) == without_type_arguments(&found.symbol) {
        Some(("(rule) name: Go's function table has neither type arguments nor calling conventions", true))
    } else if found.folded {
        Some(("(rule) name: folded code", true))
    } else {
        Some(("name", false))
    }
}

/// `FILE.c.0123abcd`, an untyped symbol at the start of what GCC's link-time optimiser compiled.
fn is_link_time_marker(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(file, hash)| {
        file.contains('.') && hash.len() == 8 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

fn unversioned(name: &str) -> &str {
    // Microsoft's mangled names have the sign in them.
    if name.starts_with(['?', '@']) {
        return name;
    }
    name.split_once('@').map_or(name, |(name, _)| name)
}

/// Without what compilers put behind the name of a part or a copy of a function.
fn base(name: &str) -> &str {
    const SUFFIXES: [&str; 6] = ["cold", "part", "constprop", "isra", "lto_priv", "llvm"];
    let mut name = unversioned(name);
    while let Some((rest, last)) = name.rsplit_once('.') {
        let is_number = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number && !SUFFIXES.contains(&last) {
            break;
        }
        name = rest;
    }
    name
}

/// Go's function table leaves out the calling convention's name, and what stands in `[...]`: type arguments.
fn without_type_arguments(name: &str) -> String {
    let name = name.strip_suffix(".abi0").or_else(|| name.strip_suffix(".abiinternal")).unwrap_or(name);
    let (mut out, mut depth) = (String::new(), 0);
    for char in name.chars() {
        depth -= i32::from(char == ']');
        if depth == 0 {
            out.push(char);
        }
        depth += i32::from(char == '[');
    }
    out
}

/// Paths without `.`, `..` and doubled slashes.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} addresses compared: depth equal {:.4}, file and line equal {:.4}, names equal under the rule {:.4}",
            self.compared,
            self.ratio(self.depth_equal),
            self.ratio(self.lines_equal),
            self.ratio(self.names_equal),
        )?;
        for (kind, (count, examples)) in &self.kinds {
            writeln!(f, "  {count:>6}  {kind}")?;
            for example in examples {
                writeln!(f, "          {example}")?;
            }
        }
        Ok(())
    }
}
