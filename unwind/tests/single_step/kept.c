// Assembler code in the manner of OpenSSL's: a function whose CFA is in rax, which its own helpers keep, and calls need not.

long outer(long n);

__asm__(".text\n"
        ".globl outer\n"
        ".type outer, @function\n"
        "outer:\n"
        "    .cfi_startproc\n"
        "    leaq (%rsp), %rax\n"
        "    .cfi_def_cfa_register %rax\n"
        "    pushq %rbx\n"
        "    .cfi_offset %rbx, -16\n"
        "    subq $200, %rsp\n"
        "    andq $-64, %rsp\n"
        "    movq %rdi, %rbx\n"
        "    call helper\n"
        "    addq %rbx, %rdi\n"
        "    call helper\n"
        "    movq -8(%rax), %rbx\n"
        "    .cfi_restore %rbx\n"
        "    leaq (%rax), %rsp\n"
        "    .cfi_def_cfa_register %rsp\n"
        "    movq %rdi, %rax\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size outer, .-outer\n"
        ".type helper, @function\n"
        "helper:\n"
        "    .cfi_startproc\n"
        "    subq $24, %rsp\n"
        "    .cfi_adjust_cfa_offset 24\n"
        "    imulq $3, %rdi, %rdi\n"
        "    call innermost\n"
        "    addq $24, %rsp\n"
        "    .cfi_adjust_cfa_offset -24\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size helper, .-helper\n"
        ".type innermost, @function\n"
        "innermost:\n"
        "    .cfi_startproc\n"
        "    xorq $5, %rdi\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size innermost, .-innermost\n");

int main(int count, char **names) {
    long sum = count;
    for (int round = 0; round < 200; round++) {
        sum = outer(sum) & 0xffff;
    }
    return names[0][0] == sum;
}
