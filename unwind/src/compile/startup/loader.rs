//! `_start` and `_dl_start_user` of glibc's loader, where the kernel begins a process: written by hand, on some processors without call frame information, and what the loader runs before
//! `main` returns there. (glibc, `sysdeps/*/dl-machine.h`, `RTLD_START`)

use alloc::vec::Vec;
use core::ops::Range;

use memchr::memmem;

use crate::arch::Arch;

/// Sections that are longer are not the loader's.
const LONGEST_SECTION: usize = 1 << 20;
/// Bytes of the function, and more.
const LONGEST: usize = 128;

/// What the function begins with, a call of so many bytes that are anything, what stands behind it, and how the function ends: by a jump to the program.
struct Form {
    begins: &'static [u8],
    distance: usize,
    goes_on: &'static [u8],
    ends: &'static [u8],
}

fn form(arch: Arch) -> Option<Form> {
    Some(match arch {
        // mov %rsp, %rdi; call; mov %rax, %r12; … mov %r13, %rsp; jmp *%r12
        Arch::X86_64 => Form {
            begins: &[0x48, 0x89, 0xe7, 0xe8],
            distance: 4,
            goes_on: &[0x49, 0x89, 0xc4],
            ends: &[0x4c, 0x89, 0xec, 0x41, 0xff, 0xe4],
        },
        // mov %esp, %eax; sub $12, %esp; push %eax; call; add $16, %esp; mov %eax, %edi; … mov 16(%esp), %esp; jmp *%edi
        Arch::I686 => Form {
            begins: &[0x89, 0xe0, 0x83, 0xec, 0x0c, 0x50, 0xe8],
            distance: 4,
            goes_on: &[0x83, 0xc4, 0x10, 0x89, 0xc7],
            ends: &[0x8b, 0x64, 0x24, 0x10, 0xff, 0xe7],
        },
        // mv a0, sp; jal; mv s0, a0; ld a1, (sp); … jr s0
        Arch::Riscv64 => {
            Form { begins: &[0x0a, 0x85, 0xef], distance: 3, goes_on: &[0x2a, 0x84, 0x82, 0x65], ends: &[0x02, 0x84] }
        }
        _ => return None,
    })
}

/// Where such functions stand in a section.
pub(in crate::compile) fn starts(arch: Arch, start: u64, code: &[u8]) -> Vec<Range<u64>> {
    let Some(form) = form(arch).filter(|_| code.len() <= LONGEST_SECTION) else { return Vec::new() };
    let found = memmem::find_iter(code, form.begins).filter_map(|at| {
        let body = code.get(at..)?;
        let body = body.get(..LONGEST).unwrap_or(body);
        body.get(form.begins.len() + form.distance..)?.starts_with(form.goes_on).then_some(())?;
        let end = memmem::find(body, form.ends)? + form.ends.len();
        let address = start.checked_add(at as u64)?;
        Some(address..address.checked_add(end as u64)?)
    });
    found.collect()
}
