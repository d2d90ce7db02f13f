//! The numbers of the ELF specification (gABI chapters 4 and 5) that are used here, under their own names.

pub(crate) const ELFMAG: [u8; 4] = [0x7f, b'E', b'L', b'F'];
pub(crate) const ELFCLASS32: u8 = 1;
pub(crate) const ELFCLASS64: u8 = 2;
pub(crate) const ELFDATA2LSB: u8 = 1;
pub(crate) const ELFDATA2MSB: u8 = 2;

pub(crate) const ET_REL: u16 = 1;
pub(crate) const ET_EXEC: u16 = 2;
pub(crate) const ET_DYN: u16 = 3;
pub(crate) const ET_CORE: u16 = 4;

pub(crate) const EM_SPARC: u16 = 2;
pub(crate) const EM_386: u16 = 3;
pub(crate) const EM_MIPS: u16 = 8;
pub(crate) const EM_SPARC32PLUS: u16 = 18;
pub(crate) const EM_PPC: u16 = 20;
pub(crate) const EM_PPC64: u16 = 21;
pub(crate) const EM_S390: u16 = 22;
pub(crate) const EM_ARM: u16 = 40;
pub(crate) const EM_SPARCV9: u16 = 43;
pub(crate) const EM_X86_64: u16 = 62;
pub(crate) const EM_HEXAGON: u16 = 164;
pub(crate) const EM_AARCH64: u16 = 183;
pub(crate) const EM_RISCV: u16 = 243;
pub(crate) const EM_CSKY: u16 = 252;
pub(crate) const EM_LOONGARCH: u16 = 258;

/// Code of microMIPS or of MIPS16 is in the file. (MIPS ELF supplements; `e_flags`)
pub(crate) const EF_MIPS_MICROMIPS: u32 = 0x0200_0000;
pub(crate) const EF_MIPS_ARCH_ASE_M16: u32 = 0x0400_0000;

pub(crate) const PT_LOAD: u32 = 1;
pub(crate) const PT_DYNAMIC: u32 = 2;
pub(crate) const PT_INTERP: u32 = 3;
pub(crate) const PT_NOTE: u32 = 4;
pub(crate) const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
pub(crate) const PF_X: u32 = 1;
/// The number of program headers stands in section 0.
pub(crate) const PN_XNUM: u16 = 0xffff;

pub(crate) const DT_NULL: u64 = 0;
pub(crate) const DT_HASH: u64 = 4;
pub(crate) const DT_STRTAB: u64 = 5;
pub(crate) const DT_SYMTAB: u64 = 6;
pub(crate) const DT_STRSZ: u64 = 10;
pub(crate) const DT_INIT: u64 = 12;
pub(crate) const DT_FINI: u64 = 13;
pub(crate) const DT_RPATH: u64 = 15;
pub(crate) const DT_RUNPATH: u64 = 29;
pub(crate) const DT_GNU_HASH: u64 = 0x6fff_fef5;
pub(crate) const DT_FLAGS_1: u64 = 0x6fff_fffb;
/// A program, for all that it looks like a library.
pub(crate) const DF_1_PIE: u64 = 0x0800_0000;

pub(crate) const SHT_NULL: u32 = 0;
pub(crate) const SHT_SYMTAB: u32 = 2;
pub(crate) const SHT_RELA: u32 = 4;
pub(crate) const SHT_NOTE: u32 = 7;
pub(crate) const SHT_DYNAMIC: u32 = 6;
pub(crate) const SHT_NOBITS: u32 = 8;
pub(crate) const SHT_REL: u32 = 9;
pub(crate) const SHT_DYNSYM: u32 = 11;
pub(crate) const SHT_INIT_ARRAY: u32 = 14;
pub(crate) const SHT_FINI_ARRAY: u32 = 15;
pub(crate) const SHT_PREINIT_ARRAY: u32 = 16;
pub(crate) const SHT_SYMTAB_SHNDX: u32 = 18;
/// Relocations in a compact form, as LLVM proposes them.
pub(crate) const SHT_CREL: u32 = 0x4000_0014;
pub(crate) const SHF_ALLOC: u64 = 2;
pub(crate) const SHF_EXECINSTR: u64 = 4;
pub(crate) const SHF_COMPRESSED: u64 = 0x800;

pub(crate) const SHN_UNDEF: u16 = 0;
pub(crate) const SHN_ABS: u16 = 0xfff1;
pub(crate) const SHN_COMMON: u16 = 0xfff2;
pub(crate) const SHN_XINDEX: u16 = 0xffff;

pub(crate) const STT_NOTYPE: u8 = 0;
pub(crate) const STT_OBJECT: u8 = 1;
pub(crate) const STT_FUNC: u8 = 2;
pub(crate) const STT_GNU_IFUNC: u8 = 10;
pub(crate) const STB_LOCAL: u8 = 0;
pub(crate) const STB_GLOBAL: u8 = 1;
pub(crate) const STB_WEAK: u8 = 2;
pub(crate) const STB_GNU_UNIQUE: u8 = 10;

pub(crate) const ELFCOMPRESS_ZLIB: u32 = 1;
pub(crate) const ELFCOMPRESS_ZSTD: u32 = 2;

pub(crate) const NT_GNU_BUILD_ID: u32 = 3;
