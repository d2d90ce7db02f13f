/* Names addresses by the tables of a bundle, or by an ELF file's own symbols.
 *
 *   gcc -Iinclude examples/symbolise.c libdwunw.a -o symbolise
 *   ./symbolise FILE.symx 0x1234 0x5678        a bundle's symbol table
 *   ./symbolise --elf /usr/bin/program 0x1234  .symtab or .dynsym
 *
 * Addresses are those of the file (svma), not of a process: the module is put where it was linked to.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dwunw.h"

enum { MAX_ADDRESSES = 256, MAX_SYMBOLS = 4096 };

int main(int argc, char **argv) {
    int is_elf = argc > 2 && strcmp(argv[1], "--elf") == 0;
    argv += is_elf + 1;
    argc -= is_elf + 1;
    if (argc < 2 || argc > MAX_ADDRESSES)
        return 2;
    dwunw_context *context;
    if (dwunw_init(NULL, &context) != DWUNW_STATUS_OK)
        return 2;
    dwunw_module module = {.struct_size = sizeof module, .start = 0, .end = UINT64_MAX};
    if (is_elf)
        module.elf_path = argv[0];
    else
        module.symx_path = argv[0];
    dwunw_module_info info = {.struct_size = sizeof info};
    dwunw_status status = dwunw_module_add(context, &module, &info);
    if (status != DWUNW_STATUS_OK) {
        fprintf(stderr, "%s: %s\n", argv[0], dwunw_strerror(status));
        return 1;
    }

    static dwunw_frame frames[MAX_ADDRESSES];
    uint32_t count = 0;
    for (int at = 1; at < argc; at++)
        frames[count++] = (dwunw_frame){.struct_size = sizeof frames[0],
                                        .module = info.module,
                                        .pc = strtoull(argv[at], NULL, 16) + info.bias,
                                        .flags = DWUNW_FRAME_EXACT};
    static dwunw_symbol symbols[MAX_SYMBOLS];
    static char text[1 << 18];
    dwunw_resolve_request request = {
        .struct_size = sizeof request,
        .frames = frames,
        .frame_size = sizeof frames[0],
        .frame_count = count,
        .symbols = symbols,
        .symbol_size = sizeof symbols[0],
        .max_symbols = MAX_SYMBOLS,
        .text = text,
        .text_size = sizeof text,
    };
    dwunw_resolve_result result = {.struct_size = sizeof result};
    status = dwunw_symbol_resolve_batch(context, &request, &result);
    for (uint32_t at = 0; at < result.written; at++) {
        const dwunw_symbol *symbol = &symbols[at];
        printf("0x%" PRIx64 " ", symbol->svma);
        if (symbol->status == DWUNW_STATUS_OK)
            printf("%s %s:%u%s%s\n", symbol->function, symbol->file ? symbol->file : "?", symbol->line,
                   symbol->flags & DWUNW_SYMBOL_INLINED ? " (inlined)" : "", symbol->flags & DWUNW_SYMBOL_APPROXIMATE ? " (approximate)" : "");
        else
            printf("? %s\n", dwunw_strerror(symbol->status));
    }
    dwunw_shutdown(context);
    return status == DWUNW_STATUS_OK ? 0 : 1;
}
