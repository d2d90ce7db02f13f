"""What a server costs while it is under load: processor time, peak memory, requests a second and latencies by wrk.

Servers run on processor 0 (taskset) and what asks them on processor 1.
"""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

CONNECTIONS = [1, 8, 64]
TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def peak_mib(pid):
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(url, seconds=60):
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.read()
        except OSError:
            if time.monotonic() > end:
                sys.exit(f"{url}: no answer in {seconds} s")
            time.sleep(0.1)


def load(base, path, connections, seconds):
    """Requests a second, p50 and p99 in ms, and requests in all."""
    command = ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", base + path]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    unit = {"us": 1e-3, "ms": 1.0, "s": 1e3}

    def latency(percent):
        number, name = re.search(rf"\s{percent}%\s+([\d.]+)(us|ms|s)", text).groups()
        return float(number) * unit[name]

    requests = int(re.search(r"(\d+) requests in", text).group(1))
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))
    return rate, latency(50), latency(99), requests
