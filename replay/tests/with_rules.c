// The half of a program that has call frame information: it calls the other half, is called by it, and says where each call returns to.
#include <stdio.h>
#include <unistd.h>

void *told[8];
// Where an earlier call of the other half returned to.
void *earlier;

int without_rules(int kind);

__attribute__((noinline)) int waits(int kind) {
    told[0] = __builtin_return_address(0);
    if (kind == 0)
        return 1;
    for (int at = 0; at < 3; at++)
        printf("%p\n", told[at]);
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}

__attribute__((noinline)) int calls(int kind) {
    told[2] = __builtin_return_address(0);
    int found = without_rules(kind);
    __asm__ volatile("" : "+r"(found));
    return found + 1;
}

__attribute__((noinline)) int called_before(int kind) {
    int found = without_rules(kind);
    earlier = told[1];
    __asm__ volatile("" : "+r"(found));
    return found + 2;
}

int main(void) {
    int found = called_before(0);
    found += calls(1);
    return found;
}
