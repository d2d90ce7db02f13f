#!/usr/bin/env python3
"""How long a server takes to start on a bucket with nothing cached, where each answer of the bucket takes a while.

    start_from_a_bucket.py SYMSEAL VERSITYGW DIR [BUNDLES] [MILLISECONDS...]

Pushes BUNDLES (55) bundles of one small program each, with build-ids of their own, into a bucket of a versitygw in DIR; then starts a server on it for each
of MILLISECONDS (50 200), with an empty data directory and behind a proxy that holds each request for so long. Prints the time from the call of the
program to its first answer, and how many requests there were.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from measuring import free_port, wait_for

KEY, SECRET = "symseal", "of-this-run-alone"
SOURCE = "int main(void) { return 0; }\n"


class Proxy:
    """Passes on requests, whose heads come in one piece each, after a while."""

    def __init__(self, to):
        self.to, self.seconds, self.requests, self.lock = to, 0.0, 0, threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.to))
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.copy, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self.copy, args=(server, client, False), daemon=True).start()

    def copy(self, source, target, asks):
        try:
            while data := source.recv(1 << 16):
                if asks and data.split(b" ", 1)[0] in (b"GET", b"HEAD", b"PUT", b"POST", b"DELETE"):
                    with self.lock:
                        self.requests += 1
                    time.sleep(self.seconds)
                target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def server(symseal, data, port, store):
    address = f"127.0.0.1:{free_port()}"
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    command = [symseal, "serve", "--listen", address, "--data", data, "--blobs", store]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), address


def push(symseal, work, address, number):
    program, layout = os.path.join(work, "app"), os.path.join(work, "layout")
    flag = f"-Wl,--build-id=0x{number + 1:08x}{'ab' * 16}"
    subprocess.run(["cc", "-g", "-x", "c", "-", "-o", program, flag], input=SOURCE.encode(), check=True)
    version = str(number)
    build = [symseal, "bundle", "build", program, "--name", "app", "--version", version, "--output", layout]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    to = f"{address}/team/app:{version}"
    subprocess.run([symseal, "bundle", "push", layout, to], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    shutil.rmtree(layout)


def main():
    symseal, versitygw, folder = (os.path.abspath(path) for path in sys.argv[1:4])
    bundles = int(sys.argv[4]) if len(sys.argv) > 4 else 55
    delays = [int(text) for text in sys.argv[5:]] or [50, 200]
    port = free_port()
    with tempfile.TemporaryDirectory(dir=folder) as work:
        os.makedirs(os.path.join(work, "store", "symbols"))
        os.makedirs(os.path.join(work, "sidecar"))
        gateway = [versitygw, "--access", KEY, "--secret", SECRET, "--quiet", "--port", f"127.0.0.1:{port}", "posix"]
        gateway += ["--sidecar", os.path.join(work, "sidecar"), os.path.join(work, "store")]
        store = subprocess.Popen(gateway, stdout=subprocess.DEVNULL)
        try:
            wait_until_open(port)
            writer, address = server(symseal, os.path.join(work, "writer"), port, "s3://symbols/team")
            wait_for(f"http://{address}/healthz")
            for number in range(bundles):
                push(symseal, work, address, number)
            end(writer)
            proxy = Proxy(port)
            for delay in delays:
                proxy.seconds, proxy.requests = delay / 1000, 0
                data = os.path.join(work, f"reader-{delay}")
                began = time.monotonic()
                reader, address = server(symseal, data, proxy.port, "s3://symbols/team")
                wait_for(f"http://{address}/healthz", 600)
                took, requests = time.monotonic() - began, proxy.requests
                end(reader)
                print(f"{bundles} bundles, {delay} ms a request: {took:.2f} s, {requests} requests", flush=True)
        finally:
            end(store)


def wait_until_open(port):
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)


def end(process):
    process.terminate()
    process.wait()


if __name__ == "__main__":
    main()
