/* Threads are cancelled while they are in calls that open files, wait, stop another process or run a function of the caller's: each is cancelled after
 * its call, and leaves no lock, no descriptor, no busy scratch memory and no stopped process. */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "maps.h"
#include "registers.h"

enum { MAX_FRAMES = 16, ROUNDS = 40, LONGEST = 30 };

static dwunw_context *context;
static dwunw_scratch *scratch;
static char memory[DWUNW_SCRATCH_SIZE];
static pid_t target;
static atomic_int calls, reads;
static dwunw_status last, whole; /* of the thread that is cancelled; of a capture of the target */

/* Takes long, and may be cancelled at it. */
static size_t reads_slowly(void *unused, uint64_t address, void *buffer, size_t size) {
    (void)unused, (void)address;
    reads++;
    usleep(300);
    memset(buffer, 0, size);
    return size;
}

static dwunw_status capture(dwunw_scratch *with, dwunw_read read, uint32_t flags) {
    dwunw_registers registers;
    registers_here(&registers);
    dwunw_frame frames[MAX_FRAMES];
    dwunw_capture_request request = {.struct_size = sizeof request, .flags = flags, .registers = flags ? NULL : &registers, .pid = flags ? target : 0,
                                     .frames = frames, .frame_size = sizeof frames[0], .max_frames = MAX_FRAMES, .scratch = with, .read = read};
    dwunw_capture_result result = {.struct_size = sizeof result};
    return dwunw_capture(context, &request, &result);
}

static dwunw_status stop_target(void) { return capture(scratch, NULL, DWUNW_CAPTURE_READ_TARGET | DWUNW_CAPTURE_STOP_TARGET); }

/* Adds and removes a module, the file of which is opened and mapped, or waits for the captures that are under way. */
static dwunw_status change(uint64_t start) {
    dwunw_module module = {.struct_size = sizeof module, .start = start, .elf_path = "/proc/self/exe"};
    dwunw_module_info info = {.struct_size = sizeof info};
    dwunw_status status = dwunw_module_add(context, &module, &info);
    return status == DWUNW_STATUS_OK ? dwunw_module_remove(context, info.module) : status;
}

/* Each call ends before the thread does. */
#define FOR_EVER(name, call)                       \
    static void *name(void *unused) {              \
        for (;; pthread_testcancel()) {            \
            last = (call);                         \
            calls++;                               \
        }                                          \
        return unused;                             \
    }
FOR_EVER(changes, change(0x10000000))
FOR_EVER(stops, stop_target())
FOR_EVER(runs_function, capture(scratch, reads_slowly, 0))

static atomic_int ends;

/* Lets those wait who change the set of modules. */
static void *captures_slowly(void *unused) {
    char *own = malloc(DWUNW_SCRATCH_SIZE);
    dwunw_scratch *mine;
    CHECK_STATUS(dwunw_scratch_init(own, DWUNW_SCRATCH_SIZE, NULL, &mine), DWUNW_STATUS_OK);
    while (!ends)
        capture(mine, reads_slowly, 0);
    free(own);
    return unused;
}

static int descriptors(void) {
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;
    CHECK(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

static void cancel(void *(*does)(void *), dwunw_status expected) {
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        void *ended;
        int before = calls;
        CHECK(pthread_create(&thread, NULL, does, NULL) == 0);
        while (calls == before)
            usleep(100);
        usleep((useconds_t)round * 17);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &ended) == 0);
        CHECK(ended == PTHREAD_CANCELED);
        CHECK_STATUS(last, expected);
    }
}

/* A caller that may not be cancelled is so afterwards. */
static void keeps(int state) {
    int found;
    pthread_setcancelstate(state, NULL);
    CHECK_STATUS(change(0x20000000), DWUNW_STATUS_OK);
    CHECK_STATUS(stop_target(), whole);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &found);
    CHECK(found == state);
}

int main(void) {
    CHECK_STATUS(dwunw_init(NULL, &context), DWUNW_STATUS_OK);
    CHECK_STATUS(dwunw_scratch_init(memory, sizeof memory, NULL, &scratch), DWUNW_STATUS_OK);
    target = fork();
    if (target == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    CHECK(add_modules(context, target) >= 1);
    whole = stop_target();
    dwunw_status by_function = capture(scratch, reads_slowly, 0);
    int before = descriptors();
    alarm(LONGEST);

    pthread_t captures;
    CHECK(pthread_create(&captures, NULL, captures_slowly, NULL) == 0);
    cancel(changes, DWUNW_STATUS_OK);
    ends = 1;
    pthread_join(captures, NULL);
    cancel(changes, DWUNW_STATUS_OK);
    CHECK(descriptors() == before);
    cancel(stops, whole);
    cancel(runs_function, by_function);
    CHECK(descriptors() == before && reads > ROUNDS);

    CHECK_STATUS(capture(scratch, reads_slowly, 0), by_function);
    CHECK_STATUS(stop_target(), whole);
    keeps(PTHREAD_CANCEL_ENABLE);
    keeps(PTHREAD_CANCEL_DISABLE);
    int status;
    CHECK(kill(target, SIGKILL) == 0 && waitpid(target, &status, 0) == target && WIFSIGNALED(status));
    dwunw_shutdown(context);
    printf("%d threads were cancelled in %d calls, each after its call\n", 4 * ROUNDS, (int)calls);
    return 0;
}
