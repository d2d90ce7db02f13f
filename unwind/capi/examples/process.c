/* Unwinds a thread of another process and names its frames.
 *
 *   gcc -Iinclude examples/process.c libdwunw.a -o process && ./process PID [TID]
 *
 * The thread is stopped for some microseconds. Allowed is what a debugger may do (ptrace(2), "Ptrace access mode checking").
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "dwunw.h"
#include "maps.h"

enum { MAX_FRAMES = 128, MAX_SYMBOLS = 512 };

static char scratch_memory[DWUNW_SCRATCH_SIZE];
static char text[1 << 16];

static void print(const dwunw_symbol *symbol, const dwunw_frame *frame) {
    printf("#%-3u 0x%016" PRIx64 " ", symbol->frame, frame->pc);
    if (symbol->status == DWUNW_STATUS_OK)
        printf("%s", symbol->function ? symbol->function : "?");
    else
        printf("? (%s)", dwunw_strerror(symbol->status));
    if (symbol->file)
        printf(" at %s:%u", symbol->file, symbol->line);
    printf("%s%s [%s]\n", symbol->flags & DWUNW_SYMBOL_INLINED ? " (inlined)" : "",
           symbol->flags & DWUNW_SYMBOL_APPROXIMATE ? " (approximate)" : "", dwunw_method_name(frame->method));
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    pid_t pid = atoi(argv[1]), tid = argc > 2 ? atoi(argv[2]) : 0;
    dwunw_context *context;
    dwunw_scratch *scratch;
    if (dwunw_init(NULL, &context) != DWUNW_STATUS_OK ||
        dwunw_scratch_init(scratch_memory, sizeof scratch_memory, NULL, &scratch) != DWUNW_STATUS_OK)
        return 2;
    /* By the thread: where the first one of the process has ended, /proc/PID/maps is empty. */
    add_modules(context, tid ? tid : pid);

    static dwunw_frame frames[MAX_FRAMES];
    dwunw_capture_request request = {
        .struct_size = sizeof request,
        .flags = DWUNW_CAPTURE_READ_TARGET | DWUNW_CAPTURE_STOP_TARGET,
        .pid = pid,
        .tid = tid,
        .frames = frames,
        .frame_size = sizeof frames[0],
        .max_frames = MAX_FRAMES,
        .scratch = scratch,
    };
    dwunw_capture_result result = {.struct_size = sizeof result};
    dwunw_status status = dwunw_capture(context, &request, &result);

    static dwunw_symbol symbols[MAX_SYMBOLS];
    dwunw_resolve_request names = {
        .struct_size = sizeof names,
        .frames = frames,
        .frame_size = sizeof frames[0],
        .frame_count = result.written,
        .symbols = symbols,
        .symbol_size = sizeof symbols[0],
        .max_symbols = MAX_SYMBOLS,
        .text = text,
        .text_size = sizeof text,
    };
    dwunw_resolve_result named = {.struct_size = sizeof named};
    dwunw_symbol_resolve_batch(context, &names, &named);
    for (uint32_t at = 0; at < named.written; at++)
        print(&symbols[at], &frames[symbols[at].frame]);
    printf("%s: %s, %u of %u frames named\n", dwunw_strerror(status), dwunw_stop_name(result.stop), named.named, result.written);
    dwunw_shutdown(context);
    return status == DWUNW_STATUS_OK ? 0 : 1;
}
