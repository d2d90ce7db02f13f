#!/usr/bin/env python3
"""Writes the seeds of the target `stored_modules`, by docs/formats/stored_modules.md alone: fuzz/stored_modules_seeds.py fuzz/corpus/stored_modules"""

import pathlib
import struct
import sys
import zlib


def text(value: str) -> bytes:
    return struct.pack("<I", len(value)) + value.encode()


def digests(*values: int) -> bytes:
    return struct.pack("<I", len(values)) + b"".join(bytes([value]) * 32 for value in values)


def record(debug_id: str, name: str, pdb: str, image_base: int, debug_info: int, table: bool, files: tuple) -> bytes:
    body = text(debug_id) + text(name) + text(pdb) + struct.pack("<QBB", image_base, debug_info, table)
    if table:
        body += bytes([files[0]]) * 32 + struct.pack("<Q", 4096) + digests(*files[1:])
    body += digests(*files)
    return body


def listing(records: list) -> bytes:
    header = b"SYMMODS\0" + struct.pack("<II", 1, len(records)) + b"\x11" * 32 + b"\x22" * 32 + bytes(8)
    at, offsets = len(header) + 4 * (len(records) + 1), []
    for entry in [*records, b""]:
        offsets.append(at)
        at += len(entry)
    whole = bytearray(header + struct.pack(f"<{len(offsets)}I", *offsets) + b"".join(records))
    whole[80:84] = struct.pack("<I", zlib.crc32(whole))
    return bytes(whole)


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    several = [
        record("aa00", "libone.so", "", 0, 0, True, (1, 2, 3)),
        record("bb00", "app.exe", "app.pdb", 0x140000000, 1, True, (4, 5)),
        record("ffff", "stripped", "", 0x400000, 3, False, ()),
    ]
    (folder / "three-modules").write_bytes(listing(several))
    (folder / "no-module").write_bytes(listing([]))
    damaged = bytearray(listing(several))
    damaged[-3] ^= 0x40
    (folder / "damaged-record").write_bytes(damaged)


if __name__ == "__main__":
    main()
