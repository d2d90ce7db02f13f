#!/usr/bin/env python3
"""A second reader of .symx tables, written from docs/formats/symx.md alone.

    symx_reader.py dump FILE...          one JSON object per file: header, functions, rows
    symx_reader.py lookup FILE ADDRESS...  one JSON value per address: null, or its frames

Addresses are relative, in hexadecimal. The standard library suffices.
"""
import json
import struct
import sys

SOURCES = ["", "dwarf", "pdb", "symtab", "dynsym", "mini-debug-info", "pclntab", "exports", "function-starts", "breakpad"]
CRC = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def expect(holds, what):
    if not holds:
        raise SystemExit("not a valid table: " + what)


class Reader:
    """Varints, one after the other."""

    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def varint(self):
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                expect(value < 1 << 64, "a number beyond 64 bits")
                return value


def packed(data, offset, index, widths):
    """Record `index` of records of packed fields, which begin at byte `offset`."""
    at, fields = 8 * offset + index * sum(widths), []
    for width in widths:
        word = int.from_bytes(data[at // 8:at // 8 + 8], "little")
        fields.append(word >> at % 8 & (1 << width) - 1)
        at += width
    return fields


class Table:
    def __init__(self, data):
        self.data = data
        magic, version, flags, size, self.base, self.sha256, kind, length, count, age = struct.unpack_from(
            "<4sHHQQ32sBBHI", data)
        expect(magic == b"SYMX" and version == 1 and flags < 16 and flags & 9 != 9, "magic, version or flags")
        expect(size == len(data) and size % 8 == 0, "size")
        self.wide = flags & 1 != 0
        head = data[:136 + 32 * count]
        expect(crc32c(head[:128] + bytes(4) + head[132:]) == struct.unpack_from("<I", data, 128)[0], "header checksum")
        raw = data[64:64 + length]
        expect(not any(data[64 + length:128]) and not any(data[132:136]), "padding of the header")
        self.id = {1: raw.hex(), 2: "%s-%x" % (raw.hex().upper(), age), 3: "uuid:" + raw.hex().upper()}[kind]
        self.section, end = {}, len(head)
        for entry in range(count):
            number, crc, offset, size, items = struct.unpack_from("<IIQQQ", data, 136 + 32 * entry)
            expect(offset % 8 == 0 and 0 <= offset - end < 8 and not any(data[end:offset]), "padding")
            end = offset + size
            content = data[offset:end]
            expect(len(content) == size and crc32c(content) == crc, "section %d" % number)
            self.section[number] = (content, items)
        expect(len(data) - end < 8 and not any(data[end:]), "padding at the end")
        self.producer = self.section[1][0].decode()
        self.phrases = [self.phrase(record) for record in self.records(15, "32s")] if flags & 2 else None
        expect((flags & 2 != 0) == (15 in self.section) and self.phrases != [], "phrases")
        self.starts = self.records(2, "Q" if self.wide else "I")
        self.sited, self.tight = flags & 4 != 0, flags & 8 != 0
        expect(self.sited == (16 in self.section) == (17 in self.section), "sites")
        expect(self.tight == (18 in self.section), "pairs")
        self.pairs_apart = self.records(18, "II") if self.tight else []
        content, items = self.section[5]
        prefix = 16 if self.sited else 8
        widths = content[prefix:prefix + 24] if self.tight else bytes(24)
        expect(not any(widths[20:]) and not any(widths[14:18] if self.sited else widths[18:20]), "widths")
        start = prefix + (24 if self.tight else 0)
        if self.sited:
            expect(not any(content[9:12]), "widths of contexts")
            self.codes = self.packed_records(5, start, content[:1])
            self.owners = self.packed_records(16, 0, content[1:3] + widths[18:19])
            self.sites = self.packed_records(17, 0, content[3:7] + widths[19:20])
            self.pairs = self.packed_records(6, 0, content[7:9])
        else:
            expect(content[3] == 0, "widths of contexts")
            self.contexts = self.packed_records(5, start, content[:3])
            if self.tight:
                self.places = [(*self.names(name, code), file, base)
                               for name, code, file, base in self.packed_records(6, 0, widths[14:18])]
            else:
                self.places = [(*record, 0) for record in self.records(6, "III")]
        if self.tight:
            self.blocks = self.packed_records(3, 0, widths[8:14])
            self.function_records = [(start, size, *self.names(name, code), file, line, source, flags, 0) for
                                     start, size, name, code, file, line, source, flags in self.packed_records(7, 0, widths[:8])]
        else:
            self.blocks = self.records(3, "IIIBBBB")
            self.function_records = self.records(7, "QQIIIIBBH" if self.wide else "IIIIIIBBH")
        self.aliased, self.aliases = self.records(8, "II"), self.records(9, "I")
        self.column_blocks = self.records(12, "IBBBB")
        content, items = self.section[14]
        self.call_columns = self.records(14, {1: "B", 2: "H", 4: "I"}[len(content) // items if items else 1])
        content, items = self.section[5]
        inlined = struct.unpack_from("<I", content, 12 if self.sited else 4)[0]
        expect(sum(self.context(index)[1] > 0 for index in range(items)) == inlined, "number of inlined contexts")

    def records(self, number, form):
        content, items = self.section[number]
        rows = list(struct.iter_unpack("<" + form, content))
        expect(len(rows) == items, "count of section %d" % number)
        return [row[0] for row in rows] if form in ("B", "H", "I", "Q", "32s") else rows

    def packed_records(self, number, offset, widths):
        content, items = self.section[number]
        size = offset + (items * sum(widths) + 7) // 8
        expect(len(content) == size + 8 and not any(content[size:]), "size of section %d" % number)
        return [packed(content, offset, index, widths) for index in range(items)]

    def names(self, name, symbol):
        if name < len(self.pairs_apart):
            return self.pairs_apart[name]
        name -= len(self.pairs_apart)
        return name, symbol - 1 if symbol else name

    @staticmethod
    def phrase(record):
        end = 1 + record[0]
        expect(1 < end <= 32 and not any(record[end:]), "a phrase")
        return record[1:end]

    def string(self, number, offset):
        reader = Reader(self.section[number][0], offset)
        length = reader.varint()
        stored = reader.data[reader.at:reader.at + length]
        if number != 11 or self.phrases is None:
            return stored.decode()
        codes, text = iter(stored), b""
        for code in codes:
            text += self.phrases[code if code < 192 else 192 + (code - 192) * 256 + next(codes)]
        return text.decode()

    def context(self, index):
        """((name, symbol, file, line base), distance, value)"""
        if not self.sited:
            place, distance, value = self.contexts[index]
            return self.places[place], distance, value
        code = self.codes[index][0]
        if code < len(self.owners):
            function, file, base = self.owners[code]
            return (*self.function_records[function][2:4], file, base), 0, function
        names, file, distance, line, base = self.sites[code - len(self.owners)]
        expect(distance > 0, "site %d" % (code - len(self.owners)))
        pairs = len(self.pairs)
        return (*(self.pairs[names] if names < pairs else (names - pairs, names - pairs)), file, base), distance, line

    def rows_of(self, block):
        """(address, context or None in a gap, line) of each row of a block."""
        if self.tight:
            return self.tight_rows_of(block)
        offset, context_base, line_base, count, *widths = self.blocks[block]
        fields = [packed(self.section[4][0], offset, row, widths) for row in range(count)]
        return [(self.starts[block] + step, context_base + context - 1 if context else None,
                 line_base + line - 1 if line else 0) for step, line, context in fields]

    def tight_rows_of(self, block):
        offset, context_base, count, *widths = self.blocks[block]
        rows = self.section[4][0]
        highs = int.from_bytes(rows[offset:offset + 8], "little")
        ones = [bit for bit in range(64) if highs >> bit & 1]
        expect(1 <= count <= 32 and len(ones) == count, "high parts of block %d" % block)
        found = []
        for row, bit in enumerate(ones):
            low, line, context = packed(rows, offset + 8, row, widths)
            context = context_base + context - 1 if context else None
            base = self.context(context)[0][3] if line else 0
            found.append((self.starts[block] + (bit - row << widths[0]) + low, context, line + base))
        return found

    def columns_of(self, block):
        """(address, column) of each column entry of a block."""
        if not self.column_blocks:
            return [(self.starts[block], 0)]
        offset, count, address_bits, column_bits, zero = self.column_blocks[block]
        expect(zero == 0, "column block %d" % block)
        fields = [packed(self.section[13][0], offset, entry, (address_bits, column_bits)) for entry in range(count)]
        return [(self.starts[block] + step, column) for step, column in fields]

    def frames(self, index, line, column):
        frames = []
        while True:
            (name, symbol, file, _), distance, value = self.context(index)
            frames.append({"function": self.string(11, name), "symbol": self.string(11, symbol),
                           "file": self.string(10, file), "line": line or None, "column": column or None,
                           "inlined": distance > 0})
            if distance == 0:
                expect(self.function_records[value][2:4] == (name, symbol), "names of function %d" % value)
                return frames
            line, column = value, self.call_columns[index] if self.call_columns else 0
            index -= distance

    def lookup(self, address):
        blocks = [block for block, start in enumerate(self.starts) if start <= address]
        if not blocks:
            return None
        row = [row for row in self.rows_of(blocks[-1]) if row[0] <= address][-1]
        column = [entry for entry in self.columns_of(blocks[-1]) if entry[0] <= address][-1][1]
        return None if row[1] is None else self.frames(row[1], row[2], column)

    def functions(self):
        listed = {}
        for index, (function, first) in enumerate(self.aliased):
            end = self.aliased[index + 1][1] if index + 1 < len(self.aliased) else len(self.aliases)
            listed[function] = [self.string(11, alias) for alias in self.aliases[first:end]]
        for index, (start, size, name, symbol, file, line, source, flags, zero) in enumerate(self.function_records):
            expect(zero == 0 and (flags & 8 != 0) == (index in listed), "attributes of function %d" % index)
            yield {"start": hex(start), "size": size, "name": self.string(11, name), "symbol": self.string(11, symbol),
                   "aliases": listed.get(index, []), "source": SOURCES[source], "approximate": bool(flags & 1),
                   "folded": bool(flags & 2), "part": bool(flags & 4), "file": self.string(10, file),
                   "line": line or None}

    def rows(self):
        edges = []
        for block in range(len(self.starts)):
            rows, columns = self.rows_of(block), self.columns_of(block)
            for address in sorted({row[0] for row in rows} | {entry[0] for entry in columns}):
                row = [row for row in rows if row[0] <= address][-1]
                column = [entry[1] for entry in columns if entry[0] <= address][-1]
                edges.append((address, row[1], row[2], column))
        expect(not edges or edges[-1][1] is None, "the last row is no gap")
        for (start, context, line, column), (end, *_) in zip(edges, edges[1:]):
            if context is not None:
                yield {"start": hex(start), "end": hex(end), "frames": self.frames(context, line, column)}

    def dump(self):
        return {"debug_id": self.id, "image_base": hex(self.base), "source_sha256": self.sha256.hex(),
                "producer": self.producer, "functions": list(self.functions()), "rows": list(self.rows())}


def read(path):
    with open(path, "rb") as file:
        return Table(file.read())


if __name__ == "__main__":
    command, paths = sys.argv[1], sys.argv[2:]
    if command == "dump":
        for path in paths:
            print(json.dumps(read(path).dump()))
    else:
        table = read(paths[0])
        for address in paths[1:]:
            print(json.dumps(table.lookup(int(address, 16))))
