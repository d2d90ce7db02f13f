/* A handler without rules and frame pointer on an alternate stack, in another process: the frame pointer is that of the interrupted function, and
 * does not lead over the frames between; the address of the trampoline on top of the stack does lead on.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "maps.h"

enum { MAX_FRAMES = 64, LONGEST_FUNCTION = 256 };

/* Neither says anything of itself; the second has a word of its own on the stack. */
void at_top(int signal);
void below_top(int signal);
__asm__(".text\n"
        "at_top: jmp at_top\n"
        "below_top: pushq $0\n"
        "0: jmp 0b\n");

__attribute__((noinline)) static void inner(volatile int *nowhere) {
    *nowhere = 1;
}

__attribute__((noinline)) static void outer(volatile int *nowhere) {
    inner(nowhere);
    __asm__ volatile("");
}

static pid_t start(void (*handler)(int)) {
    pid_t child = fork();
    if (child != 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    stack_t alternate = {.ss_sp = malloc(65536), .ss_size = 65536};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaltstack(&alternate, NULL);
    sigaction(SIGSEGV, &action, NULL);
    outer((volatile int *)16);
    exit(1);
}

static int is_in(uint64_t pc, void (*function)(volatile int *)) {
    return pc - (uint64_t)(uintptr_t)function < LONGEST_FUNCTION;
}

int main(void) {
    static char memory[DWUNW_SCRATCH_SIZE];
    dwunw_scratch *scratch;
    CHECK_STATUS(dwunw_scratch_init(memory, sizeof memory, NULL, &scratch), DWUNW_STATUS_OK);
    void (*const handlers[])(int) = {at_top, below_top};
    for (int at = 0; at < 2; at++) {
        pid_t child = start(handlers[at]);
        dwunw_context *context;
        CHECK_STATUS(dwunw_init(NULL, &context), DWUNW_STATUS_OK);
        dwunw_frame frames[MAX_FRAMES];
        dwunw_capture_request request = {.struct_size = sizeof request, .flags = DWUNW_CAPTURE_READ_TARGET | DWUNW_CAPTURE_STOP_TARGET,
                                         .pid = child, .frames = frames, .frame_size = sizeof frames[0], .max_frames = MAX_FRAMES, .scratch = scratch};
        dwunw_capture_result result = {.struct_size = sizeof result};
        dwunw_status status;
        CHECK(add_modules(context, child) >= 2);
        for (int round = 0; round < 5000; round++) {
            status = dwunw_capture(context, &request, &result);
            if (result.written > 0 && frames[0].pc - (uint64_t)(uintptr_t)at_top < 16)
                break;
            usleep(1000);
        }
        CHECK(frames[0].pc - (uint64_t)(uintptr_t)at_top < 16);
        if (at == 0) {
            CHECK_STATUS(status, DWUNW_STATUS_OK);
            CHECK(result.written > 5 && frames[2].flags & DWUNW_FRAME_EXACT && is_in(frames[2].pc, inner) && is_in(frames[3].pc, outer));
        } else {
            CHECK(status != DWUNW_STATUS_OK && result.written == 1);
        }
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        dwunw_shutdown(context);
    }
    printf("no frame is left out between an alternate stack and the interrupted one\n");
    return 0;
}
