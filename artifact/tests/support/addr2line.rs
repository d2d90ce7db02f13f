//! addr2line of binutils and of elfutils: they read dwz files rightly.

use super::lookup::Found;
use super::{Expected, NOT_ASKED};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// addr2line's frames of each address, innermost first; no frames where it knows neither function nor line.
pub(crate) fn addr2line(object: &Path, addresses: &[u64]) -> Vec<Vec<Expected>> {
    addr2line_with(&[], object, addresses)
}

/// The same for offsets in a section.
pub(crate) fn addr2line_in_section(section: &str, object: &Path, offsets: &[u64]) -> Vec<Vec<Expected>> {
    addr2line_with(&["-j", section], object, offsets)
}

/// The same of elfutils, which reads files of any processor; split units it does not read.
pub(crate) fn eu_addr2line(object: &Path, addresses: &[u64]) -> Vec<Vec<Expected>> {
    frames_of("eu-addr2line", &[], object, addresses)
}

fn addr2line_with(arguments: &[&str], object: &Path, addresses: &[u64]) -> Vec<Vec<Expected>> {
    frames_of("addr2line", arguments, object, addresses)
}

fn frames_of(tool: &str, arguments: &[&str], object: &Path, addresses: &[u64]) -> Vec<Vec<Expected>> {
    let mut child = Command::new(tool)
        .args(arguments)
        .args(["-a", "-i", "-f", "-e"])
        .arg(object)
        .env_remove("DEBUGINFOD_URLS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("addr2line starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("addr2line ends");
    writer.join().expect("the writer ends").expect("all addresses are taken");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut answers: Vec<Vec<Expected>> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            answers.push(Vec::new());
            continue;
        }
        let position = lines.next().expect("a position after a function");
        let (file, line_number, column) = position_of(position);
        let known = |text: &str| if text == "??" { String::new() } else { text.to_owned() };
        answers.last_mut().expect("an address first").push(Expected {
            function: known(line),
            file: known(file),
            line: line_number,
            column,
        });
    }
    assert_eq!(answers.len(), addresses.len(), "one answer for each address of {}", object.display());
    for answer in &mut answers {
        if answer.iter().all(|frame| frame.function.is_empty() && frame.line == 0) {
            answer.clear();
        }
    }
    answers
}

/// `FILE:LINE`, which binutils may follow by a discriminator and elfutils by a column.
fn position_of(text: &str) -> (&str, u64, u64) {
    let text = text.split_once(" (discriminator").map_or(text, |(text, _)| text);
    let (file, last) = text.rsplit_once(':').expect("a file and a line");
    let last = last.parse().unwrap_or(0);
    match file.rsplit_once(':').map(|(file, line)| (file, line.parse())) {
        Some((file, Ok(line))) => (file, line, last),
        _ => (file, last, NOT_ASKED),
    }
}

/// What addr2line would say without two habits of its own: it lets a symbol reach over padding to the next one, and it
/// gives an innermost inlined function without a linkage name the symbol of the function around it.
pub(crate) fn without_symbols(mut expected: Vec<Expected>, found: &[Found]) -> Vec<Expected> {
    let (Some(inner), Some(outer)) = (found.first(), found.last()) else { return Vec::new() };
    if found.len() > 1
        && found.len() == expected.len()
        && let Some(first) = expected.first_mut()
        && first.function == outer.symbol
    {
        first.function.clone_from(&inner.symbol);
    }
    expected
}
