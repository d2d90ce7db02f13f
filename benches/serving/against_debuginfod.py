#!/usr/bin/env python3
"""Our server and Debian's debuginfod, side by side, over the same debug files.

    benches/serving/against_debuginfod.py SYMSEAL FILE... [--rounds N] [--seconds S] [--in-place] [--nginx] [--json]

Takes wrk, debuginfod and Linux. Both servers run on processor 0 and wrk on processor 1; they take turns, and each figure is the
median of the rounds. CPU time is the server's own, user and system (proc(5)), for each request that was answered; it includes
waiting for nothing, so it is the figure that a busy machine disturbs least.

With --nginx a third server takes its turns at the 404: nginx with one worker, which looks nothing up and answers every request with 404.
What it takes is what receiving, sending and waking cost on this machine, and no server that does its work can take less.
"""

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measuring import CONNECTIONS, cpu_seconds, free_port, load, peak_mib, wait_for


def build_id(path):
    notes = subprocess.run(["readelf", "-n", path], capture_output=True, text=True).stdout
    found = re.search(r"Build ID: ([0-9a-f]+)", notes)
    return found and found.group(1)


def start_debuginfod(files, folder):
    port = free_port()
    command = ["taskset", "-c", "0", "debuginfod", "-d", str(folder / "index.sqlite"), "-p", str(port), "-t", "0", "-g", "0", "-F", str(files)]
    environment = {key: value for key, value in os.environ.items() if key != "DEBUGINFOD_URLS"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    return process, f"http://127.0.0.1:{port}"


def start_ours(symseal, files, folder, in_place):
    command = ["taskset", "-c", "0", symseal, "serve", "--data", str(folder / "data"), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command + (["--index", str(files)] if in_place else []), stdout=subprocess.PIPE, text=True)
    base = process.stdout.readline().rsplit(" ", 1)[-1].strip()
    if in_place:
        return process, base
    subprocess.run([symseal, "upload", str(files), "--to", base], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return process, base


def start_nginx(folder):
    port = free_port()
    configuration = folder / "nginx.conf"
    configuration.write_text(
        f"daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;"
        "events { worker_connections 512; }"
        "http { access_log off; keepalive_requests 1000000000;"
        f" server {{ listen 127.0.0.1:{port}; location / {{ return 404; }} location = /started {{ return 204; }} }} }}"
    )
    process = subprocess.Popen(["taskset", "-c", "0", "nginx", "-c", configuration], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    base = f"http://127.0.0.1:{port}"
    wait_for(base + "/started")
    return process, base


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("symseal")
    parser.add_argument("files", nargs="+", help="debug files; the smallest, the largest, and a section of the one in between are asked for")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--in-place", action="store_true", help="ours serves the files where they lie (--index), as debuginfod does; else they are uploaded")
    parser.add_argument("--nginx", action="store_true", help="measure also what a 404 costs a server that looks nothing up")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = folder / "files"
        files.mkdir()
        ids = {}
        for path in arguments.files:
            found = build_id(path)
            if not found:
                sys.exit(f"{path}: expected an ELF file with a build-id")
            copy = files / f"{found}.debug"
            shutil.copyfile(path, copy)
            ids[found] = copy.stat().st_size
        by_size = sorted(ids, key=ids.get)
        small, middle, large = by_size[0], by_size[len(by_size) // 2], by_size[-1]
        paths = {
            "404": "/buildid/00112233445566778899aabbccddeeff00112233/debuginfo",
            f"{ids[small]:,} bytes": f"/buildid/{small}/debuginfo",
            f"{ids[large]:,} bytes": f"/buildid/{large}/debuginfo",
            "section .debug_line": f"/buildid/{middle}/section/.debug_line",
        }
        servers = {}
        servers["debuginfod"] = start_debuginfod(files, folder)
        servers["symseal"] = start_ours(arguments.symseal, files, folder, arguments.in_place)
        floor = {"nginx": start_nginx(folder)} if arguments.nginx else {}
        try:
            for process, base in servers.values():
                for what, path in paths.items():
                    if what != "404":
                        wait_for(base + path)
            bodies = {what: {wait_for(base + path) for _, base in servers.values()} for what, path in paths.items() if what != "404"}
            for what, found in bodies.items():
                if len(found) != 1:
                    sys.exit(f"{what}: the servers' answers differ")
            rows = []
            for what, path in paths.items():
                for connections in CONNECTIONS:
                    asked = servers | floor if what == "404" else servers
                    taken = {name: [] for name in asked}
                    for _ in range(arguments.rounds):
                        for name, (process, base) in asked.items():
                            before = cpu_seconds(process.pid)
                            rate, p50, p99, requests = load(base, path, connections, arguments.seconds)
                            spent = cpu_seconds(process.pid) - before
                            taken[name].append((spent / max(requests, 1) * 1e6, rate, p50, p99))
                    medians = {name: [statistics.median(column) for column in zip(*values)] for name, values in taken.items()}
                    rows.append({"what": what, "connections": connections, **medians})
            peaks = {name: peak_mib(process.pid) for name, (process, _) in servers.items()}
        finally:
            for process, _ in (servers | floor).values():
                process.send_signal(signal.SIGTERM)
                process.wait()
    if arguments.json:
        print(json.dumps({"rows": rows, "peak_mib": peaks}, indent=1))
        return
    print("| asked for | connections | CPU a request, debuginfod | ours | ours / it | requests a second, debuginfod | ours | p50, p99 ms, debuginfod | ours |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        theirs, ours = row["debuginfod"], row["symseal"]
        print(
            f"| {row['what']} | {row['connections']} | {theirs[0]:.0f} µs | {ours[0]:.0f} µs | **{ours[0] / theirs[0]:.2f}** "
            f"| {theirs[1]:,.0f} | {ours[1]:,.0f} | {theirs[2]:.2f}, {theirs[3]:.2f} | {ours[2]:.2f}, {ours[3]:.2f} |"
        )
    for row in rows:
        if "nginx" in row:
            print(f"\nnginx, which answers everything with 404, {row['connections']} connections: {row['nginx'][0]:.0f} µs a request.")
    print(f"\nPeak memory: debuginfod {peaks['debuginfod']:.0f} MiB, ours {peaks['symseal']:.0f} MiB.")


if __name__ == "__main__":
    main()
