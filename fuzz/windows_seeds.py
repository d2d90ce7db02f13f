#!/usr/bin/env python3
"""Makes the seeds of the targets `pe` and `pdb` again: small programs by clang and lld-link, their PDBs laid out anew in
pages of 512 bytes without the streams that nothing reads, a PDB of moved code, and a portable PDB.

    fuzz/windows_seeds.py        (needs clang and lld-link)
"""
import pathlib
import struct
import subprocess
import tempfile

SOURCE = """
struct point { int x, y; };
namespace shapes { struct box { int area(point p); }; }
static inline __attribute__((always_inline)) int twice(int x) { volatile int y = x; return y + y; }
namespace outer { static inline __attribute__((always_inline)) int thrice(int x) { return twice(x) + x; } }
int shapes::box::area(point p) { return twice(p.x) * p.y; }
__attribute__((noinline)) int first(int x) { return outer::thrice(x) + 1; }
__attribute__((noinline)) int second(int x) { return outer::thrice(x) + 1; }
extern "C" int start(int x) { shapes::box b; return first(x) + second(x) + b.area({x, x}); }
"""
CORPUS = pathlib.Path(__file__).parent / "corpus"
PAGE = 512
MAGIC = b"Microsoft C/C++ MSF 7.00\r\n\x1aDS\0\0\0"


def streams(pdb):
    page, _, _, directory_size, _, at = struct.unpack_from("<6I", pdb, 32)
    pages = lambda size: -(-size // page)
    numbers = struct.unpack_from(f"<{pages(directory_size)}I", pdb, at * page)
    directory = b"".join(pdb[n * page:(n + 1) * page] for n in numbers)[:directory_size]
    count = struct.unpack_from("<I", directory)[0]
    sizes = struct.unpack_from(f"<{count}I", directory, 4)
    place, found = 4 + 4 * count, []
    for size in (0 if size == 0xFFFFFFFF else size for size in sizes):
        numbers = struct.unpack_from(f"<{pages(size)}I", directory, place)
        place += 4 * pages(size)
        found.append(b"".join(pdb[n * page:(n + 1) * page] for n in numbers)[:size])
    return found


def container(found):
    pages, table = [MAGIC, b"", b""], []
    def add(data):
        numbers = []
        for at in range(0, len(data), PAGE):
            numbers.append(len(pages))
            pages.append(data[at:at + PAGE])
        return numbers
    lists = [add(data) for data in found]
    directory = struct.pack("<I", len(found)) + b"".join(struct.pack("<I", len(data)) for data in found)
    directory += b"".join(struct.pack("<I", number) for numbers in lists for number in numbers)
    numbers = add(directory)
    block_map = add(b"".join(struct.pack("<I", number) for number in numbers))
    # Readers take the first 4 KiB for the header, whatever the page's size.
    while len(pages) < 8:
        pages.append(b"")
    pages[0] = MAGIC + struct.pack("<6I", PAGE, 1, len(pages), len(directory), 0, block_map[0])
    return b"".join(page.ljust(PAGE, b"\0") for page in pages)


def small(pdb, moved=False):
    found = streams(pdb)
    dbi = bytearray(found[3])
    globals_, publics, records = (struct.unpack_from("<H", dbi, at)[0] for at in (12, 16, 20))
    sizes = [struct.unpack_from("<I", dbi, at)[0] for at in (24, 28, 32, 36, 40, 52)]
    header_at = 64 + sum(sizes)
    for number in (globals_, publics, struct.unpack_from("<H", found[2], 20)[0], struct.unpack_from("<H", found[4], 20)[0]):
        if number != 0xFFFF and number not in (1, 2, 3, 4):
            found[number] = b""
    if moved:
        # The code's second half comes 64 bytes later.
        code = struct.unpack_from("<I", found[struct.unpack_from("<H", dbi, header_at + 10)[0]], 12)[0]
        found.append(struct.pack("<6I", code, code, code + 48, code + 112, code + 0x10000, 0))
        struct.pack_into("<H", dbi, header_at + 8, len(found) - 1)
    found[3] = bytes(dbi)
    return container(found)


def main():
    for name in ("pe", "pdb"):
        (CORPUS / name).mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        run = lambda *words: subprocess.run(words, cwd=folder, check=True)
        (folder / "main.cpp").write_text(SOURCE)
        for target in ("x86_64", "i686", "aarch64"):
            run("clang", f"--target={target}-pc-windows-msvc", "-O1", "-g", "-gcodeview", "-gcolumn-info", "-ffunction-sections",
                "-ffile-compilation-dir=.", "-c", "main.cpp", "-o", "main.obj")
            run("lld-link", "/dll", "/noentry", "/nodefaultlib", "/debug", "/opt:icf", "/export:start", "/Brepro",
                "/safeseh:no", "/pdbaltpath:main.pdb", "/pdbsourcepath:c:\\src", "main.obj", "/out:main.dll")
            (CORPUS / "pe" / target).write_bytes((folder / "main.dll").read_bytes())
            pdb = (folder / "main.pdb").read_bytes()
            (CORPUS / "pdb" / target).write_bytes(small(pdb))
            if target == "x86_64":
                (CORPUS / "pdb" / "moved").write_bytes(small(pdb, moved=True))
        run("clang", "--target=x86_64-pc-windows-gnu", "-O1", "-gdwarf-4", "-ffile-compilation-dir=.", "-c",
            "main.cpp", "-o", "main.o")
        run("lld-link", "/lldmingw", "/dll", "/noentry", "/nodefaultlib", "/debug:dwarf", "main.o", "/out:gnu.dll")
        (CORPUS / "pe" / "mingw").write_bytes((folder / "gnu.dll").read_bytes())
    root = b"BSJB\1\0\1\0\0\0\0\0\x0c\0\0\0PDB v1.0\0\0\0\0\0\0\1\0" + struct.pack("<II", 48, 32) + b"#Pdb\0\0\0\0"
    (CORPUS / "pdb" / "portable").write_bytes(root.ljust(48, b"\0") + bytes(range(32)))


main()
