"""What the scripts say to a server: a request, and the words of a registry."""

import hashlib
import http.client

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
EMPTY = b"{}"


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def request(address, method, path, body=None, headers=None, timeout=60):
    """Status, headers and body; raises OSError or HTTPException when the server goes away."""
    connection = http.client.HTTPConnection(address, timeout=timeout)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def artifact(layers):
    """The manifest of an artifact with these layers, each with its digest and size. Its configuration is the empty one."""
    return {
        "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": "application/vnd.example",
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": sha256(EMPTY), "size": len(EMPTY)},
        "layers": [{"mediaType": "application/octet-stream", "digest": digest, "size": size} for digest, size in layers],
    }
