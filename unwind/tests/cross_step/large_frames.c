/* Frames of sizes beyond those that an offset of a few bits reaches, alone and below frames of unknown size. */
#include <alloca.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile int sink;

NOINLINE static int touch(volatile char *room, int size) {
    room[0] = 1;
    room[size - 1] = 2;
    return room[size / 2] = 3;
}

/* Registers that calls keep hold values over both calls. */
#define FRAME(name, size)                                                      \
    NOINLINE static int name(int a, int b, int c, int d, int e, int f) {       \
        volatile char room[size];                                              \
        int first = touch(room, size);                                         \
        int second = touch(room + first, size - 8);                            \
        return a + b * first + c * second + d * 3 + e * 5 + f * 7 + room[0];   \
    }

FRAME(of_12_kib, 12 << 10)
FRAME(of_20_kib, 20 << 10)
FRAME(of_40_kib, 40 << 10)
FRAME(of_70_kib, 70 << 10)
FRAME(of_600_kb, 600000)

NOINLINE static int of_unknown_size(int n, int (*next)(int, int, int, int, int, int)) {
    volatile char *room = alloca((unsigned)n * 16);
    int found = touch(room, n * 16) + next(n, 1, 2, 3, 4, 5);
    return found + touch(room, n * 16);
}

/* Its own frame is large, and so is what it calls. */
NOINLINE static int of_both(int n, int (*next)(int, int, int, int, int, int)) {
    volatile char room[50000];
    int found = touch(room, sizeof room) + of_unknown_size(n, next);
    return found + touch(room, sizeof room);
}

int main(void) {
    int (*const frames[])(int, int, int, int, int, int) = {of_12_kib, of_20_kib, of_40_kib, of_70_kib, of_600_kb};
    for (unsigned at = 0; at < sizeof frames / sizeof *frames; at++) {
        sink = frames[at](1, 2, 3, 4, 5, 6);
        sink = of_unknown_size(5, frames[at]);
        sink = of_both(3, frames[at]);
    }
    return 0;
}
