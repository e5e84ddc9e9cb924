"""The edge beside HAProxy and Caddy, in one run: requests a second of one core, and the latency that each adds at 500
requests a second. The machine behind all is an HAProxy that answers by itself. Proxies run on core 0, all else on core
1. `bare` is a program in Python that passes bytes on and reads no request. `hop` is an edge whose machine is on another
host: both edges are on core 0, and each request is a hop of its own, with TLS. `edge is` the part of a proxy's requests
a second that the edge does, of the medians of this run.

Needs Debian's haproxy and wrk, and caddy, which is left out where it is not there (`make bench-setup` installs them):
`PYTHONPATH=. python bench/edge.py [--seconds S] [--rounds N] [--processes P]`. With more processes than one the edges
have as many cores, which they share with the machine and the clients where the host has no more.
"""

import argparse
import asyncio
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from hawker.auth.node_certificate import identity_of
from hawker.config import Service
from hawker.config.machine import Concurrency, Port
from hawker.feed import NODE_IDENTITY, PROCESSES, AllMachines, GatePlace, MachineRoute, SealedCertificate
from hawker.host.own_user import WRITES
from hawker.ids import AppName, InstanceId, MachineId, NodeId
from hawker.machine import State

HAWKER = str(Path(sys.executable).with_name("hawker"))
FORWARDER = Path(__file__).with_name("peers") / "forwarder.py"
HOST = "127.0.0.1"
HTTP = ("http",)
CONNECTIONS, RATE_PER_S, WAIT_S = 64, 500, 20.0
APP = """
global
  nbthread 1
  maxconn 2000
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend app
  bind {host}:{port}
  http-request return status 200 content-type text/plain string "hello, world"
"""
_PROXY = """
global
  nbthread 1
  maxconn 2000
defaults
  mode http
  option forwardfor
  http-reuse always
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend web
  bind {host}:{port}
  default_backend app
backend app
  server one {host}:{app}
"""

_CADDY = """\
{{
	admin off
	auto_https off
	log {{
		level ERROR
	}}
}}
http://:{port} {{
	bind {host}
	reverse_proxy {host}:{app}
}}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(core: int | str, port: int, *argv: str) -> Iterator[None]:
    """On this core, from when it listens."""
    process = subprocess.Popen(["taskset", "-c", str(core), *argv])
    try:
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                socket.create_connection((HOST, port)).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def edge_at(
    folder: Path,
    doors: Sequence[tuple[int, int, tuple[str, ...]]],
    *,
    gate: GatePlace | None = None,
    own: GatePlace | None = None,
    certificates: tuple[SealedCertificate, ...] = (),
    processes: int = 1,
) -> tuple[str, ...]:
    """An edge that knows one machine, from the file that it would have kept; no daemon is there. A door is its port,
    the machine's, and its handlers. `gate` is where the machine's is, if not here; `own` where this one answers other
    edges."""
    (folder / "edge" / WRITES).mkdir(parents=True)
    (folder / "edge" / PROCESSES).write_text(str(processes))
    place = gate or own
    if place is not None:
        node = NodeId("aaaaaaaa") if own is None else own.node
        (folder / "edge" / NODE_IDENTITY).write_text(identity_of(node, [bytes(32)]))
    machine = MachineRoute(
        id=MachineId("1"),
        app=AppName("bench"),
        state=State.STARTED,
        version="1",
        instance=InstanceId("1"),
        hosts=(HOST,),
        services=tuple(
            Service(
                protocol="tcp",
                internal_port=app,
                ports=(Port(port=port, handlers=handlers),),
                concurrency=Concurrency(type="requests", soft_limit=50_000, hard_limit=50_000),
            )
            for port, app, handlers in doors
        ),
        publish="" if own else "*",
        gate=gate,
    )
    routes = AllMachines(machines=(machine,), addresses=(HOST,), gate=own, certificates=certificates)
    (folder / "edge" / WRITES / "routes").write_bytes(msgspec.msgpack.encode(routes))
    return HAWKER, "edge", "--data-dir", str(folder), "--log-level", "error"


def cores_of(processes: int) -> str:
    """For `taskset`: one for each process, as far as the host has them."""
    return f"0-{min(processes, os.cpu_count() or 1) - 1}"


def requests_per_s(port: int, seconds: int) -> float:
    argv = ["taskset", "-c", "1", "wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", f"http://{HOST}:{port}/"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in said, said
    return float(next(line.split()[1] for line in said.splitlines() if line.startswith("Requests/sec")))


async def latencies_ms(port: int, seconds: float, rate_per_s: int = RATE_PER_S) -> list[float]:
    """At an open rate, over kept connections: a request is due when it is due, be the one before answered or not."""
    samples: list[float] = []
    each_s, workers = 8 / rate_per_s, 8

    async def work(number: int, begin: float) -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        due = begin + number * each_s / workers
        while due < begin + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            writer.write(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n")
            await reader.readuntil(b"hello, world")
            samples.append((time.perf_counter() - due) * 1000)
            due += each_s
        writer.close()

    begin = time.perf_counter() + 0.2
    await asyncio.gather(*(work(number, begin) for number in range(workers)))
    return sorted(samples)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    cores, processes = cores_of(given.processes), given.processes
    os.sched_setaffinity(0, {1})
    names = ["direct", "haproxy", "bare", "edge", "hop"]
    if shutil.which("caddy"):
        names.insert(2, "caddy")
    else:
        print("Caddy is left out: it is not installed (`make bench-setup`)")
    ports = {name: free_port() for name in names}
    app, gate = ports["direct"], GatePlace(node=NodeId("bbbbbbbb"), host=HOST, port=free_port())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="bench")))
        for name, text in (("direct", APP), ("haproxy", _PROXY)):
            (folder / name).write_text(text.format(host=HOST, port=ports[name], app=ports["direct"]))
            stack.enter_context(running(int(name == "direct"), ports[name], "haproxy", "-f", str(folder / name)))
        bare = (sys.executable, str(FORWARDER), str(ports["bare"]), str(app))
        stack.enter_context(running(0, ports["bare"], *bare))
        if "caddy" in ports:
            file = folder / "Caddyfile"
            file.write_text(_CADDY.format(host=HOST, port=ports["caddy"], app=ports["direct"]))
            own = ("GOMAXPROCS=1", f"XDG_CONFIG_HOME={folder}", f"XDG_DATA_HOME={folder}")
            words = ("env", *own, "caddy", "run", "--adapter", "caddyfile", "--config", str(file))
            stack.enter_context(running(0, ports["caddy"], *words))
        stack.enter_context(
            running(cores, ports["edge"], *edge_at(folder, [(ports["edge"], app, HTTP)], processes=processes))
        )
        stack.enter_context(running(cores, gate.port, *edge_at(folder / "far", [(1, app, HTTP)], own=gate)))
        near = edge_at(folder / "near", [(ports["hop"], app, HTTP)], gate=gate)
        stack.enter_context(running(cores, ports["hop"], *near))
        rates: dict[str, list[float]] = {name: [] for name in ports}
        times: dict[str, list[float]] = {name: [] for name in ports}
        for _ in range(given.rounds):
            for name, port in ports.items():
                rates[name].append(requests_per_s(port, given.seconds))
                times[name] += asyncio.run(latencies_ms(port, given.seconds))
    show(rates, times)


def show(rates: Mapping[str, Sequence[float]], times: Mapping[str, Sequence[float]]) -> None:
    """What was measured of each way, of all rounds; what a way adds is beside the machine without a proxy."""
    print(f"{'':10}{'req/s':>10}{'edge is':>10}{'p50 ms':>10}{'p99 ms':>10}{'added p50':>12}{'added p99':>12}")
    shown = {name: (statistics.median(found), statistics.quantiles(found, n=100)[98]) for name, found in times.items()}
    edge = statistics.median(rates["edge"])
    for name, (p50, p99) in shown.items():
        rate = statistics.median(rates[name])
        added = f"{p50 - shown['direct'][0]:12.2f}{p99 - shown['direct'][1]:12.2f}"
        print(f"{name:10}{rate:10,.0f}{edge / rate:10.2f}{p50:10.2f}{p99:10.2f}{added}")


if __name__ == "__main__":
    main()
