/* Many threads unwind and name while others add and remove modules. Every stack is whole at every instant, for the modules that it needs are
 * always there; those that come and go are others.
 *
 *   threads SECONDS FILE...    files to come and go
 */
#define _GNU_SOURCE
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "maps.h"
#include "registers.h"

enum { READERS = 4, WRITERS = 2, MAX_FRAMES = 64, DEPTHS = 20 };

#if defined __SANITIZE_THREAD__ || defined __mips__ || defined __arm__ || defined __riscv
/* The sanitizer's runtime puts itself between, and glibc sees other frames; and its own code has no call frame information on these processors, or
   not all of it, so that its backtrace ends there. */
#define USES_BACKTRACE 0
#else
#define USES_BACKTRACE 1
#endif

static dwunw_context *context;
static int stop;
static char **files;
static int file_count;

struct counts {
    pthread_t thread;
    int number;
    unsigned long walks, changes;
    int expected[DEPTHS]; /* frames, by backtrace() */
};

static int stopped(void) { return __atomic_load_n(&stop, __ATOMIC_RELAXED); }

__attribute__((noinline)) static void walk(dwunw_scratch *scratch, uint64_t end, int names, int *expected) {
    dwunw_frame frames[MAX_FRAMES];
    dwunw_registers registers;
    registers_here(&registers);
    uint64_t sp = registers.regs[STACK_POINTER];
    dwunw_window window = {.struct_size = sizeof window, .start = sp, .bytes = (void *)(uintptr_t)sp, .size = end - sp};
    dwunw_capture_request request = {.struct_size = sizeof request, .registers = &registers, .windows = &window, .window_count = 1,
                                     .frames = frames, .frame_size = sizeof frames[0], .max_frames = MAX_FRAMES, .scratch = scratch};
    dwunw_capture_result result = {.struct_size = sizeof result};
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_OK);
    if (names) {
        dwunw_symbol symbols[MAX_FRAMES];
        char text[4096];
        dwunw_resolve_request naming = {.struct_size = sizeof naming, .frames = frames, .frame_size = sizeof frames[0],
                                        .frame_count = result.written, .symbols = symbols, .symbol_size = sizeof symbols[0],
                                        .max_symbols = MAX_FRAMES, .text = text, .text_size = sizeof text};
        dwunw_resolve_result named = {.struct_size = sizeof named};
        CHECK_STATUS(dwunw_symbol_resolve_batch(context, &naming, &named), DWUNW_STATUS_OK);
        CHECK(symbols[0].function && strcmp(symbols[0].function, "walk") == 0);
    }
    void *addresses[MAX_FRAMES];
    if (*expected == 0)
        *expected = USES_BACKTRACE ? backtrace(addresses, MAX_FRAMES) : (int)result.written;
    CHECK(result.written == (uint32_t)*expected);
}

__attribute__((noinline)) static int deeper(int depth, dwunw_scratch *scratch, uint64_t end, int names, int *expected) {
    volatile int kept = depth;
    if (depth == 0)
        walk(scratch, end, names, expected);
    else
        deeper(depth - 1, scratch, end, names, expected);
    return kept;
}

static void *reader(void *given) {
    struct counts *counts = given;
    char *memory = malloc(DWUNW_SCRATCH_SIZE);
    dwunw_scratch *scratch;
    CHECK_STATUS(dwunw_scratch_init(memory, DWUNW_SCRATCH_SIZE, NULL, &scratch), DWUNW_STATUS_OK);
    uint64_t end = end_of_mapping(getpid(), (uint64_t)(uintptr_t)&counts);
    while (!stopped()) {
        int depth = (int)(counts->walks % DEPTHS);
        deeper(depth, scratch, end, counts->walks % 16 == 0, &counts->expected[depth]);
        counts->walks++;
    }
    free(memory);
    return NULL;
}

static void *writer(void *given) {
    struct counts *counts = given;
    uint64_t seed = (uint64_t)counts->number;
    while (!stopped()) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        dwunw_module module = {.struct_size = sizeof module,
                               .start = ((uint64_t)(counts->number + 1) << 40) + (seed >> 60 << 32),
                               .elf_path = files[(seed >> 33) % (unsigned)file_count]};
        dwunw_module_info info = {.struct_size = sizeof info};
        CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_OK);
        CHECK_STATUS(dwunw_module_remove(context, info.module), DWUNW_STATUS_OK);
        counts->changes++;
    }
    return NULL;
}

/* On IA-32, MIPS and RISC-V a handler returns to the vDSO, in place of which an emulator has a page that belongs to no file. */
#if defined __i386__ || defined __mips__ || defined __riscv
#define HANDLERS_RETURN_TO_THE_VDSO 1
#else
#define HANDLERS_RETURN_TO_THE_VDSO 0
#endif

/* A signal handler unwinds too, with scratch memory of its own. */
static dwunw_scratch *handlers;
static int handled;
static uint64_t main_stack_end; /* asking for it is not for signal handlers */

static void on_signal(int number) {
    (void)number;
    int expected = 0;
    walk(handlers, main_stack_end, 0, &expected);
    handled++;
}

int main(int argc, char **argv) {
    CHECK(argc > 2);
    files = argv + 2;
    file_count = argc - 2;
    dwunw_options options = {.struct_size = sizeof options, .max_warm_files = 1};
    CHECK_STATUS(dwunw_init(&options, &context), DWUNW_STATUS_OK);
    void *first[1];
    backtrace(first, 1); /* loads what it needs */
    CHECK(add_modules(context, getpid()) >= 2);
    static char memory[DWUNW_SCRATCH_SIZE];
    CHECK_STATUS(dwunw_scratch_init(memory, sizeof memory, NULL, &handlers), DWUNW_STATUS_OK);

    /* Not on the stack: the walks of the handler read that, and other threads write these. */
    static struct counts counts[READERS + WRITERS];
    for (int at = 0; at < READERS + WRITERS; at++) {
        counts[at].number = at;
        CHECK(pthread_create(&counts[at].thread, NULL, at < READERS ? reader : writer, &counts[at]) == 0);
    }
    main_stack_end = end_of_mapping(getpid(), (uint64_t)(uintptr_t)&first);
    signal(SIGUSR1, on_signal);
    int signals = HANDLERS_RETURN_TO_THE_VDSO && getauxval(AT_SYSINFO_EHDR) == 0 ? 0 : atoi(argv[1]) * 20;
    for (int round = 0; round < atoi(argv[1]) * 20; round++) {
        struct timespec pause = {.tv_nsec = 50000000};
        nanosleep(&pause, NULL);
        if (signals > 0)
            raise(SIGUSR1);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    unsigned long walks = 0, changes = 0;
    for (int at = 0; at < READERS + WRITERS; at++) {
        pthread_join(counts[at].thread, NULL);
        CHECK(counts[at].walks + counts[at].changes > 0);
        walks += counts[at].walks;
        changes += counts[at].changes;
    }
    CHECK(handled == signals);
    dwunw_shutdown(context);
    printf("%lu walks during %lu changes, and %d in signal handlers, every one whole\n", walks, changes, handled);
    return 0;
}
