#!/usr/bin/env python3
"""How a build of 1,000 modules scales with processors, and how small its root index stays.

    thousand_modules.py SYMSEAL [MODULES]

Compiles that many shared libraries (C with inlined calls, 40 functions each, DWARF 5), builds a bundle of them with 1 job and
with as many as there are processors, three times each in turn, and prints the best times, peak memory, the size of
symbol_index.json and what a second release with 10 % changed modules adds to the store.
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time

FUNCTIONS = 40


def source(module, revision):
    lines = ["static inline __attribute__((always_inline)) int twice(int n) { return n + n; }"]
    for at in range(FUNCTIONS):
        lines.append(f"int f{module}_{at}(int a, int b) {{")
        lines.append(f"    int sum = {revision};")
        lines.append(f"    for (int i = 0; i < a; i++) sum += twice(b ^ i) * {module + at + 3};")
        lines.append("    return sum;")
        lines.append("}")
    return "\n".join(lines) + "\n"


def compile_module(folder, module, revision):
    command = ["cc", "-g", "-O2", "-shared", "-fPIC", "-Wl,--build-id", "-x", "c", "-", "-o"]
    command.append(os.path.join(folder, f"libm{module}.so"))
    subprocess.run(command, input=source(module, revision).encode(), check=True)


def build(symseal, folder, version, layout, jobs):
    command = [symseal, "bundle", "build", folder, "--name", "bench", "--version", version, "--output", layout, "--json"]
    started = time.monotonic()
    with subprocess.Popen([*command, "--jobs", str(jobs)], stdout=subprocess.PIPE) as process:
        report = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit("the build failed")
    return time.monotonic() - started, usage.ru_maxrss * 1024, json.loads(report)


def stored(layout):
    blobs = os.path.join(layout, "blobs", "sha256")
    return {name: os.path.getsize(os.path.join(blobs, name)) for name in os.listdir(blobs)}


def main():
    symseal, modules = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        inputs = os.path.join(folder, "inputs")
        os.mkdir(inputs)
        with concurrent.futures.ThreadPoolExecutor(cores) as pool:
            list(pool.map(lambda module: compile_module(inputs, module, 1), range(modules)))
        best = {}
        for round_of in range(3):
            for jobs in sorted({1, cores}):
                # A new folder each time, and nothing removed meanwhile: ext4 passes over the inodes of files that were deleted within the
                # last seconds, one by one, which took longer than the build.
                layout = os.path.join(folder, f"layout-{jobs}-{round_of}")
                os.sync()
                seconds, memory, report = build(symseal, inputs, "1.0", layout, jobs)
                if jobs not in best or seconds < best[jobs][0]:
                    best[jobs] = (seconds, memory)
        layout = os.path.join(folder, f"layout-{cores}-0")
        before = stored(layout)
        with open(os.path.join(layout, "index.json"), encoding="utf-8") as file:
            bundle = json.load(file)["manifests"][0]["digest"].split(":")[1]
        with open(os.path.join(layout, "blobs", "sha256", bundle), encoding="utf-8") as file:
            root = json.load(file)["manifests"][0]["digest"].split(":")[1]
        with open(os.path.join(layout, "blobs", "sha256", root), encoding="utf-8") as file:
            index = json.load(file)["layers"][0]["size"]
        for module in range(0, modules, 10):
            compile_module(inputs, module, 2)
        build(symseal, inputs, "2.0", layout, cores)
        after = stored(layout)
        new = {name: size for name, size in after.items() if name not in before}
        print(f"modules                 {len(report['modules'])}")
        for jobs, (seconds, memory) in sorted(best.items()):
            print(f"{jobs} job(s)                {seconds:.2f} s, peak {memory / 1e6:.0f} MB")
        if cores > 1:
            print(f"speed-up by {cores} processors {best[1][0] / best[cores][0]:.2f}")
        print(f"symbol_index.json       {index} bytes, {index / modules:.0f} a module")
        print(f"first release           {len(before)} blobs, {sum(before.values())} bytes")
        print(f"10 % changed adds       {len(new)} blobs, {sum(new.values())} bytes")


main()
