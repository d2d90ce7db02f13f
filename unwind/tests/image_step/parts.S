/* A function of Windows arm64 in parts, as Microsoft's compiler lays them out: each part has a record of its own, in which end_c (0xe5)
   stands before the codes of what other parts have done. The second part's epilog ends with it, and the third part goes on; the
   epilog of the sixth runs on into the seventh, with codes for all of it. An argument other than 0 takes the first way, else the second. */
    .text
    .globl in_parts
    .def in_parts
    .scl 2
    .type 32
    .endef
in_parts:
    stp x19, x20, [sp, #-96]!
    str x21, [sp, #16]
    str x30, [sp, #80]
    sub sp, sp, #16
    mov w19, w0
    mov w20, w1
    bl called_by_parts
    mov w21, w0
    cbz w20, part_4
part_1:
    stp x22, x23, [sp, #40]
    stp x24, x25, [sp, #56]
    stp x26, x27, [sp, #72]
    str x28, [sp, #88]
    mov x22, #22
    mov x23, #23
    mov x24, #24
    mov x25, #25
    mov x26, #26
    mov x27, #27
    mov x28, #28
    mov w0, w19
    bl called_by_parts
    add w21, w21, w0
    ldr x28, [sp, #88]
    ldp x26, x27, [sp, #72]
    ldp x24, x25, [sp, #56]
    ldp x22, x23, [sp, #40]
part_2:
    mov w0, w19
    bl called_by_parts
    add w0, w0, w21
    add sp, sp, #16
    ldr x30, [sp, #80]
    ldr x21, [sp, #16]
    ldp x19, x20, [sp], #96
    ret
part_3:
    stp x22, x23, [sp, #40]
    stp x24, x25, [sp, #56]
    stp x26, x27, [sp, #72]
    str x28, [sp, #88]
    mov x22, #32
    mov x28, #38
    b part_5
part_4:
    mov w0, w20
    b part_3
part_5:
    mov w21, w0
    ldr x28, [sp, #88]
    ldp x26, x27, [sp, #72]
    ldp x24, x25, [sp, #56]
    ldp x22, x23, [sp, #40]
part_6:
    mov w0, w21
    bl called_by_parts
    mov w21, w0
    b part_2
end_of_parts:

/* Words of a record: the length in instructions, how many epilogs (or with bit 21 the one epilog's code), how many words of codes. */
#define RECORD(begin, end, epilogs, words) .long (end - begin) / 4 | (epilogs) << 22 | (words) << 27
#define IS_SINGLE 1 << 21
#define SCOPE(instruction, code) .long (instruction) | (code) << 22
/* sub sp; str x30; str x21; stp x19, x20; end. Then str x28 and three pairs. */
#define OUTER 0x01, 0xd2, 0xca, 0xd0, 0x82, 0x2c, 0xe4
#define INNER 0xd2, 0x4b, 0xc9, 0xc9, 0xc9, 0x47, 0xc8, 0xc5
#define END_OF_PART 0xe5
#define NOP 0xe3

    .section .xdata, "dr"
    .p2align 2
record_0:
    RECORD(in_parts, part_1, 0, 2)
    .byte OUTER, NOP
record_1:
    RECORD(part_1, part_2, 1, 4)
    SCOPE(14, 0)
    .byte INNER, END_OF_PART, OUTER
record_2:
    RECORD(part_2, part_3, 1, 2) | IS_SINGLE
    .byte END_OF_PART, OUTER
record_3:
    RECORD(part_3, part_4, 0, 4)
    .byte INNER, END_OF_PART, OUTER
record_4:
    RECORD(part_4, part_5, 0, 2)
    .byte END_OF_PART, OUTER
record_5:
    RECORD(part_5, part_6, 1, 4)
    SCOPE(1, 1)
    .byte END_OF_PART, INNER, OUTER
record_6:
    RECORD(part_6, end_of_parts, 0, 2)
    .byte END_OF_PART, OUTER

    .section .pdata, "dr"
    .p2align 2
    .rva in_parts, record_0, part_1, record_1, part_2, record_2, part_3, record_3
    .rva part_4, record_4, part_5, record_5, part_6, record_6
