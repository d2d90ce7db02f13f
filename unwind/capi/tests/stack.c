/* How much stack the calls take, by stacks that are painted before: the guide states it, and these are its bounds.
 *
 *   stack FILE...    files to add
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "maps.h"
#include "registers.h"

enum { MAX_FRAMES = 64, STACK = 1 << 20, PAINT = 0xa5 };

static dwunw_context *context;
static dwunw_scratch *scratch;
static dwunw_registers registers;
static dwunw_window window;
static const char *file;
static dwunw_module_info added = {.struct_size = sizeof added};
static pid_t target;
static uint32_t flags;
static dwunw_status status;

static void *nothing(void *unused) { return unused; }

static void *add(void *unused) {
    dwunw_module module = {.struct_size = sizeof module, .start = (uint64_t)1 << 40, .elf_path = file};
    status = dwunw_module_add(context, &module, &added);
    return unused;
}

static void *removes(void *unused) {
    status = dwunw_module_remove(context, added.module);
    return unused;
}

static void *resolve(void *unused) {
    static dwunw_symbol symbols[8];
    static char text[4096];
    dwunw_frame frame = {.struct_size = sizeof frame, .module = added.module, .pc = added.start + 0x1500, .flags = DWUNW_FRAME_EXACT};
    dwunw_resolve_request request = {.struct_size = sizeof request, .frames = &frame, .frame_size = sizeof frame, .frame_count = 1, .symbols = symbols,
                                     .symbol_size = sizeof symbols[0], .max_symbols = 8, .text = text, .text_size = sizeof text};
    dwunw_resolve_result result = {.struct_size = sizeof result};
    status = dwunw_symbol_resolve_batch(context, &request, &result);
    return unused;
}

static size_t copies(void *unused, uint64_t address, void *buffer, size_t size) {
    (void)unused;
    uint64_t offset = address - window.start;
    if (offset >= window.size)
        return 0;
    if (size > window.size - offset)
        size = window.size - offset;
    memcpy(buffer, (const char *)window.bytes + offset, size);
    return size;
}

static void *capture(void *read) {
    static dwunw_frame frames[MAX_FRAMES];
    int of_target = (flags & DWUNW_CAPTURE_READ_TARGET) != 0, stops = (flags & DWUNW_CAPTURE_STOP_TARGET) != 0;
    dwunw_capture_request request = {.struct_size = sizeof request, .flags = flags, .registers = stops ? NULL : &registers, .windows = &window,
                                     .window_count = !of_target && !read, .pid = of_target ? target : 0, .frames = frames,
                                     .frame_size = sizeof frames[0], .max_frames = MAX_FRAMES, .scratch = scratch, .read = read ? copies : NULL};
    dwunw_capture_result result = {.struct_size = sizeof result};
    status = dwunw_capture(context, &request, &result);
    CHECK(result.written >= 3);
    return NULL;
}

/* What a thread that does this takes of its stack, the C library's part with it. */
static size_t taken(void *(*does)(void *), void *given) {
    unsigned char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    memset(stack, PAINT, STACK);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstack(&attributes, stack, STACK) == 0);
    CHECK(pthread_create(&thread, &attributes, does, given) == 0 && pthread_join(thread, NULL) == 0);
    pthread_attr_destroy(&attributes);
    size_t untouched = 0;
    while (stack[untouched] == PAINT)
        untouched++;
    munmap(stack, STACK);
    return STACK - untouched;
}

static size_t empty, largest_of_adding, largest_of_naming, largest_of_capturing;

static void hold(const char *what, void *(*does)(void *), void *given, size_t most, size_t *largest) {
    size_t bytes = taken(does, given) - empty;
    if (bytes > *largest)
        *largest = bytes;
    if (bytes > most || status != DWUNW_STATUS_OK) {
        fprintf(stderr, "%s: %s, %zu bytes of stack, at most %zu were expected\n", what, dwunw_strerror(status), bytes, most);
        exit(1);
    }
}

/* A copy of the stack, and a process that stays where its registers were taken. */
__attribute__((noinline)) static void snapshot(void) {
    registers_here(&registers);
    target = fork();
    if (target == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    uint64_t sp = registers.regs[STACK_POINTER], size = end_of_mapping(getpid(), sp) - sp;
    char *copy = malloc(size);
    memcpy(copy, (const void *)(uintptr_t)sp, size);
    window = (dwunw_window){.struct_size = sizeof window, .start = sp, .bytes = copy, .size = size};
}

int main(int argc, char **argv) {
    static char memory[DWUNW_SCRATCH_SIZE];
    CHECK(argc > 1);
    CHECK_STATUS(dwunw_init(NULL, &context), DWUNW_STATUS_OK);
    CHECK_STATUS(dwunw_scratch_init(memory, sizeof memory, NULL, &scratch), DWUNW_STATUS_OK);
    empty = taken(nothing, NULL);
    for (int at = 1; at < argc; at++) {
        file = argv[at];
        hold(file, add, NULL, 36 << 10, &largest_of_adding);
        hold("naming", resolve, NULL, 5 << 10, &largest_of_naming);
        hold("removing", removes, NULL, 2 << 10, &largest_of_adding);
    }
    CHECK(add_modules(context, getpid()) >= 2);
    snapshot();
    const uint32_t kinds[] = {0, DWUNW_CAPTURE_SCAN, DWUNW_CAPTURE_CONTINUATIONS, DWUNW_CAPTURE_SCAN | DWUNW_CAPTURE_CONTINUATIONS};
    for (size_t at = 0; at < sizeof kinds / sizeof *kinds; at++) {
        flags = kinds[at];
        hold("a capture from windows", capture, NULL, 4 << 10, &largest_of_capturing);
        hold("a capture by a function", capture, scratch, 4 << 10, &largest_of_capturing);
        flags |= DWUNW_CAPTURE_READ_TARGET;
        hold("a capture that reads a process", capture, NULL, 4 << 10, &largest_of_capturing);
#ifdef __x86_64__
        flags |= DWUNW_CAPTURE_STOP_TARGET;
        hold("a capture that stops a thread", capture, NULL, 4 << 10, &largest_of_capturing);
#endif
    }
    kill(target, SIGKILL);
    waitpid(target, NULL, 0);
    printf("of a stack adding takes up to %zu bytes, naming %zu, a capture %zu\n", largest_of_adding, largest_of_naming, largest_of_capturing);
    dwunw_shutdown(context);
    return 0;
}
