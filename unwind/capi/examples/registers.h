/* The registers of the place where registers_here stands: those that calls keep, stack pointer and program counter are all that a walk
 * may need of a place between two statements of a function that calls others. */
#ifndef REGISTERS_H
#define REGISTERS_H

#include <stddef.h>

#include "dwunw.h"

#if defined(__x86_64__)
enum { STACK_POINTER = 7 };

__attribute__((always_inline)) static inline void registers_here(dwunw_registers *to) {
    *to = (dwunw_registers){.struct_size = sizeof *to, .version = DWUNW_REGISTERS_VERSION, .arch = DWUNW_ARCH_X86_64};
    to->valid = 1 << 3 | 1 << 6 | 1 << 7 | 0xf000;
    __asm__ volatile("leaq 0f(%%rip), %%rax\n\t"
                     "movq %%rax, %c[pc](%[to])\n\t"
                     "movq %%rbx, %c[regs]+24(%[to])\n\t"
                     "movq %%rbp, %c[regs]+48(%[to])\n\t"
                     "movq %%rsp, %c[regs]+56(%[to])\n\t"
                     "movq %%r12, %c[regs]+96(%[to])\n\t"
                     "movq %%r13, %c[regs]+104(%[to])\n\t"
                     "movq %%r14, %c[regs]+112(%[to])\n\t"
                     "movq %%r15, %c[regs]+120(%[to])\n"
                     "0:"
                     :
                     : [to] "r"(to), [pc] "i"(offsetof(dwunw_registers, pc)), [regs] "i"(offsetof(dwunw_registers, regs))
                     : "rax", "memory");
}
#elif defined(__aarch64__)
enum { STACK_POINTER = 31 };

__attribute__((always_inline)) static inline void registers_here(dwunw_registers *to) {
    *to = (dwunw_registers){.struct_size = sizeof *to, .version = DWUNW_REGISTERS_VERSION, .arch = DWUNW_ARCH_AARCH64};
    to->valid = 0xfff80000; /* x19 to x30, sp */
    uint64_t *kept = &to->regs[19];
    __asm__ volatile("stp x19, x20, [%[kept]]\n\t"
                     "stp x21, x22, [%[kept], #16]\n\t"
                     "stp x23, x24, [%[kept], #32]\n\t"
                     "stp x25, x26, [%[kept], #48]\n\t"
                     "stp x27, x28, [%[kept], #64]\n\t"
                     "stp x29, x30, [%[kept], #80]\n\t"
                     "mov x9, sp\n\t"
                     "str x9, [%[kept], #96]\n\t"
                     "adr x9, 0f\n\t"
                     "str x9, [%[pc]]\n"
                     "0:"
                     :
                     : [kept] "r"(kept), [pc] "r"(&to->pc)
                     : "x9", "memory");
}
#elif defined(__i386__)
enum { STACK_POINTER = 4 };

__attribute__((always_inline)) static inline void registers_here(dwunw_registers *to) {
    *to = (dwunw_registers){.struct_size = sizeof *to, .version = DWUNW_REGISTERS_VERSION, .arch = DWUNW_ARCH_I686};
    to->valid = 0xf8; /* ebx, esp, ebp, esi, edi */
    /* No instruction reads the program counter: a call pushes it. */
    __asm__ volatile("call 0f\n"
                     "0:\n\t"
                     "popl %%eax\n\t"
                     "addl $1f-0b, %%eax\n\t"
                     "movl %%eax, %c[pc](%[to])\n\t"
                     "movl %%ebx, %c[regs]+24(%[to])\n\t"
                     "movl %%esp, %c[regs]+32(%[to])\n\t"
                     "movl %%ebp, %c[regs]+40(%[to])\n\t"
                     "movl %%esi, %c[regs]+48(%[to])\n\t"
                     "movl %%edi, %c[regs]+56(%[to])\n"
                     "1:"
                     :
                     : [to] "r"(to), [pc] "i"(offsetof(dwunw_registers, pc)), [regs] "i"(offsetof(dwunw_registers, regs))
                     : "eax", "memory");
}
#elif defined(__riscv) && __riscv_xlen == 64
enum { STACK_POINTER = 2 };

__attribute__((always_inline)) static inline void registers_here(dwunw_registers *to) {
    *to = (dwunw_registers){.struct_size = sizeof *to, .version = DWUNW_REGISTERS_VERSION, .arch = DWUNW_ARCH_RISCV64};
    to->valid = 0x0ffc0306; /* ra, sp, s0 and s1, s2 to s11 */
    uint64_t *regs = to->regs;
    __asm__ volatile("sd ra, 8(%[regs])\n\t"
                     "sd sp, 16(%[regs])\n\t"
                     "sd s0, 64(%[regs])\n\t"
                     "sd s1, 72(%[regs])\n\t"
                     "sd s2, 144(%[regs])\n\t"
                     "sd s3, 152(%[regs])\n\t"
                     "sd s4, 160(%[regs])\n\t"
                     "sd s5, 168(%[regs])\n\t"
                     "sd s6, 176(%[regs])\n\t"
                     "sd s7, 184(%[regs])\n\t"
                     "sd s8, 192(%[regs])\n\t"
                     "sd s9, 200(%[regs])\n\t"
                     "sd s10, 208(%[regs])\n\t"
                     "sd s11, 216(%[regs])\n\t"
                     "lla t0, 0f\n\t"
                     "sd t0, 0(%[pc])\n"
                     "0:"
                     :
                     : [regs] "r"(regs), [pc] "r"(&to->pc)
                     : "t0", "memory");
}
#elif defined(__arm__)
enum { STACK_POINTER = 13 };

/* In either instruction set. */
__attribute__((always_inline)) static inline void registers_here(dwunw_registers *to) {
    uint32_t kept[11];
    *to = (dwunw_registers){.struct_size = sizeof *to, .version = DWUNW_REGISTERS_VERSION, .arch = DWUNW_ARCH_ARM};
    to->valid = 0x6ff0; /* r4 to r11, sp, lr */
    __asm__ volatile("stmia %[kept], {r4-r11}\n\t"
                     "str sp, [%[kept], #32]\n\t"
                     "str lr, [%[kept], #36]\n\t"
                     "adr r12, 0f\n\t"
                     "str r12, [%[kept], #40]\n\t"
                     ".balign 4\n"
                     "0:"
                     :
                     : [kept] "r"(kept)
                     : "r12", "memory");
    for (int at = 0; at < 8; at++)
        to->regs[4 + at] = kept[at];
    to->regs[13] = kept[8];
    to->regs[14] = kept[9];
    to->pc = kept[10] & ~1u;
}
#elif defined(__mips__)
enum { STACK_POINTER = 29 };

/* $31 has the address of the place itself: the function keeps its return address in its frame. */
__attribute__((always_inline)) static inline void registers_here(dwunw_registers *to) {
    uint32_t kept[12];
    *to = (dwunw_registers){.struct_size = sizeof *to, .version = DWUNW_REGISTERS_VERSION};
    to->arch = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? DWUNW_ARCH_MIPS_BE : DWUNW_ARCH_MIPS_LE;
    to->valid = 0x70ff0000; /* $16 to $23, $28 to $30 */
    __asm__ volatile(".set push\n\t"
                     ".set noreorder\n\t"
                     "sw $16, 0(%[kept])\n\t"
                     "sw $17, 4(%[kept])\n\t"
                     "sw $18, 8(%[kept])\n\t"
                     "sw $19, 12(%[kept])\n\t"
                     "sw $20, 16(%[kept])\n\t"
                     "sw $21, 20(%[kept])\n\t"
                     "sw $22, 24(%[kept])\n\t"
                     "sw $23, 28(%[kept])\n\t"
                     "sw $28, 32(%[kept])\n\t"
                     "sw $29, 36(%[kept])\n\t"
                     "sw $30, 40(%[kept])\n\t"
                     "bal 0f\n\t"
                     "nop\n"
                     "0:\n\t"
                     "sw $31, 44(%[kept])\n\t"
                     ".set pop"
                     :
                     : [kept] "r"(kept)
                     : "$31", "memory");
    for (int at = 0; at < 8; at++)
        to->regs[16 + at] = kept[at];
    for (int at = 0; at < 3; at++)
        to->regs[28 + at] = kept[8 + at];
    to->pc = kept[11];
}
#endif

#endif
