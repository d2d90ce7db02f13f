/* Three frames on end of code that the program made, none with a frame pointer, and a jitdump that has names and unwinding rules of them. */
#include <libgen.h>
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

/* sub $24, %rsp; mov %rdi, %rax; add $8, %rdi; call *(%rax); add $24, %rsp; ret */
static const uint8_t made[] = {0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0xf8, 0x48, 0x83, 0xc7, 0x08, 0xff, 0x10, 0x48, 0x83, 0xc4, 0x18, 0xc3};

/* .eh_frame of it, as if it lay 24 bytes behind the function's first one: a common entry (CFA = rsp+8; RA = [CFA-8]), and one for its 18 bytes, whose CFA is
   rsp+32 between the two that move the stack pointer. */
static const uint8_t rules[] = {0x14, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
                                0x14, 0, 0, 0, 0x1c, 0, 0, 0, 0xc8, 0xff, 0xff, 0xff, 18, 0, 0, 0, 0, 0x44, 0x0e, 32, 0x4d, 0x0e, 8, 0};

struct header {
    uint32_t magic, version, bytes, machine, pad, pid;
    uint64_t time, flags;
};
struct record {
    uint32_t kind, bytes;
    uint64_t time;
};
struct rules_record {
    struct record record;
    uint64_t bytes, header_bytes, mapped_bytes;
};
struct load_record {
    struct record record;
    uint32_t pid, tid;
    uint64_t vma, start, size, index;
};

int main(int argc, char **argv) {
    static const char *const names[] = {"JS:outermost", "JS:between", "JS:innermost"};
    char path[4096];
    /* Beside the program, in its name: dirname writes into it. */
    snprintf(path, sizeof path, "%s/jit-%d.dump", argc ? dirname(argv[0]) : ".", (int)getpid());
    FILE *dump = fopen(path, "w+");
    char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!dump || code == MAP_FAILED) return 2;
    uint32_t pid = (uint32_t)getpid();
    struct header header = {0x4a695444, 1, sizeof header, 62, 0, pid, 1, 0};
    fwrite(&header, sizeof header, 1, dump);
    for (int at = 0; at < 3; at++) {
        char *start = code + 64 * at;
        memcpy(start, made, sizeof made);
        struct rules_record told = {{4, sizeof told + sizeof rules, 2}, sizeof rules, 0, 0};
        fwrite(&told, sizeof told, 1, dump);
        fwrite(rules, sizeof rules, 1, dump);
        size_t bytes = sizeof(struct load_record) + strlen(names[at]) + 1 + sizeof made;
        struct load_record load = {{0, (uint32_t)bytes, 3}, pid, pid, (uintptr_t)start, (uintptr_t)start, sizeof made, (uint64_t)at + 1};
        fwrite(&load, sizeof load, 1, dump);
        fwrite(names[at], strlen(names[at]) + 1, 1, dump);
        fwrite(made, sizeof made, 1, dump);
    }
    /* The mapping by which perf finds the dump. */
    if (fflush(dump) || mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(dump), 0) == MAP_FAILED) return 2;
    void *chain[] = {code + 64, code + 128, (void *)at_the_bottom};
    /* No tail call: main stays on the stack. */
    return !calls_made_code(code, chain);
}
