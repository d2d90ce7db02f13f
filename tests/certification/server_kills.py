#!/usr/bin/env python3
"""Kills a server at random instants while clients push, and audits what is left.

    server_kills.py SYMSEAL ROUNDS SEED

In each round a server over the same data directory takes, from several clients at once, blobs in one request and in chunks, manifests with
tags, bundles (`symseal bundle push`) and files by themselves (`symseal upload`), until it is killed (SIGKILL) after a random time. It is then
started again, and must be there within ten seconds. What it acknowledged must all be there, byte by byte by its digest; what it offers at all
(every tag of every repository, and everything that its manifest names) must be whole; and of what a bundle or a file by itself
answers for, either all is there or nothing. In the end nothing half-written is left in the data directory, and a collection that takes
everything that it may takes nothing that is named.
Prints one JSON object and exits with 1 if anything did not hold.
"""

import collections
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

from registry import EMPTY, INDEX, MANIFEST, artifact, request, sha256


class Server:
    def __init__(self, program, data, listen="127.0.0.1:0", more=("--gc-interval", "0s"), environment=None, log=subprocess.DEVNULL):
        self.process = subprocess.Popen(
            [program, "serve", "--data", data, "--listen", listen, *more],
            stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        started = time.monotonic()
        line = self.process.stdout.readline()
        self.seconds = time.monotonic() - started
        if "://" not in line:
            raise SystemExit(f"the server did not start: {line!r}")
        self.address = line.rsplit("://", 1)[1].strip()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Tag:
    """Where a tag may lead: to what was acknowledged last, or to what was sent since then."""

    def __init__(self):
        self.acknowledged, self.sent, self.under_way = False, set(), set()

    def send(self, digest):
        self.sent.add(digest)
        self.under_way.add(digest)

    def acknowledge(self, digest):
        self.under_way.discard(digest)
        self.acknowledged, self.sent = True, {digest} | self.under_way

    def lose(self, digest):
        """No answer: it may have been done."""
        self.under_way.discard(digest)


class Pushes:
    """What clients sent, and what was acknowledged."""

    def __init__(self, program, material):
        self.program, self.material = program, material
        self.lock = threading.Lock()
        self.blobs, self.manifests, self.bundles, self.loose = {}, set(), [], []
        self.tags = collections.defaultdict(Tag)
        self.count = 0

    def number(self):
        with self.lock:
            self.count += 1
            return self.count

    def one(self, address):
        """Where the next request goes."""
        return address

    def blob(self, address, data, chunked, rng):
        digest = sha256(data)
        status, headers, _ = request(self.one(address), "POST", "/v2/plain/blobs/uploads/")
        if status != 202:
            return None
        place = headers["Location"]
        if chunked:
            middle = rng.randrange(1, len(data))
            for start, part in ((0, data[:middle]), (middle, data[middle:])):
                extent = {"Content-Range": f"{start}-{start + len(part) - 1}", "Content-Type": "application/octet-stream"}
                status, headers, _ = request(self.one(address), "PATCH", place, part, extent)
                if status != 202:
                    return None
                place = headers["Location"]
            data = b""
        joined = "&" if "?" in place else "?"
        status, _, _ = request(self.one(address), "PUT", f"{place}{joined}digest={digest}", data)
        if status != 201:
            return None
        return digest

    def push_artifact(self, address, rng):
        number = self.number()
        data = rng.randbytes(rng.choice([10, 5_000, 400_000, 3_000_000]))
        digest = self.blob(address, data, rng.random() < 0.5, rng)
        if digest is None:
            return
        with self.lock:
            self.blobs[digest] = len(data)
        empty = self.blob(address, EMPTY, False, rng)
        if empty is None:
            return
        manifest = json.dumps(artifact([(digest, len(data))])).encode()
        # A few tags move.
        name, digest, status = f"t{number % 40}", sha256(manifest), None
        with self.lock:
            tag = self.tags[name]
            tag.send(digest)
        try:
            status, _, _ = request(self.one(address), "PUT", f"/v2/plain/manifests/{name}", manifest, {"Content-Type": MANIFEST})
        finally:
            with self.lock:
                if status == 201:
                    tag.acknowledge(digest)
                    self.manifests.add(digest)
                else:
                    tag.lose(digest)

    def run(self, *arguments):
        ran = subprocess.run([self.program, *arguments], capture_output=True, text=True)
        return ran.returncode == 0

    def push_bundle(self, address, rng):
        layout, ids = rng.choice(self.material["bundles"])
        number = self.number()
        if self.run("bundle", "push", layout, f"{self.one(address)}/shop/b{number % 7}:v{number}"):
            with self.lock:
                self.bundles.append((f"shop/b{number % 7}", f"v{number}", ids))

    def upload(self, address, rng):
        path, build_id = rng.choice(self.material["loose"])
        if self.run("upload", "--to", f"http://{self.one(address)}", path):
            with self.lock:
                self.loose.append((path, build_id))

    def client(self, address, seed, stop):
        rng = random.Random(seed)
        while not stop.is_set():
            try:
                rng.choice([self.push_artifact, self.push_artifact, self.push_bundle, self.upload])(address, rng)
            except (OSError, http.client.HTTPException):
                # The server was killed.
                return


def get(address, path):
    return request(address, "GET", path, headers={"Accept": f"{INDEX}, {MANIFEST}"})


def audit(address, pushes, problems):
    acknowledged(address, pushes, problems)
    tags(address, pushes, problems)
    offered(address, pushes, problems)


def acknowledged(address, pushes, problems, get=get):
    """What was acknowledged is there, byte by byte."""
    for digest in pushes.blobs:
        status, _, data = get(address, f"/v2/plain/blobs/{digest}")
        if status != 200 or sha256(data) != digest:
            problems.append(f"an acknowledged blob is {status}: {digest}")
    for digest in pushes.manifests:
        status, _, data = get(address, f"/v2/plain/manifests/{digest}")
        if status != 200 or sha256(data) != digest:
            problems.append(f"an acknowledged manifest is {status}: {digest}")
    for repository, tag, ids in pushes.bundles:
        status, _, _ = get(address, f"/v2/{repository}/manifests/{tag}")
        if status != 200:
            problems.append(f"an acknowledged bundle is {status}: {repository}:{tag}")
        for build_id, expected in ids.items():
            status, _, data = get(address, f"/buildid/{build_id}/debuginfo")
            if status != 200 or sha256(data) != expected:
                problems.append(f"an acknowledged bundle does not answer for {build_id}: {status}")
    for path, build_id in pushes.loose:
        status, _, data = get(address, f"/buildid/{build_id}/debuginfo")
        if status != 200 or data != Path(path).read_bytes():
            problems.append(f"an acknowledged file does not answer for {build_id}: {status}")


def tags(address, pushes, problems, get=get):
    """Every tag leads to what was acknowledged last, or to what was sent since."""
    for name, tag in pushes.tags.items():
        status, _, data = get(address, f"/v2/plain/manifests/{name}")
        leads = sha256(data) in tag.sent if status == 200 else status == 404 and not tag.acknowledged
        if not leads:
            problems.append(f"the tag {name} is {status}, and leads to {sha256(data)}: expected one of {sorted(tag.sent)}")


def offered(address, pushes, problems, get=get):
    """Whatever is offered is whole, acknowledged or not."""
    seen = set()

    def whole(repository, digest):
        if (repository, digest) in seen:
            return
        seen.add((repository, digest))
        status, headers, data = get(address, f"/v2/{repository}/manifests/{digest}")
        if status != 200:
            problems.append(f"{repository} names a manifest that is {status}: {digest}")
            return
        if digest.startswith("sha256:") and sha256(data) != digest:
            problems.append(f"{repository}: another manifest answers for {digest}")
        content = json.loads(data)
        for child in content.get("manifests", []):
            whole(repository, child["digest"])
        for blob in content.get("layers", []) + ([content["config"]] if "config" in content else []):
            if blob["digest"] in seen:
                continue
            seen.add(blob["digest"])
            status, _, data = get(address, f"/v2/{repository}/blobs/{blob['digest']}")
            if status != 200 or sha256(data) != blob["digest"] or len(data) != blob["size"]:
                problems.append(f"{repository} names a blob that is {status}, {len(data)} bytes: {blob['digest']}")

    _, _, data = get(address, "/v2/_catalog?n=1000")
    for repository in json.loads(data)["repositories"]:
        status, _, data = get(address, f"/v2/{repository}/tags/list?n=10000")
        for tag in json.loads(data).get("tags") or []:
            whole(repository, tag)
    # A bundle answers for all of its ids or for none.
    for _, ids in pushes.material["bundles"]:
        answers = {get(address, f"/buildid/{build_id}/debuginfo")[0] for build_id in ids}
        if len(answers) > 1:
            problems.append(f"a bundle answers for a part of its ids: {answers}")


def make_material(program, work):
    """Bundles of two modules each, and files by themselves."""
    def compile(number):
        source, binary = work / f"{number}.c", work / f"app{number}"
        source.write_text(f"int f{number}(int x) {{ return x + {number}; }}\nint main(void) {{ return f{number}(1); }}\n")
        build_id = f"{0xabcd0000 + number:08x}"
        subprocess.run(["cc", "-g", source, "-o", binary, f"-Wl,--build-id=0x{build_id}"], check=True)
        return binary, build_id

    bundles = []
    for number in range(0, 12, 2):
        files = dict(compile(at) for at in (number, number + 1))
        layout = work / f"layout{number}"
        subprocess.run([program, "bundle", "build", *files, "--name", f"shop{number}", "--version", "1", "--output", layout],
                       check=True, stdout=subprocess.DEVNULL)
        bundles.append((str(layout), {build_id: sha256(path.read_bytes()) for path, build_id in files.items()}))
    loose = [(str(path), build_id) for path, build_id in map(compile, range(100, 106))]
    return {"bundles": bundles, "loose": loose}


def half_written(data):
    """What is not whole: files that are on their way in, and facts before their rename."""
    return [path for path in [*data.glob("temporary/*"), *data.rglob(".new*")] if path.is_file()]


def main():
    program, rounds, seed = os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)
    work = Path(tempfile.mkdtemp(prefix="symseal-server-kills-"))
    problems, slowest, cut_off, blobs = [], 0.0, 0, 0
    try:
        pushes = Pushes(program, make_material(program, work))
        data = work / "data"
        os.environ["XDG_DATA_HOME"] = str(work / "home")
        server = Server(program, data)
        for _ in range(rounds):
            stop = threading.Event()
            clients = [threading.Thread(target=pushes.client, args=(server.address, rng.random(), stop)) for _ in range(3)]
            for client in clients:
                client.start()
            time.sleep(rng.uniform(0.05, 1.2))
            stop_early = rng.random() < 0.1
            if stop_early:
                stop.set()
            server.kill()
            stop.set()
            for client in clients:
                client.join()
            left = half_written(data)
            cut_off += len(left)
            server = Server(program, data)
            slowest = max(slowest, server.seconds)
            kept = [path for path in left if path.exists()]
            if kept:
                problems.append(f"half-written files are left after a start: {kept[:5]}")
            audit(server.address, pushes, problems)
            if len(pushes.blobs) > 400:
                # Long runs look at the newest.
                for old in list(pushes.blobs)[:200]:
                    del pushes.blobs[old]
                    blobs += 1
            if problems:
                break
        if slowest > 10:
            problems.append(f"a start took {slowest:.1f} s")
        acknowledged = {
            "blobs": blobs + len(pushes.blobs), "manifests": len(pushes.manifests), "tags": sum(tag.acknowledged for tag in pushes.tags.values()),
            "bundles": len(pushes.bundles), "files": len(pushes.loose),
        }
        if rounds >= 10 and not all(acknowledged.values()):
            problems.append(f"there are things of which nothing was acknowledged, so nothing is shown of them: {acknowledged}")
        server.kill()
        collected = subprocess.run([program, "store", "gc", "--data", data, "--grace", "0s", "--json"],
                                   check=True, capture_output=True, text=True).stdout
        collected = json.loads(collected)
        # Without their manifests they were nobody's.
        pushes.blobs.clear()
        server = Server(program, data)
        audit(server.address, pushes, problems)
        server.kill()
        print(json.dumps({
            "rounds": rounds, "acknowledged": acknowledged, "half_written_at_kills": cut_off, "collected": collected,
            "requests": pushes.count, "slowest_start_seconds": round(slowest, 2), "problems": problems[:20],
        }))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
