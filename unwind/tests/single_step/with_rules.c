/* Functions with call frame information, which call those of `without_rules.c` and are called by them. */
#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

typedef int (*visitor)(int, void *);

int dark_leaf(int);
int dark_frame(int);
int dark_registers(int, visitor, void *);
int dark_large(int);
int dark_alloca(int);
int dark_recursion(int);
int dark_tail(int);
int dark_end(int);
int dark_visit(int, void *);
int dark_between(int, void *);
int dark_library(int);
int assembled(int, visitor, void *);
int unwritten(int, void *);

static volatile int sink;

NOINLINE int known_leaf(int n) {
    volatile int kept[4] = {n, n + 1, n + 2, n + 3};
    sink = kept[n & 3];
    return sink & 255;
}
NOINLINE int known_caller(int n, visitor visit, void *data) {
    int total = 0;
    for (int i = 0; i <= n; i++) total += visit(i, data);
    return total;
}
NOINLINE int known_printer(char *into, int n) { return snprintf(into, 100, "%d of %s: %x", n, "what is printed", n * 7); }
NOINLINE int known_visit(int n, void *data) {
    volatile int *total = data;
    *total += n;
    return dark_leaf(n) & 7;
}
/* By a jump to code without rules. */
NOINLINE int known_tail(int n) {
    sink = n;
    return dark_end(n);
}
/* Through a linkage table, and then by a jump through a register to what leaves the words of its frame as they are: the address that the call returned to is among them. */
NOINLINE int known_wrapper(int n, visitor next, void *data) {
    if (getppid() == 1 << 30) n++;
    return next(n, data);
}
/* With a frame pointer, which code below may leave as it is. */
NOINLINE int known_framed(int n) {
    char *room = alloca(n % 5 * 16 + 32);
    memset(room, n, 32);
    return dark_frame(n) + dark_registers(n, known_visit, &(int){room[1]}) + dark_tail(room[3]);
}
NOINLINE int known_deep(int n) { return n <= 0 ? dark_frame(n) + dark_end(n) : known_deep(n - 1) + (int)sink; }

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1, total = 0;
    for (int n = 0; n < 6 * rounds; n++) {
        total += dark_leaf(n) + dark_frame(n) + dark_alloca(n) + dark_tail(n) + known_tail(n);
        total += dark_registers(n, known_visit, &total) + dark_registers(n, dark_visit, &total);
        total += known_caller(3, dark_visit, &total) + known_caller(3, dark_between, &total);
        total += assembled(n, known_visit, &total) + assembled(n, dark_visit, &total);
        total += known_wrapper(n, unwritten, &total) + known_wrapper(n, dark_visit, &total);
        total += known_framed(n) + known_deep(5) + dark_recursion(3) + dark_large(n) + dark_library(n);
    }
    printf("%d\n", total);
    return 0;
}
