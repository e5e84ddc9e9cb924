"""`hawker chaos edge`: clients ask at every edge of a real fleet, while daemons, edges, machines and hosts die and
links are cut. No request that may be repeated is lost at an edge that was spared, and none that may not reaches
machines twice: each machine writes down what reaches it.

Hosts are network namespaces, machines processes of them. For root; all of it is gone at the end.
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import StrEnum
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from anyio.to_thread import run_sync

from hawker.chaos.deploys.deployed_app import PORT, DeployedApp, app_of, edge_fleet
from hawker.chaos.deploys.edge_clients import EdgeClients, LostRequest
from hawker.chaos.edge.edge_report import EdgeRow, EdgeTrialReport
from hawker.chaos.fleet.real_fleet import LabNode
from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.value_object import ValueObject

_REGIONS = ("mad",)
_PACE_S = 0.1
_CALM_S = 1.0  # before each blow, and after it
_TAKES_S = 0.05
"""An answer: so that some requests are in machines when a blow falls."""
_LOSSY_PERCENT = 20
_OWN_PORT = 8080  # of the service
_REPEATED = {"GET": 2}
"""What may be repeated reaches machines twice at most, all else once."""

_PROGRAM = f"""
import os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
notes = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
class Counting(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        os.write(notes, f"{{self.command}} {{self.path[1:]}}\\n".encode())
        time.sleep({_TAKES_S})
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    do_POST = do_GET
    def log_message(self, *_):
        pass
class Server(ThreadingHTTPServer):
    request_queue_size = 256
Server(("127.0.0.1", int(sys.argv[2])), Counting).serve_forever()
"""


class EdgeBlow(StrEnum):
    """`edge` is one process of a host's edge, of which each second host has two; `warden` is their parent. `still`: an
    edge process stands still, for less than its parent lets it. `link`: a host and the next one hear nothing of each
    other. `parted`: likewise, a host and all others. `lossy`: a fifth of the packets between a host and all others is
    lost."""

    DAEMON = "daemon killed"
    MACHINE = "machine killed"
    EDGE = "edge process killed"
    STILL = "edge process stood still"
    WARDEN = "edge's parent killed"
    LINK = "link cut"
    PARTED = "host parted"
    LOSSY = "a fifth lost"
    HOST = "host without power"

    @property
    def spares_edge(self) -> bool:
        """Whether connections to the edge of the host that is hit go on."""
        return self not in (EdgeBlow.EDGE, EdgeBlow.WARDEN, EdgeBlow.HOST)

    @property
    def ends_requests(self) -> bool:
        """Whether one that may not be repeated can be in what dies."""
        return self not in (EdgeBlow.DAEMON, EdgeBlow.STILL, EdgeBlow.LOSSY)


class EdgeTrialPlan(ValueObject, frozen=True, kw_only=True):
    """A machine of the app at each of so many `nodes`. Each of the `blows` is dealt `rounds` times, each time to the
    next host. `away_s` is how long a daemon or a host stays away, `parted_s` a link is cut,
    `still_s` an edge process stands still."""

    nodes: int = 5
    blows: tuple[EdgeBlow, ...] = tuple(EdgeBlow)
    rounds: int = 1
    away_s: float = 12.0
    parted_s: float = 15.0
    still_s: float = 3.0
    where: Path | None = None


async def run_edge_trial(plan: EdgeTrialPlan, clock: Clock, tell: Callable[[EdgeRow], None]) -> EdgeTrialReport:
    """Each row is told as soon as it is known. Raises `HawkerError` when the nodes cannot be had at all."""
    began = clock.monotonic()
    with TemporaryDirectory(prefix="hawker-chaos-", dir=plan.where) as made:
        directory = Path(made)
        with edge_fleet(directory, clock, plan.nodes, _REGIONS, driver="process", edge_processes=2) as fleet:
            words = partial(machine_words, directory)
            async with app_of(fleet, clock, _REGIONS, words=words) as app:
                trial = EdgeTrial(plan, clock, tell, app, directory)
                await trial.run()
        found = reached(directory)
    findings = (*trial.findings, *judged(found, trial.answered), *(f"left on the host: {each}" for each in fleet.left))
    return EdgeTrialReport(
        nodes=plan.nodes,
        seconds=clock.monotonic() - began,
        rows=tuple(trial.rows),
        twice=sum(times == 2 for (method, _), times in found.items() if method == "GET"),
        findings=findings,
    )


class EdgeTrial:
    def __init__(
        self, plan: EdgeTrialPlan, clock: Clock, tell: Callable[[EdgeRow], None], app: DeployedApp, directory: Path
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._tell = tell
        self._app = app
        self._fleet = app.fleet
        self._directory = directory
        edges, numbers = [stall.host.address for stall in self._fleet.stalls], count(1)
        self._gets = EdgeClients(edges, PORT, clock, _PACE_S, ask=partial(_request, "GET", numbers))
        posts = partial(_request, "POST", numbers)
        self._posts = EdgeClients(edges, PORT, clock, _PACE_S, ask=posts, keeps=(False,))
        self.rows: list[EdgeRow] = []
        self.findings: list[str] = []

    @property
    def answered(self) -> int:
        """POSTs with 200, of all edges."""
        return self._posts.answered

    async def run(self) -> None:
        """Every blow, with clients that ask all the time."""
        try:
            await self._app.stock()
            await self._all_answer()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._gets.serve)
                tasks.start_soon(self._posts.serve)
                for number in range(self._plan.rounds):
                    for place, blow in enumerate(self._plan.blows, number):
                        await self._deal(blow, self._fleet.stalls[place % len(self._fleet.stalls)])
                tasks.cancel_scope.cancel()
        except HawkerError as error:
            self.findings.append(f"the trial could not go on: {type(error).__name__}: {error}")

    async def _all_answer(self) -> None:
        for stall in self._fleet.stalls:
            await self._app.patiently(partial(self._gets.answers, stall.host.address))

    async def _deal(self, blow: EdgeBlow, hit: LabNode) -> None:
        self._gets.forget()
        self._posts.forget()
        await self._clock.sleep(_CALM_S)
        struck_at, rest_s, findings = self._clock.monotonic(), None, list[str]()
        try:
            await self._strike(blow, hit)
            over_at = self._clock.monotonic()
            await self._app.patiently(self._app.everybody_is_here)
            await self._app.patiently(lambda: self._app.at_rest(0))
            await self._all_answer()
            rest_s = self._clock.monotonic() - over_at
            await self._clock.sleep(_CALM_S)
        except HawkerError as error:
            findings.append(f"{type(error).__name__}: {error}")
            await self._app.mend()
        row = self._row(blow, hit, struck_at, rest_s, findings)
        self.rows.append(row)
        self._tell(row)

    def _row(
        self, blow: EdgeBlow, hit: LabNode, struck_at: float, rest_s: float | None, findings: list[str]
    ) -> EdgeRow:
        spared = {each.host.address for each in self._fleet.stalls if blow.spares_edge or each is not hit}
        gets, posts = self._gets.lost(spared), self._posts.lost(spared)
        if gets:
            findings.append(_told("GETs", gets, struck_at))
        if posts and not blow.ends_requests:
            findings.append(_told("POSTs", posts, struck_at))
        return EdgeRow(
            blow=blow.value,
            host=hit.host.number,
            gets=self._gets.sent(spared),
            gets_lost=len(gets),
            posts=self._posts.sent(spared),
            posts_lost=len(posts),
            slowest_s=max(self._gets.slowest_s(spared), self._posts.slowest_s(spared)),
            rest_s=rest_s,
            findings=tuple(findings),
        )

    async def _strike(self, blow: EdgeBlow, hit: LabNode) -> None:
        """Until what was hit may come back."""
        others = [each for each in self._fleet.stalls if each is not hit]
        match blow:
            case EdgeBlow.DAEMON:
                await run_sync(hit.crash)
                await self._clock.sleep(self._plan.away_s)
                await run_sync(hit.restart)
            case EdgeBlow.MACHINE:
                _kill(_processes(str(notes_of(self._directory, hit.host.number))))
            case EdgeBlow.EDGE:
                _kill(_edge_processes(hit)[:1])
            case EdgeBlow.STILL:
                process = _edge_processes(hit)[0]
                os.kill(process, signal.SIGSTOP)
                try:
                    await self._clock.sleep(self._plan.still_s)
                finally:
                    with suppress(ProcessLookupError):  # a busy host's warden may have replaced it
                        os.kill(process, signal.SIGCONT)
            case EdgeBlow.WARDEN:
                _kill([int((hit.daemon.place.edge / "lock").read_text())])
            case EdgeBlow.LINK | EdgeBlow.PARTED:
                cut = others if blow is EdgeBlow.PARTED else others[hit.host.number % len(others) :][:1]
                await run_sync(self._fleet.lab.part, [hit.host], [each.host for each in cut])
                await self._clock.sleep(self._plan.parted_s)
                await run_sync(self._fleet.lab.heal)
            case EdgeBlow.LOSSY:
                await run_sync(partial(hit.host.drop_from, [each.host for each in others], percent=_LOSSY_PERCENT))
                for other in others:
                    await run_sync(partial(other.host.drop_from, [hit.host], percent=_LOSSY_PERCENT))
                await self._clock.sleep(self._plan.parted_s)
                await run_sync(self._fleet.lab.heal)
            case EdgeBlow.HOST:
                await run_sync(hit.power_off)
                await self._clock.sleep(self._plan.away_s)
                await run_sync(hit.power_on)


def _request(method: str, numbers: Iterator[int], edge: str) -> bytes:
    """Each has an id of its own, also where a client sends it once more."""
    length = "Content-Length: 0\r\n" if method == "POST" else ""
    return f"{method} /{next(numbers)} HTTP/1.1\r\nHost: {edge}\r\n{length}\r\n".encode()


def _told(what: str, lost: list[LostRequest], struck_at: float) -> str:
    first = lost[0]
    return f"{len(lost)} {what} were lost, the first {first.at - struck_at:+.1f} s at {first.edge}: {first.what}"


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _edge_processes(hit: LabNode) -> list[int]:
    return _processes("edge-process", str(hit.daemon.data_dir))


def _processes(*words: str) -> list[int]:
    """Of this host, whose command has all these words; the program itself, not the one that looks after it."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal():
                said = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if all(word in said for word in words):
                    found.append(int(entry.name))
    return found


# The app: each of its machines writes down what reaches it, on the host's disk, so that it outlives all.


def notes_of(directory: Path, host: int) -> Path:
    """Where the machine of this host writes."""
    return directory / f"reached-{host}"


def machine_words(directory: Path, host: int) -> dict[str, Any]:
    """What a config says of the machine at this host, which is a process of it."""
    command = [sys.executable, "-I", "-c", _PROGRAM, str(notes_of(directory, host)), str(_OWN_PORT)]
    return {"init": {"exec": command}, "restart": {"policy": "always"}, "guest": {"memory_mb": 128}}


def reached(directory: Path) -> Counter[tuple[str, str]]:
    """How often each request, by method and id, has reached a machine. A line that a death cut off is none."""
    found: Counter[tuple[str, str]] = Counter()
    for file in sorted(directory.glob("reached-*")):
        for line in file.read_text().splitlines(keepends=True):
            method, _, name = line.strip().partition(" ")
            if line.endswith("\n") and name:
                found[method, name] += 1
    return found


def judged(found: Counter[tuple[str, str]], answered: int) -> list[str]:
    """What is wrong with that. `answered` POSTs were answered with 200: each of them has reached a machine."""
    wrong = [
        f"{method} {name} reached machines {times} times"
        for (method, name), times in sorted(found.items())
        if times > _REPEATED.get(method, 1)
    ]
    posts = sum(method == "POST" for method, _ in found)
    if posts < answered:
        wrong.append(f"{answered} POSTs were answered, and {posts} reached a machine")
    return wrong
