//! Functions of MIPS followed by their instructions, against the call frame information that GCC writes of the same code: large frames, whose size
//! does not fit one instruction.

use std::process::Command;

use symseal_module::Rva;
use symseal_unwind::compile::{self, Input};
use symseal_unwind::{ReturnAddress, Rule, RuleSource, Saved, Table};

use crate::elf::{self, Binary};
use crate::toolchains;

/// A function for each size. GCC loads the size, or what is left of it, into a register, and other constants while it waits for that.
const PROGRAM: &str = "
int leaf(char *room);
void *fill(void *room, int value, unsigned long size);
#define FRAME(name, size) \\
    int name(int a, int b) { \\
        char room[size]; \\
        fill(room, a, size); \\
        return leaf(room) * a + b + room[b & 7]; \\
    }
FRAME(of_17_kb, 17000)
FRAME(of_34_kb, 34000)
FRAME(of_70_kb, 70000)
FRAME(of_600_kb, 600000)
int kept(int n) { return n < 2 ? n : of_70_kb(n, n + 1) * kept(n - 1) + of_34_kb(n, 70000) + n * 123457; }
";

#[test]
fn large_frames_of_mips_are_what_gcc_says_of_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("frames.c");
    std::fs::write(&source, PROGRAM).expect("a file");
    for toolchain in [toolchains::MIPS, toolchains::MIPSEL] {
        let (mut compared, mut places, mut functions) = (0, 0, 0);
        for level in ["-O1", "-O2", "-Os"] {
            let path = directory.path().join("frames");
            let mut compiler = Command::new(toolchain.compiler());
            compiler.args([level, "-fasynchronous-unwind-tables", "-nostdlib", "-nostartfiles", "-Wl,-e,kept"]);
            compiler.args(["-Wl,--unresolved-symbols=ignore-all", "-w", "-o"]).arg(&path).arg(&source);
            let Ok(status) = compiler.status() else { return elf::skip(&toolchain.compiler(), "not found") };
            assert!(status.success(), "{level}");
            let binary = Binary::read(&path).expect("what was linked");
            let parts = binary.parts();
            let of_cfi = binary.compile();
            let of_code = Input { eh_frame: None, eh_frame_hdr: None, ..parts.input() };
            let of_code = compile::compile(&of_code).expect("a table");
            let (of_cfi, of_code) = (Table::open(&of_cfi.bytes), Table::open(&of_code.bytes));
            let (of_cfi, of_code) = (of_cfi.expect("a table"), of_code.expect("a table"));
            for range in &parts.text {
                for svma in range.clone().step_by(4) {
                    let rva = Rva(svma - parts.image_base.0);
                    let expected = of_cfi.rule(rva).filter(|rule| rule.source() == Some(RuleSource::EhFrame));
                    let Some(expected) = expected else { continue };
                    let found = of_code.rule(rva).expect("code");
                    let cfa = |rule: Rule| (rule.kind(), rule.offset());
                    assert_eq!(cfa(found), cfa(expected), "{level} {svma:#x}");
                    // GCC tells late that a register was saved, and of $gp nothing. Where both have a place, it is the same.
                    if let (Some(ReturnAddress::AtCfa(words)), Some(ReturnAddress::AtCfa(other))) =
                        (expected.return_address(), found.return_address())
                    {
                        assert_eq!(other, words, "{level} {svma:#x}");
                        places += 1;
                    }
                    let kept = |table: &Table<'_>, register| table.slots(rva)?.of(toolchain.arch, register);
                    for register in toolchain.arch.slot_registers() {
                        if let (Some(Saved::At(words)), Some(Saved::At(other))) =
                            (kept(&of_cfi, *register), kept(&of_code, *register))
                        {
                            assert_eq!(other, words, "{level} {svma:#x} ${register}");
                            places += 1;
                        }
                    }
                    compared += 1;
                    functions += usize::from(parts.functions.contains(&svma));
                }
            }
        }
        assert_eq!(functions, 15);
        assert!(compared > 400 && places > 800, "{compared} instructions, {places} places");
    }
}
