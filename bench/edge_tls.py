"""What TLS and raw bytes cost at the edge of a host, beside HAProxy, in turns in one run: requests over kept TLS
connections and with a handshake for each, HTTP/2 over TLS, one stream of raw bytes in plain and in TLS, and the memory
of connections that rest. Each proxy is on core 0, what asks and what answers on core 1.

Needs Debian's haproxy and wrk; HTTP/2 is left out without Debian's nghttp2-client.

    PYTHONPATH=. python bench/edge_tls.py [--seconds S] [--rounds N] [--resting N] [--processes P]
"""

import argparse
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec
from edge import APP, CONNECTIONS, HOST, cores_of, edge_at, free_port, running

from hawker.clock import SystemClock
from hawker.feed import CERTIFICATE_KEY, SealedCertificate
from hawker.ids import AppName
from hawker.secret.certificate_chain import KeyPair
from hawker.secret.certificates import owner_of
from hawker.vault import Vault
from tests.certificates import issued

_NAME, _KEY = "localhost", b"k" * 32
_STREAMS, _PIECE = 16, 1 << 18
_REQUEST = b"GET / HTTP/1.1\r\nHost: " + _NAME.encode() + b"\r\n\r\n"
_PROXY = """
global
  nbthread 1
  maxconn 9000
defaults
  timeout connect 5s
  timeout client 600s
  timeout server 600s
frontend web
  mode http
  option forwardfor
  bind {host}:{web} ssl crt {pem} alpn h2,http/1.1
  default_backend app
frontend plain
  mode http
  bind {host}:{plain}
  default_backend app
backend app
  mode http
  http-reuse always
  server one {host}:{app}
frontend raw
  mode tcp
  bind {host}:{raw}
  default_backend sink
frontend raw_tls
  mode tcp
  bind {host}:{raw_tls} ssl crt {pem}
  default_backend sink
backend sink
  mode tcp
  server one {host}:{sink}
"""
_SINK = """
import socket, threading
def swallow(connection):
    room = bytearray(1 << 18)
    try:
        while connection.recv_into(room):
            pass
    except ConnectionResetError:
        pass
with socket.create_server(("{host}", {port}), backlog=64) as listening:
    while True:
        threading.Thread(target=swallow, args=(listening.accept()[0],), daemon=True).start()
"""
_DOORS = ("web", "plain", "raw", "raw_tls")
_HANDLERS = {"web": ("tls", "http"), "plain": ("http",), "raw": (), "raw_tls": ("tls",)}


def certificate() -> tuple[str, SealedCertificate]:
    """Chain and key in PEM, and the same as an edge has it."""
    chain, key = issued(_NAME)
    pair = msgspec.msgpack.encode(KeyPair(chain=chain.encode(), key=key.encode()))
    sealed = Vault(_KEY, SystemClock()).seal(owner_of(_NAME), pair)
    return chain + key, SealedCertificate(hostname=_NAME, app=AppName("bench"), sealed=sealed)


def careless() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def asked(port: int, seconds: int, *flags: str) -> float:
    """Requests a second by wrk."""
    argv = [
        "wrk",
        "-t1",
        f"-c{CONNECTIONS}",
        f"-d{seconds}s",
        "-H",
        f"Host: {_NAME}",
        *flags,
        f"https://{_NAME}:{port}/",
    ]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in said:
        raise RuntimeError(said)
    return float(next(line.split()[1] for line in said.splitlines() if line.startswith("Requests/sec")))


def asked_http2(port: int, seconds: int) -> float:
    argv = ["h2load", f"-c{_STREAMS}", f"-m{_STREAMS}", f"-D{seconds}", "--warm-up-time=1", f"https://{_NAME}:{port}/"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    line = next(line for line in said.splitlines() if line.startswith("finished in"))
    if " 2xx" not in said or "0 4xx, 0 5xx" not in said:
        raise RuntimeError(said)
    return float(line.split("req/s")[0].split()[-1])


def streamed(port: int, seconds: int, *, tls: bool) -> float:
    """Gbit a second of one connection, as whoever sends counts them."""
    with socket.create_connection((HOST, port)) as plain:
        connection = careless().wrap_socket(plain, server_hostname=_NAME) if tls else plain
        piece, sent, began = bytes(_PIECE), 0, time.monotonic()
        while time.monotonic() < began + seconds:
            connection.sendall(piece)
            sent += len(piece)
        return 8e-9 * sent / (time.monotonic() - began)


def resident_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS")))


def resting_kib(pid: int, port: int, count: int, *, tls: bool) -> float:
    """What the process grows by for each connection that was served once and is kept."""
    before, context = resident_kib(pid), careless()
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((HOST, port)))
            if tls:
                connection = stack.enter_context(context.wrap_socket(connection, server_hostname=_NAME))
            connection.sendall(_REQUEST)
            while b"hello, world" not in connection.recv(65_536):
                pass
        return (resident_kib(pid) - before) / count


def child_of(pattern: str) -> int:
    """The process whose command has this in it."""
    found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=True)
    return int(found.stdout.split()[-1])


@contextmanager
def proxies(folder: Path, processes: int) -> Iterator[dict[str, tuple[int, dict[str, int]]]]:
    """Each with its process and its ports."""
    app, sink = free_port(), free_port()
    pem, sealed = certificate()
    (folder / "pem").write_text(pem)
    (folder / "app").write_text(APP.format(host=HOST, port=app))
    ports = {name: {door: free_port() for door in _DOORS} for name in ("haproxy", "edge")}
    text = _PROXY.format(host=HOST, pem=folder / "pem", app=app, sink=sink, **ports["haproxy"])
    (folder / "haproxy").write_text(text)
    with ExitStack() as stack:
        stack.enter_context(running(1, app, "haproxy", "-f", str(folder / "app")))
        stack.enter_context(running(1, sink, sys.executable, "-c", _SINK.format(host=HOST, port=sink)))
        stack.enter_context(running(0, ports["haproxy"]["web"], "haproxy", "-f", str(folder / "haproxy")))
        doors = [(port, sink if "raw" in door else app, _HANDLERS[door]) for door, port in ports["edge"].items()]
        argv = edge_at(folder, doors, certificates=(sealed,), processes=processes)
        (folder / "edge" / CERTIFICATE_KEY).write_bytes(_KEY)
        stack.enter_context(running(cores_of(processes), ports["edge"]["web"], *argv))
        edge = child_of(f"hawker edge-process --data-dir {folder}")
        yield {"haproxy": (child_of(f"haproxy -f {folder}/haproxy"), ports["haproxy"]), "edge": (edge, ports["edge"])}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--resting", type=int, default=5000, help="connections that rest; a fifth of them over TLS")
    parser.add_argument("--processes", type=int, default=1, help="of the edge, on as many cores; memory is of the last")
    given = parser.parse_args()
    os.sched_setaffinity(0, {1})
    seconds, many = given.seconds, given.resting
    measures: dict[str, Callable[[int, dict[str, int]], float]] = {
        "requests/s, TLS kept": lambda pid, ports: asked(ports["web"], seconds),
        "requests/s, a handshake each": lambda pid, ports: asked(ports["web"], seconds, "-H", "Connection: close"),
        "Gbit/s, one stream": lambda pid, ports: streamed(ports["raw"], seconds, tls=False),
        "Gbit/s, one stream in TLS": lambda pid, ports: streamed(ports["raw_tls"], seconds, tls=True),
        "KiB, a connection that rests": lambda pid, ports: resting_kib(pid, ports["plain"], many, tls=False),
        "KiB, the same in TLS": lambda pid, ports: resting_kib(pid, ports["web"], many // 5, tls=True),
    }
    if shutil.which("h2load"):
        measures["requests/s, HTTP/2 16 x 16"] = lambda pid, ports: asked_http2(ports["web"], seconds)
    with TemporaryDirectory(prefix="bench") as name, proxies(Path(name), given.processes) as found:
        samples: dict[tuple[str, str], list[float]] = {}
        for _ in range(given.rounds):
            for what, measure in measures.items():
                for proxy, (pid, ports) in found.items():
                    samples.setdefault((what, proxy), []).append(measure(pid, ports))
    print(f"{'':32}{'haproxy':>12}{'edge':>12}{'ratio':>8}")
    for what in measures:
        theirs, ours = (median(samples[what, proxy]) for proxy in ("haproxy", "edge"))
        print(f"{what:32}{theirs:12,.1f}{ours:12,.1f}{ours / theirs if theirs else 0:8.2f}")


if __name__ == "__main__":
    main()
