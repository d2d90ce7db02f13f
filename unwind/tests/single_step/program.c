/* What the single-step tests walk through: every way in which one function comes to run below another. SMALL leaves out what
   only repeats, for emulators. */
#define _GNU_SOURCE
#include <alloca.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

#ifdef SMALL
enum { ROUNDS = 1, REPEATS = 3, ELEMENTS = 12, DEPTH = 7 };
#else
enum { ROUNDS = 2, REPEATS = 60, ELEMENTS = 60, DEPTH = 12 };
#endif

/* The interrupted program counter, an instruction that faults, its length, and a return. */
#if defined(__x86_64__)
#define PC(uc) ((uc)->uc_mcontext.gregs[REG_RIP])
#define FAULT "ud2"
#define FAULT_BYTES 2
#define RETURN "ret"
#elif defined(__aarch64__)
#define PC(uc) ((uc)->uc_mcontext.pc)
#define FAULT ".inst 0"
#define FAULT_BYTES 4
#define RETURN "ret"
#elif defined(__i386__)
#define PC(uc) ((uc)->uc_mcontext.gregs[REG_EIP])
#define FAULT "ud2"
#define FAULT_BYTES 2
#define RETURN "ret"
#elif defined(__arm__)
#define PC(uc) ((uc)->uc_mcontext.arm_pc)
#define FAULT "udf #0"
#define FAULT_BYTES 4
#define RETURN "bx lr"
/* There a @ begins a comment; and the handler below leaves the instruction set as the fault had it. */
#define FUNCTION "%function"
#define SET ".arm\n"
#elif defined(__riscv)
#define PC(uc) ((uc)->uc_mcontext.__gregs[REG_PC])
#define FAULT ".4byte 0"
#define FAULT_BYTES 4
#define RETURN "ret"
#elif defined(__mips__)
#define PC(uc) ((uc)->uc_mcontext.pc)
#define FAULT ".word 0xec000000"
#define FAULT_BYTES 4
#define RETURN "jr $31\nnop"
#endif

#ifndef FUNCTION
#define FUNCTION "@function"
#define SET ""
#endif

static volatile int sink;

static int ascending(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Recursion with callee-saved registers. */
NOINLINE static int depth_first(int n, int left, int right) {
    if (n == 0) return left ^ right;
    int a = depth_first(n - 1, right, left + n);
    return a + depth_first(n / 3, left, right - n) + n;
}

/* Tail calls: a jump where a call would be. */
NOINLINE static int tail_end(int x) {
    sink = x;
    return x * 3;
}
NOINLINE static int tail_middle(int x) { return tail_end(x + 1); }
NOINLINE static int tail_start(int x) { return tail_middle(x * 2); }

/* A frame of unknown size. */
NOINLINE static size_t variable(size_t n) {
    char *text = alloca(n + 1);
    memset(text, 'x', n);
    text[n] = 0;
    return strlen(text);
}

/* A frame that is aligned beyond what the caller gives, with a variable part besides. */
NOINLINE static int aligned(int n) {
    int wide[16] __attribute__((aligned(64)));
    char *text = alloca(n + 16);
    for (int i = 0; i < 16; i++) wide[i] = n * i;
    snprintf(text, n + 16, "%d", n);
    qsort(wide, 16, sizeof *wide, ascending);
    return wide[15] + text[0];
}

/* Large frame, stack protector or not, many arguments on the stack. */
NOINLINE static long many(long a, long b, long c, long d, long e, long f, long g, long h) {
    volatile long big[600];
    big[a & 511] = g + h;
    return a + b + c + d + e + f + big[a & 511];
}

static jmp_buf out;
NOINLINE static void leave(int n) {
    if (n == 0) longjmp(out, 1);
    leave(n - 1);
    sink++;
}

/* The first instruction faults: the interrupted address is no return address. */
__asm__(".text\n" SET ".globl first_faults\n.type first_faults, " FUNCTION "\nfirst_faults:\n.cfi_startproc\n" FAULT "\n" RETURN "\n.cfi_endproc\n.size first_faults, .-first_faults\n");
extern void first_faults(void);

static void on_illegal(int signal, siginfo_t *info, void *context) {
    ucontext_t *uc = context;
    (void)signal, (void)info;
    sink = depth_first(3, 1, 2);
    PC(uc) += FAULT_BYTES;
}

__asm__(".text\n" SET ".globl only_returns\n.type only_returns, " FUNCTION "\nonly_returns:\n.cfi_startproc\n" RETURN "\n.cfi_endproc\n.size only_returns, .-only_returns\n");
extern void only_returns(void);

/* A call through a null pointer: the handler lets it lead to a function that returns. */
static void on_segv(int signal, siginfo_t *info, void *context) {
    ucontext_t *uc = context;
    (void)signal, (void)info;
    sink = tail_start(4);
    PC(uc) = (unsigned long)only_returns;
}

static void on_nested(int signal) {
    char text[64];
    snprintf(text, sizeof text, "nested %d", signal);
    sink = (int)strlen(text);
}

static void on_user(int signal) {
    int numbers[] = {3, 1, 2, signal};
    qsort(numbers, 4, sizeof *numbers, ascending);
    raise(SIGUSR2);
    sink = depth_first(4, numbers[0], numbers[3]);
}

NOINLINE static void null_call(void (*volatile function)(void)) {
    function();
    sink++;
}

static void handle(int signal, void *function, int flags) {
    struct sigaction action = {0};
    action.sa_sigaction = function;
    action.sa_flags = flags;
    sigaction(signal, &action, NULL);
}

int main(int argc, char **argv) {
    static char alternate[64 * 1024] __attribute__((aligned(64)));
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    (void)argv;
    sigaltstack(&stack, NULL);
    handle(SIGUSR1, on_user, SA_ONSTACK);
    handle(SIGUSR2, on_nested, 0);
    handle(SIGILL, on_illegal, SA_SIGINFO | SA_ONSTACK);
    handle(SIGSEGV, on_segv, SA_SIGINFO);

    for (int round = 0; round < ROUNDS; round++) {
        int numbers[ELEMENTS];
        for (int i = 0; i < ELEMENTS; i++) numbers[i] = (i * 7919 + argc + round) % 101;
        qsort(numbers, ELEMENTS, sizeof *numbers, ascending);
        sink = bsearch(&numbers[7], numbers, ELEMENTS, sizeof *numbers, ascending) != NULL;
        sink = depth_first(DEPTH, numbers[0], numbers[ELEMENTS - 1]);
        sink = tail_start(5);
        sink = (int)variable(100) + aligned(20) + (int)many(1, 2, 3, 4, 5, 6, 7, 8);
    }
    raise(SIGUSR1);
    first_faults();
    null_call(NULL);
    if (!setjmp(out)) leave(6);

    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    char *text = malloc(200);
    for (int i = 0; i < ROUNDS * REPEATS; i++) snprintf(text, 200, "%d %s %f %ld", i, "words", 0.5 * i, (long)now.tv_sec);
    char *copy = strdup(text);
    sink = (int)strtol(copy, NULL, 10) + atoi(text);
    free(copy);
    free(text);
    return 0;
}
