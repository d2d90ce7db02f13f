// Functions written by hand: no call frame information, and the frame pointer is left to their callers. The program stands still in one, or below
// a call through a null pointer that one makes, and says where the calls above return to.
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

__asm__(".text\n"
        ".type spins, @function\n"
        "spins: pause\n"
        "jmp spins\n"
        ".size spins, .-spins\n"
        ".type calls_null, @function\n"
        "calls_null: sub $24, %rsp\n"
        "xor %eax, %eax\n"
        "call *%rax\n"
        "add $24, %rsp\n"
        "ret\n"
        ".size calls_null, .-calls_null\n");
void spins(void);
void calls_null(void);

static void says_ready(int signal) {
    (void)signal;
    puts("ready");
    fflush(stdout);
#ifdef NULL_CALL
    for (;;)
        pause();
#endif
}

// Its frame pointer is what the functions above find in the register.
__attribute__((noinline)) int calls(void) {
    printf("%p\n", __builtin_return_address(0));
#ifdef NULL_CALL
    calls_null();
#else
    says_ready(0);
    spins();
#endif
    return 1;
}

__attribute__((noinline)) int outer(void) {
    printf("%p\n", __builtin_return_address(0));
    return calls() + 1;
}

int main(void) {
#ifdef NULL_CALL
    signal(SIGSEGV, says_ready);
#endif
    return outer() + 1;
}
