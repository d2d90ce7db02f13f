//! Instructions of x86, as far as they tell where a frame ends: the forms in which compilers take a frame down, and
//! what hand-written code pushes without saying so.

#[cfg(feature = "compile")]
mod epilog;
mod extended;
mod pops;
mod returns;
mod untold;

#[cfg(feature = "compile")]
pub(super) use epilog::{Epilog, Jump, dwarf, epilog};
pub(super) use extended::tell_extended;
pub(super) use pops::tell_pops;
pub(super) use returns::tell_returns;
pub(super) use untold::tell_pushes;
