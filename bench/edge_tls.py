"""What TLS and raw bytes cost at the edge of a host, beside HAProxy, in turns in one run: requests over kept TLS
connections and with a handshake for each, HTTP/2 over TLS, and one stream of raw bytes in plain and in TLS. Each proxy
is on core 0, what asks and what answers on core 1. What connections cost that rest is measured by `edge_idle.py`.

Needs Debian's haproxy and wrk; HTTP/2 is left out without Debian's nghttp2-client.

    PYTHONPATH=. python bench/edge_tls.py [--seconds S] [--rounds N] [--processes P]
"""

import argparse
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
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

NAME, KEY = "localhost", b"k" * 32
NAMES = ("0x7f.0.1", "127.0.1", "127.1", "2130706433", "0x7f.1", "0x7f000001", "0177.1", "017700000001")
"""All of them `HOST`: an edge takes 500 handshakes a second for one name, and it is to be measured, not its limit."""
_STREAMS, _PIECE = 16, 1 << 18
_PROXY = """
global
  nbthread 1
  maxconn 2000
defaults
  timeout connect 5s
  timeout client 600s
  timeout server 600s
frontend web
  mode http
  option forwardfor
  bind {host}:{web} ssl crt {pem} alpn h2,http/1.1
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
_DOORS = ("web", "raw", "raw_tls")
_HANDLERS = {"web": ("tls", "http"), "raw": (), "raw_tls": ("tls",)}


def certificates() -> tuple[str, tuple[SealedCertificate, ...]]:
    """Chain and key in PEM, and the same as an edge has it, for each name."""
    chain, key = issued(NAME)
    pair = msgspec.msgpack.encode(KeyPair(chain=chain.encode(), key=key.encode()))
    vault = Vault(KEY, SystemClock())
    return chain + key, tuple(
        SealedCertificate(hostname=name, app=AppName("bench"), sealed=vault.seal(owner_of(name), pair))
        for name in (NAME, *NAMES)
    )


def careless() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def asked(port: int, seconds: int, *flags: str, names: Sequence[str] = (NAME,)) -> float:
    """Requests a second by wrk, one for each name, which share the connections."""
    argv = ["wrk", "-t1", f"-c{CONNECTIONS // len(names)}", f"-d{seconds}s", "-H", f"Host: {NAME}", *flags]
    asking = [subprocess.Popen([*argv, f"https://{name}:{port}/"], stdout=subprocess.PIPE, text=True) for name in names]
    said = [each.communicate()[0] for each in asking]
    if any("Non-2xx" in each or "Socket errors" in each for each in said):
        raise RuntimeError("\n".join(said))
    lines = [line.split() for each in said for line in each.splitlines() if line.startswith("Requests/sec")]
    return sum(float(words[1]) for words in lines)


def shaken(port: int, seconds: int) -> float:
    """Requests a second with a handshake each. wrk offers the ticket of the connection before, so they are resumed."""
    return asked(port, seconds, "-H", "Connection: close", names=NAMES)


def asked_http2(port: int, seconds: int) -> float:
    argv = ["h2load", f"-c{_STREAMS}", f"-m{_STREAMS}", f"-D{seconds}", "--warm-up-time=1", f"https://{NAME}:{port}/"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    line = next(line for line in said.splitlines() if line.startswith("finished in"))
    if " 2xx" not in said or "0 4xx, 0 5xx" not in said:
        raise RuntimeError(said)
    return float(line.split("req/s")[0].split()[-1])


def streamed(port: int, seconds: int, *, tls: bool) -> float:
    """Gbit a second of one connection, as whoever sends counts them."""
    with socket.create_connection((HOST, port)) as plain:
        connection = careless().wrap_socket(plain, server_hostname=NAME) if tls else plain
        piece, sent, began = bytes(_PIECE), 0, time.monotonic()
        while time.monotonic() < began + seconds:
            connection.sendall(piece)
            sent += len(piece)
        return 8e-9 * sent / (time.monotonic() - began)


@contextmanager
def proxies(folder: Path, processes: int) -> Iterator[dict[str, dict[str, int]]]:
    """Each with its ports."""
    app, sink = free_port(), free_port()
    pem, sealed = certificates()
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
        argv = edge_at(folder, doors, certificates=sealed, processes=processes)
        (folder / "edge" / CERTIFICATE_KEY).write_bytes(KEY)
        stack.enter_context(running(cores_of(processes), ports["edge"]["web"], *argv))
        yield ports


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1, help="of the edge, on as many cores")
    given = parser.parse_args()
    os.sched_setaffinity(0, {1})
    seconds = given.seconds
    measures: dict[str, Callable[[dict[str, int]], float]] = {
        "requests/s, TLS kept": lambda ports: asked(ports["web"], seconds),
        "requests/s, a handshake each": lambda ports: shaken(ports["web"], seconds),
        "Gbit/s, one stream": lambda ports: streamed(ports["raw"], seconds, tls=False),
        "Gbit/s, one stream in TLS": lambda ports: streamed(ports["raw_tls"], seconds, tls=True),
    }
    if shutil.which("h2load"):
        measures["requests/s, HTTP/2 16 x 16"] = lambda ports: asked_http2(ports["web"], seconds)
    with TemporaryDirectory(prefix="bench") as name, proxies(Path(name), given.processes) as found:
        samples: dict[tuple[str, str], list[float]] = {}
        for _ in range(given.rounds):
            for what, measure in measures.items():
                for proxy, ports in found.items():
                    samples.setdefault((what, proxy), []).append(measure(ports))
    print(f"{'':32}{'haproxy':>12}{'edge':>12}{'ratio':>8}")
    for what in measures:
        theirs, ours = (median(samples[what, proxy]) for proxy in ("haproxy", "edge"))
        print(f"{what:32}{theirs:12,.1f}{ours:12,.1f}{ours / theirs if theirs else 0:8.2f}")


if __name__ == "__main__":
    main()
