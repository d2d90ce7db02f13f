//! What the tests share: tools that may be missing, addresses by chance, and llvm-symbolizer's answers.
#![allow(dead_code, reason = "each test file has this module and uses its own part")]

pub(crate) mod addr2line;
pub(crate) mod archives;
pub(crate) mod compare;
pub(crate) mod expected;
pub(crate) mod go_table;
pub(crate) mod lookup;
pub(crate) mod macho_file;
pub(crate) mod objdump;

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether the tool is there. If not, says so, or fails where `SYMSEAL_REQUIRE` names it.
pub(crate) fn have(tool: &str) -> bool {
    is_there(tool) || skip(tool)
}

pub(crate) fn is_there(tool: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file()))
}

/// The first of these tools that is there: the same tool under the names of its versions, the preferred one first.
pub(crate) fn any_of(tools: &[&'static str]) -> Option<&'static str> {
    let found = tools.iter().find(|tool| is_there(tool)).copied();
    if found.is_none() {
        skip(tools.last().copied().unwrap_or_default());
    }
    found
}

/// Reports something that is missing; always false.
pub(crate) fn skip(what: &str) -> bool {
    let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|name| name == what || name == "all"),
        "{what} is required (SYMSEAL_REQUIRE) and not found"
    );
    println!("SKIP {what}: not found");
    false
}

/// The folder of real inputs, if there is one.
pub(crate) fn fixtures() -> Option<PathBuf> {
    let folder = std::env::var_os("SYMSEAL_FIXTURES").map(PathBuf::from).filter(|folder| folder.is_dir());
    if folder.is_none() {
        println!("SKIP fixtures: SYMSEAL_FIXTURES is not set");
    }
    folder
}

pub(crate) const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// libc's debug file, which Debian's libc6-dbg puts where its build-id says.
pub(crate) fn libc_debug() -> Option<PathBuf> {
    let find = || {
        let bytes = std::fs::read(LIBC).ok()?;
        let id = symseal_artifact::ObjectFile::parse(&bytes).ok()?.debug_id()?.to_string();
        let (first, rest) = id.split_at_checked(2)?;
        Some(PathBuf::from(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug"))).filter(|path| path.is_file())
    };
    let found = find();
    if found.is_none() {
        skip("libc6-dbg");
    }
    found
}

/// Numbers by chance, the same in every run. (xorshift64*, Vigna 2016)
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

/// Addresses spread evenly over the ranges; `SYMSEAL_ADDRESSES` times as many where that is set, as `tests/certify` does.
pub(crate) fn addresses_in(ranges: &[std::ops::Range<u64>], count: usize, seed: u64) -> Vec<u64> {
    let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let mut chance = Chance::new(seed);
    let mut pick = || {
        let mut at = chance.below(total);
        for range in ranges {
            let size = range.end - range.start;
            if at < size {
                return range.start + at;
            }
            at -= size;
        }
        0
    };
    let times = std::env::var("SYMSEAL_ADDRESSES").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    (0..count.saturating_mul(times)).map(|_| pick()).collect()
}

/// A column that the expectation leaves open.
pub(crate) const NOT_ASKED: u64 = u64::MAX;

/// One frame as llvm-symbolizer has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) function: String,
    pub(crate) file: String,
    pub(crate) line: u64,
    pub(crate) column: u64,
}

/// llvm-symbolizer's frames of each address, innermost first; no frames where it knows neither function nor line.
pub(crate) fn llvm_symbolizer(object: &Path, addresses: &[u64]) -> Vec<Vec<Expected>> {
    symbolizer("llvm-symbolizer", &[], object, addresses)
}

/// The same by version 19 where it is there, run in a folder, from which it looks for split DWARF. Version 14 loses the
/// ranges of clang's split DWARF 4, and with them inlined calls; version 19 does not read `.zdebug_*` sections.
pub(crate) fn llvm_symbolizer_in(folder: &Path, object: &Path, addresses: &[u64]) -> Vec<Vec<Expected>> {
    let newer = "llvm-symbolizer-19";
    ask_llvm(if is_there(newer) { newer } else { "llvm-symbolizer" }, &[], folder, object, addresses)
}

/// The same of one version of the tool, with further arguments.
pub(crate) fn symbolizer(tool: &str, arguments: &[&str], object: &Path, addresses: &[u64]) -> Vec<Vec<Expected>> {
    ask_llvm(tool, arguments, Path::new("."), object, addresses)
}

fn ask_llvm(tool: &str, arguments: &[&str], folder: &Path, object: &Path, addresses: &[u64]) -> Vec<Vec<Expected>> {
    let answers = answers_of(tool, arguments, folder, object, addresses);
    assert_eq!(answers.len(), addresses.len(), "one answer for each address of {}", object.display());
    answers
}

/// llvm-symbolizer's frames by address. It crashes on some PDBs: such addresses are missing, and said out loud.
pub(crate) fn llvm_symbolizer_survived(object: &Path, addresses: &[u64]) -> Vec<(u64, Vec<Expected>)> {
    let newer = "llvm-symbolizer-19";
    let tool = if is_there(newer) { newer } else { "llvm-symbolizer" };
    let mut found = Vec::new();
    let (mut rest, mut crashes) = (addresses, 0);
    while !rest.is_empty() && crashes < 40 {
        let answers = answers_of(tool, &[], Path::new("."), object, rest);
        let answered = answers.len();
        found.extend(rest.iter().copied().zip(answers));
        // What it was asked when it died is left out.
        rest = rest.get(answered + 1..).unwrap_or_default();
        crashes += u32::from(answered + rest.len() < addresses.len() && !rest.is_empty());
    }
    if found.len() < addresses.len() {
        println!("{tool} crashed on {}: {} of {} addresses answered", object.display(), found.len(), addresses.len());
    }
    found
}

fn answers_of(tool: &str, arguments: &[&str], folder: &Path, object: &Path, addresses: &[u64]) -> Vec<Vec<Expected>> {
    let mut child = Command::new(tool)
        .arg(format!("--obj={}", object.display()))
        .args(arguments)
        .args(["--functions=linkage", "--inlines", "--output-style=JSON", "--no-demangle"])
        .env_remove("DEBUGINFOD_URLS")
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("llvm-symbolizer starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let lines: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("llvm-symbolizer ends");
    // A tool that crashes leaves addresses untaken.
    let _ = writer.join().expect("the writer ends");
    let text = String::from_utf8_lossy(&output.stdout);
    // The last line of a tool that crashed may be cut short.
    text.lines().filter(|line| line.ends_with('}')).map(frames_of).collect()
}

fn frames_of(line: &str) -> Vec<Expected> {
    let answer: Value = serde_json::from_str(line).expect("JSON");
    let frames = answer["Symbol"].as_array().cloned().unwrap_or_default();
    let text = |frame: &Value, key: &str| frame[key].as_str().unwrap_or_default().to_owned();
    let frames: Vec<Expected> = frames
        .iter()
        .map(|frame| Expected {
            function: text(frame, "FunctionName"),
            file: text(frame, "FileName"),
            line: frame["Line"].as_u64().unwrap_or(0),
            column: frame["Column"].as_u64().unwrap_or(0),
        })
        .collect();
    match frames.as_slice() {
        [only] if only.function.is_empty() && only.file.is_empty() && only.line == 0 => Vec::new(),
        _ => frames,
    }
}

/// Runs a tool to its end; its standard output, or None with its error on our output.
pub(crate) fn run(tool: &str, arguments: &[&str], folder: &Path) -> Option<String> {
    let output = Command::new(tool).args(arguments).current_dir(folder).output().expect("the tool starts");
    if output.status.success() {
        return Some(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    println!("{tool} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    None
}
