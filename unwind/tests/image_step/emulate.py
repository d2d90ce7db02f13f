"""Steps a program through the Unicorn emulator and writes what its stack was before every instruction.

    emulate.py PLAN TRACE

PLAN has a line for each of: `arch x86_64|aarch64`, `entry ADDRESS`, `limit INSTRUCTIONS`, `fault ADDRESS` (where the processor goes on
an undefined instruction; 0 for none), and for each part of the image `part ADDRESS SIZE FILE`. Numbers are hexadecimal.

TRACE has for each instruction, as 64-bit little-endian numbers: how many writes and how many frames follow; pc; the general registers by
their DWARF numbers (16 or 32); the same as they were at the call that led to the running function; then each write to memory since the instruction before as address, size and value; then each frame above
the running function, the innermost first, as return address, CFA of the frame below it, its frame pointer, and 1 if it was interrupted rather
than calling. The frames are kept from calls, returns and interrupts alone. The program ends where it calls or returns to address 0."""

import struct
import sys

import unicorn
from unicorn import arm64_const as arm
from unicorn import x86_const as x86

STACK_TOP = 0x7FFF_0000_0000
STACK_SIZE = 0x40_0000
PAGE = 0x1000

X86_REGISTERS = [
    getattr(x86, "UC_X86_REG_" + name)
    for name in "RAX RDX RCX RBX RSI RDI RBP RSP R8 R9 R10 R11 R12 R13 R14 R15".split()
]
ARM_REGISTERS = [arm.UC_ARM64_REG_X0 + n for n in range(29)] + [
    arm.UC_ARM64_REG_X29,
    arm.UC_ARM64_REG_X30,
    arm.UC_ARM64_REG_SP,
]
PREFIXES = {0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF2, 0xF3, *range(0x40, 0x50)}


def x86_effect(code):
    """What an instruction does to the stack of calls."""
    at = 0
    while at < len(code) - 1 and code[at] in PREFIXES:
        at += 1
    first, second = code[at], code[at + 1]
    if first == 0xE8 or (first == 0xFF and second >> 3 & 7 == 2):
        return "call"
    if first in (0xC2, 0xC3):
        return "return"
    if first == 0xCF:
        return "iret"
    return "fault" if (first, second) == (0x0F, 0x0B) else None


# Bits of a pointer that are no part of an address, but for the one that tells the halves of the address space apart.
SIGNATURE_BITS = 0xFF7F << 48


def signature(sp):
    """What stands for the signature of a return address at this stack pointer: never nothing, and seldom that of another one."""
    return (sp * 0x9E37_79B9_7F4A_7C15 & SIGNATURE_BITS) or 1 << 48


def arm_effect(code):
    word = struct.unpack("<I", code[:4])[0]
    # paciasp, pacibsp; autiasp, autibsp; retaa, retab
    if word in (0xD503233F, 0xD503237F):
        return "sign"
    if word in (0xD50323BF, 0xD50323FF):
        return "authenticate"
    if word in (0xD65F0BFF, 0xD65F0FFF):
        return "authenticate and return"
    if word >> 26 == 0b100101 or word & 0xFFFFFC1F == 0xD63F0000 or word & 0xFEFFF800 == 0xD63F0800:
        return "call"
    if word & 0xFFFFFC1F == 0xD65F0000:
        return "return"
    return None


def main(plan_path, trace_path):
    plan = {"part": []}
    for line in open(plan_path):
        key, *rest = line.split()
        if key == "part":
            plan["part"].append((int(rest[0], 16), int(rest[1], 16), rest[2]))
        else:
            plan[key] = rest[0]
    is_x86 = plan["arch"] == "x86_64"
    if is_x86:
        uc = unicorn.Uc(unicorn.UC_ARCH_X86, unicorn.UC_MODE_64)
        registers, pc_register, sp_at, fp_at, effect = X86_REGISTERS, x86.UC_X86_REG_RIP, 7, 6, x86_effect
        sp_register = x86.UC_X86_REG_RSP
    else:
        uc = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        registers, pc_register, sp_at, fp_at, effect = ARM_REGISTERS, arm.UC_ARM64_REG_PC, 31, 29, arm_effect
        sp_register = arm.UC_ARM64_REG_SP
        # Vector registers may be used.
        uc.reg_write(arm.UC_ARM64_REG_CPACR_EL1, 3 << 20)

    code_of = {}
    mapped = set()
    for address, size, path in plan["part"]:
        for page in range(address & -PAGE, address + size, PAGE):
            if page not in mapped:
                mapped.add(page)
                uc.mem_map(page, PAGE)
        data = open(path, "rb").read()
        uc.mem_write(address, data)
        code_of[address] = data
    # The emulator looks at the instruction behind the last one, which is that at 0 in the end.
    uc.mem_map(0, PAGE)
    uc.mem_map(STACK_TOP - STACK_SIZE, STACK_SIZE)

    writes = []
    uc.hook_add(
        unicorn.UC_HOOK_MEM_WRITE,
        lambda uc, access, address, size, value, data: writes.append((address, size, value & 0xFFFF_FFFF_FFFF_FFFF)),
    )

    def push(value):
        sp = uc.reg_read(sp_register) - 8
        uc.reg_write(sp_register, sp)
        uc.mem_write(sp, struct.pack("<Q", value))
        writes.append((sp, 8, value))

    # Values that a walk must not confuse with others.
    for number, register in enumerate(registers):
        uc.reg_write(register, 0x1111_0000_0000 + number)
    uc.reg_write(sp_register, STACK_TOP - 256)
    if is_x86:
        push(0)
    else:
        uc.reg_write(arm.UC_ARM64_REG_X30, 0)
    uc.reg_write(registers[fp_at], 0)

    frames = []
    # The registers at each call.
    kept = [[uc.reg_read(register) for register in registers]]
    pc = int(plan["entry"], 16)
    fault = int(plan.get("fault", "0"), 16)
    entry_cfa = STACK_TOP - 256
    effects = {}
    with open(trace_path, "wb") as trace:
        for _ in range(int(plan["limit"], 16)):
            values = [uc.reg_read(register) for register in registers]
            # A handler may change where it returns to.
            for at, (_, cfa, fp, is_interrupted) in enumerate(frames):
                if is_interrupted:
                    frames[at] = (struct.unpack("<Q", uc.mem_read((cfa & -16) - 40, 8))[0], cfa, fp, 1)
            # The outermost frame has a CFA too, and no caller.
            above = frames + [(0, entry_cfa, 0, 0)]
            record = [len(writes), len(above), pc, *values, *kept[0]]
            for write in writes:
                record.extend(write)
            for frame in above:
                record.extend(frame)
            trace.write(struct.pack("<%dQ" % len(record), *record))
            writes.clear()
            if pc not in effects:
                effects[pc] = effect(bytes(uc.mem_read(pc, 16)))
            what = effects[pc]
            sp, fp = values[sp_at], values[fp_at]
            if what == "fault" and fault:
                uc.reg_write(sp_register, sp & -16)
                for value in (0x2B, sp, 0x246, 0x33, pc):
                    push(value)
                frames.insert(0, (pc, sp, fp, 1))
                kept.insert(0, values)
                pc = fault
                continue
            if what == "iret":
                pc, _, _, sp, _ = struct.unpack("<5Q", uc.mem_read(sp, 40))
                uc.reg_write(sp_register, sp)
                frames.pop(0)
                kept.pop(0)
                continue
            before = pc
            # The emulated processor has no keys: what it would do with them is done here.
            if what in ("sign", "authenticate", "authenticate and return"):
                link = uc.reg_read(arm.UC_ARM64_REG_X30) ^ signature(sp)
                is_signed = link & SIGNATURE_BITS == signature(sp)
                if is_signed != (what == "sign"):
                    sys.exit("%#x: a return address that was signed elsewhere, or twice: %#x" % (pc, link))
                uc.reg_write(arm.UC_ARM64_REG_X30, link)
                pc = link if what == "authenticate and return" else pc + 4
                what = "return" if what == "authenticate and return" else None
            else:
                try:
                    uc.emu_start(pc, 0xFFFF_FFFF_FFFF_FFFF, count=1)
                except unicorn.UcError as error:
                    sys.exit("%#x, bytes %s: %s; frames %r" % (pc, uc.mem_read(pc, 8).hex(), error, frames))
                pc = uc.reg_read(pc_register)
            if what == "call":
                if is_x86:
                    after = struct.unpack("<Q", uc.mem_read(sp - 8, 8))[0]
                else:
                    after = before + 4
                frames.insert(0, (after, sp, fp, 0))
                kept.insert(0, values)
            elif what == "return" and pc != 0:
                if not frames or frames[0][0] != pc:
                    sys.exit("a return from %#x to %#x that no call led to" % (before, pc))
                frames.pop(0)
                kept.pop(0)
            if pc == 0:
                return
    sys.exit("more instructions than the program should have")


main(*sys.argv[1:])
