/* Whatever a caller passes within the rules of C is answered by a status. */
#define _GNU_SOURCE
#include <link.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "maps.h"
#include "registers.h"

static char memory[DWUNW_SCRATCH_SIZE + 1];

/* A structure as a later version would have it: larger. */
struct later_request {
    dwunw_capture_request request;
    uint64_t more[4];
};

struct later_frame {
    dwunw_frame frame;
    uint64_t mine;
};

static size_t answers_three_bytes(void *data, uint64_t address, void *buffer, size_t size) {
    (void)address;
    ++*(int *)data;
    memset(buffer, 0, size < 3 ? size : 3);
    return 3;
}

static size_t answers_too_much(void *data, uint64_t address, void *buffer, size_t size) {
    ++*(int *)data;
    (void)address;
    memset(buffer, 0xff, size);
    return size + 1000;
}

/* Gives the loaded segments of an ELF file another size in memory, which of 32 bits is never too large. */
static void make_larger(unsigned char *elf, uint64_t size) {
    ElfW(Ehdr) *header = (void *)elf;
    ElfW(Phdr) *segments = (void *)(elf + header->e_phoff);
    for (int at = 0; at < header->e_phnum; at++)
        if (segments[at].p_type == PT_LOAD)
            segments[at].p_memsz = (size_t)size;
}

/* Apart, so that what it leaves unwritten of its large locals is no part of main's frame, which the captures read. */
__attribute__((noinline)) static int add_all(dwunw_context *context) { return add_modules(context, getpid()); }

int main(int argc, char **argv) {
    dwunw_context *context = (void *)1;
    CHECK_STATUS(dwunw_init(NULL, NULL), DWUNW_STATUS_BAD_ARGUMENT);
    dwunw_options options = {.struct_size = sizeof options - 1};
    CHECK_STATUS(dwunw_init(&options, &context), DWUNW_STATUS_STRUCT_TOO_SMALL);
    CHECK(context == NULL);
    options.struct_size = sizeof options;
    CHECK_STATUS(dwunw_init(&options, &context), DWUNW_STATUS_OK);

    /* Scratch memory: at any address, not too small, initialised, and not moved. */
    dwunw_scratch *scratch = NULL;
    dwunw_scratch_options room = {.struct_size = sizeof room, .max_frames = 16, .cache_entries = UINT32_MAX, .target_bytes = UINT32_MAX};
    size_t small = dwunw_scratch_size(&room);
    CHECK(small > 16 * 40 && small < 4096 && dwunw_scratch_size(NULL) <= DWUNW_SCRATCH_SIZE);
    CHECK_STATUS(dwunw_scratch_init(memory, sizeof memory, NULL, NULL), DWUNW_STATUS_BAD_ARGUMENT);
    scratch = (void *)1;
    CHECK_STATUS(dwunw_scratch_init(NULL, small, &room, &scratch), DWUNW_STATUS_BAD_ARGUMENT);
    CHECK(scratch == NULL);
    scratch = (void *)1;
    CHECK_STATUS(dwunw_scratch_init(memory, small - 128, &room, &scratch), DWUNW_STATUS_BAD_SCRATCH);
    CHECK(scratch == NULL);
    CHECK_STATUS(dwunw_scratch_init(memory, 0, NULL, &scratch), DWUNW_STATUS_BAD_SCRATCH);
    for (int at = 0; at < 65; at++)
        CHECK_STATUS(dwunw_scratch_init(memory + at, small, &room, &scratch), DWUNW_STATUS_OK);
    room.max_frames = UINT32_MAX;
    CHECK(dwunw_scratch_size(&room) == 0);
    CHECK_STATUS(dwunw_scratch_init(memory, sizeof memory, &room, &scratch), DWUNW_STATUS_BAD_ARGUMENT);
    CHECK_STATUS(dwunw_scratch_init(memory + 1, sizeof memory - 1, NULL, &scratch), DWUNW_STATUS_OK);
    CHECK(dwunw_strerror(-1) && dwunw_strerror(12345) && strcmp(dwunw_stop_name(2), "truncated-stack") == 0);
    CHECK(strcmp(dwunw_stop_name(99), "unknown") == 0 && strcmp(dwunw_method_name(3), "signal-context") == 0);
    CHECK(strcmp(dwunw_version(), "0.1.0") == 0);

    dwunw_registers registers;
    registers_here(&registers);
    uint64_t sp = registers.regs[STACK_POINTER];
    dwunw_window window = {.struct_size = sizeof window, .start = sp, .bytes = (void *)(uintptr_t)sp, .size = end_of_mapping(getpid(), sp) - sp};
    struct later_frame frames[32];
    memset(frames, 0x55, sizeof frames);
    struct later_request later = {.request = {
                                      .struct_size = sizeof later,
                                      .registers = &registers,
                                      .windows = &window,
                                      .window_count = 1,
                                      .frames = &frames[0].frame,
                                      .frame_size = sizeof frames[0],
                                      .max_frames = 32,
                                      .scratch = scratch,
                                  }};
    dwunw_capture_request *request = &later.request;
    const dwunw_capture_request good = *request;
    dwunw_capture_result result = {.struct_size = sizeof result};

    /* Without modules: one frame and the reason. */
    CHECK_STATUS(dwunw_capture(context, request, &result), DWUNW_STATUS_ADDRESS_OUTSIDE_MODULES);
    CHECK(result.written == 1 && result.stop == DWUNW_STOP_NO_MODULE && frames[0].frame.module == DWUNW_NO_MODULE);
    CHECK(add_all(context) >= 2);
    CHECK_STATUS(dwunw_capture(context, request, &result), DWUNW_STATUS_OK);
    uint32_t depth = result.written;
    CHECK(depth >= 4 && frames[0].mine == 0x5555555555555555 && frames[depth].frame.pc == 0x5555555555555555);

#define REFUSED(field, value, status)                                          \
    do {                                                                       \
        *request = good;                                                       \
        request->field = (value);                                              \
        CHECK_STATUS(dwunw_capture(context, request, &result), status);        \
        CHECK(result.written == 0);                                            \
        *request = good;                                                       \
    } while (0)
    REFUSED(struct_size, sizeof good - 1, DWUNW_STATUS_STRUCT_TOO_SMALL);
    REFUSED(struct_size, 0, DWUNW_STATUS_STRUCT_TOO_SMALL);
    REFUSED(flags, 0x80, DWUNW_STATUS_BAD_ARGUMENT);
    REFUSED(registers, NULL, DWUNW_STATUS_BAD_ARGUMENT);
    REFUSED(windows, NULL, DWUNW_STATUS_BAD_ARGUMENT);
    REFUSED(window_count, UINT32_MAX, DWUNW_STATUS_BAD_ARGUMENT);
    REFUSED(frames, NULL, DWUNW_STATUS_BAD_ARGUMENT);
    REFUSED(frame_size, sizeof(dwunw_frame) - 8, DWUNW_STATUS_STRUCT_TOO_SMALL);
    REFUSED(frame_size, 0, DWUNW_STATUS_STRUCT_TOO_SMALL);
    REFUSED(frame_size, sizeof(dwunw_frame) + 1, DWUNW_STATUS_BAD_ARGUMENT);
    REFUSED(max_frames, 0, DWUNW_STATUS_BAD_ARGUMENT);
    REFUSED(max_frames, DWUNW_DEFAULT_FRAMES + 1, DWUNW_STATUS_BAD_SCRATCH);
    REFUSED(scratch, NULL, DWUNW_STATUS_BAD_SCRATCH);
    REFUSED(scratch, (dwunw_scratch *)&good, DWUNW_STATUS_BAD_SCRATCH);
    REFUSED(flags, DWUNW_CAPTURE_READ_TARGET, DWUNW_STATUS_BAD_ARGUMENT);
    REFUSED(flags, DWUNW_CAPTURE_STOP_TARGET, DWUNW_STATUS_BAD_ARGUMENT);
    REFUSED(tid, -1, DWUNW_STATUS_BAD_ARGUMENT);
    CHECK_STATUS(dwunw_capture(NULL, request, &result), DWUNW_STATUS_BAD_ARGUMENT);
    CHECK_STATUS(dwunw_capture(context, NULL, &result), DWUNW_STATUS_BAD_ARGUMENT);

    /* Where the answer cannot be given nothing is done: no frame or name is written, no function run, no process asked for. */
    int asked = 0;
    memset(frames, 0x55, sizeof frames);
    for (int kind = 0; kind < 3; kind++) {
        if (kind == 1)
            request->window_count = 0, request->read = answers_three_bytes, request->read_data = &asked;
        if (kind == 2)
            request->flags = DWUNW_CAPTURE_READ_TARGET | DWUNW_CAPTURE_STOP_TARGET, request->pid = INT32_MAX, request->registers = NULL;
        CHECK_STATUS(dwunw_capture(context, request, NULL), DWUNW_STATUS_BAD_ARGUMENT);
        result.struct_size = 4;
        CHECK_STATUS(dwunw_capture(context, request, &result), DWUNW_STATUS_STRUCT_TOO_SMALL);
        result.struct_size = sizeof result;
        *request = good;
    }
    CHECK(asked == 0 && frames[0].frame.pc == 0x5555555555555555);
    dwunw_symbol symbol;
    char text[100] = "";
    memset(&symbol, 0x55, sizeof symbol);
    dwunw_frame here = {.struct_size = sizeof here, .module = DWUNW_NO_MODULE, .pc = registers.pc, .flags = DWUNW_FRAME_EXACT};
    dwunw_resolve_request naming = {.struct_size = sizeof naming, .frames = &here, .frame_size = sizeof here, .frame_count = 1, .symbols = &symbol,
                                    .symbol_size = sizeof symbol, .max_symbols = 1, .text = text, .text_size = sizeof text};
    dwunw_resolve_result named = {.struct_size = 4};
    CHECK_STATUS(dwunw_symbol_resolve_batch(context, &naming, NULL), DWUNW_STATUS_BAD_ARGUMENT);
    CHECK_STATUS(dwunw_symbol_resolve_batch(context, &naming, &named), DWUNW_STATUS_STRUCT_TOO_SMALL);
    CHECK(symbol.struct_size == 0x55555555 && text[0] == 0);
    named.struct_size = sizeof named;
    CHECK_STATUS(dwunw_symbol_resolve_batch(context, &naming, &named), DWUNW_STATUS_OK);
    CHECK(named.named == 1 && strcmp(symbol.function, "main") == 0);
    CHECK_STATUS(dwunw_capture(context, request, &result), DWUNW_STATUS_OK);

    /* Registers. */
    dwunw_registers wrong = registers;
    request->registers = &wrong;
    wrong.version = 2;
    CHECK_STATUS(dwunw_capture(context, request, &result), DWUNW_STATUS_UNSUPPORTED_VERSION);
    wrong = registers;
    wrong.arch = 77;
    CHECK_STATUS(dwunw_capture(context, request, &result), DWUNW_STATUS_UNSUPPORTED_ARCH);
    /* Of another processor, with what the stack pointer of this one would be alone. */
    wrong = registers;
    wrong.arch = registers.arch == DWUNW_ARCH_MIPS_BE ? DWUNW_ARCH_AARCH64 : DWUNW_ARCH_MIPS_BE;
    wrong.valid = 0xffff;
    CHECK_STATUS(dwunw_capture(context, request, &result), DWUNW_STATUS_UNSUPPORTED_ARCH);
    wrong = registers;
    wrong.valid = 0;
    CHECK_STATUS(dwunw_capture(context, request, &result), DWUNW_STATUS_BAD_ARGUMENT);
    wrong = registers;
    wrong.struct_size = 100;
    CHECK_STATUS(dwunw_capture(context, request, &result), DWUNW_STATUS_STRUCT_TOO_SMALL);
    wrong = registers;
    wrong.pc = 0;
    CHECK(dwunw_capture(context, request, &result) >= 0 && result.written >= 1);

    /* A full array, and a stack that ends early: the frames so far are the first ones. */
    *request = good;
    for (uint32_t most = 1; most <= depth; most++) {
        request->max_frames = most;
        CHECK_STATUS(dwunw_capture(context, request, &result), most == depth ? DWUNW_STATUS_OK : DWUNW_STATUS_TRUNCATED);
        CHECK(result.written == most && (most == depth || result.stop == DWUNW_STOP_MAX_FRAMES));
    }
    *request = good;
    size_t whole = window.size;
    for (window.size = 0; window.size < 512; window.size++) {
        dwunw_status status = dwunw_capture(context, request, &result);
        CHECK(status == DWUNW_STATUS_STACK_UNREADABLE || status == DWUNW_STATUS_OK);
        CHECK(result.written >= 1 && result.written <= depth);
    }
    window.size = whole;
    window.bytes = NULL;
    CHECK_STATUS(dwunw_capture(context, request, &result), DWUNW_STATUS_BAD_ARGUMENT);
    window.bytes = (void *)(uintptr_t)sp;
    window.size = SIZE_MAX;
    CHECK_STATUS(dwunw_capture(context, request, &result), DWUNW_STATUS_BAD_ARGUMENT);
    window.size = whole;

    /* A reader that gives too little, and one that claims too much. */
    int calls = 0;
    request->window_count = 0;
    request->read_data = &calls;
    request->read = answers_three_bytes;
    CHECK_STATUS(dwunw_capture(context, request, &result), DWUNW_STATUS_STACK_UNREADABLE);
    CHECK(calls > 0 && result.written == 1 && result.target_reads == (uint32_t)calls);
    calls = 0;
    request->read = answers_too_much;
    CHECK(dwunw_capture(context, request, &result) >= 32 && calls > 0);
    *request = good;

    /* Hostile stacks: bytes that look like anything. */
    static uint64_t wild[512];
    uint64_t seed = 1;
    for (int round = 0; round < 20000; round++) {
        for (int at = 0; at < 512; at++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            uint64_t pick = seed >> 60;
            wild[at] = pick < 6 ? frames[pick % depth].frame.pc + (seed >> 58 & 3) : pick < 12 ? sp + (seed >> 40 & 0xff8) : seed;
        }
        wrong = registers;
        for (int at = 0; at < 16; at++)
            wrong.regs[at] = at == 7 ? sp : wild[at];
        wrong.valid = 0xffff;
        dwunw_window hostile = {.struct_size = sizeof hostile, .start = sp, .bytes = wild, .size = sizeof wild};
        struct later_frame found[64];
        request->registers = &wrong;
        request->windows = &hostile;
        request->frames = &found[0].frame;
        CHECK(dwunw_capture(context, request, &result) != DWUNW_STATUS_BAD_ARGUMENT && result.written <= 32 && result.written > 0);
    }

    /* Modules. */
    dwunw_module module = {.struct_size = sizeof module - 1, .start = 0x1000, .end = 0x2000};
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_STRUCT_TOO_SMALL);
    module.struct_size = sizeof module;
    CHECK_STATUS(dwunw_module_add(context, NULL, NULL), DWUNW_STATUS_BAD_ARGUMENT);
    CHECK_STATUS(dwunw_module_add(NULL, &module, NULL), DWUNW_STATUS_BAD_ARGUMENT);
    module.flags = 0x100;
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_BAD_ARGUMENT);
    module.flags = 0;
    module.end = 0;
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_BAD_ARGUMENT);
    module.end = 0x800;
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_BAD_ARGUMENT);
    module.end = 0x2000;
    module.elf_path = "/nowhere";
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_FILE_NOT_FOUND);
    module.elf_path = "/dev/null";
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_FILE_UNREADABLE);
    module.elf_path = "/etc/passwd";
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_BAD_ELF);
    module.elf = memory;
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_BAD_ARGUMENT);
    module.elf_path = NULL;
    module.elf_size = SIZE_MAX;
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_BAD_ARGUMENT);
    /* Memory that could not be had makes no range of what was to be a file. */
    module.elf = NULL;
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_BAD_ARGUMENT);
    module.elf_path = argv[1];
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_BAD_ARGUMENT);
    module.elf_path = NULL;
    module.elf_size = 0;
    module.uwt_size = 1;
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_BAD_ARGUMENT);
    module.uwt_size = 0;
    module.symx_size = 1;
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_BAD_ARGUMENT);
    module.symx_size = 0;
    module.uwt_path = "/etc/passwd";
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_BAD_TABLE);
    module.uwt_path = NULL;
    module.symx_path = "/etc/passwd";
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_BAD_TABLE);
    CHECK_STATUS(dwunw_module_remove(context, 4711), DWUNW_STATUS_NO_SUCH_MODULE);
    CHECK_STATUS(dwunw_module_remove(NULL, 0), DWUNW_STATUS_BAD_ARGUMENT);

    /* A damaged ELF file: any status, and nothing worse. Headers are hit most. */
    CHECK(argc > 1);
    size_t size;
    unsigned char *elf = whole_file(argv[1], &size), *damaged = malloc(size);
    int taken = 0;
    for (int round = 0; round < 400; round++) {
        memcpy(damaged, elf, size);
        size_t cut = size;
        for (int change = 0; change < 1 + round % 8; change++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t at = (seed >> 20) % (change % 2 ? size : 1024);
            if (round % 3 == 0 && change == 0)
                at = size - 1 - (seed >> 20) % (size < 4096 ? size : 4096);
            damaged[at] = (unsigned char)(seed >> 50);
        }
        if (round % 5 == 0)
            cut = (seed >> 20) % size;
        module = (dwunw_module){.struct_size = sizeof module, .start = 0x10000000, .elf = damaged, .elf_size = cut};
        dwunw_module_info info = {.struct_size = sizeof info};
        if (dwunw_module_add(context, &module, &info) == DWUNW_STATUS_OK) {
            taken++;
            CHECK_STATUS(dwunw_module_remove(context, info.module), DWUNW_STATUS_OK);
        }
    }
    CHECK(taken > 0 && taken < 400);
    module = (dwunw_module){.struct_size = sizeof module, .start = 0x10000000, .elf = elf, .elf_size = size};
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_OK);
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_ADDRESS_IN_USE);

    /* A file that takes more than there is, in place of a start that is too high. */
    memcpy(damaged, elf, size);
    const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 8192, 1ull << 63};
    for (size_t at = 0; sizeof(size_t) == 8 && at < sizeof sizes / sizeof *sizes; at++) {
        make_larger(damaged, sizes[at]);
        dwunw_module larger = {.struct_size = sizeof larger, .start = 0x8000000000000000, .elf = damaged, .elf_size = size};
        CHECK_STATUS(dwunw_module_add(context, &larger, NULL), DWUNW_STATUS_BAD_ELF);
    }
    dwunw_module high = {.struct_size = sizeof high, .start = 0xfffffffffffff000, .elf = elf, .elf_size = size};
    CHECK_STATUS(dwunw_module_add(context, &high, NULL), DWUNW_STATUS_BAD_ARGUMENT);

    /* A file is mapped by pages; code that was generated lies anywhere. */
    const uint64_t askew[] = {1, 2, 8, 2048, 4095};
    for (size_t at = 0; at < sizeof askew / sizeof *askew; at++) {
        module.start = 0x20000000 + askew[at];
        CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_BAD_ARGUMENT);
        dwunw_module range = {.struct_size = sizeof range, .start = module.start, .end = module.start + 1};
        dwunw_module_info info = {.struct_size = sizeof info};
        CHECK_STATUS(dwunw_module_add(context, &range, &info), DWUNW_STATUS_OK);
        CHECK(info.start == range.start && info.end == range.end && info.unwind == DWUNW_STATUS_NO_UNWIND_DATA);
        CHECK_STATUS(dwunw_module_remove(context, info.module), DWUNW_STATUS_OK);
    }
    module.start = 0x20000000;
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_OK);
    dwunw_shutdown(context);
    dwunw_shutdown(NULL);
    free(elf);
    free(damaged);
    printf("every call was answered; %d of 400 damaged files were taken\n", taken);
    return 0;
}
