# Assembly as it is written without a thought of unwinders: no call frame information.
    .text
    .globl assembled
    .type assembled, @function
    # int assembled(int n, int (*visit)(int, void *), void *data)
assembled:
    push %rbx
    push %r12
    push %r13
    mov %edi, %ebx
    mov %rsi, %r12
    mov %rdx, %r13
    sub $160, %rsp
    mov %ebx, %edi
    mov %r13, %rsi
    call *%r12
    mov %eax, 24(%rsp)
    mov %ebx, %edi
    call known_leaf@PLT
    add 24(%rsp), %eax
    mov %ebx, %edi
    call inner
    add $160, %rsp
    pop %r13
    pop %r12
    pop %rbx
    ret
    .size assembled, .-assembled

    .type inner, @function
inner:
    sub $24, %rsp
    mov %eax, 8(%rsp)
    call known_leaf@PLT
    add 8(%rsp), %eax
    add $24, %rsp
    ret
    .size inner, .-inner
    .globl unwritten
    .type unwritten, @function
    # int unwritten(int n, void *data)
unwritten:
    sub $96, %rsp
    mov %edi, %eax
    add $1, %eax
    mov %eax, (%rsp)
    mov (%rsp), %eax
    add $96, %rsp
    ret
    .size unwritten, .-unwritten
    .section .note.GNU-stack, "", @progbits
