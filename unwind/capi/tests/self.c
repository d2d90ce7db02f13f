/* A static program unwinds itself, whatever processor it is for. Each of its functions notes where it returns to, and these addresses
 * must all be among the frames, in order, on a stack that is followed to its end.
 *
 *   self PROGRAM [SNAPSHOT]   PROGRAM is this file; the last snapshot goes to SNAPSHOT as text, with the frames that were found
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "check.h"
#include "registers.h"

enum { MAX_FRAMES = 128, MAX_NOTED = 64, MAX_STACK = 1 << 14 };

#define NOINLINE __attribute__((noinline, noclone))
#ifdef __arm__
#define PLACE(address) ((uint64_t)(uintptr_t)(address) & ~1ull) /* bit 0 tells Thumb code */
#else
#define PLACE(address) ((uint64_t)(uintptr_t)(address))
#endif
#define NOTED noted[count++] = PLACE(__builtin_extract_return_addr(__builtin_return_address(0)))

extern const char __executable_start[];

static dwunw_context *context;
static dwunw_scratch *scratch;
static char scratch_memory[DWUNW_SCRATCH_SIZE];
static uint64_t noted[MAX_NOTED], stack_end;
static int count, captures, compared;
static FILE *snapshot;
static volatile int sink;

static void write_snapshot(const dwunw_registers *registers, uint64_t sp, const dwunw_frame *frames, uint32_t written) {
    const unsigned char *bytes = (const void *)(uintptr_t)sp;
    rewind(snapshot);
    fprintf(snapshot, "%u %" PRIx64 " %" PRIx64 " %" PRIx64 "\n", registers->arch, registers->valid, registers->pc,
            (uint64_t)(uintptr_t)__executable_start);
    for (int at = 0; at < DWUNW_REGISTERS; at++)
        fprintf(snapshot, "%" PRIx64 "\n", registers->regs[at]);
    fprintf(snapshot, "%" PRIx64 " %" PRIx64 "\n", sp, stack_end - sp);
    for (uint64_t at = 0; at < stack_end - sp; at++)
        fprintf(snapshot, "%02x\n", bytes[at]);
    fprintf(snapshot, "%u\n", written);
    for (uint32_t at = 0; at < written; at++)
        fprintf(snapshot, "%" PRIx64 " %" PRIx64 "\n", frames[at].pc, frames[at].cfa);
}

static void print_frames(const dwunw_frame *frames, uint32_t count) {
    for (uint32_t at = 0; at < count; at++)
        fprintf(stderr, "%#" PRIx64 " %#" PRIx64 " %s\n", frames[at].pc, frames[at].cfa, dwunw_method_name(frames[at].method));
}

NOINLINE static void compare_here(void) {
    NOTED;
    dwunw_registers registers;
    dwunw_frame frames[MAX_FRAMES];
    registers_here(&registers);
    uint64_t sp = registers.regs[STACK_POINTER];
    dwunw_window window = {.struct_size = sizeof window, .start = sp, .bytes = (void *)(uintptr_t)sp, .size = stack_end - sp};
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
    errno = 1234;
    dwunw_status status = dwunw_capture(context, &request, &result);
    CHECK(errno == 1234);
    if (status != DWUNW_STATUS_OK)
        print_frames(frames, result.written);
    CHECK_STATUS(status, DWUNW_STATUS_OK);
    CHECK(result.stop == DWUNW_STOP_END_OF_STACK && frames[0].flags == DWUNW_FRAME_EXACT);
    int next = count;
    for (uint32_t at = 1; at < result.written && next > 0; at++) {
        if (frames[at].pc == noted[next - 1]) {
            next--;
            compared++;
        }
    }
    if (next > 0) {
        print_frames(frames, result.written);
        fprintf(stderr, "%#" PRIx64 " was not found\n", noted[next - 1]);
        exit(1);
    }
    if (snapshot)
        write_snapshot(&registers, sp, frames, result.written);
    captures++;
    count--;
}

NOINLINE static int recurse(int depth) {
    NOTED;
    volatile char room[40 + depth % 7 * 16];
    room[0] = (char)depth;
    if (depth == 0)
        compare_here();
    else
        sink = recurse(depth - 1);
    count--;
    return room[0] + sink;
}

static int compare(const void *a, const void *b) {
    NOTED;
    sink = recurse(*(const int *)a);
    count--;
    return *(const int *)a - *(const int *)b;
}

static void on_signal(int number) {
    NOTED;
    sink = recurse(number % 5);
    count--;
}

/* The name of a place in this file, by its own symbols. */
static void resolves(void (*function)(void), const char *expected) {
    static char text[4096];
    uint64_t start = PLACE(function);
    dwunw_frame frame = {.struct_size = sizeof frame, .module = DWUNW_NO_MODULE, .pc = start + 2, .flags = DWUNW_FRAME_EXACT};
    dwunw_symbol symbol;
    dwunw_resolve_request request = {.struct_size = sizeof request, .frames = &frame, .frame_size = sizeof frame, .frame_count = 1,
                                     .symbols = &symbol, .symbol_size = sizeof symbol, .max_symbols = 1, .text = text, .text_size = sizeof text};
    dwunw_resolve_result result = {.struct_size = sizeof result};
    CHECK_STATUS(dwunw_symbol_resolve_batch(context, &request, &result), DWUNW_STATUS_OK);
    CHECK(symbol.status == DWUNW_STATUS_OK && strcmp(symbol.function, expected) == 0);
    CHECK(symbol.function_svma == start && symbol.source == DWUNW_SYMBOL_SOURCE_ELF_SYMTAB);
}

int main(int arguments, char **argument) {
    extern const char _end[];
    dwunw_registers here;
    registers_here(&here);
    int arch = here.arch;
    CHECK(arguments >= 2);
    CHECK_STATUS(dwunw_init(NULL, &context), DWUNW_STATUS_OK);
    CHECK_STATUS(dwunw_scratch_init(scratch_memory, sizeof scratch_memory, NULL, &scratch), DWUNW_STATUS_OK);
    dwunw_module module = {
        .struct_size = sizeof module,
        .start = (uint64_t)(uintptr_t)__executable_start,
        .end = (uint64_t)(uintptr_t)_end,
        .elf_path = argument[1],
    };
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_OK);
    /* Arguments and environment lie above the outermost frame. */
    stack_end = (uint64_t)(uintptr_t)argument[arguments - 1] & ~15ull;
    if (arguments > 2)
        CHECK((snapshot = fopen(argument[2], "w")));

    for (int depth = 0; depth < 20; depth++)
        recurse(depth);
    /* On MIPS, RISC-V and IA-32 a handler returns to the vDSO, in place of which an emulator has a page that belongs to no file; and
     * QEMU 7.2 enters those of IA-32 with a stack that is not aligned as their ABI has it. */
    signal(SIGUSR1, on_signal);
    if (arch != DWUNW_ARCH_MIPS_BE && arch != DWUNW_ARCH_MIPS_LE && arch != DWUNW_ARCH_RISCV64 && arch != DWUNW_ARCH_I686)
        raise(SIGUSR1);
    int numbers[16];
    for (int at = 0; at < 16; at++)
        numbers[at] = at * 37 % 16;
    qsort(numbers, 16, sizeof numbers[0], compare);
    resolves(compare_here, "compare_here");
    resolves((void (*)(void))qsort, "qsort");
    dwunw_shutdown(context);
    CHECK(captures > 40 && compared > 300 && count == 0);
    printf("%d stacks, %d frames where calls return to\n", captures, compared);
    return 0;
}
