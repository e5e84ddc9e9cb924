"""What an edge process holds of a fleet's machines, and how long it takes to find one: its routes and gates alone, in
this process.

    python bench/edge_routes.py [MACHINES]
"""

import random
import sys
import time
import timeit
from collections.abc import Iterable, Iterator
from pathlib import Path

from edge import HOST, HTTP

from hawker.clock import SystemClock
from hawker.config import Service
from hawker.config.machine import Port
from hawker.edge.gates import Gates
from hawker.edge.routes import Door, Routes
from hawker.edge.worker_link import WorkerLink
from hawker.feed import (
    AllMachines,
    AppAddress,
    AskReport,
    AskRoute,
    CloseMachine,
    EdgeInbox,
    GatePlace,
    MachineRoute,
    SealedCertificate,
    frame,
    in_parts,
)
from hawker.ids import AppName, MachineId, NodeId
from hawker.machine import State

_OF_APP, _ASKED = 10, 2000


def fleet(count: int) -> Iterator[MachineRoute]:
    """Ten machines of an app, which is found at its name, over a hundred hosts."""
    places = [GatePlace(node=NodeId(f"{n:08x}"), host=f"10.0.0.{n}", port=4291) for n in range(1, 101)]
    for number in range(count):
        yield MachineRoute(
            id=MachineId(f"{number:014x}"),
            app=AppName(f"app-{number // _OF_APP}"),
            state=State.STARTED,
            version=f"{number:026}",
            instance=None,
            hosts=(),
            services=(Service(protocol="tcp", internal_port=8080, ports=(Port(port=80, handlers=HTTP),)),),
            gate=places[number % 100],
        )


def said(count: int) -> Iterator[bytes]:
    """As the worker says it to a process that hears parts."""
    names = tuple(AppAddress(app=AppName(f"app-{number}"), ip=HOST, shared=True) for number in range(count // _OF_APP))
    beginning = AllMachines(machines=(), addresses=(HOST,), app_addresses=names)
    yield from map(frame, in_parts(beginning, fleet(count), ()))


class Process:
    """What an edge process has of machines. Keeps `FeedReader`."""

    def __init__(self) -> None:
        self.routes, self._now = Routes(), SystemClock().monotonic
        self.gates = Gates(random.random, self.routes.machines)

    def whole(self, message: AllMachines) -> None:
        self.routes.begin(message.addresses, message.app_addresses)

    def more(self, machines: Iterable[MachineRoute]) -> None:
        for machine in machines:
            self.changed(machine)

    def changed(self, machine: MachineRoute) -> None:
        self.routes.put(machine)
        self.gates.update(machine, self._now())

    def ended(self, gone: Iterable[MachineId], certificates: Iterable[SealedCertificate]) -> None: ...

    def gone(self, machine_id: MachineId) -> None: ...

    def close(self, message: CloseMachine) -> None: ...

    def ask(self, message: AskReport) -> None: ...

    def explain(self, message: AskRoute) -> None: ...


def memory_mib(name: str) -> float:
    """VmRSS is what this process has now, VmHWM the most that it had."""
    text = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith(name))) / 1024


def main(count: int) -> None:
    process, link, inbox = Process(), WorkerLink(Path("/nonexistent"), SystemClock()), EdgeInbox()
    before, longest = memory_mib("VmRSS"), 0.0
    for _ in range(2):  # it is said again and again
        began = time.perf_counter()
        for part in said(count):
            at = time.perf_counter()
            for message in inbox.read(part):
                link._hear(message, process)
            longest = max(longest, time.perf_counter() - at)
        took = time.perf_counter() - began
    more, most = memory_mib("VmRSS") - before, memory_mib("VmHWM") - before
    print(f"{count} machines: {more:.0f} MiB more, {most:.0f} at most, said and heard in {took:.1f} s", end="")
    print(f", {longest * 1000:.1f} ms the longest part")
    door = Door(HOST, 80)

    def found(name: str) -> None:
        app = process.routes.app_named(door, name, None, tls=False)
        assert app is not None and process.routes.newest(door, app) is not None

    names = [f"app-{random.randrange(count // _OF_APP)}.example.com" for _ in range(_ASKED)]
    cold = timeit.timeit(lambda: [found(name) for name in names], number=1) / _ASKED
    hot = timeit.timeit(lambda: found(names[0]), number=_ASKED) / _ASKED
    print(f"an app is found in {cold * 1e6:.1f} us for a name that was not asked for before, else in {hot * 1e6:.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
