//! Files of a unit's line table, by number. (DWARF 5, 6.2.4)

use super::sections::{DwarfSections, Slice};
use super::unit::Unit;
use crate::Checksum;
use crate::work::Work;
use gimli::{AttributeValue, DebugLine, DebugLineOffset, IncompleteLineProgram, LineProgramHeader};
use symseal_symx::StrId;

/// The line program of the unit, with its tables of directories and files.
pub(crate) fn program<'s>(unit: &Unit<'s>, work: &mut Work) -> Option<IncompleteLineProgram<Slice<'s>>> {
    let sections = unit.sections();
    let offset = usize::try_from(unit.root.line_offset?).ok()?;
    if offset >= sections.line.len() {
        return None;
    }
    let lines: DebugLine<_> = sections.slice(&sections.line).into();
    let comp_dir = sections.slice(unit.root.comp_dir);
    match lines.program(DebugLineOffset(offset), unit.header.encoding.address_size, Some(comp_dir), None) {
        Ok(program) => Some(program),
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

    pub(crate) fn path<'s>(
        &mut self,
        unit: &Unit<'s>,
        header: &LineProgramHeader<Slice<'s>>,
        number: u64,
        work: &mut Work,
    ) -> StrId {
        if let Some(known) = self.known(number) {
            return known;
        }
        // A number that the table does not have is not remembered either.
        let Some(path) = path(unit, header, number).map(|path| work.text(&path)) else { return StrId::EMPTY };
        work.source(path, checksum(header, number));
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
pub(super) fn path<'s>(unit: &Unit<'s>, header: &LineProgramHeader<Slice<'s>>, number: u64) -> Option<Vec<u8>> {
    Place { comp_dir: unit.root.comp_dir, text: &|value| text(unit, value) }.path(header, number)
}

/// What the names of a table are relative to, and where their texts stand.
pub(super) struct Place<'s, 't> {
    pub(super) comp_dir: &'s [u8],
    pub(super) text: &'t dyn Fn(AttributeValue<Slice<'s>>) -> Option<&'s [u8]>,
}

impl<'s> Place<'s, '_> {
    pub(super) fn path(&self, header: &LineProgramHeader<Slice<'s>>, number: u64) -> Option<Vec<u8>> {
        // Numbers count from 1 before DWARF 5, where 0 says "no file".
        if number == 0 && header.version() < 5 {
            return None;
        }
        let file = header.file(number)?;
        let name = (self.text)(file.path_name())?;
        let mut path = Vec::new();
        if !is_absolute(name) {
            let directory = header.directory(file.directory_index()).and_then(self.text);
            path = self.directory(directory.unwrap_or_default());
        }
        push(&mut path, name);
        Some(path)
    }

    pub(super) fn directory(&self, directory: &[u8]) -> Vec<u8> {
        let mut path = Vec::new();
        if !is_absolute(directory) {
            path.extend_from_slice(self.comp_dir);
        }
        // Directory 0 is the compilation directory itself before DWARF 5.
        if directory != self.comp_dir || is_absolute(directory) {
            push(&mut path, directory);
        }
        path
    }
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
