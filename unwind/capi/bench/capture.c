/* How long dwunw_capture takes: from a snapshot, with one read of another process, and with stopping it.
 *
 *   unwind/capi/bench/run
 *
 * The stacks go through 256 functions of different frames in random order; each depth has 200 different stacks, walked in random order, so
 * that neither a cache nor a branch predictor knows what comes.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dwunw.h"
#include "maps.h"
#include "registers.h"

enum { STACKS = 200, ROUNDS = 20000, MAX_FRAMES = 160, MAX_STACK = 1 << 16, FUNCTIONS = 256 };

struct snapshot {
    dwunw_registers registers;
    size_t size;
    char bytes[MAX_STACK];
};

static struct snapshot *snapshots[STACKS];
static uint64_t seed = 1, stack_end;
static int taken, wants_snapshot, ready[2];

static uint64_t next_random(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed >> 33;
}

__attribute__((noinline)) static void at_the_bottom(void) {
    if (!wants_snapshot) {
        if (write(ready[1], "x", 1) == 1)
            for (;;)
                pause();
    }
    struct snapshot *to = snapshots[taken];
    registers_here(&to->registers);
    to->size = stack_end - to->registers.regs[7];
    if (to->size > MAX_STACK)
        abort();
    memcpy(to->bytes, (void *)(uintptr_t)to->registers.regs[7], to->size);
}

typedef int function(int depth);
static function *const functions[FUNCTIONS];

/* Frames of different sizes, with and without saved registers. */
#define FUNCTION(n)                                                                              \
    __attribute__((noinline)) static int f##n(int depth) {                                       \
        volatile char room[16 + (n) % 23 * 8];                                                   \
        room[0] = (char)depth;                                                                   \
        if (depth == 0)                                                                          \
            at_the_bottom();                                                                     \
        else                                                                                     \
            depth += functions[next_random() % FUNCTIONS](depth - 1) * ((n) % 3 ? 1 : room[0]);  \
        return depth + room[0] + (n);                                                            \
    }
#define FOUR(m, n) m(n##0) m(n##1) m(n##2) m(n##3)
#define SIXTEEN(m, n) FOUR(m, n##0) FOUR(m, n##1) FOUR(m, n##2) FOUR(m, n##3)
#define SIXTY_FOUR(m, n) SIXTEEN(m, n##0) SIXTEEN(m, n##1) SIXTEEN(m, n##2) SIXTEEN(m, n##3)
#define ALL(m) SIXTY_FOUR(m, 10) SIXTY_FOUR(m, 11) SIXTY_FOUR(m, 12) SIXTY_FOUR(m, 13)
ALL(FUNCTION)
#define NAME(n) f##n,
static function *const functions[FUNCTIONS] = {ALL(NAME)};

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t times[ROUNDS];

static void report(const char *what, uint32_t frames, int rounds) {
    qsort(times, (size_t)rounds, sizeof times[0], by_size);
    int below = 0;
    while (below < rounds && times[below] < 5000)
        below++;
    printf("| %s | %u | %.2f | %.2f | %.2f | %.2f | %.1f %% |\n", what, frames, times[rounds / 2] / 1e3, times[rounds * 95 / 100] / 1e3,
           times[rounds * 99 / 100] / 1e3, times[rounds / 2] / (double)frames, 100.0 * below / rounds);
}

static dwunw_context *context;
static dwunw_scratch *scratch;
static char memory[DWUNW_SCRATCH_SIZE];
static dwunw_frame frames[MAX_FRAMES];

static uint32_t timed(dwunw_capture_request *request, int round, uint32_t wanted) {
    dwunw_capture_result result = {.struct_size = sizeof result};
    uint64_t before = now();
    dwunw_status status = dwunw_capture(context, request, &result);
    times[round] = (uint32_t)(now() - before);
    if (status != DWUNW_STATUS_OK || (wanted && result.written != wanted) || result.target_reads > 2) {
        fprintf(stderr, "%s after %u frames, %u reads\n", dwunw_strerror(status), result.written, result.target_reads);
        exit(1);
    }
    return result.written;
}

static void from_snapshots(uint32_t depth) {
    uint32_t outer = 0;
    wants_snapshot = 1;
    for (taken = 0; taken < STACKS; taken++)
        functions[next_random() % FUNCTIONS]((int)depth);
    dwunw_window window = {.struct_size = sizeof window};
    dwunw_capture_request request = {.struct_size = sizeof request, .windows = &window, .window_count = 1, .frames = frames,
                                     .frame_size = sizeof frames[0], .max_frames = MAX_FRAMES, .scratch = scratch};
    for (int round = -2000; round < ROUNDS; round++) {
        struct snapshot *snapshot = snapshots[next_random() % STACKS];
        request.registers = &snapshot->registers;
        window.start = snapshot->registers.regs[7];
        window.bytes = snapshot->bytes;
        window.size = snapshot->size;
        outer = timed(&request, round < 0 ? 0 : round, outer);
    }
    report("snapshot", outer, ROUNDS);
}

static void from_a_process(uint32_t depth, int stops) {
    enum { PROCESSES = 16 };
    pid_t children[PROCESSES];
    dwunw_registers registers[PROCESSES];
    uint32_t outer = 0;
    for (int at = 0; at < PROCESSES; at++) {
        children[at] = fork();
        if (children[at] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            wants_snapshot = 0;
            seed += (uint64_t)at;
            exit(functions[next_random() % FUNCTIONS]((int)depth));
        }
        char byte;
        if (read(ready[0], &byte, 1) != 1)
            exit(1);
        /* Registers as a program in the kernel would have brought them; to be had as soon as the child waits. */
        char path[64];
        unsigned long sp, pc, unused;
        int fields = 0;
        snprintf(path, sizeof path, "/proc/%d/syscall", (int)children[at]);
        for (int round = 0; round < 1000 && fields != 9; round++) {
            usleep(1000);
            FILE *file = fopen(path, "r");
            if (!file)
                exit(1);
            fields = fscanf(file, "%lu %lx %lx %lx %lx %lx %lx %lx %lx", &unused, &unused, &unused, &unused, &unused, &unused, &unused, &sp, &pc);
            fclose(file);
        }
        registers[at] = (dwunw_registers){.struct_size = sizeof registers[0], .version = DWUNW_REGISTERS_VERSION, .arch = DWUNW_ARCH_X86_64, .valid = 1 << 7, .pc = pc};
        registers[at].regs[7] = sp;
    }
    int rounds = stops ? ROUNDS / 10 : ROUNDS;
    for (int round = -100; round < rounds; round++) {
        int at = (int)(next_random() % PROCESSES);
        dwunw_capture_request request = {.struct_size = sizeof request, .flags = DWUNW_CAPTURE_READ_TARGET | (stops ? DWUNW_CAPTURE_STOP_TARGET : 0),
                                         .pid = children[at], .registers = stops ? NULL : &registers[at], .frames = frames,
                                         .frame_size = sizeof frames[0], .max_frames = MAX_FRAMES, .scratch = scratch};
        outer = timed(&request, round < 0 ? 0 : round, outer);
    }
    report(stops ? "stopped, read" : "read", outer, rounds);
    for (int at = 0; at < PROCESSES; at++) {
        kill(children[at], SIGKILL);
        waitpid(children[at], NULL, 0);
    }
}

int main(void) {
    const uint32_t depths[] = {32, 55, 85, 128};
    stack_end = end_of_mapping(getpid(), (uint64_t)(uintptr_t)&depths);
    for (int at = 0; at < STACKS; at++)
        snapshots[at] = malloc(sizeof *snapshots[at]);
    /* Two blocks of 32 KiB: the deepest of these stacks is read at once. */
    dwunw_scratch_options room = {.struct_size = sizeof room, .target_bytes = 1 << 16};
    size_t size = dwunw_scratch_size(&room);
    if (pipe(ready) != 0 || dwunw_init(NULL, &context) != DWUNW_STATUS_OK ||
        dwunw_scratch_init(size <= sizeof memory ? memory : malloc(size), size, &room, &scratch) != DWUNW_STATUS_OK)
        return 1;
    add_modules(context, getpid());
    printf("| | frames | p50 us | p95 us | p99 us | ns a frame | below 5 us |\n| --- | --- | --- | --- | --- | --- | --- |\n");
    for (int at = 0; at < 4; at++)
        from_snapshots(depths[at] - 5);
    for (int at = 0; at < 4; at++)
        from_a_process(depths[at] - 6, 0);
    for (int at = 0; at < 4; at++)
        from_a_process(depths[at] - 6, 1);
    dwunw_shutdown(context);
    return 0;
}
