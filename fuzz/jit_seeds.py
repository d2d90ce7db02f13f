#!/usr/bin/env python3
"""Makes the seeds of the targets `perf_map`, `jitdump` and `kallsyms` again: what runtimes and the kernel write, in small.

    fuzz/jit_seeds.py
"""
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"
LOAD, MOVE, LINES, CLOSE, UNWINDING = range(5)


def record(order, kind, body, time=7):
    return struct.pack(order + "IIQ", kind, 16 + len(body), time) + body


def load(order, start, name, code=b"\x90" * 32):
    head = struct.pack(order + "IIQQQQ", 77, 78, start, start, len(code), 1)
    return record(order, LOAD, head + name + b"\0" + code)


def lines(order, start, entries):
    body = struct.pack(order + "QQ", start, len(entries))
    for address, line, file in entries:
        body += struct.pack(order + "QII", address, line, 0) + file + b"\0"
    return record(order, LINES, body)


def jitdump(order):
    yield struct.pack(order + "IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, 77, 5, 0)
    yield lines(order, 0x1000, [(0x1040, 1, b"a.js"), (0x1048, 2, b"\xff")])
    yield record(order, UNWINDING, struct.pack(order + "QQQ", 0, 0, 0))
    yield load(order, 0x1000, b"JS:*hot a.js:1:13")
    yield load(order, 0x1010, b"over it")
    yield record(order, MOVE, struct.pack(order + "IIQQQQQ", 77, 78, 0x5000, 0x1010, 0x5000, 32, 1))
    yield record(order, CLOSE, b"")


def write(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


write("perf_map", "node", b"7f49ec005b80 254 JS:*hot /tmp/a.js:1:13\n18c4000 300 Builtin:Abort\n1000 20 a\n1010 20 b\n")
write("perf_map", "java", b"0x1000 0x20 Lfoo;::bar(int, int)\r\n1008 8 [inlined] \xff\nbad line\n2000 10 half")
write("jitdump", "little", b"".join(jitdump("<")))
write("jitdump", "big", b"".join(jitdump(">")))
write("kallsyms", "seen", b"ffffffff81000000 T _text\nffffffff81000000 t startup\nffffffff81000100 D table\n"
      b"ffffffffc0001000 t hook\t[nf_tables]\n0000000000001000 A cpu_tss_rw\n")
write("kallsyms", "hidden", b"0000000000000000 T _text\n0000000000000000 t hook\t[nf_tables]\n")
