/* Places to look at a stack from: each scene, by the name in the first argument, ends in a core file. Which functions of this file are
   then on the stack is plain from the source. */
#define _GNU_SOURCE
#include <alloca.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone))

#if defined(__x86_64__) || defined(__i386__)
#define FAULT "ud2\nret"
#elif defined(__aarch64__)
#define FAULT ".inst 0\nret"
#elif defined(__arm__)
#define FAULT ".word 0xe7f000f0\nbx lr"
#else
#define FAULT ".word 0xec000000\njr $31\nnop"
#endif

static volatile int sink;
static void (*volatile nowhere)(void);
static const char *volatile unmapped = (const char *)8;

/* The first instruction faults, and the function has information of its own. */
__asm__(".text\n.globl first_faults\n.type first_faults, %function\nfirst_faults:\n.cfi_startproc\n" FAULT "\n.cfi_endproc\n.size first_faults, .-first_faults\n");
extern void first_faults(void);

NOINLINE static int descend(int depth, int left) {
    if (depth == 0) abort();
    int below = descend(depth - 1, left + depth);
    sink = below;
    return below + left;
}

NOINLINE static int compare(const void *a, const void *b) {
    sink = descend(3, *(const int *)a);
    return *(const int *)a - *(const int *)b;
}

NOINLINE static void callback(void) {
    int numbers[] = {5, 2, 9, 1};
    qsort(numbers, 4, sizeof *numbers, compare);
    sink = numbers[0];
}

NOINLINE static void on_user(int signal) {
    sink = descend(2, signal);
}

/* On another stack, and itself interrupted. */
NOINLINE static void on_other(int signal) {
    raise(SIGUSR1);
    sink = signal;
}

NOINLINE static void handler(void) {
    raise(SIGUSR1);
    sink++;
}

NOINLINE static void nested(void) {
    static char other[1 << 16] __attribute__((aligned(64)));
    stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
    struct sigaction action = {.sa_handler = on_other, .sa_flags = SA_ONSTACK};
    sigaltstack(&stack, NULL);
    sigaction(SIGUSR2, &action, NULL);
    raise(SIGUSR2);
    sink++;
}

/* The handler is entered from the first instruction of a function. */
NOINLINE static void interrupted(void) {
    signal(SIGILL, on_user);
    first_faults();
    sink++;
}

NOINLINE static void null(void) {
    nowhere();
    sink++;
}

/* The C library's own code, some of it in assembler. */
NOINLINE static void leaf(void) {
    sink = (int)strlen(unmapped);
    sink++;
}

NOINLINE static void wide(int n) {
    int numbers[16] __attribute__((aligned(64)));
    char *text = alloca(n + 64);
    for (int at = 0; at < 16; at++) numbers[at] = at * n;
    snprintf(text, n + 64, "%d %s", numbers[n & 15], unmapped);
    sink = text[0] + numbers[3];
}

int main(int count, char **arguments) {
    const char *scene = count > 1 ? arguments[1] : "";
    signal(SIGUSR1, on_user);
    if (!strcmp(scene, "callback")) callback();
    if (!strcmp(scene, "handler")) handler();
    if (!strcmp(scene, "nested")) nested();
    if (!strcmp(scene, "interrupted")) interrupted();
    if (!strcmp(scene, "null")) null();
    if (!strcmp(scene, "leaf")) leaf();
    if (!strcmp(scene, "wide")) wide(20);
    return sink;
}
