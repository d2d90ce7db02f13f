//! What differs between processors, one file each. Tables of other architectures bring their own register columns, signal
//! contexts and call instructions; the layout of rules and the walk stay.

use core::fmt;

mod x86_64;

pub(crate) use x86_64::{Call, LONGEST_CALL, call_before, context_slot, is_sigreturn, is_volatile};
pub use x86_64::{FP, REGISTERS, RETURN_ADDRESS, SLOT_REGISTERS, SP, register_name};
#[cfg(feature = "compile")]
pub(crate) use x86_64::{SIGRETURN, is_padding};

/// The processor that a table is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Arch {
    /// AMD64.
    X86_64 = 1,
}

impl Arch {
    /// The stable text.
    pub fn code(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
        }
    }

    /// The architecture with this number in a table's header.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::X86_64),
            _ => None,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}
