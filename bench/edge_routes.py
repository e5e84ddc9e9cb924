"""What an edge process holds of a fleet's machines, and how long it takes to find one: its routes and gates alone, in
this process.

    python bench/edge_routes.py [MACHINES]
"""

import random
import sys
import time
import timeit
from pathlib import Path

import msgspec
from edge import HOST, HTTP

from hawker.clock import SystemClock
from hawker.config import Service
from hawker.config.machine import Port
from hawker.edge.gates import Gates
from hawker.edge.routes import Door, Routes
from hawker.feed import AllMachines, AppAddress, GatePlace, MachineRoute
from hawker.ids import AppName, MachineId, NodeId
from hawker.machine import State

_OF_APP, _ASKED = 10, 2000


def fleet(count: int) -> bytes:
    """As the worker says it: ten machines of an app, which is found at its name, over a hundred hosts."""
    places = [GatePlace(node=NodeId(f"{n:08x}"), host=f"10.0.0.{n}", port=4291) for n in range(1, 101)]
    machines = tuple(
        MachineRoute(
            id=MachineId(f"{number:014x}"),
            app=AppName(f"app-{number // _OF_APP}"),
            state=State.STARTED,
            version=f"{number:026}",
            instance=None,
            hosts=(),
            services=(Service(protocol="tcp", internal_port=8080, ports=(Port(port=80, handlers=HTTP),)),),
            gate=places[number % 100],
        )
        for number in range(count)
    )
    names = tuple(AppAddress(app=AppName(f"app-{number}"), ip=HOST, shared=True) for number in range(count // _OF_APP))
    return msgspec.msgpack.encode(AllMachines(machines=machines, addresses=(HOST,), app_addresses=names))


def resident_mib() -> float:
    text = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS"))) / 1024


def main(count: int) -> None:
    said = fleet(count)
    before, now, routes, gates = resident_mib(), SystemClock().monotonic, Routes(), Gates(random.random)
    for _ in range(2):  # it is said again and again
        began, heard = time.perf_counter(), msgspec.msgpack.decode(said, type=AllMachines)
        routes.replace(heard.machines, heard.addresses, heard.app_addresses)
        for machine in heard.machines:
            gates.update(routes.machines[machine.id], now())
    took, door = time.perf_counter() - began, Door(HOST, 80)
    print(f"{count} machines: {resident_mib() - before:.0f} MiB more, heard in {took:.1f} s ({len(said) >> 20} MiB)")

    def found(name: str) -> None:
        app = routes.app_named(door, name, None, tls=False)
        assert app is not None and routes.newest(door, app) is not None

    names = [f"app-{random.randrange(count // _OF_APP)}.example.com" for _ in range(_ASKED)]
    cold = timeit.timeit(lambda: [found(name) for name in names], number=1) / _ASKED
    hot = timeit.timeit(lambda: found(names[0]), number=_ASKED) / _ASKED
    print(f"an app is found in {cold * 1e6:.1f} us for a name that was not asked for before, else in {hot * 1e6:.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
