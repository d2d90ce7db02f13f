# A program whose line table defines files in its instructions: of the four that its rows and entries name, the header has the first, and of the
# fifth there is no row. VERSION is that of the line table and of the unit, 2 to 4.
.text
.globl outer
.type outer, @function
outer:
    nop
1:  nop
2:  nop
3:  ret
4:
.size outer, . - outer

.section .debug_abbrev, "", @progbits
.byte 1, 0x11, 1, 0x03, 0x08, 0x1b, 0x08, 0x10
.if VERSION < 4
.byte 0x06
.else
.byte 0x17
.endif
.byte 0x11, 0x01, 0x12, 0x01, 0, 0
.byte 2, 0x2e, 0, 0x03, 0x08, 0x3a, 0x0b, 0x3b, 0x0b, 0x20, 0x0b, 0, 0
.byte 3, 0x2e, 1, 0x03, 0x08, 0x3a, 0x0b, 0x3b, 0x0b, 0x11, 0x01, 0x12, 0x01, 0, 0
.byte 4, 0x1d, 0, 0x31, 0x13, 0x11, 0x01, 0x12, 0x01, 0x58, 0x0b, 0x59, 0x0b, 0, 0
.byte 0

.section .debug_info, "", @progbits
unit:
.4byte 6f - 5f
5:
.2byte VERSION
.4byte .debug_abbrev
.byte 8
.byte 1
.asciz "main.c"
.asciz "/build"
.4byte .debug_line
.8byte outer, 4b
# An inlined function that a defined file declares.
inner:
.byte 2
.asciz "inner"
.byte 2, 6, 1
.byte 3
.asciz "outer"
.byte 1, 2
.8byte outer, 4b
# Its call stands in another one.
.byte 4
.4byte inner - unit
.8byte 1b, 2b
.byte 4, 11
.byte 0
.byte 0
6:

.section .debug_line, "", @progbits
.4byte 9f - 7f
7:
.2byte VERSION
.4byte 8f - . - 4
.byte 1
.if VERSION >= 4
.byte 1
.endif
.byte 1, -5, 14, 13
.byte 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1
.asciz "include"
.byte 0
.asciz "main.c"
.byte 0, 0, 0
.byte 0
8:
.byte 0, 9, 2
.8byte outer
.byte 3, 2, 1
# made.h in directory 1
.byte 0, 11, 3
.asciz "made.h"
.byte 1, 0, 0
.byte 4, 2, 3, 4, 2, 1, 1
# A file with an absolute path, and one of the compilation directory
.byte 0, 17, 3
.asciz "/else/made.x"
.byte 0, 0, 0
.byte 0, 11, 3
.asciz "call.h"
.byte 0, 0, 0
.byte 4, 3, 3, 2, 2, 1, 1
.byte 0, 13, 3
.asciz "unused.h"
.byte 1, 0, 0
.byte 4, 1, 3, 0x7c, 2, 1, 1
.byte 2, 1
.byte 0, 1, 1
9:
