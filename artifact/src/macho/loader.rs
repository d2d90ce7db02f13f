//! The numbers of Apple's headers that are used here, under their own names. (`mach/machine.h`, `mach-o/loader.h`,
//! `mach-o/fat.h`, `mach-o/nlist.h`, `mach-o/stab.h`)

pub(crate) const MH_MAGIC: u32 = 0xfeed_face;
pub(crate) const MH_MAGIC_64: u32 = 0xfeed_facf;
pub(crate) const FAT_MAGIC: u32 = 0xcafe_babe;
pub(crate) const FAT_MAGIC_64: u32 = 0xcafe_babf;

const CPU_ARCH_ABI64: u32 = 0x0100_0000;
const CPU_ARCH_ABI64_32: u32 = 0x0200_0000;
pub(crate) const CPU_TYPE_X86: u32 = 7;
pub(crate) const CPU_TYPE_X86_64: u32 = CPU_TYPE_X86 | CPU_ARCH_ABI64;
pub(crate) const CPU_TYPE_ARM: u32 = 12;
pub(crate) const CPU_TYPE_ARM64: u32 = CPU_TYPE_ARM | CPU_ARCH_ABI64;
pub(crate) const CPU_TYPE_ARM64_32: u32 = CPU_TYPE_ARM | CPU_ARCH_ABI64_32;
pub(crate) const CPU_TYPE_POWERPC: u32 = 18;
pub(crate) const CPU_TYPE_POWERPC64: u32 = CPU_TYPE_POWERPC | CPU_ARCH_ABI64;
/// The upper bits of a subtype hold capabilities, such as the version of arm64e's pointer signatures.
pub(crate) const CPU_SUBTYPE_MASK: u32 = 0xff00_0000;
pub(crate) const CPU_SUBTYPE_X86_64_H: u32 = 8;
pub(crate) const CPU_SUBTYPE_ARM64E: u32 = 2;

pub(crate) const MH_OBJECT: u32 = 1;
pub(crate) const MH_EXECUTE: u32 = 2;
pub(crate) const MH_FVMLIB: u32 = 3;
pub(crate) const MH_CORE: u32 = 4;
pub(crate) const MH_PRELOAD: u32 = 5;
pub(crate) const MH_DYLIB: u32 = 6;
pub(crate) const MH_DYLINKER: u32 = 7;
pub(crate) const MH_BUNDLE: u32 = 8;
pub(crate) const MH_DSYM: u32 = 10;
pub(crate) const MH_KEXT_BUNDLE: u32 = 11;

pub(crate) const LC_SEGMENT: u32 = 0x1;
pub(crate) const LC_SYMTAB: u32 = 0x2;
pub(crate) const LC_SEGMENT_64: u32 = 0x19;
pub(crate) const LC_UUID: u32 = 0x1b;
pub(crate) const LC_RPATH: u32 = 0x8000_001c;
pub(crate) const LC_ENCRYPTION_INFO: u32 = 0x21;
pub(crate) const LC_DYLD_INFO: u32 = 0x22;
pub(crate) const LC_DYLD_INFO_ONLY: u32 = 0x8000_0022;
pub(crate) const LC_FUNCTION_STARTS: u32 = 0x26;
pub(crate) const LC_ENCRYPTION_INFO_64: u32 = 0x2c;
pub(crate) const LC_DYLD_EXPORTS_TRIE: u32 = 0x8000_0033;
pub(crate) const LC_DYLD_CHAINED_FIXUPS: u32 = 0x8000_0034;

pub(crate) const VM_PROT_EXECUTE: u32 = 4;
pub(crate) const SECTION_TYPE: u32 = 0xff;
pub(crate) const S_ZEROFILL: u32 = 0x1;
pub(crate) const S_GB_ZEROFILL: u32 = 0xc;
pub(crate) const S_THREAD_LOCAL_ZEROFILL: u32 = 0x12;
pub(crate) const S_ATTR_PURE_INSTRUCTIONS: u32 = 0x8000_0000;
pub(crate) const S_ATTR_SOME_INSTRUCTIONS: u32 = 0x0000_0400;

/// Any of these bits: the entry is for debuggers.
pub(crate) const N_STAB: u8 = 0xe0;
pub(crate) const N_PEXT: u8 = 0x10;
pub(crate) const N_TYPE: u8 = 0x0e;
pub(crate) const N_EXT: u8 = 0x01;
pub(crate) const N_SECT: u8 = 0x0e;
pub(crate) const N_ALT_ENTRY: u16 = 0x0200;
pub(crate) const N_WEAK_DEF: u16 = 0x0080;
/// A function of the debug map.
pub(crate) const N_FUN: u8 = 0x24;
/// An object file of the debug map.
pub(crate) const N_OSO: u8 = 0x66;
/// A source file of the debug map, or its directory.
pub(crate) const N_SO: u8 = 0x64;

pub(crate) const EXPORT_SYMBOL_FLAGS_KIND_MASK: u64 = 0x03;
pub(crate) const EXPORT_SYMBOL_FLAGS_KIND_REGULAR: u64 = 0x00;
pub(crate) const EXPORT_SYMBOL_FLAGS_REEXPORT: u64 = 0x08;
