//! Instructions of x86, as far as they tell where a frame ends: the forms in which compilers take a frame down, and
//! what hand-written code pushes without saying so.

mod epilog;
mod extended;
mod untold;

pub(super) use crate::arch::x86::{Mode, length};
pub(super) use epilog::{Epilog, Jump, epilog};
pub(super) use extended::tell_extended;
pub(super) use untold::tell_pushes;

/// DWARF numbers of the general registers, by the numbers that instructions and `.xdata` give them. (System V ABI for AMD64, figure 3.36)
const DWARF: [u8; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// The DWARF number of a register by its number in instructions.
pub(super) fn dwarf(register: u8) -> u8 {
    DWARF.get(usize::from(register & 15)).copied().unwrap_or_default()
}
