/* Stacks of aarch64 whose addresses have a tag in the top byte, as memory tagging and sanitizers give it. */
#define _GNU_SOURCE
#include <alloca.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile int sink;

/* Calls function with a stack pointer and a frame pointer that have the tag. */
void on_tagged_stack(unsigned long tag, void (*function)(void));
__asm__(".text\n.globl on_tagged_stack\n.type on_tagged_stack, @function\non_tagged_stack:\n"
        ".cfi_startproc\n"
        "stp x29, x30, [sp, #-16]!\n"
        ".cfi_def_cfa_offset 16\n.cfi_offset 29, -16\n.cfi_offset 30, -8\n"
        "mov x29, sp\n"
        ".cfi_def_cfa_register 29\n"
        "orr x29, x29, x0\n"
        "mov sp, x29\n"
        "blr x1\n"
        "and x29, x29, #0x00ffffffffffffff\n"
        "mov sp, x29\n"
        "ldp x29, x30, [sp], #16\n"
        ".cfi_restore 29\n.cfi_restore 30\n.cfi_def_cfa 31, 0\n"
        "ret\n"
        ".cfi_endproc\n.size on_tagged_stack, .-on_tagged_stack\n");

static int ascending(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

NOINLINE static size_t variable(size_t n) {
    char *text = alloca(n + 1);
    memset(text, 'x', n);
    text[n] = 0;
    return strlen(text);
}

NOINLINE static int recursive(int n) {
    char text[24];
    snprintf(text, sizeof text, "%d", n);
    return n ? recursive(n - 1) + text[0] : text[0];
}

static void on_user(int signal) { sink = recursive(2) + signal; }

NOINLINE static void below(void) {
    int numbers[] = {5, 3, 4, 1, 2};
    qsort(numbers, 5, sizeof *numbers, ascending);
    sink = recursive(4) + numbers[0] + (int)variable(50);
    raise(SIGUSR1);
}

int main(void) {
    /* System calls take addresses with tags only from processes that said so. */
    if (prctl(PR_SET_TAGGED_ADDR_CTRL, PR_TAGGED_ADDR_ENABLE, 0, 0, 0)) return 1;
    signal(SIGUSR1, on_user);
    on_tagged_stack(0x0bul << 56, below);
    on_tagged_stack(0xf7ul << 56, below);
    return 0;
}
