/* A program that makes code, and upon SIGUSR1 other code at the same address, as runtimes do that compile a function anew or give its place away. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile sig_atomic_t asked;
static void ask(int signal) { asked = signal; }

__attribute__((noinline)) static void at_the_bottom(void) {
    static int again;
    if (!again++) {
        puts("ready");
        fflush(stdout);
    }
    asked = 0;
    while (!asked) pause();
}

__attribute__((noinline)) static int calls_made_code(void *code) {
    volatile int after = 1; /* so that the call is no tail call */
    ((void (*)(void (*)(void)))code)(at_the_bottom);
    return after;
}

int main(void) {
    /* push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret */
    static const uint8_t first[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
    /* push %rbp; mov %rsp, %rbp; sub $64, %rsp; call *%rdi; leave; ret */
    static const uint8_t second[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x40, 0xff, 0xd7, 0xc9, 0xc3};
    char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) return 2;
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
    FILE *map = fopen(path, "w");
    if (!map) return 2;
    signal(SIGUSR1, ask);
    memcpy(code, first, sizeof first);
    fprintf(map, "%lx %zx JS:first\n", (unsigned long)code, sizeof first);
    fflush(map);
    if (!calls_made_code(code)) return 1;
    memcpy(code, second, sizeof second);
    fprintf(map, "%lx %zx JS:second\n", (unsigned long)code, sizeof second);
    fflush(map);
    return !calls_made_code(code);
}
