// Functions written by hand: no call frame information, and the frame pointer is left to their callers, or made and left to who they call. The program
// stands still in one, or below a call through a null pointer that one makes, and says where the calls above return to.
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
        // Never taken. A function that ends so is not followed, and has no rules.
        "jnz 1f\n"
        "call *%rax\n"
        "add $24, %rsp\n"
        "ret\n"
        "1: push %rax\n"
        "ret\n"
        ".size calls_null, .-calls_null\n"
        ".type pushes, @function\n"
        "pushes: push %rbx\n"
        "push %r12\n"
        "push %r13\n"
        "again: pause\n"
        "jmp again\n"
        ".size pushes, .-pushes\n"
        ".type makes_record, @function\n"
        "makes_record: push %rbp\n"
        "mov %rsp, %rbp\n"
        // Nothing that earlier calls left.
        "push $0\n"
        "push $0\n"
        "call pushes\n"
        "leave\n"
        "ret\n"
        ".size makes_record, .-makes_record\n"
        // Through a pointer, to what has not moved the stack pointer.
        ".type makes_another, @function\n"
        "makes_another: push %rbp\n"
        "mov %rsp, %rbp\n"
        "sub $32, %rsp\n"
        "lea spins(%rip), %rax\n"
        "call *%rax\n"
        "leave\n"
        "ret\n"
        ".size makes_another, .-makes_another\n");
void spins(void);
void makes_record(void);
void makes_another(void);
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
#ifdef BELOW
    BELOW();
#else
    spins();
#endif
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
