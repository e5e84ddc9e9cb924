"""What the tunnel between two hosts costs: throughput of one TCP stream and round trips of one byte, from a machine of
one host to a machine of the other, beside the same between the hosts themselves, which are joined by veth pairs and a
bridge of this machine; and the processor time of each end's wireguard-go for a GiB. In turns, in one run, also of
several such programs. On a host with other work only that time counts, and how the programs compare.

    PYTHONPATH=. python bench/mesh.py [--rounds N] [PROGRAM ...]
"""

import argparse
import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from edge_idle import run_s

from hawker.host.address import mesh_name
from tests.host.mesh.test_packets import Two, meshed

_SECONDS, _TRIPS = 5, 2000
_PORT = 8081
_ECHO = f"""
import socket
with socket.create_server(("::", {_PORT}), family=socket.AF_INET6, dualstack_ipv6=True) as listening:
    print("ready", flush=True)
    while True:
        connection, _ = listening.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := connection.recv(1):
                connection.sendall(data)
"""
_TRIP = f"""
import socket, sys, time
with socket.create_connection((sys.argv[1], {_PORT}), timeout=30) as connection:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    took = []
    for _ in range({_TRIPS}):
        began = time.perf_counter()
        connection.sendall(b"x")
        connection.recv(1)
        took.append(time.perf_counter() - began)
took.sort()
print(took[len(took) // 2] * 1000, took[len(took) * 99 // 100] * 1000)
"""


_PROGRAM = "import sys; from hawker.host.mesh.program import program_of; print(program_of(sys.argv[1]).pid)"


class _Way(NamedTuple):
    """From where to where; `ends` are the processes that carry packets."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    address: str
    ends: tuple[int, ...] = ()


class _Found(NamedTuple):
    gbit_per_s: float
    middle_ms: float
    late_ms: float
    ends_s_per_gib: tuple[float, ...]


def _run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


def _round(way: _Way) -> _Found:
    before = [run_s(pid) for pid in way.ends]
    said = json.loads(_run(*way.source, "iperf3", "--client", way.address, "--time", str(_SECONDS), "--json"))
    received = said["end"]["sum_received"]
    took = [(run_s(pid) - was) / received["bytes"] * 2**30 for pid, was in zip(way.ends, before, strict=True)]
    middle, late = _run(*way.source, sys.executable, "-c", _TRIP, way.address).split()
    return _Found(received["bits_per_second"] / 1e9, float(middle), float(late), tuple(took))


def _hosts(two: Two) -> _Way:
    near, far = (host.before_it for host in two.lab.hosts)
    return _Way(near, far, two.lab.hosts[1].address)


def _machines(two: Two) -> _Way:
    ends = (
        int(_run(*host.before_it, sys.executable, "-c", _PROGRAM, mesh_name(node)))
        for host, node in zip(two.lab.hosts, two.nodes, strict=True)
    )
    return _Way(two.here.inside[:-2], two.there.inside[:-2], two.there.address, tuple(ends))


def _serve(stack: ExitStack, there: tuple[str, ...]) -> None:
    for words in (("iperf3", "--server", "--forceflush"), (sys.executable, "-c", _ECHO)):
        server = stack.enter_context(subprocess.Popen((*there, *words), stdout=subprocess.PIPE))
        stack.callback(server.kill)
        assert server.stdout is not None and server.stdout.readline(), "it says when it listens"


def _measure(ways: dict[str, _Way], rounds: int) -> None:
    found: dict[str, list[_Found]] = {name: [] for name in ways}
    with ExitStack() as stack:
        for way in ways.values():
            _serve(stack, way.target)
        for number in range(rounds):
            for name, way in list(ways.items())[:: -1 if number % 2 else 1]:
                found[name].append(_round(way))
    for name, results in found.items():
        speed, middle, late = (median(each) for each in list(zip(*results, strict=True))[:3])
        ends = ", ".join(f"{median(each):.2f}" for each in zip(*(each.ends_s_per_gib for each in results), strict=True))
        of_ends = f"; a GiB took its ends {ends} s" if ends else ""
        print(f"{name:34} {speed:6.2f} Gbit/s, round trip p50 {middle:.3f} ms, p99 {late:.3f} ms{of_ends}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("programs", nargs="*", type=Path, help="wireguard-go as files; default: the host's own")
    given = parser.parse_args()
    ways: dict[str, _Way] = {}
    with ExitStack() as stack:
        for program in given.programs or [None]:
            both = stack.enter_context(meshed(Path(stack.enter_context(TemporaryDirectory())), program))
            ways.setdefault("hosts, veth", _hosts(both))
            ways[f"machines, {program or 'mesh'}"] = _machines(both)
        _measure(ways, given.rounds)


if __name__ == "__main__":
    main()
