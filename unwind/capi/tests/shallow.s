# One function at 0x1000 of the file, whose frame has 0 bytes and the saved frame pointer.
    .text
    .globl here
    .type here, @function
here:
    .cfi_startproc
    push %rbp
    .cfi_adjust_cfa_offset 8
    .fill 64, 1, 0x90
    .cfi_endproc
    .size here, . - here
