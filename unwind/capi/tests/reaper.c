/* Another thread waits for any child meanwhile, as supervisors do, and is given stops of the target: captures go on, and so does the target. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "maps.h"

enum { MAX_FRAMES = 32, CAPTURES = 500, LONGEST = 20 };

static atomic_long taken;

static void *reaps(void *unused) {
    for (int status;;)
        if (waitpid(-1, &status, 0) > 0 && WIFSTOPPED(status))
            taken++;
        else
            usleep(1000);
    return unused;
}

int main(void) {
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile long round = 0;; round++) {
        }
    }
    static char memory[DWUNW_SCRATCH_SIZE];
    dwunw_context *context;
    dwunw_scratch *scratch;
    CHECK_STATUS(dwunw_init(NULL, &context), DWUNW_STATUS_OK);
    CHECK_STATUS(dwunw_scratch_init(memory, sizeof memory, NULL, &scratch), DWUNW_STATUS_OK);
    CHECK(add_modules(context, child) >= 2);
    pthread_t reaper;
    CHECK(pthread_create(&reaper, NULL, reaps, NULL) == 0);
    alarm(LONGEST);
    /* Until some stops went to the other thread, and on. */
    for (int round = 0; round < CAPTURES || taken < 10; round++) {
        dwunw_frame frames[MAX_FRAMES];
        dwunw_capture_request request = {.struct_size = sizeof request, .flags = DWUNW_CAPTURE_READ_TARGET | DWUNW_CAPTURE_STOP_TARGET,
                                         .pid = child, .frames = frames, .frame_size = sizeof frames[0], .max_frames = MAX_FRAMES, .scratch = scratch};
        dwunw_capture_result result = {.struct_size = sizeof result};
        CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_OK);
        CHECK(result.written >= 4);
    }
    printf("captures go on, whoever is given the stops\n");
    kill(child, SIGKILL);
    return 0;
}
