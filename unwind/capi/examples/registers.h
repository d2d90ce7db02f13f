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
