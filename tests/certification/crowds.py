#!/usr/bin/env python3
"""A crowd before one server: clients that read slowly, connections that say nothing, a flood of referrers, then mixed load for a while.

    crowds.py SYMSEAL SLOW IDLE REFERRERS SOAK_SECONDS

SLOW clients take a 16 MiB blob a few bytes at a time and IDLE connections send nothing, while a debugger asks for a file again and again: each
answer must be right and come within a second. The memory that the server allocates (RssAnon of proc(5); mapped blobs are the page cache's) must stay
below 64 KiB for each slow client, 16 KiB for each idle connection and 64 MiB besides, and what the kernel takes for TCP, of the server and of its clients,
below 512 KiB for each slow client and 64 MiB besides. Slow clients that read on in the end get the whole blob. REFERRERS
manifests are pushed for one subject: the list is complete, in pages, and others are answered meanwhile. Then clients push, pull, ask
and delete for SOAK_SECONDS, files and bundles, whose debug files, sections and names they ask for in between: what the server allocates in the last
quarter is at most 16 MiB more than in the second.
Prints one JSON object and exits with 1 if anything did not hold.
"""

import asyncio
import hashlib
import json
import os
import random
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import registry
from registry import EMPTY, MANIFEST, artifact, sha256

BLOB = 16 << 20
DESCRIPTORS_BESIDE = 200
# Of the mixed load.
CLIENTS = 4
# The longest that a debugger may wait for its answer, in seconds.
PATIENCE = 1


class Server:
    def __init__(self, program, data):
        self.process = subprocess.Popen([program, "serve", "--data", data, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        self.address = self.process.stdout.readline().rsplit("://", 1)[1].strip()
        self.host, port = self.address.rsplit(":", 1)
        self.port = int(port)

    def allocated(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status).group(1)) << 10

    @staticmethod
    def kernel():
        """What the kernel holds for all TCP connections of this machine, in bytes."""
        pages = re.search(r"^TCP:.* mem (\d+)", Path("/proc/net/sockstat").read_text(), re.M).group(1)
        return int(pages) * resource.getpagesize()

    def request(self, method, path, body=None, headers=None):
        return registry.request(self.address, method, path, body, headers)

    def push(self, repository, data):
        digest = sha256(data)
        status, _, text = self.request("POST", f"/v2/{repository}/blobs/uploads/?digest={digest}", data)
        if status == 202:
            raise SystemExit("uploads in one request are refused")
        assert status == 201, (status, text)
        return digest

    def manifest(self, repository, reference, layers):
        data = json.dumps(artifact(layers)).encode()
        status, _, text = self.request("PUT", f"/v2/{repository}/manifests/{reference or sha256(data)}", data, {"Content-Type": MANIFEST})
        assert status == 201, (status, text)
        return {"mediaType": MANIFEST, "digest": sha256(data), "size": len(data)}


async def crowd(server, slow, idle, blob, build_id, expected, problems):
    """Opens everything, asks meanwhile, and lets some slow clients come to their end."""
    async def open_slow():
        # A small window, so that the kernel does not take the blob for the client: both ends are on this machine, which has no memory for that.
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (server.host, server.port))
        reader, writer = await asyncio.open_connection(sock=connection, limit=4096)
        writer.write(f"GET /v2/crowd/blobs/{blob} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        start = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in start.split(b"\r\n", 1)[0]:
            problems.append(f"a slow client is answered {start[:60]!r}")
        return reader, writer, hashlib.sha256()

    readers = []
    for at in range(0, slow, 50):
        readers += await asyncio.gather(*(open_slow() for _ in range(min(50, slow - at))))
    silent = []
    for at in range(0, idle, 200):
        silent += await asyncio.gather(*(asyncio.open_connection(server.host, server.port) for _ in range(min(200, idle - at))))

    times, most, kernel = [], 0, 0
    for _ in range(100):
        for reader, _, received in random.sample(readers, min(20, len(readers))):
            received.update(await reader.read(16))
        started = time.monotonic()
        status, _, data = await asyncio.to_thread(server.request, "GET", f"/buildid/{build_id}/debuginfo")
        times.append(time.monotonic() - started)
        if status != 200 or data != expected:
            problems.append(f"in a crowd a debugger is answered {status}, {len(data)} bytes")
        most, kernel = max(most, server.allocated()), max(kernel, server.kernel())
    ended = 0
    for reader, writer, received in readers:
        if ended < 10:
            received.update(await reader.read(-1))
            if "sha256:" + received.hexdigest() != blob:
                problems.append("a slow client got another blob in the end, or a part of it")
            ended += 1
        writer.close()
    for _, writer in silent:
        writer.close()
    return times, most, kernel


class Debugger:
    """Asks for a file again and again, until it is stopped."""

    def __init__(self, server, build_id, expected, problems):
        self.ask = lambda: server.request("GET", f"/buildid/{build_id}/debuginfo")
        self.expected, self.problems, self.times = expected, problems, []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.stopped.is_set():
            started = time.monotonic()
            try:
                status, _, data = self.ask()
            except Exception as error:
                status, data = repr(error), b""
            self.times.append(time.monotonic() - started)
            if status != 200 or data != self.expected:
                self.problems.append(f"in a flood a debugger is answered {status}, {len(data)} bytes")
                return

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join()


def flood(server, subject, referrers, problems):
    for number in range(referrers):
        data = referrer(subject, number)
        status, _, text = server.request("PUT", f"/v2/crowd/manifests/{sha256(data)}", data, {"Content-Type": MANIFEST})
        if status != 201:
            problems.append(f"a referrer is answered {status}: {text[:200]!r}")
            break
    seen, path = set(), f"/v2/crowd/referrers/{subject['digest']}"
    while path:
        status, headers, data = server.request("GET", path)
        if status != 200:
            problems.append(f"referrers are {status}")
            return len(seen)
        seen |= {entry["digest"] for entry in json.loads(data)["manifests"]}
        link = re.match(r"<([^>]+)>", headers.get("Link") or "")
        path = link and link.group(1)
    if len(seen) != referrers:
        problems.append(f"{len(seen)} of {referrers} referrers are listed")
    return len(seen)


def referrer(subject, number):
    return json.dumps({
        "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": "application/vnd.example.note", "annotations": {"number": str(number)},
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": sha256(EMPTY), "size": 2}, "layers": [], "subject": subject,
    }).encode()


class Release:
    """A bundle of one program that a client of its own pushes again and again."""

    FUNCTION = "asked_for_under_load"

    def __init__(self, program, folder, number):
        self.program, self.layout, self.repository = program, folder / f"bundle-{number}", f"soak-{number}/app"
        source, binary = folder / f"app-{number}.c", folder / f"app-{number}"
        source.write_text(f"int {self.FUNCTION}(int x) {{ return x * {number + 3}; }}\nint main(int n, char **v) {{ (void)v; return {self.FUNCTION}(n); }}\n")
        self.build_id = f"50{number:02x}" + "ab" * 18
        subprocess.run(["cc", "-g", "-O0", source, "-o", binary, f"-Wl,--build-id=0x{self.build_id}"], check=True)
        built = subprocess.run([program, "bundle", "build", binary, "--name", "app", "--version", "1", "--json", "--output", self.layout],
                               check=True, stdout=subprocess.PIPE)
        self.digest = json.loads(built.stdout)["bundle"]
        # Breakpad's id: the first 16 bytes as a GUID of Windows, and an age of zero.
        guid = bytes.fromhex(self.build_id)[:16]
        self.breakpad_id = (guid[3::-1] + guid[5:3:-1] + guid[7:5:-1] + guid[8:]).hex().upper() + "0"
        symbols = subprocess.run(["nm", binary], check=True, stdout=subprocess.PIPE, text=True).stdout
        self.address = int(re.search(rf"^(\w+) T {self.FUNCTION}$", symbols, re.M).group(1), 16)
        self.binary = binary.read_bytes()

    def go_through(self, server):
        """Pushes, asks and deletes; what was wrong."""
        subprocess.run([self.program, "bundle", "push", self.layout, f"{server.address}/{self.repository}:1"], check=True, stdout=subprocess.DEVNULL)
        stacks = {"jobs": [{"memoryMap": [["app", self.breakpad_id]], "stacks": [[[0, self.address]]]}]}
        asked = [server.request("GET", f"/buildid/{self.build_id}/executable"), server.request("GET", f"/buildid/{self.build_id}/section/.debug_line"),
                 server.request("POST", "/symbolicate/v5", json.dumps(stacks).encode(), {"Content-Type": "application/json"}),
                 server.request("DELETE", f"/v2/{self.repository}/manifests/{self.digest}")]
        wrong = [f"{status}" for (status, _, _), expected in zip(asked, [200, 200, 200, 202]) if status != expected]
        if asked[0][2] != self.binary:
            wrong.append(f"{len(asked[0][2])} of {len(self.binary)} bytes of a program")
        if self.FUNCTION.encode() not in asked[2][2]:
            wrong.append(f"no name: {asked[2][2][:200]!r}")
        return wrong, len(asked) + 1


def soak(server, seconds, build_id, releases, problems):
    stop, counts, lock = time.monotonic() + seconds, {"requests": 0, "bundles": 0}, threading.Lock()

    def client(seed):
        try:
            work(random.Random(seed), releases[seed])
        # Whatever ends a client is found: its thread would end without a word.
        except (Exception, SystemExit) as error:
            problems.append(f"under load a client ended: {error!r}")

    def work(rng, release):
        while time.monotonic() < stop:
            if rng.randrange(4) == 0:
                wrong, requests = release.go_through(server)
                if wrong:
                    problems.append(f"under load, of a bundle: {wrong}")
                    return
                with lock:
                    counts["requests"] += requests
                    counts["bundles"] += 1
            data = rng.randbytes(rng.choice([100, 10_000, 1_000_000]))
            tag = f"s{rng.randrange(50)}"
            digest = server.push("soak", data)
            server.push("soak", EMPTY)
            pushed = server.manifest("soak", tag, [(digest, len(data))])
            asked = [server.request("GET", f"/v2/soak/blobs/{digest}"), server.request("GET", f"/buildid/{build_id}/debuginfo"),
                     server.request("GET", f"/buildid/{rng.randbytes(20).hex()}/debuginfo"), server.request("GET", "/search?q=app"),
                     server.request("DELETE", f"/v2/soak/manifests/{pushed['digest']}")]
            wrong = [status for (status, _, _), expected in zip(asked, [200, 200, 404, 200, 202]) if status != expected]
            if asked[0][2] != data or wrong:
                problems.append(f"under load: {wrong}, {len(asked[0][2])} of {len(data)} bytes")
                return
            with lock:
                counts["requests"] += 8

    clients = [threading.Thread(target=client, args=(seed,)) for seed in range(len(releases))]
    for each in clients:
        each.start()
    samples = []
    while time.monotonic() < stop:
        time.sleep(min(0.2, seconds / 40))
        samples.append(server.allocated())
    for each in clients:
        each.join()
    quarter = max(1, len(samples) // 4)
    growth = statistics.median(samples[-quarter:]) - statistics.median(samples[quarter:2 * quarter])
    if growth > 16 << 20:
        problems.append(f"the server allocates {growth / 2**20:.1f} MiB more than before")
    return counts, growth


def main():
    program = os.path.abspath(sys.argv[1])
    slow, idle, referrers, seconds = map(int, sys.argv[2:6])
    wanted, (_, most) = slow + idle + DESCRIPTORS_BESIDE, resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < wanted:
        # As large a crowd as this machine lets one process be; the figures say how large.
        print(f"{wanted} open files are needed, {most} are allowed (ulimit -Hn): the crowd is smaller", file=sys.stderr)
        share = max(0, most - DESCRIPTORS_BESIDE) / (slow + idle)
        slow, idle, wanted = int(slow * share), int(idle * share), most
    work = Path(tempfile.mkdtemp(prefix="symseal-crowds-"))
    problems = []
    try:
        os.environ["XDG_DATA_HOME"] = str(work / "home")
        source, binary = work / "app.c", work / "app"
        source.write_text("int main(void) { return 0; }\n")
        build_id = "abcd1234"
        subprocess.run(["cc", "-g", source, "-o", binary, f"-Wl,--build-id=0x{build_id}"], check=True)
        # The server is started with the usual limit, and raises it by itself.
        server = Server(program, work / "data")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
        subprocess.run([program, "upload", "--to", f"http://{server.address}", binary], check=True, stdout=subprocess.DEVNULL)
        server.push("crowd", EMPTY)
        blob = server.push("crowd", random.Random(1).randbytes(BLOB))
        subject = server.manifest("crowd", "one", [(blob, BLOB)])
        before, kernel_before = server.allocated(), server.kernel()
        times, most, kernel = asyncio.run(crowd(server, slow, idle, blob, build_id, binary.read_bytes(), problems))
        allowed = slow * (64 << 10) + idle * (16 << 10) + (64 << 20)
        if most - before > allowed:
            problems.append(f"a crowd costs {(most - before) / 2**20:.1f} MiB, more than {allowed / 2**20:.1f}")
        allowed = slow * (512 << 10) + (64 << 20)
        if kernel - kernel_before > allowed:
            problems.append(f"a crowd costs the kernel {(kernel - kernel_before) / 2**20:.1f} MiB, more than {allowed / 2**20:.1f}")
        if max(times) > PATIENCE:
            problems.append(f"a debugger waited {max(times):.2f} s in a crowd")
        with Debugger(server, build_id, binary.read_bytes(), problems) as debugger:
            listed = flood(server, subject, referrers, problems)
        if not debugger.times or max(debugger.times) > PATIENCE:
            problems.append(f"a debugger waited {max(debugger.times, default=0):.2f} s in a flood of referrers")
        counts, growth = soak(server, seconds, build_id, [Release(program, work, number) for number in range(CLIENTS)], problems)
        server.process.terminate()
        server.process.wait()
        print(json.dumps({
            "slow": slow, "idle": idle, "allocated_mib": round((most - before) / 2**20, 1),
            "kernel_mib": round((kernel - kernel_before) / 2**20, 1),
            "answer_ms": {"median": round(statistics.median(times) * 1e3, 1), "most": round(max(times) * 1e3, 1)},
            "referrers": listed, "answers_in_flood": len(debugger.times),
            "most_in_flood_ms": round(max(debugger.times, default=0) * 1e3, 1), "soak": {"seconds": seconds, **counts, "growth_mib": round(growth / 2**20, 1)},
            "problems": problems[:20],
        }))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if problems else 0)


main()
