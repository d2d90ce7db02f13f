/* A bundle's unwind table of another processor is taken, alone and with the file, and makes the context one for that processor.
 *
 *   tables TABLE ELF
 */
#include "check.h"

static void add(const char *table, const char *elf, uint32_t flags) {
    dwunw_context *context;
    CHECK_STATUS(dwunw_init(NULL, &context), DWUNW_STATUS_OK);
    dwunw_module module = {.struct_size = sizeof module, .flags = flags, .start = 0x10000, .uwt_path = table, .elf_path = elf};
    dwunw_module_info info = {.struct_size = sizeof info};
    CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_OK);
    CHECK(info.unwind == DWUNW_STATUS_OK && info.end > info.start);
    /* This program is of another one. */
    dwunw_module own = {.struct_size = sizeof own, .start = (uint64_t)1 << 40, .elf_path = "/proc/self/exe"};
    CHECK_STATUS(dwunw_module_add(context, &own, NULL), DWUNW_STATUS_UNSUPPORTED_ARCH);
    CHECK_STATUS(dwunw_module_remove(context, info.module), DWUNW_STATUS_OK);
    CHECK_STATUS(dwunw_module_add(context, &own, NULL), DWUNW_STATUS_OK);
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_UNSUPPORTED_ARCH);
    dwunw_shutdown(context);
}

int main(int arguments, char **argument) {
    CHECK(arguments == 3);
    add(argument[1], NULL, DWUNW_MODULE_VERIFY);
    add(argument[1], argument[2], 0);
    printf("its table is taken, alone and with its file\n");
    return 0;
}
