#!/usr/bin/env python3
"""How long "there is no such file" takes while archives are taken apart, by our server and by Debian's debuginfod.

    benches/serving/not_found_while_extracting.py SYMSEAL [--archives 8] [--members 24] [--rounds 3] [--seconds 5] [--json]

Takes a C compiler, tar, xz, debuginfod and Linux. Both servers index the same archives (tar.xz of one block, so that a member is reached through all
that lies before it) and have room for almost nothing that they extracted. Clients ask for one member after the other, each of another archive, while one client asks for
an id that nobody has, 200 times a second. Servers and clients share all processors, and the servers take turns.
"""

import argparse
import http.client
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path

from measuring import cpu_seconds, free_port, wait_for

ABSENT = "/buildid/00112233445566778899aabbccddeeff00112233/debuginfo"
PERIOD = 1 / 200
EXTRACTORS = 4


def plant(folder, archives, members):
    """Archives of programs with bytes that do not compress well; the ids in them."""
    source, ids = folder / "a.c", []
    source.write_text("int main(void) { return 0; }\n")
    random.seed(7)
    for archive in range(archives):
        names = []
        for member in range(members):
            build_id = f"{archive:04x}{member:04x}" + "ab" * 16
            program = folder / f"{build_id}.elf"
            command = ["cc", "-g", str(source), "-o", str(program), f"-Wl,--build-id=0x{build_id}"]
            subprocess.run(command, check=True)
            noise = folder / "noise"
            noise.write_bytes(random.randbytes(600_000).hex().encode())
            subprocess.run(["objcopy", "--add-section", f".noise={noise}", str(program)], check=True)
            names.append(program.name)
            ids.append(build_id)
        (folder / "pool").mkdir(exist_ok=True)
        packed = ["tar", "-C", str(folder), "-I", "xz -0 -T1", "-cf", str(folder / f"pool/{archive}.tar.xz"), *names]
        subprocess.run(packed, check=True)
        for name in names:
            (folder / name).unlink()
    # Of another archive each time.
    return [ids[archive * members + member] for member in range(members) for archive in range(archives)]


def start_ours(symseal, pool, folder):
    command = [symseal, "serve", "--data", str(folder / "data"), "--listen", "127.0.0.1:0", "--index", str(pool), "--cache-size", "3"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return process, process.stdout.readline().rsplit(" ", 1)[-1].strip()


def start_debuginfod(pool, folder):
    port = free_port()
    options = ["-t", "0", "-g", "0", "-Z", ".tar.xz=xz -dc", "--fdcache-mbs=1", "--fdcache-fds=1", "--fdcache-prefetch=0"]
    command = ["debuginfod", "-d", str(folder / "index.sqlite"), "-p", str(port), *options, str(pool)]
    environment = {key: value for key, value in os.environ.items() if key != "DEBUGINFOD_URLS"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    return process, f"http://127.0.0.1:{port}"


def connect(base):
    return http.client.HTTPConnection(urllib.parse.urlsplit(base).netloc, timeout=120)


def ask(connection, path):
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, len(answer.read())


def absences(base, seconds):
    """Milliseconds of each answer about a file that is not there."""
    times, connection, end = [], connect(base), time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        if ask(connection, ABSENT)[0] != 404:
            sys.exit("expected 404")
        took = time.monotonic() - began
        times.append(took * 1e3)
        time.sleep(max(0.0, PERIOD - took))
    return times


def while_extracting(base, ids, seconds):
    """The same while members are extracted; how many were."""
    stop, extracted = threading.Event(), [0] * EXTRACTORS

    def extract(number):
        connection, at = connect(base), number
        while not stop.is_set():
            if ask(connection, f"/buildid/{ids[at % len(ids)]}/executable")[0] != 200:
                sys.exit(f"expected the file of {ids[at % len(ids)]}")
            at += EXTRACTORS
            extracted[number] += 1

    threads = [threading.Thread(target=extract, args=(number,)) for number in range(EXTRACTORS)]
    for thread in threads:
        thread.start()
    times = absences(base, seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return times, sum(extracted)


def percentiles(times):
    times = sorted(times)
    return [times[int(len(times) * share)] for share in (0.5, 0.99)] + [times[-1]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("symseal")
    parser.add_argument("--archives", type=int, default=8)
    parser.add_argument("--members", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ids = plant(folder, arguments.archives, arguments.members)
        servers = {"debuginfod": start_debuginfod(folder / "pool", folder), "symseal": start_ours(arguments.symseal, folder / "pool", folder)}
        try:
            for _, base in servers.values():
                for build_id in ids[-arguments.archives :]:
                    wait_for(f"{base}/buildid/{build_id}/executable", 300)
            rows = {name: {"quiet": [], "extracting": []} for name in servers}
            work = {name: [] for name in servers}
            for _ in range(arguments.rounds):
                for name, (process, base) in servers.items():
                    rows[name]["quiet"].append(percentiles(absences(base, arguments.seconds)))
                    before = cpu_seconds(process.pid)
                    times, extracted = while_extracting(base, ids, arguments.seconds)
                    rows[name]["extracting"].append(percentiles(times))
                    work[name].append((extracted, cpu_seconds(process.pid) - before))
        finally:
            for process, _ in servers.values():
                process.send_signal(signal.SIGTERM)
                process.wait()
    medians = {name: {when: [statistics.median(column) for column in zip(*rounds)] for when, rounds in of.items()} for name, of in rows.items()}
    if arguments.json:
        print(json.dumps({"ms": medians, "extracted": work}, indent=1))
        return
    print("| server | p50, p99, most ms, quiet | while archives are extracted | members extracted a round |")
    print("| --- | ---: | ---: | ---: |")
    for name, of in medians.items():
        show = lambda figures: ", ".join(f"{figure:.2f}" for figure in figures)
        print(f"| {name} | {show(of['quiet'])} | {show(of['extracting'])} | {statistics.median(count for count, _ in work[name]):.0f} |")


if __name__ == "__main__":
    main()
