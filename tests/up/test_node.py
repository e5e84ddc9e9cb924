"""The end of a node whose machines go with it."""

import pytest

from hawker.runtime.fake_host import FakeFault
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.up.node import DEADLINE_S, destroy_everything
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
