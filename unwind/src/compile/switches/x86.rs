//! x86: the stack pointer is loaded, and the return address pushed on what it points to.

use alloc::vec::Vec;

use memchr::memmem;

use super::{Part, Truth};

/// `mov rsp, [rdx + 0xa0]`: the stack pointer of a `ucontext_t`.
const TAKES_RSP: [u8; 7] = [0x48, 0x8b, 0xa2, 0xa0, 0, 0, 0];
/// `mov rcx, [rdx + 0xa8]; push rcx`: where it goes on.
const PUSHES_RIP: [u8; 8] = [0x48, 0x8b, 0x8a, 0xa8, 0, 0, 0, 0x51];
/// Bytes between the two: the registers that calls keep.
const MOST_BETWEEN: usize = 64;

/// `mov esp, [eax + 0x30]`: the same of IA-32.
const TAKES_ESP: [u8; 3] = [0x8b, 0x60, 0x30];
/// `mov ecx, [eax + 0x4c]`, which `setcontext` does behind that and `swapcontext` before.
const LOADS_EIP: [u8; 3] = [0x8b, 0x48, 0x4c];
/// `push ecx`, the other registers from the context, eax last, and `ret`. A context that begins is left for the first instruction of its function, which no
/// call precedes: nothing is true up to the end.
const LEAVES: [u8; 23] = [
    0x51, 0x8b, 0x78, 0x24, 0x8b, 0x70, 0x28, 0x8b, 0x68, 0x2c, 0x8b, 0x58, 0x34, 0x8b, 0x50, 0x38, 0x8b, 0x48, 0x3c,
    0x8b, 0x40, 0x40, 0xc3,
];

/// Behind the push the entries are right.
pub(super) fn x86_64(bytes: &[u8]) -> Vec<Part> {
    let takes = memmem::find_iter(bytes, &TAKES_RSP);
    let parts = takes.filter_map(|at| {
        let from = at + TAKES_RSP.len();
        let behind = bytes.get(from..)?;
        let behind = behind.get(..behind.len().min(MOST_BETWEEN))?;
        let pushes = memmem::find(behind, &PUSHES_RIP)?;
        Some((from..from + pushes + PUSHES_RIP.len(), Truth::Nothing))
    });
    parts.collect()
}

/// The entry of `setcontext` counts from eax where the stack is still its caller's, and to the end; that of `swapcontext` says nothing.
pub(super) fn i686(bytes: &[u8]) -> Vec<Part> {
    let takes = memmem::find_iter(bytes, &TAKES_ESP);
    let parts = takes.filter_map(|at| {
        let from = at + TAKES_ESP.len();
        let (before, behind) = (bytes.get(..at)?, bytes.get(from..)?);
        let loads = behind.starts_with(&LOADS_EIP);
        let pushes = from + if loads { LOADS_EIP.len() } else { 0 };
        let is_switch = (loads || before.ends_with(&LOADS_EIP)) && bytes.get(pushes..)?.starts_with(&LEAVES);
        let parts = [(at..from, Truth::AsEntered), (from..pushes + LEAVES.len(), Truth::Nothing)];
        is_switch.then_some(parts)
    });
    parts.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::told;
    use super::*;
    use crate::arch::Arch;
    use crate::rule::ReturnAddress;

    const ON_STACK: Option<ReturnAddress> = Some(ReturnAddress::AtCfa(-1));

    #[test]
    fn nothing_is_true_before_the_return_address_is_pushed() {
        // mov rbp, [rdx + 0x78] between, and mov rdi, [rdx + 0x68] behind.
        let code = [&TAKES_RSP[..], &[0x48, 0x8b, 0x6a, 0x78], &PUSHES_RIP, &[0x48, 0x8b, 0x7a, 0x68]].concat();
        assert_eq!(told(Arch::X86_64, &code), (Vec::from([(0, ON_STACK), (7, None), (19, ON_STACK)]), 1));
        let apart = [&TAKES_RSP[..], &[0x90; MOST_BETWEEN], &PUSHES_RIP].concat();
        assert_eq!(told(Arch::X86_64, &apart), (Vec::from([(0, ON_STACK)]), 0));
    }

    #[test]
    fn nor_until_the_return_where_that_may_lead_to_a_beginning() {
        let set = [&TAKES_ESP[..], &LOADS_EIP, &LEAVES, &[0x90]].concat();
        assert_eq!(told(Arch::I686, &set), (Vec::from([(0, ON_STACK), (3, None), (29, ON_STACK)]), 1));
        let swap = [&LOADS_EIP[..], &TAKES_ESP, &LEAVES, &[0x90]].concat();
        let expected = Vec::from([(0, ON_STACK), (3, ON_STACK), (6, None), (29, ON_STACK)]);
        assert_eq!(told(Arch::I686, &swap), (expected, 1));
        let other = [&TAKES_ESP[..], &LEAVES].concat();
        assert_eq!(told(Arch::I686, &other), (Vec::from([(0, ON_STACK)]), 0));
    }
}
