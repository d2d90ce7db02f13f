#!/usr/bin/env python3
"""Seals through the real Rekor v1: rekor-server 1.5.4 with Trillian 1.7.3 on MariaDB, all on loopback and in a
temporary directory.

    tests/certification/rekor_v1.py COMMAND...

starts them, runs the command with SYMSEAL_REKOR_V1_URL, _ORIGIN and _KEY (a file with the log's public key) in its
environment, and stops them. The exit status is the command's. The servers are those of tests/peers; MariaDB's mariadbd and
mariadb-install-db are Debian's.
"""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

TRILLIAN = "github.com/google/trillian@v1.7.3"
SCHEMA = "storage/mysql/schema/storage.sql"


def peer(name):
    cache = os.environ.get("SYMSEAL_PEERS") or pathlib.Path.home() / ".cache/symseal/peers"
    built = pathlib.Path(cache) / "bin" / name
    found = str(built) if built.is_file() else shutil.which(name)
    return found or sys.exit(f"{name}: not found; build it with `tests/peers {name}`")


def tool(name):
    return shutil.which(name) or shutil.which(name, path="/usr/sbin") or sys.exit(f"{name}: not found; install mariadb-server")


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait(what, ready, processes, seconds=90):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, process in processes.items():
            if process.poll() is not None:
                sys.exit(f"{name} ended with {process.returncode} while {what} was awaited")
        try:
            return ready()
        except (OSError, subprocess.CalledProcessError):
            time.sleep(0.2)
    sys.exit(f"{what}: not ready after {seconds} s")


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


def main(command):
    place = pathlib.Path(tempfile.mkdtemp(prefix="rekor-v1-"))
    processes = {}

    def start(name, *arguments):
        log = open(place / f"{name}.log", "wb")
        processes[name] = subprocess.Popen([str(a) for a in arguments], stdout=log, stderr=log, cwd=place)

    try:
        schema = pathlib.Path(subprocess.check_output(["go", "env", "GOMODCACHE"], text=True).strip()) / TRILLIAN / SCHEMA
        db, rpc, rpc_http, signer, signer_http, http = free_ports(6)
        data, sock = place / "db", place / "db.sock"
        as_root = ["--user=root"] if os.geteuid() == 0 else []
        subprocess.run([tool("mariadb-install-db"), "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal", *as_root],
                       check=True, stdout=subprocess.DEVNULL)
        start("mariadbd", tool("mariadbd"), "--no-defaults", f"--datadir={data}", f"--socket={sock}", f"--port={db}",
              "--bind-address=127.0.0.1", f"--pid-file={place / 'db.pid'}", *as_root)

        def sql(text):
            subprocess.run([tool("mariadb"), "--no-defaults", "-uroot", f"--socket={sock}"], input=text, text=True, check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        wait("MariaDB", lambda: sql("select 1"), processes)
        sql("create database test_rekor; create user test@'127.0.0.1' identified by 'zaphod';"
            "create user test@localhost identified by 'zaphod';"
            "grant all on test_rekor.* to test@'127.0.0.1'; grant all on test_rekor.* to test@localhost;")
        sql("use test_rekor;\n" + schema.read_text())

        uri = f"test:zaphod@tcp(127.0.0.1:{db})/test_rekor?parseTime=true&interpolateParams=true"
        storage = ["--storage_system=mysql", f"--mysql_uri={uri}"]
        start("trillian-log-server", peer("trillian-log-server"), "--quota_system=noop", *storage,
              f"--rpc_endpoint=127.0.0.1:{rpc}", f"--http_endpoint=127.0.0.1:{rpc_http}")
        start("trillian-log-signer", peer("trillian-log-signer"), "--quota_system=noop", *storage, "--force_master",
              f"--rpc_endpoint=127.0.0.1:{signer}", f"--http_endpoint=127.0.0.1:{signer_http}", "--sequencer_interval=200ms")
        wait("Trillian", lambda: socket.create_connection(("127.0.0.1", rpc)).close(), processes)
        key = place / "log.pem"
        subprocess.run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key], check=True,
                       stderr=subprocess.DEVNULL)
        start("rekor-server", peer("rekor-server"), "serve", "--trillian_log_server.address=127.0.0.1",
              f"--trillian_log_server.port={rpc}", "--rekor_server.address=127.0.0.1", "--host=127.0.0.1", f"--port={http}",
              "--rekor_server.hostname=rekor.local", f"--rekor_server.signer={key}", "--search_index.storage_provider=mysql",
              f"--search_index.mysql.dsn={uri}")
        url = f"http://127.0.0.1:{http}"
        log = json.loads(wait("Rekor", lambda: get(f"{url}/api/v1/log"), processes))
        public = place / "log.pub"
        public.write_bytes(get(f"{url}/api/v1/log/publicKey"))
        environment = dict(os.environ, SYMSEAL_REKOR_V1_URL=url, SYMSEAL_REKOR_V1_KEY=str(public),
                           SYMSEAL_REKOR_V1_ORIGIN=f"rekor.local - {log['treeID']}")
        status = subprocess.run(command, env=environment).returncode
        if status:
            for name in processes:
                print(f"-- {name}\n{(place / f'{name}.log').read_text(errors='replace')[-2000:]}", file=sys.stderr)
        return status
    finally:
        for process in reversed(processes.values()):
            process.terminate()
        for process in processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
