#!/usr/bin/env python3
"""Makes the seeds of the target `uwt_compile` for 32-bit ARM's index table and for Go's table of functions again, and those of `uwt_walk` for what a
table says of Go's runtime, of tasks and of coroutines, for rules that count from their base, and for the other processors: small ones by hand, laid out as the targets take their bytes apart.

    fuzz/unwind_seeds.py
"""
import pathlib
import struct
import zlib

CORPUS = pathlib.Path(__file__).parent / "corpus" / "uwt_compile"
WALKS = CORPUS.parent / "uwt_walk"
# The first byte: another one says which processor, and none of the sections that other bits stand for.
CHOOSES = 0x80
X86_64, AARCH64, ARM = 0, 1, 6
# Where the target puts its bytes: code at the one, the second half as the index table, the first half as what that leads to.
CODE, INDEX, LOADED = 0x1000, 0x8000, 0x1_0000


def prel31(place, to):
    return (to - place) & 0x7FFFFFFF


def exidx(code, descriptions, tables=b""):
    """A function at every 32 bytes of `code`; `descriptions` give its word, or where in `tables` its entry is."""
    front = code.ljust(32 * len(descriptions), b"\0")
    tables_at = LOADED + len(front)
    front += tables
    index = b""
    for number, (kind, value) in enumerate(descriptions):
        place = INDEX + len(index)
        second = value if kind == "word" else prel31(place + 4, tables_at + value)
        index += struct.pack("<2I", prel31(place, CODE + 32 * number), second)
    half = max(len(front), len(index))
    # The last function again, where the table is longer.
    index += index[-8:] * ((half - len(index)) // 8)
    return bytes([CHOOSES, ARM]) + front.ljust(len(index), b"\0") + index


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def distances(steps, quantum):
    """Runs of bytes of code and how far the stack pointer has moved in each."""
    out, known = b"", -1
    for length, value in steps:
        change = value - known
        out += varint((change << 1 ^ change >> 63) & 0xFFFFFFFF) + varint(length // quantum)
        known = value
    return out + b"\0"


def go(magic, processor, steps, functions, text, code=b"", skipped=0):
    """`functions` of 32 bytes each, whose frames are as `steps` say; `text` is what the header says of where they begin. The target takes the table for
    the code too; `code` of each function is put behind the table, or `skipped` bytes further on."""
    quantum = 1 if processor == X86_64 else 4
    has_text = magic != 0xFFFFFFFA
    size, number = (4, "<I") if has_text else (8, "<Q")
    header = 8 + 8 * (8 if has_text else 7)
    tables = b"\0" + distances(steps, quantum)
    names = b"runtime.systemstack\0main.main\0"
    index = (header + len(names) + len(tables) + 7) // 8 * 8
    fields = [functions, 0] + ([text] if has_text else []) + [header, 0, 0, header + len(names), index]
    out = struct.pack("<I4B", magic, 0, 0, quantum, 8) + b"".join(struct.pack("<Q", field) for field in fields)
    out = (out + names + tables).ljust(index, b"\0")
    base = 0 if has_text else text
    records = (2 * functions + 1) * size
    record = b""
    for at in range(functions):
        out += struct.pack(number, base + 32 * at) + struct.pack(number, records + len(record))
        record += struct.pack(number, base + 32 * at) + struct.pack("<8I", 0 if at == 0 else 20, 0, 0, 1, 0, 0, 0, 0)
        record += struct.pack("<I", 1) if magic == 0xFFFFFFF1 else b""
        # A function's id, and for the first one the flag of the first of its stack.
        record += bytes([0, at == 0, 0, 0])
    out += struct.pack(number, base + 32 * functions) + record
    if code:
        out = out.ljust((len(out) + 15) // 16 * 16, b"\0") + bytes(skipped) + code.ljust(32, b"\xcc") * functions
    return bytes([CHOOSES, processor]) + out


def with_section(table, kind, content):
    """A table with one more section at its end, or another one in the place of that of its kind (docs/formats/uwt.md)."""
    (sections,) = struct.unpack_from("<I", table, 12)
    entries = [list(struct.unpack_from("<IIQQ", table, 96 + 24 * at)) for at in range(sections)]
    parts = [(entry[0], table[entry[2]:entry[2] + entry[3]]) for entry in entries]
    known = [number for number, _ in parts]
    parts = [(number, content if number == kind else part) for number, part in parts] + [(kind, content)] * (kind not in known)
    at = 96 + 24 * len(parts)
    directory, body = b"", b""
    for number, part in parts:
        body = body.ljust((len(body) + 7) // 8 * 8, b"\0")
        directory += struct.pack("<IIQQ", number, zlib.crc32(part), at + len(body), len(part))
        body += part
    header = bytearray(table[:96])
    struct.pack_into("<IIQ", header, 8, 0, len(parts), at + len(body))
    struct.pack_into("<I", header, 8, zlib.crc32(bytes(header) + directory))
    return bytes(header) + directory + body


def plain_walk(kind, section):
    """The seed of plain rules with one section more, or another one."""
    seed = (WALKS / "sp").read_bytes()
    at = seed.index(b"UWT1")
    return seed[:at] + with_section(seed[at:-2], kind, section) + seed[-2:]


def go_walk():
    """The seed of plain rules, with a runtime of Go of which all of the code is a function that changes stacks, and then one that calls C."""
    seed = (WALKS / "sp").read_bytes()
    start, end = struct.unpack_from("<2Q", seed, seed.index(b"UWT1") + 32)
    half = (end - start) // 2
    section = struct.pack("<8I", 0, 8, 0x30, 0x38, 0x40, 0x60, 0xB8, 1) + struct.pack("<4I", 0, half, half, end - start - half)
    return plain_walk(12, section)


def base_walk():
    """The seed of plain rules with what they have in memory counted from where their base register points."""
    seed = (WALKS / "sp").read_bytes()
    at = seed.index(b"UWT1")
    table = seed[at:-2]
    (sections,) = struct.unpack_from("<I", table, 12)
    entries = (struct.unpack_from("<IIQQ", table, 96 + 24 * section) for section in range(sections))
    (rules,) = (table[offset:offset + size] for kind, _, offset, size in entries if kind == 6)
    words = [word | (1 << 5 if word & 15 in (2, 3, 4) and not word >> 6 & 1 else 0) for (word,) in struct.iter_unpack("<Q", rules)]
    return plain_walk(6, struct.pack(f"<{len(words)}Q", *words))


# The seeds whose rules mean something on every processor, and the processors by their numbers (docs/formats/uwt.md).
PLAIN = ("sp", "fp", "register", "deref", "program", "signal")
PROCESSORS = {2: "aarch64", 3: "mips", 4: "mipsel", 5: "i686", 6: "riscv64", 7: "arm"}


def other_walks():
    """The same for each other processor: the target writes its number over that of the table, and makes the header good."""
    for number, processor in PROCESSORS.items():
        for name in PLAIN:
            seed = (WALKS / name).read_bytes()
            yield f"{processor}_{name}", bytes([0x80 | number << 4 | seed[0] & 3]) + seed[1:]


def tasks_walk():
    """All of the code polls a task, whose header is as tokio's: state, queue, vtable, owner; its waker lies behind the vtable's own word."""
    fields = struct.pack("<Q6I", 0x40, 0, 16, 0, 24, 8, 16)
    return plain_walk(14, fields + struct.pack("<3I", 0x1000, 0x40, 2 << 1 | 1) + struct.pack("<3I", 0x1040, 0x40, 2 << 1))


def coroutines_walk():
    """One coroutine with a handle at 32, a function that resumes it, one that destroys it, and a program that says where its frame is."""
    functions = struct.pack("<3I", 0x1000, 0x40, 1) + struct.pack("<3I", 0x1040, 0x40, 2)
    # The word at the CFA less 16.
    program = bytes([1, 16, 2]) + struct.pack("<q", -16) + bytes([3, 8, 0])
    fields = struct.pack("<4I", 1, 2, 1, 0) + struct.pack("<4I", 24, 32, 0, 0)
    return plain_walk(15, fields + functions + struct.pack("<3I", 0x1000, 0x40, 0) + program)


def walks():
    yield "go", go_walk()
    yield "base", base_walk()
    yield "tasks", tasks_walk()
    yield "coroutines", coroutines_walk()
    yield from other_walks()


def seeds():
    # push {r4, lr}; sub sp, #8; bl .+4; add sp, #8; pop {r4, pc} of Thumb; the same in ARM.
    thumb = bytes.fromhex("10b582b000f000f802b010bd").ljust(32, b"\0")
    arm = struct.pack("<5I", 0xE92D4010, 0xE24DD008, 0xEBFFFFFF, 0xE28DD008, 0xE8BD8010).ljust(32, b"\0")
    # vsp += 8, pop {r4, lr}, finish; no frame at all; refuse.
    yield "arm_exidx_inline", exidx(thumb + arm + thumb, [("word", 0x8001A8B0), ("word", 0x80B0B0B0), ("word", 1)])
    # Long forms of the tables: personality 1 with two more words, 0, and a routine of the program's own.
    long = struct.pack("<3I", 0x81020184, 0x0FB20102, 0xB0B0B0B0)
    short = struct.pack("<I", 0x8002A9B0)
    own = struct.pack("<2I", prel31(LOADED + 3 * 32 + len(long) + len(short), CODE), 0x00A8B0B0)
    yield "arm_exidx_tables", exidx(thumb + arm + thumb, [("at", 0), ("at", len(long)), ("at", len(long) + len(short))], long + short + own)
    # The stack pointer from r7 and r11, floating point registers, masks of registers, a refused mask.
    yield "arm_exidx_operations", exidx(
        thumb + arm + thumb + arm,
        [("word", 0x8097A8B0), ("word", 0x809B84C0), ("word", 0x80B10FB9), ("word", 0x808000C9)],
    )
    framed = [(1, 0), (28, 8), (3, 0)]
    for name, magic in (("116", 0xFFFFFFFA), ("118", 0xFFFFFFF0), ("120", 0xFFFFFFF1)):
        yield f"go_{name}", go(magic, X86_64, framed, 3, CODE)
    yield "go_arm64", go(0xFFFFFFF1, AARCH64, [(4, 0), (24, 32), (4, 0)], 3, CODE)
    # Where code begins is shown by the code: push %rbp; …; pop %rbp; ret, and str x30, [sp, #-32]!; …; ldr x30, [sp], #32; ret.
    code = bytes.fromhex("554889e5").ljust(29, b"\x90") + bytes.fromhex("5dc390")
    yield "go_placed", go(0xFFFFFFF1, X86_64, [(1, 0), (29, 8), (2, 0)], 5, 0, code, 64)
    code = struct.pack("<8I", 0xF81E0FFE, *[0xD503201F] * 5, 0xF84207FE, 0xD65F03C0)
    yield "go_arm64_placed", go(0xFFFFFFF1, AARCH64, [(4, 0), (24, 32), (4, 0)], 5, 0, code)


for path, seed in [*((CORPUS / name, seed) for name, seed in seeds()), *((WALKS / name, seed) for name, seed in walks())]:
    path.write_bytes(seed)
    print(f"{path.name}: {len(seed)} bytes")
