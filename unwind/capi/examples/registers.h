/* The registers of the place where registers_here stands. */
#ifndef REGISTERS_H
#define REGISTERS_H

#include <stddef.h>

#include "dwunw.h"

#ifdef __x86_64__
/* Callee-saved registers, stack pointer and program counter are all that a walk may need of a place between two statements. */
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
#endif

#endif
