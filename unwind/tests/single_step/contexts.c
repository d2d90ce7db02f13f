/* Stacks that begin in the middle: of a context of the C library, and of one whose trampoline is made by hand, with call frame information and without. */
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

#define STACK_BYTES 65536

volatile int sink;

/* Stops for whoever traces. */
__attribute__((noinline)) void stands(void) {
    __asm__ volatile("int3");
    sink++;
}

__attribute__((noinline)) void works(int depth) {
    if (depth > 0)
        works(depth - 1);
    else
        stands();
    sink++;
}

void entry(void) {
    works(3);
    sink++;
}

/* switch_to(stack pointer, where to leave this one) and what a new stack begins with: it calls nobody's function back. */
__asm__(".text\n"
        ".globl switch_to\n.type switch_to, @function\n"
        "switch_to:\n.cfi_startproc\n"
        "  push %rbp\n.cfi_adjust_cfa_offset 8\n"
        "  push %rbx\n.cfi_adjust_cfa_offset 8\n"
        "  mov %rsp, (%rsi)\n"
        "  mov %rdi, %rsp\n"
        "  pop %rbx\n.cfi_adjust_cfa_offset -8\n"
        "  pop %rbp\n.cfi_adjust_cfa_offset -8\n"
        "  ret\n.cfi_endproc\n.size switch_to, .-switch_to\n"
        ".globl trampoline\n.type trampoline, @function\n"
        "trampoline:\n.cfi_startproc\n.cfi_undefined rip\n"
        "  call *%rbx\n"
        "  mov leaves_to(%rip), %rdi\n  lea nowhere(%rip), %rsi\n  jmp switch_to\n.cfi_endproc\n.size trampoline, .-trampoline\n"
        /* The form of Boost.Context's: the function returns to code that was never left by a call. */
        ".globl dark_trampoline\n.type dark_trampoline, @function\n"
        "dark_trampoline:\n"
        "  lea finishes(%rip), %rbp\n  push %rbp\n  jmp *%rbx\n"
        "finishes:\n"
        "  mov leaves_to(%rip), %rdi\n  lea nowhere(%rip), %rsi\n  jmp switch_to\n.size dark_trampoline, .-dark_trampoline\n");

void switch_to(void *stack_pointer, void **left);
void trampoline(void);
void dark_trampoline(void);
void *leaves_to, *nowhere;

__attribute__((noinline)) static void run_on_new_stack(void (*begins)(void)) {
    char *stack = malloc(STACK_BYTES);
    uintptr_t *top = (uintptr_t *)(((uintptr_t)stack + STACK_BYTES) & -16);
    *--top = 0;
    *--top = (uintptr_t)begins;
    *--top = 0;
    *--top = (uintptr_t)entry;
    switch_to(top, &leaves_to);
    sink++;
}

int main(void) {
    static ucontext_t mine, other;
    getcontext(&other);
    other.uc_stack.ss_sp = malloc(STACK_BYTES);
    other.uc_stack.ss_size = STACK_BYTES;
    other.uc_link = &mine;
    makecontext(&other, entry, 0);
    swapcontext(&mine, &other);
    run_on_new_stack(trampoline);
    run_on_new_stack(dark_trampoline);
    return 0;
}
