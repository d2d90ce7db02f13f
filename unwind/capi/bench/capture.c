/* How long dwunw_capture takes: from a snapshot, with one read of another process, and with stopping it.
 *
 *   capture snapshot|read|stop FRAMES          times of many captures of stacks of so many frames, as a row of a table
 *   capture snapshot|read|stop FRAMES COUNT    COUNT captures below `counted`, for callgrind; prints how many frames they had
 *
 * unwind/capi/bench/run prints the whole table. The stacks go through 256 functions of different frames in random order; each depth has 200
 * different stacks, walked in random order, so that neither a cache nor a branch predictor knows what comes.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dwunw.h"
#include "maps.h"
#include "registers.h"

enum { STACKS = 200, ROUNDS = 20000, STOPS = 2000, WARM_UP = 2000, PROCESSES = 16, MAX_FRAMES = 160, MAX_STACK = 1 << 16, FUNCTIONS = 256 };

struct snapshot {
    dwunw_registers registers;
    size_t size;
    char bytes[MAX_STACK];
};

static struct snapshot *snapshots[STACKS];
static uint64_t seed = 1, stack_end;
static int taken, waits;

static uint64_t next_random(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed >> 33;
}

__attribute__((noinline)) static void at_the_bottom(void) {
    if (waits) {
        if (write(STDOUT_FILENO, "x", 1) == 1)
            for (;;)
                pause();
        exit(1);
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

static void report(const char *from, uint32_t frames, int rounds) {
    qsort(times, (size_t)rounds, sizeof times[0], by_size);
    int below = 0;
    while (below < rounds && times[below] < 5000)
        below++;
    printf("| %s | %u | %.2f | %.2f | %.2f | %.2f | %.1f %% |\n", from, frames, times[rounds / 2] / 1e3, times[rounds * 95 / 100] / 1e3,
           times[rounds * 99 / 100] / 1e3, times[rounds / 2] / (double)frames, 100.0 * below / rounds);
}

static dwunw_context *context;
static dwunw_scratch *scratch;
static dwunw_frame frames[MAX_FRAMES];

/* callgrind counts below this function alone. */
__attribute__((noinline)) dwunw_status counted(const dwunw_capture_request *request, dwunw_capture_result *result) {
    return dwunw_capture(context, request, result);
}

/* Captures one stack, which must be whole and have the wanted frames, and notes the time if the round counts. */
static void capture(const dwunw_capture_request *request, int round, uint32_t wanted) {
    dwunw_capture_result result = {.struct_size = sizeof result};
    uint64_t before = now();
    dwunw_status status = round < 0 ? dwunw_capture(context, request, &result) : counted(request, &result);
    if (round >= 0)
        times[round] = (uint32_t)(now() - before);
    uint32_t most_reads = request->flags & DWUNW_CAPTURE_READ_TARGET ? 1 : 0;
    if (status != DWUNW_STATUS_OK || result.written != wanted || result.target_reads > most_reads) {
        fprintf(stderr, "%s after %u frames of %u, %u reads\n", dwunw_strerror(status), result.written, wanted, result.target_reads);
        exit(1);
    }
}

static void from_snapshots(uint32_t wanted, int rounds) {
    /* What is on the stack besides those functions: the one that takes the snapshot, main, and three of the C library and of the program's start. */
    for (taken = 0; taken < STACKS; taken++)
        functions[next_random() % FUNCTIONS]((int)wanted - 6);
    dwunw_window window = {.struct_size = sizeof window};
    dwunw_capture_request request = {.struct_size = sizeof request, .windows = &window, .window_count = 1, .frames = frames,
                                     .frame_size = sizeof frames[0], .max_frames = MAX_FRAMES, .scratch = scratch};
    for (int round = -WARM_UP; round < rounds; round++) {
        struct snapshot *snapshot = snapshots[next_random() % STACKS];
        request.registers = &snapshot->registers;
        window.start = snapshot->registers.regs[7];
        window.bytes = snapshot->bytes;
        window.size = snapshot->size;
        capture(&request, round, wanted);
    }
}

/* A process of its own rather than a copy of this one, which under valgrind would have valgrind's registers. All lie at the same addresses, so that
 * the modules of one are those of all. */
static pid_t start(const char *program, uint32_t frames_of_functions, int number) {
    int ready[2];
    char depth[16], seeds[16], byte;
    if (pipe(ready) != 0)
        exit(1);
    snprintf(depth, sizeof depth, "%03u", frames_of_functions);
    snprintf(seeds, sizeof seeds, "%03d", number);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || dup2(ready[1], STDOUT_FILENO) < 0 || personality(ADDR_NO_RANDOMIZE) < 0)
            _exit(1);
        execl(program, program, "wait", depth, seeds, NULL);
        _exit(1);
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1)
        exit(1);
    close(ready[0]);
    return child;
}

/* Registers as a program in the kernel would have brought them; to be had as soon as the process waits. */
static dwunw_registers registers_of(pid_t process) {
    char path[64];
    unsigned long sp, pc, unused;
    int fields = 0;
    snprintf(path, sizeof path, "/proc/%d/syscall", (int)process);
    for (int round = 0; round < 1000 && fields != 9; round++) {
        usleep(1000);
        FILE *file = fopen(path, "r");
        if (!file)
            exit(1);
        fields = fscanf(file, "%lu %lx %lx %lx %lx %lx %lx %lx %lx", &unused, &unused, &unused, &unused, &unused, &unused, &unused, &sp, &pc);
        fclose(file);
    }
    if (fields != 9)
        exit(1);
    dwunw_registers registers = {.struct_size = sizeof registers, .version = DWUNW_REGISTERS_VERSION, .arch = DWUNW_ARCH_X86_64, .valid = 1 << 7, .pc = pc};
    registers.regs[7] = sp;
    return registers;
}

static void from_processes(const char *program, uint32_t wanted, int stops, int rounds) {
    pid_t children[PROCESSES];
    dwunw_registers registers[PROCESSES];
    for (int at = 0; at < PROCESSES; at++) {
        /* As above, and the C library's function that waits. */
        children[at] = start(program, wanted - 7, at);
        registers[at] = registers_of(children[at]);
    }
    add_modules(context, children[0]);
    dwunw_capture_request request = {.struct_size = sizeof request, .flags = DWUNW_CAPTURE_READ_TARGET | (stops ? DWUNW_CAPTURE_STOP_TARGET : 0),
                                     .frames = frames, .frame_size = sizeof frames[0], .max_frames = MAX_FRAMES, .scratch = scratch};
    for (int round = -WARM_UP / 10; round < rounds; round++) {
        int at = (int)(next_random() % PROCESSES);
        request.pid = children[at];
        request.registers = stops ? NULL : &registers[at];
        capture(&request, round, wanted);
    }
    for (int at = 0; at < PROCESSES; at++) {
        kill(children[at], SIGKILL);
        waitpid(children[at], NULL, 0);
    }
}

int main(int count, char **words) {
    if (count == 4 && strcmp(words[1], "wait") == 0) {
        waits = 1;
        seed += (uint64_t)atoi(words[3]);
        return functions[next_random() % FUNCTIONS](atoi(words[2]));
    }
    const char *from = count > 2 ? words[1] : "";
    int wanted = count > 2 ? atoi(words[2]) : 0, snapshot = strcmp(from, "snapshot") == 0, stops = strcmp(from, "stop") == 0;
    int rounds = count > 3 ? atoi(words[3]) : stops ? STOPS : ROUNDS;
    if ((!snapshot && !stops && strcmp(from, "read") != 0) || wanted < 10 || wanted > MAX_FRAMES || rounds < 1 || rounds > ROUNDS) {
        fprintf(stderr, "usage: %s snapshot|read|stop FRAMES [COUNT]\n", words[0]);
        return 2;
    }
    stack_end = end_of_mapping(getpid(), (uint64_t)(uintptr_t)&count);
    for (int at = 0; at < STACKS; at++)
        snapshots[at] = malloc(sizeof *snapshots[at]);
    /* A read is half of this: the 16 KiB that are the default, and more where stacks are deeper, which shall be read at once. */
    dwunw_scratch_options room = {.struct_size = sizeof room, .target_bytes = wanted > 100 ? 1 << 16 : 1 << 15};
    size_t size = dwunw_scratch_size(&room);
    if (dwunw_init(NULL, &context) != DWUNW_STATUS_OK || dwunw_scratch_init(malloc(size), size, &room, &scratch) != DWUNW_STATUS_OK)
        return 1;
    if (snapshot) {
        add_modules(context, getpid());
        from_snapshots((uint32_t)wanted, rounds);
    } else {
        from_processes(words[0], (uint32_t)wanted, stops, rounds);
    }
    if (count > 3)
        printf("%ld\n", (long)wanted * rounds);
    else
        report(from, (uint32_t)wanted, rounds);
    dwunw_shutdown(context);
    return 0;
}
