"""Whatever is sent, a node answers with a typed error, keeps its memory, and is left with nothing that nobody made.

A longer run: JUDGE=long.
"""

import mmap
import os
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawker.clock import SystemClock
from hawker.sim.harness.loop import LoopClock
from hawker.sim.harness.plan import Chance
from tests.conformance.hostile import Hostile, hostile, routes
from tests.conformance.stock import ORG, Stock
from tests.e2e.running_node import RunningNode, running_node
from tests.waiting import wait_for

MIB = 1 << 20
LONG = os.environ.get("JUDGE") == "long"
WARM_UP, ROUNDS, SEED = (5, 200, SystemClock().token_bytes(2)[0]) if LONG else (2, 4, 1)
MORE = [
    pytest.mark.long(reason="twice as many calls; the first half is the short form"),
    pytest.mark.timeout(3600),  # minutes; more on a busy host
]
MOST_GROWTH = 48 * MIB
_STACK = re.compile(rb"Traceback|File \\?\"|\.py\b|0x[0-9a-f]{6}")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """At its end nothing of it may be left on the host."""
    with running_node(tmp_path_factory.mktemp("fuzz"), "--ephemeral", "--no-rate-limits") as node:
        yield node


@pytest.fixture(scope="module")
def stock(node: RunningNode) -> Stock:
    return Stock(node)


@pytest.mark.parametrize(("warm_up", "rounds"), [(1, 2), pytest.param(WARM_UP, ROUNDS, marks=MORE)])
def test_nothing_that_is_sent_breaks_a_node_or_stays_with_it(stock: Stock, warm_up: int, rounds: int) -> None:
    chance, sent = Chance(LoopClock(SEED)), 0
    grown: list[int] = []
    for turn in range(warm_up + rounds):
        if turn in (warm_up, warm_up + rounds - 1):
            grown.append(memory_of(stock.node.pid))
        for route in routes():
            call = hostile(route, stock.names(route.path), chance)
            status, body = send(stock.node, call)
            assert status != 500 and not _STACK.search(body), f"seed {SEED}: {call} -> {status} {body[:500]!r}"
            assert status < 500 or status in (501, 503, 504), f"seed {SEED}: {call} -> {status} {body[:500]!r}"
            assert status < 400 or "error" in msgspec.json.decode(body), f"seed {SEED}: {call} -> {status} {body!r}"
            sent += 1
    assert sent >= len(routes()) * rounds and grown[-1] - grown[0] < MOST_GROWTH, grown
    clear(stock)
    comes_to_rest(stock)


def test_things_left_behind_are_seen(stock: Stock) -> None:
    """The look at the end can fail."""
    assert stock.ask("POST", "/v1/apps", {"app_name": "left", "org_slug": ORG}).status == 201
    with pytest.raises(AssertionError):
        nothing_is_left(stock)
    clear(stock)
    comes_to_rest(stock)


def test_growth_is_seen() -> None:
    before = memory_of(os.getpid())
    with mmap.mmap(-1, 2 * MOST_GROWTH) as held:  # pages of its own: what others freed is in this process still
        for at in range(0, len(held), mmap.PAGESIZE):
            held[at] = 1
        assert memory_of(os.getpid()) - before >= MOST_GROWTH


def send(node: RunningNode, call: Hostile) -> tuple[int, bytes]:
    """As much of the body as the node takes; the answer's status and body."""
    host, _, port = node.url.removeprefix("http://").partition(":")
    body = call.body or b""
    lines = [f"{call.method} {call.path} HTTP/1.1", "Host: node", f"Authorization: Bearer {node.token}"]
    lines += [f"{name}: {value}" for name, value in call.headers.items()]
    lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    with socket.create_connection((host, int(port)), timeout=90) as connection:
        connection.sendall("\r\n".join(lines).encode())
        with suppress(OSError):  # it has heard enough
            connection.sendall(body)
        answer = b"".join(iter(lambda: received(connection), b""))
    head, _, rest = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), b"".join(unchunked(rest)) if b"chunked" in head.lower() else rest


def received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except ConnectionResetError:
        return b""


def unchunked(data: bytes) -> Iterator[bytes]:
    while data:
        size, _, data = data.partition(b"\r\n")
        count = int(size or b"0", 16)
        yield data[:count]
        data = data[count + 2 :]


def clear(stock: Stock) -> None:
    for app in stock.ask("GET", f"/v1/apps?org_slug={ORG}").body["apps"] + stock.ask("GET", "/v1/apps").body["apps"]:
        where = f"/v1/apps/{app['name']}"
        stock.ask("DELETE", f"{where}?force=true")
        for volume in listed(stock, f"{where}/volumes"):
            stock.ask("DELETE", f"{where}/volumes/{volume['id']}")
        stock.ask("DELETE", f"{where}?force=true")


def listed(stock: Stock, path: str) -> list[dict[str, Any]]:
    answer = stock.ask("GET", path)
    return answer.body if answer.status == 200 else []


def comes_to_rest(stock: Stock) -> None:
    """What is destroyed leaves its directory a little later."""

    def is_at_rest() -> bool:
        try:
            nothing_is_left(stock)
        except AssertionError:
            return False
        return True

    with suppress(TimeoutError):
        wait_for(is_at_rest)
    nothing_is_left(stock)


def nothing_is_left(stock: Stock) -> None:
    assert stock.ask("GET", "/v1/apps").body["apps"] == []
    used = stock.ask("GET", "/hawker/v1/node").body["used"]
    assert {name: used[name] for name in ("shared_cpus", "performance_cpus", "memory_mb")} == {
        "shared_cpus": 0,
        "performance_cpus": 0,
        "memory_mb": 0,
    }
    assert stock.ask("GET", "/internal/v1/findings").body["findings"] == []
    machines = stock.node.place.machines
    assert not machines.exists() or list(machines.iterdir()) == []


def memory_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
