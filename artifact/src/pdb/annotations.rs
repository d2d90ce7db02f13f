//! Where an inlined function's code lies, and its lines: the annotations of `S_INLINESITE`. (`cvinfo.h` of
//! microsoft-pdb, "binary annotations")

use super::lines::Inlinee;
use pdb2::{BinaryAnnotation, BinaryAnnotations, FallibleIterator};

/// A stretch of an inlined function's code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InlineRow {
    /// Original relative addresses.
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Offset in the module's file checksums.
    pub(crate) file: u32,
    /// 0 = none.
    pub(crate) line: u32,
    /// 0 = none.
    pub(crate) column: u32,
}

/// An offset at which no file's checksum stands.
pub(super) const NO_FILE: u32 = u32::MAX;

/// Appends the stretches of one site; `function` is where the function starts that it is in. Damage ends the list.
pub(crate) fn rows(
    annotations: &BinaryAnnotations<'_>,
    inlinee: Option<Inlinee>,
    function: u32,
    out: &mut Vec<InlineRow>,
) {
    let mut at = function;
    let known = inlinee.unwrap_or(Inlinee { file: NO_FILE, line: 0 });
    let mut row = InlineRow { start: 0, end: 0, file: known.file, line: known.line, column: 0 };
    // The last row reaches up to the next one, unless its length is given.
    let mut is_open = false;
    let mut annotations = annotations.iter();
    while let Ok(Some(annotation)) = annotations.next() {
        let mut length = None;
        let moved = match annotation {
            BinaryAnnotation::CodeOffset(offset) => {
                at = function.wrapping_add(offset);
                false
            }
            BinaryAnnotation::ChangeCodeOffset(delta) => {
                at = at.wrapping_add(delta);
                true
            }
            BinaryAnnotation::ChangeCodeOffsetAndLineOffset(delta, lines) => {
                row.line = row.line.wrapping_add_signed(lines);
                at = at.wrapping_add(delta);
                true
            }
            BinaryAnnotation::ChangeCodeLengthAndCodeOffset(given, delta) => {
                length = Some(given);
                at = at.wrapping_add(delta);
                true
            }
            BinaryAnnotation::ChangeCodeLength(given) => {
                let behind = at.wrapping_add(given);
                if is_open && let Some(last) = out.last_mut() {
                    last.end = behind;
                }
                is_open = false;
                at = behind;
                false
            }
            BinaryAnnotation::ChangeFile(file) => {
                row.file = file.0;
                false
            }
            BinaryAnnotation::ChangeLineOffset(lines) => {
                row.line = row.line.wrapping_add_signed(lines);
                false
            }
            BinaryAnnotation::ChangeColumnStart(column) => {
                row.column = column;
                false
            }
            // Ends of lines and columns, kinds of ranges; and a base that no compiler writes.
            _ => false,
        };
        if moved {
            if is_open && let Some(last) = out.last_mut() {
                last.end = at;
            }
            is_open = length.is_none();
            let line = if inlinee.is_some() { row.line } else { 0 };
            out.push(InlineRow { start: at, end: length.map_or(at, |length| at.wrapping_add(length)), line, ..row });
        }
    }
}
