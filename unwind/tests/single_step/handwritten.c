/* What the single-step test walks through of functions written by hand: those of handwritten.S, and with -DLIBRARY those of GMP on numbers of all sizes. */
#ifdef LIBRARY
#include <dlfcn.h>

/* As GMP's interface has it. */
typedef struct { int allocated, size; unsigned long *limbs; } Number;

int main(void) {
    void *library = dlopen("libgmp.so.10", RTLD_NOW);
    if (!library) return 77;
    void (*set)(Number *, unsigned long) = dlsym(library, "__gmpz_init_set_ui");
    void (*power)(Number *, const Number *, unsigned long) = dlsym(library, "__gmpz_pow_ui");
    void (*multiply)(Number *, const Number *, const Number *) = dlsym(library, "__gmpz_mul");
    void (*subtract)(Number *, const Number *, const Number *) = dlsym(library, "__gmpz_sub");
    void (*divide)(Number *, const Number *, const Number *) = dlsym(library, "__gmpz_tdiv_q");
    void (*gcd)(Number *, const Number *, const Number *) = dlsym(library, "__gmpz_gcd");
    void (*root)(Number *, const Number *) = dlsym(library, "__gmpz_sqrt");
    int (*compare)(const Number *, const Number *) = dlsym(library, "__gmpz_cmp");
    if (!set || !power || !multiply || !subtract || !divide || !gcd || !root || !compare) return 3;
    Number one, two, three;
    set(&one, 7), set(&two, 11), set(&three, 1);
    for (unsigned long size = 3; size < 300; size = size * 2 + 1) {
        power(&one, &one, 3), power(&two, &two, 2);
        multiply(&three, &one, &two), divide(&three, &three, &two);
        if (compare(&three, &one)) return 4;
        subtract(&three, &one, &two), gcd(&three, &three, &one), multiply(&three, &one, &one), root(&three, &three);
        if (compare(&three, &one)) return 5;
    }
    return 0;
}
#else
typedef unsigned long Function(unsigned long);
extern Function hand_pushes, hand_aligned, hand_collects, hand_leaves, hand_lea, hand_odd, hand_red_zone, hand_passes, hand_enters, hand_body, hand_tail, hand_table;
extern Function *const hand_pointer;

int main(void) {
    unsigned long sum = 0;
    for (unsigned long at = 0; at < 6; at++) {
        sum += hand_pushes(at) + hand_aligned(at) + hand_collects(at) + hand_leaves(at) + hand_lea(at) + hand_odd(at);
        sum += hand_red_zone(at) + hand_passes(at) + hand_enters(at) + hand_body(at) + hand_tail(at) + hand_table(at) + hand_pointer(at);
    }
    return sum != 526;
}
#endif
