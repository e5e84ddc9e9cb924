"""A node whose daemon was stopped, looked at from outside: its store file, and its host through the real driver.

Stopped, not killed in the middle: SIGTERM leaves machines running and nothing under way in the daemon.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager

from anyio.to_thread import run_sync

from hawker.chaos.daemon import Daemon
from hawker.chaos.guests import GUEST_DRIVERS, memories, root_disks, volumes_in_use
from hawker.clock import Clock
from hawker.host.residue import (
    RecordedClaims,
    Residue,
    host,
    mounted,
    networks,
    pilots,
    snapshots,
    unclaimed,
    volumes,
    volumes_mounted,
)
from hawker.ids import InstanceId, MachineId, NodeId
from hawker.proof import invariants
from hawker.proof.host_state import HostState
from hawker.proof.promises import Promises
from hawker.proof.violation import Violation
from hawker.record.machine import MACHINES
from hawker.record.node import NODE
from hawker.runtime.container import container_driver
from hawker.runtime.driver import ALIVE, Driver, NodeDriver
from hawker.runtime.microvm import microvm_driver
from hawker.runtime.process import process_driver
from hawker.store.contract import Reader
from hawker.store.sqlite import SqliteStore
from hawker.value_object import ValueObject

_DYING_S = 20.0  # for what is on its way out of the host
_LOOK_EVERY_S = 0.05


class InspectedNode(ValueObject, frozen=True):
    """`reader` is good for as long as the inspection lasts."""

    reader: Reader
    host: HostState


@asynccontextmanager
async def inspect(daemon: Daemon, clock: Clock) -> AsyncIterator[InspectedNode]:
    """Raises `CannotStart` when the store is damaged, or still held by a daemon."""
    assert not daemon.alive, "stop it first"
    store = SqliteStore(daemon.place.store)
    try:
        yield InspectedNode(store, await host_state(daemon, store, clock))
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
    suspended, guests = await driver.suspended(), driver.features.disks
    uses = volumes_in_use(place.machines, running) if guests else {}
    alive = pilots(place.machines)
    traces = await run_sync(host)
    at_work = frozenset(running) - (suspended if guests else frozenset())
    claims = RecordedClaims(node.id, daemon.data_dir, recorded, at_work, guests=guests)
    unknown = [f"a pilot of {each}, which does not run" for each in sorted(alive.keys() - at_work)]
    return HostState(
        running=running,
        suspended=suspended,
        limits={} if guests or not driver.features.limits else await _limits(driver, running),
        mounted=root_disks(place.machines) if guests else mounted(place.machines),
        instances=instances,
        directories=frozenset(_directories(daemon)),
        networks=networks(place.networks),
        volumes=volumes(place.volumes),
        volumes_mounted=frozenset(uses.values()) if guests else volumes_mounted(place.volumes),
        uses=uses,
        memories=memories(place.machines) if guests else None,
        snapshots=snapshots(place.snapshots),
        doubled=frozenset(each for each, count in alive.items() if count > 1),
        strays=(*unknown, *unclaimed(_own(traces, daemon), claims)),
    )


def driver_of(daemon: Daemon, node_id: NodeId, clock: Clock) -> NodeDriver:
    place = daemon.place
    if daemon.driver in GUEST_DRIVERS:
        return microvm_driver(
            daemon.driver,
            node_id,
            machines=place.machines,
            crun_state=place.crun,
            kernels=place.kernels,
            clock=clock,
        )
    if daemon.driver == "container":
        return container_driver(node_id, daemon.place.machines, daemon.place.crun, clock)
    return process_driver(daemon.place.machines, clock)


async def _running(driver: Driver, machine_id: MachineId) -> InstanceId | None:
    seen = await driver.inspect(machine_id)
    return seen.instance_id if seen.phase in ALIVE else None


async def _limits(driver: Driver, running: Iterable[MachineId]) -> dict[MachineId, int]:
    return {each: (await driver.memory(each)).limit_mib for each in running}


def _directories(daemon: Daemon) -> Iterator[MachineId]:
    return (MachineId(each.name) for each in daemon.place.machines.iterdir())


def _own(traces: frozenset[Residue], daemon: Daemon) -> Iterator[Residue]:
    return (trace for trace in traces if any(mark in trace.bears for mark in daemon.marks))
