//! Rules of 32-bit MIPS code from its instructions alone, function by function.

mod flow;
mod instruction;

pub(super) use flow::{Function, Step};
