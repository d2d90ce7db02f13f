#!/usr/bin/env python3
"""How long a server takes to start with many debug ids on disk.

    start_with_many_ids.py SYMSEAL DIR [IDS] [MODULES]

Makes, once, a data directory in DIR: IDS (100,000) shared libraries, each a copy of one with a build-id of its own, in bundles of MODULES (1,000), built by
`symseal bundle build`, each in a repository of its own. Bundles are put there as the server would have put them (docs/formats/data_directory.md), by one
process and without a sync for each file; the server then starts once to make its index of ids. Prints how long starts take from the
call of the program to the first answer: three with the index, cold caches of the kernel apart, and one without it.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

SOURCE = "int first(int a) { return a + 1; }\nint second(int a) { return first(a) * 2; }\n"
MARK = bytes.fromhex("5ea15ea15ea15ea15ea15ea15ea15ea15ea15ea1")


def library(folder):
    path = os.path.join(folder, "lib.so")
    command = ["cc", "-g", "-O1", "-shared", "-fPIC", "-nostdlib", f"-Wl,--build-id=0x{MARK.hex()}", "-x", "c", "-", "-o", path]
    subprocess.run(command, input=SOURCE.encode(), check=True)
    with open(path, "rb") as file:
        return file.read()


def place(layout, data, repository, manifests):
    """Moves a layout's blobs to where a server keeps them, with the facts of its repository."""
    facts = os.path.join(data, "repositories", repository)
    for kind in ("_blobs", "_manifests"):
        os.makedirs(os.path.join(facts, kind, "sha256"), exist_ok=True)
    os.makedirs(os.path.join(facts, "_tags"), exist_ok=True)
    blobs = os.path.join(layout, "blobs", "sha256")
    for name in os.listdir(blobs):
        os.replace(os.path.join(blobs, name), os.path.join(data, "blobs", "sha256", name[:2], name))
        kind, content = ("_manifests", manifests[name]) if name in manifests else ("_blobs", "")
        with open(os.path.join(facts, kind, "sha256", name), "w") as file:
            file.write(content)


def manifests_of(layout):
    """The manifests of a layout by digest, with their media types, and the bundle's own."""
    import json

    def read(digest):
        with open(os.path.join(layout, "blobs", "sha256", digest), "rb") as file:
            return json.load(file)

    with open(os.path.join(layout, "index.json"), "rb") as file:
        root = json.load(file)["manifests"][0]
    found, open_ones = {}, [root]
    while open_ones:
        one = open_ones.pop()
        digest = one["digest"].split(":")[1]
        found[digest] = one["mediaType"]
        open_ones += read(digest).get("manifests", [])
    return found, root["digest"]


def make(symseal, data, ids, modules):
    for shard in range(256):
        os.makedirs(os.path.join(data, "blobs", "sha256", f"{shard:02x}"))
    with tempfile.TemporaryDirectory(dir=os.path.dirname(data)) as work:
        template = library(work)
        for first in range(0, ids, modules):
            files, layout = os.path.join(work, "files"), os.path.join(work, "layout")
            os.makedirs(files)
            for number in range(first, min(first + modules, ids)):
                own = (number + 1).to_bytes(4, "big") * 5
                with open(os.path.join(files, f"lib{number}.so"), "wb") as file:
                    file.write(template.replace(MARK, own))
            name = f"app{first // modules}"
            command = [symseal, "bundle", "build", files, "--name", name, "--version", "1", "--output", layout, "--json"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            manifests, root = manifests_of(layout)
            place(layout, data, f"team/{name}", manifests)
            with open(os.path.join(data, "repositories", "team", name, "_tags", "1"), "w") as file:
                file.write(root)
            shutil.rmtree(files)
            shutil.rmtree(layout)


def start(symseal, data, wanted):
    """Seconds until the server answers, and its peak of memory in MiB."""
    begun = time.monotonic()
    command = [symseal, "serve", "--data", data, "--listen", "127.0.0.1:0", "--gc-interval", "0s"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    url = re.search(r"http://\S+", server.stdout.readline()).group()
    with urllib.request.urlopen(f"{url}/buildid/{wanted}/debuginfo") as answer:
        assert answer.status == 200
    seconds = time.monotonic() - begun
    with open(f"/proc/{server.pid}/status") as status:
        peak = int(re.search(r"VmHWM:\s+(\d+)", status.read()).group(1)) / 1024
    server.send_signal(signal.SIGTERM)
    server.wait()
    return seconds, peak


def main():
    symseal, folder = sys.argv[1], sys.argv[2]
    ids = int(sys.argv[3]) if len(sys.argv) > 3 else 100_000
    modules = int(sys.argv[4]) if len(sys.argv) > 4 else 1000
    data = os.path.join(folder, f"data-{ids}-{modules}")
    if not os.path.exists(data):
        begun = time.monotonic()
        os.makedirs(data + ".new")
        make(symseal, data + ".new", ids, modules)
        os.rename(data + ".new", data)
        print(f"made in {time.monotonic() - begun:.0f} s")
    wanted = (ids // 2).to_bytes(4, "big").hex() * 5
    index = os.path.join(data, "ids.index")
    if os.path.exists(index):
        os.remove(index)
    print("without the index: {:.2f} s, {:.0f} MiB at most".format(*start(symseal, data, wanted)))
    for _ in range(3):
        print("with the index: {:.2f} s, {:.0f} MiB at most".format(*start(symseal, data, wanted)))


if __name__ == "__main__":
    main()
