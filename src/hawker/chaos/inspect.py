"""A node whose daemon was stopped, looked at from outside: its store file, and its host through the real driver.

Stopped, not killed in the middle: SIGTERM leaves machines running and nothing under way in the daemon.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from anyio.to_thread import run_sync

from hawker.chaos.daemon import Daemon
from hawker.chaos.footprint import Claims, mounted, networks, pilots, unclaimed
from hawker.chaos.traces import Trace, host
from hawker.clock import Clock
from hawker.ids import InstanceId, MachineId, NodeId
from hawker.proof import invariants
from hawker.proof.host_state import HostState
from hawker.proof.promises import Promises
from hawker.proof.violation import Violation
from hawker.runtime.container import container_driver
from hawker.runtime.driver import Driver, Phase
from hawker.runtime.process import process_driver
from hawker.store.contract import Reader
from hawker.store.sqlite import SqliteStore
from hawker.worker.records import MACHINES, NODE

_DYING_S = 3.0  # for what is on its way out of the host
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Seen:
    """`reader` is good for as long as the inspection lasts."""

    reader: Reader
    host: HostState


@asynccontextmanager
async def inspect(daemon: Daemon, clock: Clock) -> AsyncIterator[Seen]:
    """Raises `CannotStart` when the store is damaged, or still held by a daemon."""
    assert not daemon.alive, "stop it first"
    store = SqliteStore(daemon.place.store)
    try:
        yield Seen(store, await host_state(daemon, store, clock))
    finally:
        await store.close()


async def violations_at_rest(daemon: Daemon, clock: Clock, promises: Promises | None = None) -> list[Violation]:
    """What is broken of a stopped node, and stays so when looked at again; also of what its clients were promised."""
    deadline = clock.monotonic() + _DYING_S
    async with inspect(daemon, clock) as seen:
        found = invariants.at_rest(seen.reader, seen.host)
        while found and clock.monotonic() < deadline:
            await clock.sleep(_LOOK_EVERY_S)
            found = invariants.at_rest(seen.reader, await host_state(daemon, seen.reader, clock))
        return found if promises is None else [*found, *promises.broken(seen.reader)]


async def host_state(daemon: Daemon, reader: Reader, clock: Clock) -> HostState:
    """The host as it is now."""
    node, place = reader.get(NODE, "self"), daemon.place
    assert node is not None, "a node that was ready has written who it is"
    driver = driver_of(daemon, node.id, clock)
    instances = frozenset(await driver.list())
    recorded = frozenset(record.id for _, record in reader.scan(MACHINES))
    running = {each: found for each in instances | recorded if (found := await _running(driver, each)) is not None}
    alive = pilots(place.machines)
    traces = await run_sync(host)
    claims = Claims(node.id, daemon.data_dir, recorded, frozenset(running))
    unknown = [f"a pilot of {each}, which does not run" for each in sorted(alive.keys() - running.keys())]
    return HostState(
        running=running,
        mounted=mounted(place.machines),
        instances=instances,
        directories=frozenset(_directories(daemon)),
        networks=networks(place.networks),
        doubled=frozenset(each for each, count in alive.items() if count > 1),
        strays=(*unknown, *unclaimed(_own(traces, daemon), claims)),
    )


def driver_of(daemon: Daemon, node_id: NodeId, clock: Clock) -> Driver:
    if daemon.driver == "container":
        return container_driver(node_id, daemon.place.machines, daemon.place.crun, clock)
    return process_driver(daemon.place.machines, clock)


async def _running(driver: Driver, machine_id: MachineId) -> InstanceId | None:
    seen = await driver.inspect(machine_id)
    return seen.instance_id if seen.phase is Phase.RUNNING else None


def _directories(daemon: Daemon) -> Iterator[MachineId]:
    return (MachineId(each.name) for each in daemon.place.machines.iterdir())


def _own(traces: frozenset[Trace], daemon: Daemon) -> Iterator[Trace]:
    return (trace for trace in traces if any(mark in trace.bears for mark in daemon.marks))
