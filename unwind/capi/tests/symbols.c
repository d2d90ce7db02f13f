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

int main(void) {
    dwunw_context *context;
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
    CHECK_STATUS(dwunw_symbol_resolve_batch(context, &request, &result), DWUNW_STATUS_BAD_ARGUMENT);
    dwunw_shutdown(context);
    printf("%d names are those of dladdr()\n", named);
    return 0;
}
