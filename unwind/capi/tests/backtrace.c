/* Every stack is compared with what glibc's backtrace() makes of it, frame by frame: at many depths, through the C library's callbacks, in
 * signal handlers on the same stack and on another one. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "check.h"
#include "maps.h"
#include "registers.h"

enum { MAX_FRAMES = 256 };

static dwunw_context *context;
static dwunw_scratch *scratch;
static char scratch_memory[DWUNW_SCRATCH_SIZE];
static uint64_t other_stack, other_stack_end;
static int compared;

/* The frames above the caller must be those of backtrace(). In the function itself the two look from different places. */
__attribute__((noinline)) static int compare_here(void) {
    dwunw_registers registers;
    void *expected[MAX_FRAMES];
    dwunw_frame frames[MAX_FRAMES];
    registers_here(&registers);
    uint64_t sp = registers.regs[STACK_POINTER];
    dwunw_window windows[2] = {
        {.struct_size = sizeof windows[0], .start = sp, .bytes = (void *)(uintptr_t)sp, .size = end_of_mapping(getpid(), sp) - sp},
        {.struct_size = sizeof windows[0], .start = other_stack, .bytes = (void *)(uintptr_t)other_stack, .size = other_stack_end - other_stack},
    };
    dwunw_capture_request request = {
        .struct_size = sizeof request,
        .registers = &registers,
        .windows = windows,
        .window_count = other_stack ? 2 : 1,
        .frames = frames,
        .frame_size = sizeof frames[0],
        .max_frames = MAX_FRAMES,
        .scratch = scratch,
    };
    dwunw_capture_result result = {.struct_size = sizeof result};
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_OK);
    int count = backtrace(expected, MAX_FRAMES);
    CHECK(result.stop == DWUNW_STOP_END_OF_STACK && frames[0].flags == DWUNW_FRAME_EXACT);
    /* backtrace() may stop at a null return address that we take for the end. */
    CHECK(count >= 3 && (uint32_t)count == result.written);
    for (int at = 1; at < count; at++) {
        if (frames[at].pc != (uint64_t)(uintptr_t)expected[at]) {
            fprintf(stderr, "frame %d: %#lx, expected %p\n", at, (unsigned long)frames[at].pc, expected[at]);
            exit(1);
        }
        CHECK(frames[at].module != DWUNW_NO_MODULE || at == count - 1);
        CHECK(frames[at].cfa > frames[at - 1].cfa || other_stack || at == count - 1);
        compared++;
    }
    return count;
}

__attribute__((noinline)) static int recurse(int depth) {
    volatile char room[40 + depth % 7 * 16];
    room[0] = (char)depth;
    return depth == 0 ? compare_here() + room[0] : recurse(depth - 1) + (room[0] & 1);
}

static int compare(const void *a, const void *b) {
    recurse(*(const int *)a);
    return *(const int *)a - *(const int *)b;
}

static void on_signal(int number) {
    (void)number;
    recurse(3);
}

/* With the pages that lie between two stacks the sorting function may take any path. */
static void *in_thread(void *unused) {
    (void)unused;
    recurse(10);
    int numbers[] = {5, 9, 1, 30};
    qsort(numbers, 4, sizeof numbers[0], compare);
    return NULL;
}

int main(void) {
    static char alternate[1 << 16];
    void *first[4];
    backtrace(first, 4); /* loads what it needs, so that it is a module too */
    CHECK_STATUS(dwunw_init(NULL, &context), DWUNW_STATUS_OK);
    CHECK_STATUS(dwunw_scratch_init(scratch_memory, sizeof scratch_memory, NULL, &scratch), DWUNW_STATUS_OK);
    CHECK(add_modules(context, getpid()) >= 3);

    for (int depth = 0; depth < 200; depth++)
        recurse(depth);
    int numbers[64];
    for (int at = 0; at < 64; at++)
        numbers[at] = at * 37 % 64;
    qsort(numbers, 64, sizeof numbers[0], compare);

    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_thread, NULL) == 0);
    pthread_join(thread, NULL);

    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    CHECK(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    other_stack = (uint64_t)(uintptr_t)__builtin_frame_address(0) & ~7ull;
    other_stack -= 4096; /* raise() lies below this frame */
    other_stack_end = end_of_mapping(getpid(), other_stack);
    raise(SIGUSR2);
    other_stack = 0;

    dwunw_shutdown(context);
    CHECK(compared > 20000);
    printf("%d frames are those of backtrace()\n", compared);
    return 0;
}
