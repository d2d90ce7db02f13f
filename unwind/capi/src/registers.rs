//! The register snapshot of a C program, and how the engine sees it. The one place that knows which register is which.

use symseal_unwind::{Arch, Registers};

use crate::sized::Sized32;
use crate::status::dwunw_status;

/// Slots of dwunw_registers.regs.
pub const DWUNW_REGISTERS: usize = 32;

/// The version of dwunw_registers that this header describes.
pub const DWUNW_REGISTERS_VERSION: u16 = 1;

/// Processors. A snapshot of any of them can be described; DWUNW_STATUS_UNSUPPORTED_ARCH says that this version does not unwind it.
#[repr(u16)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum dwunw_arch {
    /// AMD64.
    X86_64 = 1,
    /// 64-bit Arm, little-endian.
    Aarch64 = 2,
    /// 32-bit MIPS, o32, big-endian.
    MipsBe = 3,
    /// 32-bit MIPS, o32, little-endian.
    MipsLe = 4,
    /// IA-32.
    I686 = 5,
    /// 64-bit RISC-V, little-endian.
    Riscv64 = 6,
    /// 32-bit ARM, little-endian, in both instruction sets.
    Arm = 7,
}

/// The registers of one thread at one instant.
///
/// 288 bytes without padding or pointers, the same on every processor, so that a program in the kernel can fill it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dwunw_registers {
    /// sizeof(dwunw_registers).
    pub struct_size: u32,
    /// DWUNW_REGISTERS_VERSION.
    pub version: u16,
    /// A dwunw_arch.
    pub arch: u16,
    /// Bit n: regs[n] is known. The stack pointer must be.
    pub valid: u64,
    /// The program counter: the next instruction to run.
    pub pc: u64,
    /// For return addresses that the processor signs: the bits that belong to no address; 0 where it signs none or that is not known.
    pub pac_mask: u64,
    /// General registers by their DWARF numbers, each zero- or sign-extended to 64 bits. x86_64: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp,
    /// r8 to r15; aarch64: x0 to x30, sp; mips: $0 to $31; i686: eax, ecx, edx, ebx, esp, ebp, esi, edi; riscv64: x0 to x31; arm: r0 to r15.
    pub regs: [u64; DWUNW_REGISTERS],
}

// SAFETY: integers alone, the size first.
#[allow(unsafe_code, reason = "a structure of C programs")]
unsafe impl Sized32 for dwunw_registers {}

const _: () = assert!(size_of::<dwunw_registers>() == 288, "a layout that others write");

/// The engine's name of a dwunw_arch.
pub(crate) fn engine_arch(number: u16) -> Option<Arch> {
    [
        (dwunw_arch::X86_64, Arch::X86_64),
        (dwunw_arch::Aarch64, Arch::Aarch64),
        (dwunw_arch::MipsBe, Arch::Mips32),
        (dwunw_arch::MipsLe, Arch::Mips32Little),
        (dwunw_arch::I686, Arch::I686),
        (dwunw_arch::Riscv64, Arch::Riscv64),
        (dwunw_arch::Arm, Arch::Arm),
    ]
    .into_iter()
    .find(|(known, _)| *known as u16 == number)
    .map(|(_, arch)| arch)
}

/// The registers as the engine takes them, which are to be of that processor.
pub(crate) fn engine_registers(given: &dwunw_registers, arch: Arch) -> Result<Registers, dwunw_status> {
    if given.version != DWUNW_REGISTERS_VERSION {
        return Err(dwunw_status::UnsupportedVersion);
    }
    // Before anything of them is judged: which registers there are, the processor says.
    if engine_arch(given.arch) != Some(arch) {
        return Err(dwunw_status::UnsupportedArch);
    }
    let known = |number: u8| {
        let value = given.regs.get(usize::from(number)).copied();
        value.filter(|_| given.valid >> number & 1 == 1)
    };
    let sp = known(arch.stack_pointer()).ok_or(dwunw_status::BadArgument)?;
    let mut general = [None; Registers::GENERAL];
    for (number, value) in (0u8..).zip(&mut general) {
        *value = known(number);
    }
    // An unknown one is 0, and `general` tells it from a known 0.
    let fp = known(arch.frame_pointer()).unwrap_or(0);
    Ok(Registers { pc: given.pc, sp, fp, general })
}

/// Whether the registers of a stopped thread can be read here.
pub(crate) const CAN_STOP: bool = cfg!(target_arch = "x86_64");

/// The registers of a thread that this process has stopped.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "a system call through the C library")]
pub(crate) fn of_stopped(thread: libc::pid_t) -> Result<dwunw_registers, dwunw_status> {
    /// The code segment of 32-bit code: other registers, and other frames.
    const COMPATIBILITY_MODE: u64 = 0x23;
    let mut found = core::mem::MaybeUninit::<libc::user_regs_struct>::zeroed();
    // SAFETY: room for the answer.
    let done = unsafe {
        libc::ptrace(libc::PTRACE_GETREGS, thread, core::ptr::null_mut::<core::ffi::c_void>(), found.as_mut_ptr())
    };
    if done != 0 {
        return Err(dwunw_status::TargetUnreadable);
    }
    // SAFETY: integers, of which all values are valid.
    let found = unsafe { found.assume_init() };
    if found.cs == COMPATIBILITY_MODE {
        return Err(dwunw_status::UnsupportedArch);
    }
    let general = [
        found.rax, found.rdx, found.rcx, found.rbx, found.rsi, found.rdi, found.rbp, found.rsp, found.r8, found.r9,
        found.r10, found.r11, found.r12, found.r13, found.r14, found.r15,
    ];
    let mut regs = [0; DWUNW_REGISTERS];
    for (to, from) in regs.iter_mut().zip(general) {
        *to = from;
    }
    Ok(dwunw_registers {
        struct_size: size_of::<dwunw_registers>() as u32,
        version: DWUNW_REGISTERS_VERSION,
        arch: dwunw_arch::X86_64 as u16,
        valid: (1 << general.len()) - 1,
        pc: found.rip,
        pac_mask: 0,
        regs,
    })
}

/// See [`CAN_STOP`].
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn of_stopped(_: libc::pid_t) -> Result<dwunw_registers, dwunw_status> {
    Err(dwunw_status::UnsupportedArch)
}
