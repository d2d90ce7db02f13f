//! A CFA that is said to be another register's, after an expression had told it.
//!
//! DWARF 5 (section 6.4.2.2) calls `DW_CFA_def_cfa_register` and `DW_CFA_def_cfa_offset` valid only where the CFA is a register and an offset. Assembly
//! writes them behind an expression all the same: once the stack pointer is back, the CFA is as far from it as it was before. libgcc's unwinder, gdb,
//! libunwind and LLVM's keep register and offset beside the expression, and take the offset from there; an offset alone does not end the expression.

use alloc::vec::Vec;

use gimli::CallFrameInstruction as Instruction;
use gimli::{BaseAddresses, CallFrameInstructionIter, Register};

use super::eval::MAX_REMEMBERED;
use super::fdes::{CfiSection, Fde, Reader};

/// Where such rules hold.
pub(super) struct KeptOffset {
    /// From each address on: the CFA's register and offset, or that the row is right. By address.
    changes: Vec<(u64, Option<(Register, i64)>)>,
}

#[derive(Clone, Copy)]
struct State {
    register: Option<Register>,
    offset: Option<i64>,
    is_expression: bool,
    /// It was an expression, and a register was given since.
    is_kept: bool,
}

impl KeptOffset {
    /// Runs the instructions of an entry as far as they tell the CFA; none where a register is given and no offset was before.
    pub(super) fn of<'a, S: CfiSection<'a>>(section: &S, bases: &BaseAddresses, fde: &Fde<'a>) -> Option<Self> {
        let cie = fde.cie();
        let factors = (cie.code_alignment_factor(), cie.data_alignment_factor());
        Self::run([cie.instructions(section, bases), fde.instructions(section, bases)], fde.initial_address(), factors)
    }

    /// The same for every section: instructions that are of use here need none of its conventions.
    #[inline(never)]
    fn run(
        instructions: [CallFrameInstructionIter<'_, Reader<'_>>; 2],
        mut address: u64,
        (code, data): (u64, i64),
    ) -> Option<Self> {
        let mut state = State { register: None, offset: None, is_expression: false, is_kept: false };
        let mut remembered = Vec::new();
        let mut changes = Vec::new();
        for mut instructions in instructions {
            // What cannot be read any more ends the entry's rows as well.
            while let Ok(Some(instruction)) = instructions.next() {
                match instruction {
                    Instruction::SetLoc { address: next } => address = next,
                    Instruction::AdvanceLoc { delta } => {
                        address = address.checked_add(u64::from(delta).checked_mul(code)?)?;
                    }
                    Instruction::DefCfa { register, offset } => {
                        state = State::new(register, i64::try_from(offset).ok()?)
                    }
                    Instruction::DefCfaSf { register, factored_offset } => {
                        state = State::new(register, factored_offset.checked_mul(data)?);
                    }
                    Instruction::DefCfaRegister { register } => {
                        state.offset?;
                        state.register = Some(register);
                        state.is_kept = state.is_expression;
                    }
                    Instruction::DefCfaOffset { offset } => state.offset = Some(i64::try_from(offset).ok()?),
                    Instruction::DefCfaOffsetSf { factored_offset } => {
                        state.offset = Some(factored_offset.checked_mul(data)?);
                    }
                    Instruction::DefCfaExpression { .. } => (state.is_expression, state.is_kept) = (true, false),
                    // More end the entry's rows as well.
                    Instruction::RememberState if remembered.len() >= MAX_REMEMBERED => return None,
                    Instruction::RememberState => remembered.push(state),
                    Instruction::RestoreState => state = remembered.pop()?,
                    _ => continue,
                }
                let rule = state.register.zip(state.offset).filter(|_| state.is_kept);
                match changes.last_mut() {
                    Some((at, last)) if *at == address => *last = rule,
                    Some((_, last)) if *last == rule => {}
                    _ => changes.push((address, rule)),
                }
            }
        }
        Some(Self { changes })
    }

    /// What the CFA of the row that begins here is, where the row itself has what was before.
    pub(super) fn at(&self, address: u64) -> Option<(Register, i64)> {
        let behind = self.changes.partition_point(|(start, _)| *start <= address);
        self.changes.get(behind.checked_sub(1)?)?.1
    }
}

impl State {
    fn new(register: Register, offset: i64) -> Self {
        Self { register: Some(register), offset: Some(offset), is_expression: false, is_kept: false }
    }
}
