//! General registers by name.

use std::collections::BTreeMap;

use libc::user_regs_struct;
use symseal_module::Avma;

/// The registers under the names that `docs/formats/trace.md` lists.
pub(crate) fn by_name(registers: &user_regs_struct) -> BTreeMap<String, Avma> {
    let named = [
        ("rip", registers.rip),
        ("rsp", registers.rsp),
        ("rbp", registers.rbp),
        ("rax", registers.rax),
        ("rbx", registers.rbx),
        ("rcx", registers.rcx),
        ("rdx", registers.rdx),
        ("rsi", registers.rsi),
        ("rdi", registers.rdi),
        ("r8", registers.r8),
        ("r9", registers.r9),
        ("r10", registers.r10),
        ("r11", registers.r11),
        ("r12", registers.r12),
        ("r13", registers.r13),
        ("r14", registers.r14),
        ("r15", registers.r15),
        ("orig_rax", registers.orig_rax),
        ("eflags", registers.eflags),
        ("cs", registers.cs),
        ("ss", registers.ss),
        ("fs_base", registers.fs_base),
        ("gs_base", registers.gs_base),
    ];
    named.into_iter().map(|(name, value)| (name.to_owned(), Avma(value))).collect()
}
