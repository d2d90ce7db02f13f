/* A program forks while its threads capture: the child adds and removes modules, and captures, also with the scratch memory of a thread that it does not
 * have, and that remembers nothing then. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "maps.h"
#include "registers.h"

enum { MAX_FRAMES = 16, THREADS = 2, CHILDREN = 40, STACK = 4096, LONGEST = 5 };

static dwunw_context *context;
static atomic_int ends;
static atomic_long captures;

static void capture(dwunw_scratch *scratch) {
    dwunw_registers registers;
    registers_here(&registers);
    dwunw_frame frames[MAX_FRAMES];
    dwunw_window window = {.struct_size = sizeof window, .start = registers.regs[STACK_POINTER], .size = STACK};
    window.bytes = (const void *)(uintptr_t)window.start;
    dwunw_capture_request request = {.struct_size = sizeof request, .registers = &registers, .windows = &window, .window_count = 1, .frames = frames,
                                     .frame_size = sizeof frames[0], .max_frames = MAX_FRAMES, .scratch = scratch};
    dwunw_capture_result result = {.struct_size = sizeof result};
    dwunw_capture(context, &request, &result);
    CHECK(result.written >= 2);
}

static void *captures_on(void *unused) {
    char room[2 * STACK];
    __asm__ volatile("" : : "r"(room) : "memory");
    void *memory = malloc(DWUNW_SCRATCH_SIZE);
    dwunw_scratch *scratch;
    CHECK_STATUS(dwunw_scratch_init(memory, DWUNW_SCRATCH_SIZE, NULL, &scratch), DWUNW_STATUS_OK);
    for (; !ends; captures++)
        capture(scratch);
    free(memory);
    return unused;
}

/* Scratch memory of a thread that is within a capture. */
static dwunw_scratch *held;
static atomic_int holds;

static size_t waits(void *unused, uint64_t address, void *buffer, size_t size) {
    (void)unused, (void)address, (void)buffer, (void)size;
    for (holds = 1; !ends;)
        usleep(1000);
    return 0;
}

static dwunw_status capture_with(dwunw_scratch *scratch, dwunw_read read) {
    dwunw_registers registers;
    registers_here(&registers);
    dwunw_frame frames[MAX_FRAMES];
    dwunw_capture_request request = {.struct_size = sizeof request, .registers = &registers, .frames = frames, .frame_size = sizeof frames[0],
                                     .max_frames = MAX_FRAMES, .scratch = scratch, .read = read};
    dwunw_capture_result result = {.struct_size = sizeof result};
    return dwunw_capture(context, &request, &result);
}

static void *holds_on(void *unused) {
    void *memory = malloc(DWUNW_SCRATCH_SIZE);
    CHECK_STATUS(dwunw_scratch_init(memory, DWUNW_SCRATCH_SIZE, NULL, &held), DWUNW_STATUS_OK);
    capture_with(held, waits);
    free(memory);
    return unused;
}

/* What a child does with the context that it has from its parent. */
static void use(int number) {
    alarm(LONGEST);
    dwunw_module module = {.struct_size = sizeof module, .start = 0x10000000 + 0x1000 * (uint64_t)number};
    module.end = module.start + 0x100;
    dwunw_module_info info = {.struct_size = sizeof info};
    CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_OK);
    static char memory[DWUNW_SCRATCH_SIZE];
    dwunw_scratch *scratch;
    CHECK_STATUS(dwunw_scratch_init(memory, sizeof memory, NULL, &scratch), DWUNW_STATUS_OK);
    capture(scratch);
    capture(held);
    CHECK_STATUS(dwunw_module_remove(context, info.module), DWUNW_STATUS_OK);
    capture(held);
}

int main(void) {
    char room[2 * STACK];
    __asm__ volatile("" : : "r"(room) : "memory");
    CHECK_STATUS(dwunw_init(NULL, &context), DWUNW_STATUS_OK);
    CHECK(add_modules(context, getpid()) >= 2);
    pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; at++)
        CHECK(pthread_create(&threads[at], NULL, captures_on, NULL) == 0);
    pthread_t holder;
    CHECK(pthread_create(&holder, NULL, holds_on, NULL) == 0);
    while (captures < 1000 || !holds)
        usleep(1000);
    for (int number = 0; number < CHILDREN; number++) {
        pid_t child = fork();
        if (child == 0) {
            use(number);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        CHECK_STATUS(capture_with(held, NULL), DWUNW_STATUS_SCRATCH_BUSY);
    }
    ends = 1;
    pthread_join(holder, NULL);
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    printf("%d children went on beside %ld captures\n", CHILDREN, (long)captures);
    dwunw_shutdown(context);
    return 0;
}
