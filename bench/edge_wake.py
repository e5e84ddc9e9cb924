"""What it costs a request that its machine sleeps: the whole time to its answer, beside the start of the same machine
by a call, in turns; and a thousand requests at once while all machines of an app sleep.

    python bench/edge_wake.py [--rounds N] [--machines N] [--requests N]
"""

import argparse
import asyncio
import socket
import time

import msgspec
from bench_node import BenchNode, bench_node, rest, timed_ms
from edge import HOST, WAIT_S, free_port
from figures import Samples, table

_SOFT = 20
_ASK = b"GET / HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n"


def make(node: BenchNode, port: int) -> str:
    """A machine whose port is published, and which requests wake."""
    service = {
        "protocol": "tcp",
        "internal_port": 8080,
        "autostart": True,
        "autostop": "off",
        "concurrency": {"type": "requests", "soft_limit": _SOFT},
        "ports": [{"port": port, "handlers": ["http"]}],
    }
    config = {"image": "hawker/hello", "services": [service], "metadata": {"hawker_publish": HOST}}
    machine = str(node.call("POST", node.machines, {"config": config})["id"])
    node.wait(machine, "started")
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            socket.create_connection((HOST, port)).close()
            return machine
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def sleep(node: BenchNode, machines: list[str]) -> None:
    for machine in machines:
        node.act(machine, "stop")
    for machine in machines:
        node.wait(machine, "stopped")


def start(node: BenchNode, machine: str) -> None:
    node.act(machine, "start")
    node.wait(machine, "started")


async def answer(port: int) -> tuple[bool, float]:
    """Whether it was 200, and after how many milliseconds."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(_ASK)
    said = await reader.read()
    writer.close()
    return said.startswith(b"HTTP/1.1 200 "), (time.perf_counter() - began) * 1000


def wake(port: int) -> None:
    good, _ = asyncio.run(answer(port))
    if not good:
        raise RuntimeError("the machine did not wake")


async def crowd(port: int, count: int) -> list[tuple[bool, float]]:
    return await asyncio.gather(*(answer(port) for _ in range(count)))


def started(node: BenchNode) -> int:
    content, _ = node.fetch("GET", node.machines)
    return sum(machine["state"] == "started" for machine in msgspec.json.decode(content))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--machines", type=int, default=14)
    parser.add_argument("--requests", type=int, default=1000)
    given = parser.parse_args()
    port = free_port()
    with bench_node() as node:
        machines = [make(node, port)]
        calls: list[float] = []
        wakes: list[float] = []
        for _ in range(given.rounds):
            sleep(node, machines)
            rest()
            calls.append(timed_ms(start, node, machines[0]))
            sleep(node, machines)
            rest()
            wakes.append(timed_ms(wake, port))
        own = Samples("start by a call", calls)
        print(table([own, Samples("request that wakes", wakes)], own))
        machines += [make(node, port) for _ in range(given.machines - 1)]
        sleep(node, machines)
        began = time.perf_counter()
        found = asyncio.run(crowd(port, given.requests))
        took = time.perf_counter() - began
        good = sum(each for each, _ in found)
        slowest = max(ms for _, ms in found)
        print(f"{given.requests} requests at once, {given.machines} machines that sleep, soft limit {_SOFT}:")
        print(f"{good} answered 200 in {took:.1f} s, the slowest after {slowest:.0f} ms; {started(node)} were started")
        for machine in machines:
            node.destroy(machine)


if __name__ == "__main__":
    main()
