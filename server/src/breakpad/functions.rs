//! `FILE`, `INLINE_ORIGIN`, `FUNC` with its lines and `INLINE`, `PUBLIC`.
//!
//! The tables are read twice, once for the numbers of files and names, once for the records, so that nothing grows with the module but
//! these numbers.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use symseal_module::Rva;
use symseal_symx::{Frame, Hit, Name, Table};

use super::plain;
use crate::numbered::Numbered;

/// Files by path.
type Files<'t> = Numbered<&'t str>;
/// Names by where they lie in the table.
type Origins = Numbered<u32>;

pub(super) fn write(table: &Table<'_>, out: &mut impl Write) -> io::Result<()> {
    let (mut files, mut origins) = (Files::default(), Origins::default());
    // A caller whose file is not known has a number too.
    let mut originals: HashMap<u32, Frame<'_>> = HashMap::new();
    for hit in table.rows() {
        for frame in hit.frames() {
            files.number(frame.file);
            if frame.inlined {
                originals.entry(key(&frame)).or_insert(frame);
                origins.number(key(&frame));
            }
        }
    }
    for (number, file) in files.values().iter().enumerate() {
        writeln!(out, "FILE {number} {}", plain(if file.is_empty() { "<unknown>" } else { file }))?;
    }
    for (number, key) in origins.values().iter().enumerate() {
        if let Some(frame) = originals.get(key) {
            writeln!(out, "INLINE_ORIGIN {number} {}", readable(frame.function, frame.symbol))?;
        }
    }
    let mut rows = table.rows().peekable();
    let mut publics = Vec::new();
    for function in table.functions() {
        let (start, end) = (function.start, Rva(function.start.0.saturating_add(function.size)));
        while rows.next_if(|hit| hit.range().start < start).is_some() {}
        let mut own = Vec::new();
        if function.name.is_empty() && function.symbol.is_empty() {
            continue;
        }
        while let Some(hit) = rows.next_if(|hit| hit.range().start < end) {
            own.push(hit);
        }
        let several = if function.flags.folded || function.aliases().next().is_some() { "m " } else { "" };
        let name = readable(function.name, function.symbol);
        // A size that only the next symbol gives is none.
        if function.size == 0 || function.flags.approximate {
            publics.push((start, several, name));
            continue;
        }
        writeln!(out, "FUNC {several}{:x} {:x} 0 {name}", start.0, function.size)?;
        inlines(&own, (&mut files, &mut origins), out)?;
        lines(&own, &mut files, out)?;
    }
    for (start, several, name) in publics {
        writeln!(out, "PUBLIC {several}{:x} 0 {name}", start.0)?;
    }
    Ok(())
}

fn key(frame: &Frame<'_>) -> u32 {
    if frame.symbol.is_empty() { frame.function.place() } else { frame.symbol.place() }
}

/// The name for people, as our other answers give it.
fn readable(function: Name<'_>, symbol: Name<'_>) -> String {
    let demangled = symseal_resolver::demangle(&symbol.text());
    let known = if function.is_empty() { symbol } else { function };
    let name = demangled.map_or_else(|| known.text().into_owned(), |(readable, _)| readable);
    plain(&name)
}

/// A call that was inlined: depth, line and file of the call, name.
type Call = (usize, u32, usize, usize);

/// `INLINE depth line file origin (address size)+`: where a call that was inlined stands, the outermost first.
fn inlines<'t>(
    own: &[Hit<'t>],
    (files, origins): (&mut Files<'t>, &mut Origins),
    out: &mut impl Write,
) -> io::Result<()> {
    let mut calls: BTreeMap<Call, Vec<(u64, u64)>> = BTreeMap::new();
    for hit in own {
        let range = hit.range();
        let frames: Vec<Frame<'t>> = hit.frames().collect();
        for (at, pair) in frames.windows(2).enumerate() {
            let [inlined, caller] = pair else { continue };
            let depth = frames.len().saturating_sub(2 + at);
            let call = (depth, caller.line.unwrap_or(0), files.number(caller.file), origins.number(key(inlined)));
            let ranges = calls.entry(call).or_default();
            match ranges.last_mut() {
                Some((_, end)) if *end == range.start.0 => *end = range.end.0,
                _ => ranges.push((range.start.0, range.end.0)),
            }
        }
    }
    for ((depth, line, file, origin), ranges) in calls {
        write!(out, "INLINE {depth} {line} {file} {origin}")?;
        for (start, end) in ranges {
            write!(out, " {start:x} {:x}", end.saturating_sub(start))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// `address size line file` of the innermost function.
fn lines<'t>(own: &[Hit<'t>], files: &mut Files<'t>, out: &mut impl Write) -> io::Result<()> {
    let mut last: Option<(u64, u64, u32, usize)> = None;
    for hit in own {
        let range = hit.range();
        let place = hit.frames().next().and_then(|frame| Some((frame.line?, files.number(frame.file))));
        match (&mut last, place) {
            (Some((_, end, line, file)), Some(same)) if (*line, *file) == same && *end == range.start.0 => {
                *end = range.end.0
            }
            (last, place) => {
                line(*last, out)?;
                *last = place.map(|(line, file)| (range.start.0, range.end.0, line, file));
            }
        }
    }
    line(last, out)
}

fn line(row: Option<(u64, u64, u32, usize)>, out: &mut impl Write) -> io::Result<()> {
    match row {
        Some((start, end, line, file)) => writeln!(out, "{start:x} {:x} {line} {file}", end.saturating_sub(start)),
        None => Ok(()),
    }
}
