//! Files of a unit's line table, by number. (DWARF 5, 6.2.4)

use super::line_program::{self, DefinedFile};
use super::sections::{DwarfSections, Slice};
use super::unit::{NAME_OUTSIDE, Unit};
use crate::Checksum;
use crate::work::Work;
use gimli::{AttributeValue, DebugLine, DebugLineOffset, IncompleteLineProgram, LineProgramHeader};
use std::cell::OnceCell;
use symseal_symx::StrId;

/// What a look at a byte of a line program counts: what is found is kept, and takes up to four bytes for it.
const STEPS_PER_PROGRAM_BYTE: u64 = 8;

/// A line program, with its tables of directories and files.
pub(crate) struct Program<'s> {
    program: IncompleteLineProgram<Slice<'s>>,
    is_little_endian: bool,
    /// Once somebody asked for them.
    defined: OnceCell<Vec<DefinedFile<'s>>>,
}

impl<'s> Program<'s> {
    pub(super) fn new(program: IncompleteLineProgram<Slice<'s>>, is_little_endian: bool) -> Self {
        Self { program, is_little_endian, defined: OnceCell::new() }
    }

    pub(super) fn header(&self) -> &LineProgramHeader<Slice<'s>> {
        self.program.header()
    }

    /// The files that the program's instructions add to those of its header; the first has the number behind the header's last. To find them takes
    /// a look at each instruction, so that they are only looked for where the header's do not do.
    pub(super) fn defined(&self, work: &mut Work) -> &[DefinedFile<'s>] {
        let header = self.header();
        if header.version() > 4 {
            return &[];
        }
        self.defined.get_or_init(|| {
            let bytes = header.raw_program_buf().slice().len() as u64;
            match work.budget.charge(bytes.saturating_mul(STEPS_PER_PROGRAM_BYTE)) {
                Ok(()) => line_program::defined_files(header, self.is_little_endian),
                Err(_) => Vec::new(),
            }
        })
    }
}

/// The line program of the unit.
pub(crate) fn program<'s>(unit: &Unit<'s>, work: &mut Work) -> Option<Program<'s>> {
    let sections = unit.sections();
    // That the whole section is not there is told with the unit.
    let offset = unit.root.line_offset.filter(|_| !sections.line.is_empty())?;
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let lines: DebugLine<_> = sections.slice(&sections.line).into();
    let comp_dir = sections.slice(unit.root.comp_dir);
    match lines.program(DebugLineOffset(offset), unit.header.encoding.address_size, Some(comp_dir), None) {
        Ok(program) => Some(Program::new(program, sections.is_little_endian)),
        Err(_) => {
            work.skip("damaged line table header");
            None
        }
    }
}

/// Numbers of files to texts, each made once.
#[derive(Debug, Default)]
pub(crate) struct Files {
    known: Vec<Option<StrId>>,
}

impl Files {
    /// The text of a number that was asked for before.
    pub(crate) fn known(&self, number: u64) -> Option<StrId> {
        *self.known.get(usize::try_from(number).ok()?)?
    }

    /// Every text by another number.
    pub(crate) fn renumber(&mut self, mut text: impl FnMut(&mut StrId)) {
        self.known.iter_mut().flatten().for_each(&mut text);
    }

    pub(crate) fn path<'s>(&mut self, unit: &Unit<'s>, program: &Program<'s>, number: u64, work: &mut Work) -> StrId {
        if let Some(known) = self.known(number) {
            return known;
        }
        let path = if is_outside(unit, program.header(), number) {
            work.skip(NAME_OUTSIDE);
            StrId::EMPTY
        } else {
            // A number that the table does not have is not remembered.
            let Some(path) = path(unit, program, number, work) else { return StrId::EMPTY };
            let path = work.text(&path);
            work.source(path, checksum(program.header(), number));
            path
        };
        if let Ok(at) = usize::try_from(number) {
            if self.known.len() <= at {
                self.known.resize(at + 1, None);
            }
            if let Some(slot) = self.known.get_mut(at) {
                *slot = Some(path);
            }
        }
        path
    }
}

/// Compilation directory, include directory and file name, joined as far as they are relative.
pub(super) fn path<'s>(unit: &Unit<'s>, program: &Program<'s>, number: u64, work: &mut Work) -> Option<Vec<u8>> {
    Place { comp_dir: unit.root.comp_dir, text: &|value| text(unit, value) }.path(program, number, work)
}

/// What the names of a table are relative to, and where their texts stand.
pub(super) struct Place<'s, 't> {
    pub(super) comp_dir: &'s [u8],
    pub(super) text: &'t dyn Fn(AttributeValue<Slice<'s>>) -> Option<&'s [u8]>,
}

impl<'s> Place<'s, '_> {
    pub(super) fn path(&self, program: &Program<'s>, number: u64, work: &mut Work) -> Option<Vec<u8>> {
        let header = program.header();
        // Numbers count from 1 before DWARF 5, where 0 says "no file".
        if number == 0 && header.version() < 5 {
            return None;
        }
        if let Some(file) = header.file(number) {
            return Some(self.file(header, (self.text)(file.path_name())?, file.directory_index()));
        }
        let behind = number.checked_sub(header.file_names().len() as u64 + 1)?;
        let defined = program.defined(work).get(usize::try_from(behind).ok()?)?;
        Some(self.file(header, defined.name, defined.directory))
    }

    /// The path of a file of this name in the directory of this number.
    pub(super) fn file(&self, header: &LineProgramHeader<Slice<'s>>, name: &[u8], directory: u64) -> Vec<u8> {
        let mut path = Vec::new();
        if !is_absolute(name) {
            let text = header.directory(directory).and_then(self.text);
            path = self.directory(directory, text.unwrap_or_default());
        }
        push(&mut path, name);
        path
    }

    /// The path of the directory of this number and name.
    pub(super) fn directory(&self, number: u64, directory: &[u8]) -> Vec<u8> {
        let mut path = Vec::new();
        if !is_absolute(directory) {
            path.extend_from_slice(self.comp_dir);
        }
        // Directory 0 is the compilation directory itself; one of that name within it is another.
        if number != 0 || directory != self.comp_dir || is_absolute(directory) {
            push(&mut path, directory);
        }
        path
    }
}

/// Whether a file of the table, or its directory, has its name where there is no text. Without its directory it would be another file.
fn is_outside<'s>(unit: &Unit<'s>, header: &LineProgramHeader<Slice<'s>>, number: u64) -> bool {
    let Some(file) = header.file(number).filter(|_| number > 0 || header.version() >= 5) else { return false };
    let is_missing = |value| text(unit, value).is_none();
    is_missing(file.path_name()) || file.directory(header).is_some_and(is_missing)
}

/// A name that a unit has, behind its compilation directory where it is relative.
pub(super) fn joined(comp_dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = if is_absolute(name) { Vec::new() } else { comp_dir.to_vec() };
    push(&mut path, name);
    path
}

/// The MD5 of the file, where the table has one for each file. (DWARF 5, 6.2.4.1)
pub(super) fn checksum(header: &LineProgramHeader<Slice<'_>>, number: u64) -> Option<Checksum> {
    if !header.file_has_md5() {
        return None;
    }
    header.file(number).map(|file| Checksum::Md5(*file.md5()))
}

fn push(path: &mut Vec<u8>, part: &[u8]) {
    if part.is_empty() {
        return;
    }
    if !path.is_empty() && !path.ends_with(b"/") && !path.ends_with(b"\\") {
        let windows = path.get(1) == Some(&b':') && !path.contains(&b'/');
        path.push(if windows { b'\\' } else { b'/' });
    }
    path.extend_from_slice(part);
}

fn is_absolute(path: &[u8]) -> bool {
    matches!(path, [b'/' | b'\\', ..] | [_, b':', b'/' | b'\\', ..])
}

pub(super) fn text<'s>(unit: &Unit<'s>, value: AttributeValue<Slice<'s>>) -> Option<&'s [u8]> {
    use super::value::Value;
    match value {
        AttributeValue::String(text) => Some(text.slice()),
        AttributeValue::DebugStrRef(offset) => DwarfSections::text(&unit.sections().str, offset.0 as u64),
        AttributeValue::DebugLineStrRef(offset) => DwarfSections::text(&unit.sections().line_str, offset.0 as u64),
        AttributeValue::DebugStrOffsetsIndex(index) => unit.text(Value::StrIndex(index.0 as u64)),
        _ => None,
    }
}
