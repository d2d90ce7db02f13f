#!/usr/bin/env python3
"""Reads a bundle in an OCI layout: digests, page trees, page hashes, the proof of one page.

Written from docs/formats/bundle.md and docs/formats/symbol_index.md alone, with Python's standard library.

    page_tree_reader.py LAYOUT                      check the layout's bundle
    page_tree_reader.py LAYOUT --page TITLE INDEX   prove one page of one file; prints its audit path

Prints one JSON object. Exit status 1 where something does not hold.
"""

import hashlib
import json
import os
import struct
import sys

BUNDLE = "application/vnd.symseal.bundle.v1"
IMAGE_INDEX = "application/vnd.oci.image.index.v1+json"
TITLE = "org.opencontainers.image.title"


def sha256(data):
    return hashlib.sha256(data).digest()


def expect(condition, message):
    if not condition:
        print(json.dumps({"error": message}))
        sys.exit(1)


def blob(layout, digest, size):
    algorithm, _, hexits = digest.partition(":")
    expect(algorithm == "sha256" and len(hexits) == 64, "digest " + digest)
    with open(os.path.join(layout, "blobs", "sha256", hexits), "rb") as file:
        data = file.read()
    expect(len(data) == size, "size of " + digest)
    expect(sha256(data).hex() == hexits, "digest of " + digest)
    return data


# Page trees: RFC 6962, section 2.1.


def pages(data, page_size):
    return [data[at : at + page_size] for at in range(0, len(data), page_size)]


def leaf(page):
    return sha256(b"\x00" + page)


def split(count):
    k = 1
    while 2 * k < count:
        k *= 2
    return k


def root(leaves):
    if not leaves:
        return sha256(b"")
    if len(leaves) == 1:
        return leaves[0]
    k = split(len(leaves))
    return sha256(b"\x01" + root(leaves[:k]) + root(leaves[k:]))


def audit_path(index, leaves):
    if len(leaves) == 1:
        return []
    k = split(len(leaves))
    if index < k:
        return audit_path(index, leaves[:k]) + [root(leaves[k:])]
    return audit_path(index - k, leaves[k:]) + [root(leaves[:k])]


def proves(expected_root, size, page_size, index, page, path):
    count = -(-size // page_size)
    if not 0 <= index < count or len(page) != min(page_size, size - index * page_size):
        return False
    node, last, result = index, count - 1, leaf(page)
    for sibling in path:
        if last == 0:
            return False
        if node % 2 == 1 or node == last:
            result = sha256(b"\x01" + sibling + result)
            while node % 2 == 0 and node != 0:
                node, last = node // 2, last // 2
        else:
            result = sha256(b"\x01" + result + sibling)
        node, last = node // 2, last // 2
    return last == 0 and result == expected_root


def page_hashes(data):
    """(sha256, page size) -> (size, leaf hashes)."""
    magic, version, count = struct.unpack_from("<8sII", data, 0)
    expect(magic == b"SYMPGHS\0" and version == 1, "header of the page hashes")
    start, following, previous, files = 16 + 56 * count, 0, None, {}
    for at in range(16, start, 56):
        digest, size, page_size, number, first = struct.unpack_from("<32sQIIQ", data, at)
        key = (digest, page_size)
        expect(previous is None or previous < key, "order of the page hashes")
        expect(number == -(-size // page_size) and first == following, "an entry of the page hashes")
        hashes = [data[start + 32 * i : start + 32 * i + 32] for i in range(first, first + number)]
        files[key], previous, following = (size, hashes), key, first + number
    expect(len(data) == start + 32 * following, "size of the page hashes")
    return files


def main(layout, wanted):
    with open(os.path.join(layout, "index.json"), "rb") as file:
        listed = [item for item in json.load(file)["manifests"] if item["mediaType"] == IMAGE_INDEX]
    expect(len(listed) == 1, "one image index")
    image_index = json.loads(blob(layout, listed[0]["digest"], listed[0]["size"]))
    expect(image_index["artifactType"] == BUNDLE, "artifact type")
    layers, counted = {}, 0
    for child in image_index["manifests"]:
        manifest = json.loads(blob(layout, child["digest"], child["size"]))
        expect(manifest["artifactType"] == BUNDLE and len(manifest["layers"]) < 400, "a manifest")
        for layer in manifest["layers"]:
            counted += 1
            layers[layer["annotations"][TITLE]] = layer
    expect(len(layers) == counted, "each title once")
    layer = layers.pop("symbol_index.json")
    index = json.loads(blob(layout, layer["digest"], layer["size"]))
    expect(index["schema"] == "symseal.symbol_index.v1", "schema")

    modules = [module for platform in ("linux", "macos", "windows") for module in index[platform].values()]
    files = [file for module in modules for file in module["files"]]
    hash_files = [shard["page_hashes"] for shard in index["shards"]]
    leaves = {}
    for file in hash_files:
        leaves.update(page_hashes(blob(layout, file["sha256"], file["size"])))
    expect({file["path"] for file in files + hash_files} == set(layers), "the titles of layers and index")
    total, answer = 0, None
    for file in files + hash_files:
        expect(layers[file["path"]]["digest"] == file["sha256"], "layer of " + file["path"])
        data = blob(layout, file["sha256"], file["size"])
        cut = pages(data, file["page_size"])
        own = [leaf(page) for page in cut]
        total += len(own)
        expect(root(own).hex() == file["page_root"], "page root of " + file["path"])
        if file["role"] != "page-hashes":
            known = leaves.get((bytes.fromhex(file["sha256"][7:]), file["page_size"]))
            expect(known == (file["size"], own), "page hashes of " + file["path"])
        if wanted and wanted[0] == file["path"]:
            at = int(wanted[1])
            path, top = audit_path(at, own), bytes.fromhex(file["page_root"])
            expect(proves(top, len(data), file["page_size"], at, cut[at], path), "proof of the page")
            other = bytes([cut[at][0] ^ 1]) + cut[at][1:]
            expect(not proves(top, len(data), file["page_size"], at, other, path), "a proof of another page")
            answer = [item.hex() for item in path]
    expect(answer is not None or not wanted, "a file of that title")
    result = {"bundle": listed[0]["digest"], "modules": len(modules), "files": len(layers), "pages": total}
    print(json.dumps({**result, **({"path": answer} if wanted else {})}))


if __name__ == "__main__":
    arguments = sys.argv[1:]
    expect(len(arguments) in (1, 4) and (len(arguments) == 1 or arguments[1] == "--page"), __doc__)
    main(arguments[0], arguments[2:] or None)
