/* Takes what can be had: a bundle's table, else the file's own rules, else frame pointers; and says what a stack is worth.
 *
 *   gcc -Iinclude examples/degrade.c libdwunw.a -o degrade
 *   ./degrade PID [FILE.uwt]      FILE.uwt: the table of the program itself
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "dwunw.h"
#include "maps.h"

enum { MAX_FRAMES = 256 };

static char scratch_memory[DWUNW_SCRATCH_SIZE];

/* A module with the best that there is for it. */
static dwunw_status add(dwunw_context *context, dwunw_module module, const char *uwt, const char **by) {
    dwunw_module_info info = {.struct_size = sizeof info};
    dwunw_status status = DWUNW_STATUS_FILE_NOT_FOUND;
    if (uwt) {
        module.uwt_path = uwt;
        *by = "the bundle's table";
        status = dwunw_module_add(context, &module, &info);
        module.uwt_path = NULL;
    }
    /* A table that is not there, is damaged or belongs to another build: the file has its own rules. */
    if (status == DWUNW_STATUS_FILE_NOT_FOUND || status == DWUNW_STATUS_FILE_UNREADABLE || status == DWUNW_STATUS_BAD_TABLE ||
        status == DWUNW_STATUS_ID_MISMATCH) {
        *by = "the file's own rules";
        status = dwunw_module_add(context, &module, &info);
    }
    /* No file, or not one that can be read: the range alone still gives its frames a module, and lets frame pointers through. */
    if (status == DWUNW_STATUS_FILE_NOT_FOUND || status == DWUNW_STATUS_FILE_UNREADABLE || status == DWUNW_STATUS_BAD_ELF ||
        status == DWUNW_STATUS_UNSUPPORTED_ARCH || status == DWUNW_STATUS_OUT_OF_MEMORY) {
        module.elf_path = NULL;
        *by = "frame pointers alone";
        status = dwunw_module_add(context, &module, &info);
    }
    if (status == DWUNW_STATUS_OK && info.unwind != DWUNW_STATUS_OK)
        *by = "frame pointers alone";
    return status;
}

/* What a profiler would do with the stack. */
static const char *worth(dwunw_status status) {
    switch (status) {
    case DWUNW_STATUS_OK:
        return "complete";
    case DWUNW_STATUS_STACK_UNREADABLE:
        return "cut: copy more of the stack next time";
    case DWUNW_STATUS_TRUNCATED:
        return "cut: there is room for fewer frames than there are";
    case DWUNW_STATUS_ADDRESS_OUTSIDE_MODULES:
        return "cut: read the maps again, something was loaded";
    case DWUNW_STATUS_NO_SUCH_PROCESS:
    case DWUNW_STATUS_NOT_PERMITTED:
        return "cut, or none: the target is gone or may not be read";
    case DWUNW_STATUS_NO_UNWIND_DATA:
    case DWUNW_STATUS_UNSUPPORTED_RULE:
    case DWUNW_STATUS_AMBIGUOUS:
    case DWUNW_STATUS_REGISTER_UNKNOWN:
    case DWUNW_STATUS_BAD_STACK:
        return "cut: keep the frames, and count the stack as incomplete";
    default:
        return "none";
    }
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    pid_t pid = atoi(argv[1]);
    dwunw_context *context;
    dwunw_scratch *scratch;
    if (dwunw_init(NULL, &context) != DWUNW_STATUS_OK ||
        dwunw_scratch_init(scratch_memory, sizeof scratch_memory, NULL, &scratch) != DWUNW_STATUS_OK)
        return 2;

    struct mapping mapping, first = {0};
    uint64_t end = 0;
    FILE *maps = open_maps(pid);
    if (!maps) {
        printf("%s\n", dwunw_strerror(DWUNW_STATUS_NO_SUCH_PROCESS));
        return 1;
    }
    while (next_mapping(maps, &mapping)) {
        if (!first.path[0])
            first = mapping;
        if (!is_same_file(&mapping, &first))
            break;
        end = mapping.end; /* the program comes first, its mappings one after the other */
    }
    fclose(maps);
    const char *by = "nothing";
    int file = open_mapped(pid, &first);
    struct path_of_file path = path_of(file);
    dwunw_module module = {.struct_size = sizeof module, .start = first.start, .end = end, .elf_path = file < 0 ? NULL : path.text};
    /* Without the file nothing tells whether the table is its own. */
    dwunw_status status = add(context, module, argc > 2 && file >= 0 ? argv[2] : NULL, &by);
    if (file >= 0)
        close(file);
    printf("program: %s (%s)\n", by, dwunw_strerror(status));
    add_modules(context, pid); /* the libraries; the program is there already */

    static dwunw_frame frames[MAX_FRAMES];
    dwunw_capture_request request = {
        .struct_size = sizeof request,
        .flags = DWUNW_CAPTURE_READ_TARGET | DWUNW_CAPTURE_STOP_TARGET,
        .pid = pid,
        .frames = frames,
        .frame_size = sizeof frames[0],
        .max_frames = MAX_FRAMES,
        .scratch = scratch,
    };
    dwunw_capture_result result = {.struct_size = sizeof result};
    status = dwunw_capture(context, &request, &result);
    printf("stack: %u frames, %s (%s)\n", result.written, worth(status), dwunw_strerror(status));
    dwunw_shutdown(context);
    return 0;
}
