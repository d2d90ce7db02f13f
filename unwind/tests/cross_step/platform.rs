//! The processors, how their programs come to be, and what no unwinder can know of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::toolchains::{self, Toolchain};

/// A processor under its emulator, and its programs.
pub(crate) struct Platform {
    pub(crate) toolchain: Toolchain,
    /// Compiles the programs, and the toolchain's compiler links them; without one that does both.
    pub(crate) clang: Option<&'static str>,
    pub(crate) emulator_options: &'static [&'static str],
    /// Kinds of program: a name, and the options to the compiler.
    pub(crate) programs: &'static [(&'static str, &'static [&'static str])],
    /// The number of the system call is in this register.
    pub(crate) syscall: usize,
    /// Bytes from the stack pointer at a handler's first instruction to the context with the interrupted registers: where the handler
    /// asked for `siginfo_t`, and where it did not. (Linux, `struct rt_sigframe` and `struct sigframe`)
    pub(crate) contexts: &'static [u64],
    /// Where no unwinder can know the stack from what the C library says of itself: how the names of such places begin, and why.
    pub(crate) explained: &'static [(&'static str, &'static str)],
    /// Of a thousand instructions, how many at least have all return addresses; what is explained must stay rare.
    pub(crate) least: usize,
}

impl Platform {
    /// The program of `source` and `options` in `directory`; one that leaves out what only repeats if it `is_small`. `None` if there is no compiler.
    pub(crate) fn compile(&self, source: &str, options: &[&str], is_small: bool, directory: &Path) -> Option<PathBuf> {
        let program = directory.join("program");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
        let linker = self.toolchain.compiler();
        let defined = is_small.then_some("-DSMALL");
        let mut input = source.clone();
        if let Some(clang) = self.clang {
            input = directory.join("program.o");
            let mut compile = Command::new(clang);
            compile.args(self.toolchain.clang_options()).args(defined).args(["-g0", "-w", "-c", "-o"]);
            let status = compile.arg(&input).args(options).arg(&source).status().ok()?;
            assert!(status.success(), "{clang} compiles {}", source.display());
        }
        let own_options = if self.clang.is_some() { &[] } else { options };
        let mut link = Command::new(&linker);
        link.args(defined).args(["-static", "-g0", "-w", "-o"]).arg(&program).args(own_options).arg(&input).arg("-lm");
        let status = link.status().ok()?;
        assert!(status.success(), "{linker} makes a program of {}", source.display());
        Some(program)
    }

    /// The same program without symbols, beside `program`.
    pub(crate) fn strip(&self, program: &Path) -> PathBuf {
        let stripped = program.with_extension("stripped");
        let tool = self.toolchain.strip();
        let status = Command::new(&tool).arg("-o").arg(&stripped).arg(program).status().expect("the toolchain's strip");
        assert!(status.success(), "{tool} strips {}", program.display());
        stripped
    }

    /// What makes the programs.
    pub(crate) fn compiler(&self) -> String {
        self.clang.map_or_else(|| self.toolchain.compiler(), str::to_owned)
    }

    /// The place that begins the name of `innermost`, and why no unwinder can know the stack there.
    pub(crate) fn explanation(&self, innermost: &str) -> Option<(&'static str, &'static str)> {
        self.explained.iter().find(|(name, _)| innermost.starts_with(name)).copied()
    }
}

const LEAVES: &str = "it has loaded the registers of its target and not yet jumped";
const JUMP_BUFFER: &str = "its own CFI gives the registers in the jump buffer for the caller's";
const IN_START: &str = "code that _start calls lies in the CFI of _start, which has no caller";
const BRANCHES: &str = "a branch by the flags that told whether the word before it was popped, which no capture has";
const UNDESCRIBED: &str = "no CFI, and called through a pointer";

pub(crate) const AARCH64: Platform = Platform {
    toolchain: toolchains::AARCH64,
    clang: None,
    // With pointer authentication.
    emulator_options: &["-cpu", "max"],
    programs: &[
        ("-O0", &["-O0"]),
        ("-O2", &["-O2"]),
        ("-O2 signed", &["-O2", "-mbranch-protection=standard", "-march=armv8.3-a"]),
    ],
    syscall: 8,
    contexts: &[0x130],
    explained: &[
        ("__longjmp", JUMP_BUFFER),
        ("_start+0x3", IN_START),
        ("_init", "no CFI: the frame pointer gives the callers and does not tell the CFA"),
        (
            "_fini",
            "no CFI: link register and frame pointer lead to different callers, and it is called through a pointer",
        ),
        ("call_weak_fn", "no CFI, and called by _init: the CFA of _init is not told"),
    ],
    least: 998,
};

const MIPS_PROGRAMS: &[(&str, &[&str])] = &[
    ("-O0", &["-O0"]),
    ("-O2", &["-O2"]),
    // Call frame information of the program itself, beside .pdr of the C library.
    ("-O2 with CFI", &["-O2", "-fasynchronous-unwind-tables"]),
];

pub(crate) const MIPS: Platform = Platform {
    toolchain: toolchains::MIPS,
    clang: None,
    emulator_options: &[],
    programs: MIPS_PROGRAMS,
    syscall: 2,
    contexts: &[0xb0, 0x18],
    explained: &[("__longjmp", LEAVES)],
    least: 998,
};

pub(crate) const MIPSEL: Platform = Platform { toolchain: toolchains::MIPSEL, ..MIPS };

pub(crate) const I686: Platform = Platform {
    toolchain: toolchains::I686,
    clang: None,
    emulator_options: &[],
    programs: &[("-O0", &["-O0"]), ("-O2", &["-O2"])],
    syscall: 0,
    contexts: &[0xa4, 8],
    explained: &[
        ("__longjmp", JUMP_BUFFER),
        ("_start+0x2", IN_START),
        ("__x86.get_pc_thunk.bp", "it gives its result in the frame pointer register"),
        ("[vdso] thunk", "the kernel's C code has no CFI, and calls it before it has made its frame"),
        ("frame_dummy", UNDESCRIBED),
        ("__do_global_dtors_aux", UNDESCRIBED),
    ],
    least: 998,
};

pub(crate) const RISCV64: Platform = Platform {
    toolchain: toolchains::RISCV64,
    clang: None,
    emulator_options: &[],
    programs: &[("-O0", &["-O0"]), ("-O2", &["-O2"])],
    syscall: 17,
    contexts: &[0x130],
    explained: &[("__longjmp", LEAVES)],
    least: 998,
};

/// Without a word it writes synchronous tables, which say nothing of how frames are taken down.
const CLANG_PROGRAMS: &[(&str, &[&str])] = &[("clang -O0", &["-O0"]), ("clang -O2", &["-O2"])];

pub(crate) const AARCH64_CLANG: Platform = Platform { clang: Some("clang"), programs: CLANG_PROGRAMS, ..AARCH64 };

/// Its tables say how frames are taken down, and where return addresses are signed.
pub(crate) const AARCH64_SIGNED: Platform = Platform {
    clang: Some("clang-19"),
    programs: &[("clang -O2 signed", &["-O2", "-mbranch-protection=standard", "-fasynchronous-unwind-tables"])],
    ..AARCH64
};

/// Parts of its prologues are functions that others call.
pub(crate) const AARCH64_OUTLINED: Platform =
    Platform { clang: Some("clang-19"), programs: &[("clang -Oz", &["-Oz"])], ..AARCH64 };

pub(crate) const RISCV64_CLANG: Platform = Platform { clang: Some("clang-19"), programs: CLANG_PROGRAMS, ..RISCV64 };

pub(crate) const MIPS_CLANG: Platform = Platform { clang: Some("clang"), programs: CLANG_PROGRAMS, ..MIPS };

pub(crate) const ARM: Platform = Platform {
    toolchain: toolchains::ARM,
    clang: None,
    emulator_options: &[],
    programs: &[
        ("-O0 -mthumb", &["-O0", "-mthumb", "-funwind-tables"]),
        ("-O2 -mthumb", &["-O2", "-mthumb"]),
        ("-O2 -marm", &["-O2", "-marm", "-fasynchronous-unwind-tables"]),
    ],
    syscall: 7,
    contexts: &[0x94, 0x14],
    explained: &[("__longjmp", LEAVES), ("__memcpy_neon+0x4", BRANCHES)],
    least: 998,
};

/// LLVM's `.debug_frame`, which stands beside the index of exceptions, says how frames are made and not how they are taken down.
pub(crate) const ARM_CLANG: Platform = Platform {
    clang: Some("clang-19"),
    programs: &[
        ("clang -O2 -g -mthumb", &["-O2", "-g", "-mthumb"]),
        ("clang -O0 -g -marm", &["-O0", "-g", "-marm", "-fstack-protector-all"]),
    ],
    ..ARM
};
