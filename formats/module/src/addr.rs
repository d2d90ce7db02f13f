//! Address newtypes. Conversion between kinds happens at the edges, once.

use core::fmt;
use core::num::ParseIntError;
use core::str::FromStr;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u64);

        impl $name {
            /// This address plus `bytes`, or `None` past the end of the address space.
            pub fn checked_add(self, bytes: u64) -> Option<Self> {
                self.0.checked_add(bytes).map(Self)
            }

            /// This address minus `bytes`, or `None` below zero.
            pub fn checked_sub(self, bytes: u64) -> Option<Self> {
                self.0.checked_sub(bytes).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = ParseAddressError;

            /// Hexadecimal, with or without a leading `0x`.
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                parse_hex(text).map(Self)
            }
        }
    };
}

address! {
    /// Actual virtual memory address: where a byte lies in a running process.
    Avma
}
address! {
    /// Stated virtual memory address: where the linker said that a byte lies (for PE: image base + RVA).
    Svma
}
address! {
    /// Relative virtual address: svma minus the image base. Tables are keyed by it.
    Rva
}
address! {
    /// Byte offset in a file.
    FileOffset
}

impl Svma {
    /// The address relative to `image_base`, or `None` where it lies below the base.
    pub fn to_rva(self, image_base: Svma) -> Option<Rva> {
        self.0.checked_sub(image_base.0).map(Rva)
    }
}

impl Rva {
    /// The stated address in an image that starts at `image_base`; `None` past the address space.
    pub fn to_svma(self, image_base: Svma) -> Option<Svma> {
        self.0.checked_add(image_base.0).map(Svma)
    }
}

/// A text that is no hexadecimal address of at most 64 bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseAddressError(ParseIntError);

impl fmt::Display for ParseAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected a hexadecimal address of at most 64 bits, such as 0x401000: {}", self.0)
    }
}

impl core::error::Error for ParseAddressError {}

fn parse_hex(text: &str) -> Result<u64, ParseAddressError> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    // `from_str_radix` would take a sign.
    let digits = if digits.starts_with(['+', '-']) { "" } else { digits };
    u64::from_str_radix(digits, 16).map_err(ParseAddressError)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn addresses_read_what_they_print() {
        for value in [0, 1, 0x401000, u64::MAX] {
            assert_eq!(format!("{}", Avma(value)).parse(), Ok(Avma(value)));
        }
        assert_eq!("401000".parse(), Ok(Svma(0x401000)));
    }

    #[test]
    fn signs_blanks_and_overlong_numbers_are_refused() {
        for text in ["", "0x", "+1", "0x-1", " 1", "0x10000000000000000", "g"] {
            assert!(text.parse::<Avma>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_rva_exists_only_at_or_above_the_image_base() {
        assert_eq!(Svma(0x1400).to_rva(Svma(0x1000)), Some(Rva(0x400)));
        assert_eq!(Svma(0x400).to_rva(Svma(0x1000)), None);
        assert_eq!(Rva(1).to_svma(Svma(u64::MAX)), None);
    }
}
