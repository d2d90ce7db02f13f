#!/usr/bin/env python3
"""Symbol tables of whole files, beside symbolic's SymCache and llvm-gsymutil, in one run.

    benches/symbols/against_gsymutil.py BENCH NAME=BINARY[,DEBUG-FILE]... [--rounds N] [--json]

BENCH is `benches/target/release/symseal-bench-symbols`. Each build is a process of its own with one thread; the three take turns, and each figure is
the least of the rounds. CPU time is user and system time: of `.symx` and SymCache of reading and writing alone, as BENCH prints it, which leaves out the
digest of the file that it takes besides; of llvm-gsymutil, which reads the debug file alone where there is one, of the whole process, and what it takes to
start (`--version`) is shown apart. `symx_process` is the whole process of ours, that digest and its start among it. Memory is the most of the process.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile


def measured(command):
    """CPU milliseconds that a command says, or else its own, CPU milliseconds of its whole process, and its peak MB. It must succeed."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    said = re.search(r"(\d+) ms of CPU time", child.stdout.read())
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)}: status {status}")
    whole = (usage.ru_utime + usage.ru_stime) * 1000
    return int(said.group(1)) if said else whole, whole, usage.ru_maxrss / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("subjects", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = (shutil.which(name) for name in ["llvm-gsymutil-19", "llvm-gsymutil"])
    gsymutil = next((path for path in found if path), None)
    if gsymutil is None:
        sys.exit("llvm-gsymutil is not on the PATH (Debian: llvm-19)")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        start = min(measured([gsymutil, "--version"])[0] for _ in range(arguments.rounds))
        for subject in arguments.subjects:
            name, files = subject.split("=", 1)
            read = files.split(",")[-1]
            commands = {
                "symx": [arguments.bench, "--build", "symx", subject],
                "symcache": [arguments.bench, "--build", "symcache", subject],
                "gsymutil": [gsymutil, f"--convert={read}", f"--out-file={folder}/out", "--num-threads=1"],
            }
            best = {}
            for _ in range(arguments.rounds):
                for which, command in commands.items():
                    best.setdefault(which, []).append(measured(command))
            least = {which: [min(column) for column in zip(*runs)] for which, runs in best.items()}
            row = {"subject": name, "gsymutil_start_ms": round(start, 1)}
            for which, (cpu, _, peak) in least.items():
                row |= {f"{which}_ms": round(cpu, 1), f"{which}_mb": round(peak, 1)}
            row["symx_process_ms"] = round(least["symx"][1], 1)
            row["against_symcache"] = round(least["symx"][0] / least["symcache"][0], 2)
            row["against_gsymutil"] = round(least["symx"][0] / least["gsymutil"][0], 2)
            row["process_against_gsymutil"] = round(least["symx"][1] / least["gsymutil"][1], 2)
            rows.append(row)
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    columns = list(rows[0])
    print("| " + " | ".join(columns) + " |\n| --- |" + " ---: |" * (len(columns) - 1))
    for row in rows:
        print("| " + " | ".join(str(row[column]) for column in columns) + " |")


if __name__ == "__main__":
    main()
