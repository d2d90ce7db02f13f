/* A process whose threads stand where stacks are interesting, for the tests of replay. It says "ready" and waits. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 4
static atomic_int standing;

__attribute__((noinline)) static int stand(int seed)
{
    atomic_fetch_add(&standing, 1);
    for (;;)
        pause();
    return seed;
}

static inline __attribute__((always_inline)) int innermost(int seed)
{
    return stand(seed + 1) + 1;
}

static inline __attribute__((always_inline)) int middle(int seed)
{
    return innermost(seed * 3) + 2;
}

__attribute__((noinline)) static int outer(int seed)
{
    int local[16];
    memset(local, seed, sizeof local);
    return middle(local[seed & 15]) + local[3];
}

__attribute__((noinline)) static int recurse(int depth)
{
    volatile char pad[48];
    pad[depth % 48] = (char)depth;
    if (depth == 0)
        return outer(7);
    return recurse(depth - 1) + pad[depth % 48];
}

static void *inlined(void *arg)
{
    return (void *)(long)(recurse(12) + (arg != NULL));
}

static int compare(const void *a, const void *b)
{
    static atomic_int calls;
    if (atomic_fetch_add(&calls, 1) == 20)
        stand(1);
    return *(const int *)a - *(const int *)b;
}

static void *sorting(void *arg)
{
    int numbers[64];
    for (int i = 0; i < 64; i++)
        numbers[i] = (i * 37) % 64;
    qsort(numbers, 64, sizeof *numbers, compare);
    return arg;
}

static void on_signal(int number)
{
    stand(number);
}

static char alternate[64 * 1024];

__attribute__((noinline)) static void interrupted(void)
{
    raise(SIGUSR1);
    __asm__ volatile("" ::: "memory");
}

static void *signalled(void *arg)
{
    stack_t stack = { .ss_sp = alternate, .ss_size = sizeof alternate };
    sigaltstack(&stack, NULL);
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };
    sigaction(SIGUSR1, &action, NULL);
    interrupted();
    return arg;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, inlined, NULL);
    pthread_create(&thread, NULL, sorting, NULL);
    pthread_create(&thread, NULL, signalled, NULL);
    while (atomic_load(&standing) < THREADS - 1)
        usleep(1000);
    puts("ready");
    fflush(stdout);
    return outer(3) & 1;
}
