/* Unwinds a snapshot of another processor's program: the frames must be those that the program found itself.
 *
 *   foreign PROGRAM SNAPSHOT [TABLE]   as tests/self.c writes it; by a bundle's table of the program in the place of the program
 */
#include <inttypes.h>

#include "check.h"
#include "registers.h"

enum { MAX_FRAMES = 128 };

static char scratch_memory[DWUNW_SCRATCH_SIZE];

int main(int arguments, char **argument) {
    CHECK(arguments == 3 || arguments == 4);
    FILE *file = fopen(argument[2], "r");
    CHECK(file);
    dwunw_registers registers = {.struct_size = sizeof registers, .version = DWUNW_REGISTERS_VERSION};
    unsigned arch, written;
    uint64_t image, sp, size;
    CHECK(fscanf(file, "%u %" SCNx64 " %" SCNx64 " %" SCNx64, &arch, &registers.valid, &registers.pc, &image) == 4);
    registers.arch = (uint16_t)arch;
    for (int at = 0; at < DWUNW_REGISTERS; at++)
        CHECK(fscanf(file, "%" SCNx64, &registers.regs[at]) == 1);
    CHECK(fscanf(file, "%" SCNx64 " %" SCNx64, &sp, &size) == 2 && size < 1 << 20);
    unsigned char *bytes = malloc(size);
    for (uint64_t at = 0; at < size; at++)
        CHECK(fscanf(file, "%hhx", &bytes[at]) == 1);

    dwunw_context *context;
    dwunw_scratch *scratch;
    dwunw_options options = {.struct_size = sizeof options, .arch = arch};
    CHECK_STATUS(dwunw_init(&options, &context), DWUNW_STATUS_OK);
    CHECK_STATUS(dwunw_scratch_init(scratch_memory, sizeof scratch_memory, NULL, &scratch), DWUNW_STATUS_OK);
    dwunw_module module = {.struct_size = sizeof module, .flags = DWUNW_MODULE_VERIFY, .start = image};
    if (arguments == 4)
        module.uwt_path = argument[3];
    else
        module.elf_path = argument[1];
    dwunw_module_info info = {.struct_size = sizeof info};
    CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_OK);
    CHECK(info.unwind == DWUNW_STATUS_OK);
    /* The same file is refused where another processor was asked for. */
    dwunw_context *other;
    dwunw_options others = {.struct_size = sizeof others, .arch = arch == DWUNW_ARCH_X86_64 ? DWUNW_ARCH_MIPS_BE : DWUNW_ARCH_X86_64};
    CHECK_STATUS(dwunw_init(&others, &other), DWUNW_STATUS_OK);
    CHECK_STATUS(dwunw_module_add(other, &module, NULL), DWUNW_STATUS_UNSUPPORTED_ARCH);
    dwunw_shutdown(other);
    /* This file is of another processor, if the snapshot is. */
    dwunw_registers here;
    registers_here(&here);
    module = (dwunw_module){.struct_size = sizeof module, .start = (uint64_t)1 << 40, .elf_path = argument[0]};
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), arch == here.arch ? DWUNW_STATUS_OK : DWUNW_STATUS_UNSUPPORTED_ARCH);

    dwunw_frame frames[MAX_FRAMES];
    dwunw_window window = {.struct_size = sizeof window, .start = sp, .bytes = bytes, .size = size};
    dwunw_capture_request request = {
        .struct_size = sizeof request,
        .registers = &registers,
        .windows = &window,
        .window_count = 1,
        .frames = frames,
        .frame_size = sizeof frames[0],
        .max_frames = MAX_FRAMES,
        .scratch = scratch,
    };
    dwunw_capture_result result = {.struct_size = sizeof result};
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_OK);
    CHECK(fscanf(file, "%u", &written) == 1 && written == result.written && written > 8);
    for (uint32_t at = 0; at < written; at++) {
        uint64_t pc, cfa;
        CHECK(fscanf(file, "%" SCNx64 " %" SCNx64, &pc, &cfa) == 2 && pc == frames[at].pc && cfa == frames[at].cfa);
    }

    /* The mask takes the signature of return addresses away; without one, all bits above the highest known address go. */
    int signed_addresses = 0;
    for (uint64_t at = 0; arch == DWUNW_ARCH_AARCH64 && at + 8 <= size; at += 8) {
        uint64_t word = 0;
        for (int byte = 7; byte >= 0; byte--)
            word = word << 8 | bytes[at + byte];
        int is_signed = 0;
        for (uint32_t frame = 1; frame < written; frame++)
            is_signed |= word != frames[frame].pc && word << 16 == frames[frame].pc << 16;
        signed_addresses += is_signed;
    }
    registers.pac_mask = 0xff7f000000000000;
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_OK);
    CHECK(result.written == written);
    registers.pac_mask = 0xfffffffffffff000; /* nonsense, which leaves no signed address whole */
    CHECK((dwunw_capture(context, &request, &result) == DWUNW_STATUS_OK) == (signed_addresses == 0));
    registers.arch = arch == DWUNW_ARCH_X86_64 ? DWUNW_ARCH_MIPS_BE : DWUNW_ARCH_X86_64;
    registers.valid = UINT64_MAX;
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_UNSUPPORTED_ARCH);
    options.arch = 99;
    dwunw_context *none;
    CHECK_STATUS(dwunw_init(&options, &none), DWUNW_STATUS_UNSUPPORTED_ARCH);
    dwunw_shutdown(context);
    printf("%u frames are those that the program found, %d addresses are signed\n", written, signed_addresses);
    free(bytes);
    fclose(file);
    return 0;
}
