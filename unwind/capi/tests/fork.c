/* A program forks while its threads capture: the child adds and removes modules, and captures. */
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
    CHECK_STATUS(dwunw_module_remove(context, info.module), DWUNW_STATUS_OK);
}

int main(void) {
    char room[2 * STACK];
    __asm__ volatile("" : : "r"(room) : "memory");
    CHECK_STATUS(dwunw_init(NULL, &context), DWUNW_STATUS_OK);
    CHECK(add_modules(context, getpid()) >= 2);
    pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; at++)
        CHECK(pthread_create(&threads[at], NULL, captures_on, NULL) == 0);
    while (captures < 1000)
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
    }
    ends = 1;
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    printf("%d children went on beside %ld captures\n", CHILDREN, (long)captures);
    dwunw_shutdown(context);
    return 0;
}
