# Functions every 64 bytes from 0x1000 of the file on, each with what ends a walk in its own way.
    .text
# Its frame lies askew.
    .cfi_startproc
    .cfi_def_cfa %rsp, 12
    .fill 64, 1, 0x90
    .cfi_endproc
# Its caller's frame lies below its own.
    .cfi_startproc
    .cfi_def_cfa %rsp, -64
    .fill 64, 1, 0x90
    .cfi_endproc
# Its frame hangs on a register that calls need not keep.
    .cfi_startproc
    .cfi_def_cfa %r10, 16
    .fill 64, 1, 0x90
    .cfi_endproc
# Its return address is what its caller's frame is at, which no function has.
    .cfi_startproc
    .cfi_val_offset %rip, -16
    .fill 64, 1, 0x90
    .cfi_endproc
# Nothing says anything of it, and it has pushed something.
dark:
    push %rbx
    .fill 63, 1, 0x90
# Two callers of it, and who called them.
first:
    .cfi_startproc
    .cfi_def_cfa_offset 16
    call dark
    .fill 59, 1, 0x90
    .cfi_endproc
second:
    .cfi_startproc
    .cfi_def_cfa_offset 16
    call dark
    .fill 59, 1, 0x90
    .cfi_endproc
    .cfi_startproc
    .cfi_undefined %rip
    call first
    call second
    .fill 54, 1, 0x90
    .cfi_endproc
