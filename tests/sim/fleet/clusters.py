"""A simulated fleet for tests: a few hosts that are up, in virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from hawker.gossip.memory_network import MemoryNetwork
from hawker.ids import NodeId
from hawker.sim.fleet.client import FleetLedger
from hawker.sim.fleet.cluster import SOUND_FLEET, SimCluster, address_of
from hawker.sim.fleet.host import FleetHost
from hawker.sim.fleet.network import CallNetwork
from hawker.sim.harness.loop import LoopClock
from hawker.sim.harness.trace import Trace
from hawker.sim.node.world import ROOM


@asynccontextmanager
async def cluster_of(folder: Path, count: int) -> AsyncIterator[tuple[SimCluster, list[FleetHost], TaskGroup]]:
    clock = LoopClock(1)
    names = [NodeId(f"{number:08x}") for number in range(1, count + 1)]
    seeds = [address_of(name) for name in names]
    cluster = SimCluster(network=MemoryNetwork(clock), call_network=CallNetwork(clock), kit=SOUND_FLEET, seeds=seeds)
    async with anyio.create_task_group() as tasks:
        await tasks.start(cluster.network.serve)
        await tasks.start(cluster.call_network.serve)
        hosts = [FleetHost(cluster, name, "mad", folder, seed=at, room=ROOM) for at, name in enumerate(names)]
        for host in hosts:
            await host.begin(tasks)
        yield cluster, hosts, tasks
        for host in hosts:
            await host.kill()
        tasks.cancel_scope.cancel()


def ledger_of(cluster: SimCluster) -> FleetLedger:
    return FleetLedger(cluster.call_network.clock, Trace())
