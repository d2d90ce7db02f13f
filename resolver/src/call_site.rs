//! From a return address to the call.

use symseal_module::Avma;

/// How far before its return address a call lies, by the processor that made it. Any byte of the call belongs to the calling line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallSite {
    /// The byte before the return address is the last one of the call: x86, 64-bit ARM, RISC-V.
    #[default]
    LastByte,
    /// The same, where the lowest bit of an address tells the instruction set and is no part of it: 32-bit ARM.
    Interworking,
    /// One instruction runs between the call and the return address, and may belong to another line: MIPS. Its compressed instruction sets set the
    /// lowest bit.
    DelaySlot,
}

/// Bytes of a call and of the instruction in its delay slot.
const CALL_AND_DELAY_SLOT: u64 = 8;

impl CallSite {
    /// Of a processor as modules and traces name it.
    pub fn of_arch(arch: &str) -> Self {
        match arch {
            "arm" | "armv7" | "thumb" => Self::Interworking,
            _ if arch.starts_with("mips") => Self::DelaySlot,
            _ => Self::LastByte,
        }
    }

    /// Of the processor that this runs on.
    pub fn of_host() -> Self {
        Self::of_arch(std::env::consts::ARCH)
    }

    /// The address to look up for a caller; `None` for a return address that no call has.
    pub fn before(self, return_address: Avma) -> Option<Avma> {
        let compressed = return_address.0 & 1 == 1;
        match self {
            Self::DelaySlot if !compressed => return_address.checked_sub(CALL_AND_DELAY_SLOT),
            Self::Interworking | Self::DelaySlot => Avma(return_address.0 & !1).checked_sub(1),
            Self::LastByte => return_address.checked_sub(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_looked_up_inside_its_call() {
        let before = |arch, ip| CallSite::of_arch(arch).before(Avma(ip)).map(|found| found.0);
        assert_eq!(before("x86_64", 0x1005), Some(0x1004));
        assert_eq!(before("aarch64", 0x1004), Some(0x1003));
        // A Thumb call of two bytes: the odd address less one would be the instruction after the call.
        assert_eq!(before("arm", 0x1003), Some(0x1001));
        assert_eq!(before("arm", 0x1004), Some(0x1003));
        assert_eq!(before("mips", 0x1008), Some(0x1000));
        assert_eq!(before("mipsel", 0x1007), Some(0x1005));
        assert_eq!((before("x86_64", 0), before("mips", 4)), (None, None));
    }
}
