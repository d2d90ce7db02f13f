/* Fills a snapshot's registers in the kernel, as a program for perf events would. Compiled alone; vmlinux.h, which is made of a running kernel, has the
 * types that stand here in its place. */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef __u8 uint8_t;
typedef __u16 uint16_t;
typedef __u32 uint32_t;
typedef __u64 uint64_t;
typedef __s32 int32_t;
typedef __u64 size_t;

/* arch/x86/include/asm/ptrace.h */
struct pt_regs {
    unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

#define DWUNW_NO_STDINT
#include "dwunw.h"

_Static_assert(sizeof(dwunw_registers) == 288, "as the guide says");

struct sample {
    dwunw_registers registers;
    uint64_t stack_start;
    uint8_t stack[16384];
};

static long (*read_user)(void *to, uint32_t size, const void *from) = (void *)112; /* bpf_probe_read_user */

__attribute__((section("perf_event"), used)) int take(struct pt_regs *at) {
    /* A map's element, in a program that is loaded. */
    static struct sample sample;
    dwunw_registers *to = &sample.registers;
    to->struct_size = sizeof *to;
    to->version = DWUNW_REGISTERS_VERSION;
    to->arch = DWUNW_ARCH_X86_64;
    to->pc = at->ip;
    to->regs[3] = at->bx;
    to->regs[6] = at->bp;
    to->regs[7] = at->sp;
    to->regs[12] = at->r12;
    to->regs[13] = at->r13;
    to->regs[14] = at->r14;
    to->regs[15] = at->r15;
    to->valid = 1 << 3 | 1 << 6 | 1 << 7 | 0xf000;
    sample.stack_start = at->sp;
    return read_user(sample.stack, sizeof sample.stack, (const void *)at->sp) == 0;
}
