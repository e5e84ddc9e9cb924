"""What connections that rest cost the edge of a host, beside HAProxy and Caddy: memory of each, and the latency and
processor time of 1,000 requests a second without them and beside them. They are of HTTP/1.1 in plain and in TLS, of
HTTP/2, and WebSockets; each has had one answer. And what each takes in a minute with nothing to do. A proxy begins
anew for each row, since memory that is freed is used again; each is on core 0, what asks and what answers on core 1.
On a host with other work only memory and processor time count.
A WebSocket takes two descriptors of a proxy: a row has as many as the limit of open files allows. Needs haproxy, and
caddy, which is left out where it is not there (`make bench-setup`).

    PYTHONPATH=. python bench/edge_idle.py [--connections N] [--seconds S] [--rounds N] [--kinds tls,h2] [--alone-s S]
"""

import argparse
import asyncio
import gc
import os
import resource
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from edge import APP, HOST, edge_at, free_port, latencies_ms, running
from edge_tls import KEY, NAME, careless, certificates

from hawker.feed import CERTIFICATE_KEY

_RATE_PER_S, _OF_ADDRESS, _AT_ONCE = 1000, 5000, 32
_BEGUN_S = 5
_ASKS = b"GET / HTTP/1.1\r\nHost: " + NAME.encode() + b"\r\n"
_UPGRADES = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
_WEBSOCKET = _ASKS + _UPGRADES + b"dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
_SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_FIELDS = b"\x82\x87\x84\x41" + bytes((len(NAME),)) + NAME.encode()  # GET, https, /, the authority (RFC 7541)
_HEADERS = len(_FIELDS).to_bytes(3, "big") + bytes((1, 5, 0, 0, 0, 1)) + _FIELDS
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS + _HEADERS
_HAPROXY = """
global
  nbthread 1
  maxconn {most}
  no strict-limits
defaults
  mode http
  option forwardfor
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  timeout tunnel 600s
frontend plain
  bind {host}:{plain}
  default_backend app
frontend tls
  bind {host}:{tls} ssl crt {pem} alpn h2,http/1.1
  default_backend app
frontend websocket
  bind {host}:{websocket}
  default_backend sockets
backend app
  http-reuse always
  server one {host}:{app}
backend sockets
  server one {host}:{sockets}
"""
_CADDY = """\
{{
	admin off
	auto_https off
	log {{
		level ERROR
	}}
}}
http://:{plain} {{
	bind {host}
	reverse_proxy {host}:{app}
}}
https://{name}:{tls} {{
	bind {host}
	tls {pem} {pem}
	reverse_proxy {host}:{app}
}}
http://:{websocket} {{
	bind {host}
	reverse_proxy {host}:{sockets}
}}
"""
_SOCKETS = """
import asyncio, base64, hashlib
ACCEPT = base64.b64encode(hashlib.sha1(b"dGhlIHNhbXBsZSBub25jZQ==258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
ANSWER = (b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
    b"Sec-WebSocket-Accept: " + ACCEPT + b"\\r\\n\\r\\n\\x81\\x0chello, world")
class Socket(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        if b"\\r\\n\\r\\n" in data:
            self.transport.write(ANSWER)
async def main():
    server = await asyncio.get_running_loop().create_server(Socket, "{host}", {port}, backlog=4096)
    await server.serve_forever()
asyncio.run(main())
"""
_DOORS = ("plain", "tls", "websocket")
_KINDS = {"plain": ("plain", _ASKS + b"\r\n"), "tls": ("tls", _ASKS + b"\r\n"), "h2": ("tls", _HTTP2)}
_KINDS["websocket"] = "websocket", _WEBSOCKET


def resident_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS")))


def child_of(pattern: str) -> int:
    """The process whose command has this in it."""
    found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=True)
    return int(found.stdout.split()[-1])


class Proxies:
    """Each is started when it is asked for. `kinds` of connections lead through doors of the proxy."""

    def __init__(self, folder: Path, app: int, sockets: int, files: int) -> None:
        self._folder, self._app, self._sockets, self._files = folder, app, sockets, files
        pem, self._sealed = certificates()
        (folder / "pem").write_text(pem)
        self.all: dict[str, Callable[[dict[str, int]], Iterator[int]]] = {"haproxy": self._haproxy, "edge": self._edge}
        if shutil.which("caddy"):
            self.all = {"haproxy": self._haproxy, "caddy": self._caddy, "edge": self._edge}

    @contextmanager
    def started(self, name: str) -> Iterator[tuple[int, dict[str, int]]]:
        """With its process and its ports."""
        ports = {door: free_port() for door in _DOORS}
        yield from ((pid, ports) for pid in self.all[name](ports))

    def _haproxy(self, ports: dict[str, int]) -> Iterator[int]:
        file = self._written("haproxy", _HAPROXY, ports)
        with running(0, ports["plain"], "haproxy", "-q", "-f", str(file)):
            yield child_of(f"haproxy -q -f {file}")

    def _caddy(self, ports: dict[str, int]) -> Iterator[int]:
        file = self._written("Caddyfile", _CADDY, ports)
        own = ("GOMAXPROCS=1", f"XDG_CONFIG_HOME={self._folder}", f"XDG_DATA_HOME={self._folder}")
        words = ("env", *own, "caddy", "run", "--adapter", "caddyfile", "--config", str(file))
        with running(0, ports["plain"], *words):
            yield child_of(f"caddy run --adapter caddyfile --config {file}")

    def _edge(self, ports: dict[str, int]) -> Iterator[int]:
        leads = {"plain": (self._app, ("http",)), "tls": (self._app, ("tls", "http"))}
        leads["websocket"] = self._sockets, ("http",)
        with TemporaryDirectory(prefix="bench") as name:
            doors = [(port, *leads[door]) for door, port in ports.items()]
            argv = edge_at(Path(name), doors, certificates=self._sealed)
            (Path(name) / "edge" / CERTIFICATE_KEY).write_bytes(KEY)
            with running(0, ports["plain"], *argv):
                yield child_of(f"hawker edge-process --data-dir {name}")

    def _written(self, name: str, text: str, ports: dict[str, int]) -> Path:
        file = self._folder / name
        places = {"app": self._app, "sockets": self._sockets, "pem": self._folder / "pem", **ports}
        bounds = {"files": self._files, "most": self._files * 2 // 3}
        file.write_text(text.format(host=HOST, name=NAME, **places, **bounds))
        return file


@contextmanager
def resting(kind: str, ports: dict[str, int], count: int) -> Iterator[list[socket.socket]]:
    """So many connections that had an answer each, from several addresses, as one has too few ports."""
    door, asks = _KINDS[kind]
    context = careless()
    if kind == "h2":
        context.set_alpn_protocols(["h2"])
    with ExitStack() as stack, ThreadPoolExecutor(_AT_ONCE) as threads:

        def opened(number: int) -> socket.socket:
            source = f"127.0.0.{2 + number // _OF_ADDRESS}", 0
            made = stack.enter_context(socket.create_connection((HOST, ports[door]), source_address=source))
            if door == "tls":
                made = stack.enter_context(context.wrap_socket(made, server_hostname=NAME))
            made.sendall(asks)
            answered(made)
            return made

        yield list(threads.map(opened, range(count)))


def answered(connection: socket.socket) -> None:
    """What was said came back. HTTP/2 compresses no body."""
    heard = b""
    while b"hello, world" not in heard:
        data = connection.recv(65_536)
        if not data:
            raise RuntimeError(f"a connection ended: {heard!r}")
        heard += data


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(65_536):  # HTTP/2 may have had a word to say
            continue
        return False
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        return False


class Load(NamedTuple):
    """What 1,000 requests a second met; `cpu_us` is of the proxy, for each."""

    p50_ms: float
    p99_ms: float
    cpu_us: float

    def __str__(self) -> str:
        return f"{self.p50_ms:.2f} / {self.p99_ms:.2f} / {self.cpu_us:.0f}"


class Row(NamedTuple):
    """`kib` of each connection that rests; `left` are still there after the load beside them."""

    kib: float
    alone: Load
    beside: Load
    left: int


def measured(pid: int, ports: dict[str, int], kind: str, count: int, seconds: int) -> Row:
    loaded(pid, ports, 1)
    alone, before = loaded(pid, ports, seconds), resident_kib(pid)
    with resting(kind, ports, count) as connections:
        kib = (resident_kib(pid) - before) / count
        gc.collect()
        gc.freeze()  # or the client's own pauses would be measured
        beside = loaded(pid, ports, seconds)
        gc.unfreeze()
        return Row(kib, alone, beside, sum(map(is_open, connections)))


def loaded(pid: int, ports: dict[str, int], seconds: int) -> Load:
    before = cpu_s(pid)
    samples = asyncio.run(latencies_ms(ports["plain"], seconds, _RATE_PER_S))
    cpu_us = (cpu_s(pid) - before) / len(samples) * 1e6
    return Load(statistics.median(samples), statistics.quantiles(samples, n=100)[98], cpu_us)


def cpu_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def with_nothing_to_do(pid: int, seconds: int) -> str:
    time.sleep(_BEGUN_S)
    before = run_s(pid)
    time.sleep(seconds)
    return f"{resident_kib(pid) / 1024:.1f} MiB, {(run_s(pid) - before) / seconds:.2%} of a core in {seconds} s"


def run_s(pid: int) -> float:
    """As the scheduler has it, to the nanosecond: a tick of the clock rarely meets who hardly runs."""
    return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--alone-s", type=int, default=60, help="how long each is watched with nothing to do")
    parser.add_argument("--kinds", default=",".join(_KINDS))
    given = parser.parse_args()
    os.sched_setaffinity(0, {1})
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    counts = {kind: min(given.connections, files * 7 // (20 if kind == "websocket" else 10)) for kind in _KINDS}
    app, sockets = free_port(), free_port()
    samples: dict[tuple[str, str], list[Row]] = {}
    with TemporaryDirectory(prefix="bench") as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "app").write_text(APP.format(host=HOST, port=app))
        stack.enter_context(running(1, app, "haproxy", "-q", "-f", str(folder / "app")))
        stack.enter_context(running(1, sockets, sys.executable, "-c", _SOCKETS.format(host=HOST, port=sockets)))
        proxies = Proxies(folder, app, sockets, files)
        for proxy in proxies.all if given.alone_s else ():
            with proxies.started(proxy) as (pid, _ports):
                print(f"{proxy} with nothing to do: {with_nothing_to_do(pid, given.alone_s)}")
        for _ in range(given.rounds if given.kinds else 0):
            for kind in given.kinds.split(","):
                for proxy in proxies.all:
                    with proxies.started(proxy) as (pid, ports):
                        row = measured(pid, ports, kind, counts[kind], given.seconds)
                    samples.setdefault((kind, proxy), []).append(row)
    print(f"{'':20}{'resting':>9}{'KiB each':>10}{'p50, p99 ms, CPU us':>24}{'beside them':>24}{'are there':>11}")
    for (kind, proxy), rows in samples.items():
        for row in rows:
            count = f"{counts[kind]:9,}{row.kib:10.1f}"
            print(f"{kind:10}{proxy:10}{count}{row.alone!s:>24}{row.beside!s:>24}{row.left:11,}")


if __name__ == "__main__":
    main()
