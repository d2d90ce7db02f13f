// The half of a program that has neither call frame information nor frame pointers.
int waits(int kind);

extern void *told[8];
extern void *earlier;

int without_rules(int kind) {
    void *volatile words[12] = {0};
    told[1] = __builtin_return_address(0);
#ifdef AMBIGUOUS
    // Left there as by a call that has returned.
    words[3] = earlier;
#endif
    int found = waits(kind);
    // A way that is never taken, and by which the function does not end as functions do: else it would be followed, and have rules.
    __asm__ volatile("test %%esp, %%esp\n\tjnz 1f\n\tpush %%rax\n\tret\n1:" ::: "cc");
    return found + (words[kind] != 0);
}
