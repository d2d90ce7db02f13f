/* Unwinds a snapshot: the registers of one's own thread and a copy of its stack.
 *
 *   gcc -Iinclude examples/snapshot.c libdwunw.a -o snapshot && ./snapshot
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dwunw.h"
#include "maps.h"
#include "registers.h"

enum { MAX_FRAMES = 128, MAX_STACK = 1 << 16 };

struct snapshot {
    dwunw_registers registers;
    uint64_t start;
    size_t size;
    char bytes[MAX_STACK];
};

static struct snapshot snapshot;
static char scratch_memory[DWUNW_SCRATCH_SIZE];

/* What a program in the kernel would do: registers and stack bytes, nothing else. */
__attribute__((noinline)) static void take(struct snapshot *to) {
    registers_here(&to->registers);
    to->start = to->registers.regs[STACK_POINTER];
    uint64_t size = end_of_mapping(getpid(), to->start) - to->start;
    to->size = size < MAX_STACK ? size : MAX_STACK;
    memcpy(to->bytes, (void *)(uintptr_t)to->start, to->size);
}

/* Called by the C library's qsort, so that the stack has frames of two modules. */
static int compare(const void *a, const void *b) {
    if (snapshot.size == 0)
        take(&snapshot);
    return *(const int *)a - *(const int *)b;
}

/* A debugger stops here. */
__attribute__((noinline)) void unwound(uint32_t frames) { printf("%u frames\n", frames); }

int main(void) {
    dwunw_context *context;
    dwunw_scratch *scratch;
    if (dwunw_init(NULL, &context) != DWUNW_STATUS_OK ||
        dwunw_scratch_init(scratch_memory, sizeof scratch_memory, NULL, &scratch) != DWUNW_STATUS_OK)
        return 2;
    add_modules(context, getpid());

    int numbers[] = {3, 1, 2};
    qsort(numbers, 3, sizeof numbers[0], compare);

    dwunw_frame frames[MAX_FRAMES];
    dwunw_window window = {.struct_size = sizeof window, .start = snapshot.start, .bytes = snapshot.bytes, .size = snapshot.size};
    dwunw_capture_request request = {
        .struct_size = sizeof request,
        .registers = &snapshot.registers,
        .windows = &window,
        .window_count = 1,
        .frames = frames,
        .frame_size = sizeof frames[0],
        .max_frames = MAX_FRAMES,
        .scratch = scratch,
    };
    dwunw_capture_result result = {.struct_size = sizeof result};
    dwunw_status status = dwunw_capture(context, &request, &result);
    for (uint32_t at = 0; at < result.written; at++)
        printf("frame 0x%016" PRIx64 " module %u %s\n", frames[at].pc, frames[at].module, dwunw_method_name(frames[at].method));
    printf("%s: %s\n", dwunw_strerror(status), dwunw_stop_name(result.stop));
    unwound(result.written);
    dwunw_shutdown(context);
    return status == DWUNW_STATUS_OK ? 0 : 1;
}
