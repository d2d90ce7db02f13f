#!/usr/bin/env python3
"""A second reader of .uwt tables, written from docs/formats/uwt.md alone.

    uwt_reader.py dump FILE       one line of JSON with the header, then one for each row: rva, rule, slots, program, source
    uwt_reader.py lookup FILE     reads rvas in hexadecimal, one a line, and gives for each one line of JSON, or null

Whatever the page says that a reader must check is checked. The standard library suffices.
"""
import hashlib
import json
import struct
import sys
import zlib

# Registers that functions of Windows keep besides.
CONVENTION_REGISTERS = {"x86_64": [4, 5]}
# Word bytes, byte order, sp, fp, link, pc, number of general registers, registers with slots. (Processors)
PROCESSORS = {
    1: ("x86_64", 8, "little", 7, 6, None, 16, 16, [3, 12, 13, 14, 15]),
    2: ("aarch64", 8, "little", 31, 29, 30, 32, 32, list(range(19, 29))),
    3: ("mips", 4, "big", 29, 30, 31, 37, 32, list(range(16, 24)) + [28]),
    4: ("mipsel", 4, "little", 29, 30, 31, 37, 32, list(range(16, 24)) + [28]),
    5: ("i686", 4, "little", 4, 5, None, 8, 8, [3, 6, 7]),
    7: ("arm", 4, "little", 13, 11, 14, 15, 15, list(range(4, 11))),
    6: ("riscv64", 8, "little", 2, 8, 1, 64, 32, [9] + list(range(18, 28))),
}
KINDS = {0: "gap", 1: "end", 2: "sp", 3: "fp", 4: "register", 5: "deref", 6: "plt", 7: "signal", 8: "machine-frame", 9: "leaf",
         10: "program", 12: "unsupported"}
DEBUG_ID, PRODUCER, BUCKETS, ROW_ADDRESSES, ROW_RULES, RULES, SLOTS, PROGRAMS, SOURCE_INDEX, SOURCE_MAP = range(1, 11)
CONVENTION_SLOTS = 11
GO_RUNTIME = 12
REASONS = 13
TASKS = 14
COROUTINES = 15
BUCKET_BYTES = 256
BLOCK = 64


def expect(holds, what):
    if not holds:
        raise SystemExit("not a valid table: " + what)


def field(word, start, end, signed=False):
    value = word >> start & (1 << end - start) - 1
    return value - (1 << end - start) if signed and value >> end - start - 1 else value


class Table:
    def __init__(self, data):
        self.data = data
        expect(len(data) >= 96 and data[:4] == b"UWT1", "magic")
        version, processor, flags, crc, sections, size = struct.unpack_from("<HBBIIQ", data, 4)
        self.image_base, self.text_start, self.text_end, self.rows, self.rules = struct.unpack_from("<5Q", data, 24)
        expect(version == 1 and flags < 4 and processor in PROCESSORS, "version, flags or processor")
        # (Flags)
        narrow_row_rules, narrow_buckets = flags & 1, flags & 2
        self.name, self.word, self.order, self.sp, self.fp, self.link, self.pc, self.general, self.slot_registers = PROCESSORS[processor]
        expect(sections <= 64 and size == len(data) and 96 + 24 * sections <= size, "size")
        directory = bytearray(data[:96 + 24 * sections])
        directory[8:12] = bytes(4)
        expect(zlib.crc32(directory) == crc, "checksum of the header")
        expect(self.rows < 1 << 32 and self.rules <= 65536 and self.text_start % BUCKET_BYTES == 0, "counts")
        self.sections = {}
        for at in range(sections):
            kind, crc, offset, length = struct.unpack_from("<IIQQ", data, 96 + 24 * at)
            expect(offset % 8 == 0 and offset + length <= size, "a section outside the file")
            expect(kind not in self.sections, "a section twice")
            self.sections[kind] = data[offset:offset + length]
            expect(zlib.crc32(self.sections[kind]) == crc, "checksum of a section")
        expect(all(kind in self.sections for kind in range(1, 11)), "a section is missing")
        self.bucket_count = (self.text_end - self.text_start + BUCKET_BYTES - 1) // BUCKET_BYTES
        self.buckets = self.numbers(BUCKETS, "H" if narrow_buckets else "I", self.bucket_count + 1)
        self.row_addresses = self.numbers(ROW_ADDRESSES, "B", self.rows)
        self.row_rules = self.numbers(ROW_RULES, "B" if narrow_row_rules else "H", self.rows)
        self.rule_words = self.numbers(RULES, "Q", self.rules)
        self.slot_words = self.numbers(SLOTS, "Q", self.rules * ((len(self.slot_registers) + 4) // 5))
        self.convention_registers = CONVENTION_REGISTERS.get(self.name, [])
        self.convention_words = None
        if CONVENTION_SLOTS in self.sections and self.convention_registers:
            self.convention_words = self.numbers(CONVENTION_SLOTS, "Q", self.rules)
        self.sources = list(self.source_map())
        self.go_runtime = self.read_go_runtime() if GO_RUNTIME in self.sections else None
        self.reasons = self.read_reasons() if REASONS in self.sections else []
        self.tasks = self.read_tasks() if TASKS in self.sections else None
        self.coroutines = self.read_coroutines() if COROUTINES in self.sections else None
        self.verify()

    def numbers(self, kind, code, count):
        data = self.sections[kind]
        expect(len(data) == count * struct.calcsize(code), f"length of section {kind}")
        return struct.unpack(f"<{count}{code}", data)

    def verify(self):
        buckets = self.buckets
        expect(buckets[0] == 0 and buckets[-1] == self.rows, "ends of the buckets")
        expect(all(a <= b for a, b in zip(buckets, buckets[1:])), "buckets fall")
        for first, end in zip(buckets, buckets[1:]):
            rows = self.row_addresses[first:end]
            expect(all(a < b for a, b in zip(rows, rows[1:])), "rows of a bucket do not rise")
        expect(self.row_addresses[0] == 0 and buckets[1] > 0, "no row at text start")
        expect(all(number < self.rules for number in self.row_rules), "a rule that is not there")
        for number in range(self.rules):
            self.rule(number)

    def rule(self, number):
        """The fields of a rule, by name; numbers of words are left as they are."""
        word = self.rule_words[number]
        kind, form, from_base, register, ra, fp = field(word, 0, 4), field(word, 4, 5), field(word, 5, 6), field(word, 12, 17), field(word, 37, 51, True), field(word, 51, 64, True)
        source, signed = field(word, 8, 12), field(word, 7, 8)
        expect(kind in KINDS and (source <= 9 or source in (11, 15)), "an unknown rule")
        expect((KINDS[kind] == "gap") == (source == 0), "a rule that comes from nowhere")
        expect(not from_base or KINDS[kind] in ("sp", "fp", "register") and not field(word, 6, 7), "places that are counted from no base")
        expect(form == 0 or 0 <= ra < self.general, "a return address in no register")
        expect(not signed or self.name == "aarch64", "a signed return address")
        expect(KINDS[kind] != "plt" or self.link is None, "a linkage table")
        expect(KINDS[kind] != "leaf" or self.name == "x86_64", "a leaf")
        expect(KINDS[kind] != "machine-frame" or self.name in ("x86_64", "aarch64") and register in (self.sp, self.fp) and form == 0, "a machine frame")
        expect(KINDS[kind] not in ("register", "deref") or register < self.general, "a base that is no register")
        rule = {"kind": KINDS[kind], "source": source}
        if KINDS[kind] in ("gap", "end", "unsupported"):
            return rule
        rule["offset"] = field(word, 17, 37, True)
        if KINDS[kind] == "signal":
            return rule
        rule["on_fp"] = bool(field(word, 6, 7))
        rule["from_base"] = bool(from_base)
        rule["signed"] = bool(signed)
        rule["return_address"] = ["cfa", ra] if form == 0 else ["register", ra]
        rule["frame_pointer"] = {-4096: "same", -4095: "unknown"}.get(fp, fp)
        if KINDS[kind] in ("register", "deref", "machine-frame"):
            rule["register"] = register
        if KINDS[kind] == "program":
            rule["program"] = self.program(rule["offset"])
        rule["slots"] = self.slots(number)
        return rule

    def slots(self, number):
        count = len(self.slot_words) // self.rules
        found = self.fields(self.slot_words[number * count:(number + 1) * count], self.slot_registers)
        # In tables without the section they cannot be told.
        words = [self.convention_words[number]] if self.convention_words else None
        kept = self.fields(words, self.convention_registers) if words else dict.fromkeys(map(str, self.convention_registers), "unknown")
        return {**found, **kept}

    @staticmethod
    def fields(words, registers):
        fields = []
        for word in words:
            expect(word >> 60 == 0, "bits beyond the slots")
            fields += [field(word, 12 * place, 12 * place + 12, True) for place in range(5)]
        expect(all(value == -2048 for value in fields[len(registers):]), "a slot without a register")
        values = [{-2048: "same", -2047: "unknown"}.get(value, value) for value in fields]
        return dict(zip(map(str, registers), values))

    def program(self, at, code=None):
        """The operations from `at` on, each with its operand."""
        code, operations, depth = self.sections[PROGRAMS] if code is None else code, [], 0
        expect(at >= 0, "a program before the first")
        for _ in range(32):
            expect(at < len(code), "a program without an end")
            byte = code[at]
            expect(byte <= 8, "an unknown operation")
            size = {1: 1, 2: 8}.get(byte, 0)
            operand = code[at + 1:at + 1 + size]
            expect(len(operand) == size, "an operand that is cut")
            at += 1 + size
            if byte == 0:
                expect(depth >= 1, "a program without a result")
                return operations
            depth += {1: 1, 2: 1, 8: 0}.get(byte, -1)
            expect(1 <= depth <= 8, "a stack of the wrong height")
            if byte == 1:
                expect(operand[0] < self.general or operand[0] == self.pc, "an unknown register")
            operations.append([byte, int.from_bytes(operand, "little", signed=byte == 2)] if size else [byte])
        raise SystemExit("not a valid table: a program of too many operations")

    def source_map(self):
        """Entries of the source map by rising rva: rva, kind, offset."""
        index, data = self.sections[SOURCE_INDEX], self.sections[SOURCE_MAP]
        expect(len(index) % 16 == 0, "length of the source index")
        blocks = list(struct.iter_unpack("<QQ", index))
        ends = [position for _, position in blocks[1:]] + [len(data)]
        last = -1
        for (rva, at), end in zip(blocks, ends):
            offset, count = 0, 0
            while at < end:
                distance, at = self.leb(data, at)
                word, at = self.leb(data, at)
                zigzag = word >> 4
                rva += distance
                # The first of a block gives its offset as the difference from 0.
                offset = (offset + (zigzag >> 1 ^ -(zigzag & 1))) % 2**64
                expect(rva > last and 1 <= word & 15 <= 13 and (count > 0 or distance == 0), "an entry of the source map")
                last = rva
                count += 1
                yield rva, word & 15, offset
            expect(1 <= count <= BLOCK, "a block of the source map")

    @staticmethod
    def leb(data, at):
        value = shift = 0
        while True:
            expect(at < len(data) and shift < 70, "a number that is cut")
            value |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                return value, at

    def source(self, rva):
        low, high = 0, len(self.sources)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.sources[middle][0] <= rva else (low, middle)
        return list(self.sources[low - 1][1:]) if low else None

    def read_go_runtime(self):
        data = self.sections[GO_RUNTIME]
        functions = (len(data) - 32) // 8
        expect(1 <= functions <= 64 and len(data) == 32 + 8 * functions, "length of what is said of Go's runtime")
        *fields, switches = struct.unpack_from("<8I", data)
        expect(switches <= functions, "more functions that change stacks than functions")
        ranges = []
        for at in range(functions):
            start, size = struct.unpack_from("<2I", data, 32 + 8 * at)
            expect(size > 0 and start + size <= self.text_end - self.text_start, "a function outside the code")
            ranges.append([self.text_start + start, self.text_start + start + size])
        names = ("stack_lo", "stack_hi", "m", "sched_sp", "sched_pc", "sched_bp", "curg")
        return {**dict(zip(names, fields)), "switches": ranges[:switches], "c_calls": ranges[switches:]}

    def read_reasons(self):
        data = self.sections[REASONS]
        expect(len(data) >= 4, "length of the reasons")
        count, = struct.unpack_from("<I", data)
        texts = 4 + 12 * count
        expect(count > 0 and texts <= len(data), "length of the reasons")
        reasons = []
        for at in range(count):
            start, size, place = struct.unpack_from("<3I", data, 4 + 12 * at)
            expect(size > 0 and start + size <= self.text_end - self.text_start, "a reason outside the code")
            expect(not reasons or reasons[-1][0] <= self.text_start + start, "reasons do not rise")
            expect(texts + place + 2 <= len(data), "a text outside the section")
            length, = struct.unpack_from("<H", data, texts + place)
            text = data[texts + place + 2:texts + place + 2 + length]
            expect(len(text) == length, "a text that is cut")
            reasons.append([self.text_start + start, self.text_start + start + size, text.decode()])
        return reasons

    def read_tasks(self):
        data = self.sections[TASKS]
        expect(len(data) >= 32 and (len(data) - 32) % 12 == 0, "length of what is said of tasks")
        wakers, *fields = struct.unpack_from("<Q6I", data)
        functions = []
        for at in range(32, len(data), 12):
            start, size, kind = struct.unpack_from("<3I", data, at)
            expect(size > 0 and start + size < 1 << 32, "a function of tasks without code")
            expect(not functions or functions[-1][1] <= start, "functions of tasks do not rise")
            functions.append([start, start + size, kind >> 1, bool(kind & 1)])
        names = ("state", "vtable", "poll", "trailer_offset", "waker_data", "waker_table")
        return {"wakers": wakers, **dict(zip(names, fields)), "functions": functions}

    def read_coroutines(self):
        data = self.sections[COROUTINES]
        expect(len(data) >= 16, "length of what is said of coroutines")
        counts = struct.unpack_from("<4I", data)
        expect(counts[3] == 0, "the fourth word of coroutines")
        ends = [16]
        for count, each in zip(counts, (16, 12, 12)):
            ends.append(ends[-1] + count * each)
        expect(ends[-1] <= len(data), "coroutines that are cut")
        coroutines = [struct.unpack_from("<4I", data, at) for at in range(ends[0], ends[1], 16)]
        ranges = []
        for begin, end in zip(ends[1:], ends[2:]):
            found = []
            for at in range(begin, end, 12):
                start, size, told = struct.unpack_from("<3I", data, at)
                expect(size > 0 and start + size < 1 << 32, "code of coroutines without bytes")
                expect(not found or found[-1][1] <= start, "code of coroutines does not rise")
                found.append([start, start + size, told])
            ranges.append(found)
        functions, locations = ranges
        for function in functions:
            number, role = function[2] >> 2, function[2] & 3
            expect(number < len(coroutines) and role < 3, "a function of no coroutine")
            function[2:] = [number, role]
        for location in locations:
            location[2] = self.program(location[2], data[ends[3]:])
        described = [{"index": index, "handles": [handle for handle in handles if handle]} for index, *handles in coroutines]
        return {"coroutines": described, "functions": functions, "locations": locations}

    def lookup(self, rva):
        offset = rva - self.text_start
        if offset < 0 or rva >= self.text_end:
            return None
        bucket, low = offset >> 8, offset & 255
        first, end = self.buckets[bucket], self.buckets[bucket + 1]
        row = first + sum(address <= low for address in self.row_addresses[first:end]) - 1
        return self.described(self.row_rules[row], rva)

    def described(self, number, rva):
        rule = self.rule(number)
        rule["from"] = None if rule["kind"] == "gap" else self.source(rva)
        return rule

    def dump(self):
        yield {
            "processor": self.name, "image_base": self.image_base, "text_start": self.text_start, "text_end": self.text_end, "rows": self.rows,
            "rules": self.rules, "source_sha256": self.data[64:96].hex(), "debug_id": self.sections[DEBUG_ID].decode(),
            "producer": self.sections[PRODUCER].decode(), "go_runtime": self.go_runtime, "reasons": self.reasons, "tasks": self.tasks, "coroutines": self.coroutines,
            "sha256": hashlib.sha256(self.data).hexdigest(),
        }
        for bucket, (first, end) in enumerate(zip(self.buckets, self.buckets[1:])):
            for row in range(first, end):
                rva = self.text_start + BUCKET_BYTES * bucket + self.row_addresses[row]
                yield {"rva": rva, **self.described(self.row_rules[row], rva)}


def main():
    command, path = sys.argv[1:3]
    with open(path, "rb") as file:
        table = Table(file.read())
    answers = table.dump() if command == "dump" else (table.lookup(int(line, 16)) for line in sys.stdin)
    for answer in answers:
        print(json.dumps(answer))


main()
