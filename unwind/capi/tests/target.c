/* Another process: stopped and read, read alone, read through a function, through /proc/PID/mem where the call is forbidden; and what is said where
 * none of it works. The process is a child that calls deep and then waits.
 *
 *   target FILE     with gdb's view of the same child to compare with: FILE gets "pid", and is waited for until it is gone
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "forbid.h"
#include "maps.h"

enum { MAX_FRAMES = 128, DEPTH = 40 };

static dwunw_context *context;
static dwunw_scratch *scratch;
static char memory[DWUNW_SCRATCH_SIZE];
static dwunw_frame frames[MAX_FRAMES];
static dwunw_capture_result result = {.struct_size = sizeof result};

__attribute__((noinline)) static int wait_deep(int depth, int ready) {
    volatile char room[200];
    room[0] = (char)depth;
    if (depth == 0) {
        CHECK(write(ready, "x", 1) == 1);
        while (room[0] == 0)
            pause();
        return 0;
    }
    return wait_deep(depth - 1, ready) + room[0];
}

static dwunw_capture_request to_target(pid_t pid, uint32_t flags) {
    return (dwunw_capture_request){.struct_size = sizeof(dwunw_capture_request), .flags = flags, .pid = pid, .frames = frames,
                                   .frame_size = sizeof frames[0], .max_frames = MAX_FRAMES, .scratch = scratch};
}

static char state(pid_t pid) {
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(text, sizeof text, file));
    fclose(file);
    return strrchr(text, ')')[2];
}

/* The child waits, as it did before it was stopped. */
static void await_sleep(pid_t pid) {
    for (int round = 0; state(pid) != 'S'; round++) {
        CHECK(round < 5000);
        usleep(1000);
    }
}

static size_t by_function(void *data, uint64_t address, void *buffer, size_t size) {
    struct iovec local = {buffer, size}, remote = {(void *)(uintptr_t)address, size};
    ssize_t read = process_vm_readv(*(pid_t *)data, &local, 1, &remote, 1, 0);
    return read < 0 ? 0 : (size_t)read;
}

/* The target, as it is not where a window has its bytes: each of those is another one. */
struct target_under_windows {
    pid_t pid;
    const dwunw_window *windows;
    uint32_t window_count;
};

static size_t by_function_under_windows(void *data, uint64_t address, void *buffer, size_t size) {
    struct target_under_windows *target = data;
    size_t read = by_function(&target->pid, address, buffer, size);
    for (uint32_t at = 0; at < target->window_count; at++)
        for (uint64_t offset = 0; offset < target->windows[at].size; offset++) {
            uint64_t place = target->windows[at].start + offset - address;
            if (place < read)
                ((unsigned char *)buffer)[place] ^= 0x55;
        }
    return read;
}

/* More frames than fit into a thousand copies of a stack, on a thread of another process that is not its first. */
enum { MANY = 100000 };

static int many_ready;

static void *wait_in_thread(void *unused) {
    pid_t tid = gettid();
    CHECK(write(many_ready, &tid, sizeof tid) == sizeof tid);
    wait_deep(MANY, many_ready);
    return unused;
}

static void *wait_in_small_thread(void *unused) {
    pid_t tid = gettid();
    CHECK(write(many_ready, &tid, sizeof tid) == sizeof tid);
    wait_deep(DEPTH, many_ready);
    return unused;
}

static pid_t child_with_thread(pid_t *tid) {
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    many_ready = ready[1];
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        pthread_attr_t large;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        CHECK(pthread_attr_init(&large) == 0 && pthread_attr_setstacksize(&large, (size_t)MANY * 1024) == 0);
        CHECK(pthread_create(&thread, &large, wait_in_thread, NULL) == 0);
        pthread_join(thread, NULL);
        _exit(1);
    }
    CHECK(read(ready[0], tid, sizeof *tid) == sizeof *tid && read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void many(pid_t other) {
    pid_t tid, child = child_with_thread(&tid);
    dwunw_scratch_options options = {.struct_size = sizeof options, .max_frames = 2 * MANY, .cache_entries = 64};
    dwunw_frame *found = malloc(2 * MANY * sizeof *found);
    CHECK(found);
    for (int by_word = 0; by_word < 2; by_word++) {
        options.target_bytes = by_word ? UINT32_MAX : 0;
        size_t size = dwunw_scratch_size(&options);
        void *large = malloc(size);
        dwunw_capture_request request = to_target(child, DWUNW_CAPTURE_READ_TARGET | DWUNW_CAPTURE_STOP_TARGET);
        request.tid = tid;
        request.frames = found;
        request.max_frames = 2 * MANY;
        CHECK(large);
        CHECK_STATUS(dwunw_scratch_init(large, size, &options, &request.scratch), DWUNW_STATUS_OK);
        CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_OK);
        CHECK(result.written > MANY && result.target_reads > (by_word ? MANY : 1024));
        free(large);
    }
    free(found);
    /* A thread of another process, and none at all, are not stopped. */
    dwunw_capture_request request = to_target(other, DWUNW_CAPTURE_READ_TARGET | DWUNW_CAPTURE_STOP_TARGET);
    request.tid = tid;
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_BAD_ARGUMENT);
    request.pid = child;
    request.tid = other;
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_BAD_ARGUMENT);
    request.tid = 0x3ffffffe;
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_NO_SUCH_PROCESS);
    request.tid = child;
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_OK);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

/* A process whose first thread has ended: there is no stack of that one, nor any memory or mapping by its number, but all of the others'. */
static void without_first_thread(void) {
    int ready[2];
    pid_t tid;
    char byte;
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        many_ready = ready[1];
        CHECK(pthread_create(&thread, NULL, wait_in_small_thread, NULL) == 0);
        pthread_exit(NULL);
    }
    CHECK(read(ready[0], &tid, sizeof tid) == sizeof tid && read(ready[0], &byte, 1) == 1);
    for (int round = 0; state(child) != 'Z'; round++) {
        CHECK(round < 5000);
        usleep(1000);
    }
    dwunw_capture_request request = to_target(child, DWUNW_CAPTURE_READ_TARGET | DWUNW_CAPTURE_STOP_TARGET);
    CHECK(dwunw_capture(context, &request, &result) != DWUNW_STATUS_OK && result.written == 0);
    request.tid = tid;
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_OK);
    CHECK(result.written > DEPTH);
    dwunw_context *own;
    CHECK_STATUS(dwunw_init(NULL, &own), DWUNW_STATUS_OK);
    CHECK(add_modules(own, child) == 0 && add_modules(own, tid) >= 2);
    CHECK_STATUS(dwunw_capture(own, &request, &result), DWUNW_STATUS_OK);
    dwunw_shutdown(own);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

int main(int argc, char **argv) {
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        exit(wait_deep(DEPTH, ready[1]));
    }
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
    await_sleep(child);
    CHECK_STATUS(dwunw_init(NULL, &context), DWUNW_STATUS_OK);
    CHECK_STATUS(dwunw_scratch_init(memory, sizeof memory, NULL, &scratch), DWUNW_STATUS_OK);
    CHECK(add_modules(context, child) >= 2);

    /* Stopped: complete, and the child goes on as it was. */
    dwunw_capture_request request = to_target(child, DWUNW_CAPTURE_READ_TARGET | DWUNW_CAPTURE_STOP_TARGET);
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_OK);
    uint32_t depth = result.written;
    uint64_t expected[MAX_FRAMES];
    for (uint32_t at = 0; at < depth; at++)
        expected[at] = frames[at].pc;
    CHECK(depth > DEPTH && result.target_reads >= 1 && result.target_reads <= 4);
    await_sleep(child);
    for (int round = 0; round < 50; round++)
        CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_OK);

    if (argc > 1) {
        for (uint32_t at = 0; at < depth; at++)
            printf("frame 0x%016lx\n", (unsigned long)expected[at]);
        fflush(stdout);
        FILE *file = fopen(argv[1], "w");
        CHECK(file && fprintf(file, "%d\n", (int)child) > 0 && fclose(file) == 0);
        while (access(argv[1], F_OK) == 0)
            usleep(10000);
    }

    /* With registers from elsewhere: a debugger's, of the stopped thread. */
    CHECK(ptrace(PTRACE_ATTACH, child, NULL, NULL) == 0 && waitpid(child, NULL, 0) == child);
    struct user_regs_struct now;
    CHECK(ptrace(PTRACE_GETREGS, child, NULL, &now) == 0);
    dwunw_registers registers = {.struct_size = sizeof registers, .version = DWUNW_REGISTERS_VERSION, .arch = DWUNW_ARCH_X86_64,
                                 .valid = 1 << 3 | 1 << 6 | 1 << 7 | 0xf000, .pc = now.rip};
    registers.regs[3] = now.rbx;
    registers.regs[6] = now.rbp;
    registers.regs[7] = now.rsp;
    registers.regs[12] = now.r12;
    registers.regs[13] = now.r13;
    registers.regs[14] = now.r14;
    registers.regs[15] = now.r15;
    request = to_target(child, DWUNW_CAPTURE_READ_TARGET);
    request.registers = &registers;
#define SAME_STACK()                                                                     \
    do {                                                                                 \
        CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_OK);        \
        CHECK(result.written == depth);                                                  \
        for (uint32_t at = 1; at < depth; at++)                                          \
            CHECK(frames[at].pc == expected[at]);                                        \
    } while (0)
    SAME_STACK();
    dwunw_capture_request by_reader = request;
    by_reader.flags = 0;
    by_reader.read = by_function;
    by_reader.read_data = &child;
    request = by_reader;
    SAME_STACK();
    /* The first part of the stack is at hand; the rest is read. */
    uint64_t part[64];
    CHECK(by_function(&child, now.rsp, part, sizeof part) == sizeof part);
    dwunw_window window = {.struct_size = sizeof window, .start = now.rsp, .bytes = part, .size = sizeof part};
    request.windows = &window;
    request.window_count = 1;
    SAME_STACK();
    /* And more of it further up, which counts although a block that is read lies over it. */
    uint64_t more[64];
    CHECK(by_function(&child, now.rsp + 2048, more, sizeof more) == sizeof more);
    dwunw_window windows[2] = {window, {.struct_size = sizeof window, .start = now.rsp + 2048, .bytes = more, .size = sizeof more}};
    struct target_under_windows under_windows = {child, windows, 2};
    request.windows = windows;
    request.window_count = 2;
    request.read = by_function_under_windows;
    request.read_data = &under_windows;
    SAME_STACK();
    CHECK(result.target_reads > 0);
    request = by_reader;
    /* Without room for copies it is read word by word. */
    static char small[8192];
    dwunw_scratch_options options = {.struct_size = sizeof options, .max_frames = MAX_FRAMES, .cache_entries = 1, .target_bytes = UINT32_MAX};
    CHECK_STATUS(dwunw_scratch_init(small, sizeof small, &options, &request.scratch), DWUNW_STATUS_OK);
    SAME_STACK();
    CHECK(result.target_reads > depth / 2);
    CHECK(ptrace(PTRACE_DETACH, child, NULL, NULL) == 0);

    /* What cannot be stopped. */
    request = to_target(0x3ffffffe, DWUNW_CAPTURE_READ_TARGET | DWUNW_CAPTURE_STOP_TARGET);
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_NO_SUCH_PROCESS);
    CHECK(result.written == 0);
    request = to_target(getpid(), DWUNW_CAPTURE_READ_TARGET | DWUNW_CAPTURE_STOP_TARGET);
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_NOT_PERMITTED);
    if (getuid() == 0) {
        pid_t other = fork();
        if (other == 0) {
            CHECK(setgid(65534) == 0 && setuid(65534) == 0);
            request = to_target(child, DWUNW_CAPTURE_READ_TARGET | DWUNW_CAPTURE_STOP_TARGET);
            CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_NOT_PERMITTED);
            request = to_target(child, DWUNW_CAPTURE_READ_TARGET);
            request.registers = &registers;
            CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_NOT_PERMITTED);
            CHECK(result.written == 1 && result.stop == DWUNW_STOP_TRUNCATED_STACK && result.target_reads == 1);
            _exit(0);
        }
        int status;
        CHECK(waitpid(other, &status, 0) == other && status == 0);
    }

    many(child);
    without_first_thread();

    /* What is gone: the frame that the registers tell of is there. */
    pid_t gone = fork();
    if (gone == 0)
        _exit(0);
    /* Ended, and not waited for: the kernel refuses as it does where there is no right to. */
    siginfo_t ended;
    CHECK(waitid(P_PID, gone, &ended, WEXITED | WNOWAIT) == 0);
    request = to_target(gone, DWUNW_CAPTURE_READ_TARGET | DWUNW_CAPTURE_STOP_TARGET);
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_NO_SUCH_PROCESS);
    CHECK(result.written == 0);
    CHECK(waitpid(gone, NULL, 0) == gone);
    request = to_target(gone, DWUNW_CAPTURE_READ_TARGET);
    request.registers = &registers;
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_NO_SUCH_PROCESS);
    CHECK(result.written == 1 && result.stop == DWUNW_STOP_TRUNCATED_STACK && result.target_reads == 1);

    /* The call is forbidden, the file is not. Last, as there is no way back. */
    forbid(SYS_process_vm_readv, EPERM); /* as some containers do */
    request = to_target(child, DWUNW_CAPTURE_READ_TARGET | DWUNW_CAPTURE_STOP_TARGET);
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_OK);
    CHECK(result.written == depth && by_function(&child, now.rsp, part, 8) == 0);
    for (uint32_t at = 1; at < depth; at++)
        CHECK(frames[at].pc == expected[at]);

    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_NO_SUCH_PROCESS);
    CHECK(result.written == 0);
    /* Here the call is refused before it is known whether the process is there. */
    request = to_target(child, DWUNW_CAPTURE_READ_TARGET);
    request.registers = &registers;
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_NOT_PERMITTED);
    CHECK(result.written == 1 && result.stop == DWUNW_STOP_TRUNCATED_STACK);
    dwunw_shutdown(context);
    printf("%u frames of another process, whichever way it is read\n", depth);
    return 0;
}
