# Functions as they are written by hand, without a word of call frame information: they are told by their calls alone, as the program is stripped. (x86inc.asm of x264, x265 and
# dav1d; GMP's and nettle's assembler; libjpeg-turbo's collect_args)
        .text

# The words that each function adds up are its caller's.
        .p2align 4
        .globl  hand_pushes
hand_pushes:
        push    %rbx
        push    %rbp
        push    %r12
        mov     %rdi, %rbx
        lea     3(%rdi), %rbp
        lea     (%rbx,%rbp), %r12
        mov     %r12, %rax
        pop     %r12
        pop     %rbp
        pop     %rbx
        ret

# The old stack pointer on the new stack, which is aligned.
        .p2align 4
        .globl  hand_aligned
hand_aligned:
        push    %rbx
        mov     %rsp, %rbx
        and     $-64, %rsp
        sub     $320, %rsp
        mov     %rbx, 256(%rsp)
        movdqa  %xmm0, (%rsp)
        mov     %rdi, %rbx
        call    hand_local
        lea     (%rax,%rbx), %rax
        mov     256(%rsp), %rsp
        pop     %rbx
        ret

# The same by a register that calls need not keep, and one that is no whole word away.
        .p2align 4
        .globl  hand_collects
hand_collects:
        push    %rbp
        mov     %rsp, %rax
        sub     $4, %rsp
        and     $-32, %rsp
        mov     %rax, (%rsp)
        mov     %rsp, %rbp
        lea     -96(%rbp), %rsp
        push    %r13
        mov     %rdi, %r13
        movdqa  %xmm0, -32(%rbp)
        mov     %r13, %rax
        pop     %r13
        mov     %rbp, %rsp
        pop     %rsp
        pop     %rbp
        ret

        .p2align 4
        .globl  hand_leaves
hand_leaves:
        push    %rbp
        mov     %rsp, %rbp
        push    %rbx
        and     $-32, %rsp
        sub     $64, %rsp
        mov     %rdi, %rbx
        mov     %rbx, 8(%rsp)
        mov     8(%rsp), %rax
        mov     -8(%rbp), %rbx
        leave
        ret

# A frame by lea, which changes no flags; a frame that no word divides; the red zone.
        .p2align 4
        .globl  hand_lea
hand_lea:
        lea     -40(%rsp), %rsp
        mov     %rbx, 32(%rsp)
        mov     %rdi, %rbx
        test    %rdi, %rdi
        jz      1f
        lea     (%rbx,%rbx), %rax
        jmp     2f
1:      xor     %eax, %eax
2:      mov     32(%rsp), %rbx
        lea     40(%rsp), %rsp
        ret

        .p2align 4
        .globl  hand_odd
hand_odd:
        sub     $12, %rsp
        mov     %edi, (%rsp)
        mov     (%rsp), %eax
        add     $12, %rsp
        ret

        .p2align 4
        .globl  hand_red_zone
hand_red_zone:
        mov     %r14, -8(%rsp)
        mov     %rbp, -16(%rsp)
        lea     5(%rdi), %r14
        mov     %rdi, %rbp
        lea     (%r14,%rbp), %rax
        mov     -16(%rsp), %rbp
        mov     -8(%rsp), %r14
        ret

# A helper that takes a word on the stack, and one that keeps nothing.
        .p2align 4
        .globl  hand_passes
hand_passes:
        push    %rbx
        push    %r15
        push    %rdi
        call    hand_taking
        add     $8, %rsp
        mov     %rax, %rdi
        call    hand_clobbers
        mov     %r15, %rax
        pop     %r15
        pop     %rbx
        ret
hand_taking:
        mov     8(%rsp), %rax
        ret
hand_clobbers:
        lea     1(%rdi), %rbx
        lea     (%rbx,%rbx), %r15
        ret

# What goes on in another one's body, with a frame as that has made it.
        .p2align 4
        .globl  hand_enters
hand_enters:
        push    %r12
        push    %r13
        lea     7(%rdi), %r12
        jmp     hand_shared
        .p2align 4
        .globl  hand_body
hand_body:
        push    %r12
        push    %r13
        mov     %rdi, %r12
hand_shared:
        mov     %r12, %r13
        lea     (%r12,%r13), %rax
        pop     %r13
        pop     %r12
        ret

        .p2align 4
        .globl  hand_tail
hand_tail:
        push    %rbx
        mov     %rdi, %rbx
        add     %rbx, %rdi
        pop     %rbx
        jmp     hand_body

# Jumps by a table, with a frame, and by an address of its own.
        .p2align 4
        .globl  hand_table
hand_table:
        push    %rbp
        push    %rbx
        mov     %rdi, %rbx
        and     $3, %edi
        lea     hand_places(%rip), %rbp
        movslq  (%rbp,%rdi,4), %rdi
        add     %rbp, %rdi
        xor     %eax, %eax
        jmp     *%rdi
        .p2align 4
3:      add     %rbx, %rax
4:      push    %rax
        add     %rbx, %rax
        pop     %rcx
5:      add     %rcx, %rax
6:      lea     7f(%rip), %r8
        jmp     *%r8
        .p2align 4
7:      pop     %rbx
        pop     %rbp
        ret

        .p2align 4
hand_local:
        mov     %rdi, %rax
        ret

# Functions to which addresses alone lead.
        .p2align 4
hand_pointed:
        push    %r14
        lea     (%rdi,%rdi), %r14
        mov     %r14, %rax
        pop     %r14
        ret

        .section .rodata
        .p2align 2
hand_places:
        .long   3b-hand_places, 4b-hand_places, 5b-hand_places, 6b-hand_places

        .section .data.rel.ro, "aw"
        .p2align 3
        .globl  hand_pointer
hand_pointer:
        .quad   hand_pointed
        .section .note.GNU-stack, "", @progbits
