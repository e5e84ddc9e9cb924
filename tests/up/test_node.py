"""The end of a node whose machines go with it."""

import pytest

from hawker.record.machine import MACHINES
from hawker.record.move import GRANTS
from hawker.runtime.fake_host import FakeFault
from hawker.sim.harness.loop import eventually
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.up.node import DEADLINE_S, destroy_everything
from tests.sim.moves.fleets import played_fleet
from tests.simulated_worker import anyio_backend, stall, worker

__all__ = ["anyio_backend", "stall", "worker"]

pytestmark = pytest.mark.anyio


async def test_every_machine_is_destroyed_and_nothing_is_left(worker: SimWorker, stall: MemoryWorld) -> None:
    running = await worker.started()
    stall.host.stubborn.add(worker.record(running).id)
    await worker.stop(running, timeout="5m")
    await worker.stopped()
    await worker.create(order={"lease_ttl": 60})
    stall.hold()
    await worker.destroy((await worker.create()).id, force=True)
    await destroy_everything(worker.parts)
    assert worker.machines() == [] and stall.host.machines() == []
    assert not stall.rootfs.directories and not stall.networks.plugged
    assert stall.rootfs.withdrawn and stall.networks.withdrawn


async def test_a_machine_that_cannot_be_destroyed_does_not_hold_the_node_for_ever(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    await worker.started()
    stall.host.script("stop", FakeFault(delay_s=3600.0))
    before = stall.clock.now()
    await destroy_everything(worker.parts)
    assert stall.clock.now() - before == pytest.approx(DEADLINE_S, abs=1)
    assert len(worker.machines()) == 1 and not stall.rootfs.withdrawn


async def test_a_move_is_cancelled_and_what_was_granted_is_the_other_nodes() -> None:
    async with played_fleet() as fleet:
        move = await fleet.move(0, 1)
        await destroy_everything(fleet.worker(0).parts)
        assert (await fleet.ended(0, move.id)).state == "aborted"
        assert fleet.hosts[0].world.store.get(MACHINES, fleet.machine) is None


async def test_a_node_that_ends_leaves_what_it_has_granted() -> None:
    async with played_fleet() as fleet:
        fleet._fleet.call_network.late.append("accept_move")  # so that it is granted, and not heard of yet
        move = await fleet.move(0, 1)
        moves = fleet.hosts[0].world.store

        def granted() -> bool:
            return moves.get(GRANTS, fleet.machine) is not None

        await eventually(fleet._clock, granted, 600)
        await destroy_everything(fleet.worker(0).parts)
        assert (await fleet.ended(0, move.id)).state == "done"
        assert fleet.hosts[1].world.store.get(MACHINES, fleet.machine) is not None
