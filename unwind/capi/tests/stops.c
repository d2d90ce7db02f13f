/* Each way in which a walk ends without its end, or cannot begin, has its own status: the file of stops.s, and snapshots made by hand. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "forbid.h"

/* Where the file lies, and its functions in it. */
enum { ASKEW = 0x1000, FALLING = 0x1040, ON_A_REGISTER = 0x1080, BY_NO_RULE = 0x10c0, DARK = 0x1100 };
enum { BEHIND_FIRST = 0x1145, BEHIND_SECOND = 0x1185, BEHIND_FIRST_CALL = 0x11c5, BEHIND_SECOND_CALL = 0x11ca };
#define START UINT64_C(0x7000000000)
#define STACK UINT64_C(0x7fff00000000)

enum { MOST = 16, RSP = 7, R10 = 10 };

static dwunw_context *context;
static dwunw_scratch *scratch;
static dwunw_frame frames[MOST];
static dwunw_capture_result result = {.struct_size = sizeof result};

static dwunw_status capture(uint64_t function, uint64_t known, const uint64_t *stack, size_t words) {
    dwunw_registers registers = {.struct_size = sizeof registers, .version = DWUNW_REGISTERS_VERSION, .arch = DWUNW_ARCH_X86_64};
    registers.pc = START + function + 8;
    registers.regs[RSP] = STACK;
    registers.regs[R10] = STACK;
    registers.valid = UINT64_C(1) << RSP | known;
    dwunw_window window = {.struct_size = sizeof window, .start = STACK, .bytes = stack, .size = words * 8};
    dwunw_capture_request request = {.struct_size = sizeof request, .registers = &registers, .windows = &window, .window_count = 1,
                                     .frames = frames, .frame_size = sizeof frames[0], .max_frames = MOST, .scratch = scratch,
                                     .flags = DWUNW_CAPTURE_SCAN};
    dwunw_status status = dwunw_capture(context, &request, &result);
    CHECK(result.written >= 1 && frames[0].pc == registers.pc && frames[0].module != DWUNW_NO_MODULE);
    return status;
}

/* A reader that asks for another walk with the memory of the one that it reads for. */
static int asked;

static size_t reads_and_walks(void *data, uint64_t address, void *buffer, size_t size) {
    (void)address;
    dwunw_capture_result own = {.struct_size = sizeof own};
    dwunw_frame frame;
    dwunw_capture_request again = *(dwunw_capture_request *)data;
    again.frames = &frame;
    again.max_frames = 1;
    CHECK_STATUS(dwunw_capture(context, &again, &own), DWUNW_STATUS_SCRATCH_BUSY);
    CHECK(own.written == 0);
    asked++;
    memset(buffer, 0, size);
    return size;
}

static void busy(void) {
    dwunw_registers registers = {.struct_size = sizeof registers, .version = DWUNW_REGISTERS_VERSION, .arch = DWUNW_ARCH_X86_64,
                                 .pc = START + BEHIND_FIRST, .valid = UINT64_C(1) << RSP};
    registers.regs[RSP] = STACK;
    dwunw_capture_request request = {.struct_size = sizeof request, .registers = &registers, .frames = frames, .frame_size = sizeof frames[0],
                                     .max_frames = MOST, .scratch = scratch, .read = reads_and_walks, .read_data = &request};
    /* It ends at a return address of 0, as if nothing had been asked meanwhile. */
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_OK);
    CHECK(asked > 0 && result.written == 1);
}

/* The system refuses to stop another process for a reason that is no matter of rights. */
static void unstoppable(void) {
    pid_t target = fork();
    if (target == 0) {
        for (;;)
            pause();
    }
    CHECK(target > 0);
    pid_t caller = fork();
    if (caller == 0) {
        forbid(SYS_ptrace, EIO);
        dwunw_capture_request request = {.struct_size = sizeof request, .flags = DWUNW_CAPTURE_READ_TARGET | DWUNW_CAPTURE_STOP_TARGET,
                                         .pid = target, .frames = frames, .frame_size = sizeof frames[0], .max_frames = MOST, .scratch = scratch};
        CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_TARGET_UNREADABLE);
        CHECK(result.written == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(caller, &status, 0) == caller && status == 0);
    kill(target, SIGKILL);
    CHECK(waitpid(target, &status, 0) == target);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    CHECK_STATUS(dwunw_init(NULL, &context), DWUNW_STATUS_OK);
    static char memory[DWUNW_SCRATCH_SIZE];
    CHECK_STATUS(dwunw_scratch_init(memory, sizeof memory, NULL, &scratch), DWUNW_STATUS_OK);
    dwunw_module module = {.struct_size = sizeof module, .start = START, .elf_path = argv[1]};
    dwunw_module_info info = {.struct_size = sizeof info};
    CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_OK);

    const uint64_t callers[] = {1, START + BEHIND_FIRST, START + BEHIND_SECOND, START + BEHIND_FIRST_CALL, START + BEHIND_SECOND_CALL, 0};
    enum { WORDS = sizeof callers / sizeof callers[0] };
    CHECK_STATUS(capture(ASKEW, 0, callers, WORDS), DWUNW_STATUS_BAD_STACK);
    CHECK(result.stop == DWUNW_STOP_MISALIGNED);
    CHECK_STATUS(capture(FALLING, 0, callers, WORDS), DWUNW_STATUS_BAD_STACK);
    CHECK(result.stop == DWUNW_STOP_STACK_NOT_RISING);
    CHECK_STATUS(capture(ON_A_REGISTER, 0, callers, WORDS), DWUNW_STATUS_REGISTER_UNKNOWN);
    CHECK(result.stop == DWUNW_STOP_REGISTER_UNKNOWN && result.written == 1);
    /* With the register it is found. */
    CHECK_STATUS(capture(ON_A_REGISTER, UINT64_C(1) << R10, callers, WORDS), DWUNW_STATUS_OK);
    CHECK(result.written == 3 && frames[1].pc == START + BEHIND_FIRST && frames[2].pc == START + BEHIND_FIRST_CALL);
    CHECK_STATUS(capture(BY_NO_RULE, 0, callers, WORDS), DWUNW_STATUS_UNSUPPORTED_RULE);
    CHECK(result.stop == DWUNW_STOP_UNSUPPORTED_RULE);
    CHECK_STATUS(capture(DARK, 0, callers, WORDS), DWUNW_STATUS_AMBIGUOUS);
    CHECK(result.stop == DWUNW_STOP_AMBIGUOUS && result.written == 1);
    /* With one of them it is known. */
    const uint64_t one[] = {1, START + BEHIND_FIRST, 2, START + BEHIND_FIRST_CALL, 3, 0};
    CHECK_STATUS(capture(DARK, 0, one, WORDS), DWUNW_STATUS_OK);
    CHECK(result.written == 3 && frames[1].pc == START + BEHIND_FIRST && frames[2].pc == START + BEHIND_FIRST_CALL);
    busy();
    unstoppable();
    dwunw_shutdown(context);
    puts("each status by what it is for");
    return 0;
}
