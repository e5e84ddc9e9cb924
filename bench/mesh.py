"""What the tunnel between two hosts costs: throughput of one TCP stream and round trips of one byte, from a machine of
one host to a machine of the other, beside the same between the hosts themselves, which are joined by veth pairs and a
bridge of this machine. In turns, in one run.

    PYTHONPATH=. python bench/mesh.py [rounds]
"""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

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


def _run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


def _gbit_per_s(source: tuple[str, ...], address: str) -> float:
    said = _run(*source, "iperf3", "--client", address, "--time", str(_SECONDS), "--json")
    return float(json.loads(said)["end"]["sum_received"]["bits_per_second"]) / 1e9


def _trips_ms(source: tuple[str, ...], address: str) -> tuple[float, float]:
    middle, late = _run(*source, sys.executable, "-c", _TRIP, address).split()
    return float(middle), float(late)


def _measure(two: Two, rounds: int) -> None:
    inside, far = (each.inside[:-2] for each in (two.here, two.there))
    near_host, far_host = (host.before_it for host in two.lab.hosts)
    ways = {
        "hosts, veth": (near_host, far_host, two.lab.hosts[1].address),
        "machines, mesh": (inside, far, two.there.address),
    }
    servers = []
    for _, there, _ in ways.values():
        servers.append(subprocess.Popen((*there, "iperf3", "--server"), stdout=subprocess.DEVNULL))
        echo = subprocess.Popen((*there, sys.executable, "-c", _ECHO), stdout=subprocess.PIPE)
        assert echo.stdout is not None and echo.stdout.readline() == b"ready\n"
        servers.append(echo)
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
    try:
        for _ in range(rounds):
            for name, (source, _, address) in ways.items():
                found[name].append((_gbit_per_s(source, address), *_trips_ms(source, address)))
    finally:
        for server in servers:
            server.kill()
            server.wait()
    for name, results in found.items():
        speed, middle, late = (median(each) for each in zip(*results, strict=True))
        print(f"{name:16} {speed:6.2f} Gbit/s, round trip p50 {middle:.3f} ms, p99 {late:.3f} ms")


if __name__ == "__main__":
    with TemporaryDirectory() as place, meshed(Path(place)) as both:
        _measure(both, int(sys.argv[1]) if len(sys.argv) > 1 else 3)
