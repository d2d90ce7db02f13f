//! What the engine has to know of tokio in a Rust program, from the debug information: where the fields of tasks are, the table of wakers, and the functions
//! that poll tasks, by their names and type parameters. (tokio, `runtime/task/core.rs`, `raw.rs`, `harness.rs`, `waker.rs`)

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use gimli::{AttributeValue, Operation, UnitHeader};
use memchr::memmem;
use symseal_module::Svma;

use super::Input;
use super::debug_info::{Entry, Information, Reader, UnitContext};
use crate::continuation::marks_frame_pointers;
use crate::tasks::{HEAD_WORDS, TaskFields};

/// A module of Rust, by the names of those around it.
const TASK: [&[u8]; 3] = [b"tokio", b"runtime", b"task"];
const WAKE: [&[u8]; 3] = [b"core", b"task", b"wake"];
/// The static variable that all wakers of tasks point to. Without it no other name is looked for.
const WAKERS: &[u8] = b"WAKER_VTABLE";
/// Types of names in the longest chain of a function that was inlined, of its declaration and of the type that it is of.
const MOST_LINKS: usize = 4;
/// More functions than a program has that poll tasks.
const MOST_FUNCTIONS: usize = 1 << 20;
/// Bytes of names of modules, types and fields, which are short, and of those with type parameters.
const SHORT: usize = 64;
const LONG: usize = 1 << 14;

/// Where fields are.
#[derive(Default)]
struct Fields {
    state: Option<u32>,
    vtable: Option<u32>,
    poll: Option<u32>,
    trailer_offset: Option<u32>,
    waker: Option<u32>,
    data: Option<u32>,
    table: Option<u32>,
}

impl Fields {
    fn note(&mut self, structure: Structure, field: &[u8], at: u32) {
        let place = match (structure, field) {
            (Structure::Header, b"state") => &mut self.state,
            (Structure::Header, b"vtable") => &mut self.vtable,
            (Structure::Vtable, b"poll") => &mut self.poll,
            (Structure::Vtable, b"trailer_offset") => &mut self.trailer_offset,
            (Structure::Trailer, b"waker") => &mut self.waker,
            (Structure::RawWaker, b"data") => &mut self.data,
            (Structure::RawWaker, b"vtable") => &mut self.table,
            _ => return,
        };
        place.get_or_insert(at);
    }

    fn known(&self) -> Option<TaskFields> {
        Some(TaskFields {
            state: self.state?,
            vtable: self.vtable?,
            poll: self.poll?,
            trailer_offset: self.trailer_offset?,
            waker_data: self.waker?.checked_add(self.data?)?,
            waker_table: self.waker?.checked_add(self.table?)?,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Structure {
    Header,
    Vtable,
    Trailer,
    RawWaker,
    /// `Harness` of any types.
    Harness,
    Other,
}

/// What was found so far.
#[derive(Default)]
struct Found<'a> {
    wakers: Option<Svma>,
    fields: Fields,
    /// Bytes of long names that may still be looked at.
    long_names: usize,
    /// The number of each list of type parameters.
    futures: BTreeMap<&'a [u8], u32>,
    /// Functions that poll, by where their names stand: the number of their types, and whether tables of tasks point to them.
    named: BTreeMap<usize, (u32, bool)>,
    /// What functions without code are of.
    links: BTreeMap<usize, usize>,
    /// Where functions that are of another entry have their code.
    code: Vec<(usize, Svma, Svma)>,
}

/// The section of those with the names that tokio has if it is there.
pub const TASK_NAMES: &str = ".debug_str";

/// Whether these bytes of [`TASK_NAMES`] have such a name: the debug information of other programs need not be read.
pub fn names_tasks(strings: &[u8]) -> bool {
    // Linkers may leave it as the end of a longer one, above all of its own linkage name.
    memmem::find_iter(strings, WAKERS).any(|at| strings.get(at + WAKERS.len()) == Some(&0))
}

/// The section of a table for the program that `input` describes: its base and its code count. `section` gives the decompressed bytes of each of
/// [`DEBUG_INFO_SECTIONS`](super::DEBUG_INFO_SECTIONS), empty where there is none. `None` if there is no tokio, the processor is not one of 64 bits that the engine follows
/// tasks on, or the debug information is of a form that this version does not read: it reads what rustc makes, DWARF 4 and 5 in the program's own file or beside it.
pub fn tasks<'a>(input: &Input<'_>, section: impl Fn(&str) -> &'a [u8]) -> Option<Vec<u8>> {
    if !marks_frame_pointers(input.arch.machine()) {
        return None;
    }
    if !names_tasks(section(TASK_NAMES)) {
        return None;
    }
    let mut information = Information::of(section);
    // As many as there are bytes of anything: few entries have one.
    let mut found = Found { long_names: information.bytes, ..Found::default() };
    let mut units = information.units();
    while let Ok(Some(unit)) = units.next() {
        found.read(&mut information, &unit);
    }
    let Found { wakers, fields, named, links, code, .. } = found;
    let base = input.image_base.0;
    let place = |start: Svma, end: Svma| {
        let is_code = |text: &&Range<u64>| text.contains(&start.0) && start.0 < end.0 && end.0 <= text.end;
        input.text.iter().find(is_code)?;
        Some((u32::try_from(start.0.checked_sub(base)?).ok()?, u32::try_from(end.0 - start.0).ok()?))
    };
    let mut functions = Vec::new();
    for (mut of, start, end) in code {
        for _ in 0..MOST_LINKS {
            match (named.get(&of), links.get(&of)) {
                (Some((future, is_entry)), _) => {
                    functions.extend(
                        place(start, end).map(|(start, size)| [start, size, future << 1 | u32::from(*is_entry)]),
                    );
                    break;
                }
                (None, Some(next)) => of = *next,
                (None, None) => break,
            }
        }
    }
    let has_entries = functions.iter().any(|[_, _, kind]| kind & 1 == 1);
    functions.sort_unstable();
    // Functions of one form may have one code.
    functions.dedup_by(|next, last| next[0].wrapping_sub(last[0]) < last[1]);
    let TaskFields { state, vtable, poll, trailer_offset, waker_data, waker_table } = fields.known()?;
    let wakers = wakers?.0.checked_sub(base)?;
    let head: [u32; HEAD_WORDS] =
        [wakers as u32, (wakers >> 32) as u32, state, vtable, poll, trailer_offset, waker_data, waker_table];
    let words = head.iter().chain(functions.iter().flatten());
    has_entries.then(|| words.flat_map(|word| word.to_le_bytes()).collect())
}

impl<'a> Found<'a> {
    fn read(&mut self, information: &mut Information<'a>, unit: &UnitHeader<Reader<'a>>) {
        // Names of the modules and types around an entry, and how deep they are.
        let mut around: Vec<(isize, &'a [u8])> = Vec::new();
        let mut structure = (0, Structure::Other);
        let base = unit.offset().0;
        information.entries(unit, |entry, of| {
            let name = |entry: &Entry<'a>, longest| of.name(entry, longest);
            let depth = entry.depth();
            while around.last().is_some_and(|(at, _)| *at >= depth) {
                around.pop();
            }
            if depth <= structure.0 {
                structure = (0, Structure::Other);
            }
            let modules = || around.iter().map(|(_, name)| *name);
            match entry.tag() {
                gimli::DW_TAG_namespace => around.push((depth, name(entry, SHORT).unwrap_or_default())),
                gimli::DW_TAG_structure_type if around.len() >= TASK.len() => {
                    let is_task = modules().take(3).eq(TASK) && around.len() == 4;
                    let kind = match (modules().nth(3), name(entry, SHORT)) {
                        (Some(b"core"), Some(b"Header")) if is_task => Structure::Header,
                        (Some(b"core"), Some(b"Trailer")) if is_task => Structure::Trailer,
                        (Some(b"raw"), Some(b"Vtable")) if is_task => Structure::Vtable,
                        // `Harness<T, S>`, whose name is long; the functions of nothing else there poll.
                        (Some(b"harness"), _) if is_task => Structure::Harness,
                        (None, Some(b"RawWaker")) if modules().eq(WAKE) => Structure::RawWaker,
                        _ => return,
                    };
                    structure = (depth, kind);
                }
                gimli::DW_TAG_member if depth == structure.0 + 1 && structure.1 != Structure::Other => {
                    if let (Some(field), Some(at)) =
                        (name(entry, SHORT), entry.attr_value(gimli::DW_AT_data_member_location))
                        && let Some(at) = at.udata_value().and_then(|at| u32::try_from(at).ok())
                    {
                        self.fields.note(structure.1, field, at);
                    }
                }
                gimli::DW_TAG_variable
                    if self.wakers.is_none()
                        && modules().take(3).eq(TASK)
                        && modules().skip(3).eq([b"waker"])
                        && name(entry, SHORT) == Some(WAKERS) =>
                {
                    self.wakers = static_address(entry, of);
                }
                gimli::DW_TAG_subprogram => {
                    let is_task = around.len() == 4 && modules().take(3).eq(TASK);
                    let is_raw = is_task && modules().nth(3) == Some(b"raw");
                    let is_harness = is_task && depth == structure.0 + 1 && structure.1 == Structure::Harness;
                    let at = base.saturating_add(entry.offset().0);
                    if (is_raw || is_harness) && entry.attr_value(gimli::DW_AT_name).is_some() {
                        let name = name(entry, LONG.min(self.long_names));
                        self.long_names = self.long_names.saturating_sub(name.map_or(LONG, <[u8]>::len));
                        if let Some(name) = name {
                            self.name_function(at, name, is_raw);
                        }
                    }
                    self.note_function(at, base, entry, of);
                }
                _ => {}
            }
        });
    }

    /// A function of `RawTask`'s module or of a `Harness`.
    fn name_function(&mut self, at: usize, name: &'a [u8], is_raw: bool) {
        let Some(split) = name.iter().position(|byte| *byte == b'<') else { return };
        let (function, types) = name.split_at(split);
        let polls = function == b"poll" || (!is_raw && function == b"poll_inner");
        if polls && self.named.len() < MOST_FUNCTIONS {
            let next = self.futures.len() as u32;
            let future = *self.futures.entry(types).or_insert(next);
            self.named.insert(at, (future, is_raw));
        }
    }

    /// Where a function has its code, or what it is of without any.
    fn note_function(&mut self, at: usize, base: usize, entry: &Entry<'a>, unit: &UnitContext<'a>) {
        let of = [gimli::DW_AT_specification, gimli::DW_AT_abstract_origin];
        let of = of.into_iter().find_map(|attribute| match entry.attr_value(attribute)? {
            AttributeValue::UnitRef(offset) => Some(base.saturating_add(offset.0)),
            AttributeValue::DebugInfoRef(offset) => Some(offset.0),
            _ => None,
        });
        let start = entry.attr_value(gimli::DW_AT_low_pc).and_then(|start| unit.address(start));
        let end = start.and_then(|start| {
            let end = entry.attr_value(gimli::DW_AT_high_pc)?;
            unit.address(end).or_else(|| start.checked_add(end.udata_value()?))
        });
        match (start, end, of) {
            (Some(start), Some(end), of) if of.is_some() || self.named.contains_key(&at) => {
                self.code.push((of.unwrap_or(at), Svma(start), Svma(end)));
            }
            (None, _, Some(of)) => drop(self.links.insert(at, of)),
            _ => {}
        }
    }
}

/// The address of a variable that is always in the same place.
fn static_address<'a>(entry: &Entry<'a>, unit: &UnitContext<'a>) -> Option<Svma> {
    let AttributeValue::Exprloc(location) = entry.attr_value(gimli::DW_AT_location)? else { return None };
    let mut operations = location.operations(unit.encoding);
    match (operations.next().ok()??, operations.next().ok()?) {
        (Operation::Address { address }, None) => Some(Svma(address)),
        (Operation::AddressIndex { index }, None) => unit.address_of(index).map(Svma),
        _ => None,
    }
}
