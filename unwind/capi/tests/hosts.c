/* Unwinds by the tables of programs for Windows and macOS, whose formats the library does not compile and whose tables it reads.
 *
 *   hosts TABLE RVA windows|macos   a place of x86_64 code, 80 bytes below its frame's CFA
 */
#include <string.h>

#include "check.h"

enum { START = 0x10000, STACK = 0x70000000, BELOW_CFA = 80, STACK_POINTER = 7 };

static char scratch_memory[DWUNW_SCRATCH_SIZE];

int main(int arguments, char **argument) {
    CHECK(arguments == 4);
    uint64_t here = START + strtoull(argument[2], NULL, 16);
    dwunw_context *context;
    dwunw_scratch *scratch;
    CHECK_STATUS(dwunw_init(NULL, &context), DWUNW_STATUS_OK);
    CHECK_STATUS(dwunw_scratch_init(scratch_memory, sizeof scratch_memory, NULL, &scratch), DWUNW_STATUS_OK);
    dwunw_module module = {.struct_size = sizeof module, .flags = DWUNW_MODULE_VERIFY, .start = START, .uwt_path = argument[1]};
    dwunw_module_info info = {.struct_size = sizeof info};
    CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_OK);
    CHECK(info.unwind == DWUNW_STATUS_OK);

    uint64_t stack[32] = {[BELOW_CFA / 8 - 1] = here + 1};
    dwunw_registers registers = {.struct_size = sizeof registers, .version = DWUNW_REGISTERS_VERSION, .arch = DWUNW_ARCH_X86_64};
    registers.valid = 1 << STACK_POINTER;
    registers.pc = here;
    registers.regs[STACK_POINTER] = STACK;
    dwunw_window window = {.struct_size = sizeof window, .start = STACK, .bytes = stack, .size = sizeof stack};
    dwunw_frame frames[2];
    dwunw_capture_request request = {.struct_size = sizeof request, .registers = &registers, .windows = &window, .window_count = 1,
                                     .frames = frames, .frame_size = sizeof frames[0], .max_frames = 2, .scratch = scratch};
    dwunw_capture_result result = {.struct_size = sizeof result};
    dwunw_capture(context, &request, &result);
    CHECK(result.written == 2 && frames[0].cfa == STACK + BELOW_CFA && frames[1].pc == here + 1);
    CHECK(frames[1].method == (strcmp(argument[3], "windows") ? DWUNW_METHOD_COMPACT_UNWIND : DWUNW_METHOD_PDATA));
    dwunw_shutdown(context);
    printf("its table leads to the caller\n");
    return 0;
}
