//! Debian's cross compilers: what each of them and what runs its programs is called, and where its C library is.
#![allow(dead_code, reason = "each test uses its part")]

use std::path::PathBuf;

use symseal_unwind::Arch;

/// A cross compiler with its C library.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Toolchain {
    pub(crate) arch: Arch,
    /// What names of tools and of the root of its files begin with.
    triple: &'static str,
    pub(crate) emulator: &'static str,
    /// Debian's package of the C library.
    pub(crate) package: &'static str,
}

impl Toolchain {
    pub(crate) fn compiler(&self) -> String {
        format!("{}-gcc", self.triple)
    }

    pub(crate) fn strip(&self) -> String {
        format!("{}-strip", self.triple)
    }

    /// What clang makes programs for this processor with: the C library's headers are gcc's.
    pub(crate) fn clang_options(&self) -> [String; 3] {
        [format!("--target={}", self.triple), "-isystem".to_owned(), format!("/usr/{}/include", self.triple)]
    }

    /// One of the libraries, as `libc.so.6`.
    pub(crate) fn library(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/usr/{}/lib/{name}", self.triple))
    }
}

pub(crate) const AARCH64: Toolchain = Toolchain {
    arch: Arch::Aarch64,
    triple: "aarch64-linux-gnu",
    emulator: "qemu-aarch64",
    package: "libc6-dev-arm64-cross",
};

pub(crate) const MIPS: Toolchain =
    Toolchain { arch: Arch::Mips32, triple: "mips-linux-gnu", emulator: "qemu-mips", package: "libc6-dev-mips-cross" };

pub(crate) const MIPSEL: Toolchain = Toolchain {
    arch: Arch::Mips32Little,
    triple: "mipsel-linux-gnu",
    emulator: "qemu-mipsel",
    package: "libc6-dev-mipsel-cross",
};

pub(crate) const I686: Toolchain =
    Toolchain { arch: Arch::I686, triple: "i686-linux-gnu", emulator: "qemu-i386", package: "libc6-dev-i386-cross" };

pub(crate) const RISCV64: Toolchain = Toolchain {
    arch: Arch::Riscv64,
    triple: "riscv64-linux-gnu",
    emulator: "qemu-riscv64",
    package: "libc6-dev-riscv64-cross",
};

pub(crate) const ARM: Toolchain = Toolchain {
    arch: Arch::Arm,
    triple: "arm-linux-gnueabihf",
    emulator: "qemu-arm",
    package: "libc6-dev-armhf-cross",
};

/// All of them.
pub(crate) const ALL: [Toolchain; 6] = [AARCH64, MIPS, MIPSEL, I686, RISCV64, ARM];
