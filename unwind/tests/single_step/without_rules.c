/* Compiled without call frame information and without frame pointers: functions of which nothing is known, between those of `with_rules.c`
   that have it. What earlier calls left behind lies in their frames on purpose. */
#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone))

typedef int (*visitor)(int, void *);

int known_leaf(int);
int known_caller(int, visitor, void *);
int known_printer(char *, int);
int assembled(int, visitor, void *);

static volatile int sink;

/* A leaf, and one with a frame that nobody has written to. */
NOINLINE int dark_leaf(int n) { return n * 3 + sink; }
NOINLINE int dark_frame(int n) {
    volatile int room[40];
    for (int i = 0; i < n % 7; i++) room[i] = n + i;
    sink = room[n % 40 ? 0 : 1];
    return known_leaf(n);
}

/* Registers that calls keep, saved without anybody knowing. */
NOINLINE int dark_registers(int n, visitor visit, void *data) {
    int a = visit(n, data), b = visit(n + 1, data), c = visit(n + 2, data), d = visit(n + 3, data);
    return a * b + c * d + visit(a, data) * n;
}

/* Large and of unknown size. */
NOINLINE int dark_large(int n) {
    char room[3000];
    memset(room, n, sizeof room / 2);
    return known_leaf(room[n % 1000]) + known_printer(room, n);
}
NOINLINE int dark_alloca(int n) {
    char *room = alloca(16 * (n % 9) + 8);
    room[0] = (char)n;
    return known_leaf(room[0]);
}

/* Below itself. */
NOINLINE int dark_recursion(int n) {
    volatile int kept = n;
    return n <= 0 ? known_leaf(kept) : dark_recursion(n - 1) + kept;
}

/* By a jump: from here to code with rules, and further. */
NOINLINE int dark_tail(int n) { return known_leaf(n + 1); }
NOINLINE int dark_end(int n) {
    volatile int kept[6] = {n, n, n, n, n, n};
    return known_leaf(kept[n & 3]) + kept[4];
}

/* Through a pointer, up and down. */
NOINLINE int dark_visit(int n, void *data) {
    volatile int *total = data;
    *total += dark_leaf(n);
    return known_leaf(*total & 15);
}
NOINLINE int dark_between(int n, void *data) { return known_caller(n & 3, dark_visit, data) + assembled(n, dark_visit, data); }

/* In the C library. */
NOINLINE int dark_order(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
NOINLINE int dark_library(int n) {
    int numbers[12];
    char text[64];
    for (int i = 0; i < 12; i++) numbers[i] = i * n % 13;
    qsort(numbers, 12, sizeof *numbers, dark_order);
    return snprintf(text, sizeof text, "%d %s %g", numbers[3], "text", n / 3.0) + numbers[0];
}
