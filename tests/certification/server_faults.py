#!/usr/bin/env python3
"""Takes away what a server stands on while clients push and read, gives it back, and audits what is left. The server is never restarted.

    server_faults.py SYMSEAL SECONDS SEED

On PostgreSQL and S3: the object store hangs (SIGSTOP) for SECONDS, is gone for SECONDS, the database is gone for SECONDS, and then it is restarted
ten times in a row. On SQLite and a directory: the disk, a tmpfs, is full for SECONDS.
Meanwhile nobody may be told that something is not there that was acknowledged: the symbol endpoints answer with the right bytes or break the
connection off (a 404, 429 or 503 would stay in a debugger's cache), the registry answers with the right bytes or says 5xx. Within BACK seconds
after it is given back the server must say that it is ready and take a push; then all that was acknowledged must be there byte by byte, and what is
offered must be whole. Its memory stays below MEMORY throughout.
Prints one JSON object and exits with 1 if anything did not hold, and with 3, and why, where there is no PostgreSQL, no versitygw (PATH) or no root,
who mounts the disk.
"""

import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from registry import request, sha256
from replica_kills import Objects, Postgres, free_port, wait_for
from server_kills import Pushes, Server, acknowledged, audit, get, make_material

# In seconds: what waits for a store gives up after five to thirty.
BACK = 30.0
# In bytes.
MEMORY = 512 << 20
DISK = 192 << 20
CLIENTS, READERS = 3, 2


class Pressed(Pushes):
    """Clients that go on whatever they are told."""

    def __init__(self, program, material):
        super().__init__(program, material)
        self.reads = {"whole": 0, "refused": 0}

    def client(self, address, seed, stop):
        rng = random.Random(seed)
        acts = [self.push_artifact, self.push_artifact, self.push_bundle, self.upload]
        while not stop.is_set():
            try:
                rng.choice(acts)(address, rng)
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)

    def reader(self, address, seed, stop, problems):
        rng = random.Random(seed)
        while not stop.is_set():
            with self.lock:
                blobs, bundles = list(self.blobs), list(self.bundles)
            if bundles and rng.random() < 0.5:
                build_id, digest = rng.choice(list(rng.choice(bundles)[2].items()))
                path, may_say = f"/buildid/{build_id}/debuginfo", ()
            elif blobs:
                digest = rng.choice(blobs)
                path, may_say = f"/v2/plain/blobs/{digest}", (500, 503)
            else:
                time.sleep(0.05)
                continue
            try:
                status, _, data = request(address, "GET", path)
            except (OSError, http.client.HTTPException):
                self.count_read("refused")
                continue
            if status == 200 and sha256(data) == digest:
                self.count_read("whole")
            elif status in may_say:
                self.count_read("refused")
            else:
                problems.append(f"{path} is {status}: {data[:200]}")
                return

    def count_read(self, how):
        with self.lock:
            self.reads[how] += 1


def is_ready(address):
    try:
        return request(address, "GET", "/readyz", timeout=10)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def peak_memory(server):
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) << 10


class Told:
    """What came of each fault."""

    def __init__(self, rng):
        self.rng, self.faults, self.problems = rng, {}, []

    def round(self, name, server, pushes, fault):
        """Clients at work before, during and after the fault."""
        stop, problems = threading.Event(), self.problems
        clients = [threading.Thread(target=pushes.client, args=(server.address, self.rng.random(), stop)) for _ in range(CLIENTS)]
        clients += [threading.Thread(target=pushes.reader, args=(server.address, self.rng.random(), stop, problems)) for _ in range(READERS)]
        pushes.reads = {"whole": 0, "refused": 0}
        for client in clients:
            client.start()
        # There is something to read before anything is taken away.
        wait_for("pushes", lambda: len(pushes.blobs) > 20 and pushes.bundles)
        time.sleep(1)
        before = len(pushes.manifests)
        fault()
        during, given_back = len(pushes.manifests) - before, time.monotonic()
        while not is_ready(server.address) or len(pushes.manifests) - before == during:
            if time.monotonic() - given_back > BACK:
                problems.append(f"{name}: {BACK:.0f} s after it was over the server does not take a push")
                break
            time.sleep(0.05)
        back = time.monotonic() - given_back
        stop.set()
        for client in clients:
            client.join()
        if server.process.poll() is not None:
            problems.append(f"{name}: the server ended with {server.process.returncode}")
            return
        audit(server.address, pushes, problems)
        self.faults[name] = {"pushed_meanwhile": during, "reads": pushes.reads, "back_after_seconds": round(back, 2), "peak_memory": peak_memory(server)}
        if peak_memory(server) > MEMORY:
            problems.append(f"{name}: the server took {peak_memory(server)} bytes of memory")
        # Long runs look at the newest.
        for old in list(pushes.blobs)[:-200]:
            del pushes.blobs[old]


def on_stores(program, work, seconds, told, material):
    postgres = Postgres(work / "postgres")
    objects = Objects(work / "objects")
    server = None
    try:
        environment = os.environ | objects.environment() | {"SYMSEAL_SERVER_DATABASE": postgres.url}
        # Little is cached, so that readers need the store.
        environment["SYMSEAL_SERVER_S3__CACHE_MIB"] = "8"
        more = ["--blobs", f"s3://{objects.BUCKET}/team", "--gc-interval", "5s"]
        server = Server(program, work / "data", f"127.0.0.1:{free_port()}", more, environment)
        pushes = Pressed(program, material)

        def hangs():
            objects.server.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            objects.server.send_signal(signal.SIGCONT)

        def store_gone():
            objects.end()
            time.sleep(seconds)
            objects.start()

        def database_gone():
            postgres.end()
            time.sleep(seconds)
            postgres.start()

        def database_restarted():
            for _ in range(10):
                postgres.end()
                postgres.start()
                time.sleep(1)

        told.round("the object store hangs", server, pushes, hangs)
        told.round("the object store is gone", server, pushes, store_gone)
        told.round("the database is gone", server, pushes, database_gone)
        told.round("the database is restarted ten times", server, pushes, database_restarted)
    finally:
        if server is not None:
            server.kill()
        objects.end()
        postgres.end()


def on_disk(program, work, seconds, told, material):
    disk = work / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", disk], check=True)
    server = None
    try:
        server = Server(program, disk / "data", f"127.0.0.1:{free_port()}", ["--gc-interval", "5s"])
        pushes = Pressed(program, material)

        def full():
            ended = time.monotonic() + seconds
            with open(disk / "filler", "wb", buffering=0) as filler:
                while time.monotonic() < ended:
                    try:
                        filler.write(bytes(4096))
                    except OSError:
                        time.sleep(0.001)
            os.remove(disk / "filler")

        told.round("the disk is full", server, pushes, full)
    finally:
        if server is not None:
            server.kill()
        subprocess.run(["umount", "--lazy", disk], check=True)


def main():
    program, seconds, seed = os.path.abspath(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    if os.geteuid() != 0:
        print("the disk that gets full is mounted by root alone")
        sys.exit(3)
    told = Told(random.Random(seed))
    work = Path(tempfile.mkdtemp(prefix="symseal-server-faults-"))
    work.chmod(0o755)
    try:
        os.environ["XDG_DATA_HOME"] = str(work / "home")
        material = make_material(program, work)
        on_stores(program, work, seconds, told, material)
        on_disk(program, work, seconds, told, material)
        for name, fault in told.faults.items():
            if not fault["reads"]["whole"]:
                told.problems.append(f"{name}: nothing was read, so nothing is shown")
        print(json.dumps({"seconds": seconds, "faults": told.faults, "problems": told.problems[:20]}))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if told.problems else 0)


if __name__ == "__main__":
    main()
