# One function at 0x1000 of the file, whose frame has 32 bytes and the saved frame pointer.
    .text
    .globl here
    .type here, @function
here:
    .cfi_startproc
    push %rbp
    .cfi_adjust_cfa_offset 8
    sub $32, %rsp
    .cfi_adjust_cfa_offset 32
    .fill 64, 1, 0x90
    .cfi_endproc
    .size here, . - here
