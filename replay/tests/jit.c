/* A program that makes code while it runs, and tells of it as runtimes do. */
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

__attribute__((noinline)) static int calls_made_code(void *code) {
    volatile int after = 1; /* so that the call is no tail call */
    ((void (*)(void (*)(void)))code)(at_the_bottom);
    return after;
}

int main(void) {
    /* push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret */
    static const uint8_t made[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
    char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) return 2;
    memcpy(code + 64, made, sizeof made);
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
    FILE *map = fopen(path, "w");
    if (!map) return 2;
    /* An old function lies around the new one; another is called by nobody. */
    fprintf(map, "%lx 100 Old:gone\n%lx %zx JS:*made /tmp/a.js:1:13\n%lx 8 Nobody\n", (unsigned long)code,
            (unsigned long)code + 64, sizeof made, (unsigned long)code + 512);
    fclose(map);
    /* No tail call: main stays on the stack. */
    return !calls_made_code(code + 64);
}
