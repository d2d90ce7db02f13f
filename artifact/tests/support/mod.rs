//! What the tests share: tools that may be missing, addresses by chance, and llvm-symbolizer's answers.
#![allow(dead_code, reason = "each test file has this module and uses its own part")]

pub(crate) mod accuracy;
pub(crate) mod addr2line;
pub(crate) mod archives;
pub(crate) mod beside;
pub(crate) mod compare;
pub(crate) mod debian;
#[path = "../../../tests/downloads/mod.rs"]
pub(crate) mod downloads;
pub(crate) mod dwarfdump;
pub(crate) mod dwz_frames;
pub(crate) mod expected;
pub(crate) mod go_table;
pub(crate) mod lookup;
pub(crate) mod macho_file;
pub(crate) mod objdump;
pub(crate) mod padding;
pub(crate) mod placed;
pub(crate) mod slices;

use serde_json::Value;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Distinct addresses spread evenly over the ranges, in rising order: all of them where they are no more than `count`, else
/// one by chance of each of `count` parts of equal size. `SYMSEAL_ADDRESSES` multiplies `count` where it is set, as
/// `tests/certify` does.
pub(crate) fn addresses_in(ranges: &[Range<u64>], count: usize, seed: u64) -> Vec<u64> {
    let mut ranges: Vec<&Range<u64>> = ranges.iter().collect();
    ranges.sort_by_key(|range| range.start);
    let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let wanted = count.saturating_mul(times()) as u64;
    if total <= wanted {
        return ranges.into_iter().flat_map(Range::clone).collect();
    }
    let mut chance = Chance::new(seed);
    let (mut rest, mut passed) = (ranges.into_iter(), 0);
    let mut range = rest.next();
    let mut at = |offset: u64| {
        while let Some(current) = range {
            let size = current.end - current.start;
            if offset - passed < size {
                return Some(current.start + (offset - passed));
            }
            passed += size;
            range = rest.next();
        }
        None
    };
    let part =
        |number: u64| u64::try_from(u128::from(total) * u128::from(number) / u128::from(wanted)).expect("an offset");
    (0..wanted).filter_map(|number| at(part(number) + chance.below(part(number + 1) - part(number)))).collect()
}

/// How many times the addresses of an everyday run.
pub(crate) fn times() -> usize {
    std::env::var("SYMSEAL_ADDRESSES").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Does something with each item, on as many threads as there are processors; the results are in the items' order.
pub(crate) fn in_parallel<T: Sync, R: Send>(items: &[T], each: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(number) else { break };
                    let result = each(item);
                    done.lock().expect("no panic").push((number, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no panic");
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
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

/// How often llvm-symbolizer may crash on a file before it is asked no more.
const MOST_CRASHES: u32 = 500;

/// llvm-symbolizer's frames by address. It crashes on some PDBs: such addresses are missing, and said out loud. They are
/// asked for in an order by chance, so that those after the last crash are not all of one part of the code.
pub(crate) fn llvm_symbolizer_survived(object: &Path, addresses: &[u64]) -> Vec<(u64, Vec<Expected>)> {
    let newer = "llvm-symbolizer-19";
    let tool = if is_there(newer) { newer } else { "llvm-symbolizer" };
    let mut shuffled = addresses.to_vec();
    let mut chance = Chance::new(31);
    for at in (1..shuffled.len()).rev() {
        shuffled.swap(at, chance.below(at as u64 + 1) as usize);
    }
    let mut found = Vec::new();
    let (mut rest, mut crashes) = (shuffled.as_slice(), 0);
    while !rest.is_empty() && crashes < MOST_CRASHES {
        let answers = answers_of(tool, &[], Path::new("."), object, rest);
        let answered = answers.len();
        found.extend(rest.iter().copied().zip(answers));
        crashes += u32::from(answered < rest.len());
        // What it was asked when it died is left out.
        rest = rest.get(answered + 1..).unwrap_or_default();
    }
    if found.len() < addresses.len() {
        println!("{tool} crashed on {}: {} of {} addresses answered", object.display(), found.len(), addresses.len());
    }
    found.sort_by_key(|(address, _)| *address);
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
