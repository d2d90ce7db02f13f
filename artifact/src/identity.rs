//! What a file is.

use std::fmt;

/// What a [debug id](crate::ObjectFile::debug_id) rests on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum IdKind {
    /// The linker's note `NT_GNU_BUILD_ID`; of a supplementary file of DWARF 5 the checksum in `.debug_sup`.
    GnuBuildId,
    /// The same note with more bytes than a debug id has ([`symseal_module::MAX_BUILD_ID_BYTES`]); the debug id is the first 20 bytes of
    /// their SHA-256.
    LongBuildId,
    /// Go's build id note; the debug id is the first 20 bytes of the SHA-256 of its text.
    GoBuildId,
    /// No note: the first 20 bytes of a SHA-256 over the addresses and bytes of the code; of the data where there is no code, of both in
    /// a kernel module. A debug file has none of them, and cannot be paired by it.
    TextHash,
    /// GUID and age of a PE file's CodeView record, of a PDB's DBI stream.
    PdbGuidAge,
    /// The GUID of a portable PDB; the age is 0xffffffff.
    PortablePdb,
    /// `LC_UUID`.
    MachoUuid,
}

impl IdKind {
    /// The stable text in JSON.
    pub const fn code(self) -> &'static str {
        match self {
            Self::GnuBuildId => "gnu-build-id",
            Self::LongBuildId => "long-build-id",
            Self::GoBuildId => "go-build-id",
            Self::TextHash => "text-hash",
            Self::PdbGuidAge => "pdb-guid-age",
            Self::PortablePdb => "portable-pdb",
            Self::MachoUuid => "macho-uuid",
        }
    }
}

impl fmt::Display for IdKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}

/// An object format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Format {
    /// Linux and other Unix systems.
    Elf,
    /// Windows.
    Pe,
    /// macOS.
    Macho,
}

impl Format {
    /// The stable text in `symbol_index.json`.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Elf => "elf",
            Self::Pe => "pe",
            Self::Macho => "macho",
        }
    }
}

macro_rules! architectures {
    ($($variant:ident $code:literal $machine:pat, $doc:literal;)*; not in ELF: $($other:ident $other_code:literal, $other_doc:literal;)*) => {
        /// The processor that a file is for.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Arch {
            $(#[doc = $doc] $variant,)*
            $(#[doc = $other_doc] $other,)*
            /// Another one, by its number in the ELF or Mach-O header, or in the COFF header of a PE file or PDB.
            Other(u16),
        }

        impl Arch {
            /// The stable text in JSON; `other` where there is none.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* $(Self::$other => $other_code,)* Self::Other(_) => "other" }
            }

            /// By `e_machine` of the ELF header, the class and the byte order. (gABI, "Machine Information")
            pub(crate) const fn from_elf(machine: u16, is_64: bool, is_little_endian: bool) -> Self {
                match (machine, is_64, is_little_endian) { $($machine => Self::$variant,)* (other, ..) => Self::Other(other) }
            }
        }
    };
}

architectures! {
    X86 "x86" (3, _, _), "32-bit x86.";
    X86_64 "x86_64" (62, _, _), "64-bit x86, the x32 variant included.";
    Arm "arm" (40, _, true), "32-bit ARM.";
    ArmBig "armeb" (40, _, false), "32-bit ARM, the higher bytes first.";
    Aarch64 "aarch64" (183, _, true), "64-bit ARM.";
    Aarch64Big "aarch64_be" (183, _, false), "64-bit ARM, the higher bytes first.";
    Riscv32 "riscv32" (243, false, _), "32-bit RISC-V.";
    Riscv64 "riscv64" (243, true, _), "64-bit RISC-V.";
    Loongarch32 "loongarch32" (258, false, _), "32-bit LoongArch.";
    Loongarch64 "loongarch64" (258, true, _), "64-bit LoongArch.";
    Mips "mips" (8, false, false), "32-bit MIPS.";
    MipsLittle "mipsel" (8, false, true), "32-bit MIPS, the lower bytes first.";
    Mips64 "mips64" (8, true, false), "64-bit MIPS.";
    Mips64Little "mips64el" (8, true, true), "64-bit MIPS, the lower bytes first.";
    Ppc "ppc" (20, _, _), "32-bit PowerPC.";
    Ppc64 "ppc64" (21, _, false), "64-bit PowerPC.";
    Ppc64Little "ppc64le" (21, _, true), "64-bit PowerPC, the lower bytes first.";
    S390 "s390" (22, false, _), "31-bit S/390.";
    S390x "s390x" (22, true, _), "64-bit S/390.";
    Sparc "sparc" (2, _, _), "32-bit SPARC.";
    Sparc64 "sparc64" (43, _, _), "64-bit SPARC.";
    ; not in ELF:
    Arm64e "arm64e", "64-bit ARM with signed return addresses, as Apple's Mach-O files have it.";
}

impl Arch {
    /// By `Machine` of the COFF header, which PDBs repeat. (PE Format, "Machine Types")
    ///
    /// Code for ARM64EC is AArch64 code; images that hold it beside x64 code say x64, and images for both (ARM64X) say
    /// ARM64. What .NET compiles ahead of time for another system than Windows has the machine with that system's
    /// bits turned over. (.NET, "ReadyToRun File Format")
    pub(crate) const fn from_coff(machine: u16) -> Self {
        match Self::coff_system(machine) {
            Some(processor) => Self::from_plain_coff(processor),
            None => Self::from_plain_coff(machine),
        }
    }

    const fn from_plain_coff(machine: u16) -> Self {
        match machine {
            0x014c => Self::X86,
            0x8664 => Self::X86_64,
            0x01c0 | 0x01c2 | 0x01c4 => Self::Arm,
            0xaa64 | 0xa641 | 0xa64e => Self::Aarch64,
            0x5032 => Self::Riscv32,
            0x5064 => Self::Riscv64,
            0x6232 => Self::Loongarch32,
            0x6264 => Self::Loongarch64,
            other => Self::Other(other),
        }
    }

    /// The processor's number in one that is of another system than Windows.
    pub(crate) const fn coff_system(machine: u16) -> Option<u16> {
        // Linux, macOS, FreeBSD, NetBSD, SunOS.
        let systems = [0x7b79, 0x4644, 0xadc4, 0x1993, 0x1992];
        let mut at = 0;
        while at < systems.len() {
            if let processor @ (0x8664 | 0xaa64 | 0x014c | 0x01c4) = machine ^ systems[at] {
                return Some(processor);
            }
            at += 1;
        }
        None
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(machine) => write!(f, "other ({machine})"),
            known => f.pad(known.code()),
        }
    }
}

/// What a file is to the loader.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ObjectKind {
    /// Loaded at its stated addresses (`ET_EXEC`); for Mach-O any program (`MH_EXECUTE`).
    Executable,
    /// Loaded anywhere: shared libraries and position-independent executables (`ET_DYN`); for Mach-O libraries, bundles
    /// and kernel extensions.
    Shared,
    /// Input of a linker (`ET_REL`, `MH_OBJECT`): no addresses yet.
    Relocatable,
    /// A process image (`ET_CORE`, `MH_CORE`).
    Core,
    /// Debug information and symbols without the code that they describe (`MH_DSYM`). ELF debug files keep the kind of
    /// their binary.
    DebugCompanion,
    /// Anything else.
    Other,
}

impl ObjectKind {
    /// The stable text.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Executable => "executable",
            Self::Shared => "shared",
            Self::Relocatable => "relocatable",
            Self::Core => "core",
            Self::DebugCompanion => "debug-companion",
            Self::Other => "other",
        }
    }
}

/// How much a file tells a debugger, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DebugInfoKind {
    /// Functions, lines, types and variables.
    Full,
    /// Functions, inlined calls and lines, but no types (`-g1`, `debug = "line-tables-only"`).
    LineTables,
    /// A symbol table alone.
    Symbols,
    /// Nothing: stripped, dynamic symbols at most.
    None,
}

impl DebugInfoKind {
    /// The stable text in `symbol_index.json`.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::LineTables => "line-tables",
            Self::Symbols => "symbols",
            Self::None => "none",
        }
    }
}
