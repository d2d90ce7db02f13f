//! Which processor a slice is for.

use super::loader::{
    CPU_SUBTYPE_ARM64E, CPU_SUBTYPE_MASK, CPU_SUBTYPE_X86_64_H, CPU_TYPE_ARM, CPU_TYPE_ARM64, CPU_TYPE_ARM64_32,
    CPU_TYPE_POWERPC, CPU_TYPE_POWERPC64, CPU_TYPE_X86, CPU_TYPE_X86_64,
};
use crate::Arch;
use std::borrow::Cow;

/// By `cputype` and `cpusubtype` of the header.
///
/// arm64e signs its return addresses and is an architecture of its own; x86_64h (Haswell) is x86_64 with more
/// instructions, and arm64_32 is 64-bit ARM with short pointers, as x32 is x86_64: those are told apart by their UUIDs.
pub(crate) fn arch(cpu: u32, subtype: u32) -> Arch {
    match (cpu, subtype & !CPU_SUBTYPE_MASK) {
        (CPU_TYPE_ARM64, CPU_SUBTYPE_ARM64E) => Arch::Arm64e,
        (CPU_TYPE_ARM64 | CPU_TYPE_ARM64_32, _) => Arch::Aarch64,
        (CPU_TYPE_X86_64, _) => Arch::X86_64,
        (CPU_TYPE_X86, _) => Arch::X86,
        (CPU_TYPE_ARM, _) => Arch::Arm,
        (CPU_TYPE_POWERPC, _) => Arch::Ppc,
        (CPU_TYPE_POWERPC64, _) => Arch::Ppc64,
        // The type proper is below the bits for its variants.
        (other, _) => Arch::Other((other & 0xffff) as u16),
    }
}

/// As Apple's tools call it (`lipo -archs`), for messages.
pub(crate) fn slice_name(cpu: u32, subtype: u32) -> Cow<'static, str> {
    /// `CPU_SUBTYPE_ARM_*`
    const ARM: [(u32, &str); 6] =
        [(6, "armv6"), (9, "armv7"), (11, "armv7s"), (12, "armv7k"), (14, "armv6m"), (16, "armv7em")];
    let subtype = subtype & !CPU_SUBTYPE_MASK;
    Cow::Borrowed(match (cpu, subtype) {
        (CPU_TYPE_ARM64, CPU_SUBTYPE_ARM64E) => "arm64e",
        (CPU_TYPE_ARM64, _) => "arm64",
        (CPU_TYPE_ARM64_32, _) => "arm64_32",
        (CPU_TYPE_X86_64, CPU_SUBTYPE_X86_64_H) => "x86_64h",
        (CPU_TYPE_X86_64, _) => "x86_64",
        (CPU_TYPE_X86, _) => "i386",
        (CPU_TYPE_ARM, _) => ARM.iter().find(|known| known.0 == subtype).map_or("arm", |known| known.1),
        (CPU_TYPE_POWERPC, _) => "ppc",
        (CPU_TYPE_POWERPC64, _) => "ppc64",
        (cpu, subtype) => return Cow::Owned(format!("cputype {cpu:#x} subtype {subtype:#x}")),
    })
}
