//! DWARF expressions as the operations of programs, and the forms among them that have a rule of their own.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use gimli::{Encoding, Expression, Operation};

use super::fdes::Reader;
use super::terms;
use crate::arch::Machine;
use crate::cx::{self, MAX_STEPS, Operation as Op};

/// The operations of `expression`, without the final [`Op::End`]; or what stands in the way.
pub(super) fn operations(
    expression: Expression<Reader<'_>>,
    encoding: Encoding,
    machine: &Machine,
) -> Result<Vec<Op>, String> {
    let mut ops = Vec::new();
    let mut iter = expression.operations(encoding);
    loop {
        let at = iter.offset_from(&expression);
        let operation = match iter.next() {
            Ok(Some(operation)) => operation,
            Ok(None) => return Ok(ops),
            Err(error) => return Err(format!("expression that cannot be read: {error}")),
        };
        match operation {
            Operation::RegisterOffset { register, offset, base_type } if base_type.0 == 0 => {
                let is_known = |number: &u8| usize::from(*number) < machine.registers || *number == machine.pc;
                let number = u8::try_from(register.0).ok().filter(is_known);
                ops.push(Op::Register(
                    number.ok_or_else(|| format!("expression with register {}", terms::register(machine, register)))?,
                ));
                if offset != 0 {
                    ops.extend([Op::Constant(offset), Op::Add]);
                }
            }
            Operation::UnsignedConstant { value } => ops.push(Op::Constant(value as i64)),
            Operation::SignedConstant { value } => ops.push(Op::Constant(value)),
            Operation::PlusConstant { value } => ops.extend([Op::Constant(value as i64), Op::Add]),
            Operation::Plus => ops.push(Op::Add),
            Operation::Minus => ops.push(Op::Subtract),
            Operation::And => ops.push(Op::And),
            Operation::Shl => ops.push(Op::ShiftLeft),
            Operation::Mul => ops = multiplied(&ops).ok_or("expression with DW_OP_mul of two values")?,
            Operation::Ge => ops.push(Op::GreaterOrEqual),
            Operation::Deref { base_type, size, space: false }
                if base_type.0 == 0 && i64::from(size) == machine.word =>
            {
                ops.push(Op::Deref);
            }
            Operation::Nop => {}
            _ => return Err(format!("expression with {}", terms::operation(&expression, at))),
        }
        if ops.len() >= MAX_STEPS {
            return Err(String::from("expression that is too long"));
        }
    }
}

/// `ops` with the product of the two values on top. Programs do not multiply, but they shift, and a factor that is a constant is a sum of powers
/// of two. `None` if no factor is one.
fn multiplied(ops: &[Op]) -> Option<Vec<Op>> {
    let (rest, top) = ops.split_at_checked(value_start(ops)?)?;
    let (rest, second) = rest.split_at_checked(value_start(rest)?)?;
    let (value, factor) = match (second, top) {
        (value, [Op::Constant(factor)]) | ([Op::Constant(factor)], value) => (value, *factor),
        _ => return None,
    };
    let mut product = Vec::from(rest);
    if factor < 0 {
        product.push(Op::Constant(0));
    }
    let bits = factor.unsigned_abs();
    let mut shifts = (0..i64::from(u64::BITS)).filter(|shift| bits >> shift & 1 == 1);
    let shifted = |shift| [Op::Constant(shift), Op::ShiftLeft];
    // Nothing is left of a value that is shifted out.
    product.extend(value.iter().copied().chain(shifted(shifts.next().unwrap_or(i64::from(u64::BITS)))));
    for shift in shifts {
        product.extend(value.iter().copied().chain(shifted(shift)).chain([Op::Add]));
    }
    if factor < 0 {
        product.push(Op::Subtract);
    }
    Some(product)
}

/// Where the operations begin that make the top value.
fn value_start(ops: &[Op]) -> Option<usize> {
    let mut wanted = 1usize;
    for (at, op) in ops.iter().enumerate().rev() {
        wanted = match op {
            Op::Register(_) | Op::Constant(_) => wanted.checked_sub(1)?,
            Op::Deref => wanted,
            Op::Add | Op::Subtract | Op::And | Op::ShiftLeft | Op::GreaterOrEqual => wanted.checked_add(1)?,
            Op::End => return None,
        };
        if wanted == 0 {
            return Some(at);
        }
    }
    None
}

/// The program of `ops` in its file form, if it is one that can be run.
pub(super) fn program(ops: &[Op], machine: &Machine) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    ops.iter().chain([&Op::End]).for_each(|op| cx::encode(*op, &mut bytes));
    cx::is_valid(&bytes, machine).then_some(bytes)
}

/// register + offset.
pub(super) fn as_address(ops: &[Op]) -> Option<(u8, i64)> {
    match ops {
        [Op::Register(register)] => Some((*register, 0)),
        [Op::Register(register), Op::Constant(offset), Op::Add] => Some((*register, *offset)),
        _ => None,
    }
}

/// *(register + offset).
pub(super) fn as_deref(ops: &[Op]) -> Option<(u8, i64)> {
    match ops {
        [address @ .., Op::Deref] => as_address(address),
        _ => None,
    }
}

/// What linkers write for a linkage table of AMD64 and IA-32: sp + word + ((pc & 15 >= k) << 3 or 2), the shift making a word of one.
/// Gives k.
pub(super) fn as_plt(ops: &[Op], machine: &Machine) -> Option<i64> {
    use Op::{Add, And, Constant, GreaterOrEqual, Register, ShiftLeft};
    match ops {
        [
            Register(sp),
            Constant(below),
            Add,
            Register(pc),
            Constant(15),
            And,
            Constant(pushed),
            GreaterOrEqual,
            Constant(shift @ (2 | 3)),
            ShiftLeft,
            Add,
        ] if (*sp, *pc, *below, 1 << shift) == (machine.sp, machine.pc, machine.word, machine.word) => Some(*pushed),
        _ => None,
    }
}
