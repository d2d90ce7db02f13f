"""Asks PyPI's sigstore about bundles. Standard input and output are those of sigstore_verify.cjs.

Its verifier takes certificates alone. Of a key's bundle its functions for the DSSE signature, the Merkle proof and the
checkpoint are asked; nobody there compares the entry with the envelope, or the statement with the artifact.
"""

import base64
import hashlib
import json
import sys

from cryptography.hazmat.primitives.serialization import load_pem_public_key
from sigstore import dsse
from sigstore._internal.merkle import verify_merkle_inclusion
from sigstore._internal.rekor.checkpoint import verify_checkpoint
from sigstore._internal.trust import KeyringPurpose
from sigstore.hashes import Hashed
from sigstore.models import Bundle, TransparencyLogEntry, TrustedRoot
from sigstore.verify.policy import Identity
from sigstore.verify.verifier import Verifier
from sigstore_models.bundle.v1 import Bundle as PlainBundle
from sigstore_models.common.v1 import HashAlgorithm
from sigstore_models.trustroot.v1 import TrustedRoot as PlainRoot


def ask(one):
    plain = json.loads(one["trusted_root"])
    # An empty list may be left out of Sigstore's JSON; this reader wants to see it.
    for name in ("tlogs", "certificateAuthorities", "ctlogs", "timestampAuthorities"):
        plain.setdefault(name, [])
    root = TrustedRoot(PlainRoot.from_json(json.dumps(plain)))
    if "key" not in one:
        bundle = Bundle.from_json(one["bundle"])
        policy = Identity(identity=one["identity"], issuer=one["issuer"])
        if bundle._dsse_envelope is not None:
            Verifier(trusted_root=root).verify_dsse(bundle, policy)
            return
        digest = hashlib.sha256(base64.b64decode(one["artifact"])).digest()
        hashed = Hashed(algorithm=HashAlgorithm.SHA2_256, digest=digest)
        Verifier(trusted_root=root).verify_artifact(hashed, bundle, policy)
        return
    bundle = PlainBundle.from_json(one["bundle"])
    if bundle.dsse_envelope is None:
        raise ValueError("no function for a key's message signature")
    dsse._verify(load_pem_public_key(one["key"].encode()), dsse.Envelope(bundle.dsse_envelope))
    entries = bundle.verification_material.tlog_entries
    if not entries:
        raise ValueError("no log entry")
    for plain in entries:
        entry = TransparencyLogEntry(plain)
        verify_merkle_inclusion(entry)
        verify_checkpoint(root.rekor_keyring(KeyringPurpose.VERIFY), entry)


def answer(one):
    try:
        ask(one)
        return ""
    except Exception as error:  # whatever it throws, it does not accept
        return (str(error) or type(error).__name__)[:300]


json.dump([answer(one) for one in json.load(sys.stdin)], sys.stdout)
