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

/// How a program ended, if not in damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// At its last instruction, or where the rows' taker broke off.
    Done,
    /// Before an instruction that adds to the table of files, which only DWARF before version 5 has, and no compiler writes.
    DefinesFile,
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
/// one of the two highest addresses, or lies before an address that the sequence had already.
pub(super) fn run(
    header: &LineProgramHeader<Slice<'_>>,
    is_little_endian: bool,
    mut take: impl FnMut(&Row) -> ControlFlow<()>,
) -> Result<End> {
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
    let program = header.raw_program_buf();
    let mut cursor = Cursor::new(program.slice(), is_little_endian);
    while cursor.remaining() > 0 {
        let opcode = cursor.u8()?;
        let is_row = if opcode == 0 {
            let length = usize::try_from(cursor.uleb()?).map_err(|_| Damaged)?;
            let mut rest = Cursor::new(cursor.bytes(length)?, is_little_endian);
            let opcode = gimli::DwLne(rest.u8()?);
            if opcode == gimli::DW_LNE_define_file && header.version() <= 4 {
                return Ok(End::DefinesFile);
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
                return Ok(End::Done);
            }
            if machine.row.end_sequence {
                (machine.row, machine.op_index, machine.is_tombstone) = (INITIAL, 0, false);
            }
        }
    }
    Ok(End::Done)
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
