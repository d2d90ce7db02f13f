//! Line tables, file checksums and inlined functions' files of one module. (LLVM, "CodeView Line Numbers"; `cvinfo.h`
//! of microsoft-pdb)

use super::header::{u16_at, u32_at};
use crate::budget::Budget;
use crate::cursor::Result;
use pdb2::PdbInternalSectionOffset;
use std::collections::HashMap;

/// Kinds of subsections.
pub(super) mod kind {
    pub(crate) const LINES: u32 = 0xf2;
    pub(crate) const FILE_CHECKSUMS: u32 = 0xf4;
    pub(crate) const INLINEE_LINES: u32 = 0xf6;
    pub(crate) const CROSS_MODULE_IMPORTS: u32 = 0xf7;
    pub(crate) const CROSS_MODULE_EXPORTS: u32 = 0xf8;
}

/// The subsections of a module, each with its kind, as far as they lie in it.
pub(crate) fn subsections(bytes: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (kind, length) = (u32_at(rest, 0)?, usize::try_from(u32_at(rest, 4)?).ok()?);
        let content = rest.get(8..)?;
        let content = content.get(..length.min(content.len()))?;
        let behind = length.checked_next_multiple_of(4).and_then(|length| length.checked_add(8));
        rest = behind.and_then(|behind| rest.get(behind..)).unwrap_or_default();
        Some((kind, content))
    })
}

/// Whether each subsection has a kind and lies in the module to its end.
fn are_whole(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let (Some(kind), Some(length)) = (u32_at(rest, 0), u32_at(rest, 4)) {
        let behind = usize::try_from(length).ok().and_then(|length| length.checked_add(8));
        let Some(behind) = behind.filter(|behind| kind != 0 && *behind <= rest.len()) else { return false };
        rest = rest.get(behind.next_multiple_of(4)..).unwrap_or_default();
    }
    true
}

/// The files of a subsection of checksums: offset in the string table, kind and bytes of each one's checksum.
pub(super) fn files(content: &[u8]) -> impl Iterator<Item = (u32, u8, &[u8])> {
    let mut rest = content;
    std::iter::from_fn(move || {
        let entry = file(rest)?;
        let behind = (6 + entry.2.len()).next_multiple_of(4);
        rest = rest.get(behind..).unwrap_or_default();
        Some(entry)
    })
}

/// The entry at the beginning.
fn file(entry: &[u8]) -> Option<(u32, u8, &[u8])> {
    let (length, kind) = (usize::from(*entry.get(4)?), *entry.get(5)?);
    Some((u32_at(entry, 0)?, kind, entry.get(6..6 + length)?))
}

/// Columns follow the lines of a block.
const HAVE_COLUMNS: u16 = 1;
/// Inlined functions list further files each.
const HAVE_EXTRA_FILES: u32 = 1;

/// The line is in the lowest 24 bits.
const LINE: u32 = 0x00ff_ffff;
/// Lines that tell a debugger to step into what is called here, or not to stop: no line of any file.
const HIDDEN: [u32; 2] = [0xfe_efee, 0xf0_0f00];

/// A row of a line table, valid up to the next one or the end of its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LineRow {
    /// Original relative address.
    pub(crate) start: u32,
    /// Offset in the module's file checksums.
    pub(crate) file: u32,
    /// 0 = none.
    pub(crate) line: u32,
    /// 0 = none.
    pub(crate) column: u32,
}

/// The rows of one function, mostly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineBlock {
    pub(crate) start: u32,
    pub(crate) end: u32,
    first: usize,
    behind: usize,
}

/// Where an inlined function is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inlinee {
    pub(crate) file: u32,
    pub(crate) line: u32,
}

/// What a module's line information says; buffers are kept from module to module.
#[derive(Debug, Default)]
pub(crate) struct ModuleLines {
    /// By start.
    blocks: Vec<LineBlock>,
    rows: Vec<LineRow>,
    pub(crate) inlinees: HashMap<u32, Inlinee>,
    /// Something of it cannot be what a compiler wrote.
    pub(crate) is_damaged: bool,
    checksums: Vec<u8>,
}

impl ModuleLines {
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
        self.rows.clear();
        self.inlinees.clear();
        self.checksums.clear();
        self.is_damaged = false;
    }

    /// Reads a module's subsections. Damage ends the subsection it is in.
    pub(crate) fn fill(
        &mut self,
        bytes: &[u8],
        original: &dyn Fn(PdbInternalSectionOffset) -> Option<u32>,
        budget: &mut Budget,
    ) -> Result<()> {
        self.clear();
        self.is_damaged = !are_whole(bytes);
        for (kind, content) in subsections(bytes) {
            budget.charge(content.len() as u64 / 8 + 1)?;
            match kind {
                kind::LINES => self.lines(content, original),
                kind::FILE_CHECKSUMS if self.checksums.is_empty() => self.checksums.extend_from_slice(content),
                kind::INLINEE_LINES => self.inlinees(content),
                _ => {}
            }
        }
        self.blocks.sort_by_key(|block| block.start);
        Ok(())
    }

    /// Rows of a contiguous piece of code, in blocks of one file each.
    fn lines(&mut self, content: &[u8], original: &dyn Fn(PdbInternalSectionOffset) -> Option<u32>) {
        let header = || Some((u32_at(content, 0)?, u16_at(content, 4)?, u16_at(content, 6)?, u32_at(content, 8)?));
        let Some((offset, section, flags, size)) = header() else {
            self.is_damaged = true;
            return;
        };
        let Some(start) = original(PdbInternalSectionOffset { offset, section }) else { return };
        let Some(end) = start.checked_add(size).filter(|end| *end > start) else { return };
        let first = self.rows.len();
        let mut rest = content.get(12..).unwrap_or_default();
        while let (Some(file), Some(count), Some(length)) = (u32_at(rest, 0), u32_at(rest, 4), u32_at(rest, 8)) {
            let (Ok(count), Ok(length)) = (usize::try_from(count), usize::try_from(length)) else { break };
            let Some(entries) = count.checked_mul(8).and_then(|length| rest.get(12..length.checked_add(12)?)) else {
                self.is_damaged = true;
                break;
            };
            let columns = if flags & HAVE_COLUMNS != 0 { rest.get(12 + entries.len()..) } else { None };
            let columns = columns
                .unwrap_or_default()
                .chunks_exact(4)
                .map(|entry| u16_at(entry, 0))
                .chain(std::iter::repeat(None));
            for (entry, column) in entries.chunks_exact(8).zip(columns) {
                let (Some(offset), Some(line)) = (u32_at(entry, 0), u32_at(entry, 4)) else { break };
                let Some(at) = start.checked_add(offset).filter(|at| *at < end) else { continue };
                let line = line & LINE;
                let is_hidden = HIDDEN.contains(&line);
                let row = LineRow {
                    start: at,
                    file,
                    line: if is_hidden { 0 } else { line },
                    column: column.filter(|_| !is_hidden).map_or(0, u32::from),
                };
                self.rows.push(row);
            }
            // A block that claims less than its header cannot be passed.
            let Some(next) = rest.get(length..).filter(|_| length >= 12) else {
                self.is_damaged = true;
                break;
            };
            rest = next;
        }
        let rows = self.rows.get_mut(first..).unwrap_or_default();
        // A file that is included in a function has a block of its own.
        if !rows.is_sorted_by_key(|row| row.start) {
            rows.sort_by_key(|row| row.start);
        }
        self.blocks.push(LineBlock { start, end, first, behind: self.rows.len() });
    }

    fn inlinees(&mut self, content: &[u8]) {
        let has_files = u32_at(content, 0) == Some(HAVE_EXTRA_FILES);
        let mut rest = content.get(4..).unwrap_or_default();
        while let (Some(id), Some(file), Some(line)) = (u32_at(rest, 0), u32_at(rest, 4), u32_at(rest, 8)) {
            self.inlinees.entry(id).or_insert(Inlinee { file, line });
            let mut next = 12_usize;
            if has_files {
                let count = u32_at(rest, 12).and_then(|count| usize::try_from(count).ok());
                let Some(length) = count.and_then(|count| count.checked_mul(4)?.checked_add(16)) else { return };
                next = length;
            }
            rest = rest.get(next..).unwrap_or_default();
        }
    }

    /// Offset in the string table, kind and bytes of the checksum of the file at this offset.
    pub(crate) fn file(&self, at: u32) -> Option<(u32, u8, &[u8])> {
        file(self.checksums.get(usize::try_from(at).ok()?..)?)
    }

    /// Blocks that overlap the range, by start.
    pub(crate) fn blocks_in(&self, start: u32, end: u32) -> impl Iterator<Item = &LineBlock> {
        // Blocks are functions: few overlap, and none reaches far.
        let behind = self.blocks.partition_point(|block| block.start < end);
        let first = self.blocks.partition_point(|block| block.start < start).saturating_sub(MOST_OVERLAPPING);
        self.blocks.get(first..behind).unwrap_or_default().iter().filter(move |block| block.end > start)
    }

    pub(crate) fn rows(&self, block: &LineBlock) -> &[LineRow] {
        self.rows.get(block.first..block.behind).unwrap_or_default()
    }

    pub(crate) fn blocks(&self) -> &[LineBlock] {
        &self.blocks
    }
}

/// A block that starts before a range and reaches into it is looked for among so many.
const MOST_OVERLAPPING: usize = 16;
