/* Three frames on end of code that the program made, each with a frame pointer, as the code of runtimes has them. With "silent" in its name it tells
   of none. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

__attribute__((noinline)) static void at_the_bottom(void) {
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}

__attribute__((noinline)) static int calls_made_code(void *code, void **chain) {
    volatile int after = 1; /* so that the call is no tail call */
    ((void (*)(void **))code)(chain);
    return after;
}

int main(int argc, char **argv) {
    /* push %rbp; mov %rsp, %rbp; mov %rdi, %rax; add $8, %rdi; call *(%rax); pop %rbp; ret */
    static const uint8_t made[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x83, 0xc7, 0x08, 0xff, 0x10, 0x5d, 0xc3};
    static const char *const names[] = {"JS:outermost", "JS:between", "JS:innermost"};
    char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) return 2;
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
    FILE *map = fopen(argc && strstr(argv[0], "silent") ? "/dev/null" : path, "w");
    if (!map) return 2;
    for (int at = 0; at < 3; at++) {
        memcpy(code + 64 * at, made, sizeof made);
        fprintf(map, "%lx %zx %s\n", (unsigned long)code + 64 * at, sizeof made, names[at]);
    }
    fclose(map);
    void *chain[] = {code + 64, code + 128, (void *)at_the_bottom};
    /* No tail call: main stays on the stack. */
    return !calls_made_code(code, chain);
}
