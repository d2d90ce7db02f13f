//! The state machine of line tables: instructions to rows. (DWARF 5, 6.2.2 and 6.2.5)
//!
//! Half of what reading debug information takes is spent here, so that it runs on plain bytes, and keeps only the registers
//! that are asked for. What it gives for a program is what gimli gives.

use super::sections::Slice;
use crate::cursor::{Cursor, Damaged, Result};
use gimli::LineProgramHeader;
use std::ops::ControlFlow;

/// A row, as far as it is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) address: u64,
    pub(super) file: u64,
    /// 0 = none.
    pub(super) line: u64,
    /// 0 = none.
    pub(super) column: u64,
    pub(super) end_sequence: bool,
}

/// A file that an instruction adds to the table, which only DWARF before version 5 has, and no usual compiler writes. (DWARF 4, 6.2.5.3)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DefinedFile<'s> {
    pub(super) name: &'s [u8],
    /// The number of its directory.
    pub(super) directory: u64,
}

/// Registers, and what the header says of the instructions.
struct Machine {
    row: Row,
    op_index: u64,
    /// The linker dropped the code of this sequence.
    is_tombstone: bool,
    least_length: u64,
    operations: u64,
    line_base: i64,
    line_range: u8,
    opcode_base: u8,
    /// The highest address; those from the one below it on are the linker's marks.
    highest: u64,
}

const INITIAL: Row = Row { address: 0, file: 1, line: 1, column: 0, end_sequence: false };

/// Runs a program and gives its rows to `take`. Of sequences whose code the linker dropped it gives none: whose start is
/// one of the two highest addresses, or lies before an address that the sequence had already. It returns how many of these there are.
pub(super) fn run(
    header: &LineProgramHeader<Slice<'_>>,
    is_little_endian: bool,
    take: impl FnMut(&Row) -> ControlFlow<()>,
) -> Result<u64> {
    run_whole(header, is_little_endian, take, |_| {})
}

/// The files that a program adds to those of its header, in their order; up to where it is damaged.
pub(super) fn defined_files<'s>(header: &LineProgramHeader<Slice<'s>>, is_little_endian: bool) -> Vec<DefinedFile<'s>> {
    let mut files = Vec::new();
    // What was found before the damage holds, as rows do.
    let _ = run_whole(header, is_little_endian, |_| ControlFlow::Continue(()), |file| files.push(file));
    files
}

fn run_whole<'s>(
    header: &LineProgramHeader<Slice<'s>>,
    is_little_endian: bool,
    mut take: impl FnMut(&Row) -> ControlFlow<()>,
    mut define: impl FnMut(DefinedFile<'s>),
) -> Result<u64> {
    let address_size = header.address_size();
    let highest = match address_size {
        1 | 2 | 4 | 8 => u64::MAX >> (64 - 8 * u32::from(address_size)),
        _ => return Err(Damaged),
    };
    let mut machine = Machine {
        row: INITIAL,
        op_index: 0,
        is_tombstone: false,
        least_length: header.minimum_instruction_length().into(),
        operations: header.maximum_operations_per_instruction().into(),
        line_base: header.line_base().into(),
        line_range: header.line_range(),
        opcode_base: header.opcode_base(),
        highest,
    };
    let mut dropped = 0_u64;
    let program = header.raw_program_buf();
    let mut cursor = Cursor::new(program.slice(), is_little_endian);
    while cursor.remaining() > 0 {
        let opcode = cursor.u8()?;
        let is_row = if opcode == 0 {
            let length = usize::try_from(cursor.uleb()?).map_err(|_| Damaged)?;
            let mut rest = Cursor::new(cursor.bytes(length)?, is_little_endian);
            let opcode = gimli::DwLne(rest.u8()?);
            if opcode == gimli::DW_LNE_define_file && header.version() <= 4 {
                define(defined_file(&mut rest)?);
                continue;
            }
            machine.extended(opcode, &mut rest, address_size)?
        } else if opcode >= machine.opcode_base {
            machine.special(opcode)?;
            true
        } else {
            machine.standard(opcode, &mut cursor, header)?
        };
        if is_row {
            if !machine.is_tombstone && take(&machine.row).is_break() {
                return Ok(dropped);
            }
            if machine.row.end_sequence {
                dropped += u64::from(machine.is_tombstone);
                (machine.row, machine.op_index, machine.is_tombstone) = (INITIAL, 0, false);
            }
        }
    }
    Ok(dropped)
}

fn defined_file<'s>(rest: &mut Cursor<'s>) -> Result<DefinedFile<'s>> {
    let (name, directory) = (rest.text()?, rest.uleb()?);
    // The time of its last change, and its size.
    rest.two_ulebs()?;
    Ok(DefinedFile { name, directory })
}

impl Machine {
    #[inline]
    fn special(&mut self, opcode: u8) -> Result<()> {
        let adjusted = opcode - self.opcode_base;
        let (operations, line) = self.divided(adjusted)?;
        self.advance_line(self.line_base + i64::from(line));
        self.advance(operations.into())
    }

    /// A special opcode's operation advance, and its part of the line advance.
    #[inline]
    fn divided(&self, adjusted: u8) -> Result<(u8, u8)> {
        let quotient = adjusted.checked_div(self.line_range).ok_or(Damaged)?;
        Ok((quotient, adjusted - quotient * self.line_range))
    }

    /// Whether the instruction gives a row.
    #[inline]
    fn standard(&mut self, opcode: u8, cursor: &mut Cursor<'_>, header: &LineProgramHeader<Slice<'_>>) -> Result<bool> {
        match gimli::DwLns(opcode) {
            gimli::DW_LNS_copy => return Ok(true),
            gimli::DW_LNS_advance_pc => {
                let operations = cursor.uleb()?;
                self.advance(operations)?;
            }
            gimli::DW_LNS_advance_line => {
                let lines = cursor.sleb()?;
                self.advance_line(lines);
            }
            gimli::DW_LNS_set_file => self.row.file = cursor.uleb()?,
            gimli::DW_LNS_set_column => self.row.column = cursor.uleb()?,
            gimli::DW_LNS_const_add_pc => {
                let (operations, _) = self.divided(u8::MAX - self.opcode_base)?;
                self.advance(operations.into())?;
            }
            gimli::DW_LNS_fixed_advance_pc => {
                let bytes = cursor.unsigned(2)?;
                if !self.is_tombstone {
                    self.add(bytes)?;
                    self.op_index = 0;
                }
            }
            gimli::DW_LNS_set_isa => cursor.skip_uleb()?,
            gimli::DW_LNS_negate_stmt
            | gimli::DW_LNS_set_basic_block
            | gimli::DW_LNS_set_prologue_end
            | gimli::DW_LNS_set_epilogue_begin => {}
            _ => {
                let lengths = header.standard_opcode_lengths();
                let arguments = lengths.slice().get(usize::from(opcode) - 1).ok_or(Damaged)?;
                for _ in 0..*arguments {
                    cursor.skip_uleb()?;
                }
            }
        }
        Ok(false)
    }

    /// Whether the instruction gives a row.
    fn extended(&mut self, opcode: gimli::DwLne, rest: &mut Cursor<'_>, address_size: u8) -> Result<bool> {
        match opcode {
            gimli::DW_LNE_end_sequence => {
                self.row.end_sequence = true;
                return Ok(true);
            }
            gimli::DW_LNE_set_address => {
                let address = rest.unsigned(address_size)?;
                self.is_tombstone = address < self.row.address || address >= self.highest - 1;
                if !self.is_tombstone {
                    self.row.address = address;
                    self.op_index = 0;
                }
            }
            gimli::DW_LNE_set_discriminator => rest.skip_uleb()?,
            _ => {}
        }
        Ok(false)
    }

    #[inline]
    fn advance_line(&mut self, lines: i64) {
        self.row.line = match u64::try_from(lines) {
            Ok(more) => self.row.line.wrapping_add(more),
            Err(_) => self.row.line.saturating_sub(lines.unsigned_abs()),
        };
    }

    #[inline]
    fn advance(&mut self, operations: u64) -> Result<()> {
        if self.is_tombstone {
            return Ok(());
        }
        let instructions = if self.operations == 1 {
            self.op_index = 0;
            operations
        } else {
            let index = self.op_index.wrapping_add(operations);
            self.op_index = index.checked_rem(self.operations).ok_or(Damaged)?;
            index / self.operations
        };
        self.add(self.least_length.wrapping_mul(instructions))
    }

    #[inline]
    fn add(&mut self, bytes: u64) -> Result<()> {
        let address = self.row.address.checked_add(bytes).filter(|address| *address <= self.highest);
        self.row.address = address.ok_or(Damaged)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gimli::{ColumnType, DebugLine, DebugLineOffset, EndianSlice, RunTimeEndian};

    type Rows = (Vec<(u64, u64, u64, u64, bool)>, bool);

    /// What the instructions are read with.
    #[derive(Clone, Copy, Debug)]
    struct Setting {
        address_size: u8,
        least_length: u8,
        operations: u8,
        opcode_base: u8,
        line_range: u8,
    }

    /// A line table of version 4 with one file.
    fn table(setting: Setting, program: &[u8]) -> Vec<u8> {
        let Setting { least_length, operations, opcode_base, line_range, .. } = setting;
        let mut header = vec![least_length, operations, 1, 0xfb, line_range, opcode_base];
        let lengths = [0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 2, 0];
        header.extend(lengths.into_iter().take(usize::from(opcode_base).saturating_sub(1)));
        header.extend(b"\0a\0\0\0\0\0");
        let mut rest = 4_u16.to_le_bytes().to_vec();
        rest.extend((header.len() as u32).to_le_bytes());
        rest.extend(header);
        rest.extend(program);
        [&(rest.len() as u32).to_le_bytes()[..], &rest].concat()
    }

    type Defined = Vec<(Vec<u8>, u64)>;

    /// Files that both readers find added, which must be the same, after rows that both find, and whether these came to their end.
    fn both(setting: Setting, program: &[u8]) -> (Rows, Rows, Defined) {
        let (bytes, program_bytes) = (table(setting, program), program);
        let lines = DebugLine::from(EndianSlice::new(&bytes, RunTimeEndian::Little));
        let program = lines.program(DebugLineOffset(0), setting.address_size, None, None).expect("a header");
        let mut ours = Vec::new();
        let end = run(program.header(), true, |row| {
            ours.push((row.address, row.file, row.line, row.column, row.end_sequence));
            ControlFlow::Continue(())
        });
        let mut theirs = Vec::new();
        let mut rows = program.rows();
        let is_sound = loop {
            match rows.next_row() {
                Ok(Some((_, row))) => {
                    let column = match row.column() {
                        ColumnType::LeftEdge => 0,
                        ColumnType::Column(column) => column.get(),
                    };
                    let line = row.line().map_or(0, |line| line.get());
                    theirs.push((row.address(), row.file_index(), line, column, row.end_sequence()));
                }
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        let defined = defined_files(rows.header(), true);
        let defined: Defined = defined.iter().map(|file| (file.name.to_vec(), file.directory)).collect();
        // One file is the header's; gimli keeps what is defined behind it.
        let kept = rows.header().file_names().iter().skip(1);
        let kept: Defined = kept
            .map(|file| match file.path_name() {
                gimli::AttributeValue::String(name) => (name.slice().to_vec(), file.directory_index()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(defined, kept, "{program_bytes:x?}");
        ((ours, end.is_ok()), (theirs, is_sound), defined)
    }

    /// xorshift64* (Vigna 2016)
    fn chance(state: &mut u64) -> u64 {
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// An instruction, more often a sensible one than not.
    fn instruction(state: &mut u64, address_size: u8, out: &mut Vec<u8>) {
        let any = chance(state);
        match any % 16 {
            0 => {
                let high = if any & 0x100 == 0 { 0 } else { u64::MAX << 3 };
                let address = (any >> 40 | high).to_le_bytes();
                out.extend([0, address_size + 1, 2]);
                out.extend(address.into_iter().take(address_size.into()));
            }
            1 => out.extend([0, 1, 1]),
            2 => out.extend([0, 2, 4, (any >> 8) as u8 & 0x7f]),
            3 if any & 0x100 == 0 => out.extend([0, (any >> 8) as u8 & 3, (any >> 16) as u8, 5, 6]),
            // Sometimes too short.
            3 => out.extend([0, 6 + (any >> 16) as u8 % 3, 3, b'b', b'c', 0, (any >> 24) as u8 & 3, 0, 0]),
            4..=10 => out.push((any >> 8) as u8 | 0x20),
            11..=13 => out.extend([(any >> 8) as u8 % 14, (any >> 16) as u8, (any >> 24) as u8]),
            _ => out.push((any >> 8) as u8),
        }
    }

    #[test]
    fn every_program_gives_the_rows_that_gimli_gives() {
        let (mut state, mut rows, mut sound, mut damaged, mut files) = (7, 0, 0, 0, 0);
        for round in 0..20_000_usize {
            let setting = Setting {
                address_size: [8, 4, 2][round % 3],
                least_length: [1, 4][round / 3 % 2],
                operations: [1, 1, 3][round / 6 % 3],
                opcode_base: [13, 10, 14, 1][round / 18 % 4],
                line_range: [14, 1, 255][round / 72 % 3],
            };
            let mut program = Vec::new();
            (0..round % 40).for_each(|_| instruction(&mut state, setting.address_size, &mut program));
            let (ours, theirs, defined) = both(setting, &program);
            assert_eq!(ours, theirs, "{setting:?} {program:x?}");
            rows += ours.0.len();
            files += defined.len();
            *(if ours.1 { &mut sound } else { &mut damaged }) += 1;
        }
        assert!(rows > 50_000 && sound > 1_000 && damaged > 1_000, "{rows} rows, {sound} sound, {damaged} damaged");
        assert!(files > 1_000, "{files} files");
    }

    #[test]
    fn files_that_a_program_adds_are_found_up_to_its_damage() {
        let setting = Setting { address_size: 8, least_length: 1, operations: 1, opcode_base: 13, line_range: 14 };
        let file = [0, 6, 3, b'b', 0, 2, 0, 0];
        let (rows, _, defined) = both(setting, &[&[1][..], &file, &[1], &file, &[0, 3, 3, b'c', 0]].concat());
        assert_eq!((rows.0.len(), rows.1), (2, false));
        assert_eq!(defined, [(b"b".to_vec(), 2), (b"b".to_vec(), 2)]);
    }
}
