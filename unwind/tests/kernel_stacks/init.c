#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long counted;
static int pipes[2];

__attribute__((noinline)) static void touches(char *at, long bytes) {
    for (long i = 0; i < bytes; i += 4096) at[i] = (char)i;
}
__attribute__((noinline)) static void faults(void) {
    char *at = mmap(0, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    touches(at, 1 << 18);
    munmap(at, 1 << 18);
}
__attribute__((noinline)) static void calls(void) {
    char text[64];
    if (write(pipes[1], "word", 4) != 4 || read(pipes[0], text, 4) != 4) _exit(1);
    struct stat found;
    stat("/proc/self/stat", &found);
    int file = open("/proc/self/stat", O_RDONLY);
    if (read(file, text, sizeof text) < 0) _exit(2);
    close(file);
}
__attribute__((noinline)) static void spins(int times) {
    for (int i = 0; i < times; i++) counted += i * counted;
}
__attribute__((noinline)) static void sleeps(void) {
    struct timespec time = {0, 5000000};
    nanosleep(&time, 0);
}
static void handles(int number) { (void)number; counted++; }
__attribute__((noinline)) static void forks(void) {
    int child = fork();
    if (child == 0) _exit(0);
    waitpid(child, 0, 0);
}
__attribute__((noinline)) static void round_of(void) {
    calls();
    faults();
    spins(3000);
    sleeps();
    forks();
}
int main(void) {
    mkdir("/proc", 0755);
    mount("proc", "/proc", "proc", 0, "");
    mkdir("/dev", 0755);
    mount("dev", "/dev", "devtmpfs", 0, "");
    if (pipe(pipes)) return 1;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handles;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, 0);
    struct itimerval timer = {{2, 0}, {2, 0}};
    setitimer(ITIMER_REAL, &timer, 0);
    printf("READY\n");
    fflush(stdout);
    for (;;) round_of();
}
