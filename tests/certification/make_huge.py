#!/usr/bin/env python3
"""Makes programs whose debug sections are larger than 4 GiB.

    make_huge.py FOLDER [GIB]

Each program is linked from two objects and padding: one valid unit or string of GIB gibibytes of zeros (4.1 without it) in
each of some sections. Padding of units stands between the objects, other padding before both, so that what is read lies at
offsets beyond 2^32; DWARF in the 64-bit format, whose offsets have 8 bytes, is the only one that can say so. The padding is
a hole in its object and is turned into one in the program, so that both take little space on the disk.

    entries    .debug_info and .debug_line, DWARF 5 by clang++
    tables     .debug_str and .debug_abbrev, DWARF 5 by g++
    ranges     .debug_rnglists and .debug_line_str, DWARF 5 by clang++
    old        .debug_info and .debug_ranges, DWARF 4 by g++
    packed     as `entries`, its sections compressed (zlib)

Needs as, clang++, g++, ld.lld and fallocate. Prints the path of each program.
"""

import os
import struct
import subprocess
import sys

SOURCE = """
namespace {space} {{
struct Item {{ int weight; int twice() const {{ return weight * 2; }} }};
template <int N> static inline int clamp(int x) {{ return x < -N ? -N : x > N ? N : x; }}
template <int N> __attribute__((noinline)) int work(const Item *all, int count) {{
    int total = N;
    for (int at = 0; at < count; at++) {{
        if (__builtin_expect(all[at].weight % (N + 2) == 0, 0)) {{ total -= clamp<N + 1>(total); continue; }}
        total += clamp<N>(all[at].twice() * total);
    }}
    return total;
}}
template <int N> int chain(const Item *all, int count) {{
    if constexpr (N > 0) return work<N>(all, count) + chain<N - 1>(all, count); else return work<0>(all, count);
}}
}}
extern "C" int {space}_start(int x) {{
    {space}::Item items[2] = {{{{x}}, {{x + 1}}}};
    return {space}::chain<40>(items, 2);
}}
"""

# A unit of one entry, the value of which is the padding. Its length stands in the source, as the assembler never sees
# the padding. (DWARF 5, 7.5.1.1 and 7.5.4)
INFO = """
    .section .debug_abbrev,"",@progbits
.Labbrev:
    .uleb128 1, 0x11
    .byte 1
    .uleb128 0x03, 0x08, 0, 0
    .uleb128 2, 0x34
    .byte 0
    .uleb128 0x1c, 0x09, 0, 0
    .byte 0
    .section .debug_info,"",@progbits
    .long 0xffffffff
    .quad {size} + .Lend - .Lversion + 1
.Lversion:
    .short 5
    .byte 1, 8
    .quad .Labbrev
    .uleb128 1
    .asciz "padding"
    .uleb128 2
    .uleb128 {size}
.Lend:
"""

# A header, and opcodes that nobody reads, for no unit names this program. (DWARF 5, 6.2.4)
LINE = """
    .section .debug_line,"",@progbits
    .long 0xffffffff
    .quad {size} + .Lline_end - .Lline_version + 1
.Lline_version:
    .short 5
    .byte 8, 0
    .quad .Lline_end - .Lline_length
.Lline_length:
    .byte 1, 1, 1, 0xfb, 14, 1, 0, 0, 0, 0
.Lline_end:
"""

# A list of ranges that nobody reads. (DWARF 5, 7.28)
RNGLISTS = """
    .section .debug_rnglists,"",@progbits
    .long 0xffffffff
    .quad {size} + 9
    .short 5
    .byte 8, 0
    .long 0
"""

PLAIN = """
    .section {name},"",@progbits
    .byte 0
"""

PADDINGS = {".debug_info": INFO, ".debug_line": LINE, ".debug_rnglists": RNGLISTS}

PROGRAMS = [
    ("entries", "clang++", "-gdwarf-5", [".debug_info", ".debug_line"], []),
    ("tables", "g++", "-gdwarf-5", [".debug_str", ".debug_abbrev"], []),
    ("ranges", "clang++", "-gdwarf-5", [".debug_rnglists", ".debug_line_str"], []),
    ("old", "g++", "-gdwarf-4", [".debug_info", ".debug_ranges"], []),
    ("packed", "clang++", "-gdwarf-5", [".debug_info", ".debug_line"], ["--compress-debug-sections=zlib"]),
]


def run(*command):
    subprocess.run(command, check=True)


def padding(path, sections, size):
    """An object with so many zeros behind what each section begins with."""
    with open("padding.s", "w") as source:
        for name in sections:
            source.write(PADDINGS.get(name, PLAIN).format(name=name, size=size))
    run("as", "padding.s", "-o", path)
    with open(path, "r+b") as file:
        header = file.read(64)
        table = struct.unpack_from("<Q", header, 0x28)[0]
        entry, count, names = struct.unpack_from("<HHH", header, 0x3A)
        file.seek(table)
        headers = bytearray(file.read(entry * count))
        texts = struct.unpack_from("<QQ", headers, names * entry + 0x18)
        file.seek(texts[0])
        texts = file.read(texts[1])
        for at in range(0, len(headers), entry):
            start = struct.unpack_from("<I", headers, at)[0]
            name = texts[start : texts.index(0, start)].decode()
            if name not in sections:
                continue
            offset, length = struct.unpack_from("<QQ", headers, at + 0x18)
            file.seek(offset)
            content = file.read(length)
            place = (file.seek(0, os.SEEK_END) + 4095) & ~4095
            file.seek(place)
            file.write(content)
            # One more: a unit's children end with a zero.
            file.truncate(place + length + size + 1)
            struct.pack_into("<QQ", headers, at + 0x18, place, length + size + 1)
        file.seek(table)
        file.write(headers)


def main():
    folder = sys.argv[1]
    size = int(float(sys.argv[2] if len(sys.argv) > 2 else 4.1) * (1 << 30))
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    for name, compiler, version, sections, options in PROGRAMS:
        for space in ["before", "behind"]:
            with open(f"{space}.cpp", "w") as source:
                source.write(SOURCE.format(space=space))
            flags = ["-std=c++17", "-O2", version, "-gdwarf64", "-ffreestanding", "-c"]
            run(compiler, *flags, f"{space}.cpp", "-o", f"{name}-{space}.o")
        padding("padding.o", sections, size)
        objects = [f"{name}-before.o", "padding.o", f"{name}-behind.o"]
        if ".debug_info" not in sections:
            # Strings of all objects are merged where the first of them has its own.
            objects.insert(0, objects.pop(1))
        run("ld.lld", "-e", "before_start", "--build-id=fast", *options, *objects, "-o", name)
        run("fallocate", "--dig-holes", name)
        for path in objects:
            os.remove(path)
        print(os.path.abspath(name), flush=True)


main()
