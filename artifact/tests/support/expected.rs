//! Frames that llvm-symbolizer 19 gave for the real inputs.

use super::lookup::Found;
use super::{Expected, NOT_ASKED, run};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Addresses of a file and the frames there.
pub(crate) struct Case {
    pub(crate) file: String,
    pub(crate) entries: Vec<(u64, Vec<Expected>)>,
}

/// Reads a `*.symbolizer.json`, possibly gzipped.
/// `spelling` is how names are written to be compared: [`closed`] or [`without_parentheses`].
pub(crate) fn case_of(path: &Path, spelling: fn(&str) -> String) -> Case {
    let text = if path.extension().is_some_and(|extension| extension == "gz") {
        run("gzip", &["-dc", &path.display().to_string()], Path::new(".")).expect("gzip")
    } else {
        std::fs::read_to_string(path).expect("an expected file")
    };
    let value: Value = serde_json::from_str(&text).expect("JSON");
    let entries = value["entries"].as_array().expect("entries").iter().map(|entry| {
        let address = entry["address"].as_str().and_then(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok());
        let frames = entry["frames_innermost_first"].as_array().expect("frames").iter().map(|frame| Expected {
            function: spelling(frame["function"].as_str().unwrap_or_default()),
            file: frame["file"].as_str().unwrap_or_default().to_owned(),
            line: frame["line"].as_u64().unwrap_or(0),
            column: NOT_ASKED,
        });
        (address.expect("an address"), frames.collect())
    });
    Case { file: value["file"].as_str().expect("a file").to_owned(), entries: entries.collect() }
}

/// The expected files have names for people, so ours are made so by LLVM too.
pub(crate) fn demangle(found: &mut [Vec<Found>], spelling: fn(&str) -> String) {
    let names = |frame: &mut Found| {
        let aliases = std::mem::take(&mut frame.aliases);
        std::iter::once(std::mem::take(&mut frame.symbol)).chain(aliases).collect::<Vec<String>>()
    };
    let raw: Vec<Vec<String>> = found.iter_mut().flatten().map(names).collect();
    let input: String = raw.iter().flatten().map(|name| format!("{name}\n")).collect();
    let mut child =
        Command::new("llvm-cxxfilt").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("llvm-cxxfilt starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("llvm-cxxfilt ends");
    writer.join().expect("the writer ends").expect("all names are taken");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    for (frame, raw) in found.iter_mut().flatten().zip(raw) {
        let mut next = || spelling(lines.next().expect("a name for a name"));
        frame.symbol = next();
        frame.name = spelling(&frame.name);
        frame.aliases = raw.iter().skip(1).map(|_| next()).collect();
    }
}

/// Names of Microsoft's compilers for people, as llvm-symbolizer writes them. The others stay.
pub(crate) fn undecorate(found: &mut [Vec<Found>]) {
    let mut raw: Vec<String> = found
        .iter()
        .flatten()
        .flat_map(|frame| std::iter::once(&frame.symbol).chain(&frame.aliases))
        .filter(|name| name.starts_with('?'))
        .cloned()
        .collect();
    raw.sort();
    raw.dedup();
    let input: String = raw.iter().map(|name| format!("{name}\n")).collect();
    let mut child = Command::new("llvm-undname")
        .args(["--no-access-specifier", "--no-calling-convention", "--no-return-type", "--no-member-type"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("llvm-undname starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("llvm-undname ends");
    writer.join().expect("the writer ends").expect("all names are taken");
    // Each name, its reading if it has one, and an empty line.
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let mut readings = std::collections::HashMap::new();
    while let Some(name) = lines.next() {
        if !name.is_empty()
            && let Some(reading) = lines.next().filter(|reading| !reading.is_empty())
        {
            readings.insert(name.to_owned(), without_parentheses(reading));
        }
    }
    for frame in found.iter_mut().flatten() {
        frame.name = without_parentheses(&frame.name);
        for name in std::iter::once(&mut frame.symbol).chain(&mut frame.aliases) {
            if let Some(reading) = readings.get(name) {
                name.clone_from(reading);
            }
        }
    }
}

/// Older demanglers put parentheses around the operands of expressions, which newer ones leave out.
pub(crate) fn without_parentheses(name: &str) -> String {
    let name: String = name.chars().filter(|char| !matches!(char, '(' | ')')).collect();
    closed(&name)
}

/// Older demanglers write `> >` where newer ones write `>>`.
pub(crate) fn closed(name: &str) -> String {
    let mut name = name.to_owned();
    while name.contains("> >") {
        name = name.replace("> >", ">>");
    }
    name
}
