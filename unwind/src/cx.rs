//! Programs: CFA expressions that no plain rule covers, as a tiny stack machine. At most [`MAX_STEPS`] steps and
//! [`MAX_DEPTH`] values, no jumps: it always ends.

use core::fmt;

use crate::arch::{Arch, Machine};

/// Most operations in a program.
pub(crate) const MAX_STEPS: usize = 32;
/// Most values on the stack.
pub(crate) const MAX_DEPTH: usize = 8;

/// One operation of a program. The number is the byte in the file; operands follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// 0: the top value is the result.
    End,
    /// 1, u8: push a register by DWARF number, or the program counter.
    Register(u8),
    /// 2, i64: push a constant.
    Constant(i64),
    /// 3: second + top, wrapping.
    Add,
    /// 4: second − top, wrapping.
    Subtract,
    /// 5: second & top.
    And,
    /// 6: second << top; 0 from 64 on.
    ShiftLeft,
    /// 7: 1 where second ≥ top, both signed; else 0.
    GreaterOrEqual,
    /// 8: the word at the address on top.
    Deref,
}

impl Operation {
    /// What it does, such as `push rsp`, with the processor's names of registers.
    pub fn display(self, arch: Arch) -> impl fmt::Display {
        core::fmt::from_fn(move |f| match self {
            Self::End => f.write_str("the result is on top"),
            Self::Register(number) if number == arch.machine().pc => f.write_str("push pc"),
            Self::Register(number) => write!(f, "push {}", arch.machine().name(number)),
            Self::Constant(value) => write!(f, "push {value}"),
            Self::Add => f.write_str("add"),
            Self::Subtract => f.write_str("subtract"),
            Self::And => f.write_str("and"),
            Self::ShiftLeft => f.write_str("shift left"),
            Self::GreaterOrEqual => f.write_str("greater or equal"),
            Self::Deref => f.write_str("read the word there"),
        })
    }
}

/// Reads the operation at the front of `bytes`, and how many bytes it has.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Operation, usize)> {
    Some(match bytes.first()? {
        0 => (Operation::End, 1),
        1 => (Operation::Register(*bytes.get(1)?), 2),
        2 => (Operation::Constant(i64::from_le_bytes(*bytes.get(1..)?.first_chunk::<8>()?)), 9),
        3 => (Operation::Add, 1),
        4 => (Operation::Subtract, 1),
        5 => (Operation::And, 1),
        6 => (Operation::ShiftLeft, 1),
        7 => (Operation::GreaterOrEqual, 1),
        8 => (Operation::Deref, 1),
        _ => return None,
    })
}

/// Appends `op` in its file form.
#[cfg(any(feature = "compile-elf", test))]
pub(crate) fn encode(op: Operation, out: &mut alloc::vec::Vec<u8>) {
    match op {
        Operation::End => out.push(0),
        Operation::Register(number) => out.extend([1, number]),
        Operation::Constant(value) => {
            out.push(2);
            out.extend(value.to_le_bytes());
        }
        Operation::Add => out.push(3),
        Operation::Subtract => out.push(4),
        Operation::And => out.push(5),
        Operation::ShiftLeft => out.push(6),
        Operation::GreaterOrEqual => out.push(7),
        Operation::Deref => out.push(8),
    }
}

/// Why a program gave no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The bytes are no program.
    Malformed,
    /// A register's value is not known.
    Register,
    /// A word of memory is not known.
    Memory,
}

/// Runs the program at the front of `bytes`.
pub(crate) fn evaluate(
    mut bytes: &[u8],
    mut register: impl FnMut(u8) -> Option<u64>,
    mut memory: impl FnMut(u64) -> Option<u64>,
) -> Result<u64, Failure> {
    let mut stack = [0u64; MAX_DEPTH];
    let mut depth = 0usize;
    #[allow(clippy::explicit_counter_loop, reason = "operations pop as well")]
    for _ in 0..MAX_STEPS {
        let (op, length) = decode(bytes).ok_or(Failure::Malformed)?;
        bytes = bytes.get(length..).unwrap_or_default();
        let mut pop = || {
            depth = depth.checked_sub(1)?;
            stack.get(depth).copied()
        };
        let value = match op {
            Operation::End => return pop().ok_or(Failure::Malformed),
            Operation::Register(number) => register(number).ok_or(Failure::Register)?,
            Operation::Constant(value) => value as u64,
            Operation::Deref => memory(pop().ok_or(Failure::Malformed)?).ok_or(Failure::Memory)?,
            Operation::Add
            | Operation::Subtract
            | Operation::And
            | Operation::ShiftLeft
            | Operation::GreaterOrEqual => {
                let (Some(top), Some(second)) = (pop(), pop()) else { return Err(Failure::Malformed) };
                match op {
                    Operation::Add => second.wrapping_add(top),
                    Operation::Subtract => second.wrapping_sub(top),
                    Operation::And => second & top,
                    Operation::ShiftLeft => u32::try_from(top).ok().and_then(|by| second.checked_shl(by)).unwrap_or(0),
                    _ => u64::from(second as i64 >= top as i64),
                }
            }
        };
        *stack.get_mut(depth).ok_or(Failure::Malformed)? = value;
        depth += 1;
    }
    Err(Failure::Malformed)
}

/// Whether the bytes at the front of `bytes` are a program for `machine` that ends with a value. There are no jumps, so that a
/// run with any values shows it.
pub(crate) fn is_valid(bytes: &[u8], machine: &Machine) -> bool {
    let register = |number| (usize::from(number) < machine.registers || number == machine.pc).then_some(0);
    evaluate(bytes, register, |_| Some(0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn check(ops: &[Operation], expected: Result<u64, Failure>) {
        let mut bytes = Vec::new();
        ops.iter().for_each(|op| encode(*op, &mut bytes));
        let register = |number| (number != 9).then(|| u64::from(number) * 0x100);
        let memory = |address| (address != 0).then(|| address + 1);
        assert_eq!(evaluate(&bytes, register, memory), expected, "{ops:?}");
    }

    #[test]
    fn programs_compute_what_their_operations_say() {
        use Operation::{Add, And, Constant, Deref, End, GreaterOrEqual, Register, ShiftLeft, Subtract};
        check(&[Constant(7), End], Ok(7));
        check(&[Register(7), Constant(-8), Add, Deref, End], Ok(0x6f9));
        check(&[Constant(1), Constant(2), Subtract, End], Ok(u64::MAX));
        check(&[Constant(-1), Constant(0), GreaterOrEqual, Constant(3), ShiftLeft, End], Ok(0));
        check(&[Constant(1), Constant(64), ShiftLeft, End], Ok(0));
        check(&[Constant(6), Constant(3), And, End], Ok(2));
        check(&[Register(9), End], Err(Failure::Register));
        check(&[Constant(0), Deref, End], Err(Failure::Memory));
    }

    #[test]
    fn programs_that_would_not_end_well_are_refused() {
        use Operation::{Add, Constant, End};
        check(&[End], Err(Failure::Malformed));
        check(&[Constant(1), Add, End], Err(Failure::Malformed));
        check(&[Constant(1); 9], Err(Failure::Malformed));
        check(&[], Err(Failure::Malformed));
        let is_valid = |bytes: &[u8], arch: crate::Arch| super::is_valid(bytes, arch.machine());
        assert!(!is_valid(&[99], crate::Arch::X86_64));
        for (arch, last, pc) in [(crate::Arch::X86_64, 15, 16), (crate::Arch::Mips32, 31, 37)] {
            assert!(is_valid(&[1, last, 0], arch) && is_valid(&[1, pc, 0], arch) && !is_valid(&[1, pc + 1, 0], arch));
        }
    }
}
