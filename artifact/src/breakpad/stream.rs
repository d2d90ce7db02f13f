//! A symbol file's functions as one stream.

use hashbrown::HashMap;
use symseal_module::Rva;
use symseal_symx::{FunctionFlags, FunctionRecord, StrId, SymbolSource};

use super::BreakpadFile;
use super::chains::{Call, Code, Line};
use super::records::{Lines, Record, range};
use crate::budget::Budget;
use crate::stream::{FunctionStream, StreamStatistics, finish};
use crate::work::Work;

/// What the last public symbol is taken to name, in bytes: a page. No record says where the code ends.
const LAST_PUBLIC: u64 = 4096;

/// Further names of one address that are kept.
const ALIASES: usize = 64;

/// The name that `dump_syms` gives to a file that is not known.
const UNKNOWN: &[u8] = b"<unknown>";

/// A `FUNC` with the records behind it.
struct Function {
    start: u64,
    size: u64,
    name: StrId,
    folded: bool,
    code: Code,
}

impl BreakpadFile<'_> {
    /// The functions, public symbols among them, with rows and inlined calls. Names are as the file has them, mostly demangled. What public symbols
    /// name reaches to the next symbol and is approximate. Lines that are malformed are left out and counted.
    pub fn functions(&self) -> FunctionStream {
        let mut work = Work::new();
        work.budget = Budget::for_bytes(self.data().len() as u64);
        let (mut functions, mut publics) = collect(self.data(), &mut work);
        // A function without a size is known by its address alone.
        let unsized_ones = functions.extract_if(.., |function| function.size == 0);
        publics.extend(unsized_ones.map(|function| (function.start, function.name, function.folded)));
        let functions = functions_in_order(functions, &mut work);
        let records = with_publics(functions, publics, &mut work);
        let text_bytes = records.iter().map(|record| record.size).fold(0, u64::saturating_add);
        finish(records, work, StreamStatistics { text_bytes, ..StreamStatistics::default() })
    }
}

type Publics = Vec<(u64, StrId, bool)>;

fn collect(data: &[u8], work: &mut Work) -> (Vec<Function>, Publics) {
    let (mut files, mut origins) = (HashMap::new(), HashMap::new());
    let (mut functions, mut publics): (Vec<Function>, Publics) = Default::default();
    let mut is_within = false;
    for line in Lines::new(data) {
        match Record::read(line) {
            Some(Record::File { number, name }) => {
                let name = if name == UNKNOWN { StrId::EMPTY } else { work.text(name) };
                if !name.is_empty() {
                    work.source(name, None);
                }
                files.insert(number, name);
            }
            Some(Record::Origin { number, name }) => drop(origins.insert(number, work.text(name))),
            Some(Record::Function { several, start, size, name }) => {
                let name = work.text(name);
                functions.push(Function { start, size, name, folded: several, code: Code::default() });
                is_within = true;
            }
            Some(Record::Public { several, start, name }) => {
                let name = work.text(name);
                publics.push((start, name, several));
                is_within = false;
            }
            Some(Record::Line { start, size, line, file }) => {
                let Some(function) = functions.last_mut().filter(|_| is_within) else {
                    work.skip("Breakpad lines outside of functions");
                    continue;
                };
                let line = u32::try_from(line).unwrap_or_default();
                let file = files.get(&file).copied().unwrap_or_default();
                // One of no bytes says nothing.
                if size > 0 {
                    function.code.lines.push(Line { start, end: start.saturating_add(size), line, file });
                }
            }
            Some(Record::Inline { depth, line, file, origin, mut ranges }) => {
                let Some(function) = functions.last_mut().filter(|_| is_within) else {
                    work.skip("Breakpad inlined calls outside of functions");
                    continue;
                };
                let name = origins.get(&origin).copied().unwrap_or_default();
                let file = file.and_then(|file| files.get(&file)).copied().unwrap_or_default();
                let call = Call { name, file, line: u32::try_from(line).unwrap_or_default() };
                while let Some(((start, size), rest)) = range(ranges) {
                    ranges = rest;
                    if !function.code.add_call(depth, (start, start.saturating_add(size)), call) {
                        work.skip("Breakpad inlined calls that lie too deep");
                    }
                }
            }
            Some(Record::Other) => {}
            None => work.skip("Breakpad lines that are malformed"),
        }
    }
    (functions, publics)
}

/// Sorted, and each ending where the next one begins at the latest.
fn functions_in_order(mut functions: Vec<Function>, work: &mut Work) -> Vec<FunctionRecord> {
    functions.sort_by_key(|function| function.start);
    let before = functions.len();
    functions.dedup_by_key(|function| function.start);
    for _ in functions.len()..before {
        work.skip("Breakpad functions with the address of another");
    }
    let starts: Vec<u64> = functions.iter().skip(1).map(|function| function.start).chain([u64::MAX]).collect();
    let mut records = Vec::with_capacity(functions.len());
    for (function, next) in functions.into_iter().zip(starts) {
        let Function { start, size, name, folded, code } = function;
        let whole = start.saturating_add(size);
        if whole > next {
            work.skip("Breakpad functions that overlap the next one");
        }
        let end = whole.min(next);
        let (rows, inlines) = code.rows((start, end), &mut work.budget);
        let flags = FunctionFlags { folded, ..FunctionFlags::default() };
        records.push(FunctionRecord { rows, inlines, ..record((start, end), name, flags) });
    }
    records
}

/// Public symbols name what no function does.
fn with_publics(functions: Vec<FunctionRecord>, mut publics: Publics, work: &mut Work) -> Vec<FunctionRecord> {
    publics.sort();
    let ends: Vec<Option<u64>> = next_starts(&publics);
    let mut all: Vec<FunctionRecord> = Vec::with_capacity(functions.len().saturating_add(publics.len()));
    let mut publics = publics.into_iter().zip(ends).peekable();
    let mut functions = functions.into_iter().peekable();
    loop {
        let next_function = functions.peek().map(|function| function.start.0);
        let is_first = |start: u64| next_function.is_none_or(|next| start < next);
        let Some(((start, name, folded), next_public)) = publics.next_if(|((start, ..), _)| is_first(*start)) else {
            match functions.next() {
                Some(function) => all.push(function),
                None => return all,
            }
            continue;
        };
        match all.last_mut() {
            Some(same) if same.start.0 == start => {
                if same.name != name && same.aliases.len() < ALIASES && !same.aliases.contains(&name) {
                    same.aliases.push(name);
                }
            }
            Some(last) if start < last.start.0.saturating_add(last.size) => {
                work.skip("Breakpad public symbols within functions");
            }
            _ => {
                let end = [next_function, next_public].into_iter().flatten().min();
                let end = end.unwrap_or(start.saturating_add(LAST_PUBLIC));
                if end <= start {
                    continue;
                }
                let flags = FunctionFlags { approximate: true, folded, part: false };
                all.push(record((start, end), name, flags));
            }
        }
    }
}

/// For each the next address at which another one begins.
fn next_starts(publics: &Publics) -> Vec<Option<u64>> {
    let mut next = None;
    let mut starts: Vec<Option<u64>> = Vec::with_capacity(publics.len());
    let mut above: Option<u64> = None;
    for (start, ..) in publics.iter().rev() {
        if above.is_some_and(|above| above != *start) {
            next = above;
        }
        starts.push(next);
        above = Some(*start);
    }
    starts.reverse();
    starts
}

fn record((start, end): (u64, u64), name: StrId, flags: FunctionFlags) -> FunctionRecord {
    FunctionRecord {
        start: Rva(start),
        size: end.saturating_sub(start),
        name,
        symbol: name,
        aliases: Vec::new(),
        source: SymbolSource::Breakpad,
        flags,
        file: StrId::EMPTY,
        line: 0,
        rows: Vec::new(),
        inlines: Vec::new(),
    }
}
