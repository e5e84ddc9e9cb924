"""A host is lost while clients ask: three hosts, a machine at two of them, and clients at the edge of the third, so
that each request is a hop. At 1,000 requests a second none that may be repeated is to fail, the slowest is to take
1.5 s, and none that may not be repeated is to reach machines twice (what its host had in hand when it died is lost:
502).

Hosts are network namespaces, machines processes of them; the clients are a process of their own, over kept connections.
For root: `PYTHONPATH=. python bench/edge_lost.py [--rate R] [--seconds S]`.
"""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import msgspec
import uvloop
from anyio.to_thread import run_sync

from hawker.api.contract.app import CREATE_APP, CreateAppRequest
from hawker.api.contract.machine import CREATE_MACHINE, CreateMachineRequest
from hawker.chaos.deploys.deployed_app import APP, HERE, IMAGE, PORT, DeployedApp, app_of, edge_fleet
from hawker.chaos.edge.edge_trial import judged, notes_of, reached
from hawker.clock import Clock, SystemClock
from hawker.config import PUBLISH
from hawker.errors import Unavailable
from hawker.feed import EVERYWHERE

REGIONS = ("mad",)
CALM_S = 4.0
"""Before the host is lost."""
POSTS_IN = 20
"""One of so many requests is a POST."""
CLIENTS = 400
"""Connections of one address; the edge takes 512."""
ANSWER_S = 30.0
OWN_PORT = 8080
_FIRST_LOOK = 1_000_000_000
"""The number of the first request that is none of the clients'."""
_PROGRAM = """
import asyncio, os, sys
notes = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
class Counting(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.got = transport, b""
    def data_received(self, data):
        self.got += data
        while b"\\r\\n\\r\\n" in self.got:
            head, _, self.got = self.got.partition(b"\\r\\n\\r\\n")
            method, path, _ = head.split(b" ", 2)
            os.write(notes, method + b" " + path[1:] + b"\\n")
            asyncio.get_running_loop().call_later(0.005, self.answer)
    def answer(self):
        self.transport.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
async def serve():
    server = await asyncio.get_running_loop().create_server(Counting, "127.0.0.1", int(sys.argv[2]), backlog=1024)
    await server.serve_forever()
asyncio.run(serve())
"""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request: `at_s` after the clients began, it took `took_s`, and `status` is 0 where there was no answer."""

    post: bool
    at_s: float
    took_s: float
    status: int


class LostHost(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it; `gets_failed` and `posts_cut` by status, 0 for no answer. `rate` is of answers a second before
    the host was lost, `rate_after` from then on."""

    gets: int
    gets_failed: dict[int, int]
    posts: int
    posts_cut: dict[int, int]
    slowest_s: float
    rate: float
    rate_after: float
    twice: int
    findings: tuple[str, ...]


async def lose_host(where: Path | None, rate: int, after_s: float, clock: Clock) -> LostHost:
    """Raises `HawkerError` when the nodes cannot be had."""
    with TemporaryDirectory(prefix="hawker-bench-", dir=where) as made:
        directory = Path(made)
        with edge_fleet(directory, clock, 3, REGIONS, driver="process") as fleet:
            async with app_of(fleet, clock, REGIONS) as app:
                await stock(app, directory)
                words = (fleet.stalls[0].host.address, rate, CALM_S + after_s, directory / "asked")
                clients = begin_clients(*map(str, words))
                try:
                    await clock.sleep(CALM_S)
                    await run_sync(fleet.stalls[-1].power_off)
                    status = await run_sync(partial(clients.wait, timeout=after_s + 2 * ANSWER_S))
                    if status:
                        raise Unavailable(f"the clients ended with status {status}")
                finally:
                    clients.kill()
        asked = msgspec.json.decode((directory / "asked").read_bytes(), type=list[Asked])
        found = reached(directory)
    posts = [each for each in asked if each.post]
    wrong = judged(found, sum(each.status == 200 for each in posts))
    return summed(asked, tuple(wrong), sum(times == 2 for (method, _), times in found.items() if method == "GET"))


async def stock(app: DeployedApp, directory: Path) -> None:
    """A machine at each host but the first, whose edge answers."""
    await app.patiently(app.everybody_is_here)
    await app.patiently(lambda: app.call(CREATE_APP, body=CreateAppRequest(name=APP)))
    for stall in app.fleet.stalls[1:]:
        number = stall.host.number
        command = [sys.executable, "-I", "-c", _PROGRAM, str(notes_of(directory, number)), str(OWN_PORT)]
        service = {"internal_port": OWN_PORT, "protocol": "tcp", "ports": [{"port": PORT, "handlers": ["http"]}]}
        config = {
            "image": IMAGE,
            "services": [service],
            "metadata": {PUBLISH: EVERYWHERE, "hawker_labels": f"host={number}"},
            "guest": {"memory_mb": 128},
            "init": {"exec": command},
        }
        body = msgspec.convert({"config": config, "region": REGIONS[0]}, CreateMachineRequest)
        make = partial(app.call, CREATE_MACHINE, params=HERE, body=body, idempotency_key=f"first-{number}")
        await app.patiently(make)
    edge, numbers = app.fleet.stalls[0].host.address, count(_FIRST_LOOK)

    async def both_answer() -> bool:
        """Hosts are taken in turns, so a few answers are of both."""
        for _ in range(10):
            if await Asker(edge).ask(post=False, number=next(numbers)) != 200:
                return False
        return all(notes_of(directory, stall.host.number).exists() for stall in app.fleet.stalls[1:])

    await app.patiently(both_answer)


def summed(asked: Sequence[Asked], findings: tuple[str, ...], twice: int) -> LostHost:
    gets = [each for each in asked if not each.post]
    failed = Counter(each.status for each in gets if each.status != 200)
    cut = Counter(each.status for each in asked if each.post and each.status != 200)
    before = [each for each in asked if each.at_s < CALM_S]
    end = max((each.at_s for each in asked), default=CALM_S)
    return LostHost(
        gets=len(gets),
        gets_failed=dict(failed),
        posts=len(asked) - len(gets),
        posts_cut=dict(cut),
        slowest_s=max((each.took_s for each in gets), default=0.0),
        rate=len(before) / CALM_S,
        rate_after=(len(asked) - len(before)) / max(0.1, end - CALM_S),
        twice=twice,
        findings=findings,
    )


# The clients: a program of their own.


def begin_clients(*words: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, __file__, "--clients", *words])


class Asker:
    """A connection that is kept while it goes."""

    def __init__(self, edge: str) -> None:
        self._edge = edge
        self._ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, *, post: bool, number: int) -> int:
        """The status; 0 where there was no answer. A kept connection may have ended meanwhile: then it is asked again,
        as any client does."""
        kept = self._ends is not None
        try:
            return await asyncio.wait_for(self._once(post, number), ANSWER_S)
        except (OSError, EOFError, ValueError):
            self.close()
            return await self.ask(post=post, number=number) if kept and not post else 0

    async def _once(self, post: bool, number: int) -> int:
        if self._ends is None:
            self._ends = await asyncio.open_connection(self._edge, PORT)
        reader, writer = self._ends
        method, length = ("POST", "Content-Length: 0\r\n") if post else ("GET", "")
        writer.write(f"{method} /{number} HTTP/1.1\r\nHost: {self._edge}\r\n{length}\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
        if b"\r\nconnection: close" in head or post:
            self.close()
        return int(head.split(b" ", 2)[1])

    def close(self) -> None:
        if self._ends is not None:
            self._ends[1].close()
            self._ends = None


async def ask_all(edge: str, rate: int, seconds: float) -> list[Asked]:
    """At an open rate, as long as no client has two requests that are due: who is late leaves them out. SIGTERM ends it
    before its time."""
    asked: list[Asked] = []
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    began, each_s = time.monotonic(), CLIENTS / rate

    async def client(place: int) -> None:
        asker, number = Asker(edge), place + 1
        due = began + place / rate
        while due < began + seconds and not over.is_set():
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            post, at = number % POSTS_IN == 0, time.monotonic()
            status = await asker.ask(post=post, number=number)
            asked.append(Asked(post=post, at_s=at - began, took_s=time.monotonic() - at, status=status))
            number += CLIENTS
            due = max(due + each_s, time.monotonic())
        asker.close()

    await asyncio.gather(*map(client, range(CLIENTS)))
    return asked


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=15.0, help="from the loss on")
    parser.add_argument("--clients", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.clients:
        edge, rate, seconds, file = given.clients
        Path(file).write_bytes(msgspec.json.encode(uvloop.run(ask_all(edge, int(rate), float(seconds)))))
        return
    found = anyio.run(lose_host, None, given.rate, given.seconds, SystemClock())
    print(json.dumps(msgspec.to_builtins(found), indent=2))


if __name__ == "__main__":
    main()
