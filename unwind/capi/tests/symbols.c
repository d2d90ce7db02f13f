/* Names of exported functions are those of dladdr(), and room that is short is told of. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "maps.h"

enum { COUNT = 4096 };

static dwunw_frame frames[COUNT];
static dwunw_symbol symbols[COUNT];
static char text[COUNT * 64];

/* Of modules that overlap, names and frames go by the same one: the one that begins last before the address, or none if that has ended. */
static void nested(void) {
    static char scratch_memory[DWUNW_SCRATCH_SIZE];
    dwunw_context *context;
    dwunw_scratch *scratch;
    CHECK_STATUS(dwunw_init(NULL, &context), DWUNW_STATUS_OK);
    CHECK_STATUS(dwunw_scratch_init(scratch_memory, sizeof scratch_memory, NULL, &scratch), DWUNW_STATUS_OK);
    dwunw_module outer = {.struct_size = sizeof outer, .start = 0x10000, .end = 0x50000};
    dwunw_module inner = {.struct_size = sizeof inner, .start = 0x20000, .end = 0x30000};
    CHECK_STATUS(dwunw_module_add(context, &outer, NULL), DWUNW_STATUS_OK);
    CHECK_STATUS(dwunw_module_add(context, &inner, NULL), DWUNW_STATUS_OK);
    struct { uint64_t pc; uint32_t module; } cases[] = {{0x15000, 0}, {0x25000, 1}, {0x40000, DWUNW_NO_MODULE}, {0x60000, DWUNW_NO_MODULE}};
    for (size_t at = 0; at < sizeof cases / sizeof cases[0]; at++) {
        dwunw_registers registers = {.struct_size = sizeof registers, .version = DWUNW_REGISTERS_VERSION, .arch = DWUNW_ARCH_X86_64, .valid = 1 << 7, .pc = cases[at].pc};
        registers.regs[7] = 0x7000;
        dwunw_frame frame;
        dwunw_symbol symbol;
        dwunw_capture_request capture = {.struct_size = sizeof capture, .registers = &registers, .frames = &frame, .frame_size = sizeof frame, .max_frames = 1, .scratch = scratch};
        dwunw_capture_result captured = {.struct_size = sizeof captured};
        dwunw_capture(context, &capture, &captured);
        CHECK(captured.written == 1 && frame.module == cases[at].module);
        frame.module = DWUNW_NO_MODULE;
        dwunw_resolve_request request = {.struct_size = sizeof request, .frames = &frame, .frame_size = sizeof frame, .frame_count = 1, .symbols = &symbol, .symbol_size = sizeof symbol, .max_symbols = 1};
        dwunw_resolve_result result = {.struct_size = sizeof result};
        dwunw_symbol_resolve_batch(context, &request, &result);
        CHECK(symbol.status == (cases[at].module == DWUNW_NO_MODULE ? DWUNW_STATUS_ADDRESS_OUTSIDE_MODULES : DWUNW_STATUS_NO_SYMBOLS));
    }
    CHECK(strcmp(dwunw_method_name(DWUNW_METHOD_PROLOGUE), "prologue") == 0);
    dwunw_shutdown(context);
}

int main(void) {
    dwunw_context *context;
    nested();
    CHECK_STATUS(dwunw_init(NULL, &context), DWUNW_STATUS_OK);
    CHECK(add_modules(context, getpid()) >= 2);

    /* Addresses all over the C library's code. */
    Dl_info info;
    CHECK(dladdr((void *)(uintptr_t)&qsort, &info));
    uint64_t from = (uint64_t)(uintptr_t)&qsort - 0x18000, seed = 7;
    for (int at = 0; at < COUNT; at++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        frames[at] = (dwunw_frame){.struct_size = sizeof frames[0], .module = DWUNW_NO_MODULE, .pc = from + (seed >> 40) % 0x100000, .flags = DWUNW_FRAME_EXACT};
    }
    frames[0].pc = (uint64_t)(uintptr_t)&qsort;
    frames[1].pc = (uint64_t)(uintptr_t)&main;
    frames[2].pc = 16;
    dwunw_resolve_request request = {.struct_size = sizeof request, .frames = frames, .frame_size = sizeof frames[0], .frame_count = COUNT,
                                     .symbols = symbols, .symbol_size = sizeof symbols[0], .max_symbols = COUNT, .text = text, .text_size = sizeof text};
    dwunw_resolve_result result = {.struct_size = sizeof result};
    CHECK_STATUS(dwunw_symbol_resolve_batch(context, &request, &result), DWUNW_STATUS_OK);
    CHECK(result.written == COUNT && result.needed == COUNT && result.text_needed <= sizeof text);
    CHECK(strcmp(symbols[0].function, "qsort") == 0 && symbols[0].source == DWUNW_SYMBOL_SOURCE_ELF_DYNSYM);
    CHECK(strcmp(symbols[1].function, "main") == 0 && symbols[1].source == DWUNW_SYMBOL_SOURCE_ELF_SYMTAB);
    CHECK(symbols[2].status == DWUNW_STATUS_ADDRESS_OUTSIDE_MODULES && symbols[2].function == NULL);
    int named = 0;
    for (int at = 3; at < COUNT; at++) {
        Dl_info expected = {0};
        void *address = (void *)(uintptr_t)frames[at].pc;
        int is_known = dladdr(address, &expected) && expected.dli_sname;
        int is_named = symbols[at].status == DWUNW_STATUS_OK;
        CHECK(is_named || symbols[at].status == DWUNW_STATUS_NO_SYMBOL_AT_ADDRESS || symbols[at].status == DWUNW_STATUS_ADDRESS_OUTSIDE_MODULES);
        CHECK(is_named == is_known);
        if (!is_named)
            continue;
        uint64_t bias = frames[at].pc - symbols[at].svma;
        /* Of several names for one place either may give another. */
        if (symbols[at].function_svma + bias != (uint64_t)(uintptr_t)expected.dli_saddr) {
            fprintf(stderr, "%p: %s, expected %s\n", address, symbols[at].function, expected.dli_sname);
            return 1;
        }
        named++;
    }
    CHECK(named > COUNT / 10 && result.named == (uint32_t)named + 2);

    /* Too little room. */
    size_t needed = result.text_needed;
    request.text_size = needed - 1;
    CHECK_STATUS(dwunw_symbol_resolve_batch(context, &request, &result), DWUNW_STATUS_TEXT_FULL);
    CHECK(result.written == COUNT && result.text_needed == needed);
    request.text_size = needed;
    CHECK_STATUS(dwunw_symbol_resolve_batch(context, &request, &result), DWUNW_STATUS_OK);
    request.text = NULL;
    CHECK_STATUS(dwunw_symbol_resolve_batch(context, &request, &result), DWUNW_STATUS_BAD_ARGUMENT);
    request.text_size = 0;
    CHECK_STATUS(dwunw_symbol_resolve_batch(context, &request, &result), DWUNW_STATUS_TEXT_FULL);
    CHECK(symbols[0].function == NULL && symbols[0].status == DWUNW_STATUS_OK && symbols[0].function_svma != 0);
    memset(symbols, 0x55, sizeof symbols);
    request.max_symbols = 10;
    CHECK_STATUS(dwunw_symbol_resolve_batch(context, &request, &result), DWUNW_STATUS_SYMBOLS_FULL);
    CHECK(result.written == 10 && result.needed == COUNT && symbols[10].frame == 0x55555555);
    request.frame_count = 0;
    CHECK_STATUS(dwunw_symbol_resolve_batch(context, &request, &result), DWUNW_STATUS_OK);
    request.symbol_size = sizeof symbols[0] - 8;
    CHECK_STATUS(dwunw_symbol_resolve_batch(context, &request, &result), DWUNW_STATUS_STRUCT_TOO_SMALL);
    request.symbol_size = sizeof symbols[0] + 4;
    CHECK_STATUS(dwunw_symbol_resolve_batch(context, &request, &result), DWUNW_STATUS_BAD_ARGUMENT);
    request.symbol_size = sizeof symbols[0];
    request.frame_size = 4;
    CHECK_STATUS(dwunw_symbol_resolve_batch(context, &request, &result), DWUNW_STATUS_STRUCT_TOO_SMALL);
    dwunw_shutdown(context);
    printf("%d names are those of dladdr()\n", named);
    return 0;
}
