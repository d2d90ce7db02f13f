#!/usr/bin/env python3
"""Kills one of two servers on one PostgreSQL and one S3 at random instants while clients push and delete, and audits what both say.

    replica_kills.py SYMSEAL ROUNDS SEED

In each round clients push blobs (each request of an upload to the one server or the other), manifests with tags, bundles and files by themselves, and
delete manifests and bundles, until one of the servers, or both, is killed (SIGKILL) after a random time; where one is left they go on with that for a
moment. It is then started again. What either server acknowledged must at once be there on both, byte by byte. Within FRESH seconds both must say the same: the same
repositories and tags, the same manifest for each tag, the same file for each debug id, nothing that was deleted; and what they offer must be whole.
In the end a collection that takes everything that it may takes nothing that is named.
Prints one JSON object and exits with 1 if anything did not hold, and with 3, and why, where there is no PostgreSQL or no versitygw (PATH).
"""

import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from registry import EMPTY, MANIFEST, artifact, request, sha256
from server_kills import Pushes, Server, acknowledged, get, make_material, offered, tags

# Lists can be behind by the time that a signal takes, and where that is lost by two seconds: docs/operating.md.
FRESH = 5.0

# What a start may take: it reads the whole bucket.
START = 20.0

NOBODY = 65534


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def wait_for(what, is_so, seconds=60.0):
    started = time.monotonic()
    while not is_so():
        if time.monotonic() - started > seconds:
            raise SystemExit(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.05)


class Postgres:
    """On a Unix socket in a folder of its own. It refuses to run as root: then it runs as `nobody`."""

    def __init__(self, folder):
        versions = [path / "bin" for path in Path("/usr/lib/postgresql").glob("*")]
        paths = [Path(path) for path in os.environ.get("PATH", "").split(":")]
        found = [path for path in versions + paths if (path / "initdb").exists() and (path / "postgres").exists()]
        if not found:
            print("there is no PostgreSQL")
            raise SystemExit(3)
        self.programs, self.folder = found[0], folder
        folder.mkdir()
        self.user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        if self.user:
            os.chown(folder, NOBODY, NOBODY)
        data = folder / "data"
        subprocess.run([self.programs / "initdb", "--no-sync", "--encoding=UTF8", "--locale=C", "--auth=trust", "--username=symseal", "-D", data],
                       check=True, stdout=subprocess.DEVNULL, cwd=folder, **self.user)
        self.url = f"postgres://symseal@localhost/postgres?host={folder}"
        self.start()

    def start(self):
        data, folder = self.folder / "data", self.folder
        self.server = subprocess.Popen(
            [self.programs / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=60"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, **self.user)
        ready = [self.programs / "pg_isready", "-q", "-h", folder, "-U", "symseal", "-d", "postgres"]
        wait_for("PostgreSQL", lambda: subprocess.run(ready, cwd=folder).returncode == 0)

    def end(self):
        self.server.send_signal(signal.SIGQUIT)
        self.server.wait()


class Objects:
    """versitygw over a folder."""

    BUCKET, KEY, SECRET = "symbols", "symseal-test", "not-a-secret"

    def __init__(self, folder):
        program = shutil.which("versitygw")
        if program is None:
            print("there is no versitygw")
            raise SystemExit(3)
        (folder / "data" / self.BUCKET).mkdir(parents=True)
        (folder / "sidecar").mkdir()
        self.program, self.folder, self.port = program, folder, free_port()
        self.start()

    def start(self):
        folder = self.folder
        self.server = subprocess.Popen(
            [self.program, "--access", self.KEY, "--secret", self.SECRET, "--quiet", "--port", f"127.0.0.1:{self.port}",
             "posix", "--sidecar", folder / "sidecar", folder / "data"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for("versitygw", self.listens)

    def listens(self):
        with socket.socket() as asking:
            return asking.connect_ex(("127.0.0.1", self.port)) == 0

    def environment(self):
        return {
            "AWS_ACCESS_KEY_ID": self.KEY, "AWS_SECRET_ACCESS_KEY": self.SECRET, "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}", "AWS_ALLOW_HTTP": "true",
        }

    def end(self):
        self.server.kill()
        self.server.wait()


class Replica:
    """One of the servers, on an address that it keeps."""

    def __init__(self, program, data, more, environment):
        self.program, self.data, self.more, self.environment = program, data, more, environment
        self.address = f"127.0.0.1:{free_port()}"
        self.log = open(f"{data}.log", "a")
        self.server, self.slowest = None, 0.0
        self.start()

    def start(self):
        started = time.monotonic()
        self.server = Server(self.program, self.data, self.address, self.more, self.environment, self.log)
        wait_for(f"the server on {self.address}", self.is_ready)
        self.slowest = max(self.slowest, time.monotonic() - started)

    def is_ready(self):
        try:
            return request(self.address, "GET", "/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def kill(self):
        if self.server is not None:
            self.server.kill()
            self.server = None


class Both(Pushes):
    """What clients sent to either server."""

    def __init__(self, program, material, rng):
        super().__init__(program, material)
        self.rng = rng
        # Paths that must answer 404.
        self.deleted = set()

    def one(self, addresses):
        with self.lock:
            return self.rng.choice(addresses)

    def delete(self, addresses, path):
        """Whether it was acknowledged."""
        status, _, _ = request(self.one(addresses), "DELETE", path)
        return status == 202

    def push_and_delete(self, addresses, rng):
        """An artifact that nobody else knows of, and its end."""
        number = self.number()
        data = rng.randbytes(rng.choice([10, 5_000, 100_000]))
        digest = self.blob(addresses, data, False, rng)
        if digest is None or self.blob(addresses, EMPTY, False, rng) is None:
            return
        manifest = json.dumps(artifact([(digest, len(data))])).encode()
        paths = [f"/v2/plain/manifests/gone{number}", f"/v2/plain/manifests/{sha256(manifest)}"]
        status, _, _ = request(self.one(addresses), "PUT", paths[0], manifest, {"Content-Type": MANIFEST})
        # Acknowledged by the one server, it is there on the other, or could not be deleted there.
        if status == 201:
            status, _, body = request(self.one(addresses), "DELETE", paths[1])
            if status == 404:
                raise AssertionError(f"what was acknowledged is not there to be deleted: {paths[1]}: {body[:200]}")
            if status == 202:
                with self.lock:
                    self.deleted.update(paths)

    def push_and_delete_bundle(self, addresses, rng):
        layout, _ = rng.choice(self.material["bundles"])
        number = self.number()
        tag = f"/v2/shop/gone{number}/manifests/v"
        if not self.run("bundle", "push", layout, f"{self.one(addresses)}/shop/gone{number}:v"):
            return
        status, headers, _ = get(self.one(addresses), tag)
        if status == 404:
            raise AssertionError(f"an acknowledged bundle is not there: {tag}")
        if status == 200:
            path = f"/v2/shop/gone{number}/manifests/{headers['Docker-Content-Digest']}"
            if self.delete(addresses, path):
                with self.lock:
                    self.deleted.update([tag, path])

    def client(self, addresses, seed, stop, problems):
        rng = random.Random(seed)
        acts = [self.push_artifact, self.push_artifact, self.push_bundle, self.upload, self.push_and_delete, self.push_and_delete_bundle]
        while not stop.is_set():
            try:
                rng.choice(acts)(addresses, rng)
            except (OSError, http.client.HTTPException):
                # The server was killed: the other one goes on.
                continue
            except AssertionError as problem:
                problems.append(str(problem))
                return


def said(address, material):
    """What a server says there is."""
    found = {}
    _, _, data = get(address, "/v2/_catalog?n=10000")
    for repository in json.loads(data)["repositories"]:
        _, _, data = get(address, f"/v2/{repository}/tags/list?n=10000")
        names = json.loads(data).get("tags") or []
        if names:
            found[repository] = {name: sha256(get(address, f"/v2/{repository}/manifests/{name}")[2]) for name in names}
    ids = [build_id for _, ids in material["bundles"] for build_id in ids] + [build_id for _, build_id in material["loose"]]
    found["files"] = {build_id: sha256(get(address, f"/buildid/{build_id}/debuginfo")[2]) for build_id in ids}
    return found


def differ(one, two):
    for name in sorted(one.keys() | two.keys()):
        if one.get(name) != two.get(name):
            here, there = one.get(name) or {}, two.get(name) or {}
            other = [(key, here.get(key), there.get(key)) for key in here.keys() | there.keys() if here.get(key) != there.get(key)]
            return f"{name}: {sorted(other, key=str)[:3]}"
    return None


def agree(addresses, pushes, problems):
    """Waits until both say the same, and what clients were told last; how long that took."""
    started = time.monotonic()
    while True:
        began, found = time.monotonic(), []
        one, two = (said(address, pushes.material) for address in addresses)
        difference = differ(one, two)
        if difference:
            found.append(f"the servers differ: {difference}")
        for address in addresses:
            tags(address, pushes, found)
            for path in pushes.deleted:
                status = get(address, path)[0]
                if status != 404:
                    found.append(f"what was deleted is {status} on {address}: {path}")
        if not found:
            return began - started
        # A look that began in time counts, however long it takes.
        if began - started > FRESH:
            problems.extend(found)
            return began - started


def main():
    program, rounds, seed = os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)
    work = Path(tempfile.mkdtemp(prefix="symseal-replica-kills-"))
    work.chmod(0o755)
    problems, ended, replicas, slowest_agreement, kills, blobs = [], [], [], 0.0, [0, 0], 0
    try:
        postgres = Postgres(work / "postgres")
        ended.append(postgres)
        objects = Objects(work / "objects")
        ended.append(objects)
        os.environ["XDG_DATA_HOME"] = str(work / "home")
        environment = os.environ | objects.environment() | {"SYMSEAL_SERVER_DATABASE": postgres.url}
        bucket = ["--blobs", f"s3://{objects.BUCKET}/team"]
        for which in range(2):
            replicas.append(Replica(program, work / f"data-{which}", [*bucket, "--gc-interval", "0s"], environment))
        addresses = [replica.address for replica in replicas]
        pushes = Both(program, make_material(program, work), rng)
        for _ in range(rounds):
            stop = threading.Event()
            clients = [threading.Thread(target=pushes.client, args=(addresses, rng.random(), stop, problems)) for _ in range(3)]
            for client in clients:
                client.start()
            time.sleep(rng.uniform(0.05, 1.2))
            # Now and then both, so that nobody is left who could tell.
            killed = rng.choice([[0], [1], [0], [1], [0, 1]])
            for which in killed:
                replicas[which].kill()
                kills[which] += 1
            time.sleep(rng.uniform(0.0, 0.5))
            stop.set()
            for client in clients:
                client.join()
            for which in killed:
                replicas[which].start()
            for address in addresses:
                acknowledged(address, pushes, problems)
            slowest_agreement = max(slowest_agreement, agree(addresses, pushes, problems))
            if not problems:
                offered(rng.choice(addresses), pushes, problems)
            # Long runs look at the newest.
            if len(pushes.blobs) > 100:
                for old in list(pushes.blobs)[:50]:
                    del pushes.blobs[old]
                    blobs += 1
            while len(pushes.manifests) > 100:
                pushes.manifests.pop()
            del pushes.bundles[:-60]
            del pushes.loose[:-30]
            while len(pushes.deleted) > 120:
                pushes.deleted.pop()
            if problems:
                break
        slowest = max(replica.slowest for replica in replicas)
        if slowest > START:
            problems.append(f"a start took {slowest:.1f} s")
        told = {
            "blobs": blobs + len(pushes.blobs), "manifests": len(pushes.manifests), "tags": sum(tag.acknowledged for tag in pushes.tags.values()),
            "bundles": len(pushes.bundles), "files": len(pushes.loose), "deleted": len(pushes.deleted),
        }
        collected = []
        if not problems:
            # What one round condemns the next one takes.
            for _ in range(2):
                collecting = [program, "store", "gc", "--data", work / "operator", *bucket, "--grace", "0s", "--json"]
                collected.append(json.loads(subprocess.run(collecting, check=True, capture_output=True, text=True, env=environment).stdout))
            # Without their manifests they were nobody's.
            pushes.blobs.clear()
            for address in addresses:
                acknowledged(address, pushes, problems)
            slowest_agreement = max(slowest_agreement, agree(addresses, pushes, problems))
            for address in addresses:
                offered(address, pushes, problems)
        if rounds >= 8 and not problems and not all(told.values()):
            problems.append(f"there are things of which nothing was acknowledged, so nothing is shown of them: {told}")
        print(json.dumps({
            "rounds": rounds, "kills": kills, "acknowledged": told, "collected": collected, "requests": pushes.count,
            "slowest_agreement_seconds": round(slowest_agreement, 2), "slowest_start_seconds": round(slowest, 2), "problems": problems[:20],
        }))
    finally:
        for replica in replicas:
            replica.kill()
        for server in reversed(ended):
            server.end()
        if problems and os.environ.get("SYMSEAL_KEEP"):
            shutil.copytree(work, os.environ["SYMSEAL_KEEP"], dirs_exist_ok=True, ignore=shutil.ignore_patterns("postgres", "objects"))
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
