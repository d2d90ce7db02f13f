#!/usr/bin/env python3
"""Kills a build at random instants and looks at what is left.

    kill_rounds.py SYMSEAL ROUNDS SEED INPUT...

A layout holds a first bundle. In each round a second bundle is built into it and killed (SIGKILL) after a random time.
After each round everything that the layout's index.json names, down to the last layer, must be there with its digest, and
the first bundle must be among it; at the end an undisturbed build must give the digest that a build elsewhere gives.
Prints one JSON object and exits with 1 if anything did not hold.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time


def build(symseal, inputs, version, layout):
    command = [symseal, "bundle", "build", *inputs, "--name", "kill", "--version", version, "--output", layout]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finished(process):
    _, errors = process.communicate()
    if process.returncode != 0:
        sys.exit(f"the build failed: {errors.decode(errors='replace')}")


def blob(layout, digest):
    algorithm, name = digest.split(":")
    path = os.path.join(layout, "blobs", algorithm, name)
    with open(path, "rb") as file:
        hasher = hashlib.file_digest(file, "sha256")
    if hasher.hexdigest() != name:
        raise ValueError(f"{path} has the digest {hasher.hexdigest()}")
    return path


def follow(layout, descriptor, seen):
    """Checks a blob and all that it names."""
    digest = descriptor["digest"]
    if digest in seen:
        return
    path = blob(layout, digest)
    if os.path.getsize(path) != descriptor["size"]:
        raise ValueError(f"{path} has another size than its descriptor")
    seen.add(digest)
    if "vnd.oci.image" in descriptor["mediaType"]:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
        for child in [*value.get("manifests", []), *value.get("layers", [])]:
            follow(layout, child, seen)


def listed(layout):
    with open(os.path.join(layout, "index.json"), encoding="utf-8") as file:
        return json.load(file)["manifests"]


def leftovers(layout):
    ingest = os.path.join(layout, "ingest")
    return sum(len(files) for _, _, files in os.walk(ingest))


def main():
    symseal, rounds, seed, inputs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    chance = random.Random(seed)
    result = {"rounds": rounds, "seed": seed, "killed": 0, "finished": 0, "blobs_checked": 0, "problems": []}
    with tempfile.TemporaryDirectory() as folder:
        layout, elsewhere = os.path.join(folder, "layout"), os.path.join(folder, "elsewhere")
        started = time.monotonic()
        finished(build(symseal, inputs, "1.0", layout))
        duration = time.monotonic() - started
        first = listed(layout)[0]["digest"]
        finished(build(symseal, inputs, "2.0", elsewhere))
        expected = listed(elsewhere)[0]["digest"]
        for _ in range(rounds):
            process = build(symseal, inputs, "2.0", layout)
            time.sleep(chance.uniform(0, duration * 1.1))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                result["killed"] += 1
            else:
                result["finished"] += 1
            process.communicate()
            seen = set()
            try:
                manifests = listed(layout)
                if first not in [manifest["digest"] for manifest in manifests]:
                    raise ValueError("the first bundle is gone")
                for manifest in manifests:
                    follow(layout, manifest, seen)
            except (OSError, ValueError, KeyError) as problem:
                result["problems"].append(str(problem))
            result["blobs_checked"] += len(seen)
        finished(build(symseal, inputs, "2.0", layout))
        if expected not in [manifest["digest"] for manifest in listed(layout)]:
            result["problems"].append("the last build has another digest than one elsewhere")
        result["left_in_ingest"] = leftovers(layout)
        if result["left_in_ingest"]:
            result["problems"].append(f"{result['left_in_ingest']} files of killed builds are left in ingest/")
    print(json.dumps(result))
    sys.exit(1 if result["problems"] else 0)


main()
