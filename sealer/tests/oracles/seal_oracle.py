#!/usr/bin/env python3
"""An independent reader of seals and tile logs, written from docs/formats/seal.md alone.

  seal_oracle.py log DIR                 recompute root, tiles and hashes of a log from its entries
  seal_oracle.py seal SEAL DIR           recompute entry and inclusion proof of a seal from the log's entries

Prints one JSON object. Standard library only; signatures are OpenSSL's business.
"""
import base64
import hashlib
import json
import os
import struct
import sys


def sha256(data):
    return hashlib.sha256(data).digest()


def b64(data):
    return base64.b64encode(data).decode()


def leaf(entry):
    return sha256(b"\x00" + entry)


def node(left, right):
    return sha256(b"\x01" + left + right)


def split(count):
    """The largest power of two smaller than count."""
    power = 1
    while power * 2 < count:
        power *= 2
    return power


def root(leaves):
    """RFC 6962, section 2.1."""
    if not leaves:
        return sha256(b"")
    if len(leaves) == 1:
        return leaves[0]
    k = split(len(leaves))
    return node(root(leaves[:k]), root(leaves[k:]))


def path(index, leaves):
    """RFC 6962, section 2.1.1, lowest sibling first."""
    if len(leaves) == 1:
        return []
    k = split(len(leaves))
    if index < k:
        return path(index, leaves[:k]) + [root(leaves[k:])]
    return path(index - k, leaves[k:]) + [root(leaves[:k])]


def group(number):
    digits = "%d" % number
    digits = "0" * (-len(digits) % 3) + digits
    groups = [digits[i:i + 3] for i in range(0, len(digits), 3)]
    return "/".join(["x" + g for g in groups[:-1]] + groups[-1:])


def tile_path(level, index, width):
    return "tile/%s/%s%s" % (level, group(index), "" if width == 256 else ".p/%d" % width)


def read_checkpoint(text):
    body, _, signatures = text.rpartition("\n\n")
    lines = body.split("\n")
    origin, size, root_text = lines[:3]
    names = [line.split(" ")[1] for line in signatures.strip("\n").split("\n")]
    return {"origin": origin, "size": int(size), "root": base64.b64decode(root_text), "names": names}


def read_entries(directory, size):
    entries = []
    for index in range((size + 255) // 256):
        width = min(256, size - index * 256)
        with open(os.path.join(directory, tile_path("entries", index, width)), "rb") as file:
            data = file.read()
        offset = 0
        for _ in range(width):
            (length,) = struct.unpack_from(">H", data, offset)
            entries.append(data[offset + 2:offset + 2 + length])
            offset += 2 + length
        assert offset == len(data), "bytes after the last entry"
    return entries


def check_log(directory):
    with open(os.path.join(directory, "checkpoint"), encoding="utf-8") as file:
        checkpoint = read_checkpoint(file.read())
    size = checkpoint["size"]
    entries = read_entries(directory, size)
    leaves = [leaf(entry) for entry in entries]
    assert root(leaves) == checkpoint["root"], "the root over the entries is not the checkpoint's"
    assert checkpoint["names"] == [checkpoint["origin"]]
    tiles, level, hashes = 0, 0, leaves
    while hashes:
        for index in range((len(hashes) + 255) // 256):
            chunk = hashes[index * 256:index * 256 + 256]
            with open(os.path.join(directory, tile_path(level, index, len(chunk))), "rb") as file:
                assert file.read() == b"".join(chunk), tile_path(level, index, len(chunk))
            tiles += 1
        full = len(hashes) // 256
        hashes = [root(hashes[i * 256:i * 256 + 256]) for i in range(full)]
        level += 1
    return {"size": size, "root": b64(checkpoint["root"]), "tiles": tiles, "origin": checkpoint["origin"]}


def check_seal(seal_file, directory):
    with open(seal_file, "rb") as file:
        seal = json.load(file)
    envelope = seal["dsseEnvelope"]
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"].encode()
    pae = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    entry = seal["verificationMaterial"]["tlogEntries"][0]
    body = base64.b64decode(entry["canonicalizedBody"])
    record = json.loads(body)
    spki = record["spec"]["hashedRekordV002"]["signature"]["verifier"]["publicKey"]["rawBytes"]
    expected = {
        "apiVersion": "0.0.2", "kind": "hashedrekord", "spec": {"hashedRekordV002": {
            "data": {"algorithm": "SHA2_256", "digest": b64(sha256(pae))},
            "signature": {"content": envelope["signatures"][0]["sig"], "verifier": {
                "keyDetails": "PKIX_ECDSA_P256_SHA_256", "publicKey": {"rawBytes": spki}}}}}}
    # RFC 8785 for a document without numbers and with ASCII strings alone.
    canonical = json.dumps(expected, sort_keys=True, separators=(",", ":")).encode()
    assert canonical == body, "the entry is not the canonical hashedrekord of the envelope"
    assert b64(sha256(base64.b64decode(spki))) == seal["verificationMaterial"]["publicKey"]["hint"]
    hint = seal["verificationMaterial"]["publicKey"]["hint"]
    assert envelope["signatures"][0].get("keyid", hint) == hint
    proof = entry["inclusionProof"]
    index, size = int(proof["logIndex"]), int(proof["treeSize"])
    checkpoint = read_checkpoint(proof["checkpoint"]["envelope"])
    entries = read_entries(directory, size)
    leaves = [leaf(one) for one in entries]
    assert entries[index] == body, "the log has another entry at this index"
    assert [b64(one) for one in path(index, leaves)] == proof["hashes"], "another inclusion proof"
    assert b64(root(leaves)) == proof["rootHash"] == b64(checkpoint["root"])
    assert checkpoint["size"] == size and int(entry["logIndex"]) == index
    statement = json.loads(payload)
    return {"index": index, "size": size, "subjects": [s["name"] for s in statement["subject"]],
            "digests": [s["digest"]["sha256"] for s in statement["subject"]]}


if __name__ == "__main__":
    sys.setrecursionlimit(10000)
    result = check_log(sys.argv[2]) if sys.argv[1] == "log" else check_seal(sys.argv[2], sys.argv[3])
    print(json.dumps(result))
