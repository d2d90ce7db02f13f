#!/usr/bin/env python3
"""Kills writers of a tile log at random instants and audits what is left.

    log_kills.py TILE_LOG ROUNDS SEED [SYMSEAL]

TILE_LOG is sealer's example `tile_log`; in each round it appends batches of 1 to 300 entries until it is killed (SIGKILL)
after a random time. With SYMSEAL every fourth round kills `symseal bundle seal` instead, and in the end the bundle must
be sealed and verified. After each round the log is read by the few lines here, which share nothing with the writer: the
tiles are those of the entries, the root is the checkpoint's, every earlier checkpoint is a prefix, every acknowledged
entry is at its place. Where `openssl` is there, it checks each checkpoint's signature; where `tessera-fsck` is there, it
audits the log too. In the end a second writer is refused while a first one runs, and an undisturbed writer goes on.
Prints one JSON object and exits with 1 if anything did not hold.
"""

import base64
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer


def leaf_hash(entry):
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left, right):
    return hashlib.sha256(b"\x01" + left + right).digest()


def roots(leaves, sizes):
    """The RFC 6962 roots over the first `size` leaves, for each of `sizes`."""
    wanted, found, stack = set(sizes), {0: hashlib.sha256(b"").digest()}, []
    for count, leaf in enumerate(leaves, 1):
        height, node = 0, leaf
        while stack and stack[-1][0] == height:
            node, height = node_hash(stack.pop()[1], node), height + 1
        stack.append((height, node))
        if count in wanted:
            root = stack[-1][1]
            for _, left in reversed(stack[:-1]):
                root = node_hash(left, root)
            found[count] = root
    return found


def name(index):
    groups = [f"{index % 1000:03}"]
    while index >= 1000:
        index //= 1000
        groups.insert(0, f"x{index % 1000:03}")
    return "/".join(groups)


def tiles(log, kind, count):
    """The bytes of all tiles over `count` hashes or entries, with their widths."""
    for index in range((count + 255) // 256):
        width = min(256, count - 256 * index)
        path = os.path.join(log, "tile", kind, name(index) + ("" if width == 256 else f".p/{width}"))
        with open(path, "rb") as file:
            yield file.read(), width


def read_entries(log, size):
    entries = []
    for data, width in tiles(log, "entries", size):
        at = 0
        for _ in range(width):
            length = int.from_bytes(data[at : at + 2], "big")
            entries.append(data[at + 2 : at + 2 + length])
            at += 2 + length
        if at != len(data):
            raise ValueError("an entry bundle holds more than its entries")
    return entries


class Auditor:
    """What an outsider knows of the log: checkpoints that were published, entries that were acknowledged."""

    def __init__(self, folder, log_key):
        self.log, self.folder, self.log_key = os.path.join(folder, "log"), folder, log_key
        self.seen, self.acknowledged, self.fsck_runs, self.signatures = {}, {}, 0, 0

    def checkpoint(self):
        with open(os.path.join(self.log, "checkpoint"), encoding="utf-8") as file:
            text = file.read()
        body, signatures = text.rsplit("\n\n", 1)
        origin, size, root = body.split("\n")[:3]
        return body + "\n", origin, int(size), base64.b64decode(root), signatures

    def audit(self, deep):
        text, origin, size, root, signatures = self.checkpoint()
        entries = read_entries(self.log, size)
        hashes = leaves = [leaf_hash(entry) for entry in entries]
        level = 0
        while hashes:
            stored = b"".join(data for data, _ in tiles(self.log, str(level), len(hashes)))
            if stored != b"".join(hashes):
                raise ValueError(f"the tiles of level {level} are not those of the entries")
            hashes = [roots(hashes[at : at + 256], [256])[256] for at in range(0, len(hashes) - 255, 256)]
            level += 1
        found = roots(leaves, [size, *self.seen])
        if found[size] != root:
            raise ValueError(f"the checkpoint of {size} entries has another root than its tiles")
        for earlier, its_root in self.seen.items():
            if found.get(earlier) != its_root:
                raise ValueError(f"the checkpoint of {earlier} entries, seen before, is no prefix of that of {size}")
        for index, entry in self.acknowledged.items():
            if index >= size or entries[index] != entry:
                raise ValueError(f"entry {index} was acknowledged and is not in the log of {size} entries")
        if len(set(leaves)) != size:
            raise ValueError("an entry is in the log twice")
        self.seen[size] = root
        self.check_signature(text, signatures)
        if deep:
            self.fsck(origin)
        return size

    def check_signature(self, text, signatures):
        if not shutil.which("openssl"):
            return
        _, key_name, encoded = signatures.split("\n")[0].split(" ")
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, part) for part in ("text", "signature", "public")]
            for path, data in zip(paths, (text.encode(), base64.b64decode(encoded)[4:])):
                with open(path, "wb") as file:
                    file.write(data)
            subprocess.run(["openssl", "pkey", "-in", self.log_key, "-pubout", "-out", paths[2]], check=True)
            command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", paths[2], "-rawin", "-in", paths[0]]
            done = subprocess.run([*command, "-sigfile", paths[1]], capture_output=True, check=False)
        if done.returncode != 0:
            raise ValueError(f"openssl does not verify the checkpoint's signature by {key_name}")
        self.signatures += 1

    def verifier_key(self, origin):
        """The log's key in the form of C2SP signed notes."""
        der = subprocess.run(
            ["openssl", "pkey", "-in", self.log_key, "-pubout", "-outform", "DER"], check=True, capture_output=True
        ).stdout
        key = b"\x01" + der[-32:]
        hint = hashlib.sha256(origin.encode() + b"\n" + key).digest()[:4].hex()
        return f"{origin}+{hint}+{base64.b64encode(key).decode()}"

    def fsck(self, origin, limit=60):
        """The auditor of Tessera, over HTTP as any reader would."""
        if not shutil.which("tessera-fsck") or not shutil.which("openssl"):
            return
        quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=self.log))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        public = os.path.join(self.folder, "verifier")
        with open(public, "w", encoding="utf-8") as file:
            file.write(self.verifier_key(origin))
        command = ["tessera-fsck", f"--storage_url=http://127.0.0.1:{server.server_address[1]}/", "--ui=false"]
        command += [f"--public_key={public}", f"--origin={origin}"]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=limit)
        except subprocess.TimeoutExpired as late:
            # With tiles that do not fit it says nothing and does not end (v1.0.4); a sound log takes it well under a second.
            raise ValueError("tessera-fsck did not come to an end") from late
        finally:
            server.shutdown()
        if done.returncode != 0:
            raise ValueError(f"tessera-fsck: {done.stderr.decode(errors='replace')[-400:]}")
        self.fsck_runs += 1


def damage_is_seen(folder, auditor, result):
    """The auditors themselves: each must refuse a log with one bit flipped."""
    _, origin, size, _, _ = auditor.checkpoint()
    for file in ["tile/0/", "tile/entries/"]:
        copy = tempfile.mkdtemp(dir=folder)
        shutil.copytree(auditor.log, os.path.join(copy, "log"))
        path = os.path.join(copy, "log", file + "000" + ("" if size >= 256 else f".p/{size}"))
        with open(path, "r+b") as tile:
            tile.seek(40)
            byte = tile.read(1)[0]
            tile.seek(40)
            tile.write(bytes([byte ^ 1]))
        other = Auditor(copy, auditor.log_key)
        for audit in [partial(other.audit, deep=False), partial(other.fsck, origin, 2)]:
            runs = other.fsck_runs
            try:
                audit()
            except ValueError:
                continue
            if audit.func == other.fsck and other.fsck_runs == runs:
                continue
            result["problems"].append(f"{file}: a flipped bit was not noticed")


def required(tool):
    wanted = os.environ.get("SYMSEAL_REQUIRE", "").split(",")
    return "all" in wanted or tool in wanted


def acknowledged(output):
    """Lines that are whole: the writer may have been killed in one."""
    for line in re.findall(rb"^ack (\d+) (.*)\n", output, re.MULTILINE):
        yield int(line[0]), line[1]


def kill_after(process, seconds):
    """The output up to the kill."""
    timer = threading.Timer(seconds, process.send_signal, [signal.SIGKILL])
    timer.start()
    output, errors = process.communicate()
    timer.cancel()
    return output, errors


def run(symseal, *arguments):
    return subprocess.run([symseal, *arguments], capture_output=True, check=False)


def main():
    tile_log, rounds, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    symseal = sys.argv[4] if len(sys.argv) > 4 else None
    chance = random.Random(seed)
    result = {"rounds": rounds, "seed": seed, "killed": 0, "seals_killed": 0, "problems": []}
    with tempfile.TemporaryDirectory() as folder:
        key = os.path.join(folder, "log.key.pem")
        auditor = Auditor(folder, key)
        # The memory of the log's last checkpoint has the name that `symseal` gives it.
        os.symlink("last-checkpoint", os.path.join(folder, "log.last-checkpoint"))
        first = subprocess.Popen([tile_log, folder, "first", "3"], stdout=subprocess.PIPE)
        first.stdout.readline()
        second = subprocess.run([tile_log, folder, "second", "1"], capture_output=True, check=False, timeout=60)
        if second.returncode == 0 or b"lease" not in second.stderr:
            result["problems"].append(f"a second writer was not refused: {second.stderr.decode(errors='replace')}")
        output, _ = kill_after(first, 0.1)
        auditor.acknowledged.update(acknowledged(output))
        sealing = None
        if symseal:
            sealing = prepare_seal(symseal, folder, tile_log, result)
        for count in range(rounds):
            if sealing and count % 4 == 3:
                # Another number each time, so that each seal is another entry.
                command = [*sealing, "--sequence", str(count)]
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                kill_after(process, chance.uniform(0.005, 0.25))
                result["seals_killed"] += 1
            else:
                batch = chance.choice([1, 1, 5, 40, 300])
                command = [tile_log, folder, f"round-{count}", str(batch)]
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                output, errors = kill_after(process, chance.uniform(0.005, 0.3))
                auditor.acknowledged.update(acknowledged(output))
                if process.returncode != -signal.SIGKILL:
                    result["problems"].append(f"round {count}: {errors.decode(errors='replace')}")
                result["killed"] += 1
            try:
                auditor.audit(deep=count % 10 == 9 or count == rounds - 1)
            except (OSError, ValueError, KeyError, subprocess.SubprocessError) as problem:
                result["problems"].append(f"round {count}: {problem}")
        if sealing:
            finish_seal(symseal, folder, sealing, result)
        before = auditor.checkpoint()[2]
        last = subprocess.Popen([tile_log, folder, "last", "2"], stdout=subprocess.PIPE)
        while not last.stdout.readline().startswith(b"ack"):
            if last.poll() is not None:
                result["problems"].append("the log does not go on")
                break
        kill_after(last, 0)
        after = auditor.audit(deep=False)
        damage_is_seen(folder, auditor, result)
        if after <= before:
            result["problems"].append("the log did not grow any more")
        result.update(entries=after, acknowledged=len(auditor.acknowledged), checkpoints=len(auditor.seen))
        result.update(signatures_by_openssl=auditor.signatures, audits_by_tessera_fsck=auditor.fsck_runs)
        for tool, done in (("openssl", auditor.signatures), ("tessera-fsck", auditor.fsck_runs)):
            if not done and required(tool):
                result["problems"].append(f"{tool} is required and was not found")
            elif not done:
                print(f"SKIP {tool}: not found", file=sys.stderr)
    print(json.dumps(result))
    sys.exit(1 if result["problems"] else 0)


def prepare_seal(symseal, folder, tile_log, result):
    """A bundle and a trust directory for the log that is killed; the command that seals."""
    at = partial(os.path.join, folder)
    steps = [
        ["key", "generate", "--output", at("keys")],
        ["bundle", "build", tile_log, "--name", "app", "--version", "1.0", "--output", at("bundle")],
        ["trust", "init", "--trust", at("trust"), "--key", at("keys", "artifact.pub.pem"), "--name", "app"]
        + ["--log", at("log"), "--log-key", at("log.key.pem"), "--root-key", at("keys", "root.key.pem")],
    ]
    for step in steps:
        done = run(symseal, *step)
        if done.returncode != 0:
            result["problems"].append(f"{step[:2]}: {done.stderr.decode(errors='replace')}")
            return None
    return [symseal, "bundle", "seal", at("bundle"), "--key", at("keys", "artifact.key.pem")] + [
        "--log", at("log"), "--log-key", at("log.key.pem"),
    ]  # fmt: skip


def finish_seal(symseal, folder, sealing, result):
    done = subprocess.run(sealing, capture_output=True, check=False)
    if done.returncode != 0:
        result["problems"].append(f"the bundle cannot be sealed any more: {done.stderr.decode(errors='replace')}")
    done = run(symseal, "bundle", "verify", os.path.join(folder, "bundle"), "--trust", os.path.join(folder, "trust"))
    if done.returncode != 0:
        result["problems"].append(f"the seal does not hold: {done.stdout.decode(errors='replace')}")


main()
