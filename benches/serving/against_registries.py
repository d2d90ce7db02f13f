#!/usr/bin/env python3
"""Our registry, zot and distribution, side by side: many small files, few huge ones, and single blobs under load.

    benches/serving/against_registries.py SYMSEAL [--zot PROGRAM] [--distribution PROGRAM] [--oras PROGRAM]
        [--files 2000] [--huge 10] [--rounds 3] [--seconds 3] [--json]

Takes oras, wrk and Linux; a peer whose program is not given is left out. Each server runs on processor 0, on an empty directory
in every round, and oras or wrk on processor 1. All of them sync a blob before they acknowledge it: ours always, zot by
"commit": true, distribution by its file system driver. zot without deduplication and collection, distribution without its log of
requests: their fastest settings.

Small files: one image index over manifests of 250 layers, sizes spread evenly by their logarithm from 5 KB to 1 MB, bytes random.
Huge files: 1 GiB each, one after the other, POST and a streamed PUT, then read again.
"""

import argparse
import hashlib
import http.client
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

from measuring import CONNECTIONS, cpu_seconds, free_port, load, peak_mib, wait_for

LAYERS_OF_A_MANIFEST = 250
OCI = "application/vnd.oci.image"
GIB = 1 << 30
PIECE = 1 << 20


def start_ours(program, folder):
    command = ["taskset", "-c", "0", program, "serve", "--data", str(folder / "data"), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return process, process.stdout.readline().rsplit(" ", 1)[-1].strip()


def start_zot(program, folder):
    port = free_port()
    storage = {"rootDirectory": str(folder / "data"), "commit": True, "dedupe": False, "gc": False}
    server = {"address": "127.0.0.1", "port": str(port), "readTimeout": "10m", "writeTimeout": "10m"}
    settings = {"distSpecVersion": "1.1.1", "storage": storage, "http": server, "log": {"level": "error", "output": "/dev/null"}}
    (folder / "zot.json").write_text(json.dumps(settings))
    command = ["taskset", "-c", "0", program, "serve", str(folder / "zot.json")]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), f"http://127.0.0.1:{port}"


def start_distribution(program, folder):
    port = free_port()
    (folder / "registry.yml").write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {folder / 'data'}}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\nlog: {{level: error, accesslog: {{disabled: true}}}}\n"
    )
    command = ["taskset", "-c", "0", program, "serve", str(folder / "registry.yml")]
    environment = dict(os.environ, OTEL_TRACES_EXPORTER="none")
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment), f"http://127.0.0.1:{port}"


def write_blob(layout, body):
    digest = hashlib.sha256(body).hexdigest()
    (layout / "blobs/sha256" / digest).write_bytes(body)
    return digest


def descriptor(layout, body, kind):
    return {"mediaType": kind, "digest": f"sha256:{write_blob(layout, body)}", "size": len(body)}


def make_layout(layout, files):
    """An OCI layout with the small files under the tag `v1`; gives the digest of a blob of middle size."""
    (layout / "blobs/sha256").mkdir(parents=True)
    (layout / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    chance = random.Random(42)
    layers = [descriptor(layout, chance.randbytes(int(5_000 * 200 ** chance.random())), "application/octet-stream") for _ in range(files)]
    config = descriptor(layout, b"{}", "application/vnd.oci.empty.v1+json")
    manifests = []
    for first in range(0, files, LAYERS_OF_A_MANIFEST):
        manifest = {"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json", "artifactType": "application/x.small", "config": config}
        manifest["layers"] = layers[first : first + LAYERS_OF_A_MANIFEST]
        manifests.append(descriptor(layout, json.dumps(manifest).encode(), manifest["mediaType"]))
    index = {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": manifests}
    top = descriptor(layout, json.dumps(index).encode(), index["mediaType"])
    top["annotations"] = {"org.opencontainers.image.ref.name": "v1"}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [top]}))
    by_size = sorted(layers, key=lambda layer: layer["size"])
    return by_size[len(by_size) // 2], sum(layer["size"] for layer in layers)


def taken(process, action):
    """Seconds of the wall, and the server's processor seconds."""
    before, began = cpu_seconds(process.pid), time.monotonic()
    action()
    return time.monotonic() - began, cpu_seconds(process.pid) - before


def oras_copy(oras, *arguments):
    command = ["taskset", "-c", "1", oras, "cp", "--no-tty", "--concurrency", "8", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def small_files(oras, layout, folder, process, base):
    target = base.removeprefix("http://") + "/bench/small:v1"
    found = {}
    push = ["--from-oci-layout", f"{layout}:v1", "--to-plain-http", target]
    found["push"] = taken(process, lambda: oras_copy(oras, *push))
    found["push again"] = taken(process, lambda: oras_copy(oras, *push))
    pulled = folder / "pulled"
    found["pull"] = taken(process, lambda: oras_copy(oras, "--from-plain-http", target, "--to-oci-layout", f"{pulled}:v1"))
    names = sorted(path.name for path in (pulled / "blobs/sha256").iterdir())
    if names != sorted(path.name for path in (layout / "blobs/sha256").iterdir()):
        sys.exit(f"{base}: what was pulled is not what was pushed")
    shutil.rmtree(pulled)
    return found


def huge_pieces(number, size):
    """The bytes of one huge file: no two pieces are alike, and making them costs little."""
    piece = bytearray(random.Random(number).randbytes(PIECE))
    for at in range(size // PIECE):
        piece[:8] = at.to_bytes(8, "little")
        yield bytes(piece)


def huge_files(process, base, count, size=GIB):
    host = urllib.parse.urlsplit(base).netloc
    digests = []
    for number in range(count):
        hashed = hashlib.sha256()
        for piece in huge_pieces(number, size):
            hashed.update(piece)
        digests.append("sha256:" + hashed.hexdigest())

    def ask(method, path, **more):
        connection = http.client.HTTPConnection(host, timeout=600)
        connection.request(method, path, **more)
        return connection.getresponse()

    def push():
        for number, digest in enumerate(digests):
            place = urllib.parse.urlsplit(ask("POST", "/v2/bench/huge/blobs/uploads/").getheader("Location"))
            query = "&".join(part for part in [place.query, f"digest={digest}"] if part)
            headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
            answer = ask("PUT", f"{place.path}?{query}", body=huge_pieces(number, size), headers=headers)
            if answer.status != 201:
                sys.exit(f"{base}: {answer.status} {answer.read()[:200]} for a huge blob")

    def pull():
        for digest in digests:
            answer, read = ask("GET", f"/v2/bench/huge/blobs/{digest}"), 0
            while piece := answer.read(PIECE):
                read += len(piece)
            if read != size:
                sys.exit(f"{base}: {read} bytes of a huge blob")

    found = {"push": taken(process, push)}
    found["pull"] = taken(process, pull)
    return found


def one_server(start, program, what):
    """A server on an empty directory, what is done with it, and its memory at the highest."""
    with tempfile.TemporaryDirectory(prefix="registry-") as name:
        folder = Path(name)
        process, base = start(program, folder)
        try:
            wait_for(base + "/v2/")
            return what(folder, process, base), peak_mib(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("symseal")
    parser.add_argument("--zot")
    parser.add_argument("--distribution")
    parser.add_argument("--oras", default="oras")
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--huge", type=int, default=10, help="files of 1 GiB; 0 leaves them out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3, help="of load for each figure; 0 leaves it out")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    servers = {"symseal": (start_ours, arguments.symseal)}
    if arguments.zot:
        servers["zot"] = (start_zot, arguments.zot)
    if arguments.distribution:
        servers["distribution"] = (start_distribution, arguments.distribution)

    report = {}
    with tempfile.TemporaryDirectory() as name:
        layout = Path(name) / "layout"
        middle, total = make_layout(layout, arguments.files)
        small = {server: [] for server in servers}
        loads = {server: [] for server in servers}

        def with_load(folder, process, base):
            found = small_files(arguments.oras, layout, folder, process, base)
            peak = peak_mib(process.pid)
            rows = []
            for connections in CONNECTIONS if arguments.seconds else []:
                for what, path in [("blob", f"/v2/bench/small/blobs/{middle['digest']}"), ("manifest", "/v2/bench/small/manifests/v1")]:
                    before = cpu_seconds(process.pid)
                    rate, p50, p99, requests = load(base, path, connections, arguments.seconds)
                    rows.append((what, connections, (cpu_seconds(process.pid) - before) / max(requests, 1) * 1e6, rate, p50, p99))
            return found, peak, rows

        for _ in range(arguments.rounds):
            for server, (start, program) in servers.items():
                (found, peak, rows), _ = one_server(start, program, with_load)
                small[server].append((found, peak))
                loads[server].append(rows)
        report["small"] = {
            server: {
                **{step: [statistics.median(found[step][part] for found, _ in rounds) for part in (0, 1)] for step in rounds[0][0]},
                "peak_mib": max(peak for _, peak in rounds),
            }
            for server, rounds in small.items()
        }
        report["load"] = {
            server: [
                {"what": row[0], "connections": row[1], "values": [statistics.median(values) for values in zip(*(rows[at][2:] for rows in rounds))]}
                for at, row in enumerate(rounds[0])
            ]
            for server, rounds in loads.items()
        }
    if arguments.huge:
        report["huge"] = {}
        for server, (start, program) in servers.items():
            found, peak = one_server(start, program, lambda _, process, base: huge_files(process, base, arguments.huge))
            report["huge"][server] = {**found, "peak_mib": peak}

    if arguments.json:
        print(json.dumps(report, indent=1))
        return
    print(f"{arguments.files:,} files of {total / 1e6:,.0f} MB in all, and {arguments.huge} of 1 GiB; seconds, and processor seconds of the server\n")
    print("| server | push | push again | pull | peak MiB | push of 1 GiB files | pull of them | peak MiB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for server, row in report["small"].items():
        huge = report.get("huge", {}).get(server)
        cells = ["{:.2f}, {:.2f}".format(*row[step]) for step in ("push", "push again", "pull")] + [f"{row['peak_mib']:.0f}"]
        cells += ["{:.1f}, {:.1f}".format(*huge["push"]), "{:.1f}, {:.1f}".format(*huge["pull"]), f"{huge['peak_mib']:.0f}"] if huge else ["", "", ""]
        print(f"| {server} | " + " | ".join(cells) + " |")
    print(f"\n| asked for ({middle['size']:,} bytes, or the tag) | connections | server | CPU a request | requests a second | p50, p99 ms |")
    print("| --- | ---: | --- | ---: | ---: | ---: |")
    for at in range(len(next(iter(report["load"].values())))):
        for server, rows in report["load"].items():
            row = rows[at]
            cost, rate, p50, p99 = row["values"]
            print(f"| {row['what']} | {row['connections']} | {server} | {cost:.0f} µs | {rate:,.0f} | {p50:.2f}, {p99:.2f} |")


if __name__ == "__main__":
    main()
